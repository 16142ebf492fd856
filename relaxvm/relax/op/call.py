"""Calls out of the graph language: of loop functions, packed functions and closures."""

from __future__ import annotations

from typing import Any

from ...base import UNKNOWN, Span, StructInfoError
from ...ir import GlobalVar, PrimExpr
from ...runtime import Builtins
from ..derive import BaseCheckResult, struct_info_base_check, where
from ..expr import Call, ExternFunc, Function, Tuple, TupleGetItem, Var, as_relax
from ..struct_info import (
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .record import Shape, face_of, missing, op

_LOWERED = missing("lowered by CallTIRRewrite")
_OPAQUE = missing("runs a function that is known only at run time")
_BODY = missing("what the function does is not the operator's to know")


# -- rules ----------------------------------------------------------------------------------------


def output_info(sinfo_args: tuple[StructInfo, ...], dtype_later: bool = False) -> StructInfo:
    """The declared result of a call that is handed its outputs. Raises StructInfoError if it
    cannot be allocated.

    dtype_later  whether a pass may still find out the dtype: without one, the build fails
    """
    if len(sinfo_args) != 1:
        raise StructInfoError(f"wanted one out_sinfo, got {len(sinfo_args)}")
    (info,) = sinfo_args
    fields = info.fields if isinstance(info, TupleStructInfo) else (info,)
    for field in fields:
        if not isinstance(field, TensorStructInfo):
            raise StructInfoError(
                f"out_sinfo: wanted a tensor or a tuple of tensors, got {info}; "
                "the outputs are allocated by the caller"
            )
        if field.shape is None or (field.dtype == "void" and not dtype_later):
            raise StructInfoError(
                f"out_sinfo: wanted a tensor of known shape and dtype, got {field}; "
                "the outputs are allocated by the caller"
            )
    return info


def _check_inputs(args: Expr) -> tuple[StructInfo, ...]:
    info = args.struct_info
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"the arguments are a tuple, got {info}")
    return info.fields


def check_kernel_call(callee: Any, args: Expr, tir_vars: Expr | None, what: str) -> None:
    if not isinstance(callee, GlobalVar):
        raise StructInfoError(
            f"wanted the GlobalVar of a loop function, got {type(callee).__name__}; "
            "a packed function is called by call_dps_packed"
        )
    if isinstance(callee.struct_info, FuncStructInfo) and callee.struct_info.params is not None:
        for param in callee.struct_info.params:
            if not isinstance(param, (TensorStructInfo, PrimStructInfo, ShapeStructInfo)):
                raise StructInfoError(
                    f"{callee.name_hint} is a graph function; call it directly, as in "
                    f"{callee.name_hint}(x)"
                )
    for i, field in enumerate(_check_inputs(args)):
        if not isinstance(
            field, (TensorStructInfo, PrimStructInfo, ShapeStructInfo, ObjectStructInfo)
        ):
            raise StructInfoError(
                f"{what} {callee.name_hint}: argument {i} is a tensor, got {field}"
            )
    if tir_vars is not None and not isinstance(tir_vars.struct_info, ShapeStructInfo):
        raise StructInfoError(f"tir_vars: wanted a shape, got {tir_vars.struct_info}")


@op("call_tir", _OPAQUE, _LOWERED, _BODY, _BODY)
def _call_tir(
    func: Expr,
    args: Expr,
    tir_vars: Shape | None = None,
    *,
    sinfo_args: tuple[StructInfo, ...],
) -> StructInfo:
    """Run a loop function on `args` and newly allocated outputs of `sinfo_args`; `tir_vars` are
    its scalar parameters.
    """
    check_kernel_call(func, args, tir_vars, "call_tir")
    return output_info(sinfo_args)


