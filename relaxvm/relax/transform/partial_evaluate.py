"""PartialEvaluate: branches whose condition is known are taken, and loops whose length is known are
unrolled.

    before:  def main(x): gv = cls.power(x, R.const(2)); return gv
             def power(x, n):
                 if n == 0: r = ones
                 else: p = cls.power(x, n - 1); r = x * p
                 return r
    after:   def main(x): p = x * ones; r = x * p; return r

A call is opened if its function decides something by an argument that is a constant, and nothing by
what is not. No more than 10,000 bindings are opened; what would take more stays a call.
"""

from __future__ import annotations

from typing import Any

from ...base import Steps, decided, declined, in_function, run_steps
from ...ir import GlobalVar, IRModule, Op, PassContext, walk
from ...ir.transform import module_pass
from ..analysis.usage import remove_all_unused
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    Constant,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
)
from ..known_ops import CALL_TIR
from ..normal_form import join_plain_blocks
from ..renamings import drop_renamings
from ..struct_info import Expr
from ..substitute import substitute_graph
from .constant_eval import ConstantEvaluator, is_constant
from .inline_private_functions import Body, opened
from .signature import replace_functions

_MOST = 10_000


@module_pass(opt_level=2)
def PartialEvaluate(mod: IRModule, ctx: PassContext) -> IRModule:
    """Take branches, and open calls, that constants decide."""
    evaluation = _Evaluation(
        mod, ConstantEvaluator(mod, ctx, ctx.get("relax.FoldConstant.max_bytes"))
    )
    changed = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function) and any(isinstance(n, (If, GlobalVar)) for n in walk(fn)):
            with in_function(gv.name_hint):
                changed[gv] = evaluation.function(fn)
    return replace_functions(mod, changed)


class _Evaluation:
    """Rebuilds functions from top to bottom, knowing the constants so far.

    known   variable -> the constant that it is
    blocks  what is made of the sequence being read; the last block is being written
    """

    def __init__(self, mod: IRModule, evaluator: ConstantEvaluator) -> None:
        self.mod = mod
        self.evaluator = evaluator
        self.known: dict[Var, Expr] = {}
        self.blocks: list[tuple[type[BindingBlock], list[Binding]]] = []
        self.bodies: dict[str, Body] = {}
        self.left = _MOST
        # Functions of which a call took more than that.
        self.endless: set[str] = set()
        # How many calls are being opened, in which nothing may be left undecided.
        self.opening = 0
        self.changed = False

    def function(self, fn: Function) -> Function:
        """`fn` as far as it can be evaluated; the same object if nothing can."""
        self.changed = False
        body = run_steps(self.apart(fn.body))
        if not self.changed:
            return fn
        return remove_all_unused(drop_renamings(fn.replace(body=body)), self.mod)

    # -- sequences --------------------------------------------------------------------------------

    def apart(self, seq: SeqExpr) -> Steps:
        """`seq` as a sequence of its own."""
        around, self.blocks = self.blocks, []
        yield self.into(seq)
        blocks = join_plain_blocks(kind(bindings) for kind, bindings in self.blocks if bindings)
        self.blocks = around
        return seq.replace(blocks=blocks)

    def into(self, seq: SeqExpr) -> Steps:
        """The bindings of `seq` put where we are; whether nothing in it was left undecided."""
        flat = bool(self.blocks) and self.blocks[-1][0] is DataflowBlock
        for block in seq.blocks:
            if not flat:
                self.blocks.append((type(block), []))
            for b in block.bindings:
                if not (yield self.binding(b)):
                    return False
        if not flat:
            self.blocks.append((BindingBlock, []))
        return True

    def bind(self, b: Binding, value: Any) -> bool:
        """Append `b` with another value."""
        self.blocks[-1][1].append(b.replace(value=value))
        constant = None if isinstance(b, MatchCast) else self.constant(value)
        if constant is not None:
            self.known[b.var] = constant
        return True

    def binding(self, b: Binding) -> Steps:
        value: Any = b.value
        if isinstance(value, If):
            condition = self.constant(value.cond)
            if condition is not None:
                taken = bool(_number(condition))
                decided("{} is decided: its condition is {}", b, taken)
                self.changed = True
                seq = value.true_branch if taken else value.false_branch
                return (yield self.into(seq)) and self.bind(b, seq.body)
            if self.opening:
                return False
            true_branch = yield self.apart(value.true_branch)
            false_branch = yield self.apart(value.false_branch)
            return self.bind(b, value.replace(true_branch=true_branch, false_branch=false_branch))
        if isinstance(value, Call) and isinstance(value.op, GlobalVar):
            result = yield self.call(value, value.op)
            if self.opening and self.left < 0:
                return False
            return self.bind(b, value if result is None else result)
        return self.bind(b, value)

    # -- values -----------------------------------------------------------------------------------

    def constant(self, value: Any) -> Any:
        """The constant that `value` is, or None."""
        if isinstance(value, Var):
            return self.known.get(value)
        if isinstance(value, TupleGetItem):
            held = self.constant(value.tuple_value)
            return held.fields[value.index] if isinstance(held, Tuple) else None
        if isinstance(value, Tuple):
            fields = [self.constant(field) for field in value.fields]
            return None if None in fields else Tuple(fields)
        if isinstance(value, Call):
            args = [self.constant(arg) for arg in value.args]
            if not isinstance(value.op, Op) or value.op is CALL_TIR or None in args:
                return None
            return self.evaluator.value(value.replace(args=tuple(args)))
        return value if is_constant(value) else None

    # -- calls ------------------------------------------------------------------------------------

    def call(self, call: Call, op: GlobalVar) -> Steps:
        """What `call` gives, once it is opened; None if it is not."""
        name = op.name_hint
        fn = self.mod.get(name)
        if not isinstance(fn, Function) or all(self.constant(a) is None for a in call.args):
            return None
        if name not in self.bodies:
            self.bodies[name] = Body(fn)
        body = self.bodies[name]
        if not body.branches or len(fn.params) != len(call.args):
            return None
        body_here = None if name in self.endless else opened(call, body)
        if body_here is None:
            return None
        self.left -= body.size
        if self.left < 0:
            return None
        checks, seq = body_here
        if self.blocks[-1][0] is DataflowBlock:
            local = {
                n.var: DataflowVar(n.var.name_hint, n.var.struct_info, n.var.span)
                for n in (*checks, *walk(seq))
                if isinstance(n, Binding) and type(n.var) is Var
            }
            seq = substitute_graph(seq, local)
            checks = [substitute_graph(c, local) for c in checks]
        place, length, before = len(self.blocks), len(self.blocks[-1][1]), self.changed
        for check in checks:
            self.bind(check, check.value)
        self.opening += 1
        whole = yield self.into(seq)
        self.opening -= 1
        if not whole:
            del self.blocks[place:], self.blocks[-1][1][length:]
            self.changed = before
            if self.left < 0 and not self.opening:
                declined("{} not opened: it takes more than {} bindings", call, _MOST)
                self.endless.add(name)
                self.left = _MOST
            elif self.left >= 0:
                declined("{} not opened: not all it decides is known", call)
            return None
        if not self.opening:
            decided("{} opened", call)
        self.changed = True
        return seq.body


def _number(value: Any) -> Any:
    return value.data.numpy() if isinstance(value, Constant) else value.value.value
