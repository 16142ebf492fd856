"""Quantised operators of com.microsoft: values of 8 and 16 bits with a scale and a zero point, and
weights of 2 to 8 bits.
"""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np

from .....base import DataType
from ....expr import Tuple, const
from ....op.sizes import simplified
from ..registry import Ints, find, onnx, op, passes_on
from ..values import as_size, dims_of, dtype_of, shape_expr
from . import quantised, recurrent, window
from .microsoft import channels_first, channels_last, embed_layer_norm, mixture
from .transformer import MS, part, self_attention
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
@passes_on(window.qlinear_conv)
def qlinear_conv(
    node: Any, x: Any, x_scale: Any, x_zero: Any, weight: Any, w_scale: Any, w_zero: Any,
    scale: Any, zero: Any, bias: Any = None, *, channels_last: int = 0, **sliding: Any,
) -> Any:  # fmt: skip
    rank = len(dims_of(x))
    x = node.emit(channels_first(x)) if channels_last else x
    quantised = x_scale, x_zero, weight, w_scale, w_zero, scale, zero
    y = window.qlinear_conv(node, x, *quantised, bias, **sliding)
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


@onnx("DynamicQuantizeLSTM", domain=MS, ignores="hidden_size")
@passes_on(recurrent.lstm, but="layout")
def dynamic_quantize_lstm(
    node: Any,
    x: Any,
    w: Any,
    r: Any,
    b: Any = None,
    lengths: Any = None,
    h: Any = None,
    c: Any = None,
    p: Any = None,
    w_scale: Any = None,
    w_zero: Any = None,
    r_scale: Any = None,
    r_zero: Any = None,
    **attributes: Any,
) -> Any:
    """An LSTM of stored weights [directions, inputs, gates]. Data and states stay floats, which is
    more exact than onnxruntime's 8 bits for each step.
    """

    def real(v: Any, scale: Any, zero: Any) -> Any:
        if scale is None or zero is None:
            raise node.error("wanted scales and zero points of both weights")
        behind = (1, 2) if len(dims_of(scale)) == 1 else 1
        centred = op.subtract(
            op.astype(v, "int32"), op.astype(op.expand_dims(zero, behind), "int32")
        )
        y = op.multiply(op.astype(centred, "float32"), op.expand_dims(scale, behind))
        return op.permute_dims(y, (0, 2, 1))

    weights = real(w, w_scale, w_zero), real(r, r_scale, r_zero)
    return recurrent.lstm(node, x, *weights, b, lengths, h, c, p, **attributes)


# -- weights of a few bits -------------------------------------------------------------------------


def _fields(node: Any, x: Any, bits: int) -> Any:
    """The numbers in the bytes of the last axis, the lowest bits first."""
    if bits == 8:
        return x
    x, each = node.emit(x), 8 // bits
    mask = const(2**bits - 1, "uint8")
    numbers = [
        op.bitwise_and(op.right_shift(x, const(bits * i, "uint8")), mask) for i in range(each)
    ]
    *lead, count = dims_of(x)
    return op.reshape(op.stack(Tuple(numbers), -1), shape_expr([*lead, simplified(count * each)]))


