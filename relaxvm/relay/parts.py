"""What Relay's operators are written with: its words for axes, shapes, slices and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from .. import topi as _topi
from ..base import StructInfoError
from ..base import dtype as as_dtype
from ..ir import IntImm
from ..relax import Expr, TensorStructInfo, Tuple, TupleGetItem, TupleStructInfo, VDevice, const
from ..relax import op as _ops
from ..runtime import device_name

ops: Any = _ops
topi: Any = _topi


def dtype_of(x: Any) -> Any:
    """The dtype of a tensor."""
    return x.struct_info.dtype


def axes_but(data: Any, axis: Any, exclude: bool) -> Any:
    """`axis`, or with `exclude` all others."""
    if not exclude:
        return axis
    ndim = data.struct_info.ndim
    if ndim < 0:
        raise StructInfoError("exclude: the rank of the argument must be known")
    named = {a % ndim for a in ([axis] if isinstance(axis, int) else axis or ())}
    return tuple(a for a in range(ndim) if a not in named)


def of_axis(*names: str) -> Any:
    """The rule that these arguments have a number for each place along `axis` of the data."""

    def rule(a: Any) -> dict[str, Any]:
        dims = a.data.struct_info.dims
        known = -len(dims) <= a.axis < len(dims)
        return dict.fromkeys(names, (dims[a.axis],)) if known else {}

    return rule


def one_axis(axis: Any) -> Any:
    """A list of one axis as that axis."""
    return axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis


def of_bools(operator: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """A reduction of bools by one of integers."""
    return ops.astype(operator(ops.astype(x, as_dtype("int8")), axis, keepdims), as_dtype("bool"))


def placed(operator: Any, data: Any, axis: Any, keepdims: bool, last: bool) -> Any:
    """`topi`'s argmax or argmin; along several axes, the place in the product of them."""
    if isinstance(axis, int) or axis is None or len(axis) == 1:
        return operator(data, one_axis(axis), keepdims, last)
    dims = data.struct_info.dims
    axes = sorted({a % len(dims) for a in axis})
    rest = [a for a in range(len(dims)) if a not in axes]
    joined = ops.reshape(ops.permute_dims(data, rest + axes), [*(dims[a] for a in rest), -1])
    place = operator(joined, -1, False, last)
    return ops.expand_dims(place, axes) if keepdims else place


def variance_of(data: Any, axis: Any, keepdims: bool, unbiased: bool, with_mean: Any = None) -> Any:
    """The variance about the mean, or `with_mean`; `unbiased`: of a sample, by one less than the
    number of elements.
    """
    if with_mean is None:
        biased = ops.variance(data, axis, keepdims)
    else:
        off = ops.subtract(data, with_mean)
        biased = ops.mean(ops.multiply(off, off), axis, keepdims)
    if not unbiased:
        return biased
    dims = data.struct_info.dims
    count: Any = 1
    for a in range(len(dims)) if axis is None else [axis] if isinstance(axis, int) else axis:
        count = count * dims[a]
    sizes = [ops.full((), n, "int64") for n in (count, count - 1)]
    whole, less = (ops.astype(n, dtype_of(data)) for n in sizes)
    return ops.multiply(biased, ops.divide(whole, less))


def new_axes(data: Any, axis: int, num_newaxis: int = 1) -> Any:
    """`num_newaxis` axes of size 1 from `axis` on."""
    first = axis if axis >= 0 else data.struct_info.ndim + axis + 1
    return ops.expand_dims(data, tuple(range(first, first + num_newaxis)))