@op("call_tir_inplace", _OPAQUE, _LOWERED, _BODY, _BODY)
def _call_tir_inplace(
    func: Expr,
    args: Expr,
    tir_vars: Shape | None = None,
    *,
    inplace_indices: tuple[int, ...],
    sinfo_args: tuple[StructInfo, ...],
) -> StructInfo:
    """As call_tir, but output i overwrites argument `inplace_indices[i]` (-1: it is allocated)."""
    check_kernel_call(func, args, tir_vars, "call_tir_inplace")
    info = output_info(sinfo_args)
    outputs = info.fields if isinstance(info, TupleStructInfo) else (info,)
    _check_inplace(inplace_indices, _check_inputs(args), outputs)
    return info


def _check_inplace(
    indices: tuple[int, ...], inputs: tuple[StructInfo, ...], outputs: tuple[StructInfo, ...]
) -> None:
    if len(indices) != len(outputs):
        raise StructInfoError(
            f"inplace_indices: wanted one per output, {len(outputs)}, got {len(indices)}"
        )
    used = [i for i in indices if i != -1]
    if not used:
        raise StructInfoError("inplace_indices: at least one output overwrites an argument")
    if len(set(used)) != len(used):
        raise StructInfoError(f"inplace_indices: {list(indices)} names an argument twice")
    for index, output in zip(indices, outputs):
        if index == -1:
            continue
        if not 0 <= index < len(inputs):
            raise StructInfoError(
                f"inplace_indices: wanted -1 or an argument number below {len(inputs)}, got {index}"
            )
        if struct_info_base_check(output, inputs[index]) is BaseCheckResult.FAIL_L0:
            raise StructInfoError(
                f"inplace_indices: argument {index} cannot hold the output\n"
                f"  wanted: {output}\n  got:    {inputs[index]}"
            )


@op("call_dps_packed", _OPAQUE, _LOWERED, _BODY, _BODY)
def _call_dps_packed(func: Expr, args: Expr, *, sinfo_args: tuple[StructInfo, ...]) -> StructInfo:
    """Run a packed function on `args` and newly allocated outputs of `sinfo_args`."""
    if not isinstance(func, ExternFunc):
        raise StructInfoError(
            f"wanted the name of a packed function, got {type(func).__name__}; "
            "a loop function is called by call_tir"
        )
    _check_inputs(args)
    return output_info(sinfo_args, dtype_later=True)


@op(
    "call_pure_packed", _OPAQUE, missing("RemovePurityChecking makes it a plain call"), _BODY, _BODY
)
def _call_pure_packed(func: Expr, *args: Expr, sinfo_args: tuple[StructInfo, ...]) -> StructInfo:
    """Call a packed function of which the user says that it has no effect but its result."""
    return _returned(func, args, sinfo_args)


@op(
    "call_inplace_packed",
    numpy=_OPAQUE,
    lower=missing("RemovePurityChecking makes it a plain call"),
    grad=_BODY,
    layout=_BODY,
)
def _call_inplace_packed(
    func: Expr,
    *args: Expr,
    inplace_indices: tuple[int, ...],
    sinfo_args: tuple[StructInfo, ...],
) -> StructInfo:
    """As call_pure_packed; result i is argument `inplace_indices[i]` overwritten (-1: new)."""
    info = _returned(func, args, sinfo_args)
    outputs = info.fields if isinstance(info, TupleStructInfo) else (info,)
    _check_inplace(inplace_indices, tuple(a.struct_info for a in args), outputs)
    return info


def _returned(func: Any, args: tuple[Any, ...], sinfo_args: tuple[StructInfo, ...]) -> StructInfo:
    if not isinstance(func, (ExternFunc, GlobalVar, Var, Function)):
        raise StructInfoError(f"wanted a function, got {type(func).__name__}")
    return _call_result(func, args, sinfo_args)


def _call_result(
    func: Any, args: tuple[Any, ...], sinfo_args: tuple[StructInfo, ...]
) -> StructInfo:
    if sinfo_args:
        return sinfo_args[0] if len(sinfo_args) == 1 else TupleStructInfo(sinfo_args)
    return Call(func, args).struct_info


