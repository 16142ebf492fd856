"""Normalisations: layer_norm, rms_norm, group_norm, instance_norm, batch_norm.

Mean and variance come from two passes; for 16-bit floats all is computed in float32 and rounded
once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .... import tir
from ....base import StructInfoError
from ....ir import FloorDiv, PrimExpr, cast, const
from ....te import Tensor, compute, reduce_axis
from ....te import sum as te_sum
from ...expr import Call, Tuple, TupleGetItem
from ...rules import LowerBuilder, Ops
from ...struct_info import Expr, ShapeExpr, StructInfo, TupleStructInfo
from ..infer import (
    FLOAT,
    axes_of,
    axis_of,
    dims_product,
    known_sizes,
    same_dtype,
    tensor,
)
from ..lower import te_lower
from ..meaning import in_wider
from ..names import ops as all_ops
from ..record import op
from ..sizes import KnownTensor, is_known, want_equal, want_multiple
from .window import simple

# -- tensor expressions ---------------------------------------------------------------------------


class _Stats:
    """Sums of `x` over `axes` and, in groups, over the axis `channel`.

    groups  into how many groups the channels are summed; None: they are not summed
    """

    def __init__(
        self, x: Tensor, axes: Sequence[int], channel: int = -1, groups: Any = None
    ) -> None:
        self.x, self.axes, self.channel = x, set(axes), channel
        self.groups = groups
        self.wide = "float32" if x.dtype.bits == 16 else x.dtype
        self.each = None if groups is None else simple(x.shape[channel] // groups)
        shape = [
            groups if k == channel and groups is not None else d for k, d in enumerate(x.shape)
        ]
        self.shape = tuple(d for k, d in enumerate(shape) if k not in self.axes)
        sizes = [x.shape[k] for k in sorted(self.axes)]
        self.count = cast(
            self.wide, dims_product(sizes if self.each is None else [*sizes, self.each])
        )

    def of(self, index: Sequence[PrimExpr]) -> list[PrimExpr]:
        """Where the statistics stand that belong to the element of `x` at `index`."""
        place = list(index)
        if self.each is not None:
            i = place[self.channel]
            place[self.channel] = FloorDiv(i, cast(i.dtype, self.each))
        return [i for k, i in enumerate(place) if k not in self.axes]

    def mean(self, value: Callable[[tuple[PrimExpr, ...]], PrimExpr], name: str) -> Tensor:
        """The mean of ``value(index into x)``."""
        over = {k: reduce_axis((0, self.x.shape[k]), f"k{k}") for k in sorted(self.axes)}
        part = None if self.each is None else reduce_axis((0, self.each), "kc")

        def total(*index: PrimExpr) -> PrimExpr:
            rest = iter(index)
            place = [over[k].var if k in over else next(rest) for k in range(self.x.ndim)]
            if part is not None and self.each is not None:
                c = place[self.channel]
                place[self.channel] = c * cast(c.dtype, self.each) + part.var
            axes = [*over.values(), *([] if part is None else [part])]
            if not axes:
                return value(tuple(place))
            return te_sum(value(tuple(place)), axis=axes)

        sums = compute(self.shape, total, f"{name}_sum")
        return compute(self.shape, lambda *i: sums(*i) / self.count, name)

    def read(self, index: Sequence[PrimExpr]) -> PrimExpr:
        """The element of `x`, in the dtype of the statistics."""
        return cast(self.wide, self.x(*index))

    def mean_and_variance(self) -> tuple[Tensor, Tensor]:
        """The mean, and the mean of the squared distances from it."""
        mean = self.mean(self.read, "mean")

        def square(i: Sequence[PrimExpr]) -> PrimExpr:
            away = self.read(i) - mean(*self.of(i))
            return away * away

        return mean, self.mean(square, "variance")


def _affine(
    stats: _Stats, value: Callable[[Any], PrimExpr], places: Callable[[Any], list[PrimExpr]],
    gamma: Tensor | None, beta: Tensor | None,
) -> Tensor:  # fmt: skip
    """value(i) * gamma[at(i)] + beta[at(i)], in the dtype of x."""

    def element(*i: PrimExpr) -> PrimExpr:
        result = value(i)
        if gamma is not None:
            result = result * cast(stats.wide, gamma(*places(i)))
        if beta is not None:
            result = result + cast(stats.wide, beta(*places(i)))
        return cast(stats.x.dtype, result)

    return compute(stats.x.shape, element, "normalised")


def _te_normalise(
    stats: _Stats, places: Callable[[Any], list[PrimExpr]], gamma: Tensor | None,
    beta: Tensor | None, epsilon: float,
) -> Tensor:  # fmt: skip
    mean, variance = stats.mean_and_variance()
    small = const(epsilon, stats.wide)
    factor = compute(stats.shape, lambda *i: tir.rsqrt(variance(*i) + small), "factor")

    def value(i: Any) -> PrimExpr:
        return (stats.read(i) - mean(*stats.of(i))) * factor(*stats.of(i))

    return _affine(stats, value, places, gamma, beta)


# -- numpy ----------------------------------------------------------------------------------------


def _spread(x: np.ndarray, axes: Sequence[int], ndim: int) -> np.ndarray:
    """`x`, whose axes are `axes` of something, with axes of size 1 for the others."""
    order = np.argsort(axes)
    sizes = iter(x.shape[k] for k in order)
    return x.transpose(order).reshape([next(sizes) if k in axes else 1 for k in range(ndim)])


def _mean(x: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
    count = np.asarray(np.prod([x.shape[k] for k in axes], dtype="int64")).astype(x.dtype)
    return np.sum(x, axis=axes, keepdims=True) / count


def _numpy_normalise(x: np.ndarray, axes: tuple[int, ...], epsilon: float) -> np.ndarray:
    away = x - _mean(x, axes)
    return away / np.sqrt(_mean(away * away, axes) + epsilon)


# -- expressions, for gradients and decompositions ------------------------------------------------


def _with_axes(ops: Ops, x: Any, axes: Sequence[int], dims: Sequence[Any]) -> Any:
    """The vector (or more) `x` over `axes` of a tensor of `dims`, ready to broadcast with it."""
    order = [int(k) for k in np.argsort(axes)]
    if order != sorted(order):
        x = ops.permute_dims(x, axes=order)
    return ops.reshape(x, ShapeExpr([d if k in axes else 1 for k, d in enumerate(dims)]))


def _sum_to(ops: Ops, x: Any, axes: Sequence[int]) -> Any:
    """`x` summed over all axes but `axes`, which come in that order."""
    ndim = x.struct_info.ndim
    others = [k for k in range(ndim) if k not in axes]
    total = ops.sum(x, axis=others) if others else x
    order = [sorted(axes).index(a) for a in axes]
    return total if order == sorted(order) else ops.permute_dims(total, axes=order)


def _normal_grad(ops: Ops, x: Any, g: Any, axes: Sequence[int], epsilon: float) -> tuple[Any, Any]:
    """The gradient through (x - mean) / sqrt(variance + epsilon), and its value."""
    axes = list(axes)
    away = x - ops.mean(x, axis=axes, keepdims=True)
    factor = ops.rsqrt(ops.mean(away * away, axis=axes, keepdims=True) + epsilon)
    y = away * factor
    along = y * ops.mean(g * y, axis=axes, keepdims=True)
    return (g - ops.mean(g, axis=axes, keepdims=True) - along) * factor, y


# -- layer_norm, rms_norm -------------------------------------------------------------------------


def _want_over(x: KnownTensor, w: KnownTensor, name: str, axes: Any) -> None:
    """`w` has the dimensions that `x` has along `axes`."""
    same_dtype((x, w), ("data", name))
    own = axes_of(axes, x.ndim, "axes")
    if w.ndim != len(own):
        raise StructInfoError(
            f"{name}: wanted {len(own)} dimensions, one for each of axes {list(own)}, got {w.ndim}"
        )
    for a, have in zip(own, w.dims):
        text = "{name}: wanted size {b}, as axis {axis} of data; got {a}"
        want_equal(have, x.dims[a], text, name=name, axis=a)


def _layer_norm_te(
    data: Tensor, gamma: Tensor, beta: Tensor, axes: Any, epsilon: float, center: bool, scale: bool
) -> Tensor:
    over = axes_of(axes, data.ndim, "axes")
    stats = _Stats(data, over)
    return _te_normalise(
        stats,
        lambda i: [i[a] for a in over],
        gamma if scale else None,
        beta if center else None,
        epsilon,
    )


def _layer_norm_numpy(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, axes: Any, epsilon: float,
    center: bool, scale: bool,
) -> np.ndarray:  # fmt: skip
    over = axes_of(axes, data.ndim, "axes")
    result = _numpy_normalise(data, over, epsilon)
    result = result * _spread(gamma, over, data.ndim) if scale else result
    return result + _spread(beta, over, data.ndim) if center else result


def _layer_norm_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x, gamma, beta = call.args
    dims = known_sizes(x, "data")
    over = axes_of(call.attrs["axes"], len(dims), "axes")
    g = gy * _with_axes(ops, gamma, over, dims) if call.attrs["scale"] else gy
    gx, normal = _normal_grad(ops, x, g, over, call.attrs["epsilon"])
    ggamma = _sum_to(ops, gy * normal, over) if call.attrs["scale"] else ops.zeros_like(gamma)
    gbeta = _sum_to(ops, gy, over) if call.attrs["center"] else ops.zeros_like(beta)
    return gx, ggamma, gbeta


def _layer_norm_parts(builder: LowerBuilder, call: Call, training: bool) -> Expr | None:
    """In simpler operators, for training: there they have gradients that share their parts."""
    x, gamma, beta = call.args
    info = x.struct_info
    if not training or not is_known(info):
        return None
    dims = known_sizes(x, "data")
    over = list(axes_of(call.attrs["axes"], len(dims), "axes"))
    ops = all_ops
    mean = builder.emit(ops.mean(x, axis=over, keepdims=True))
    away = builder.emit(ops.subtract(x, mean))
    variance = builder.emit(ops.mean(ops.multiply(away, away), axis=over, keepdims=True))
    result = ops.multiply(away, ops.rsqrt(ops.add(variance, call.attrs["epsilon"])))
    if call.attrs["scale"]:
        result = ops.multiply(builder.emit(result), _with_axes(ops, gamma, over, dims))
    if call.attrs["center"]:
        result = ops.add(builder.emit(result), _with_axes(ops, beta, over, dims))
    return result


@op(
    "nn.layer_norm",
    numpy=in_wider(_layer_norm_numpy),
    lower=te_lower(_layer_norm_te),
    grad=_layer_norm_grad,
    decompose=_layer_norm_parts,
)
def layer_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    axes: Any = -1,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> StructInfo:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta, mean and variance over `axes`.

    gamma, beta    of the sizes of `axes`
    center, scale  whether beta is added; whether gamma is multiplied
    Raises StructInfoError if shapes or dtypes do not fit, or `data` is not float.
    """
    x = tensor(data, "data", FLOAT)
    _want_over(x, tensor(gamma, "gamma", FLOAT), "gamma", axes)
    _want_over(x, tensor(beta, "beta", FLOAT), "beta", axes)
    return x


