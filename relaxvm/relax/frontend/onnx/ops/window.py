"""Windows that slide over axes: convolutions, pooling, resizing and pictures."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from .....base import FrontendError, NamedTuple
from .....ir import IntImm, structural_equal
from ....expr import PrimValue, TupleGetItem, const
from ....op.nn.window import window_count
from ....op.sizes import simplified
from ..registry import Ints, add, onnx, op, passes_on
from ..values import as_size, dims_of, dtype_of, product, shape_expr
from .matrix import zero_points


class Window(NamedTuple):
    """A window over the axes of `x` behind the first two, as `relax.op.nn` wants it."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    padding: tuple[int, ...]

    @property
    def axes(self) -> int:
        return len(self.kernel)


def _window(
    x: Any, kernel: Any, strides: Any, dilations: Any, pads: Any, auto_pad: Any = None
) -> Window:
    kernel = tuple(int(k) for k in kernel)
    count = len(kernel)
    if len(dims_of(x)) != count + 2 or not 1 <= count <= 3:
        raise FrontendError(
            f"a window of {count} axes over {len(dims_of(x))} dimensions; wanted 1 to 3 axes, and "
            "two dimensions before them"
        )
    strides = tuple(strides or (1,) * count)
    dilations = tuple(dilations or (1,) * count)
    padding = tuple(pads or (0,) * (2 * count))
    if auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        sizes = zip(dims_of(x)[2:], kernel, strides, dilations)
        padding = _before_and_behind([_same(*each) for each in sizes], auto_pad == "SAME_UPPER")
    elif auto_pad == "VALID":
        padding = (0,) * (2 * count)
    return Window(kernel, strides, dilations, padding)