@op("call_builtin_with_ctx", _OPAQUE, missing("the VM passes itself"), _BODY, _BODY, pure=False)
def _call_builtin_with_ctx(
    func: Expr, args: Expr, *, sinfo_args: tuple[StructInfo, ...]
) -> StructInfo:
    """Call a builtin of the virtual machine that is handed the machine before `args`."""
    if not isinstance(func, ExternFunc):
        raise StructInfoError(f"wanted the name of a builtin, got {type(func).__name__}")
    _check_inputs(args)
    return _declared(sinfo_args)


def _declared(sinfo_args: tuple[StructInfo, ...]) -> StructInfo:
    if not sinfo_args:
        return ObjectStructInfo()
    return sinfo_args[0] if len(sinfo_args) == 1 else TupleStructInfo(sinfo_args)


@op("make_closure", _OPAQUE, missing(Builtins.MAKE_CLOSURE.name), _BODY, _BODY)
def make_closure(func: Expr, args: Expr) -> StructInfo:
    """A closure: the function `func` with its last parameters set to the tuple `args`."""
    if not isinstance(func, GlobalVar):
        raise StructInfoError(f"wanted the GlobalVar of a function, got {type(func).__name__}")
    _check_inputs(args)
    return ObjectStructInfo()


@op("invoke_closure", _OPAQUE, missing(Builtins.INVOKE_CLOSURE.name), _BODY, _BODY, pure=False)
def invoke_closure(
    closure: Expr, args: Expr, *, sinfo_args: tuple[StructInfo, ...] = ()
) -> StructInfo:
    """Call the closure `closure` with the tuple `args`."""
    _check_inputs(args)
    return _declared(sinfo_args)


@op("invoke_pure_closure", _OPAQUE, missing(Builtins.INVOKE_CLOSURE.name), _BODY, _BODY)
def invoke_pure_closure(
    closure: Expr, args: Expr, *, sinfo_args: tuple[StructInfo, ...] = ()
) -> StructInfo:
    """As invoke_closure, of a closure that, says the user, has no effect but its result."""
    _check_inputs(args)
    return _declared(sinfo_args)


# -- what users call ------------------------------------------------------------------------------


def as_arguments(args: Any, what: str) -> Expr:
    """The arguments as a tuple expression; one value stands for a tuple of it."""
    try:
        value = as_relax(args)
    except StructInfoError as error:
        raise StructInfoError(f"{what}: args: {error}") from None
    if isinstance(value, Tuple):
        return value
    info = value.struct_info
    if isinstance(info, TupleStructInfo):
        return Tuple(tuple(TupleGetItem(value, i) for i in range(len(info.fields))))
    return Tuple((value,))


def as_out_sinfo(out_sinfo: Any, dtype: Any, what: str, span: Span) -> StructInfo:
    """The result as users spell it: struct info, a list of them, or shapes with `dtype`."""
    if isinstance(out_sinfo, StructInfo):
        if dtype is not None:
            raise StructInfoError(
                f"{what}: dtype= goes with a shape, not with {out_sinfo}{where(span)}"
            )
        if isinstance(out_sinfo, ShapeStructInfo):
            raise StructInfoError(
                f"{what}: out_sinfo: wanted R.Tensor(...), got {out_sinfo}{where(span)}"
            )
        return out_sinfo
    if out_sinfo is None:
        raise StructInfoError(
            f"{what}: the result is missing: give out_sinfo=R.Tensor(shape, dtype){where(span)}"
        )
    if isinstance(out_sinfo, ShapeExpr):
        return _tensor(out_sinfo, dtype, what, span)
    if isinstance(out_sinfo, (tuple, list)):
        items = list(out_sinfo)
        if items and all(isinstance(i, StructInfo) for i in items):
            if dtype is not None:
                raise StructInfoError(
                    f"{what}: dtype= goes with shapes, not with struct info{where(span)}"
                )
            return items[0] if len(items) == 1 else TupleStructInfo(tuple(items))
        if items and all(isinstance(i, (tuple, list, ShapeExpr)) for i in items):
            dtypes = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype] * len(items)
            if len(dtypes) != len(items):
                raise StructInfoError(
                    f"{what}: {len(items)} shapes but {len(dtypes)} dtypes{where(span)}"
                )
            infos = [_tensor(i, d, what, span) for i, d in zip(items, dtypes)]
            return infos[0] if len(infos) == 1 else TupleStructInfo(tuple(infos))
        if all(isinstance(i, (int, PrimExpr)) for i in items):
            return _tensor(items, dtype, what, span)
    if isinstance(out_sinfo, Expr):
        return _tensor(out_sinfo, dtype, what, span)
    raise StructInfoError(
        f'{what}: out_sinfo: wanted struct info such as R.Tensor((n, 4), "float32"), a list '
        "of them, "
        f"or a shape with dtype=; got {type(out_sinfo).__name__}: {out_sinfo!r}{where(span)}"
    )