def _rms_norm_te(data: Tensor, weight: Tensor, axes: Any, epsilon: float) -> Tensor:
    over = axes_of(axes, data.ndim, "axes")
    stats = _Stats(data, over)
    square = stats.mean(lambda i: stats.read(i) * stats.read(i), "square")
    small = const(epsilon, stats.wide)
    factor = compute(stats.shape, lambda *i: tir.rsqrt(square(*i) + small), "factor")
    return _affine(
        stats,
        lambda i: stats.read(i) * factor(*stats.of(i)),
        lambda i: [i[a] for a in over],
        weight,
        None,
    )


def _rms_norm_numpy(data: np.ndarray, weight: np.ndarray, *, axes: Any, epsilon: float) -> Any:
    over = axes_of(axes, data.ndim, "axes")
    return data / np.sqrt(_mean(data * data, over) + epsilon) * _spread(weight, over, data.ndim)


def _rms_norm_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x: Any = call.args[0]
    weight = call.args[1]
    dims = known_sizes(x, "data")
    over = list(axes_of(call.attrs["axes"], len(dims), "axes"))
    factor = ops.rsqrt(ops.mean(x * x, axis=over, keepdims=True) + call.attrs["epsilon"])
    normal = x * factor
    g = gy * _with_axes(ops, weight, over, dims)
    gx = (g - normal * ops.mean(g * normal, axis=over, keepdims=True)) * factor
    return gx, _sum_to(ops, gy * normal, over)


