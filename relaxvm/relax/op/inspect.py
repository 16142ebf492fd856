"""`relax.inspect.*`: numbers about a tensor, and `size`. Expressions offer them as ``x.ndim``,
``x.shape[i]``, ``x.strides[i]``.

What struct info knows becomes a constant or a symbol; the rest is asked of the tensor when the
program runs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ...base import DataType, StructInfoError
from ...ir import IntImm, PrimExpr, cast, const
from ...runtime import Builtins
from ...te import compute
from ..expr import Call, ExternFunc, PrimValue, StringImm
from ..rules import LowerBuilder
from ..struct_info import Expr, PrimStructInfo, StructInfo, TensorStructInfo
from .infer import INTEGER, check_kind, dims_product, tensor
from .lower import call_te
from .names import ops
from .record import Prim, missing, op

_NO_GRADIENT = missing("the result does not depend on the elements")
_CODES = {"int": 0, "uint": 1, "float": 2, "handle": 3, "bfloat": 4, "bool": 6}


def _known_dtype(part: Callable[[DataType], int]) -> Callable[[TensorStructInfo, Any], Any]:
    return lambda info, axis: None if info.dtype == "void" else part(info.dtype)


def _known_ndim(info: TensorStructInfo, axis: Any) -> int | None:
    return None if info.ndim == -1 else info.ndim


def _known_dim(info: TensorStructInfo, axis: Any) -> PrimExpr | None:
    return info.dims[axis.value] if info.dims is not None and isinstance(axis, IntImm) else None


def _unknown(info: TensorStructInfo, axis: Any) -> None:
    return None


def _inspector(
    name: str,
    meaning: str,
    dtype: str,
    numpy: Callable[..., Any],
    known: Callable[[TensorStructInfo, Any], Any],
    of_axis: bool = False,
) -> Callable[..., Call]:
    """An operator that gives one number about a tensor; `known` is the number as far as struct info
    has it.
    """
    gives = DataType(dtype)

    def value(info: TensorStructInfo, axis: Any) -> PrimExpr | None:
        number = known(info, axis)
        if number is None or isinstance(number, PrimExpr):
            return number
        return const(number, gives)

    def infer(x: Expr, axis: Any) -> StructInfo:
        number = value(tensor(x, "tensor"), axis)
        return PrimStructInfo(gives) if number is None else PrimStructInfo(value=number)

    def rule(tensor: Expr) -> StructInfo:
        return infer(tensor, None)

    def rule_of_axis(tensor: Expr, axis: Prim) -> StructInfo:
        return infer(tensor, _axis(tensor, axis))

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        info: Any = call.struct_info
        if info.value is not None:
            return PrimValue(info.value)
        what = StringImm(name.removeprefix("tensor_").removesuffix("_i"))
        args = (ExternFunc(Builtins.TENSOR_PROPERTY.name), call.args[0], what, *call.args[1:])
        return ops.call_pure_packed(*args, sinfo_args=info)

    chosen = rule_of_axis if of_axis else rule
    chosen.__name__ = chosen.__qualname__ = name
    chosen.__doc__ = meaning
    rules: dict[str, Any] = {"numpy": numpy, "lower": lower}
    declare = op(
        f"inspect.{name}", grad=_NO_GRADIENT, layout=_NO_GRADIENT, takes_unknown=True, **rules
    )
    return declare(chosen)


def _axis(x: Expr, axis: Expr) -> PrimExpr | None:
    info = axis.struct_info
    if not isinstance(info, PrimStructInfo):
        raise StructInfoError(f"axis: wanted a scalar value such as R.prim_value(0), got {info}")
    check_kind(info.dtype, "axis", INTEGER)
    ndim, value = tensor(x, "tensor").ndim, info.value
    if isinstance(value, IntImm) and (value.value < 0 or (ndim != -1 and value.value >= ndim)):
        wanted = f"0 to {ndim - 1}" if ndim > 0 else "none" if ndim == 0 else "at least 0"
        raise StructInfoError(f"axis: wanted {wanted}, got {value.value}")
    return info.value


tensor_dtype_code = _inspector(
    "tensor_dtype_code",
    "The kind of the dtype as DLPack numbers it: 0 int, 1 uint, 2 float, 4 bfloat, 6 bool.",
    "uint8",
    lambda x: _CODES[DataType(np.asarray(x).dtype).kind],
    _known_dtype(lambda d: _CODES[d.kind]),
)
tensor_dtype_bits = _inspector(
    "tensor_dtype_bits",
    "The bits of an element; 1 for bool.",
    "uint8",
    lambda x: DataType(np.asarray(x).dtype).bits,
    _known_dtype(lambda d: d.bits),
)
tensor_dtype_lanes = _inspector(
    "tensor_dtype_lanes",
    "The lanes of an element: 1.",
    "uint16",
    lambda x: 1,
    _known_dtype(lambda d: d.lanes),
)
tensor_ndim = _inspector("tensor_ndim", "The number of dimensions.", "int32", np.ndim, _known_ndim)
tensor_shape_i = _inspector(
    "tensor_shape_i",
    "The dimension `axis`, counted from the front.",
    "int64",
    lambda x, axis: np.shape(x)[int(axis)],
    _known_dim,
    of_axis=True,
)
tensor_stride_i = _inspector(
    "tensor_stride_i",
    "How many elements lie between neighbours along `axis`.",
    "int64",
    lambda x, axis: np.asarray(x).strides[int(axis)] // max(1, np.asarray(x).itemsize),
    _unknown,
    of_axis=True,
)
tensor_byte_offset = _inspector(
    "tensor_byte_offset", "The bytes before the first element.", "int64", lambda x: 0, _unknown
)
tensor_elem_offset = _inspector(
    "tensor_elem_offset", "The elements before the first one.", "int64", lambda x: 0, _unknown
)


def _lower_size(builder: LowerBuilder, call: Call) -> Expr:
    info: Any = call.args[0].struct_info

    def te_function(count: PrimExpr) -> Any:
        return compute((), lambda: cast("int64", count), "size")

    return call_te(builder, call, te_function, dims_product(info.dims))


@op(
    "size",
    numpy=lambda x: np.asarray(np.size(x), dtype="int64"),
    lower=_lower_size,
    grad=_NO_GRADIENT,
    layout=_NO_GRADIENT,
)
def size(x: Expr) -> StructInfo:
    """How many elements `x` has, as an int64 tensor of no dimensions."""
    tensor(x, "x")
    return TensorStructInfo((), "int64")