def _tensor(shape: Any, dtype: Any, what: str, span: Span) -> TensorStructInfo:
    if isinstance(dtype, (tuple, list)) and len(dtype) == 1:
        (dtype,) = dtype
    if dtype is None:
        raise StructInfoError(
            f"{what}: the result is given by a shape, so it needs dtype=, as in "
            f'dtype="float32"{where(span)}'
        )
    return TensorStructInfo(shape, dtype)


def _as_extern(func: Any, what: str) -> Any:
    return ExternFunc(func) if isinstance(func, str) else func


@face_of(_call_tir)
def call_tir(
    gvar: GlobalVar | ExternFunc | str,
    args: Any,
    out_sinfo: Any = None,
    tir_vars: Any = None,
    *,
    dtype: Any = None,
    span: Span = UNKNOWN,
) -> Call:
    """Run the loop function `gvar` on `args` and newly allocated outputs, and give the outputs.

    gvar       the function's GlobalVar; a name or an ExternFunc makes it `call_dps_packed`
    args       tensors: a tuple, a list, or a single one
    out_sinfo  R.Tensor(shape, dtype), a list of them for several outputs, or a shape (or shapes)
               with `dtype`
    tir_vars   scalar expressions handed to the loop function after the outputs
    Raises StructInfoError if one of these does not fit.
    """
    gvar = _as_extern(gvar, "call_tir")
    if isinstance(gvar, ExternFunc):
        if tir_vars is not None:
            raise StructInfoError(
                f"call_tir: {gvar.global_symbol} is a packed function, which takes no tir_vars; "
                f"pass R.prim_value(n) among the arguments{where(span)}"
            )
        return call_dps_packed(gvar, args, out_sinfo, dtype=dtype, span=span)
    info = as_out_sinfo(out_sinfo, dtype, "call_tir", span)
    extra = () if tir_vars is None else (as_shape(tir_vars, "call_tir"),)
    arguments = (gvar, as_arguments(args, "call_tir"), *extra)
    return Call(_call_tir.op, arguments, None, (info,), None, span)


def as_shape(tir_vars: Any, what: str) -> Expr:
    if isinstance(tir_vars, Expr):
        return tir_vars
    items = tir_vars if isinstance(tir_vars, (tuple, list)) else (tir_vars,)
    try:
        return ShapeExpr(tuple(items))
    except StructInfoError as error:
        raise StructInfoError(f"{what}: tir_vars: {error}") from None