def reshaped(data: Any, newshape: Any, allowzero: bool = False) -> Any:
    """`data` in another shape: sizes, or Relay's codes. 0 keeps a size, -1 is what is left, -2
    keeps the rest, -3 joins two, -4 splits one into the two that follow.
    """
    newshape = ints(newshape)
    if isinstance(newshape, Expr):
        return ops.reshape(data, shape_of(newshape))
    newshape = [newshape] if isinstance(newshape, int) else list(newshape)
    codes = [s for s in newshape if isinstance(s, int) and (s < -1 or (s == 0 and not allowzero))]
    if any(code < -4 for code in codes):
        raise StructInfoError(f"reshape: wanted sizes, or codes from -4 to 0, got {newshape}")
    if codes:
        try:
            newshape = _decoded(data.struct_info.dims, newshape)
        except StopIteration:
            raise StructInfoError(
                f"reshape: {newshape} takes other axes than {data.struct_info} has"
            ) from None
    return ops.reshape(data, newshape)


def _decoded(dims: Sequence[Any], codes: Sequence[Any]) -> list[Any]:
    """Raises StopIteration where there are too few sizes or codes."""
    left, rest, sizes = iter(dims), iter(codes), list[Any]()
    for code in rest:
        plain = code if isinstance(code, int) else None
        if plain == 0:
            sizes.append(next(left))
        elif plain == -2:
            sizes += left
        elif plain == -3:
            sizes.append(next(left) * next(left))
        elif plain == -4:
            whole, first, second = next(left), next(rest), next(rest)
            sizes.append(whole // second if first == -1 else first)
            sizes.append(whole // first if second == -1 else second)
        else:
            sizes.append(code)
            next(left, None)
    return sizes


def taken(
    data: Any, indices: Any, axis: int | None = None, batch_dims: int = 0, mode: str = "clip"
) -> Any:
    """Elements of `data` along `axis` (of all, if None); the first `batch_dims` axes of both are
    one.
    """
    if batch_dims == 0:
        return ops.take(data, indices, axis, mode)
    dims, own = data.struct_info.dims, indices.struct_info.dims
    batch = batch_dims + len(own) * (batch_dims < 0)
    axis = batch if axis is None else axis % len(dims)
    if not 0 <= batch <= min(axis, len(own)):
        raise StructInfoError(
            f"take: batch_dims: wanted at most {min(axis, len(own))} of axis {axis} and of "
            f"indices {indices.struct_info}, got {batch_dims}"
        )
    if mode == "clip":
        indices = ops.minimum(ops.maximum(indices, 0), ops.full_like(indices, dims[axis] - 1))
    elif mode == "wrap":
        indices = ops.floor_mod(indices, ops.full_like(indices, dims[axis]))
    count = 1
    for size in own[batch:]:
        count = count * size
    flat = [*own[:batch], *[1] * (axis - batch), count, *[1] * (len(dims) - axis - 1)]
    whole = [*dims[:axis], count, *dims[axis + 1 :]]
    places = ops.broadcast_to(ops.reshape(ops.astype(indices, as_dtype("int64")), flat), whole)
    elements = ops.gather_elements(data, places, axis)
    return ops.reshape(elements, [*dims[:axis], *own[batch:], *dims[axis + 1 :]])


def one_hot(indices: Any, on_value: Any, off_value: Any, depth: Any, axis: int, dtype: Any) -> Any:
    """`on_value` where an index is the place along the new `axis`, else `off_value`."""
    on, off, depth = one(on_value), one(off_value), int(one(depth))
    hot = topi.one_hot.__wrapped__
    if not isinstance(on, Expr) and not isinstance(off, Expr):
        return hot(indices, on, off, depth, axis, dtype)
    is_on = ops.astype(hot(indices, 1, 0, depth, axis, "int8"), as_dtype("bool"))
    values = [v if isinstance(v, Expr) else const(v, dtype) for v in (on, off)]
    return ops.where(is_on, *(ops.astype(v, as_dtype(dtype)) for v in values))


def chosen(condition: Any, x: Any, y: Any) -> Any:
    """`x` where the condition is not 0, else `y`."""
    if not dtype_of(condition).is_bool:
        condition = ops.not_equal(condition, const(0, dtype_of(condition)))
    return ops.where(condition, x, y)


def order(data: Any, axis: int = -1, is_ascend: bool = True, dtype: Any = "int32") -> Any:
    """The places that sort `data` along `axis`; floating ones, if `dtype` says so."""
    wanted = as_dtype(dtype)
    places = ops.argsort(data, axis, not is_ascend, "int32" if wanted.is_float else wanted)
    return ops.astype(places, wanted) if wanted.is_float else places


def rounded(data: Any) -> Any:
    """The nearest whole numbers; of two, the one away from zero."""
    if not dtype_of(data).is_float:
        return data
    whole = ops.trunc(data)
    half = ops.greater_equal(ops.abs(ops.subtract(data, whole)), const(0.5, dtype_of(data)))
    return ops.where(half, ops.add(whole, ops.sign(data)), whole)


def padded(data: Any, pad_width: Any, pad_value: Any = 0, pad_mode: str = "constant") -> Any:
    """`data` with elements before and after it along each axis."""
    widths, value = [w for pair in pad_width for w in pair], one(pad_value)
    if pad_mode != "constant" or not isinstance(value, Expr):
        return ops.nn.pad(data, widths, pad_mode, 0 if isinstance(value, Expr) else value)
    inside = ops.nn.pad(ops.ones_like(data), widths, "constant", 0)
    wide = ops.nn.pad(data, widths, "constant", 0)
    return chosen(inside, wide, ops.astype(value, dtype_of(data)))


def mirrored(data: Any, pad_width: Any, mode: str = "SYMMETRIC") -> Any:
    """`data` mirrored at its ends; at the outermost element if `mode` is "REFLECT", else beside
    it.
    """
    if mode != "SYMMETRIC":
        return ops.nn.pad(data, [w for pair in pad_width for w in pair], mode.lower())
    for axis, (before, after) in enumerate(pad_width):
        size = data.struct_info.dims[axis]
        if isinstance(size, IntImm) and size.value < max(before, after):
            raise StructInfoError(
                f"mirror_pad: wanted at most {size} elements on either side of axis {axis}, got "
                f"{(before, after)}"
            )
        ends = [
            ops.flip(ops.strided_slice(data, [axis], [first], [end]), axis)
            for first, end, width in ((0, before, before), (size - after, size, after))
            if width
        ]
        pieces = [*ends[: before > 0], data, *ends[before > 0 :]]
        data = ops.concat(pieces, axis) if ends else data
    return data


def slice_like(data: Any, shape_like: Any, axes: Any = None) -> Any:
    """The first elements of `data`, as many along `axes` (None: all) as `shape_like` has."""
    sizes = shape_like.struct_info.dims
    ndim = data.struct_info.ndim
    axes = [a % ndim for a in (range(ndim) if axes is None else axes)]
    sliced: Any = ops.strided_slice
    return sliced(data, axes, [0] * len(axes), [sizes[a] for a in axes])


def ints(value: Any) -> Any:
    """A constant vector of integers as a list of them; anything else as it is."""
    data = getattr(value, "data", None)
    return data.numpy().tolist() if data is not None and hasattr(data, "numpy") else value


def one(value: Any) -> Any:
    """A constant of one element as a number; anything else as it is."""
    plain = ints(value)
    return plain[0] if isinstance(plain, list) and len(plain) == 1 else plain


def shape_of(value: Any) -> Any:
    """A shape: sizes, or a vector of integers, perhaps known only when the program runs."""
    value = ints(value)
    if isinstance(value, Expr) and isinstance(value.struct_info, TensorStructInfo):
        return ops.tensor_to_shape(ops.astype(value, as_dtype("int64")))
    return [value] if isinstance(value, int) else value


def sizes(data: Any, dtype: Any) -> Any:
    """The shape of `data` as a vector."""
    vector: Any = ops.shape_to_tensor(ops.shape_of(data))
    return ops.astype(vector, as_dtype(dtype))


def filled(shape: Any, fill_value: Any, dtype: Any) -> Any:
    """A tensor of one value."""
    value = fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or "float32")
    return ops.full(shape_of(shape), value, dtype or None)


def device(given: Any) -> VDevice:
    """A device (or its name, or DLPack's number of its kind) as modules declare it."""
    if isinstance(given, VDevice):
        return given
    kind, index = device_name(getattr(given, "value", given))
    assert isinstance(index, int)
    return VDevice("llvm" if kind == "cpu" else kind, index)


def trunc_divide(lhs: Any, rhs: Any) -> Any:
    """Quotients without what comes after the point."""
    quotient: Any = ops.divide(lhs, rhs)
    return quotient if quotient.struct_info.dtype.is_int else ops.trunc(quotient)


def split(data: Any, indices_or_sections: Any, axis: int) -> Any:
    """`data` in parts along an axis: so many equal ones, or from some places on."""
    dims = data.struct_info.dims
    if isinstance(indices_or_sections, int) and dims and -len(dims) <= axis < len(dims):
        size = getattr(dims[axis], "value", None)
        if isinstance(size, int) and size % max(indices_or_sections, 1):
            count = indices_or_sections
            raise StructInfoError(f"split: axis {axis}, of size {size}, has no {count} equal parts")
    return ops.split(data, indices_or_sections, axis)


def sliced(
    data: Any,
    begin: Any,
    end: Any,
    strides: Any = None,
    axes: Any = None,
    slice_mode: str = "end",
) -> Any:
    """``data[begin:end:strides]`` along `axes`, or the first ones. With slice_mode "size", `end` is
    sizes, of which -1 is all that is left.
    """
    begin, end, strides = ints(begin), ints(end), ints(strides)
    if any(isinstance(each, Expr) for each in (begin, end, strides)):
        if axes is not None or slice_mode != "end":
            raise StructInfoError("strided_slice: places that are expressions go without axes")
        ndim = data.struct_info.ndim
        steps = const([1] * ndim, "int64") if strides is None else strides
        places = [e if isinstance(e, Expr) else const(e, "int64") for e in (begin, end, steps)]
        whole = [ops.astype(place, as_dtype("int64")) for place in places]
        return ops.dynamic_strided_slice(data, *whole)
    return topi.strided_slice.__wrapped__(data, begin, end, strides, axes, slice_mode, False)


def strided_set(data: Any, v: Any, begin: Any, end: Any, strides: Any = None) -> Any:
    """`data` with `v` at ``[begin:end:strides]``, along the first axes."""
    dims = data.struct_info.dims
    begin, end = ints(begin), ints(end)
    steps = ints(strides) or [1] * len(begin)
    lengths = [d.value for d in dims if isinstance(d, IntImm)]
    if len(lengths) < len(dims):
        raise StructInfoError(f"strided_set: wanted sizes that are known, got {data.struct_info}")
    pad = len(dims) - len(begin)
    slices = [slice(b, e, s) for b, e, s in zip(begin, end, steps)] + [slice(None)] * pad
    places = [np.arange(n)[part] for n, part in zip(lengths, slices)]
    grid = np.stack(np.meshgrid(*places, indexing="ij"), -1)
    values = ops.broadcast_to(v, grid.shape[:-1])
    return ops.scatter_nd(data, const(grid, "int64"), values)


def scatter_nd(data: Any, indices: Any, updates: Any, mode: str = "update") -> Any:
    """`data` with `updates` at `indices`, whose first axis says the place."""
    ndim = indices.struct_info.ndim
    last = ops.permute_dims(indices, [*range(1, ndim), 0])
    return ops.scatter_nd(data, ops.astype(last, as_dtype("int64")), updates, mode)


def sparse_to_dense(
    sparse_indices: Any, output_shape: Any, sparse_values: Any, default_value: Any = 0
) -> Any:
    """A tensor of `default_value`, but of `sparse_values` at `sparse_indices`."""
    dtype = dtype_of(sparse_values)
    fill = default_value if isinstance(default_value, Expr) else const(default_value, dtype)
    whole = ops.full(shape_of(output_shape), fill, dtype)
    places, values = ops.astype(sparse_indices, as_dtype("int64")), sparse_values
    rank = places.struct_info.ndim
    if rank == 0:
        places, values = ops.reshape(places, (1, 1)), ops.reshape(values, (1,))
    elif rank == 1:
        places = ops.expand_dims(places, 1)
    return ops.scatter_nd(whole, places, values)


def segment_sum(data: Any, segment_ids: Any, num_segments: Any = None) -> Any:
    """The sums of the rows of `data` that have the same id."""
    count = one(num_segments)
    ids = ints(segment_ids)
    if count is None and isinstance(ids, list):
        count = max(ids, default=-1) + 1
    if count is None:
        raise StructInfoError("segment_sum: num_segments is wanted unless the ids are constant")
    rows = ops.full((count, *data.struct_info.dims[1:]), const(0, dtype_of(data)))
    places = ops.expand_dims(ops.astype(segment_ids, as_dtype("int64")), 1)
    return ops.scatter_nd(rows, places, data, "add")


def reverse_reshaped(data: Any, newshape: Any) -> Any:
    """As `reshaped`, but the codes are read from the last axis on."""
    dims = data.struct_info.dims
    backwards = ops.reshape(data, dims[::-1]).struct_info.dims
    try:
        wanted = _decoded(backwards, list(newshape)[::-1])[::-1]
    except StopIteration:
        raise StructInfoError(
            f"reverse_reshape: {newshape} takes other axes than {data.struct_info} has"
        ) from None
    return ops.reshape(data, wanted)


def sliding_window(data: Any, axis: int, window_shape: Any, strides: Any) -> Any:
    """Windows over the axes from `axis` on: their places come before what is in them."""
    ndim = data.struct_info.ndim
    axis, dims = axis % ndim, data.struct_info.dims
    if len(window_shape) != len(strides) or axis + len(window_shape) != ndim:
        raise StructInfoError(
            f"sliding_window: wanted {ndim - axis} sizes of windows and strides, got "
            f"{len(window_shape)} and {len(strides)}"
        )
    for k, (size, step) in enumerate(zip(window_shape, strides)):
        count = _size_of(dims[axis + k], "sliding_window") - size
        places = np.arange(0, count + 1, step)[:, None] + np.arange(size)
        # Each axis becomes two: the windows, and the places in one.
        data = ops.take(data, const(places, "int64"), axis + 2 * k)
    windows = [axis + 2 * k for k in range(len(window_shape))]
    order = [*range(axis), *windows, *(w + 1 for w in windows)]
    return ops.permute_dims(data, order)


def _size_of(size: Any, what: str) -> int:
    if not isinstance(size, IntImm):
        raise StructInfoError(f"{what}: wanted a size that is known, got {size}")
    return size.value


def sequence_mask(data: Any, valid_length: Any, mask_value: float = 0, axis: int = 0) -> Any:
    """`data` [longest, batch, ...] (axis 0, or both swapped, axis 1) with `mask_value` from the
    length of each sequence on.
    """
    dims, ndim = data.struct_info.dims, data.struct_info.ndim
    steps = ops.arange(0, dims[axis], 1, dtype_of(valid_length))
    shape = [1] * ndim
    shape[axis] = dims[axis]
    lengths = [1] * ndim
    lengths[1 - axis] = dims[1 - axis]
    inside = ops.less(ops.reshape(steps, shape), ops.reshape(valid_length, lengths))
    return ops.where(inside, data, const(mask_value, dtype_of(data)))


def unravelled(indices: Any, shape: Any) -> Any:
    """The places [rank, ...] of elements that are counted in row-major order."""
    lengths = ints(shape)
    if isinstance(lengths, Expr):
        raise StructInfoError("unravel_index: wanted a shape that is constant")
    dtype, places = dtype_of(indices), []
    for n in reversed(list(lengths)):
        places.append(ops.floor_mod(indices, const(int(n), dtype)))
        indices = ops.floor_divide(indices, const(int(n), dtype))
    return ops.stack(places[::-1], 0)


def inverted(data: Any) -> Any:
    """The permutation that undoes `data`."""
    places = ops.arange(0, data.struct_info.dims[0], 1, dtype_of(data))
    return ops.scatter_elements(ops.zeros_like(data), data, places)


def fixed_point_multiply(data: Any, multiplier: int, shift: int) -> Any:
    """``data * multiplier * 2**(shift - 31)``, rounded half up, of int32."""
    wide = ops.multiply(ops.astype(data, as_dtype("int64")), const(multiplier, "int64"))
    if shift > 30:
        scaled = ops.left_shift(wide, const(shift - 31, "int64"))
    else:
        half = const(1 << (30 - shift), "int64")
        scaled = ops.right_shift(ops.add(wide, half), const(31 - shift, "int64"))
    return ops.astype(scaled, as_dtype("int32"))


def unique(data: Any, is_sorted: bool = True, return_counts: bool = False) -> Any:
    """The values that occur; where each occurs first; the place of each element among them; how
    many there are; and, with `return_counts`, how often each occurs.
    """
    results = ops.unique(data, is_sorted, True, True, return_counts)
    values, first, places, *counts = (TupleGetItem(results, i) for i in range(3 + return_counts))
    narrow = [ops.astype(v, as_dtype("int32")) for v in (first, places, *counts)]
    return Tuple([values, *narrow[:2], sizes(values, "int32"), *narrow[2:]])


def advanced_index(inputs: Any) -> Any:
    """The elements of ``inputs[0]`` at the places that the others say, one for each first axis."""
    info = inputs.struct_info
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"adv_index: wanted a tuple of data and places, got {info}")
    if not isinstance(inputs, Tuple):
        inputs = Tuple([TupleGetItem(inputs, i) for i in range(len(info.fields))])
    data, *places = inputs.fields
    return ops.index_tensor(data, places)


