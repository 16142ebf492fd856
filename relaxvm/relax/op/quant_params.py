"""What quantised operators share: scales and zero points, rounding, distances from a zero point."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te, tir
from ...base import DataType, StructInfoError
from ...ir import PrimExpr, cast, const, is_const
from ..expr import Constant
from ..struct_info import Expr, TensorStructInfo
from .infer import tensor
from .meaning import value_dtype
from .sizes import ONE, KnownTensor, want_equal

STORED = ("int8", "uint8", "int16", "uint16", "int32")
FEW_BITS = ("int4", "uint4", "int2", "uint2")
BYTES = ("int8", "uint8")


# -- parameters: scalars, or vectors along an axis -------------------------------------------------


def one_of(dtype: DataType, names: Sequence[str], what: str) -> None:
    if dtype.kind != "void" and str(dtype) not in names:
        raise StructInfoError(f"{what}: wanted {', '.join(names)}, got {dtype}")


def quant_info(
    x: Expr, name: str, takes: Any, along: PrimExpr | None = None, axis: str = ""
) -> KnownTensor:
    """The struct info of a scale or zero point: a scalar, or a vector of `along` elements, the size
    of `axis`.
    """
    info = tensor(x, name, takes)
    if info.ndim > 1:
        raise StructInfoError(f"{name}: wanted a scalar or a vector, got {info.ndim} dimensions")
    if info.ndim == 1 and not is_const(info.dims[0], 1):
        if along is None:
            text = "{name}: wanted a scalar, got a vector of {a}"
            want_equal(info.dims[0], ONE, text, name=name)
        else:
            text = (
                "{name}: wanted a scalar or a vector of {b}, the size of {axis}; got {a} elements"
            )
            want_equal(info.dims[0], along, text, name=name, axis=axis)
    return info


def is_zero(x: Expr | None) -> bool:
    """Whether the argument `x` is not given, or a constant of zeros."""
    return x is None or (isinstance(x, Constant) and not x.data.numpy().any())


def needed(*zero_points: Expr | None) -> tuple[list[Expr], tuple[int, ...]]:
    """The zero points that are not 0, and which they are: what is subtracted costs time."""
    which = tuple(k for k, z in enumerate(zero_points) if not is_zero(z))
    return [z for z in zero_points if z is not None and not is_zero(z)], which


def quant_at(x: te.Tensor, i: PrimExpr | None) -> PrimExpr:
    """The parameter for index `i` of its axis."""
    if x.ndim == 0:
        return x()
    if i is None or is_const(x.shape[0], 1):
        return x(const(0, "int64"))
    return x(i)


def quant_values(x: Any, ndim: int, axis: int) -> np.ndarray:
    """A parameter shaped to broadcast against a tensor of `ndim` dimensions."""
    x = np.asarray(x)
    if x.size == 1 and x.ndim <= 1:
        return x.reshape(())
    return x.reshape([-1 if k == axis else 1 for k in range(ndim)]) if x.ndim else x


def same_as(zero_point: Expr, info: TensorStructInfo, name: str, of: str) -> None:
    have = tensor(zero_point, name).dtype
    if "void" not in (str(have), str(info.dtype)) and have is not info.dtype:
        raise StructInfoError(f"{name}: wanted {info.dtype}, the dtype of {of}; got {have}")


# -- rounding to stored values ---------------------------------------------------------------------


def real_dtype(*dtypes: Any) -> DataType:
    return DataType("float64" if any(str(d) == "float64" for d in dtypes) else "float32")


def to_stored(value: PrimExpr, zero_point: PrimExpr, out: DataType) -> PrimExpr:
    """`value` rounded, shifted by the zero point and clipped to `out`. NaN gives the zero of a
    cast, 0, clipped.
    """
    wide = DataType("float64") if out.bits == 32 or value.dtype.bits == 64 else DataType("float32")
    # A cast stays within the limits of its dtype.
    return cast(out, cast(wide, tir.round(value)) + cast(wide, zero_point))


def np_stored(value: np.ndarray, zero_point: Any, out: Any) -> np.ndarray:
    kept, dtype = DataType(out), value_dtype(out)
    exact = kept.bits == 32 or value.dtype == np.float64
    wide = np.dtype("float64" if exact else "float32")
    shifted = np.rint(value).astype(wide) + np.asarray(zero_point).astype(wide)
    clipped = np.clip(shifted, wide.type(kept.min_value), wide.type(kept.max_value))
    return np.where(np.isnan(clipped), 0, clipped).astype(dtype)


def distance(value: PrimExpr, zero_point: te.Tensor | None, i: PrimExpr | None) -> PrimExpr:
    wide = cast("int32", value)
    return wide if zero_point is None else wide - cast("int32", quant_at(zero_point, i))
