"""ToCPS, to_cps, un_cps: continuation-passing style.

    def @g(x) { exp(x) }                 def @g_cps(x, k) { k(exp(x)) }
    def @main(x) {                       def @main_cps(x, k) {
      %0 = @g(x);                          @g_cps(x, fn (%0) { k(negative(%0)) })
      negative(%0)                       }
    }                                    def @main(x) { @main_cps(x, fn (y) { y }) }

A function takes one argument more, the continuation, and calls it with its result at last. Calls of
functions and branches are at the end, and what followed them is a continuation; operators stay.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import NameSupply, PassError, Steps, run_steps
from ...ir import GlobalVar, IRModule, PassContext
from ...relax import (
    Binding,
    BindingBlock,
    Call,
    Expr,
    FuncStructInfo,
    Function,
    If,
    MatchCast,
    ObjectStructInfo,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
)
from ...relax.normal_form import Normalizer
from ...relax.utils import copy_with_new_vars
from .infer_type import InferType
from .relay_pass import relay_pass

_ANSWER = ObjectStructInfo()


@relay_pass(0, dataflow=False)
def ToCPS(mod: IRModule, ctx: PassContext) -> IRModule:
    """Let every function hand its work to a function `name`_cps in continuation-passing style."""
    forms = _Forms(mod)
    changed = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            form = changed[forms.names[gv.name_hint]] = forms.of(fn)
            direct = un_cps(form, forms.names[gv.name_hint])
            changed[gv] = direct.replace(attrs=fn.attrs)
    return changed


def to_cps(func: Function, mod: IRModule | None = None) -> Function:
    """`func` in continuation-passing style: of one parameter more, which takes the result.

    mod  where the functions are that it calls; their forms, `name`_cps, are added to it
    """
    whole = IRModule() if mod is None else mod.clone()
    whole["to_cps"] = func
    whole = InferType(whole)
    forms = _Forms(whole)
    for gv, fn in whole.items():
        if mod is not None and isinstance(fn, Function) and gv.name_hint != "to_cps":
            mod[forms.names[gv.name_hint]] = forms.of(fn)
    return forms.of(whole["to_cps"])


class _Forms:
    """The functions of a module in continuation-passing style.

    names  name of a graph function -> that of its form
    """

    def __init__(self, mod: IRModule) -> None:
        self.names = {
            gv.name_hint: GlobalVar(f"{gv.name_hint}_cps", _with_continuation(fn))
            for gv, fn in mod.items()
            if isinstance(fn, Function)
        }

    def of(self, fn: Any) -> Function:
        """The form of a function."""
        new = copy_with_new_vars(fn)
        k = Var("k", _continuation(new.ret_struct_info))
        body = run_steps(self.sequence(new.body, k))
        return Function([*new.params, k], body, _ANSWER, new.is_pure)

    def sequence(self, seq: Any, k: Var) -> Steps:
        """`seq`, which hands its result to `k`. What follows a call or a branch is gone through
        first.
        """
        after: list[Binding] = []
        last: Expr = _call(k, [seq.body])
        for b in reversed([b for block in seq.blocks for b in block.bindings]):
            value: Any = b.value
            callee: Any = value.op if isinstance(value, Call) else None
            if not isinstance(value, If) and not self.is_form(callee):
                after.insert(0, b)
                continue
            then, own = self.continuation(b, after, last, k)
            if isinstance(value, If):
                branches = []
                for branch in (value.true_branch, value.false_branch):
                    branches.append((yield self.sequence(branch, then)))
                last = If(value.cond, *branches)
            else:
                last = _call(self.names[callee.name_hint], [*value.args, then])
            after = own
        return _ending(after, last)

    def is_form(self, callee: Any) -> bool:
        return isinstance(callee, GlobalVar) and callee.name_hint in self.names

    def continuation(
        self, b: Binding, after: Sequence[Binding], last: Any, k: Var
    ) -> tuple[Var, list[Binding]]:
        """What takes the value of `b`, and the binding of that, if it is not `k` itself."""
        direct = isinstance(last, Call) and last.op is k and last.args == (b.var,)
        if direct and not after:
            return k, []
        value = Var(b.var.name_hint, b.var.struct_info)
        renamed = VarBinding(b.var, value)
        fn = Function([value], _ending([renamed, *after], last), _ANSWER)
        then = Var("then", _continuation(value.struct_info))
        return then, [VarBinding(then, fn)]


def _continuation(info: StructInfo) -> FuncStructInfo:
    return FuncStructInfo([info], _ANSWER)


def _with_continuation(fn: Function) -> FuncStructInfo:
    infos = [p.struct_info for p in fn.params]
    return FuncStructInfo([*infos, _continuation(fn.ret_struct_info)], _ANSWER)


def _call(callee: Any, args: Sequence[Expr]) -> Call:
    return Call(callee, list(args), None, (), _ANSWER)


def _ending(bindings: Sequence[Binding], last: Expr) -> SeqExpr:
    answer = Var("answer", _ANSWER)
    return SeqExpr((BindingBlock((*bindings, VarBinding(answer, last))),), answer)


def un_cps(func: Function, name: GlobalVar | None = None) -> Function:
    """A function without continuation that gives what `func`, a function in continuation-passing
    style, hands to its own. Raises PassError if its last parameter is none.

    name  how it is called, where that is a function of the module
    """
    *params, k = func.params
    info = k.struct_info
    if not isinstance(info, FuncStructInfo) or info.params is None or len(info.params) != 1:
        raise PassError(f"un_cps: wanted a function whose last parameter takes its result, got {k}")
    value, identity = Var("value", info.params[0]), Var("identity", info)
    answer, result = Var("answer", _ANSWER), Var("result", info.params[0])
    bindings = (
        VarBinding(identity, Function([value], value, info.params[0])),
        VarBinding(answer, _call(func if name is None else name, [*params, identity])),
        MatchCast(result, answer, info.params[0]),
    )
    body = SeqExpr((BindingBlock(bindings),), result)
    return Normalizer(NameSupply()).function(Function(params, body, info.params[0]))