@op("nn.rms_norm", in_wider(_rms_norm_numpy), te_lower(_rms_norm_te), _rms_norm_grad)
def rms_norm(data: Expr, weight: Expr, axes: Any = -1, epsilon: float = 1e-5) -> StructInfo:
    """data / sqrt(mean of data**2 over `axes` + epsilon) * weight.

    weight  of the sizes of `axes`
    Raises StructInfoError if shapes or dtypes do not fit, or `data` is not float.
    """
    x = tensor(data, "data", FLOAT)
    _want_over(x, tensor(weight, "weight", FLOAT), "weight", axes)
    return x


# -- group_norm, instance_norm --------------------------------------------------------------------


def _want_channels(
    data: Expr, others: dict[str, Expr], channel_axis: int, axes: Any
) -> tuple[KnownTensor, PrimExpr]:
    """The struct info of data, and the size of its channel axis, which `others` must have."""
    x = tensor(data, "data", FLOAT)
    if axes is None:
        raise StructInfoError("axes: wanted an int or several, got None")
    along = axis_of(channel_axis, x.ndim, "channel_axis")
    if along in axes_of(axes, x.ndim, "axes"):
        raise StructInfoError(f"axes: the channel axis {along} is among them: {axes}")
    for name, e in others.items():
        w = tensor(e, name, FLOAT, 1)
        same_dtype((x, w), ("data", name))
        text = "{name}: wanted size {b}, as the channels; got {a}"
        want_equal(w.dims[0], x.dims[along], text, name=name)
    return x, x.dims[along]


