"""Normalisations."""

from __future__ import annotations

from typing import Any

from ....expr import const
from ..registry import onnx, op
from ..values import dims_of, dtype_of, has_dims, product, shape_expr


@onnx("BatchNormalization", ignores="spatial is_test")
def batch_norm(
    node: Any,
    x: Any,
    scale: Any,
    bias: Any,
    mean: Any,
    variance: Any,
    *,
    epsilon: float,
    momentum: float,
    training_mode: Any = 0,
) -> Any:
    dtype, stats = dtype_of(x), dtype_of(mean)
    scale, bias, means, variances = (
        v if dtype_of(v) is dtype else op.astype(v, dtype) for v in (scale, bias, mean, variance)
    )
    share = 1.0 - momentum
    whole = op.nn.batch_norm(
        x, scale, bias, means, variances, 1, epsilon, momentum=share, training=bool(training_mode)
    )
    y, new_mean, new_variance = node.emit(whole)
    if dtype is not stats:
        new_mean, new_variance = op.astype(new_mean, stats), op.astype(new_variance, stats)
    return y, new_mean, new_variance


@onnx("InstanceNormalization")
def instance_norm(node: Any, x: Any, scale: Any, bias: Any, *, epsilon: float) -> Any:
    axes = tuple(range(2, len(dims_of(x))))
    return op.nn.instance_norm(x, scale, bias, 1, axes, epsilon)


@onnx("GroupNormalization", since=21, ignores="stash_type")
def group_norm(node: Any, x: Any, scale: Any, bias: Any, *, epsilon: float, num_groups: int) -> Any:
    axes = tuple(range(2, len(dims_of(x))))
    return op.nn.group_norm(x, scale, bias, num_groups, 1, axes, epsilon)


@onnx("LayerNormalization", since=17, ignores="stash_type")
def layer_norm(
    node: Any, x: Any, scale: Any, bias: Any = None, *, axis: int, epsilon: float
) -> Any:
    axes = tuple(range(axis % len(dims_of(x)), len(dims_of(x))))
    shape = shape_expr(dims_of(x)[axes[0] :])
    dtype = dtype_of(x)
    if not has_dims(scale, shape.values):
        scale = op.broadcast_to(scale, shape)
    if bias is None:
        bias = op.zeros(shape, dtype)
    elif not has_dims(bias, shape.values):
        bias = op.broadcast_to(bias, shape)
    y = op.nn.layer_norm(x, scale, bias, axes, epsilon)
    if not (node.wants(1) or node.wants(2)):
        return y
    wide = node.emit(x if dtype == "float64" else op.astype(x, "float32"))
    mean = node.emit(op.mean(wide, axes, True))
    spread = op.add(op.variance(wide, axes, True), const(epsilon, dtype_of(wide)))
    return y, mean, op.rsqrt(spread)


@onnx("RMSNormalization", since=23, ignores="stash_type")
def rms_norm(node: Any, x: Any, scale: Any, *, axis: int, epsilon: float) -> Any:
    axes = tuple(range(axis % len(dims_of(x)), len(dims_of(x))))
    shape = shape_expr(dims_of(x)[axes[0] :])
    if not has_dims(scale, shape.values):
        scale = op.broadcast_to(scale, shape)
    return op.nn.rms_norm(x, scale, axes, epsilon)


@onnx("LpNormalization", since=1)
def lp_normalization(node: Any, x: Any, *, axis: int, p: int) -> Any:
    if p == 1:
        norm = op.sum(op.abs(x), axis, True)
    else:
        norm = op.sqrt(op.sum(op.square(x), axis, True))
    zero = const(0.0, dtype_of(x))
    norm = node.emit(norm)
    # What is all zeros stays so.
    return op.where(op.equal(norm, zero), zero, op.divide(x, norm))


@onnx("LRN", since=1)
def local_response(node: Any, x: Any, *, alpha: float, beta: float, bias: float, size: int) -> Any:
    dims, dtype = dims_of(x), dtype_of(x)
    # One picture whose rows are channels: the mean over a window of rows, padding included.
    rows = op.reshape(op.square(x), shape_expr([dims[0], 1, dims[1], product(dims[2:])]))
    before = (size - 1) // 2
    padding = (before, 0, size - 1 - before, 0)
    mean = op.nn.avg_pool2d(rows, (size, 1), padding=padding, count_include_pad=True)
    scaled = op.multiply(op.reshape(mean, shape_expr(dims)), const(alpha, dtype))
    base = op.add(scaled, const(bias, dtype))
    return op.divide(x, op.power(base, const(beta, dtype)))


@onnx("Dropout", since=12)
def dropout(node: Any, x: Any, ratio: Any = None, training: Any = None, *, seed: Any) -> Any:
    dims = shape_expr(dims_of(x))
    rate = 0.0
    if training is not None and node.number(training, "training_mode"):
        rate = float(node.number(ratio, "ratio", 0.5))
    if rate == 0:
        return x, op.ones(dims, "bool")
    # With a seed the numbers are those of onnx's reference.
    if seed is None:
        drawn = op.random.uniform(dims, node.seed(None))
    else:
        drawn = op.random.mt19937(dims, node.anew(seed))
    stays = node.emit(op.greater_equal(drawn, const(rate, dtype_of(drawn))))
    zero, share = const(0.0, dtype_of(x)), const(1 - rate, dtype_of(x))
    return op.where(stays, op.divide(x, share), zero), stays


@onnx("Dropout", since=1, ignores="ratio is_test")
def dropout_1(node: Any, x: Any) -> Any:
    return x, op.ones(shape_expr(dims_of(x)), "bool" if node.opset >= 10 else dtype_of(x))
