"""Windows as columns: col2im adds columns up to images, deformable_conv2d multiplies columns that
are read where an offset says.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base import UNKNOWN, Span, StructInfoError, VMValueError
from ....ir import EQ, GE, LT, FloorDiv, FloorMod, PrimExpr, cast, const
from ....te import Tensor, compute, reduce_axis
from ....te import sum as te_sum
from ....tir import all as all_of
from ...expr import Call
from ...expr import const as constant
from ...rules import Ops
from ...struct_info import Expr, ShapeExpr, StructInfo
from ..faces import prepared
from ..infer import FLOAT, NUMBER, dims_product, known_sizes, shape_argument, shaped, tensor
from ..lower import rounded, te_lower, wide_dtype
from ..names import ops as all_ops
from ..record import Shape, op
from ..sizes import want_equal, want_multiple
from .window import padding_of, positive_dim, simple, spread, static, window_count

# -- col2im ----------------------------------------------------------------------------------------


def _settings(values: dict[str, Any]) -> int:
    """The attributes checked and brought into one form; how many axes there are."""
    block = values["block_shape"]
    ndim = len(block) if isinstance(block, tuple) else 1
    values["block_shape"] = spread(block, ndim, "block_shape")
    for name in ("strides", "dilation"):
        values[name] = spread(values[name], ndim, name)
    values["padding"] = padding_of(values["padding"], ndim)
    return ndim


def _counts(image: Sequence[Any], attrs: dict[str, Any]) -> list[Any]:
    """How many windows there are along each axis."""
    ndim, padding = len(image), attrs["padding"]
    return [
        window_count(
            size, attrs["block_shape"][k], attrs["strides"][k], padding[k], padding[ndim + k],
            attrs["dilation"][k],
        )
        for k, size in enumerate(image)
    ]  # fmt: skip


def _col2im_te(data: Tensor, image_shape: list[PrimExpr], **attrs: Any) -> Tensor:
    block, strides, dilation = (attrs[n] for n in ("block_shape", "strides", "dilation"))
    counts = [simple(c) for c in _counts(image_shape, attrs)]
    taps = [reduce_axis((0, b), f"k{k}") for k, b in enumerate(block)]
    wide = wide_dtype(data.dtype)

    def value(n: PrimExpr, c: PrimExpr, *place: PrimExpr) -> PrimExpr:
        row, column, inside = c, const(0, "int64"), []
        for k, tap in enumerate(taps):
            begin = place[k] + attrs["padding"][k] - cast(place[k].dtype, tap.var) * dilation[k]
            step = const(strides[k], begin.dtype)
            window = FloorDiv(begin, step)
            inside += [GE(begin, const(0, begin.dtype)), LT(window, counts[k])]
            if strides[k] > 1:
                inside.append(EQ(FloorMod(begin, step), const(0, begin.dtype)))
            row, column = row * block[k] + cast(row.dtype, tap.var), column * counts[k] + window
        return te_sum(cast(wide, data(n, row, column)), taps, all_of(*inside))

    channels = FloorDiv(data.shape[1], const(math.prod(block), "int64"))
    shape = (data.shape[0], simple(channels), *image_shape)
    return rounded(compute(shape, value, "col2im"), data.dtype)


def _col2im_numpy(data: np.ndarray, image_shape: Sequence[int], **attrs: Any) -> np.ndarray:
    block, strides, dilation = (attrs[n] for n in ("block_shape", "strides", "dilation"))
    counts, ndim = _counts([int(s) for s in image_shape], attrs), len(block)
    if min(counts) < 0 or data.shape[2] != math.prod(counts):
        raise VMValueError(f"col2im: wanted columns of {counts} windows, got {data.shape[2]}")
    wide = {"float16": "float32", "float32": "float64"}.get(data.dtype.name, data.dtype.name)
    columns = data.reshape(len(data), data.shape[1] // math.prod(block), *block, *counts)
    before, after = attrs["padding"][:ndim], attrs["padding"][ndim:]
    padded = [s + b + a for s, b, a in zip(image_shape, before, after)]
    total = np.zeros((*columns.shape[:2], *padded), wide)
    for tap in itertools.product(*map(range, block)):
        index: Any = [
            slice(t * d, t * d + n * s, s) if n else slice(0, 0)
            for t, d, n, s in zip(tap, dilation, counts, strides)
        ]
        own: Any = (slice(None), slice(None), *tap)
        total[(slice(None), slice(None), *index)] += columns[own]
    inner = [slice(b, b + s) for b, s in zip(before, image_shape)]
    return total[(slice(None), slice(None), *inner)].astype(data.dtype)


def _col2im_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    """Windows as columns: a convolution with a weight for each element of a window, which is 1
    there.
    """
    attrs, info = call.attrs, tensor(call.args[0], "data")
    block = attrs["block_shape"]
    if len(block) > 3:
        raise StructInfoError("nn.col2im: its gradient is taken over three axes at most")
    image = shape_argument(call.args[1], "image_shape").values
    one, rows = known_sizes(gy)[:2]
    taken = np.eye(math.prod(block)).reshape(-1, 1, *block)
    convolve = (ops.nn.conv1d, ops.nn.conv2d, ops.nn.conv3d)[len(block) - 1]
    columns = convolve(
        ops.reshape(gy, ShapeExpr([one * rows, const(1, "int64"), *image])),
        constant(taken, info.dtype), strides=attrs["strides"], padding=attrs["padding"],
        dilation=attrs["dilation"],
    )  # fmt: skip
    return ops.reshape(columns, ShapeExpr(known_sizes(call.args[0]))), None


@prepared(_settings)
@op("nn.col2im", _col2im_numpy, te_lower(_col2im_te), _col2im_grad)
def col2im(
    data: Expr,
    image_shape: Shape,
    block_shape: Any,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
) -> StructInfo:
    """The sum of windows that lie over one another, given as columns; torch's fold.

    data         [n, c * elements of a window, windows], both in row-major order
    image_shape  the spatial sizes of the result, [n, c, *image_shape]
    block_shape  the size of a window; for other attributes see `max_pool2d`
    Raises StructInfoError if the image has not as many windows as data.
    """
    attrs = {
        "block_shape": block_shape, "strides": strides, "padding": padding, "dilation": dilation
    }  # fmt: skip
    ndim = _settings(attrs)
    info, image = tensor(data, "data", NUMBER, 3), shape_argument(image_shape, "image_shape").values
    if len(image) != ndim:
        raise StructInfoError(f"image_shape: wanted {ndim} sizes, as block_shape has; got {image}")
    each = math.prod(attrs["block_shape"])
    want_multiple(info.dims[1], each, "data has {size} rows; wanted a multiple of {n}", n=each)
    counts = [positive_dim(c, "image_shape: a window on the image") for c in _counts(image, attrs)]
    text = "data has {a} windows; the image has {b}"
    want_equal(info.dims[2], simple(dims_product(counts)), text)
    return shaped(info, [info.dims[0], info.dims[1] // each, *image])


# -- deformable convolution ------------------------------------------------------------------------


def deformable_conv2d(
    data: Expr, offset: Expr, weight: Expr, mask: Expr | None = None, strides: Any = 1,
    padding: Any = 0, dilation: Any = 1, deformable_groups: int = 1, groups: int = 1,
    span: Span = UNKNOWN,
) -> Call:  # fmt: skip
    """A convolution whose windows' elements are read between pixels, `offset` beside their places;
    outside of the data is 0. An expression of several operators.

    data    [n, c, h, w]      weight  [o, c // groups, kh, kw]
    offset  [n, deformable_groups * kh * kw * 2, ho, wo]: down, then right
    mask    [n, deformable_groups * kh * kw, ho, wo]: what is read is multiplied by it
    returns [n, o, ho, wo]
    Raises StructInfoError if shapes or dtypes do not fit.
    """
    x, o, w = (
        tensor(e, f"deformable_conv2d: {name}", FLOAT, 4)
        for e, name in ((data, "data"), (offset, "offset"), (weight, "weight"))
    )
    for e, name in ((data, "data"), (offset, "offset"), (weight, "weight")):
        known_sizes(e, f"deformable_conv2d: {name}")
    window = [static(d) for d in w.dims[2:]]
    if None in window:
        raise StructInfoError(f"deformable_conv2d: weight: wanted a window of known size, got {w}")
    kh, kw = (int(k) for k in window if k is not None)
    (sh, sw), (dh, dw) = spread(strides, 2, "strides"), spread(dilation, 2, "dilation")
    top, left, bottom, right = padding_of(padding, 2)
    (n, c, h, wide), (ho, wo), k, dg = x.dims, o.dims[2:], kh * kw, deformable_groups
    text = "deformable_conv2d: offset: wanted {b} {what}, got {a}"
    want_equal(o.dims[1], const(dg * k * 2, "int64"), text, what="numbers for each place")
    want_equal(ho, window_count(h, kh, sh, top, bottom, dh), text, what="rows")
    want_equal(wo, window_count(wide, kw, sw, left, right, dw), text, what="columns")
    text = "deformable_conv2d: data has {size} channels; wanted a multiple of {n}"
    for n_groups in (dg, groups):
        want_multiple(c, n_groups, text, n=n_groups)

    def places(count: PrimExpr, step: int, begin: int, of_tap: Any, last: bool) -> Expr:
        """[k, ho, wo, 1]: where the elements of windows are without an offset."""
        shape = (1, 1, count, 1) if last else (1, count, 1, 1)
        along = all_ops.arange(const(-begin, "int64"), count * step - begin, step)
        along = all_ops.reshape(all_ops.astype(along, o.dtype), ShapeExpr(shape))
        each = constant(np.reshape(of_tap, (k, 1, 1, 1)), o.dtype)
        return all_ops.broadcast_to(all_ops.add(along, each), ShapeExpr([k, ho, wo, 1]))

    down = places(ho, sh, top, np.arange(k) // kw * dh, False)
    across = places(wo, sw, left, np.arange(k) % kw * dw, True)
    beside = all_ops.reshape(offset, ShapeExpr([n * dg, k, 2, ho, wo]))
    beside = all_ops.flip(all_ops.permute_dims(beside, (0, 1, 3, 4, 2)), -1)
    grid = all_ops.add(beside, all_ops.concat([across, down], -1))
    grid = all_ops.reshape(grid, ShapeExpr([n * dg, simple(ho * k), wo, 2]))
    pictures = all_ops.reshape(data, ShapeExpr([n * dg, simple(c // dg), h, wide]))
    columns = all_ops.image.grid_sample(pictures, grid, in_pixels=True)
    if mask is not None:
        columns = all_ops.reshape(columns, ShapeExpr([n, dg, simple(c // dg), k, simple(ho * wo)]))
        weights = all_ops.reshape(mask, ShapeExpr([n, dg, 1, k, simple(ho * wo)]))
        columns = all_ops.multiply(columns, weights)
    inner = simple(c // groups * k)
    columns = all_ops.reshape(columns, ShapeExpr([n, groups, inner, simple(ho * wo)]))
    outputs = simple(w.dims[0] // groups)
    factors = all_ops.reshape(weight, ShapeExpr([groups, outputs, inner]))
    result = all_ops.reshape(
        all_ops.matmul(factors, columns), ShapeExpr([n, w.dims[0], ho, wo]), span=span
    )
    assert isinstance(result, Call)
    return result