def _grouped_te(
    data: Tensor, gamma: Tensor, beta: Tensor, channel_axis: int, axes: Any, epsilon: float,
    center: bool, scale: bool, num_groups: int | None = None,
) -> Tensor:  # fmt: skip
    c = axis_of(channel_axis, data.ndim)
    groups = None if num_groups is None else const(num_groups, data.shape[c].dtype)
    stats = _Stats(data, axes_of(axes, data.ndim, "axes"), c, groups)
    return _te_normalise(
        stats, lambda i: [i[c]], gamma if scale else None, beta if center else None, epsilon
    )


def _grouped_numpy(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, *, channel_axis: int, axes: Any,
    epsilon: float, center: bool, scale: bool, num_groups: int | None = None,
) -> np.ndarray:  # fmt: skip
    c = axis_of(channel_axis, data.ndim)
    others = axes_of(axes, data.ndim, "axes")
    if num_groups is None:
        result = _numpy_normalise(data, others, epsilon)
    else:
        split = (*data.shape[:c], num_groups, data.shape[c] // num_groups, *data.shape[c + 1 :])
        over = (c + 1, *(a + (a > c) for a in others))
        result = _numpy_normalise(data.reshape(split), over, epsilon).reshape(data.shape)
    result = result * _spread(gamma, (c,), data.ndim) if scale else result
    return result + _spread(beta, (c,), data.ndim) if center else result


def _grouped_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x, gamma, beta = call.args
    dims = known_sizes(x, "data")
    attrs = call.attrs
    c, groups = axis_of(attrs["channel_axis"], len(dims)), attrs.get("num_groups")
    over = list(axes_of(attrs["axes"], len(dims), "axes"))
    split = list(dims)
    if groups is not None:
        split[c : c + 1] = [const(groups, "int64"), simple(dims[c] // groups)]
        over = [c + 1, *(a + (a > c) for a in over)]
    g = gy * _with_axes(ops, gamma, [c], dims) if attrs["scale"] else gy
    if groups is not None:
        x, g = ops.reshape(x, ShapeExpr(split)), ops.reshape(g, ShapeExpr(split))
    gx, normal = _normal_grad(ops, x, g, over, attrs["epsilon"])
    if groups is not None:
        gx, normal = ops.reshape(gx, ShapeExpr(dims)), ops.reshape(normal, ShapeExpr(dims))
    ggamma = _sum_to(ops, gy * normal, [c]) if attrs["scale"] else ops.zeros_like(gamma)
    gbeta = _sum_to(ops, gy, [c]) if attrs["center"] else ops.zeros_like(beta)
    return gx, ggamma, gbeta


@op("nn.group_norm", in_wider(_grouped_numpy), te_lower(_grouped_te), _grouped_grad)
def group_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    num_groups: int,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> StructInfo:
    """Normalised over `axes` and the channels of a group, then times gamma plus beta by channel.

    gamma, beta    [size of channel_axis]
    axes           what is averaged over beside the group's channels
    Raises StructInfoError if the channels are no multiple of `num_groups`, or shapes do not fit.
    """
    x, size = _want_channels(data, {"gamma": gamma, "beta": beta}, channel_axis, axes)
    if num_groups < 1:
        raise StructInfoError(f"num_groups: wanted 1 or more, got {num_groups}")
    text = "num_groups: wanted a divisor of the {size} channels, got {groups}"
    want_multiple(size, num_groups, text, groups=num_groups)
    return x


@op("nn.instance_norm", in_wider(_grouped_numpy), te_lower(_grouped_te), _grouped_grad)
def instance_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    channel_axis: int,
    axes: Any,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
) -> StructInfo:
    """Normalised over `axes` for each sample and channel, then times gamma plus beta by channel.

    gamma, beta    [size of channel_axis]
    Raises StructInfoError if shapes or dtypes do not fit, or `data` is not float.
    """
    x, _ = _want_channels(data, {"gamma": gamma, "beta": beta}, channel_axis, axes)
    return x


# -- batch_norm -----------------------------------------------------------------------------------


def _batch_norm_te(
    data: Tensor, gamma: Tensor, beta: Tensor, moving_mean: Tensor, moving_var: Tensor, axis: int,
    epsilon: float, center: bool, scale: bool, momentum: float, training: bool,
) -> list[Tensor]:  # fmt: skip
    c = axis_of(axis, data.ndim)
    stats = _Stats(data, [k for k in range(data.ndim) if k != c])
    wide = stats.wide
    at_channel: Callable[[Any], list[PrimExpr]] = lambda i: [i[c]]  # noqa: E731
    weights = (gamma if scale else None, beta if center else None)
    if training:
        mean, variance = stats.mean_and_variance()
    else:
        mean, variance = moving_mean, moving_var
    small = const(epsilon, wide)

    def value(i: Any) -> PrimExpr:
        factor = tir.rsqrt(cast(wide, variance(i[c])) + small)
        return (stats.read(i) - cast(wide, mean(i[c]))) * factor

    def moved(old: Tensor, new: Tensor) -> Callable[..., PrimExpr]:
        if not training:
            return lambda i: old(i)
        keep, take = const(1.0 - momentum, wide), const(momentum, wide)
        return lambda i: cast(old.dtype, cast(wide, old(i)) * keep + cast(wide, new(i)) * take)

    return [
        _affine(stats, value, at_channel, *weights),
        compute(moving_mean.shape, moved(moving_mean, mean), "new_mean"),
        compute(moving_var.shape, moved(moving_var, variance), "new_var"),
    ]


def _batch_norm_numpy(
    data: np.ndarray, gamma: np.ndarray, beta: np.ndarray, moving_mean: np.ndarray,
    moving_var: np.ndarray, *, axis: int, epsilon: float, center: bool, scale: bool,
    momentum: float, training: bool,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    kind = data.dtype
    wide = {"float16": np.float32, "float32": np.float64}.get(kind.name, kind)
    x, gamma, beta, old_mean, old_var = (
        a.astype(wide) for a in (data, gamma, beta, moving_mean, moving_var)
    )
    c = axis_of(axis, x.ndim)
    over = tuple(k for k in range(x.ndim) if k != c)
    mean, variance = _spread(old_mean, (c,), x.ndim), _spread(old_var, (c,), x.ndim)
    new_mean, new_var = old_mean, old_var
    if training:
        mean = _mean(x, over)
        variance = _mean((x - mean) ** 2, over)
        new_mean = old_mean * (1 - momentum) + mean.reshape(-1) * momentum
        new_var = old_var * (1 - momentum) + variance.reshape(-1) * momentum
    result = (x - mean) / np.sqrt(variance + epsilon)
    result = result * _spread(gamma, (c,), x.ndim) if scale else result
    result = result + _spread(beta, (c,), x.ndim) if center else result
    return tuple(a.astype(kind) for a in (result, new_mean, new_var))


def _batch_norm_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x: Any = call.args[0]
    _, gamma, beta, moving_mean, moving_var = call.args
    dims, attrs = known_sizes(x, "data"), call.attrs
    c = axis_of(attrs["axis"], len(dims))
    over = [k for k in range(len(dims)) if k != c]
    of_out, of_mean, of_var = (TupleGetItem(gy, k) for k in range(3))
    g: Any = of_out
    g = g * _with_axes(ops, gamma, [c], dims) if attrs["scale"] else g
    if attrs["training"] and over:
        rate = attrs["momentum"]
        gx, normal = _normal_grad(ops, x, g, over, attrs["epsilon"])
        # The moving statistics take their share of the batch's mean and variance.
        away = x - ops.mean(x, axis=over, keepdims=True)
        spread_mean = _with_axes(ops, of_mean, [c], dims)
        spread_var = _with_axes(ops, of_var, [c], dims)
        share = spread_mean * rate + away * spread_var * (2.0 * rate)
        gx = gx + share / ops.sum(ops.ones_like(x), axis=over, keepdims=True)
        gmean, gvar = of_mean * (1.0 - rate), of_var * (1.0 - rate)
    else:
        mean: Any = _with_axes(ops, moving_mean, [c], dims)
        variance: Any = _with_axes(ops, moving_var, [c], dims)
        factor = ops.rsqrt(variance + attrs["epsilon"])
        normal = (x - mean) * factor
        gx = g * factor
        gmean = of_mean - _sum_to(ops, gx, [c])
        gvar = of_var - _sum_to(ops, gx * normal * factor * 0.5, [c])
    ggamma = _sum_to(ops, of_out * normal, [c]) if attrs["scale"] else ops.zeros_like(gamma)
    gbeta = _sum_to(ops, of_out, [c]) if attrs["center"] else ops.zeros_like(beta)
    return gx, ggamma, gbeta, gmean, gvar


def _batch_norm_parts(builder: LowerBuilder, call: Call, training: bool) -> Expr | None:
    """In simpler operators: by the moving statistics for inference, by the batch's for training,
    unless the call says that its statistics are fixed.
    """
    training = training and call.attrs["training"]
    x, gamma, beta, moving_mean, moving_var = call.args
    if not is_known(x.struct_info):
        return None
    ops, attrs, dims = all_ops, call.attrs, known_sizes(x, "data")
    c = axis_of(attrs["axis"], len(dims))
    over = [k for k in range(len(dims)) if k != c]
    mean, variance = moving_mean, moving_var
    if training:
        mean = builder.emit(ops.mean(x, axis=over))
        away = builder.emit(ops.subtract(x, _with_axes(ops, mean, [c], dims)))
        variance = builder.emit(ops.mean(ops.multiply(away, away), axis=over))
    else:
        away = builder.emit(ops.subtract(x, _with_axes(ops, mean, [c], dims)))
    root = ops.sqrt(ops.add(_with_axes(ops, variance, [c], dims), attrs["epsilon"]))
    result = builder.emit(ops.divide(away, root))
    if attrs["scale"]:
        result = builder.emit(ops.multiply(result, _with_axes(ops, gamma, [c], dims)))
    if attrs["center"]:
        result = builder.emit(ops.add(result, _with_axes(ops, beta, [c], dims)))
    if training:
        rate = attrs["momentum"]
        moving_mean, moving_var = (
            builder.emit(ops.add(ops.multiply(old, 1.0 - rate), ops.multiply(new, rate)))
            for old, new in ((moving_mean, mean), (moving_var, variance))
        )
    return Tuple((result, moving_mean, moving_var))


@op(
    "nn.batch_norm",
    numpy=_batch_norm_numpy,
    lower=te_lower(_batch_norm_te),
    grad=_batch_norm_grad,
    decompose=_batch_norm_parts,
)
def batch_norm(
    data: Expr,
    gamma: Expr,
    beta: Expr,
    moving_mean: Expr,
    moving_var: Expr,
    axis: int,
    epsilon: float = 1e-5,
    center: bool = True,
    scale: bool = True,
    momentum: float = 0.1,
    training: bool = True,
) -> StructInfo:
    """(normalised data, moving mean, moving variance): normalised by channel, along `axis`.

    gamma, beta, moving_mean, moving_var  [size of axis]
    training  True: by the batch's own mean and (biased) variance, of which the moving ones take
              the share `momentum`; False: by the moving ones, which are given back as they are
    Raises StructInfoError if shapes or dtypes do not fit, or `data` is not float.
    """
    vectors = {
        "gamma": gamma,
        "beta": beta,
        "moving_mean": moving_mean,
        "moving_var": moving_var,
    }
    x, _ = _want_channels(data, vectors, axis, ())
    infos = (x, moving_mean.struct_info, moving_var.struct_info)
    return TupleStructInfo(infos)
