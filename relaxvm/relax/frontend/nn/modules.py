"""Layers: `Linear`, convolutions, norms, `Embedding`, attention ..."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....base import FrontendError, submodules
from ....ir import PrimExpr
from . import op
from .core import Module, ModuleList, Parameter
from .effects import IOEffect as IOEffect
from .effects import KVCache as KVCache
from .tensor import Tensor

__getattr__ = submodules(__name__)


class ReLU(Module):
    """max(x, 0)"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape; returns the same shape."""
        return op.relu(x)


class SiLU(Module):
    """x * sigmoid(x)"""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape; returns the same shape."""
        return op.silu(x)


class GELU(Module):
    """x times the normal distribution function of x."""

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape; returns the same shape."""
        return op.gelu(x)


class Identity(Module):
    """x itself; takes the place of a layer that is not there."""

    def forward(self, x: Any) -> Any:
        """Returns `x`."""
        return x


class _Product(Module):
    """What `Linear` and `MultiLinear` share: a product with a weight, plus a bias."""

    weight: Parameter
    bias: Parameter | None
    out_dtype: Any

    def _set(self, inputs: Any, outputs: Any, bias: bool, dtype: Any, out_dtype: Any) -> None:
        self.in_features = inputs
        self.out_dtype = out_dtype
        self._parameter("weight", (outputs, inputs), dtype)
        self.bias = None
        if bias:
            self._parameter("bias", (outputs,), dtype if out_dtype is None else out_dtype)

    def _product(self, x: Tensor) -> Tensor:
        product = op.matmul(x, op.permute_dims(self.weight), out_dtype=self.out_dtype)
        return product if self.bias is None else product + self.bias

    def to(self, dtype: Any = None) -> None:
        """Change the dtype; a bias of `out_dtype` keeps it."""
        self.weight.to(dtype)
        if self.bias is not None and self.out_dtype is None:
            self.bias.to(dtype)


class Linear(_Product):
    """x @ weight^T + bias

    weight [out_features, in_features]    bias [out_features]
    dtype      of weight (and bias); None: the default dtype
    out_dtype  of the result, of sums, and of the bias; None: that of the input
    """

    def __init__(
        self,
        in_features: Any,
        out_features: Any,
        bias: bool = True,
        dtype: Any = None,
        out_dtype: Any = None,
    ) -> None:
        self.out_features = out_features
        self._set(in_features, out_features, bias, dtype, out_dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., in_features]; returns [..., out_features]."""
        return self._product(x)


class MultiLinear(_Product):
    """Several linear layers of one input, as one product.

    out_features  the sizes of the results
    weight [sum of out_features, in_features]    bias [sum of out_features]
    """

    def __init__(
        self,
        in_features: Any,
        out_features: Sequence[int],
        bias: bool = True,
        dtype: Any = None,
        out_dtype: Any = None,
    ) -> None:
        if not out_features or not all(isinstance(n, int) for n in out_features):
            raise FrontendError(
                f"MultiLinear: out_features: wanted a sequence of ints, got {out_features!r}"
            )
        self.out_features = list(out_features)
        self._set(in_features, sum(out_features), bias, dtype, out_dtype)

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        """x [..., in_features]; returns one [..., n] for each n of out_features."""
        product = self._product(x)
        if len(self.out_features) == 1:
            return (product,)
        starts = [sum(self.out_features[: i + 1]) for i in range(len(self.out_features) - 1)]
        parts: tuple[Tensor, ...] = op.split(product, starts, axis=-1)
        return parts


class _Conv(Module):
    """What convolutions of any rank share."""

    _rank = 0
    _transposed = False
    _convolution: Callable[..., Tensor]
    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        sizes = [kernel_size] * self._rank if not isinstance(kernel_size, (tuple, list)) else None
        sizes = list(kernel_size) if sizes is None else sizes
        what = type(self).__name__
        if len(sizes) != self._rank:
            raise FrontendError(
                f"{what}: kernel_size: wanted one number or {self._rank}, got {kernel_size!r}"
            )
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = kernel_size
        self.stride = stride
        self.padding = padding
        self.dilation = dilation
        self.groups = groups
        first, second = out_channels, in_channels
        if self._transposed:
            first, second = in_channels, out_channels
        self._parameter("weight", (first, _grouped(second, groups, what), *sizes), dtype)
        self.bias = None
        if bias:
            self._parameter("bias", (out_channels,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [n, in_channels, ...]; returns [n, out_channels, ...]: as many axes, of other sizes."""
        settings = (self.stride, self.padding, self.dilation, self.groups)
        return self._convolution(x, self.weight, self.bias, *settings)


def _grouped(channels: Any, groups: int, what: str) -> Any:
    if not isinstance(groups, int) or groups < 1:
        raise FrontendError(f"{what}: groups: wanted at least 1, got {groups!r}")
    if isinstance(channels, int):
        if channels % groups:
            raise FrontendError(f"{what}: {channels} channels are no multiple of {groups} groups")
        return channels // groups
    return channels // groups if groups > 1 and isinstance(channels, PrimExpr) else channels


