"""Operators of com.microsoft but for attention and quantised ones: what onnxruntime's optimiser
joins several nodes to, and what exporters write for it.

There is no schema of them in `onnx`: keywords carry their defaults.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np

from ....expr import PrimValue, Tuple, const
from ....op.sizes import simplified
from ..registry import Floats, Ints, find, onnx, op, passes_on
from ..values import dims_of, dtype_of, product, shape_expr
from . import create, movement, normalise, window
from .matrix import gemm
from .transformer import MS, parts, places

# -- activations -----------------------------------------------------------------------------------


@onnx("Gelu", domain=MS)
def gelu(node: Any, x: Any) -> Any:
    return op.nn.gelu(x)


@onnx("BiasGelu", domain=MS)
def bias_gelu(node: Any, x: Any, bias: Any) -> Any:
    return op.nn.gelu(op.add(x, bias))


@onnx("FastGelu", domain=MS)
def fast_gelu(node: Any, x: Any, bias: Any = None) -> Any:
    return op.nn.gelu_tanh(x if bias is None else op.add(x, bias))


@onnx("GemmFastGelu", domain=MS)
def gemm_fast_gelu(node: Any, x: Any, weight: Any, bias: Any = None) -> Any:
    return fast_gelu(node, op.matmul(x, weight), bias)


@onnx("QuickGelu", domain=MS)
def quick_gelu(node: Any, x: Any, *, alpha: float = 1.702) -> Any:
    return op.multiply(x, op.sigmoid(op.multiply(x, const(alpha, dtype_of(x)))))


@onnx("ScaledSiLU", domain=MS)
def scaled_silu(node: Any, x: Any, scale: Any = None, *, alpha: float = 1.0) -> Any:
    dtype = dtype_of(x)
    factor = const(alpha, dtype) if scale is None else op.astype(op.reshape(scale, ()), dtype)
    return op.nn.silu(op.multiply(x, factor))


@onnx("SwiGLU", domain=MS, ignores="round_activation")
def swiglu(
    node: Any,
    gate: Any,
    up: Any = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    limit: float = 0.0,
) -> Any:
    if up is None:
        gate, up = _halves(node, gate)
    most = limit if limit > 0 else float("inf")
    return gated(node, gate, up, activation_alpha, activation_beta, most)


def gated(node: Any, gate: Any, up: Any, alpha: float, beta: float, most: float) -> Any:
    """gate * sigmoid(alpha * gate) * (up + beta), of values up to `most`."""
    dtype = dtype_of(gate)
    if most != float("inf"):
        gate = op.minimum(gate, const(most, dtype))
        up = op.clip(up, -most, most)
    return op.multiply(quick_gelu(node, node.emit(gate), alpha=alpha), _plus(up, beta))


def _plus(x: Any, number: float) -> Any:
    return op.add(x, const(number, dtype_of(x))) if number else x


def _halves(node: Any, x: Any) -> list[Any]:
    return parts(node, x, [simplified(dims_of(x)[-1] // 2)] * 2)


@onnx("BiasSplitGelu", domain=MS)
def bias_split_gelu(node: Any, x: Any, bias: Any) -> Any:
    left, right = _halves(node, op.add(x, bias))
    return op.multiply(left, op.nn.gelu(right))


@onnx("BiasAdd", domain=MS)
def bias_add(node: Any, x: Any, bias: Any, skip: Any) -> Any:
    return op.add(op.add(x, bias), skip)


@onnx("GatedAdd", domain=MS)
def gated_add(node: Any, x: Any, y: Any, gate: Any) -> Any:
    return op.add(x, op.multiply(y, gate))


@onnx("BiasSoftmax", domain=MS)
def bias_softmax(node: Any, x: Any, bias: Any, *, is_inner_broadcast: int, axis: int = 1) -> Any:
    """Softmax over all axes from `axis` on; the bias is the same for the axes just before it, or
    for the outermost.
    """
    dims, rank = dims_of(x), len(dims_of(x))
    axis %= rank
    outer = rank - len(dims_of(bias))
    if is_inner_broadcast and outer and len(dims_of(bias)) < rank:
        behind = dims_of(bias)
        lead = len(behind) - (rank - axis)
        shape = [*behind[:lead], *[1] * (axis - lead), *behind[lead:]]
        bias = op.reshape(bias, shape_expr(shape))
    flat = shape_expr([*dims[:axis], product(dims[axis:])])
    return op.reshape(op.nn.softmax(op.reshape(op.add(x, bias), flat), -1), shape_expr(dims))


@onnx("BiasDropout", domain=MS)
def bias_dropout(
    node: Any,
    x: Any,
    bias: Any,
    residual: Any = None,
    ratio: Any = None,
    training: Any = None,
    *,
    seed: Any = None,
) -> Any:
    y, mask = normalise.dropout(node, op.add(x, bias), ratio, training, seed=seed)
    return y if residual is None else op.add(y, residual), mask


# What the attributes of a joined activation are called where it stands alone.
_ACTIVATIONS = {
    "Clip": ("min", "max"),
    "Elu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "HardSwish": (),
    "LeakyRelu": ("alpha",),
    "Relu": (),
    "Selu": ("alpha", "gamma"),
    "Sigmoid": (),
    "Softplus": (),
    "Softsign": (),
    "Tanh": (),
    "ThresholdedRelu": ("alpha",),
}


def _activated(node: Any, x: Any, name: str | None, params: Any) -> Any:
    """`x` after the activation that an attribute names; it is None or "" where there is none."""
    if not name:
        return x
    # Opset 10: limits of Clip are attributes still.
    alone, wanted = find("", name, 10 if name == "Clip" else 21), _ACTIVATIONS.get(name)
    if alone is None or wanted is None:
        raise node.error(f"activation: wanted one of {', '.join(_ACTIVATIONS)}, got {name!r}")
    values = list(params or ())
    if len(values) < len(wanted):
        raise node.error(f"activation {name}: wanted {', '.join(wanted)}, got {values}")
    return alone.function(node, x, **dict(zip(wanted, values)))


# -- products --------------------------------------------------------------------------------------


@onnx("FusedMatMul FusedMatMulActivation", domain=MS, ignores="activation_axis")
def fused_matmul(
    node: Any,
    a: Any,
    b: Any,
    *,
    alpha: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    transBatchA: int = 0,
    transBatchB: int = 0,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    activation_gamma: float = 0.0,
) -> Any:
    product = op.matmul(_turned(a, transA, transBatchA), _turned(b, transB, transBatchB))
    if alpha != 1.0:
        product = op.multiply(product, const(alpha, dtype_of(a)))
    last = activation_gamma if activation == "Selu" else activation_beta
    return _activated(node, product, activation, (activation_alpha, last))


@onnx("TransposeMatMul", domain=MS)
def transpose_matmul(
    node: Any, a: Any, b: Any, *, alpha: float = 1.0, transA: int = 0, transB: int = 0
) -> Any:
    return fused_matmul(node, a, b, alpha=alpha, transA=transA, transB=transB)


def _turned(x: Any, matrix: int, batch: int) -> Any:
    """`x` with its last two axes exchanged; `batch`: with its first axis before the last, too."""
    rank = len(dims_of(x))
    if rank < 2 or not (matrix or batch):
        return x
    order = list(range(rank))
    if batch:
        order = [*order[1:-1], 0, order[-1]]
    if matrix:
        order[-2:] = order[:-3:-1]
    return op.permute_dims(x, tuple(order))


@onnx("FusedGemm", domain=MS)
def fused_gemm(
    node: Any,
    a: Any,
    b: Any,
    c: Any = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,
    transB: int = 0,
    activation: str = "",
    activation_alpha: float = 0.0,
    activation_beta: float = 0.0,
    activation_gamma: float = 0.0,
) -> Any:
    y = gemm(node, a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    last = activation_gamma if activation == "Selu" else activation_beta
    return _activated(node, y, activation, (activation_alpha, last))


# -- windows ---------------------------------------------------------------------------------------


def channels_first(x: Any) -> Any:
    rank = len(dims_of(x))
    return op.permute_dims(x, (0, rank - 1, *range(1, rank - 1)))


def channels_last(x: Any) -> Any:
    rank = len(dims_of(x))
    return op.permute_dims(x, (0, *range(2, rank), 1))


@onnx("FusedConv", domain=MS)
@passes_on(window.conv)
def fused_conv(
    node: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    addend: Any = None,
    *,
    activation: str = "",
    activation_params: Floats = None,
    **sliding: Any,
) -> Any:
    y = window.conv(node, x, weight, bias, **sliding)
    y = y if addend is None else op.add(y, addend)
    return _activated(node, y, activation, activation_params)


@onnx("NhwcFusedConv NhwcConv", domain=MS)
@passes_on(fused_conv)
def nhwc_fused_conv(
    node: Any, x: Any, weight: Any, bias: Any = None, addend: Any = None, **attributes: Any
) -> Any:
    addend = None if addend is None else channels_first(addend)
    y = fused_conv(node, channels_first(x), weight, bias, addend, **attributes)
    return channels_last(node.emit(y))


@onnx("NhwcMaxPool", domain=MS)
def nhwc_max_pool(
    node: Any,
    x: Any,
    *,
    kernel_shape: Ints,
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> Any:
    y = window.max_pool(
        node,
        channels_first(x),
        auto_pad=auto_pad,
        ceil_mode=ceil_mode,
        dilations=dilations,
        kernel_shape=kernel_shape,
        pads=pads,
        strides=strides,
    )
    return channels_last(node.emit(y))


@onnx("ConvTransposeWithDynamicPads", domain=MS)
def conv_transpose(
    node: Any,
    x: Any,
    weight: Any,
    pads: Any = None,
    bias: Any = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    output_padding: Ints = None,
    strides: Ints = None,
) -> Any:
    return window.conv_transpose(
        node,
        x,
        weight,
        bias,
        auto_pad=auto_pad,
        dilations=dilations,
        group=group,
        kernel_shape=kernel_shape,
        output_padding=output_padding,
        output_shape=None,
        pads=None if pads is None else node.ints(pads, "Pads"),
        strides=strides,
    )


@onnx("GridSample", domain=MS)
def grid_sample(
    node: Any,
    x: Any,
    grid: Any,
    *,
    align_corners: int = 0,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
) -> Any:
    return window.grid_sample(
        node, x, grid, align_corners=align_corners, mode=mode, padding_mode=padding_mode
    )


@onnx("CropAndResize", domain=MS)
def crop_and_resize(
    node: Any,
    x: Any,
    boxes: Any,
    numbers: Any,
    size: Any,
    *,
    extrapolation_value: float = 0.0,
    mode: str = "bilinear",
) -> Any:
    """Boxes [n, (y1, x1, y2, x2)] of pictures [batch, channels, h, w], corners on corners, in one
    size; coordinates are shares of a picture, and what lies outside has the extrapolation's value.
    """
    if mode not in ("bilinear", "nearest"):
        raise node.error(f"mode: wanted bilinear or nearest, got {mode!r}")
    dtype, count = dtype_of(x), dims_of(boxes)[0]
    extents = dims_of(x)[2:]
    targets = node.ints(size, "crop_size")
    batch = op.reshape(op.astype(numbers, "int64"), shape_expr([count, 1, 1]))
    ends = [op.squeeze(b, 1) for b in parts(node, boxes, (1, 1, 1, 1))]
    rows = op.permute_dims(x, (0, 2, 3, 1))
    rows = node.emit(rows)
    along, inside = [], None
    for k, (extent, target) in enumerate(zip(extents, targets)):
        last = op.reshape(op.shape_to_tensor(shape_expr([simplified(extent - 1)])), ())
        last = node.emit(last)
        first, end = (
            node.emit(op.expand_dims(op.multiply(e, op.astype(last, dtype)), 1)) for e in ends[k::2]
        )
        if target > 1:
            step = op.divide(op.subtract(end, first), const(float(target - 1), dtype))
            place = op.add(first, op.multiply(op.astype(places(node, target), dtype), step))
        else:
            place = op.multiply(op.add(first, end), const(0.5, dtype))
        place = node.emit(op.expand_dims(place, 2 - k))
        seen = op.logical_and(
            op.greater_equal(place, const(0.0, dtype)), op.less_equal(place, op.astype(last, dtype))
        )
        inside = seen if inside is None else op.logical_and(inside, seen)
        along.append((place, last))

    def taken(*rounding: Any) -> Any:
        index = [batch]
        for f, (place, last) in zip(rounding, along):
            whole = op.astype(f(place), "int64")
            index.append(op.minimum(op.maximum(whole, const(0, "int64")), last))
        shape = shape_expr([count, *targets])
        return op.gather_nd(rows, op.stack(Tuple([op.broadcast_to(i, shape) for i in index]), 3))

    def nearest(place: Any) -> Any:
        return op.floor(op.add(place, const(0.5, dtype)))

    def between(a: Any, b: Any, axis: int) -> Any:
        place, _ = along[axis]
        share = op.expand_dims(op.subtract(place, op.floor(place)), 3)
        return op.add(a, op.multiply(op.subtract(b, a), share))

    if mode == "nearest":
        y = taken(nearest, nearest)
    else:
        above, below = (
            between(node.emit(taken(f, op.floor)), taken(f, op.ceil), 1)
            for f in (op.floor, op.ceil)
        )
        y = between(node.emit(above), below, 0)
    y = op.where(op.expand_dims(inside, 3), y, const(extrapolation_value, dtype))
    return op.permute_dims(y, (0, 3, 1, 2))


# -- normalisations --------------------------------------------------------------------------------


@onnx("SimplifiedLayerNormalization", ignores="stash_type")
def simplified_layer_norm(
    node: Any, x: Any, scale: Any, *, axis: int = -1, epsilon: float = 1e-5
) -> Any:
    """onnxruntime's own, in the standard domain: x / sqrt(mean of x**2 + epsilon) * scale."""
    return _rms_norm(node, x, scale, axis, epsilon, 1)


