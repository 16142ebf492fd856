"""Quantised tensors: real = (stored - zero_point) * scale.

    quantize     stored = clip(round(real / scale) + zero_point)          rounding ties to even
    dequantize   real = (stored - zero_point) * scale
    requantize   from one scale and zero point to another

A scale or zero point is a scalar (or has one element), or a vector along an axis. Scaling is done
in float32 (in float64 beside float64), so results are those of ONNX's operators. Integer products
and convolutions are in qdq_matmul.py and qdq_conv.py.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import DataType
from ...ir import PrimExpr, cast
from ..expr import Call
from ..rules import Lower, LowerBuilder
from ..struct_info import Expr, StructInfo
from .infer import FLOAT, INTEGER, axis_of, dtype_of, tensor
from .lower import call_te
from .meaning import value_dtype
from .quant_params import (
    FEW_BITS,
    STORED,
    np_stored,
    one_of,
    quant_at,
    quant_info,
    quant_values,
    real_dtype,
    to_stored,
)
from .record import missing, op
from .sizes import KnownTensor

_ROUNDS = missing("rounds to integers")


# -- quantize and dequantize -----------------------------------------------------------------------


def _out(out_dtype: Any, names: Sequence[str]) -> DataType:
    dtype = dtype_of(out_dtype, "out_dtype")
    one_of(dtype, names, "out_dtype")
    return dtype


def _along(info: KnownTensor, axis: int) -> PrimExpr | None:
    """The size of `axis`; None of a scalar."""
    return info.dims[axis_of(axis, info.ndim)] if info.ndim else None


def _quantize_numpy(
    data: Any, scale: Any, zero_point: Any, *, axis: int = -1, out_dtype: Any = "int8"
) -> Any:
    x = np.asarray(data)
    real = np.dtype(str(real_dtype(x.dtype, np.asarray(scale).dtype)))
    axis = axis % max(x.ndim, 1)
    s, z = (quant_values(p, x.ndim, axis) for p in (scale, zero_point))
    return np_stored(np.asarray(x.astype(real) / s.astype(real)), z, out_dtype)


def _dequantize_numpy(
    data: Any, scale: Any, zero_point: Any, *, axis: int = -1, out_dtype: Any = "float32"
) -> Any:
    x = np.asarray(data)
    out = value_dtype(out_dtype)
    real = np.dtype(str(real_dtype(out, np.asarray(scale).dtype)))
    axis = axis % max(x.ndim, 1)
    s, z = (quant_values(p, x.ndim, axis) for p in (scale, zero_point))
    distance = x.astype("int64") - z.astype("int64")
    return np.asarray(distance.astype(real) * s.astype(real)).astype(out)


def _elementwise_lower(formula: Callable[..., PrimExpr], parameters: int) -> Lower:
    """A legalisation element by element, with `parameters` arguments that are scalars or vectors
    along `axis`.
    """

    def compute(x: te.Tensor, *rest: te.Tensor, axis: int | None, out: str) -> te.Tensor:
        def value(*i: PrimExpr) -> PrimExpr:
            here = None if axis is None else i[axis]
            return formula(x(*i), *(quant_at(p, here) for p in rest), out=DataType(out))

        return te.compute(x.shape, value, "quantized")

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        x, *rest = call.args
        ndim = tensor(x, "data").ndim
        axis = axis_of(call.attrs["axis"], ndim) if ndim else None
        out = str(DataType(call.attrs["out_dtype"]))
        return call_te(builder, call, compute, x, *rest[:parameters], axis=axis, out=out)

    return lower


def _quantize_formula(x: PrimExpr, s: PrimExpr, z: PrimExpr, *, out: DataType) -> PrimExpr:
    real = real_dtype(x.dtype, s.dtype)
    return to_stored(cast(real, x) / cast(real, s), z, out)


def _dequantize_formula(x: PrimExpr, s: PrimExpr, z: PrimExpr, *, out: DataType) -> PrimExpr:
    real = real_dtype(out, s.dtype)
    # A double holds the distance of what has 32 bits; machines lack vectors of 64-bit conversions.
    short = x.dtype.bits == 32 and z.dtype.bits <= 32
    wide = "float64" if short else "int64"
    return cast(out, cast(real, cast(wide, x) - cast(wide, z)) * cast(real, s))


@op("quantize", _quantize_numpy, _elementwise_lower(_quantize_formula, 2), _ROUNDS)
def quantize(
    data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "int8"
) -> StructInfo:
    """clip(round(data / scale) + zero_point) in `out_dtype` (int8, uint8, int16, uint16, int32,
    int4, uint4, int2 or uint2); ties to even.

    scale       floating; a scalar or a vector along `axis`       zero_point  an integer, likewise
    """
    out = _out(out_dtype, (*STORED, *FEW_BITS))
    info = tensor(data, "data", FLOAT)
    along = _along(info, axis)
    quant_info(scale, "scale", FLOAT, along, f"axis {axis}")
    quant_info(zero_point, "zero_point", INTEGER, along, f"axis {axis}")
    return info.replace(dtype=out)


@op(
    "dequantize",
    numpy=_dequantize_numpy,
    lower=_elementwise_lower(_dequantize_formula, 2),
    grad=missing("data and zero point are integers, and scales are constants"),
)
def dequantize(
    data: Expr, scale: Expr, zero_point: Expr, axis: int = -1, out_dtype: str = "float32"
) -> StructInfo:
    """(data - zero_point) * scale in `out_dtype`, a floating dtype; `data` is int8, uint8, int16,
    uint16, int32, int4, uint4, int2 or uint2.
    """
    out = _out(out_dtype, ("float16", "bfloat16", "float32", "float64"))
    info = tensor(data, "data", INTEGER)
    one_of(info.dtype, (*STORED, *FEW_BITS), "data")
    along = _along(info, axis)
    quant_info(scale, "scale", FLOAT, along, f"axis {axis}")
    quant_info(zero_point, "zero_point", INTEGER, along, f"axis {axis}")
    return info.replace(dtype=out)


# -- requantize ------------------------------------------------------------------------------------


def _requantize_numpy(
    data: Any,
    input_scale: Any,
    input_zero_point: Any,
    output_scale: Any,
    output_zero_point: Any,
    *,
    axis: int = -1,
    out_dtype: Any = "int8",
) -> Any:
    x = np.asarray(data)
    axis = axis % max(x.ndim, 1)
    numbers = (input_scale, input_zero_point, output_scale, output_zero_point)
    s, z, so, zo = (quant_values(p, x.ndim, axis) for p in numbers)
    distance = (x.astype("int64") - z.astype("int64")).astype("float32")
    factor = s.astype("float32") / so.astype("float32")
    return np_stored(np.asarray(distance * factor), zo, out_dtype)


def _requantize_formula(
    x: PrimExpr, s: PrimExpr, z: PrimExpr, so: PrimExpr, zo: PrimExpr, *, out: DataType
) -> PrimExpr:
    distance = cast("float32", cast("int64", x) - cast("int64", z))
    return to_stored(distance * (cast("float32", s) / cast("float32", so)), zo, out)


@op("requantize", _requantize_numpy, _elementwise_lower(_requantize_formula, 4), _ROUNDS)
def requantize(
    data: Expr,
    input_scale: Expr,
    input_zero_point: Expr,
    output_scale: Expr,
    output_zero_point: Expr,
    axis: int = -1,
    out_dtype: str = "int8",
) -> StructInfo:
    """`data` in another scale: clip(round((data - input_zero_point) * (input_scale / output_scale))
    + output_zero_point).

    Scales and zero points are scalars or vectors along `axis`; ties round to even.
    """
    out = _out(out_dtype, STORED)
    info = tensor(data, "data", INTEGER)
    one_of(info.dtype, STORED, "data")
    along = _along(info, axis)
    for x, name, takes in (
        (input_scale, "input_scale", FLOAT),
        (input_zero_point, "input_zero_point", INTEGER),
        (output_scale, "output_scale", FLOAT),
        (output_zero_point, "output_zero_point", INTEGER),
    ):
        quant_info(x, name, takes, along, f"axis {axis}")
    return info.replace(dtype=out)
