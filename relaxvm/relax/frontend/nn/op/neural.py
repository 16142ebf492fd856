"""Operators of neural networks: activations, convolutions, norms, attention, pictures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from .....base import FrontendError, submodules
from .....ir import PrimExpr
from ....expr import Call
from ....op import image as _image
from ....op import nn as _nn
from ..tensor import Tensor, apply, operand, wrap_nested
from ..tree import get_default_dtype
from .elementwise import cos, exp, sin
from .manipulate import arange, astype, concat, ones, reshape, unsqueeze, zeros

__getattr__ = submodules(__name__)


def relu(x: Tensor, name: str = "relu") -> Tensor:
    """max(x, 0)"""
    return apply("nn.relu", x, hint=name)


def relu6(x: Tensor, name: str = "relu6") -> Tensor:
    """min(max(x, 0), 6)"""
    return apply("nn.relu6", x, hint=name)


def leakyrelu(x: Tensor, alpha: float = 0.01, name: str = "leakyrelu") -> Tensor:
    """x, times `alpha` where it is negative."""
    return apply("nn.leakyrelu", x, alpha=alpha, hint=name)


def prelu(x: Tensor, alpha: Tensor, name: str = "prelu") -> Tensor:
    """x, times `alpha` (one per channel, axis 1) where it is negative."""
    return apply("nn.prelu", x, alpha, hint=name)


def silu(x: Tensor, name: str = "silu") -> Tensor:
    """x * sigmoid(x)"""
    return apply("nn.silu", x, hint=name)


def gelu(x: Tensor, approximate: str | None = None, name: str = "gelu") -> Tensor:
    """x times the normal distribution function of x; `approximate` "tanh": nearly."""
    if approximate not in (None, "none", "tanh"):
        raise FrontendError(f"gelu: approximate: wanted None or 'tanh', got {approximate!r}")
    return apply("nn.gelu_tanh" if approximate == "tanh" else "nn.gelu", x, hint=name)


def softplus(
    x: Tensor, beta: float = 1.0, threshold: float = 20.0, name: str = "softplus"
) -> Tensor:
    """log(1 + exp(beta * x)) / beta; x itself where beta * x is above `threshold`."""
    return apply("nn.softplus", x, beta=beta, threshold=threshold, hint=name)


def softmax(x: Tensor, axis: int = -1, name: str = "softmax") -> Tensor:
    """exp(x) divided by its sum along `axis`."""
    return apply("nn.softmax", x, axis=axis, hint=name)


def log_softmax(x: Tensor, axis: int = -1, name: str = "log_softmax") -> Tensor:
    """The logarithm of softmax."""
    return apply("nn.log_softmax", x, axis=axis, hint=name)


# -- convolutions ---------------------------------------------------------------------------------


def _convolved(
    convolution: Callable[..., Call],
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    name: str,
    *settings: Any,
    channels_last: bool = False,
) -> Tensor:
    """What a convolution gives, plus one number of `bias` per channel."""
    call = convolution(operand(x, None, name), operand(weight, None, name), *settings)
    if bias is None:
        return wrap_nested(call, name)
    product = wrap_nested(call, "lv")
    if not channels_last:
        bias = reshape(bias, [1, bias.shape[0], *[1] * (x.ndim - 2)], "lv")
    return apply("add", product, bias, hint=name)


def conv1d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    name: str = "conv1d",
) -> Tensor:
    """1-D convolution.

    x [n, c, w]    weight [o, c // groups, kw]    bias [o]    returns [n, o, wo]
    """
    return _convolved(_nn.conv1d, x, weight, bias, name, stride, padding, dilation, groups)


def conv2d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    name: str = "conv2d",
) -> Tensor:
    """2-D convolution.

    x [n, c, h, w]    weight [o, c // groups, kh, kw]    bias [o]    returns [n, o, ho, wo]

    data_layout  "NHWC": x [n, h, w, c], weight [o, kh, kw, c // groups], returns [n, ho, wo, o]
    """
    if data_layout not in ("NCHW", "NHWC"):
        raise FrontendError(f"conv2d: data_layout: wanted NCHW or NHWC, got {data_layout!r}")
    last = data_layout == "NHWC"
    settings = (stride, padding, dilation, groups, data_layout, "OHWI" if last else "OIHW")
    return _convolved(_nn.conv2d, x, weight, bias, name, *settings, channels_last=last)


def conv3d(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCDHW",
    name: str = "conv3d",
) -> Tensor:
    """3-D convolution.

    x [n, c, d, h, w]    weight [o, c // groups, kd, kh, kw]    bias [o]
    """
    if data_layout != "NCDHW":
        raise FrontendError(f"conv3d: data_layout: wanted NCDHW, got {data_layout!r}")
    return _convolved(_nn.conv3d, x, weight, bias, name, stride, padding, dilation, groups)


def conv1d_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    name: str = "conv1d_transpose",
) -> Tensor:
    """1-D transposed convolution.

    x [n, c, w]    weight [c, o // groups, kw]    bias [o]    returns [n, o, wo]
    """
    settings = (stride, padding, output_padding, dilation, groups)
    return _convolved(_nn.conv1d_transpose, x, weight, bias, name, *settings)


# -- norms ----------------------------------------------------------------------------------------


def layer_norm(
    x: Tensor,
    normalized_shape: int | Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    name: str = "layer_norm",
) -> Tensor:
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes.

    normalized_shape  the sizes of these axes; weight, bias: of that shape, or None
    """
    sizes = (
        [normalized_shape] if isinstance(normalized_shape, (int, PrimExpr)) else normalized_shape
    )
    sizes = list(sizes)
    return apply(
        "nn.layer_norm",
        x,
        ones(sizes, x.dtype) if weight is None else weight,
        zeros(sizes, x.dtype) if bias is None else bias,
        axes=list(range(-len(sizes), 0)),
        epsilon=eps,
        center=bias is not None,
        scale=weight is not None,
        hint=name,
    )


def rms_norm(
    x: Tensor,
    weight: Tensor,
    axes: int | Sequence[int] = -1,
    epsilon: float = 1e-5,
    name: str = "rms_norm",
) -> Tensor:
    """x / sqrt(mean of x*x over `axes` + epsilon) * weight; `weight` has the sizes of `axes`."""
    over = [axes] if isinstance(axes, int) else list(axes)
    return apply("nn.rms_norm", x, weight, axes=over, epsilon=epsilon, hint=name)


def group_norm(
    x: Tensor,
    num_groups: int,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float = 1e-5,
    channel_axis: int = 1,
    axes: Sequence[int] | None = None,
    name: str = "group_norm",
) -> Tensor:
    """Normalised over groups of channels and over `axes` (None: all behind the second), times
    `weight` plus `bias` by channel.
    """
    channels = [x.shape[channel_axis]]
    return apply(
        "nn.group_norm",
        x,
        ones(channels, x.dtype) if weight is None else weight,
        zeros(channels, x.dtype) if bias is None else bias,
        num_groups=num_groups,
        channel_axis=channel_axis,
        axes=list(range(2, x.ndim)) if axes is None else list(axes),
        epsilon=eps,
        center=bias is not None,
        scale=weight is not None,
        hint=name,
    )


# -- attention ------------------------------------------------------------------------------------


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    name: str = "scaled_dot_product_attention",
    *,
    causal_mask: str | None = None,
) -> Tensor:
    """softmax(query key^T * scale + attn_mask) value.

    query [batch, s, heads, d]    key, value [batch, t, shared heads, d]; `heads` may be a multiple
    attn_mask    added to the scores, broadcast to [batch, heads, s, t]
    is_causal    query i sees the keys up to i. `causal_mask` "BottomRight" instead: the last query
                 sees all keys, the one before all but one, ... as with a cache of earlier keys
    scale        None: 1 / sqrt(d)
    """
    if is_causal and causal_mask not in (None, "TopLeft"):
        raise FrontendError(
            f"{name}: is_causal means causal_mask='TopLeft', got {causal_mask!r} beside it"
        )
    call = _nn.attention(
        operand(query, None, f"{name}: query"),
        operand(key, None, f"{name}: key"),
        operand(value, None, f"{name}: value"),
        None if attn_mask is None else operand(attn_mask, None, f"{name}: attn_mask"),
        scale,
        "TopLeft" if is_causal else causal_mask,
    )
    return wrap_nested(call, name)


# -- pictures and time ----------------------------------------------------------------------------

_METHODS = {
    # mode: (method, coordinates without align_corners)
    "nearest": ("nearest_neighbor", "asymmetric"),
    "bilinear": ("linear", "half_pixel"),
    "bicubic": ("cubic", "half_pixel"),
}


def interpolate(
    x: Tensor,
    size: Any = None,
    scale_factor: Any = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool | None = None,
    data_layout: str = "NCHW",
    name: str = "interpolate",
) -> Tensor:
    """Pictures [n, c, h, w] of another size.

    size          (height, width), or one number for both
    scale_factor  instead of `size`: what height and width are multiplied by
    mode          "nearest", "bilinear" or "bicubic"
    """
    if recompute_scale_factor or antialias:
        raise FrontendError("interpolate: recompute_scale_factor and antialias are not there")
    if mode not in _METHODS:
        raise FrontendError(f"interpolate: wanted mode {', '.join(_METHODS)}, got {mode!r}")
    if (size is None) == (scale_factor is None):
        raise FrontendError("interpolate: wanted size or scale_factor")
    method, coordinates = _METHODS[mode]
    if size is None:
        factors = scale_factor if isinstance(scale_factor, (tuple, list)) else [scale_factor] * 2
        have = [x.shape[data_layout.index("H")], x.shape[data_layout.index("W")]]
        size = [_scaled(d, f) for d, f in zip(have, factors)]
    elif not isinstance(size, (tuple, list)):
        size = [size, size]
    call = _image.resize2d(
        operand(x, None, name),
        list(size),
        layout=data_layout,
        method=method,
        coordinate_transformation_mode="align_corners" if align_corners else coordinates,
        rounding_method="floor",  # as torch takes the nearest
        cubic_alpha=-0.75 if mode == "bicubic" else -0.5,
    )
    return wrap_nested(call, name)


def _scaled(size: Any, factor: float) -> Any:
    if isinstance(size, int):
        return math.floor(size * factor)
    if float(factor).is_integer():
        return size * int(factor)
    raise FrontendError(
        f"interpolate: a symbolic size can be scaled by a whole number only, got {factor}"
    )


def get_timestep_embedding(
    x: Tensor,
    embedding_dim: int,
    flip_sin_to_cos: bool = False,
    downscale_freq_shift: float = 1,
    scale: float = 1,
    max_period: int = 10000,
    name: str = "get_timestep_embedding",
) -> Tensor:
    """Sines and cosines of each time step: x [n] -> [n, embedding_dim].

    Frequencies fall from 1 to 1 / max_period. flip_sin_to_cos puts the cosines first.
    """
    if embedding_dim < 2:
        raise FrontendError(f"{name}: wanted an embedding_dim of at least 2, got {embedding_dim}")
    half = embedding_dim // 2
    steps = unsqueeze(astype(x, "float32"), 1)
    exponent = arange(0, half, dtype="float32") * -math.log(max_period)
    frequency = exp(exponent / (half - downscale_freq_shift))
    angle = steps * unsqueeze(frequency, 0)
    if scale != 1:
        angle = angle * scale
    parts = [cos(angle), sin(angle)] if flip_sin_to_cos else [sin(angle), cos(angle)]
    if embedding_dim % 2:
        parts.append(zeros([x.shape[0], 1], "float32"))
    return astype(concat(parts, -1), get_default_dtype(), name)
