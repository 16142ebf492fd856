"""Operands that broadcast: inference, legalisation and gradients shared by operators of two and
three of them.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ...base import DataType, StructInfoError
from ...ir import FloatImm, IntImm, PrimExpr, cast, const
from ...te import Tensor, broadcast_value, compute
from ..derive import common_vdevice, prove_dims, where
from ..expr import Call, Constant, PrimValue, as_relax
from ..expr import const as constant
from ..rules import Lower, LowerBuilder, Ops, operator_name
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
)
from .infer import ANY, ELEMENT, check_kind, same_dtype, tensor, tensor_of
from .lower import call_te, scalar_constant
from .meaning import convert, value_dtype
from .record import Operator, face_of
from .sizes import KnownTensor, broadcast_dims

# -- inference -------------------------------------------------------------------------------------


def operand_info(x: Expr, name: str, takes: Collection[str] = ELEMENT) -> Any:
    """The struct info of an operand: a tensor or a scalar value."""
    info = x.struct_info
    if isinstance(info, PrimStructInfo):
        check_kind(info.dtype, name, takes)
        return info
    return tensor(x, name, takes)


def broadcast_info(
    operands: Sequence[Expr],
    names: Sequence[str],
    takes: Collection[str] = ANY,
    dtypes_of: slice = slice(None),
) -> StructInfo:
    """The struct info of an elementwise result: the broadcast shape, the operands' dtype.

    dtypes_of  which operands must have one dtype of the kinds `takes`
    """
    infos = [operand_info(x, n) for x, n in zip(operands, names)]
    for info, name in zip(infos[dtypes_of], names[dtypes_of]):
        check_kind(info.dtype, name, takes)
    return _broadcast(infos, names, same_dtype(infos[dtypes_of], names[dtypes_of]))


def mixed_info(
    operands: Sequence[Expr], names: Sequence[str], takes: Collection[str], gives: DataType | None
) -> StructInfo:
    """The struct info of the result of an operator of two operands, which may mix dtypes where TVM
    lets them: its dtype is the first one's, or "void" if one is not known; `gives` if that is the
    operator's own.
    """
    infos = [operand_info(x, n) for x, n in zip(operands, names)]
    first, second = infos[0].dtype, infos[1].dtype
    mixed = first is not second and (gives is not None or first.is_bool or second.is_bool)
    for info, name in zip(infos, names):
        if not (mixed and info.dtype.is_bool):
            check_kind(info.dtype, name, takes)
    if gives is None and first is not second:
        if first.kind == "void" or second.kind == "void":
            gives = DataType("void")
        elif not mixed:
            gives = same_dtype(infos, names)
    return _broadcast(infos, names, first if gives is None else gives)


def operand_dtype(x: Expr) -> DataType:
    """The dtype of an operand, a tensor or a scalar value."""
    info = x.struct_info
    assert isinstance(info, (TensorStructInfo, PrimStructInfo))
    return info.dtype


def _broadcast(infos: Sequence[Any], names: Sequence[str], dtype: DataType) -> StructInfo:
    arrays = [(i, n) for i, n in zip(infos, names) if isinstance(i, KnownTensor)]
    if not arrays:
        return PrimStructInfo(dtype)
    vdevice = common_vdevice(infos, names)
    shapes = [i.shape for i, _ in arrays]
    if all(s is shapes[0] for s in shapes) and shapes[0] is not None:
        return TensorStructInfo(shapes[0], dtype, vdevice)
    dims = broadcast_dims([i.dims for i, _ in arrays], [n for _, n in arrays], checked=True)
    ndim = max(i.ndim for i, _ in arrays)
    return TensorStructInfo(dims, dtype, vdevice, ndim)


def _common(first: DataType, second: DataType) -> DataType:
    """The dtype that values of both are computed in; bfloat16 counts as float32."""
    return DataType(np.promote_types(value_dtype(first), value_dtype(second)))


def mixed_numpy(numpy: Callable[..., Any], compares: bool) -> Callable[..., Any]:
    """The meaning `numpy` of an operator of two operands, for operands of two dtypes, too."""

    def meaning(x1: Any, x2: Any) -> Any:
        first, second = np.asarray(x1).dtype, np.asarray(x2).dtype
        if first == second:
            return numpy(x1, x2)
        common = _common(DataType(first), DataType(second))
        value = numpy(convert(x1, common), convert(x2, common))
        return value if compares else convert(value, DataType(first))

    return meaning


def _mixed(scalar: Callable[..., PrimExpr], result: DataType) -> Callable[..., PrimExpr]:
    def value(a: PrimExpr, b: PrimExpr) -> PrimExpr:
        common = _common(a.dtype, b.dtype)
        return cast(result, scalar(cast(common, a), cast(common, b)))

    return value


# -- Python numbers as operands --------------------------------------------------------------------


def like_operand(value: Any, other: Any, op_name: str) -> Any:
    """A Python number as a constant of the dtype of the operand beside it; anything else as it is.

    Raises StructInfoError if that dtype does not hold it.
    """
    if isinstance(value, (IntImm, FloatImm)):
        # Script text gives its literals so.
        value = bool(value.value) if value.dtype.is_bool else value.value
    if not isinstance(value, (bool, int, float)):
        return value
    info = None if isinstance(other, _NUMBERS) else as_relax(other).struct_info
    dtype = info.dtype if isinstance(info, (TensorStructInfo, PrimStructInfo)) else None
    if dtype is None or dtype == "void":
        return _own_constant(value, op_name)
    value = check_number(value, dtype, op_name)
    if isinstance(info, PrimStructInfo):
        return PrimValue(const(value, dtype))
    return constant(value, dtype)


def check_number(value: Any, dtype: DataType, op_name: str) -> Any:
    """The Python number `value`, to be one of `dtype`. Raises StructInfoError if it cannot."""
    if dtype.is_float:
        return as_float(value, op_name)
    if isinstance(value, float):
        raise StructInfoError(
            f"{op_name}: the float {value!r} beside {dtype}; astype the tensor first"
        )
    if not dtype.is_int and not dtype.is_bool:
        raise StructInfoError(f"{op_name}: the number {value!r} beside {dtype}, which is no number")
    if dtype.is_bool and not isinstance(value, bool):
        raise StructInfoError(f"{op_name}: the number {value!r} beside bool; write True or False")
    if not dtype.min_value <= int(value) <= dtype.max_value:
        raise StructInfoError(
            f"{op_name}: {value} does not fit {dtype}: "
            f"its range is {dtype.min_value} to {dtype.max_value}"
        )
    return value


def _own_constant(value: Any, op_name: str) -> Any:
    """A Python number as a constant of its own dtype."""
    if isinstance(value, int) and not -(2**63) <= value < 2**63:
        raise StructInfoError(f"{op_name}: {value} does not fit int64")
    return constant(value)


def as_float(value: Any, what: str) -> float:
    """A Python number as a float. Raises StructInfoError for an integer that is too great."""
    try:
        return float(value)
    except OverflowError:
        raise StructInfoError(f"{what}: the integer is beyond the range of floats") from None


def match_scalars(build: Operator[...], first: int = 0) -> Operator[...]:
    """The face of an operator whose operands from number `first` on may be Python numbers, of one
    another's dtype.
    """
    record = build.op

    @functools.wraps(build)
    def face(*args: Any, **keywords: Any) -> Call:
        if not keywords and not any(isinstance(v, _NUMBERS) for v in args):
            return build(*args)
        names = [p.name for p in record.params if p.form is not None]
        inputs = [*args, *(keywords.pop(n) for n in names[len(args) :] if n in keywords)]
        operands = inputs[first:]
        beside = next((v for v in operands if not isinstance(v, _NUMBERS)), None)
        if beside is not None:
            inputs[first:] = [like_operand(v, beside, record.short) for v in operands]
        else:
            inputs[first:] = [
                _own_constant(v, record.short) if isinstance(v, (bool, int, float)) else v
                for v in operands
            ]
        return build(*inputs, **keywords)

    return face_of(build)(face)


_NUMBERS = (bool, int, float, IntImm, FloatImm)


# -- legalisation ----------------------------------------------------------------------------------


def broadcast_lower(scalar: Callable[..., PrimExpr], mixes: bool = False) -> Lower:
    """The legalisation of ``scalar(a[i], b[i], ...)`` over operands that broadcast.

    mixes  whether its two operands may have two dtypes
    """

    def te_function(dims: list[PrimExpr], *operands: Any, dtype: str = "") -> Tensor:
        of_pair = _mixed(scalar, DataType(dtype)) if dtype else scalar
        return compute(
            tuple(dims),
            lambda *i: of_pair(*(broadcast_value(x, i, dims) for x in operands)),
            name="compute",
        )

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        operands = [scalar_constant(a) for a in call.args]
        info = call.struct_info
        mixed = _warn_of_mixed(call) if mixes else {}
        if isinstance(info, PrimStructInfo):
            of_pair = _mixed(scalar, info.dtype) if mixed else scalar
            return PrimValue(of_pair(*(_prim(a) for a in operands)))
        dims = ShapeExpr(tensor_of(call).dims)
        return call_te(builder, call, te_function, dims, *operands, **mixed)

    return lower


def _warn_of_mixed(call: Call) -> dict[str, str]:
    """The dtype of the result as an argument for `te_function` if the operands have two dtypes,
    with a warning; else nothing.
    """
    first, second = map(operand_dtype, call.args)
    if first is second:
        return {}
    gives: Any = call.struct_info
    name = operator_name(call)
    warnings.warn(
        f"{name}: x1 is {first} and x2 is {second}: they are computed in "
        f"{_common(first, second)} and give {gives.dtype}; astype one of them{where(call.span)}",
        UserWarning,
        stacklevel=2,
    )
    return {"dtype": str(gives.dtype)}


def _prim(x: Any) -> PrimExpr:
    if isinstance(x, PrimExpr):
        return x
    value: Any = x.struct_info.value
    return value


# -- gradients -------------------------------------------------------------------------------------


def unbroadcast(ops: Ops, gradient: Expr | None, x: Expr) -> Expr | None:
    """`gradient`, of the broadcast shape, summed to the shape of the operand `x`; None for a scalar
    value.
    """
    info = x.struct_info
    if gradient is None or not isinstance(info, TensorStructInfo):
        return None
    have = gradient.struct_info
    if isinstance(have, TensorStructInfo) and have.dims is not None and info.dims is not None:
        if len(have.dims) == len(info.dims) and all(
            prove_dims(a, b) for a, b in zip(have.dims, info.dims)
        ):
            return gradient
    shape = info.shape if info.shape is not None else ops.shape_of(x)
    return ops.collapse_sum_to(gradient, shape)


def scalar_of(x: Expr) -> Any:
    """The number that a constant of no dimensions is, or None."""
    if isinstance(x, Constant) and len(x.data.shape) == 0:
        return np.asarray(x.data.numpy()).item()
    return None
