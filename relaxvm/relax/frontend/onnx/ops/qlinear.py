"""Quantised operators of com.microsoft: values of 8 and 16 bits with a scale and a zero point, and
weights of 2 to 8 bits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from .....base import DataType
from ....expr import Tuple, const
from ..registry import Ints, find, onnx, op
from ..values import dims_of, dtype_of
from . import quantised, window
from .microsoft import channels_first, channels_last, embed_layer_norm
from .transformer import MS, self_attention
from .window import scalar_if_one

# -- values ----------------------------------------------------------------------------------------


def _zero(zero: Any, like: Any) -> Any:
    """A zero point, 0 for one that is left out."""
    return const(0, dtype_of(like)) if zero is None else scalar_if_one(zero)


def _real(x: Any, scale: Any, zero: Any) -> Any:
    return op.dequantize(x, scalar_if_one(scale), _zero(zero, x), -1, "float32")


def _stored(x: Any, scale: Any, zero: Any, dtype: Any) -> Any:
    zero = const(0, dtype) if zero is None else scalar_if_one(zero)
    return op.quantize(x, scalar_if_one(scale), zero, -1, str(dtype))


def _rescaled(x: Any, scale: Any, zero: Any, new_scale: Any, new_zero: Any) -> Any:
    """`x` with another scale and zero point."""
    old, new = (scalar_if_one(scale), _zero(zero, x)), scalar_if_one(new_scale)
    return op.requantize(x, *old, new, _zero(new_zero, x), -1, str(dtype_of(x)))


@onnx("QuantizeLinear", domain=MS)
def quantize(node: Any, x: Any, scale: Any, zero: Any = None, *, axis: int = 1) -> Any:
    return quantised.quantize(node, x, scale, zero, axis=axis)


@onnx("DequantizeLinear", domain=MS)
def dequantize(node: Any, x: Any, scale: Any, zero: Any = None, *, axis: int = 1) -> Any:
    return quantised.dequantize(node, x, scale, zero, axis=axis)


@onnx("QLinearAdd", domain=MS)
def qlinear_add(
    node: Any,
    a: Any,
    a_scale: Any,
    a_zero: Any = None,
    b: Any = None,
    b_scale: Any = None,
    b_zero: Any = None,
    scale: Any = None,
    zero: Any = None,
) -> Any:
    if b is None or b_scale is None or scale is None:
        raise node.error("wanted two operands, each with its scale, and the scale of the result")
    combine = op.add if node.proto.op_type == "QLinearAdd" else op.multiply
    y = combine(_real(a, a_scale, a_zero), _real(b, b_scale, b_zero))
    return _stored(y, scale, zero, dtype_of(a))


onnx("QLinearMul", domain=MS)(qlinear_add)


@onnx("QLinearSigmoid", domain=MS)
def qlinear_sigmoid(
    node: Any, x: Any, x_scale: Any, x_zero: Any = None, scale: Any = None, zero: Any = None
) -> Any:
    return _alone(node, op.sigmoid, x, x_scale, x_zero, scale, zero)


@onnx("QLinearLeakyRelu", domain=MS)
def qlinear_leaky_relu(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any = None,
    scale: Any = None,
    zero: Any = None,
    *,
    alpha: float = 0.01,
) -> Any:
    return _alone(node, lambda v: op.nn.leakyrelu(v, alpha), x, x_scale, x_zero, scale, zero)


@onnx("QLinearSoftmax", domain=MS)
def qlinear_softmax(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any = None,
    scale: Any = None,
    zero: Any = None,
    *,
    opset: int,
    axis: int = -1,
) -> Any:
    softmax = find("", "Softmax", opset)
    if softmax is None:
        raise node.error(f"opset: there is no Softmax of {opset}")
    meaning = softmax.function
    return _alone(node, lambda v: meaning(node, v, axis=axis), x, x_scale, x_zero, scale, zero)


def _alone(node: Any, f: Any, x: Any, x_scale: Any, x_zero: Any, scale: Any, zero: Any) -> Any:
    """`f` of what stored values stand for, stored."""
    if scale is None:
        raise node.error("the scale of the result is missing")
    return _stored(f(_real(x, x_scale, x_zero)), scale, zero, dtype_of(x))


@onnx("QLinearReduceMean", domain=MS)
def qlinear_reduce_mean(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any = None,
    scale: Any = None,
    zero: Any = None,
    *,
    axes: Ints,
    keepdims: int,
) -> Any:
    def mean(v: Any) -> Any:
        return op.mean(v, axes, bool(keepdims))

    return _alone(node, mean, x, x_scale, x_zero, scale, zero)


@onnx("QLinearAveragePool", domain=MS)
def qlinear_average_pool(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any = None,
    scale: Any = None,
    zero: Any = None,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    channels_last: int = 0,
    count_include_pad: int = 0,
    pads: Ints = None,
    strides: Ints = None,
) -> Any:
    def pool(v: Any) -> Any:
        return window.average_pool(
            node,
            v,
            auto_pad=auto_pad,
            ceil_mode=ceil_mode,
            count_include_pad=count_include_pad,
            kernel_shape=kernel_shape,
            pads=pads,
            strides=strides,
        )

    return _pooled(node, pool, channels_last, x, x_scale, x_zero, scale, zero)


@onnx("QLinearGlobalAveragePool", domain=MS)
def qlinear_global_average_pool(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    scale: Any,
    zero: Any,
    *,
    channels_last: int = 0,
) -> Any:
    def pool(v: Any) -> Any:
        return op.mean(v, tuple(range(2, len(dims_of(v)))), True)

    return _pooled(node, pool, channels_last, x, x_scale, x_zero, scale, zero)


def _pooled(node: Any, pool: Any, last: int, x: Any, *params: Any) -> Any:
    if not last:
        return _alone(node, pool, x, *params)
    return channels_last(node.emit(_alone(node, pool, node.emit(channels_first(x)), *params)))


@onnx("QLinearConcat", domain=MS)
def qlinear_concat(node: Any, scale: Any, zero: Any, *inputs: Any, axis: int) -> Any:
    """Inputs come as three: values, their scale, their zero point."""
    if not inputs or len(inputs) % 3:
        raise node.error(f"wanted values, scale and zero point of each, got {len(inputs)} inputs")
    trios = zip(inputs[::3], inputs[1::3], inputs[2::3])
    return op.concat(Tuple([_rescaled(*trio, scale, zero) for trio in trios]), axis)


@onnx("QLinearWhere", domain=MS)
def qlinear_where(
    node: Any,
    condition: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    y: Any,
    y_scale: Any,
    y_zero: Any,
    scale: Any,
    zero: Any,
) -> Any:
    left = _rescaled(x, x_scale, x_zero, scale, zero)
    return op.where(condition, left, _rescaled(y, y_scale, y_zero, scale, zero))


@onnx("QLinearConv", domain=MS)
def qlinear_conv(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    weight: Any,
    w_scale: Any,
    w_zero: Any,
    scale: Any,
    zero: Any,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    channels_last: int = 0,
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Any:
    rank = len(dims_of(x))
    y = window.qlinear_conv(
        node,
        node.emit(channels_first(x)) if channels_last else x,
        x_scale,
        x_zero,
        weight,
        w_scale,
        w_zero,
        scale,
        zero,
        bias,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return op.permute_dims(y, (0, *range(2, rank), 1)) if channels_last else y


@onnx("MulInteger", domain=MS)
def mul_integer(node: Any, a: Any, a_zero: Any = None, b: Any = None, b_zero: Any = None) -> Any:
    if b is None:
        raise node.error("its input B is missing")
    return op.multiply(_distance(a, a_zero), _distance(b, b_zero))


def _distance(x: Any, zero: Any) -> Any:
    wide = op.astype(x, "int32")
    return wide if zero is None else op.subtract(wide, op.astype(scalar_if_one(zero), "int32"))


@onnx("ReduceSumInteger", domain=MS)
def reduce_sum_integer(node: Any, x: Any, *, axes: Ints, keepdims: int) -> Any:
    wide = "uint32" if str(dtype_of(x)).startswith("u") else "int32"
    return op.sum(op.astype(x, wide), axes, bool(keepdims))


# -- products --------------------------------------------------------------------------------------


@onnx("MatMulInteger16", domain=MS)
def matmul_integer_16(node: Any, a: Any, b: Any) -> Any:
    signed = not all(str(dtype_of(x)).startswith("u") for x in (a, b))
    return op.matmul(a, b, "int32" if signed else "uint32")


def _scaled_product(
    a: Any, a_scale: Any, a_zero: Any, b: Any, b_scale: Any, b_zero: Any, bias: Any
) -> Any:
    """The product of what integers stand for, plus a bias. Parameters of `b` may be by column, of a
    batch of matrices as well: [..., columns] or [..., 1, columns].
    """
    a_zero, b_zero = (None if z is None else scalar_if_one(z) for z in (a_zero, b_zero))
    dtype = dtype_of(a_scale)
    if b_zero is not None and len(dims_of(b_zero)) > 1:
        left, right = (
            _distance(a, a_zero),
            op.subtract(op.astype(b, "int32"), op.astype(b_zero, "int32")),
        )
        sums = op.matmul(left, right)
    else:
        sums = op.matmul_integer(a, b, a_zero, b_zero)
    scale = op.multiply(scalar_if_one(a_scale), scalar_if_one(b_scale))
    y = op.multiply(op.astype(sums, dtype), scale)
    return y if bias is None else op.add(y, bias)


@onnx("MatMulIntegerToFloat", domain=MS)
def matmul_integer_to_float(
    node: Any,
    a: Any,
    b: Any,
    a_scale: Any,
    b_scale: Any,
    a_zero: Any = None,
    b_zero: Any = None,
    bias: Any = None,
) -> Any:
    return _scaled_product(a, a_scale, a_zero, b, b_scale, b_zero, bias)


@onnx("DynamicQuantizeMatMul", domain=MS)
def dynamic_quantize_matmul(
    node: Any, a: Any, b: Any, b_scale: Any, b_zero: Any = None, bias: Any = None
) -> Any:
    stored, scale, zero = quantised.dynamic_quantize(node, a)
    return _scaled_product(stored, scale, zero, b, b_scale, b_zero, bias)


@onnx("QGemm", domain=MS)
def qgemm(
    node: Any,
    a: Any,
    a_scale: Any,
    a_zero: Any,
    b: Any,
    b_scale: Any,
    b_zero: Any,
    c: Any = None,
    scale: Any = None,
    zero: Any = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
) -> Any:
    """(a b + c) * alpha * a_scale * b_scale, in float32 or stored; c are sums of integers."""
    a = op.permute_dims(a) if transA else a
    b = op.permute_dims(b) if transB else b
    sums = op.matmul_integer(a, b, scalar_if_one(a_zero), scalar_if_one(b_zero))
    sums = sums if c is None else op.add(sums, c)
    factor = op.multiply(scalar_if_one(a_scale), scalar_if_one(b_scale))
    if alpha != 1.0:
        factor = op.multiply(factor, const(np.float32(alpha)))
    y = op.multiply(op.astype(sums, "float32"), factor)
    if scale is None:
        return y
    return _stored(y, scale, zero, DataType("uint8") if zero is None else dtype_of(zero))


@onnx("QAttention", domain=MS)
def qattention(
    node: Any,
    x: Any,
    weight: Any,
    bias: Any,
    x_scale: Any,
    w_scale: Any,
    mask: Any = None,
    x_zero: Any = None,
    w_zero: Any = None,
    past: Any = None,
    *,
    num_heads: int,
    unidirectional: int = 0,
    scale: float = 0.0,
    mask_filter_value: float = -10000.0,
    do_rotary: int = 0,
    past_present_share_buffer: int = 0,
) -> Any:
    return self_attention(
        node,
        _scaled_product(x, x_scale, x_zero, weight, w_scale, w_zero, bias),
        mask,
        past,
        num_heads=num_heads,
        unidirectional=unidirectional,
        scale=scale,
        mask_filter_value=mask_filter_value,
        do_rotary=do_rotary,
        past_present_share_buffer=past_present_share_buffer,
    )


@onnx("QEmbedLayerNormalization", domain=MS)
def qembed_layer_norm(
    node: Any,
    words: Any,
    segments: Any,
    word_table: Any,
    position_table: Any,
    segment_table: Any,
    gamma: Any,
    beta: Any,
    mask: Any,
    *params: Any,
    epsilon: float = 1e-12,
) -> Any:
    """Behind the mask stand the scales of the five tables, then their zero points."""
    if len(params) != 10:
        raise node.error(f"wanted five scales and five zero points, got {len(params)}")
    tables = [
        None if x is None else _real(x, scale, zero)
        for x, scale, zero in zip(
            (word_table, position_table, segment_table, gamma, beta), params[:5], params[5:]
        )
    ]
    return embed_layer_norm(node, words, segments, *tables, mask, epsilon=epsilon)