def dilated(data: Any, strides: Any, dilation_value: float = 0.0) -> Any:
    """`data` with ``stride - 1`` times `dilation_value` between elements, along each axis."""
    for axis, step in enumerate(strides):
        if step == 1:
            continue
        dims = list(data.struct_info.dims)
        wide = ops.expand_dims(data, axis + 1)
        widths = [0] * (2 * axis + 3) + [step - 1] + [0] * (2 * (len(dims) - axis - 1))
        spread = ops.nn.pad(wide, widths, "constant", dilation_value)
        size = dims[axis]
        dims[axis] = size * step
        whole = ops.reshape(spread, dims)
        data = ops.strided_slice(whole, [axis], [0], [(size - 1) * step + 1])
    return data


def space_to_batch(data: Any, block_shape: Any, paddings: Any, pad_value: float = 0) -> Any:
    """Blocks of the axes after the first become images of the batch, after padding."""
    blocks, pads = list(ints(block_shape)), [list(p) for p in ints(paddings)]
    ndim, count = data.struct_info.ndim, len(blocks)
    widths = [[0, 0], *pads, *([0, 0] for _ in range(ndim - count - 1))]
    wide = ops.nn.pad(data, [w for pair in widths for w in pair], "constant", pad_value)
    batch, *rest = wide.struct_info.dims
    cut: list[Any] = [batch]
    for size, block in zip(rest, blocks):
        cut += [size // block, block]
    inner = [2 * k + 1 for k in range(count)]
    order = [*(k + 1 for k in inner), 0, *inner, *range(2 * count + 1, ndim + count)]
    apart = ops.permute_dims(ops.reshape(wide, [*cut, *rest[count:]]), order)
    product = batch
    for block in blocks:
        product = product * block
    sizes_ = [size // block for size, block in zip(rest, blocks)]
    return ops.reshape(apart, [product, *sizes_, *rest[count:]])


def batch_to_space(data: Any, block_shape: Any, crops: Any) -> Any:
    """What `space_to_batch` has taken apart, together; then `crops` are cut off."""
    blocks, cuts = list(ints(block_shape)), [list(c) for c in ints(crops)]
    ndim, count = data.struct_info.ndim, len(blocks)
    batch, *rest = data.struct_info.dims
    product = int(np.prod(blocks))
    apart = ops.reshape(data, [*blocks, batch // product, *rest])
    order = [count]
    for k in range(count):
        order += [count + 1 + k, k]
    order += range(2 * count + 1, ndim + count)
    whole_sizes = [size * block for size, block in zip(rest, blocks)]
    whole = ops.reshape(
        ops.permute_dims(apart, order), [batch // product, *whole_sizes, *rest[count:]]
    )
    ends = [size - after for size, (_, after) in zip(whole_sizes, cuts)]
    return ops.strided_slice(whole, list(range(1, count + 1)), [before for before, _ in cuts], ends)


def fifo_buffer(data: Any, buffer: Any, axis: int) -> Any:
    """The last elements of `buffer`, as many as it has, after `data` is appended along `axis`."""
    length, new = buffer.struct_info.dims[axis], data.struct_info.dims[axis]
    both = ops.concat([buffer, data], axis)
    return ops.strided_slice(both, [axis], [new], [new + length])


def of_image(data: Any, layout: str, size: Any, resized: Any) -> Any:
    """``resized(images [N, C, H, W], size)`` of volumes, or of rows: first the last two axes, then
    the first.

    layout  such as "NCDHW" or "NCW"
    """
    rank = len(layout) - 2
    plain = "NC" + "DHW"[3 - rank :]
    moved = ops.permute_dims(data, [layout.index(a) for a in plain])
    batch, channels, *dims = moved.struct_info.dims
    if rank == 1:
        images = ops.reshape(moved, (batch, channels, 1, dims[0]))
        done = ops.reshape(resized(images, (1, size[0])), (batch, channels, size[0]))
    else:
        depth, height, width = dims
        images = ops.reshape(moved, (batch, channels * depth, height, width))
        planes = resized(images, (size[1], size[2]))
        rows = ops.reshape(planes, (batch, channels, depth, size[1] * size[2]))
        done = resized(rows, (size[0], size[1] * size[2]))
        done = ops.reshape(done, (batch, channels, *size))
    return ops.permute_dims(done, [plain.index(a) for a in layout])


def upsampling3d(
    data: Any,
    scale_d: Any = 1,
    scale_h: Any = 1,
    scale_w: Any = 1,
    layout: str = "NCDHW",
    method: str = "nearest_neighbor",
    coordinate_transformation_mode: str = "half_pixel",
) -> Any:
    """Volumes resized by factors."""
    dims = dict(zip(layout, data.struct_info.dims))
    scales = zip("DHW", (scale_d, scale_h, scale_w))
    size = [round(_size_of(dims[a], "upsampling3d") * one(scale)) for a, scale in scales]
    kind = {"trilinear": "linear"}.get(method, method)
    mode = "asymmetric" if kind == "nearest_neighbor" else coordinate_transformation_mode
    return of_image(
        data,
        layout,
        size,
        lambda images, size: ops.image.resize2d(
            images, size, None, "NCHW", kind, mode, "", -0.5, 0, 0.0
        ),
    )


def affine_grid(data: Any, target_shape: Any = None) -> Any:
    """For `image.grid_sample`: the places [N, 2, H, W] that affine maps [N, 2, 3] give those of an
    image of `target_shape`, from -1 to 1 along each axis.
    """
    height, width = ints(target_shape)
    xs, ys = np.meshgrid(np.linspace(-1, 1, width), np.linspace(-1, 1, height))
    places = np.stack([xs.ravel(), ys.ravel(), np.ones(height * width)])
    maps: Any = ops.matmul(data, const(places, dtype_of(data)))
    return ops.reshape(maps, (data.struct_info.dims[0], 2, height, width))