def _same(size: Any, kernel: int, stride: int, dilation: int) -> int:
    """The padding that gives ceil(size / stride) results."""
    reach = dilation * (kernel - 1) + 1
    if stride == 1:
        return reach - 1
    if not isinstance(size, IntImm):
        raise FrontendError(
            f"auto_pad: the padding of an axis of {size} elements in steps of {stride} is known "
            "only at run time; give that size by shape_dict"
        )
    return max(0, (-(-size.value // stride) - 1) * stride + reach - size.value)


def _before_and_behind(totals: list[int], more_behind: bool) -> tuple[int, ...]:
    less, more = [t // 2 for t in totals], [t - t // 2 for t in totals]
    return (*less, *more) if more_behind else (*more, *less)


# By the number of axes.
_CONV = {1: op.nn.conv1d, 2: op.nn.conv2d, 3: op.nn.conv3d}
_TRANSPOSE = {1: op.nn.conv1d_transpose, 2: op.nn.conv2d_transpose, 3: op.nn.conv3d_transpose}
_MAX_POOL_INDICES = {
    1: op.nn.max_pool1d_with_indices,
    2: op.nn.max_pool2d_with_indices,
    3: op.nn.max_pool3d_with_indices,
}
_MAX_POOL = {1: op.nn.max_pool1d, 2: op.nn.max_pool2d, 3: op.nn.max_pool3d}
_AVG_POOL = {1: op.nn.avg_pool1d, 2: op.nn.avg_pool2d, 3: op.nn.avg_pool3d}


# -- convolutions ----------------------------------------------------------------------------------


def _sliding(
    x: Any,
    weight: Any,
    *,
    auto_pad: str = "NOTSET",
    dilations: Ints = None,
    group: int = 1,
    kernel_shape: Ints = None,
    pads: Ints = None,
    strides: Ints = None,
) -> tuple[Window, int]:
    """The window of a convolution, and its groups."""
    kernel = _kernel(weight, kernel_shape)
    return _window(x, kernel, strides, dilations, pads, auto_pad), group


@onnx("Conv")
@passes_on(_sliding)
def conv(node: Any, x: Any, weight: Any, bias: Any = None, **sliding: Any) -> Any:
    window, group = _sliding(x, weight, **sliding)
    convolve = _CONV[window.axes]
    y = convolve(x, weight, window.strides, window.padding, window.dilations, group)
    return y if bias is None else op.add(y, _by_channel(bias, window.axes))


def _kernel(weight: Any, wanted: Any) -> list[int]:
    sizes = [getattr(d, "value", None) for d in dims_of(weight)[2:]]
    if wanted is not None and list(wanted) != sizes:
        raise FrontendError(f"attribute kernel_shape: the weight's is {sizes}, got {list(wanted)}")
    if None in sizes:
        raise FrontendError(f"the kernel's size must be known, got {dims_of(weight)}")
    return cast("list[int]", sizes)


def _by_channel(bias: Any, axes: int) -> Any:
    return op.expand_dims(bias, tuple(range(1, axes + 1)))


@onnx("ConvTranspose")
def conv_transpose(
    node: Any,
    x: Any,
    weight: Any,
    bias: Any = None,
    *,
    auto_pad: str,
    dilations: Any,
    group: int,
    kernel_shape: Any,
    output_padding: Any,
    output_shape: Any,
    pads: Any,
    strides: Any,
) -> Any:
    window = _window(x, _kernel(weight, kernel_shape), strides, dilations, pads)
    extra = tuple(output_padding or (0,) * window.axes)
    padding = window.padding
    same = auto_pad in ("SAME_UPPER", "SAME_LOWER")
    if output_shape or same:
        sizes = _known_sizes(x, "output_shape")
        wanted = output_shape or [n * s for n, s in zip(sizes, window.strides)]
        totals = [
            s * (n - 1) + e + d * (k - 1) + 1 - w
            for n, s, e, d, k, w in zip(
                sizes,
                window.strides,
                extra,
                window.dilations,
                window.kernel,
                wanted[-window.axes :],
            )
        ]
        # What is missing is added behind, where nothing was computed.
        extra = tuple(e + max(0, -t) for e, t in zip(extra, totals))
        totals = [max(0, t) for t in totals]
        padding = _before_and_behind(totals, auto_pad == "SAME_UPPER")
    transpose = _TRANSPOSE[window.axes]
    # relax.op takes no more behind than a step; the rest are rows of zeros.
    most = [max(s, d) - 1 for s, d in zip(window.strides, window.dilations)]
    rest = [max(0, e - m) for e, m in zip(extra, most)]
    inside = tuple(min(e, m) for e, m in zip(extra, most))
    y = transpose(x, weight, window.strides, padding, inside, window.dilations, group)
    if any(rest):
        y = op.nn.pad(y, (0, 0, 0, 0, *(w for r in rest for w in (0, r))))
    return y if bias is None else op.add(y, _by_channel(bias, window.axes))


def _known_sizes(x: Any, what: str) -> list[int]:
    return _numbers_of(dims_of(x)[2:], what)


def _numbers_of(dims: Sequence[Any], what: str) -> list[int]:
    sizes = [d.value for d in map(simplified, dims) if isinstance(d, IntImm)]
    if len(sizes) < len(dims):
        raise FrontendError(f"{what}: the sizes of the data must be known, got {dims}")
    return sizes


@onnx("DeformConv", since=19)
def deform_conv(
    node: Any,
    x: Any,
    weight: Any,
    offset: Any,
    bias: Any = None,
    mask: Any = None,
    *,
    dilations: Any,
    group: int,
    kernel_shape: Any,
    offset_group: int,
    pads: Any,
    strides: Any,
) -> Any:
    window = _flat_window(x, _kernel(weight, kernel_shape), strides, dilations, pads)
    y = op.nn.deformable_conv2d(
        x,
        offset,
        weight,
        mask,
        window.strides,
        window.padding,
        window.dilations,
        offset_group,
        group,
    )
    return y if bias is None else op.add(y, _by_channel(bias, 2))


@onnx("Col2Im", since=18)
def col2im(
    node: Any,
    x: Any,
    image_shape: Any,
    block_shape: Any,
    *,
    dilations: Any,
    pads: Any,
    strides: Any,
) -> Any:
    block = node.ints(block_shape, "block_shape")
    image = shape_expr(node.sizes(image_shape, "image_shape"))
    return op.nn.col2im(x, image, block, strides or 1, pads or 0, dilations or 1)


@onnx("ConvInteger", since=10)
@passes_on(_sliding)
def conv_integer(
    node: Any,
    x: Any,
    weight: Any,
    x_zero: Any = None,
    w_zero: Any = None,
    **sliding: Any,
) -> Any:
    window, group = _sliding(x, weight, **sliding)
    x, weight, window, rows = _in_two_axes(x, weight, window)
    zeros = [None if z is None else scalar_if_one(z) for z in zero_points(x, x_zero, w_zero)]
    y = op.conv2d_integer(
        x,
        weight,
        *zeros,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        groups=group,
    )
    return op.squeeze(y, rows) if rows else y


@onnx("QLinearConv", since=10)
@passes_on(_sliding)
def qlinear_conv(
    node: Any,
    x: Any,
    x_scale: Any,
    x_zero: Any,
    weight: Any,
    w_scale: Any,
    w_zero: Any,
    y_scale: Any,
    y_zero: Any,
    bias: Any = None,
    **sliding: Any,
) -> Any:
    window, group = _sliding(x, weight, **sliding)
    x, weight, window, rows = _in_two_axes(x, weight, window)
    y = op.qlinear_conv2d(
        x,
        *map(scalar_if_one, (x_scale, x_zero)),
        weight,
        *map(scalar_if_one, (w_scale, w_zero, y_scale, y_zero)),
        bias,
        strides=window.strides,
        padding=window.padding,
        dilation=window.dilations,
        groups=group,
    )
    return op.squeeze(y, rows) if rows else y


def _in_two_axes(x: Any, weight: Any, window: Window) -> tuple[Any, Any, Window, tuple[int, ...]]:
    """A convolution over one axis as one over two, with one row; and the axes to take out of its
    result.
    """
    if window.axes != 1:
        return x, weight, _want_two(window), ()
    before, behind = window.padding
    sizes = (1, *window.kernel), (1, *window.strides), (1, *window.dilations)
    flat = Window(*sizes, (0, before, 0, behind))
    return op.expand_dims(x, 2), op.expand_dims(weight, 2), flat, (2,)


def _flat_window(x: Any, *rest: Any) -> Window:
    return _want_two(_window(x, *rest))


def _want_two(window: Window) -> Window:
    if window.axes != 2:
        raise FrontendError(f"its windows over {window.axes} axes are not imported yet")
    return window


def scalar_if_one(x: Any) -> Any:
    """A vector of one element as a scalar."""
    return op.reshape(x, ()) if [getattr(d, "value", 0) for d in dims_of(x)] == [1] else x


# -- pooling ---------------------------------------------------------------------------------------


@onnx("MaxPool")
def max_pool(
    node: Any,
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: Any = 0,
    dilations: Any = None,
    kernel_shape: Any,
    pads: Any,
    storage_order: Any = 0,
    strides: Any,
) -> Any:
    window = _window(x, kernel_shape, strides, dilations, pads, auto_pad)
    settings = (x, window.kernel, window.strides, window.padding, window.dilations, bool(ceil_mode))
    if not node.wants(1):
        return _MAX_POOL[window.axes](*settings)
    both = node.emit(_MAX_POOL_INDICES[window.axes](*settings))
    sizes = dims_of(x)[2:]
    places: Any = TupleGetItem(both, 1)
    if storage_order:
        # Along the axes in the opposite order.
        left, turned = node.emit(places), []
        for k in reversed(range(window.axes)):
            digit = op.floor_mod(left, _number(sizes[k]))
            left = node.emit(op.floor_divide(left, _number(sizes[k])))
            turned.append(op.multiply(digit, _number(product(sizes[:k]))))
        places = functools.reduce(op.add, turned)
    n, c = dims_of(x)[:2]
    begins = op.multiply(op.arange(product((n, c))), _number(product(sizes)))
    begins = op.reshape(begins, shape_expr([n, c, *(1,) * window.axes]))
    return [TupleGetItem(both, 0), op.add(places, begins)]


def _number(size: Any) -> Any:
    """A size as a tensor."""
    return op.full((), PrimValue(as_size(size)), "int64")


@onnx("MaxUnpool", since=9)
def max_unpool(
    node: Any,
    x: Any,
    indices: Any,
    output_shape: Any = None,
    *,
    kernel_shape: Any,
    pads: Any,
    strides: Any,
) -> Any:
    window = _window(x, kernel_shape, strides, None, pads)
    sizes = [
        (d - 1) * s + (k - before - behind)
        for d, s, k, before, behind in zip(
            dims_of(x)[2:],
            window.strides,
            window.kernel,
            window.padding[: window.axes],
            window.padding[window.axes :],
        )
    ]
    dims = [*dims_of(x)[:2], *sizes]
    count = (product(dims_of(x)),)
    zeros = op.zeros(shape_expr([product(dims)]), dtype_of(x))
    flat = op.reshape(indices, shape_expr(count)), op.reshape(x, shape_expr(count))
    y = op.reshape(op.scatter_elements(zeros, *flat, 0), shape_expr(dims))
    if output_shape is None:
        return y
    wanted = node.ints(output_shape, "output_shape")
    more = [w - s for w, s in zip(wanted[2:], _numbers_of(dims[2:], "output_shape"))]
    return op.nn.pad(y, (0, 0, 0, 0, *(w for m in more for w in (0, m))))


@onnx("AveragePool")
def average_pool(
    node: Any,
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: Any = 0,
    count_include_pad: Any = 0,
    dilations: Any = None,
    kernel_shape: Any,
    pads: Any,
    strides: Any,
) -> Any:
    window = _window(x, kernel_shape, strides, dilations, pads, auto_pad)
    pool = _AVG_POOL[window.axes]
    return pool(
        x,
        window.kernel,
        window.strides,
        window.padding,
        window.dilations,
        bool(ceil_mode),
        bool(count_include_pad),
    )


@onnx("LpPool")
def lp_pool(
    node: Any,
    x: Any,
    *,
    auto_pad: str,
    ceil_mode: Any = 0,
    dilations: Any = None,
    kernel_shape: Any,
    p: float,
    pads: Any,
    strides: Any,
) -> Any:
    window = _window(x, kernel_shape, strides, dilations, pads, auto_pad)
    dtype, count, padding = dtype_of(x), window.axes, window.padding
    before, behind = padding[:count], padding[count:]
    # An average divides by all of a window only where it hangs over nothing: what ceil_mode lets
    # it hang over is padding here.
    more = [s - 1 if ceil_mode else 0 for s in window.strides]
    mean = _AVG_POOL[count](
        op.power(op.abs(x), const(float(p), dtype)),
        window.kernel,
        window.strides,
        (*before, *(b + m for b, m in zip(behind, more))),
        window.dilations,
        False,
        True,
    )
    if any(more):
        settings = zip(window.kernel, window.strides, before, behind, window.dilations)
        sizes = [window_count(n, *s, True) for n, s in zip(dims_of(x)[2:], settings)]
        axes = tuple(range(2, count + 2))
        mean = op.strided_slice(mean, axes, (0,) * count, [simplified(n) for n in sizes])
    total = op.multiply(mean, const(float(np.prod(window.kernel)), dtype))
    return op.power(total, const(1.0 / p, dtype))


def _over_all(reduce: Any) -> Any:
    def translate(node: Any, x: Any) -> Any:
        return reduce(x, tuple(range(2, len(dims_of(x)))), True)

    return translate


add("GlobalAveragePool", _over_all(op.mean))
add("GlobalMaxPool", _over_all(op.max))


@onnx("GlobalLpPool")
def global_lp_pool(node: Any, x: Any, *, p: float) -> Any:
    axes = tuple(range(2, len(dims_of(x))))
    dtype = dtype_of(x)
    total = op.sum(op.power(op.abs(x), const(float(p), dtype)), axes, True)
    return op.power(total, const(1.0 / p, dtype))


# -- pictures --------------------------------------------------------------------------------------


@onnx("Resize", since=11)
def resize(
    node: Any,
    x: Any,
    roi: Any = None,
    scales: Any = None,
    sizes: Any = None,
    *,
    antialias: Any = 0,
    axes: Any = None,
    coordinate_transformation_mode: str,
    cubic_coeff_a: float,
    exclude_outside: int,
    extrapolation_value: float,
    keep_aspect_ratio_policy: Any = "stretch",
    mode: str,
    nearest_mode: str,
) -> Any:
    dims = dims_of(x)
    along = list(range(len(dims))) if axes is None else [a % len(dims) for a in axes]
    have = [dims[k] for k in along]
    factors: Any = None
    if sizes is not None and getattr(dims_of(sizes)[0], "value", None) != 0:
        target: Any = node.sizes(node.sized(sizes, len(along)), "sizes")
        if keep_aspect_ratio_policy != "stretch":
            factors = _in_proportion(node, have, target, keep_aspect_ratio_policy)
            target = _times(node, have, factors, 0.5)
    elif scales is not None:
        factors = scales
        if not node.is_known(scales):
            target = _times(node, have, scales, 0.0)
        else:
            numbers = node.known(scales, "scales").reshape(-1)
            target = [_scaled(n, float(f)) for n, f in zip(have, numbers)]
    else:
        raise node.error("wanted scales or sizes")
    computed = factors is not None and not node.is_known(factors)
    if factors is not None and not computed:
        factors = [float(f) for f in node.known(factors, "scales").reshape(-1)]
        if len(factors) != len(along):
            raise node.error(f"wanted a scale for each of {len(along)} axes, got {len(factors)}")
    ends = [(0.0, 0.0)] * len(along)
    if coordinate_transformation_mode == "tf_crop_and_resize":
        begins = node.known(roi, "roi").astype("float64").reshape(2, -1)
        ends = [(float(a), float(b)) for a, b in begins.T]
    ways = [
        (k, size, end, None if factors is None or computed else factors[i])
        for i, (k, size, end) in enumerate(zip(along, target, ends))
        if not structural_equal(dims[k], as_size(size))
        or end not in ((0.0, 0.0), (0.0, 1.0))
        or computed
        or (factors is not None and factors[i] != 1.0)
    ]
    if not ways:
        return x
    quotients = (f is None or _is_quotient(dims[k], size, f) for k, size, _, f in ways)
    exact = computed or all(quotients)
    # Between integers lines are cut off, as in onnxruntime, and the rest is rounded.
    dtype = dtype_of(x)
    rounded = (bool(antialias) or mode == "cubic") and not dtype.is_float
    y = op.image.resize(
        op.astype(x, "float32") if rounded else x,
        shape_expr([w[1] for w in ways]),
        factors if computed else None,
        tuple(w[0] for w in ways),
        None if exact else tuple(w[3] for w in ways),
        (*(w[2][0] for w in ways), *(w[2][1] for w in ways)),
        {"nearest": "nearest_neighbor"}.get(mode, mode),
        coordinate_transformation_mode,
        nearest_mode if mode == "nearest" else "",
        cubic_coeff_a,
        exclude_outside,
        extrapolation_value,
        bool(antialias),
    )
    if not rounded:
        return y
    low, high = (const(float(v), "float32") for v in (dtype.min_value, dtype.max_value))
    return op.astype(op.minimum(op.maximum(op.round(y), low), high), dtype)


def _scaled(size: Any, factor: float) -> Any:
    """floor(size * factor)."""
    if factor == 1.0:
        return size
    above, below = factor.as_integer_ratio()
    return size.value * above // below if isinstance(size, IntImm) else size * above // below


def _is_quotient(size: Any, target: Any, factor: Any) -> bool:
    """Whether `target` is exactly `factor` times `size`."""
    if isinstance(size, IntImm):
        return bool(getattr(target, "value", target) == size.value * factor)
    return bool(factor == int(factor))


def _numbers(node: Any, dims: Sequence[Any]) -> Any:
    return node.emit(op.astype(op.shape_to_tensor(shape_expr(dims)), "float64"))


def _times(node: Any, dims: Sequence[Any], factors: Any, more: float) -> Any:
    """floor(size * factor + more) of each, which the program computes."""
    wide = op.multiply(_numbers(node, dims), op.astype(factors, "float64"))
    whole = op.floor(op.add(wide, const(more, "float64")))
    return node.sizes(node.emit(op.astype(whole, "int64")), "resized")


def _in_proportion(node: Any, dims: Sequence[Any], target: Sequence[Any], policy: str) -> Any:
    """The factors that keep proportions: none makes larger, or none smaller, than `target`."""
    choose = {"not_larger": op.min, "not_smaller": op.max}.get(policy)
    if choose is None:
        raise node.error(
            f"keep_aspect_ratio_policy: wanted stretch, not_larger or not_smaller, got {policy!r}"
        )
    factor = choose(op.divide(_numbers(node, target), _numbers(node, dims)))
    return node.emit(op.broadcast_to(factor, (len(dims),)))


@onnx("Upsample", since=9)
def upsample(node: Any, x: Any, scales: Any, *, mode: str) -> Any:
    return resize(
        node,
        x,
        None,
        scales,
        coordinate_transformation_mode="asymmetric",
        cubic_coeff_a=-0.75,
        exclude_outside=0,
        extrapolation_value=0.0,
        mode="linear" if mode == "bilinear" else mode,
        nearest_mode="floor",
    )


onnx("Resize", since=10)(upsample)


@onnx("Upsample", since=7)
def upsample_7(node: Any, x: Any, *, mode: str, scales: Any) -> Any:
    return upsample(node, x, const(np.array(scales, "float32")), mode=mode)


@onnx("Upsample", since=1)
def upsample_1(node: Any, x: Any, *, height_scale: float, mode: str, width_scale: float) -> Any:
    return upsample_7(node, x, mode=mode, scales=(1.0, 1.0, height_scale, width_scale))


@onnx("GridSample", since=16)
def grid_sample(
    node: Any, x: Any, grid: Any, *, align_corners: int, mode: str, padding_mode: str
) -> Any:
    layout = {4: "NCHW", 5: "NCDHW"}.get(len(dims_of(x)))
    if layout is None:
        raise node.error(f"wanted pictures of two or three axes, got {x.struct_info}")
    method = {"linear": "bilinear", "cubic": "bicubic"}.get(mode, mode)
    dtype = dtype_of(x)
    wide = x if dtype.is_float else op.astype(x, "float64")
    y = op.image.grid_sample(wide, grid, method, layout, padding_mode, bool(align_corners))
    return y if dtype.is_float else op.astype(y, dtype)


@onnx("RoiAlign", since=10)
def roi_align(
    node: Any,
    x: Any,
    rois: Any,
    batch: Any,
    *,
    coordinate_transformation_mode: Any = "output_half_pixel",
    mode: str,
    output_height: int,
    output_width: int,
    sampling_ratio: int,
    spatial_scale: float,
) -> Any:
    numbered = op.concat([op.expand_dims(op.astype(batch, dtype_of(rois)), 1), rois], 1)
    return op.vision.roi_align(
        x,
        numbered,
        (output_height, output_width),
        spatial_scale,
        sampling_ratio,
        coordinate_transformation_mode == "half_pixel",
        mode={"max": "max_corner"}.get(mode, mode),
    )


@onnx("NonMaxSuppression", since=10)
def non_max_suppression(
    node: Any,
    boxes: Any,
    scores: Any,
    most: Any = None,
    iou: Any = None,
    score: Any = None,
    *,
    center_point_box: int,
) -> Any:
    numbers = (
        0 if most is None else most,
        0.0 if iou is None else iou,
        float("-inf") if score is None else score,
    )
    kept = op.vision.non_max_suppression(boxes, scores, *numbers, center_point_box)
    return node.sized(kept, None, 3)
