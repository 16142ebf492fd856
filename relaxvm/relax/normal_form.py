"""Normal form: every value that is not a leaf is bound to a variable, and bodies and branches are
`SeqExpr`s.

`Normalizer` turns any nesting into it. Nesting may be as deep as the model, so the rules are
generators driven by an explicit stack: `x = yield self._leaf(e)` asks for the leaf that stands for
`e`, binding what it needs on the way. What is in normal form already is returned as the same
object.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from ..base import UNKNOWN, NameSupply, Span, Steps, VerifyError, run_steps
from ..ir import GlobalVar, Op, walk
from ..ir import Var as TirVar
from .derive import definable_tir_vars_in_struct_info, where
from .expr import (
    LEAF_TYPES,
    Binding,
    BindingBlock,
    Call,
    DataflowBlock,
    DataflowVar,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    is_leaf,
)
from .shared_values import before_branches
from .struct_info import Expr
from .substitute import copy_bound_vars

_Opened = TypeVar("_Opened", SeqExpr, Function)


def is_flat(value: Expr | GlobalVar) -> bool:
    """Whether `value` may stand at the right of a binding and has nothing inside that could be out
    of normal form.
    """
    if isinstance(value, Call):
        return all(map(is_leaf, value.args)) and is_leaf(value.op)
    if isinstance(value, TupleGetItem):
        return type(value.tuple_value) in LEAF_TYPES
    return is_leaf(value)


def _is_flat_seq(seq: SeqExpr) -> bool:
    bindings = [b for block in seq.blocks for b in block.bindings]
    return is_leaf(seq.body) and all(is_flat(b.value) for b in bindings)


def join_plain_blocks(blocks: Iterable[BindingBlock]) -> tuple[BindingBlock, ...]:
    """`blocks` with plain blocks that follow one another made one."""
    joined: list[BindingBlock] = []
    for plain, group in itertools.groupby(blocks, lambda b: type(b) is BindingBlock):
        run = list(group)
        if plain and len(run) > 1:
            bindings = tuple(itertools.chain.from_iterable(b.bindings for b in run))
            run = [BindingBlock(bindings, run[0].span)]
        joined.extend(run)
    return tuple(joined)


def names_in(root: Expr) -> NameSupply:
    """Names that no variable below `root` has."""
    return NameSupply(lambda: (n.name_hint for n in walk(root) if isinstance(n, Var)))


class _Block:
    """Bindings being collected. `origin` is the block they come from, returned again if nothing
    changed.
    """

    __slots__ = ("bindings", "dataflow", "defined", "memo", "origin", "symbols")

    def __init__(self, dataflow: bool, origin: BindingBlock | None = None) -> None:
        self.dataflow = dataflow
        self.origin = origin
        self.bindings: list[Binding] = []
        self.defined: set[int] = set()
        # Values that a variable of this block stands for, by identity: a shared expression is
        # computed once.
        self.memo: dict[int, tuple[Expr, Expr]] = {}
        # The symbols that its casts bind, by identity.
        self.symbols: set[int] = set()

    def append(self, binding: Binding) -> None:
        self.bindings.append(binding)
        self.defined.add(id(binding.var))
        if isinstance(binding, MatchCast):
            self.symbols.update(map(id, definable_tir_vars_in_struct_info(binding.struct_info)))

    def finish(self) -> BindingBlock | None:
        if not self.bindings:
            return None
        old = self.origin
        if (
            old is not None
            and len(old.bindings) == len(self.bindings)
            and all(a is b for a, b in zip(old.bindings, self.bindings))
        ):
            return old
        kind = DataflowBlock if self.dataflow else BindingBlock
        return kind(tuple(self.bindings)) if old is None else kind(tuple(self.bindings), old.span)


class Scope:
    """The blocks of one body or branch being collected; there is always a current block.

    facts  what has been checked here about dimensions (a `shape_facts.ShapeFacts`)
    """

    __slots__ = ("barrier", "block", "blocks", "facts", "memo", "symbols")

    def __init__(self, barrier: bool = False) -> None:
        self.barrier = barrier
        self.facts: Any = None
        self.blocks: list[BindingBlock] = []
        self.block = _Block(False)
        self.memo: dict[int, tuple[Expr, Expr]] = {}
        self.symbols: set[int] = set()

    def binds(self, symbol: TirVar) -> bool:
        """Whether a cast in it bound `symbol`."""
        return id(symbol) in self.symbols or id(symbol) in self.block.symbols

    def begin(self, dataflow: bool, origin: BindingBlock | None = None) -> None:
        """Close the current block and open another."""
        self.end()
        self.block = _Block(dataflow, origin)

    def end(self) -> BindingBlock | None:
        """Close the current block (an empty one leaves no trace) and open a plain one."""
        done = self.block.finish()
        if done is not None:
            self.blocks.append(done)
            self.symbols |= self.block.symbols
        self.block = _Block(False)
        return done

    def add(self, block: BindingBlock) -> None:
        """A block that is complete comes after the current one."""
        self.end()
        self.block = _Block(isinstance(block, DataflowBlock), block)
        for binding in block.bindings:
            self.block.append(binding)
        self.end()

    def finish(self) -> tuple[BindingBlock, ...]:
        """All blocks; plain ones that follow one another are one."""
        self.end()
        return join_plain_blocks(self.blocks)

    def discard(self) -> None:
        """Drop the current block."""
        self.block = _Block(False)


class Normalizer:
    """Builds normal form into a stack of scopes.

    names  where names of new variables come from
    """

    def __init__(self, names: NameSupply) -> None:
        self.names = names
        self.scopes: list[Scope] = []
        self._opened: dict[int, Expr] = {}
        # What is being made normal, and what of it is computed before branches.
        self._root: Any = None
        self._before: dict[int, tuple[Any, dict[int, list[Any]]]] = {}
        # By the identity of an expression, the scopes that remember it, with their depths; and the
        # depth of the innermost function that is being made normal.
        self._homes: dict[int, list[tuple[int, Scope]]] = {}
        self._barrier = 0

    # -- what the builder and passes call ---------------------------------------------------------

    def value(self, expr: Expr) -> Expr:
        """`expr` as the right side of a binding; what it needs is bound in the current block."""
        return expr if is_flat(expr) else self._run(self._value(expr), expr)

    def leaf(self, expr: Expr) -> Expr:
        """The leaf that stands for `expr`, which is bound in the current block if it is none."""
        return expr if is_leaf(expr) else self._run(self._leaf(expr), expr)

    def function(self, fn: Function) -> Function:
        """`fn` in normal form; the same object if it is."""
        return self._run(self._function(fn), fn)

    def seq(self, seq: SeqExpr) -> SeqExpr:
        """`seq` in normal form; the same object if it is."""
        return self._run(self._seq(seq), seq)

    def bind(
        self, value: Expr, hint: str = "", *, as_output: bool = False, span: Span = UNKNOWN
    ) -> Var:
        """A new variable bound to `value`, which is flat or a normal `If` or `Function`.

        span  where it is bound, if the value does not know where it comes from
        """
        block = self.scopes[-1].block
        inside = block.dataflow and not as_output
        if block.dataflow and isinstance(value, If):
            raise VerifyError(
                "an If cannot stand in a dataflow block; end the block before "
                f"it{where(value.span)}"
            )
        name = self.names.fresh(hint or ("lv" if inside else "gv"))
        own = getattr(value, "span", None)
        span = span if own is None or own is UNKNOWN else own
        var = (DataflowVar if inside else Var)(name, value.struct_info, span)
        block.append(VarBinding(var, value, span))
        return var

    def remember(self, expr: Expr, leaf: Expr) -> None:
        """From here on `leaf` stands for the object `expr`."""
        scope = self.scopes[-1]
        memo = scope.block.memo if scope.block.dataflow else scope.memo
        memo[id(expr)] = (expr, leaf)
        self._homes.setdefault(id(expr), []).append((len(self.scopes) - 1, scope))

    def recall(self, expr: Expr) -> Expr | None:
        """The leaf that stands for the object `expr` here, or None."""
        key = id(expr)
        homes = self._homes.get(key, [])
        for k in range(len(homes) - 1, -1, -1):
            depth, scope = homes[k]
            if depth < len(self.scopes) and self.scopes[depth] is scope:
                known = scope.block.memo.get(key) or scope.memo.get(key)
                if known is not None:
                    return known[1] if depth >= self._barrier else None
            del homes[k]  # that scope is closed
        return None

    # -- the rules --------------------------------------------------------------------------------

    def _run(self, first: Steps, root: Any) -> Any:
        depth, self._barrier = len(self.scopes), 0
        self._root = root
        try:
            return run_steps(first)
        except BaseException:
            del self.scopes[depth:]
            raise

    def _leaf(self, expr: Expr) -> Steps:
        known = self.recall(expr)
        if known is not None:
            return known
        value = yield self._value(expr)
        if is_leaf(value):
            return value
        var = self.bind(value)
        self.remember(expr, var)
        return var

    def _leaves(self, exprs: tuple[Any, ...]) -> Steps:
        leaves = []
        changed = False
        for each in exprs:
            if is_leaf(each):
                leaves.append(each)
            else:
                leaf = yield self._leaf(each)
                changed = changed or leaf is not each
                leaves.append(leaf)
        return tuple(leaves) if changed else exprs

    def _value(self, expr: Any) -> Steps:
        rule = _RULES.get(type(expr))
        if rule is None:
            if is_leaf(expr) or isinstance(expr, Op):
                return expr
            raise VerifyError(f"{type(expr).__name__} is no expression of the graph language")
        answer = yield rule(self, expr)
        return answer

    def _call(self, call: Call) -> Steps:
        op: Any = call.op
        if not is_leaf(op) and not isinstance(op, Function):
            op = yield self._leaf(op)
        args = yield self._leaves(call.args)
        if isinstance(op, Function):  # right before its call
            op = yield self._leaf(op)
        return call.replace(op=op, args=args)

    def _tuple(self, value: Tuple) -> Steps:
        fields = yield self._leaves(value.fields)
        return value.replace(fields=fields)

    def _get_item(self, item: TupleGetItem) -> Steps:
        held = item.tuple_value
        if isinstance(held, Tuple):
            answer = yield self._value(held.fields[item.index])
            return answer
        leaf = yield self._leaf(held)
        if isinstance(leaf, Tuple):
            return leaf.fields[item.index]
        return item.replace(tuple_value=leaf)

    def _if(self, branch: If) -> Steps:
        cond = branch.cond if is_leaf(branch.cond) else (yield self._leaf(branch.cond))
        if not (_is_flat_seq(branch.true_branch) and _is_flat_seq(branch.false_branch)):
            for each in self._shared().get(id(branch), ()):
                yield self._leaf(each)
        true_branch = yield self._seq(branch.true_branch)
        false_branch = yield self._seq(branch.false_branch)
        return branch.replace(cond=cond, true_branch=true_branch, false_branch=false_branch)

    def _function(self, fn: Function) -> Steps:
        fn = self._own(fn)
        outer, self._root, self._barrier = (self._root, self._barrier), fn, len(self.scopes)
        body = yield self._seq(fn.body, barrier=True)
        self._root, self._barrier = outer
        return fn.replace(body=body)

    def _shared(self) -> dict[int, list[Any]]:
        root = self._root
        if id(root) not in self._before:
            self._before[id(root)] = root, before_branches(root)
        return self._before[id(root)][1]

    def _seq(self, seq: Any, barrier: bool = False) -> Steps:
        scope = Scope(barrier)
        self.scopes.append(scope)
        if not isinstance(seq, SeqExpr):
            seq = SeqExpr((), seq)
        seq = self._own(seq)
        for block in seq.blocks:
            scope.begin(isinstance(block, DataflowBlock), block)
            yield self._bindings(block)
        scope.end()
        body = seq.body if is_leaf(seq.body) else (yield self._leaf(seq.body))
        self.scopes.pop()
        blocks = scope.finish()
        same = len(blocks) == len(seq.blocks) and all(a is b for a, b in zip(blocks, seq.blocks))
        return seq.replace(blocks=seq.blocks if same else blocks, body=body)

    def _own(self, scope: _Opened) -> _Opened:
        """`scope`, or a copy with variables of its own if this object was put somewhere already."""
        binds = scope.params if isinstance(scope, Function) else scope.blocks
        if binds and id(scope) in self._opened:
            return copy_bound_vars(scope)
        self._opened[id(scope)] = scope
        return scope

    def _bindings(self, block: BindingBlock) -> Steps:
        scope = self.scopes[-1]
        for binding in block.bindings:
            value = binding.value
            if isinstance(binding, MatchCast):
                if not is_leaf(value):
                    value = yield self._leaf(value)
            elif not is_flat(value):
                value = yield self._value(value)
            if value is not binding.value:
                binding = binding.replace(value=value)
            scope.block.append(binding)
        return None

    def _inline(self, seq: SeqExpr) -> Steps:
        """A SeqExpr as a value: its bindings go into the current scope."""
        scope = self.scopes[-1]
        inside = scope.block.dataflow
        seq = self._own(seq)
        for block in seq.blocks:
            opens = isinstance(block, DataflowBlock) and not inside
            if opens:
                scope.begin(True)
            yield self._bindings(block)
            if opens:
                scope.end()
        answer = yield self._value(seq.body)
        return answer


_RULES: dict[type, Callable[[Normalizer, Any], Steps]] = {
    Call: Normalizer._call,
    Tuple: Normalizer._tuple,
    TupleGetItem: Normalizer._get_item,
    If: Normalizer._if,
    Function: Normalizer._function,
    SeqExpr: Normalizer._inline,
}
