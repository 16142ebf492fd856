"""Operators that change the dtype: astype, wrap_param."""

from __future__ import annotations

from typing import Any

import numpy as np

from ...base import DataType
from ...ir.expr import cast
from ..expr import Call
from ..struct_info import Expr, StructInfo
from .families import elementwise_layout
from .infer import array_dtype, tensor
from .lower import elementwise, te_lower
from .meaning import value_dtype
from .record import op

__all__ = ["astype", "wrap_param"]


def _convert(x: np.ndarray, *, dtype: DataType) -> np.ndarray:
    x = np.asarray(x)
    to = value_dtype(dtype)
    if dtype.kind == "bfloat":
        return _toward_bfloat16(x)
    if x.dtype.kind != "f" or dtype.is_float or dtype.is_bool:
        return x.astype(to)
    # Floats to integers: toward zero, ends of the range beyond it, 0 for NaN.
    low, high = dtype.min_value, dtype.max_value
    wide = np.trunc(x.astype("float64"))
    inside = (wide >= float(low)) & (
        wide < float(high) + 1.0 if dtype.bits < 64 else wide < float(high)
    )
    made = np.where(inside, wide, 0.0).astype(to)
    made = np.where(wide >= float(high), to.type(high), made)
    made = np.where(wide <= float(low), to.type(low), made)
    return np.where(np.isnan(wide), to.type(0), made)


def _toward_bfloat16(x: np.ndarray) -> np.ndarray:
    """x as float32, rounded to odd, so that rounding again to bfloat16 gives what rounding once does."""
    if x.dtype.kind == "f" and x.dtype.itemsize <= 4:
        return x.astype(np.float32)
    near = x.astype(np.float32)
    if x.dtype.kind == "f":
        finite = np.isfinite(near)
        below, above = finite & (near.astype(x.dtype) < x), finite & (near.astype(x.dtype) > x)
    else:
        # Every 64-bit integer near a float32 of it is exact in a long double or compares as a Python int.
        exact = np.frompyfunc(int, 1, 1)
        whole, rounded = exact(x.astype(object)), exact(near.astype(object))
        below, above = np.asarray(rounded < whole, bool), np.asarray(rounded > whole, bool)
    even = (near.view(np.uint32) & np.uint32(1)) == 0
    near = np.where(below & even, np.nextafter(near, np.float32(np.inf)), near)
    return np.where(above & even, np.nextafter(near, np.float32(-np.inf)), near)


def _te_astype(x: Any, dtype: DataType) -> Any:
    return elementwise(x, lambda v: cast(dtype, v))


def _astype_grad(ops: Any, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    own: Any = call.args[0].struct_info
    return (
        ops.astype(gy, own.dtype) if own.dtype.is_float and call.attrs["dtype"].is_float else None,
    )


@op(
    "astype",
    numpy=_convert,
    lower=te_lower(_te_astype),
    grad=_astype_grad,
    layout=elementwise_layout,
)
def astype(x: Expr, dtype: DataType) -> StructInfo:
    """x converted to `dtype`. A float becomes an integer toward zero, saturated, NaN 0; integers wrap."""
    return tensor(x, "x").replace(dtype=array_dtype(dtype))


@op(
    "wrap_param",
    numpy=_convert,
    lower=te_lower(_te_astype),
    grad=_astype_grad,
    layout=elementwise_layout,
)
def wrap_param(data: Expr, dtype: DataType = DataType("float32")) -> StructInfo:
    """The model parameter `data`, in `dtype`."""
    return tensor(data, "data").replace(dtype=array_dtype(dtype))
