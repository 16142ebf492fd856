"""Defunctionalization: functions as values become data, and calls of them a choice.

    before:  def main(x, c):
                 def inner(y): return R.add(y, x)
                 f = inner if c else cls.g; return f(x)
    after:   def main(x, c):
                 f = (0, (x,)) if c else (1, ()); return cls.apply(f, x)
             def main_inner(y, x): return R.add(y, x)
             def apply(f, y):
                 if f[0] == 0: x = R.match_cast(f[1], ...); return cls.main_inner(y, x[0])
                 else: return cls.g(y)

A function is the number of its code and what it captures. There is one `apply` for each signature
that is called. Inner functions are lifted first.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import NameSupply, PassError
from ...ir import GlobalVar, IRModule, Node, Op, PassContext, walk
from ...ir.transform import module_pass
from ...ir.walk import transform
from .. import op as R
from ..derive import BaseCheckResult, is_base_of, struct_info_base_check, where
from ..expr import (
    Binding,
    BindingBlock,
    Call,
    ExternFunc,
    Function,
    If,
    MatchCast,
    SeqExpr,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
    const,
)
from ..flow import leaves, name_of
from ..known_ops import INVOKE_CLOSURE, INVOKE_PURE_CLOSURE, MAKE_CLOSURE, OBJECT, is_op
from ..rewriter import LeafRewriter
from ..struct_info import (
    Expr,
    FuncStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    parts,
)
from ..substitute import copy_with_new_vars
from .lambda_lift import LambdaLift
from .private_functions import function_of

_INVOKE = (INVOKE_CLOSURE, INVOKE_PURE_CLOSURE)
_CLOSURE = TupleStructInfo((TensorStructInfo((), "int64"), OBJECT))


@module_pass(opt_level=0)
def Defunctionalization(mod: IRModule, ctx: PassContext) -> IRModule:
    """Leave no function that is a value.

    Raises PassError where a function comes from outside the module or goes there: as a parameter or
    result of a public function, or of a packed one; and for calls of functions of which no
    parameters are known.
    """
    lifted = LambdaLift.run(mod, ctx)
    if not any(map(_has_values, _graphs(lifted).values())):
        return lifted
    values = _Values(lifted)
    functions = {gv: values.function(gv, fn) for gv, fn in _graphs(lifted).items()}
    result = lifted.clone({**dict(lifted.items()), **functions})
    for signature, gv in values.applied.items():
        result[gv] = values.apply(signature)
    data = IRModule({}, result.attrs, result.global_infos)
    renewed = {gv.name_hint: _renewed(gv) for gv in result}
    for gv, fn in result.items():
        data[renewed[gv.name_hint]] = _as_data(fn, renewed) if isinstance(fn, Function) else fn
    return data


def _graphs(mod: IRModule) -> dict[GlobalVar, Function]:
    return {gv: fn for gv, fn in mod.items() if isinstance(fn, Function)}


def _has_values(fn: Function) -> bool:
    """Whether a function is a value in `fn`."""
    return any(
        isinstance(n, Var) and any(isinstance(p, FuncStructInfo) for p in parts(n.struct_info))
        for n in walk(fn)
    )


def _as_data(fn: Function, renewed: dict[str, GlobalVar]) -> Function:
    """`fn` with the struct info of closures where that of functions was."""

    def pre(n: Node) -> Node | None:
        if isinstance(n, FuncStructInfo):
            return _CLOSURE
        if isinstance(n, GlobalVar):
            return renewed.get(n.name_hint, n)
        return None

    return transform(fn, None, pre=pre, without=(ExternFunc,))


def _renewed(gv: GlobalVar) -> GlobalVar:
    info = gv.struct_info
    if not isinstance(info, FuncStructInfo) or info.params is None:
        return gv
    data: Any = [transform(i, None, pre=_info_as_data) for i in (*info.params, info.ret)]
    return gv.replace(struct_info=FuncStructInfo(tuple(data[:-1]), data[-1], info.purity))


def _info_as_data(n: Node) -> Node | None:
    return _CLOSURE if isinstance(n, FuncStructInfo) else None


class _Values(LeafRewriter):
    """Makes closures of functions, and calls of `apply` of calls of them.

    codes    function -> its number, and how many of its last parameters it captures
    applied  signature -> the function that applies closures of it
    """

    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod
        self.names = NameSupply(lambda: [gv.name_hint for gv in mod])
        self.codes: dict[str, tuple[int, int]] = {}
        self.applied: dict[FuncStructInfo, GlobalVar] = {}
        self.fn_name = ""

    def function(self, gv: GlobalVar, fn: Function) -> Function:
        self.fn_name = gv.name_hint
        outside = (*(p.struct_info for p in fn.params), fn.ret_struct_info)
        if fn.get_attr("global_symbol") is not None and any(map(_has_function, outside)):
            raise self.error("takes or gives a function; whoever calls it is outside the module")
        return self.rewrite(fn)

    def error(self, what: str, span: Any = None) -> PassError:
        return PassError(f"Defunctionalization: {self.fn_name} {what}{where(span) if span else ''}")

    def closure(self, gv: GlobalVar, captured: Sequence[Expr], out: list[Binding]) -> Tuple:
        """The closure of a function of the module."""
        code, _ = self.codes.setdefault(gv.name_hint, (len(self.codes), len(captured)))
        held = Var("captured", OBJECT)
        out.append(VarBinding(held, Tuple(captured)))
        return Tuple((const(code, "int64"), held))

    def is_function(self, value: Any) -> bool:
        if isinstance(value, GlobalVar):
            return isinstance(self.mod.get(value), Function)
        return isinstance(value, Var) and _has_function(value.struct_info)

    def leaf(self, value: Any, out: list[Binding]) -> Expr:
        if isinstance(value, GlobalVar) and self.is_function(value):
            closure_var = Var(value.name_hint, _CLOSURE)
            closure = self.closure(value, (), out)
            out.append(VarBinding(closure_var, closure))
            return closure_var
        leaf: Expr = value
        return leaf

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        value: Any = b.value
        out: list[Binding] = []
        if is_op(value, MAKE_CLOSURE):
            closure = self.closure(value.args[0], value.args[1].fields, out)
            var = b.var.replace(struct_info=OBJECT)
            return [*out, b.replace(var=var, value=closure)]
        if isinstance(b, MatchCast) and isinstance(b.struct_info, FuncStructInfo):
            # What make_closure gave: its parts are told by its code.
            return (MatchCast(b.var, value, _CLOSURE, b.span),)
        if isinstance(value, Call) and value.op in _INVOKE and isinstance(value.args[1], Tuple):
            value = Call(value.args[0], value.args[1].fields, struct_info=value.struct_info)
        if isinstance(value, Call) and isinstance(value.op, (Op, ExternFunc)):
            if any(map(self.is_function, leaves(value)[1:])):
                raise self.error(f"gives a function to {name_of(value.op)}", b.span)
        if isinstance(value, Call) and isinstance(value.op, Var):
            info = value.op.struct_info
            if not isinstance(info, FuncStructInfo) or info.params is None:
                raise self.error("calls what is not known to be a function of parameters", b.span)
            called = self.operand(value, out)
            assert isinstance(called, Call)
            apply = Call(self.apply_of(info), (value.op, *called.args), None, (), value.struct_info)
            return [*out, b.replace(value=apply)]
        return super().binding(b)

    # -- apply ------------------------------------------------------------------------------------

    def apply_of(self, info: FuncStructInfo) -> GlobalVar:
        if info not in self.applied:
            assert info.params is not None
            signature = FuncStructInfo((_CLOSURE, *info.params), info.ret, info.purity)
            self.applied[info] = GlobalVar(self.names.fresh("apply"), signature)
        return self.applied[info]

    def apply(self, info: FuncStructInfo) -> Function:
        """The function that calls whatever a closure of the signature `info` stands for."""
        assert info.params is not None
        closure = Var("closure", _CLOSURE)
        params = [Var(f"p{k}", p) for k, p in enumerate(info.params)]
        code, held = Var("code", _CLOSURE.fields[0]), Var("captured", OBJECT)
        first = [VarBinding(v, TupleGetItem(closure, k)) for k, v in enumerate((code, held))]
        codes = [name for name, (_, n) in self.codes.items() if self.fits(name, n, info)]
        if not codes:
            raise PassError(f"Defunctionalization: nothing in the module is a function {info}")
        body: SeqExpr | None = None
        for name in reversed(codes):
            case = self.case(name, held, params, info.ret)
            if body is None:
                body = case
                continue
            test = R.equal(code, const(self.codes[name][0], "int64"))
            is_it, chosen = Var("is_it", test.struct_info), Var("result", info.ret)
            choice = If(is_it, case, body, info.ret)
            body = SeqExpr(
                [BindingBlock([VarBinding(is_it, test), VarBinding(chosen, choice)])], chosen
            )
        assert body is not None
        body = SeqExpr((BindingBlock(first), *body.blocks), body.body)
        fn = Function((closure, *params), body, info.ret, info.purity)
        return copy_with_new_vars(fn)

    def fits(self, name: str, captured: int, info: FuncStructInfo) -> bool:
        fn = function_of(self.mod, name)
        assert info.params is not None
        own = fn.params[: len(fn.params) - captured]
        return (
            len(own) == len(info.params)
            and (fn.is_pure or not info.purity)
            and all(_may_be(p.struct_info, i) for p, i in zip(own, info.params))
        )

    def case(self, name: str, held: Var, params: Sequence[Var], ret: StructInfo) -> SeqExpr:
        """What is done for the function `name`."""
        fn = copy_with_new_vars(function_of(self.mod, name))
        count = self.codes[name][1]
        captured = fn.params[len(fn.params) - count :]
        bindings: list[Binding] = []
        args: list[Expr] = list(params)
        if captured:
            info = TupleStructInfo([p.struct_info for p in captured])
            whole = Var("whole", info)
            bindings.append(MatchCast(whole, held, info))
            for k, p in enumerate(captured):
                bindings.append(VarBinding(p, TupleGetItem(whole, k)))
                args.append(p)
        call = Call(self.mod.get_global_var(name), args)
        result = Var("result", call.struct_info)
        bindings.append(VarBinding(result, call))
        if not is_base_of(ret, result.struct_info):
            wanted = Var("result", ret)
            bindings.append(MatchCast(wanted, result, ret))
            result = wanted
        return SeqExpr([BindingBlock(bindings)], result)


def _has_function(info: StructInfo) -> bool:
    return any(isinstance(part, FuncStructInfo) for part in parts(info))


def _may_be(a: StructInfo, b: StructInfo) -> bool:
    """Whether some value may be of both."""
    if isinstance(a, FuncStructInfo) or isinstance(b, FuncStructInfo):
        return isinstance(a, FuncStructInfo) and isinstance(b, FuncStructInfo)
    return struct_info_base_check(a, b) is not BaseCheckResult.FAIL_L0