@face_of(_call_tir_inplace)
def call_tir_inplace(
    gvar: GlobalVar,
    args: Any,
    inplace_indices: int | tuple[int, ...] | list[int],
    out_sinfo: Any = None,
    tir_vars: Any = None,
    *,
    dtype: Any = None,
    span: Span = UNKNOWN,
) -> Call:
    """As `call_tir`, but output i overwrites argument `inplace_indices[i]`, which must not be used
    afterwards.

    -1 stands for an output that is allocated.
    """
    info = as_out_sinfo(out_sinfo, dtype, "call_tir_inplace", span)
    if isinstance(inplace_indices, int):
        inplace_indices = (inplace_indices,)
    indices = tuple(int(i) for i in inplace_indices)
    extra = () if tir_vars is None else (as_shape(tir_vars, "call_tir_inplace"),)
    arguments = (gvar, as_arguments(args, "call_tir_inplace"), *extra)
    record = _call_tir_inplace.op
    return Call(record, arguments, {"inplace_indices": indices}, (info,), None, span)


@face_of(_call_dps_packed)
def call_dps_packed(
    func: ExternFunc | str,
    args: Any,
    out_sinfo: Any = None,
    *,
    dtype: Any = None,
    span: Span = UNKNOWN,
) -> Call:
    """Run the packed function `func` on `args` and newly allocated outputs (its last arguments),
    and give the outputs.
    """
    info = as_out_sinfo(out_sinfo, dtype, "call_dps_packed", span)
    arguments = (_as_extern(func, "call_dps_packed"), as_arguments(args, "call_dps_packed"))
    return Call(_call_dps_packed.op, arguments, None, (info,), None, span)


def _sinfo_args(sinfo_args: Any, what: str) -> tuple[StructInfo, ...]:
    if sinfo_args is None:
        return ()
    items = tuple(sinfo_args) if isinstance(sinfo_args, (tuple, list)) else (sinfo_args,)
    for item in items:
        if not isinstance(item, StructInfo):
            raise StructInfoError(
                f"{what}: sinfo_args: wanted struct info, got {type(item).__name__}: {item!r}"
            )
    return items


def call_packed(
    func: ExternFunc | str, *args: Any, sinfo_args: Any = None, span: Span = UNKNOWN, **attrs: Any
) -> Call:
    """Call the packed function `func`, which may have effects and returns `sinfo_args`."""
    declared = _sinfo_args(sinfo_args, "call_packed")
    return Call(_as_extern(func, "call_packed"), args, attrs, declared, None, span)


@face_of(_call_pure_packed)
def call_pure_packed(func: Any, *args: Any, sinfo_args: Any = None, span: Span = UNKNOWN) -> Call:
    """Call the packed function `func`, which has no effect but its result; `sinfo_args` says what
    it returns.
    """
    declared = _sinfo_args(sinfo_args, "call_pure_packed")
    record = _call_pure_packed.op
    return Call(record, (_as_extern(func, "call_pure_packed"), *args), None, declared, None, span)


@face_of(_call_inplace_packed)
def call_inplace_packed(
    func: Any,
    *args: Any,
    inplace_indices: int | tuple[int, ...] | list[int],
    sinfo_args: Any = None,
    span: Span = UNKNOWN,
) -> Call:
    """As `call_pure_packed`, for a function whose result i is argument `inplace_indices[i]`
    overwritten (-1: new).
    """
    if isinstance(inplace_indices, int):
        inplace_indices = (inplace_indices,)
    declared = _sinfo_args(sinfo_args, "call_inplace_packed")
    record = _call_inplace_packed.op
    callee = _as_extern(func, "call_inplace_packed")
    attrs = {"inplace_indices": tuple(int(i) for i in inplace_indices)}
    return Call(record, (callee, *args), attrs, declared, None, span)


@face_of(_call_builtin_with_ctx)
def call_builtin_with_ctx(
    func: ExternFunc | str, args: Any, *, sinfo_args: Any = None, span: Span = UNKNOWN
) -> Call:
    """Call a builtin of the virtual machine that is handed the machine before `args`."""
    declared = _sinfo_args(sinfo_args, "call_builtin_with_ctx")
    record = _call_builtin_with_ctx.op
    arguments = (
        _as_extern(func, "call_builtin_with_ctx"),
        as_arguments(args, "call_builtin_with_ctx"),
    )
    return Call(record, arguments, None, declared, None, span)