def _rms_norm(node: Any, x: Any, scale: Any, axis: int, epsilon: float, stat: int) -> Any:
    """The norm, and at the output `stat` what `x` is multiplied by."""
    x = node.emit(x)
    y = normalise.rms_norm(node, x, scale, axis=axis, epsilon=epsilon)
    if not node.wants(stat):
        return y, None
    rank = len(dims_of(x))
    squares = op.mean(op.square(op.astype(x, "float32")), tuple(range(axis % rank, rank)), True)
    return y, op.rsqrt(op.add(squares, const(epsilon, "float32")))


def _sum(x: Any, skip: Any, bias: Any) -> Any:
    y = op.add(x, skip)
    return y if bias is None else op.add(y, bias)


@onnx("SkipLayerNormalization", domain=MS)
def skip_layer_norm(
    node: Any,
    x: Any,
    skip: Any,
    gamma: Any,
    beta: Any = None,
    bias: Any = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    total = node.emit(_sum(x, skip, bias))
    whole = normalise.layer_norm(node, total, gamma, beta, axis=-1, epsilon=epsilon)
    y, mean, spread = whole if isinstance(whole, tuple) else (whole, None, None)
    return y, mean, spread, total


@onnx("SkipSimplifiedLayerNormalization", domain=MS)
def skip_simplified_layer_norm(
    node: Any, x: Any, skip: Any, gamma: Any, bias: Any = None, *, epsilon: float = 1e-12
) -> Any:
    total = node.emit(_sum(x, skip, bias))
    y, spread = _rms_norm(node, total, gamma, -1, epsilon, 2)
    return y, None, spread, total


@onnx("EmbedLayerNormalization", domain=MS, ignores="mask_index_type")
def embed_layer_norm(
    node: Any,
    words: Any,
    segments: Any = None,
    word_table: Any = None,
    position_table: Any = None,
    segment_table: Any = None,
    gamma: Any = None,
    beta: Any = None,
    mask: Any = None,
    positions: Any = None,
    *,
    epsilon: float = 1e-12,
) -> Any:
    """Rows of tables for words, positions and segments, added up and normalised; and how many words
    of each row the mask shows.
    """
    if any(x is None for x in (word_table, position_table, gamma, beta)):
        raise node.error("its tables of words and positions, gamma and beta must be there")
    batch, length = dims_of(words)
    positions = places(node, length) if positions is None else positions
    total = op.add(op.take(word_table, words, 0), op.take(position_table, positions, 0))
    if segments is not None:
        total = op.add(total, op.take(segment_table, segments, 0))
    total = node.emit(total)
    y = op.nn.layer_norm(total, gamma, beta, -1, epsilon)
    if not node.wants(1):
        return y, None, total
    if mask is None:
        return y, op.zeros(shape_expr([batch]), "int32"), total
    return y, op.sum(op.astype(op.equal(mask, const(1, "int32")), "int32"), 1), total


@onnx("GroupNorm", domain=MS)
def group_norm(
    node: Any,
    x: Any,
    gamma: Any,
    beta: Any,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Any:
    rank = len(dims_of(x))
    channel = rank - 1 if channels_last else 1
    axes = tuple(i for i in range(1, rank) if i != channel)
    gamma, beta = (op.astype(p, dtype_of(x)) for p in (gamma, beta))
    y = op.nn.group_norm(x, gamma, beta, groups, channel, axes, epsilon)
    return op.nn.silu(y) if activation else y


@onnx("SkipGroupNorm", domain=MS)
def skip_group_norm(
    node: Any,
    x: Any,
    gamma: Any,
    beta: Any,
    skip: Any,
    bias: Any = None,
    *,
    activation: int,
    groups: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
) -> Any:
    rank = len(dims_of(x))
    over = tuple(range(1, rank - 1)) if channels_last else tuple(range(2, rank))
    if len(dims_of(skip)) == 2:
        skip = op.expand_dims(skip, over)
    if bias is not None and not channels_last:
        bias = op.expand_dims(bias, tuple(range(1, rank - 1)))
    total = node.emit(_sum(x, skip, bias))
    y = group_norm(
        node,
        total,
        gamma,
        beta,
        activation=activation,
        groups=groups,
        channels_last=channels_last,
        epsilon=epsilon,
    )
    return y, total


# -- moved and made --------------------------------------------------------------------------------


@onnx("ExpandDims", domain=MS)
def expand_dims(node: Any, x: Any, axis: Any) -> Any:
    return op.expand_dims(x, int(node.number(axis, "axis")))


@onnx("GatherND", domain=MS)
def gather_nd(node: Any, x: Any, indices: Any) -> Any:
    return op.gather_nd(x, indices)


@onnx("TorchEmbedding", domain=MS)
def torch_embedding(
    node: Any, weight: Any, indices: Any, padding: Any = None, by_frequency: Any = None
) -> Any:
    """The last two inputs are of its gradient."""
    return op.take(weight, indices, 0)


@onnx("Pad", domain=MS)
def pad(node: Any, x: Any, pads: Any, value: Any = None, *, mode: str = "constant") -> Any:
    return movement.pad(node, x, pads, value, mode=mode)


@onnx("Trilu", domain=MS)
def trilu(node: Any, x: Any, k: Any = None, *, upper: int = 1) -> Any:
    return movement.trilu(node, x, k, upper=upper)


@onnx("Unique", domain=MS)
def unique(node: Any, x: Any) -> Any:
    """Elements in the order in which they come first, where each stands there, and how often."""
    values, _, inverse, counts = node.emit(op.unique(x, False, True, True, True))
    return values, inverse, counts


@onnx("Range", domain=MS)
def arange(node: Any, start: Any, limit: Any, delta: Any = None) -> Any:
    step = const(1, dtype_of(start)) if delta is None else delta
    return create.arange(node, *(node.emit(op.reshape(x, ())) for x in (start, limit, step)))


@onnx("UnfoldTensor", domain=MS)
def unfold(node: Any, x: Any, *, size: int, dim: int = -1, step: int = 1) -> Any:
    """Slices of `size` elements along an axis, each `step` after the one before; their elements are
    the last axis.
    """
    rank = len(dims_of(x))
    dim %= rank
    count = simplified((dims_of(x)[dim] - size) // step + 1)
    first = op.expand_dims(op.multiply(places(node, count), const(step, "int64")), 1)
    y = op.take(x, op.add(first, places(node, size)), dim)
    return op.permute_dims(y, (*range(dim + 1), *range(dim + 2, rank + 1), dim + 1))


@onnx("SampleOp", domain=MS)
def sample(node: Any, x: Any) -> Any:
    return x


@onnx("IsAllFinite", domain=MS)
def is_all_finite(node: Any, *inputs: Any, isinf_only: int = 0, isnan_only: int = 0) -> Any:
    def bad(x: Any) -> Any:
        if isinf_only:
            return op.isinf(x)
        return op.isnan(x) if isnan_only else op.logical_not(op.isfinite(x))

    counts = [op.max(op.astype(bad(x), "int32")) for x in inputs]
    return op.equal(functools.reduce(op.maximum, counts), const(0, "int32"))


@onnx("ComplexMul ComplexMulConj", domain=MS)
def complex_mul(node: Any, a: Any, b: Any) -> Any:
    """Real and imaginary parts are the last axis."""
    x, y = (node.emit(op.squeeze(p, -1)) for p in parts(node, a, (1, 1)))
    u, v = (node.emit(op.squeeze(p, -1)) for p in parts(node, b, (1, 1)))
    if node.proto.op_type == "ComplexMulConj":
        v = node.emit(op.negative(v))
    real = op.subtract(op.multiply(x, u), op.multiply(y, v))
    imaginary = op.add(op.multiply(x, v), op.multiply(y, u))
    return op.stack(Tuple((real, imaginary)), -1)


@onnx("CDist", domain=MS)
def cdist(node: Any, a: Any, b: Any, *, metric: str = "sqeuclidean") -> Any:
    """Distances of rows, by the products of rows: as exact as onnxruntime's."""
    if metric not in ("sqeuclidean", "euclidean"):
        raise node.error(f"metric: wanted euclidean or sqeuclidean, got {metric!r}")
    rows = op.sum(op.square(a), 1, True)
    columns = op.expand_dims(op.sum(op.square(b), 1), 0)
    twice = op.multiply(op.matmul(a, op.permute_dims(b)), const(2.0, dtype_of(a)))
    squares = op.subtract(op.add(rows, columns), twice)
    squares = op.maximum(squares, const(0.0, dtype_of(a)))
    return op.sqrt(squares) if metric == "euclidean" else squares


@onnx("NGramRepeatBlock", domain=MS)
def ngram_repeat_block(node: Any, tokens: Any, scores: Any, *, ngram_size: int) -> Any:
    """Scores of what would end a run of tokens that was there before become minus infinity."""
    length = dims_of(tokens)[1]
    count = simplified(length - (ngram_size - 1))
    first = node.emit(op.arange(PrimValue(count), dtype="int64"))
    (count,) = dims_of(first)
    same = op.full(shape_expr([dims_of(tokens)[0], count]), const(True), "bool")
    for k in range(ngram_size - 1):
        # With fewer tokens than a run there is nothing to compare with, whatever this is.
        last = op.add(places(node, 1), PrimValue(simplified(count + k)))
        runs = (op.take(tokens, i, 1, "clip") for i in (op.add(first, const(k, "int64")), last))
        same = op.logical_and(same, op.equal(*runs))
    least, most = (const(v, dtype_of(scores)) for v in (float("-inf"), float("inf")))
    ends = op.take(tokens, op.add(first, const(ngram_size - 1, "int64")), 1)
    return op.scatter_elements(scores, ends, op.where(same, least, most), 1, "min")


@onnx("MurmurHash3", domain=MS)
def murmur_hash(node: Any, x: Any, *, positive: int = 1, seed: int = 0) -> Any:
    """MurmurHash3_x86_32 of each element's bytes."""
    if dtype_of(x).is_float:
        x = op.reinterpret(x, f"int{dtype_of(x).bits}")
    dtype = dtype_of(x)
    if not dtype.is_int or dtype.bits < 32:
        raise node.error(f"wanted numbers of 32 or 64 bits, got {dtype}")

    def number(value: int) -> Any:
        return const(np.uint32(value))

    def rolled(v: Any, by: int) -> Any:
        v = node.emit(v)
        return op.bitwise_or(op.left_shift(v, number(by)), op.right_shift(v, number(32 - by)))

    words = [x]
    if dtype.bits == 64:
        words = [x, op.right_shift(x, const(32, dtype))]
    h = number(seed & 0xFFFFFFFF)
    for word in words:
        k = op.multiply(op.astype(word, "uint32"), number(0xCC9E2D51))
        k = op.multiply(rolled(k, 15), number(0x1B873593))
        h = op.add(op.multiply(rolled(op.bitwise_xor(h, k), 13), number(5)), number(0xE6546B64))
    h = op.bitwise_xor(h, number(4 * len(words)))
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35), (16, None)):
        h = node.emit(h)
        h = op.bitwise_xor(h, op.right_shift(h, number(shift)))
        h = h if factor is None else op.multiply(h, number(factor))
    return h if positive else op.astype(h, "int32")


# -- mixtures of experts ---------------------------------------------------------------------------


@onnx("MoE", domain=MS)
def mixture(
    node: Any,
    x: Any,
    router: Any,
    weight_1: Any,
    bias_1: Any = None,
    weight_2: Any = None,
    bias_2: Any = None,
    weight_3: Any = None,
    bias_3: Any = None,
    *,
    k: int = 1,
    activation_type: str = "relu",
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    normalize_routing_weights: int = 0,
    use_sparse_mixer: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float = float("inf"),
    swiglu_limit_after_activation: int = 0,
) -> Any:
    """Each token's `k` best experts, weighted by the softmax of the router's scores.

    x         [tokens, width] or [batch, s, width]    router   [tokens, experts]
    weight_1  [experts, inner, width], twice as wide if fused    weight_2  [experts, width, inner]
    All experts are computed for all tokens.
    """
    if use_sparse_mixer or swiglu_limit_after_activation:
        raise node.error("use_sparse_mixer and swiglu_limit_after_activation are not imported")
    if weight_2 is None:
        raise node.error("its input fc2_experts_weights is missing")
    width = dims_of(x)[-1]
    tokens, experts = dims_of(router)
    rows = node.emit(op.expand_dims(op.reshape(x, shape_expr([tokens, width])), 0))

    def layer(data: Any, weight: Any, bias: Any) -> Any:
        y = op.matmul(data, op.permute_dims(weight, (0, 2, 1)))
        return y if bias is None else op.add(y, op.expand_dims(bias, 1))

    inner = node.emit(layer(rows, weight_1, bias_1))
    if activation_type == "swiglu":
        if swiglu_fusion == 0:
            if weight_3 is None:
                raise node.error("swiglu: its input fc3_experts_weights is missing")
            gate, up = inner, layer(rows, weight_3, bias_3)
        elif swiglu_fusion == 1:
            wide = dims_of(inner)[2]
            pairs = op.reshape(inner, shape_expr([experts, tokens, simplified(wide // 2), 2]))
            gate, up = (op.squeeze(p, -1) for p in parts(node, pairs, (1, 1)))
        else:
            gate, up = _halves(node, inner)
        inner = gated(node, gate, up, activation_alpha, activation_beta, swiglu_limit)
    else:
        act = {
            "relu": op.nn.relu,
            "gelu": op.nn.gelu_tanh,
            "silu": op.nn.silu,
            "identity": lambda v: v,
        }.get(activation_type)
        if act is None:
            raise node.error(f"activation_type {activation_type!r} is not imported")
        inner = act(inner)
        if weight_3 is not None:
            inner = op.multiply(inner, layer(rows, weight_3, bias_3))
    outer = layer(inner, weight_2, bias_2)
    scores = op.nn.softmax(router, -1)
    best, which = node.emit(op.topk(scores, k, -1, "both", True, "int64"))
    if normalize_routing_weights:
        best = node.emit(best)
        best = op.divide(best, op.sum(best, -1, True))
    none = op.zeros(shape_expr([tokens, experts]), dtype_of(x))
    share = op.scatter_elements(none, which, best, 1)
    share = op.expand_dims(op.permute_dims(share), 2)
    return op.reshape(op.sum(op.multiply(outer, share), 0), shape_expr(dims_of(x)))
