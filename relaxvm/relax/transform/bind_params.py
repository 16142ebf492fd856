"""BindParams: parameters become constants.

    def main(x: R.Tensor((1, 784)), w: R.Tensor((784, 10))): ...
                                              # BindParams("main", {"w": array})
    def main(x: R.Tensor((1, 784))): ...      # w is a constant in the body

Symbols that a bound array's shape determines become numbers everywhere in the function.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base import RelaxvmError, VerifyError, did_you_mean
from ...ir import IRModule, PassContext, as_expr
from ...ir.transform import module_pass
from ..derive import (
    BaseCheckResult,
    bind_symbols,
    plain_text,
    struct_info_base_check,
    substitute_struct_info,
)
from ..expr import Constant, Function, PrimValue, Tuple, Var, const
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from ..substitute import substitute_graph
from .signature import replace_functions


@module_pass(opt_level=0)
def BindParams(
    mod: IRModule, ctx: PassContext, *, func_name: str, params: Mapping[Any, Any]
) -> IRModule:
    """Turn parameters of the graph function `func_name` into constants.

    params  {parameter (its name or Var): array, number, tuple of them, or constant expression}
    Raises VerifyError for an unknown parameter and for a value that does not fit, naming the
    parameter.
    """
    gv = mod.get_global_var(func_name)
    fn = mod[gv]
    if not isinstance(fn, Function):
        raise VerifyError(f"BindParams: {func_name} is no graph function but a {type(fn).__name__}")
    return replace_functions(mod, {gv: bind_params(fn, params, func_name)})


def bind_params(fn: Function, params: Mapping[Any, Any], name: str = "the function") -> Function:
    """`fn` with parameters turned into constants; see `BindParams`."""
    if not isinstance(params, Mapping):
        raise VerifyError(
            "BindParams: params is a mapping from parameters to arrays, got "
            f"{type(params).__name__}"
        )
    bound: dict[Var, Expr] = {}
    for key, value in params.items():
        var = _parameter(fn, key, name)
        if var in bound:
            raise VerifyError(f"BindParams: parameter {var.name_hint} of {name} is given twice")
        bound[var] = _as_constant(value, var, name)
    if not bound:
        return fn
    symbols = bind_symbols((p.struct_info, c.struct_info) for p, c in bound.items())
    for var, constant in bound.items():
        wanted = substitute_struct_info(var.struct_info, symbols)
        if struct_info_base_check(wanted, constant.struct_info) is not BaseCheckResult.PASS:
            known = ", ".join(f"{s.name} = {plain_text(e)}" for s, e in symbols.items())
            note = f", where {known}" if known and wanted is not var.struct_info else ""
            raise VerifyError(
                f"BindParams: the value for parameter {var.name_hint} of {name} does not fit\n"
                f"  wanted: {var.struct_info}{note}\n  got:    {constant.struct_info}"
            )
    rest = fn.replace(params=tuple(p for p in fn.params if p not in bound))
    if fn.get_attr("num_input") is not None:
        inputs = fn.params[: int(fn.get_attr("num_input"))]
        rest = rest.with_attr("num_input", sum(p not in bound for p in inputs))
    return substitute_graph(rest, {**bound, **symbols})


def _parameter(fn: Function, key: Any, name: str) -> Var:
    if isinstance(key, Var):
        params = [p for p in fn.params if p is key]
        label = key.name_hint
    else:
        if not isinstance(key, str):
            raise VerifyError(
                f"BindParams: a parameter is named by a string or a Var, got {type(key).__name__}"
            )
        params = [p for p in fn.params if p.name_hint == key]
        label = key
    if len(params) == 1:
        return params[0]
    names = [p.name_hint for p in fn.params]
    if params:
        raise VerifyError(
            f"BindParams: {name} has {len(params)} parameters named {label}; give the Var"
        )
    hint = did_you_mean(label, names)
    raise VerifyError(
        f"BindParams: {name} has no parameter {label!r}{hint}; it has: {', '.join(names) or 'none'}"
    )


def _as_constant(value: Any, var: Var, name: str) -> Expr:
    try:
        return _convert(value, var.struct_info)
    except (RelaxvmError, TypeError, ValueError) as error:
        raise VerifyError(
            f"BindParams: the value for parameter {var.name_hint} of {name} is no constant for "
            f"{var.struct_info}: {error}"
        ) from None


def _convert(value: Any, info: StructInfo) -> Expr:
    if isinstance(value, (Constant, PrimValue, ShapeExpr)):
        return value
    if isinstance(value, Tuple):
        value = value.fields
    if isinstance(value, Expr):
        raise VerifyError(f"wanted a constant, got {type(value).__name__}")
    if isinstance(info, TupleStructInfo) and isinstance(value, (tuple, list)):
        if len(value) != len(info.fields):
            raise VerifyError(f"wanted {len(info.fields)} fields, got {len(value)}")
        return Tuple(tuple(_convert(v, f) for v, f in zip(value, info.fields)))
    if isinstance(info, ShapeStructInfo):
        return ShapeExpr(tuple(value))
    if isinstance(info, PrimStructInfo):
        return PrimValue(as_expr(value, info.dtype))
    dtype = None
    if isinstance(info, TensorStructInfo) and isinstance(value, (bool, int, float)):
        dtype = None if info.dtype == "void" else info.dtype
    return const(value, dtype)