def _points(node: Any, zero: Any, bits: int, shape: Any) -> Any:
    """Zero points by blocks in a shape; bytes of them hold several."""
    if str(dtype_of(zero)) == "uint8":
        packed = simplified((shape[-1] * bits + 7) // 8)
        zero = _fields(node, op.reshape(zero, shape_expr([*shape[:-1], packed])), bits)
        return part(zero, -1, 0, shape[-1])
    return op.reshape(zero, shape_expr(shape))


@onnx("MatMulNBits", domain=MS, ignores="accuracy_level")
def matmul_nbits(
    node: Any,
    x: Any,
    weight: Any,
    scale: Any,
    zero: Any = None,
    group: Any = None,
    bias: Any = None,
    *,
    K: int,
    N: int,
    block_size: int,
    bits: int = 4,
    weight_prepacked: int = 0,
) -> Any:
    """Weights [N, blocks, bytes] go into the order in which a product reads them."""
    if weight_prepacked or bits not in (2, 4, 8):
        raise node.error("weight_prepacked, and bits other than 2, 4 and 8, are not imported")
    blocks = -(-K // block_size)
    count = block_size * bits // 8
    weight = op.reshape(weight, shape_expr([N, blocks, count]))
    scale = op.reshape(scale, shape_expr([N, blocks]))
    zero = None if zero is None else _points(node, zero, bits, (as_size(N), as_size(blocks)))
    if group is None:
        x = _filled(x, blocks * block_size - K)
        packed = op.permute_dims(weight, (1, 2, 0))
        zero = None if zero is None else op.permute_dims(zero)
        y = op.matmul_nbits(x, packed, op.permute_dims(scale), zero, bits)
    else:
        flat = op.reshape(_fields(node, weight, bits), shape_expr([N, blocks * block_size]))
        middle = const(2.0 ** (bits - 1), dtype_of(x))
        if zero is not None:
            middle = op.take(op.astype(zero, dtype_of(x)), group, 1)
        real = op.subtract(op.astype(part(flat, 1, 0, K), dtype_of(x)), middle)
        y = op.matmul(x, op.permute_dims(op.multiply(real, op.take(scale, group, 1))))
    return y if bias is None else op.add(y, bias)


def _filled(x: Any, more: int) -> Any:
    """`x` with `more` zeros behind its last axis: the last block may be cut short."""
    return op.nn.pad(x, (0, 0) * (len(dims_of(x)) - 1) + (0, more)) if more else x


def _by_blocks(node: Any, x: Any, scale: Any, zero: Any, bits: int, axis: int, block: int) -> Any:
    """What numbers of a few bits stand for; `block` of them along an axis share a scale."""
    size = dims_of(x)[axis]

    def spread(p: Any) -> Any:
        return part(op.repeat(p, block, axis), axis, 0, size)

    dtype = dtype_of(scale)
    middle = const(2.0 ** (bits - 1), dtype) if zero is None else op.astype(spread(zero), dtype)
    return op.multiply(op.subtract(op.astype(x, dtype), middle), spread(scale))


@onnx("GatherBlockQuantized", domain=MS)
def gather_block_quantized(
    node: Any,
    x: Any,
    indices: Any,
    scale: Any,
    zero: Any = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
) -> Any:
    """Rows of a table of a few bits: only those that are taken become floats."""
    if str(dtype_of(x)) != "uint8" or gather_axis:
        raise node.error(f"wanted uint8 and gather_axis 0, got {dtype_of(x)} and {gather_axis}")
    rank, rank_taken = len(dims_of(x)), len(dims_of(indices))
    axis = quantize_axis % rank
    if axis == 0:
        raise node.error("quantize_axis and gather_axis must differ")
    numbers = _fields(node, op.take(x, indices, 0), bits)
    if zero is not None:
        shape = dims_of(scale) if axis == rank - 1 else (*dims_of(zero)[:-1], dims_of(scale)[-1])
        zero = op.take(_points(node, zero, bits, shape), indices, 0)
    scale = op.take(scale, indices, 0)
    along = axis + rank_taken - 1
    return _by_blocks(node, node.emit(numbers), scale, zero, bits, along, block_size)


@onnx("QMoE", domain=MS, ignores="accuracy_level")
@passes_on(mixture, but="swiglu_limit_after_activation")
def quantised_mixture(
    node: Any,
    x: Any,
    router: Any,
    weight_1: Any,
    scale_1: Any = None,
    bias_1: Any = None,
    weight_2: Any = None,
    scale_2: Any = None,
    bias_2: Any = None,
    weight_3: Any = None,
    scale_3: Any = None,
    bias_3: Any = None,
    zero_1: Any = None,
    zero_2: Any = None,
    zero_3: Any = None,
    *,
    expert_weight_bits: int = 4,
    block_size: int = 0,
    quant_type: str = "int",
    weights_prepacked: int = -1,
    **attributes: Any,
) -> Any:
    if quant_type != "int" or expert_weight_bits not in (2, 4, 8) or weights_prepacked == 1:
        raise node.error("wanted weights of 2, 4 or 8 bits as they are (quant_type int)")
    bits = expert_weight_bits

    def real(weight: Any, scale: Any, zero: Any) -> Any:
        if weight is None:
            return None
        if scale is None:
            raise node.error("wanted scales of all weights")
        numbers = node.emit(_fields(node, weight, bits))
        if len(dims_of(scale)) == 2:
            scale = op.expand_dims(scale, 2)
        if zero is not None and not block_size:
            shape = dims_of(scale)[:2]
            zero = op.expand_dims(_points(node, zero, bits, shape), 2)
        elif zero is not None:
            zero = _points(node, zero, bits, dims_of(scale))
        size = getattr(dims_of(numbers)[2], "value", 1)
        return _by_blocks(node, numbers, scale, zero, bits, 2, block_size or size)

    layers = (
        (real(weight_1, scale_1, zero_1), bias_1),
        (real(weight_2, scale_2, zero_2), bias_2),
        (real(weight_3, scale_3, zero_3), bias_3),
    )
    return mixture(node, x, router, *itertools.chain(*layers), **attributes)
