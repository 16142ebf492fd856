"""Quantised values, onto `relax.op`'s quantize, dequantize and integer products."""

from __future__ import annotations

from typing import Any

import numpy as np

from .....base import DataType
from ....expr import const
from ..model import element_dtype
from ..registry import onnx, op
from ..values import dims_of, dtype_of, shape_expr
from .window import scalar_if_one


@onnx("QuantizeLinear", since=10)
def quantize(
    node: Any,
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: Any = 1,
    block_size: Any = 0,
    output_dtype: Any = 0,
    saturate: Any = 1,
    precision: Any = 0,
) -> Any:
    dtype = element_dtype(output_dtype, "output_dtype") if output_dtype else DataType("uint8")
    if zero is not None:
        dtype = dtype_of(zero)
    x, scale = (v if dtype_of(v).is_float else op.astype(v, "float32") for v in (x, scale))
    scale, zero = _spread(x, scale, zero, dtype, axis, block_size)
    wide = element_dtype(precision, "precision") if precision else DataType("float32")
    if len(dims_of(scale)) <= 1 and not dtype.is_float and wide == "float32":
        return op.quantize(x, scale, zero, axis if dims_of(scale) else -1, str(dtype))
    scale, zero = _along(x, scale, axis), _along(x, zero, axis)
    y = op.astype(op.divide(op.astype(x, wide), op.astype(scale, wide)), "float32")
    shifted = op.add(y if dtype.is_float else op.round(y), op.astype(zero, "float32"))
    if saturate or not dtype.is_float:
        low, high = (const(float(v), "float32") for v in (dtype.min_value, dtype.max_value))
        shifted = op.minimum(op.maximum(shifted, low), high)
    return op.astype(shifted, dtype)


@onnx("DequantizeLinear", since=10)
def dequantize(
    node: Any,
    x: Any,
    scale: Any,
    zero: Any = None,
    *,
    axis: Any = 1,
    block_size: Any = 0,
    output_dtype: Any = 0,
) -> Any:
    dtype = dtype_of(x)
    result = element_dtype(output_dtype, "output_dtype") if output_dtype else dtype_of(scale)
    scale, zero = _spread(x, scale, zero, dtype, axis, block_size)
    if len(dims_of(scale)) <= 1 and not dtype.is_float:
        return op.dequantize(x, scale, zero, axis if dims_of(scale) else -1, str(result))
    scale, zero = _along(x, scale, axis), _along(x, zero, axis)
    wide = "float32" if dtype.is_float else "int32"
    centred = op.subtract(op.astype(x, wide), op.astype(zero, wide))
    return op.astype(
        op.multiply(op.astype(centred, "float32"), op.astype(scale, "float32")), result
    )


def _spread(
    x: Any, scale: Any, zero: Any, dtype: DataType, axis: Any, block: Any
) -> tuple[Any, Any]:
    """Scale and zero point: scalars, vectors along `axis`, or, of blocks, one for each element."""
    if zero is None:
        zero = op.zeros(shape_expr(dims_of(scale)), dtype)
    scale, zero = scalar_if_one(scale), scalar_if_one(zero)
    if not block:
        return scale, zero
    size = dims_of(x)[axis]
    # The last block may be cut short.
    scale, zero = (
        op.strided_slice(op.repeat(v, block, axis), [axis], [0], [size]) for v in (scale, zero)
    )
    return scale, zero


def _along(x: Any, parameter: Any, axis: int) -> Any:
    """A vector along `axis` of `x` so that it broadcasts; other parameters as they are."""
    if len(dims_of(parameter)) != 1:
        return parameter
    rank = len(dims_of(x))
    return op.expand_dims(parameter, tuple(range(1, rank - axis % rank)))


@onnx("QLinearMatMul", since=10)
def qlinear_matmul(
    node: Any,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    y_scale: Any,
    y_zero: Any,
) -> Any:
    a_scale, a_zero, b_scale, b_zero, y_scale, y_zero = map(
        scalar_if_one, (a_scale, a_zero, b_scale, b_zero, y_scale, y_zero)
    )
    if any(dtype_of(v).is_float for v in (a, b, y_zero)):
        left = dequantize(node, a, a_scale, a_zero, axis=-2)
        right = dequantize(node, b, b_scale, b_zero, axis=-1)
        return quantize(node, op.matmul(left, right), y_scale, y_zero, axis=-2)
    return op.qlinear_matmul(a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero)


@onnx("DynamicQuantizeLinear", since=11)
def dynamic_quantize(node: Any, x: Any) -> Any:
    zero = const(np.float32(0))
    least = node.emit(op.minimum(op.min(x), zero))
    most = op.maximum(op.max(x), zero)
    scale = node.emit(op.divide(op.subtract(most, least), const(np.float32(255))))
    shift = op.round(op.divide(op.negative(least), scale))
    point = node.emit(op.astype(op.clip(shift, 0, 255), "uint8"))
    return op.quantize(x, scale, point, -1, "uint8"), scale, point
