"""`topi.nn`: layers of neural networks as formulas."""

from __future__ import annotations

from typing import Any

from ..base import TIRError, submodules
from ..ir import Max, Min, PrimExpr, const
from ..relax import op as ops
from ..te import Tensor, compute, reduce_axis
from ..te import sum as te_sum
from ..tir import all as all_of
from ..tir import if_then_else, pow
from .derive import named, of
from .utils import get_const_int, plain, sizes_of, transposed

# -- activations -----------------------------------------------------------------------------------

relu = of(lambda x: ops.nn.relu(x))
leaky_relu = of(lambda x, alpha: ops.nn.leakyrelu(x, alpha))
prelu = of(lambda x, slope, axis=1: ops.nn.prelu(x, slope, axis))
softmax = fast_softmax = of(lambda x, axis=-1: ops.nn.softmax(x, axis))
log_softmax = of(lambda x, axis=-1: ops.nn.log_softmax(x, axis))
gelu = of(lambda x: ops.nn.gelu(x))
silu = of(lambda x: ops.nn.silu(x))

# -- products --------------------------------------------------------------------------------------


@of
def dense(
    data: Any,
    weight: Any,
    bias: Any = None,
    out_dtype: Any = None,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """``data @ transpose(weight) + bias``."""
    return _with_bias(ops.matmul(data, transposed(weight), out_dtype), bias)


@of
def matmul(
    tensor_a: Any,
    tensor_b: Any,
    bias: Any = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = False,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """The product of two matrices, or of stacks of them, plus `bias`."""
    a, b = transposed(tensor_a, transpose_a), transposed(tensor_b, transpose_b)
    return _with_bias(ops.matmul(a, b, out_dtype), bias)


@of
def batch_matmul(
    tensor_a: Any,
    tensor_b: Any,
    oshape: Any = None,
    out_dtype: Any = None,
    transpose_a: bool = False,
    transpose_b: bool = True,
    auto_scheduler_rewritten_layout: str = "",
    meta_schedule_original_shape: Any = None,
) -> Any:
    """The products of two stacks of matrices; those of the second transposed by default."""
    a, b = transposed(tensor_a, transpose_a), transposed(tensor_b, transpose_b)
    return ops.matmul(a, b, out_dtype)


bias_add = of(lambda data, bias, axis=1: ops.add(data, _along(bias, data, axis)))
scale_shift_nchw = of(lambda Input, Scale, Shift: _scale_shift(Input, Scale, Shift, 1))
scale_shift_nhwc = of(lambda Input, Scale, Shift: _scale_shift(Input, Scale, Shift, 3))
flatten = of(
    lambda data: (
        ops.reshape(data, (data.struct_info.dims[0], -1)) if data.struct_info.ndim else data
    )
)


def _with_bias(x: Any, bias: Any) -> Any:
    if bias is None:
        return x
    return ops.add(
        x,
        bias
        if bias.struct_info.dtype is x.struct_info.dtype
        else ops.astype(bias, x.struct_info.dtype),
    )


def _along(x: Any, data: Any, axis: int) -> Any:
    ndim = data.struct_info.ndim
    after = ndim - 1 - axis % ndim
    return ops.expand_dims(x, tuple(range(1, after + 1))) if after else x


def _scale_shift(x: Any, scale: Any, shift: Any, axis: int) -> Any:
    """The input times `Scale` plus `Shift`, both along the channels."""
    return ops.add(ops.multiply(x, _along(scale, x, axis)), _along(shift, x, axis))


# -- convolutions ----------------------------------------------------------------------------------

_CONV = {1: ops.nn.conv1d, 2: ops.nn.conv2d, 3: ops.nn.conv3d}
_KERNEL = {
    "NCW": "OIW",
    "NWC": "WIO",
    "NCHW": "OIHW",
    "NHWC": "HWIO",
    "HWCN": "HWIO",
    "NCDHW": "OIDHW",
    "NDHWC": "DHWIO",
}


def _conv(
    data: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    layout: str,
    kernel_layout: str = "",
    groups: int = 1,
    out_dtype: Any = None,
) -> Any:
    """A convolution in the layout that the name says; see `relax.op.nn.conv2d`.

    padding  numbers, "SAME" or "VALID"
    """
    ndim = len([c for c in layout if c.isupper()]) - 2
    kernel_layout = kernel_layout or _KERNEL.get(layout, "")
    if isinstance(padding, str):
        padding = _padding(
            padding, [kernel_layout.index(c) for c in "DHW"[-ndim:]], kernel, dilation
        )
    return _CONV[ndim](
        data,
        kernel,
        strides=plain(strides),
        padding=plain(padding),
        dilation=plain(dilation),
        groups=groups,
        data_layout=layout,
        kernel_layout=kernel_layout,
        out_dtype=out_dtype,
    )


def _padding(padding: str, spatial: list[int], kernel: Any, dilation: Any) -> Any:
    """TVM's words for it: "SAME" keeps the size for a stride of 1, "VALID" pads nothing."""
    if padding not in ("SAME", "VALID"):
        raise TIRError(f"padding: wanted numbers, 'SAME' or 'VALID', got {padding!r}")
    if padding == "VALID":
        return [0] * len(spatial)
    steps = [dilation] * len(spatial) if isinstance(dilation, int) else list(dilation)
    sizes = [get_const_int(sizes_of(kernel)[k]) for k in spatial]
    whole = [(s - 1) * d for s, d in zip(sizes, steps)]
    before = [(w + 1) // 2 for w in whole]
    return [*before, *(w - b for w, b in zip(whole, before))]


@of
def conv(
    inp: Any,
    filt: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    groups: int,
    data_layout: str,
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Any:
    """A convolution of as many axes as `data_layout` has besides N and C."""
    return _conv(
        inp, filt, stride, padding, dilation, data_layout, kernel_layout, groups, out_dtype
    )


@of
def conv1d(
    data: Any,
    kernel: Any,
    strides: Any = 1,
    padding: Any = "VALID",
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Any:
    """`relax.op.nn.conv1d` of tensors; kernels are OIW for NCW, WIO for NWC."""
    return _conv(
        data, kernel, strides, padding, dilation, data_layout, kernel_layout, groups, out_dtype
    )


@of
def conv2d(
    data: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    dilation: Any,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
    out_dtype: Any = None,
) -> Any:
    """`relax.op.nn.conv2d` of tensors; kernels are OIHW for NCHW, HWIO for NHWC and HWCN.

    padding  numbers (one, two, or top, left, bottom, right), "SAME" or "VALID"
    """
    return _conv(data, kernel, strides, padding, dilation, data_layout, kernel_layout, 1, out_dtype)


conv1d_ncw = of(
    lambda data, kernel, strides=1, padding="VALID", dilation=1, groups=1, out_dtype=None: _conv(
        data, kernel, strides, padding, dilation, "NCW", "", groups, out_dtype
    )
)
conv1d_nwc = of(
    lambda data, kernel, strides=1, padding="VALID", dilation=1, groups=1, out_dtype=None: _conv(
        data, kernel, strides, padding, dilation, "NWC", "", groups, out_dtype
    )
)
conv2d_nchw = of(
    lambda Input, Filter, stride, padding, dilation, out_dtype=None: _conv(
        Input, Filter, stride, padding, dilation, "NCHW", out_dtype=out_dtype
    )
)
conv2d_nhwc = of(
    lambda Input, Filter, stride, padding, dilation, out_dtype="float32", *_: _conv(
        Input, Filter, stride, padding, dilation, "NHWC", out_dtype=out_dtype
    )
)
conv2d_hwcn = of(
    lambda Input, Filter, stride, padding, dilation, out_dtype=None: _conv(
        Input, Filter, stride, padding, dilation, "HWCN", out_dtype=out_dtype
    )
)
group_conv2d_nchw = of(
    lambda Input, Filter, stride, padding, dilation, groups, out_dtype=None: _conv(
        Input, Filter, stride, padding, dilation, "NCHW", "", groups, out_dtype
    )
)
group_conv2d_nhwc = of(
    lambda Input, Filter, stride, padding, dilation, groups, out_dtype=None: _conv(
        Input, Filter, stride, padding, dilation, "NHWC", "", groups, out_dtype
    )
)
depthwise_conv2d_nchw = of(
    lambda Input, Filter, stride, padding, dilation, out_dtype=None: _depthwise(
        Input, Filter, stride, padding, dilation, "NCHW", out_dtype
    )
)
depthwise_conv2d_nhwc = of(
    lambda Input, Filter, stride, padding, dilation, kernel_layout="HWOI", out_dtype=None: (
        _depthwise(Input, Filter, stride, padding, dilation, "NHWC", out_dtype)
    )
)
conv3d_ncdhw = of(
    lambda Input, Filter, stride, padding, dilation, groups, out_dtype=None: _conv(
        Input, Filter, stride, padding, dilation, "NCDHW", "", groups, out_dtype
    )
)
conv3d_ndhwc = of(
    lambda Input, Filter, stride, padding, dilation, groups, out_dtype="float32", *_: _conv(
        Input, Filter, stride, padding, dilation, "NDHWC", "", groups, out_dtype
    )
)
conv1d_transpose_ncw = of(
    lambda data, kernel, stride, padding, out_dtype, output_padding: _transposed_conv(
        ops.nn.conv1d_transpose, data, kernel, stride, padding, out_dtype, output_padding
    )
)
conv2d_transpose_nchw = of(
    lambda Input, Filter, strides, padding, out_dtype, output_padding: _transposed_conv(
        ops.nn.conv2d_transpose, Input, Filter, strides, padding, out_dtype, output_padding
    )
)
group_conv2d_transpose_nchw = of(
    lambda data, kernel, stride, padding, out_dtype, output_padding, groups: _transposed_conv(
        ops.nn.conv2d_transpose, data, kernel, stride, padding, out_dtype, output_padding, groups
    )
)
conv3d_transpose_ncdhw = of(
    lambda Input, Filter, strides, padding, out_dtype, output_padding: _transposed_conv(
        ops.nn.conv3d_transpose, Input, Filter, strides, padding, out_dtype, output_padding
    )
)


def _depthwise(
    data: Any, kernel: Any, stride: Any, padding: Any, dilation: Any, layout: str, out_dtype: Any
) -> Any:
    """A convolution of each channel by filters of its own: [c, m, h, w] for NCHW, [h, w, c, m] for
    NHWC; channel c of the input gives channels c * m and following.
    """
    dims = kernel.struct_info.dims
    if layout == "NCHW":  # of [c, m, h, w]
        channels, shape = dims[0], (dims[0] * dims[1], 1, dims[2], dims[3])
    else:  # of [h, w, c, m]
        channels, shape = dims[2], (dims[0], dims[1], 1, dims[2] * dims[3])
    return _conv(
        data,
        ops.reshape(kernel, shape),
        stride,
        padding,
        dilation,
        layout,
        groups=get_const_int(channels),
        out_dtype=out_dtype,
    )


def _transposed_conv(
    operator: Any,
    data: Any,
    kernel: Any,
    strides: Any,
    padding: Any,
    out_dtype: Any,
    output_padding: Any,
    groups: int = 1,
) -> Any:
    """The transposed convolution of NCW, NCHW or NCDHW by IOW, IOHW or IODHW filters."""
    return operator(
        data,
        kernel,
        strides=plain(strides),
        padding=plain(padding),
        output_padding=plain(output_padding),
        groups=groups,
        out_dtype=out_dtype,
    )


# -- pooling ---------------------------------------------------------------------------------------


def _pooled(rank: int, default_layout: str) -> Any:
    def pool(
        data: Any,
        kernel: Any,
        stride: Any,
        dilation: Any,
        padding: Any,
        pool_type: str,
        ceil_mode: bool = False,
        layout: str = default_layout,
        count_include_pad: bool = True,
    ) -> Any:
        more = {"count_include_pad": count_include_pad} if pool_type == "avg" else {}
        return _operator("{}_pool{}d", pool_type, rank)(
            data,
            pool_size=plain(kernel),
            strides=plain(stride),
            dilation=plain(dilation),
            padding=plain(padding),
            ceil_mode=ceil_mode,
            layout=layout,
            **more,
        )

    pool.__name__ = pool.__qualname__ = f"pool{rank}d"
    pool.__doc__ = f"`relax.op.nn.max_pool{rank}d` or `avg_pool{rank}d` of tensors, by `pool_type`."
    return of(pool)


def _operator(name: str, pool_type: str, rank: int) -> Any:
    """Pooling by `pool_type`, "avg" or "max", to an output size; see `relax.op.nn`."""
    if pool_type not in ("avg", "max"):
        raise TIRError(f"pool_type: wanted 'avg' or 'max', got {pool_type!r}")
    return getattr(ops.nn, name.format(pool_type, rank))


pool1d = _pooled(1, "NCW")
pool2d = _pooled(2, "NCHW")
pool3d = _pooled(3, "NCDHW")
global_pool = of(
    lambda data, pool_type, layout="NCHW": _operator("adaptive_{}_pool{}d", pool_type, 2)(
        data, output_size=(1, 1), layout=layout
    )
)
adaptive_pool = of(
    lambda data, output_size, pool_type, layout="NCHW": _operator(
        "adaptive_{}_pool{}d", pool_type, 2
    )(data, output_size=plain(output_size), layout=layout)
)
adaptive_pool1d = of(
    lambda data, output_size, pool_type, layout="NCW": _operator(
        "adaptive_{}_pool{}d", pool_type, 1
    )(data, output_size=plain(output_size), layout=layout)
)
adaptive_pool3d = of(
    lambda data, output_size, pool_type, layout="NCDHW": _operator(
        "adaptive_{}_pool{}d", pool_type, 3
    )(data, output_size=plain(output_size), layout=layout)
)

# -- normalisation ---------------------------------------------------------------------------------


@of
def batch_norm(
    data: Any,
    gamma: Any,
    beta: Any,
    moving_mean: Any,
    moving_var: Any,
    axis: int | None = None,
    epsilon: float | None = None,
    center: bool | None = None,
    scale: bool | None = None,
    training: bool | None = None,
    momentum: float | None = None,
) -> Any:
    """`relax.op.nn.batch_norm` of tensors: the result, the mean and the variance (the moving ones
    after it, if `training`).
    """
    return ops.nn.batch_norm(
        data,
        gamma,
        beta,
        moving_mean,
        moving_var,
        axis=1 if axis is None else axis,
        epsilon=1e-5 if epsilon is None else epsilon,
        center=center is not False,
        scale=scale is not False,
        momentum=0.1 if momentum is None else momentum,
        training=bool(training),
    )


layer_norm = of(
    lambda data, gamma, beta, axis, epsilon=1e-5: ops.nn.layer_norm(
        data, gamma, beta, axes=axis, epsilon=epsilon
    )
)
group_norm = of(
    lambda data, gamma, beta, num_groups, channel_axis, axes, epsilon=1e-5: ops.nn.group_norm(
        data, gamma, beta, num_groups, channel_axis, axes, epsilon
    )
)
instance_norm = of(
    lambda data, gamma, beta, channel_axis, axis, epsilon=1e-5: ops.nn.instance_norm(
        data, gamma, beta, channel_axis, axis, epsilon
    )
)
rms_norm = of(
    lambda data, weight, axis, epsilon=1e-5: ops.nn.rms_norm(
        data, weight, axes=axis, epsilon=epsilon
    )
)


def lrn(
    data: Tensor, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 2
) -> Tensor:
    """Local response normalisation: ``x / (bias + alpha / size * sum of x * x)**beta``, the sum
    over the `size` nearest elements along `axis`.
    """
    near = reduce_axis((0, size), "k")
    extent = data.shape[axis]

    def square(*i: PrimExpr) -> PrimExpr:
        nearby = i[axis] + near.var - size // 2
        place = (*i[:axis], Max(Min(nearby, extent - 1), const(0, nearby.dtype)), *i[axis + 1 :])
        x = data(*place)
        return te_sum(
            if_then_else(all_of(nearby >= 0, nearby < extent), x * x, const(0, data.dtype)), near
        )

    total = compute(data.shape, square, "lrn_sum")
    return compute(
        data.shape,
        lambda *i: (
            data(*i)
            / pow(
                total(*i) * const(alpha / size, data.dtype) + const(bias, data.dtype),
                const(beta, data.dtype),
            )
        ),
        "lrn",
    )


# -- padding and spacing ---------------------------------------------------------------------------

pad = of(
    lambda data, pad_before, pad_after=None, pad_value=0.0, name="PadInput", attrs=None: ops.nn.pad(
        data, _widths(pad_before, pad_after), "constant", plain(pad_value)
    )
)
space_to_depth = of(
    lambda data, block_size, layout="NCHW": ops.nn.space_to_depth(data, block_size, layout)
)
depth_to_space = of(
    lambda data, block_size, layout="NCHW", mode="DCR": ops.nn.depth_to_space(
        data, block_size, layout, mode
    )
)
nll_loss = of(
    lambda predictions, targets, weights, reduction, ignore_index: ops.nn.nll_loss(
        predictions, targets, weights, reduction, ignore_index
    )
)


def _widths(before: Any, after: Any) -> Any:
    after = before if after is None else after
    return plain([w for pair in zip(before, after) for w in pair])


def mirror_pad(
    data: Tensor, pad_before: Any, pad_after: Any = None, mode: str = "SYMMETRIC", name: str = ""
) -> Tensor:
    """`data` mirrored at its ends; at the outermost element if `mode` is "REFLECT", else beside
    it.
    """
    if mode not in ("SYMMETRIC", "REFLECT"):
        raise TIRError(f"mirror_pad: mode: wanted 'SYMMETRIC' or 'REFLECT', got {mode!r}")
    after = pad_before if pad_after is None else pad_after
    own = int(mode == "REFLECT")
    for d, b, a in zip(data.shape, pad_before, after):
        most = get_const_int(d) - own
        if b > most or a > most:
            raise TIRError(f"mirror_pad: {mode} pads at most {most} of a size of {d}, got {(b, a)}")

    def element(*index: PrimExpr) -> PrimExpr:
        source = []
        for i, d, b in zip(index, data.shape, pad_before):
            k = i - b
            k = if_then_else(k < 0, -k - 1 + own, k)
            source.append(if_then_else(k >= d, d * 2 - 1 - own - k, k))
        return data(*source)

    shape = [d + b + a for d, b, a in zip(data.shape, pad_before, after)]
    return compute(shape, element, name or "mirror_pad")


def dilate(
    data: Tensor, strides: Any, dilation_value: float = 0.0, name: str = "DilatedInput"
) -> Tensor:
    """`data` with ``strides[k] - 1`` elements of `dilation_value` between two along axis k."""
    if len(strides) != data.ndim:
        raise TIRError(f"dilate: wanted {data.ndim} strides, got {len(strides)}")

    def element(*index: PrimExpr) -> PrimExpr:
        there = all_of(*(i % s == 0 for i, s in zip(index, strides)))
        source = [i // s for i, s in zip(index, strides)]
        return if_then_else(there, data(*source), const(dilation_value, data.dtype))

    shape = [(d - 1) * s + 1 for d, s in zip(data.shape, strides)]
    return compute(shape, element, name)


@of
def upsampling(
    data: Any,
    scale_h: Any,
    scale_w: Any,
    layout: str = "NCHW",
    method: str = "nearest_neighbor",
    align_corners: bool = False,
    output_shape: Any = None,
) -> Any:
    """Images resized by factors; `method` is "nearest_neighbor", "bilinear" or "bicubic"."""
    dims = dict(zip(layout, data.struct_info.dims))
    size = [_scaled(dims["H"], scale_h), _scaled(dims["W"], scale_w)]
    return ops.image.resize2d(
        data,
        size if output_shape is None else output_shape,
        layout=layout,
        method={"bilinear": "linear", "bicubic": "cubic"}.get(method, method),
        coordinate_transformation_mode="align_corners" if align_corners else "asymmetric",
        rounding_method="",
        cubic_alpha=-0.5,
    )


def _scaled(size: Any, scale: Any) -> Any:
    return round(get_const_int(size) * scale) if isinstance(scale, float) else size * plain(scale)


__getattr__ = submodules(__name__)
__all__ = named(globals())