class Conv1D(_Conv):
    """1-D convolution; weight [out_channels, in_channels // groups, kernel_size]."""

    _rank = 1
    _convolution = staticmethod(op.conv1d)


class Conv2D(_Conv):
    """2-D convolution; weight [out_channels, in_channels // groups, kernel height, width]."""

    _rank = 2

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
        data_layout: str = "NCHW",
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype
        )
        self.data_layout = data_layout
        if data_layout == "NHWC":
            o, i, h, w = self.weight.shape
            self._parameter("weight", (o, h, w, i), dtype)
        elif data_layout != "NCHW":
            raise FrontendError(f"Conv2D: data_layout: wanted NCHW or NHWC, got {data_layout!r}")

    def forward(self, x: Tensor) -> Tensor:
        """x [n, in_channels, h, w]; returns [n, out_channels, ho, wo] (NHWC: channels last)."""
        settings = (self.stride, self.padding, self.dilation, self.groups, self.data_layout)
        return op.conv2d(x, self.weight, self.bias, *settings)


class Conv3D(_Conv):
    """3-D convolution; weight [out_channels, in_channels // groups, depth, height, width]."""

    _rank = 3
    _convolution = staticmethod(op.conv3d)


class ConvTranspose1D(_Conv):
    """1-D transposed convolution; weight [in_channels, out_channels // groups, kernel_size]."""

    _rank = 1
    _transposed = True

    def __init__(
        self,
        in_channels: Any,
        out_channels: Any,
        kernel_size: Any,
        stride: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        super().__init__(
            in_channels, out_channels, kernel_size, stride, padding, dilation, groups, bias, dtype
        )
        self.output_padding = output_padding

    def forward(self, x: Tensor) -> Tensor:
        """x [n, in_channels, w]; returns [n, out_channels, wo]."""
        settings = (self.stride, self.padding, self.output_padding, self.dilation, self.groups)
        return op.conv1d_transpose(x, self.weight, self.bias, *settings)


class LayerNorm(Module):
    """(x - mean) / sqrt(variance + eps) * weight + bias over the last axes.

    normalized_shape    their sizes, or the size of the last
    weight, bias [*normalized_shape], unless `elementwise_affine` is off
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        normalized_shape: Any,
        eps: float = 1e-5,
        elementwise_affine: bool = True,
        dtype: Any = None,
    ) -> None:
        self.normalized_shape = normalized_shape
        self.eps = eps
        self.elementwise_affine = elementwise_affine
        self.weight = self.bias = None
        if elementwise_affine:
            several = isinstance(normalized_shape, (tuple, list))
            shape = tuple(normalized_shape) if several else (normalized_shape,)
            self._parameter("weight", shape, dtype)
            self._parameter("bias", shape, dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x [..., *normalized_shape]; returns the same shape."""
        return op.layer_norm(x, self.normalized_shape, self.weight, self.bias, self.eps)


class RMSNorm(Module):
    """x / sqrt(mean of x*x + epsilon) * weight + bias over `axes`.

    weight, bias [hidden_size]
    """

    weight: Parameter
    bias: Parameter | None

    def __init__(
        self,
        hidden_size: Any,
        axes: int | Sequence[int] = -1,
        epsilon: float = 1e-5,
        bias: bool = True,
        dtype: Any = None,
    ) -> None:
        self.hidden_size = hidden_size
        self.epsilon = epsilon
        self.axes = axes
        self._parameter("weight", (hidden_size,), dtype)
        self.bias = None
        if bias:
            self._parameter("bias", (hidden_size,), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape whose `axes` have `hidden_size`; returns the same shape."""
        normed = op.rms_norm(x, self.weight, self.axes, self.epsilon)
        return normed if self.bias is None else op.add(normed, self.bias)


class GroupNorm(Module):
    """Normalised over groups of channels, times weight plus bias by channel.

    weight, bias [num_channels], unless `affine` is off
    """

    weight: Parameter | None
    bias: Parameter | None

    def __init__(
        self,
        num_groups: int,
        num_channels: Any,
        eps: float = 1e-5,
        affine: bool = True,
        dtype: Any = None,
    ) -> None:
        _grouped(num_channels, num_groups, "GroupNorm")
        self.num_groups = num_groups
        self.num_channels = num_channels
        self.eps = eps
        self.weight = self.bias = None
        if affine:
            self._parameter("weight", (num_channels,), dtype)
            self._parameter("bias", (num_channels,), dtype)

    def forward(
        self, x: Tensor, channel_axis: int = 1, axes: Sequence[int] | None = None
    ) -> Tensor:
        """x [n, num_channels, ...]; returns the same shape.

        axes  what is averaged over beside the group's channels; None: all behind the second
        """
        return op.group_norm(
            x, self.num_groups, self.weight, self.bias, self.eps, channel_axis, axes
        )


class Embedding(Module):
    """A row of `weight` [num, dim] for each index."""

    weight: Parameter

    def __init__(self, num: Any, dim: Any, dtype: Any = None) -> None:
        self.num = num
        self.dim = dim
        self._parameter("weight", (num, dim), dtype)

    def forward(self, x: Tensor) -> Tensor:
        """x of any shape and an integer dtype, indices below `num`; returns [*x, dim]."""
        if x.ndim == 1:
            return op.take(self.weight, x, axis=0)
        flat = op.reshape(x, [-1])
        return op.reshape(op.take(self.weight, flat, axis=0), [*x.shape, self.dim])


class TimestepEmbedding(Module):
    """Two linear layers with SiLU between, for the sines and cosines of a time step.

    cond_proj_dim  features of a condition that is projected and added to the input; None: none
    """

    def __init__(
        self,
        in_channels: int,
        time_embed_dim: int,
        act_fn: str = "silu",
        out_dim: int | None = None,
        post_act_fn: str | None = None,
        cond_proj_dim: int | None = None,
    ) -> None:
        if act_fn != "silu" or post_act_fn not in (None, "silu"):
            raise FrontendError(
                f"TimestepEmbedding: wanted 'silu' as activation, got {act_fn!r}, {post_act_fn!r}"
            )
        self.linear_1 = Linear(in_channels, time_embed_dim)
        self.cond_proj = None
        if cond_proj_dim is not None:
            self.cond_proj = Linear(cond_proj_dim, in_channels, bias=False)
        self.act = SiLU()
        self.linear_2 = Linear(time_embed_dim, time_embed_dim if out_dim is None else out_dim)
        self.post_act = None if post_act_fn is None else SiLU()

    def forward(self, sample: Tensor, condition: Tensor | None = None) -> Tensor:
        """sample [n, in_channels], condition [n, cond_proj_dim]; returns [n, out_dim]."""
        if condition is not None:
            if self.cond_proj is None:
                raise FrontendError("TimestepEmbedding: a condition needs cond_proj_dim")
            sample = sample + self.cond_proj(condition)
        embedding = self.linear_2(self.act(self.linear_1(sample)))
        return embedding if self.post_act is None else self.post_act(embedding)


class Timesteps(Module):
    """Sines and cosines of time steps; see `op.get_timestep_embedding`."""

    def __init__(
        self, num_channels: int, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1
    ) -> None:
        self.num_channels = num_channels
        self.flip_sin_to_cos = flip_sin_to_cos
        self.downscale_freq_shift = downscale_freq_shift

    def forward(self, x: Tensor) -> Tensor:
        """x [n]; returns [n, num_channels]."""
        return op.get_timestep_embedding(
            x,
            embedding_dim=self.num_channels,
            flip_sin_to_cos=self.flip_sin_to_cos,
            downscale_freq_shift=self.downscale_freq_shift,
        )


class Attention(Module):
    """Attention from queries to themselves, or to what an encoder gave.

    query_dim            features of the input and of the result
    cross_attention_dim  features of the encoder's states; None: query_dim
    heads, dim_head      None for dim_head: query_dim // heads
    norm_num_groups      groups of a GroupNorm over the features of the input; None: no norm
    """

    def __init__(
        self,
        query_dim: int,
        cross_attention_dim: int | None = None,
        heads: int = 8,
        dim_head: int | None = None,
        bias: bool = False,
        norm_num_groups: int | None = None,
        out_bias: bool = True,
        scale_qk: bool = True,
    ) -> None:
        if dim_head is None and query_dim % heads:
            raise FrontendError(f"Attention: {query_dim} is no multiple of {heads} heads")
        self.heads = heads
        self.dim_head = query_dim // heads if dim_head is None else dim_head
        self.scale = None if scale_qk else 1.0
        inner = self.heads * self.dim_head
        other = query_dim if cross_attention_dim is None else cross_attention_dim
        self.to_q = Linear(query_dim, inner, bias=bias)
        self.to_k = Linear(other, inner, bias=bias)
        self.to_v = Linear(other, inner, bias=bias)
        self.group_norm = None
        if norm_num_groups is not None:
            self.group_norm = GroupNorm(norm_num_groups, query_dim)
        self.to_out = ModuleList([Linear(inner, query_dim, bias=out_bias)])

    def forward(
        self,
        hidden_states: Tensor,
        encoder_hidden_states: Tensor | None = None,
        attention_mask: Tensor | None = None,
    ) -> Tensor:
        """hidden_states [n, s, query_dim], encoder_hidden_states [n, t, cross_attention_dim];
        returns [n, s, query_dim].

        attention_mask  added to the scores, broadcast to [n, heads, s, t]
        """
        if self.group_norm is not None:
            hidden_states = self.group_norm(hidden_states, channel_axis=2, axes=[1])
        other = hidden_states if encoder_hidden_states is None else encoder_hidden_states
        query, key, value = self.to_q(hidden_states), self.to_k(other), self.to_v(other)
        query, key, value = (
            op.reshape(t, [*t.shape[:2], self.heads, self.dim_head]) for t in (query, key, value)
        )
        seen = op.scaled_dot_product_attention(query, key, value, attention_mask, scale=self.scale)
        output: Tensor = self.to_out(
            op.reshape(seen, [*seen.shape[:2], self.heads * self.dim_head])
        )
        return output
