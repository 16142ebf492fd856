"""Elements moved, none computed: reshapes, permutations, slices, concatenations, padding."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..... import tir
from .....base import DataType
from .....ir import IntImm, walk
from .....runtime import array
from ....expr import Constant, PrimValue, Tuple, const
from ....op.sizes import simplified
from ..registry import onnx, op
from ..values import as_size, dims_of, dtype_of, numbers, product, quotient, shape_expr

# -- shapes ----------------------------------------------------------------------------------------


@onnx("Reshape", since=5)
def reshape(node: Any, x: Any, shape: Any, *, allowzero: Any = 0) -> Any:
    if not node.is_known(shape):
        shape = _settled_shape(node, x, shape, allowzero)
    return _reshaped(x, node.sizes(shape), allowzero)


@onnx("Reshape", since=1)
def reshape_1(node: Any, x: Any, *, shape: Any) -> Any:
    return _reshaped(x, shape, 0)


def _reshaped(x: Any, wanted: Any, allowzero: Any) -> Any:
    """`x` in the shape `wanted`, where 0 stands for the dimension at its place (unless
    `allowzero`), and one -1 for what is left.
    """
    old = dims_of(x)
    dims: list[Any] = []
    for i, d in enumerate(wanted):
        value = getattr(d, "value", d)
        dims.append(old[i] if isinstance(value, int) and value == 0 and not allowzero else d)
    left = [i for i, d in enumerate(dims) if _is(d, -1)]
    if left:
        others = [as_size(d) for i, d in enumerate(dims) if i not in left]
        dims[left[0]] = 0 if any(_is(d, 0) for d in others) else quotient(old, others)
    return op.reshape(x, shape_expr(dims))


def _is(dim: Any, number: int) -> bool:
    return bool(getattr(dim, "value", dim) == number) if isinstance(dim, (int, IntImm)) else False


def _settled_shape(node: Any, x: Any, shape: Any, allowzero: Any) -> Any:
    """A shape that is known only at run time, with sizes in the places of 0 and -1."""
    old = dims_of(x)
    (count,) = (getattr(d, "value", None) for d in dims_of(shape))
    if count is None:
        raise node.needs("shape's length", shape)
    shape = op.astype(shape, "int64")
    if not allowzero:
        kept = shape_expr([*old[:count], *[1] * (count - len(old))])
        shape = op.where(op.equal(shape, const(0, "int64")), op.shape_to_tensor(kept), shape)
    shape = node.emit(shape)
    free = node.emit(op.equal(shape, const(-1, "int64")))
    others = op.maximum(op.prod(op.where(free, const(1, "int64"), shape)), const(1, "int64"))
    rest = op.divide(op.shape_to_tensor(shape_expr([product(old)])), others)
    return node.emit(op.where(free, rest, shape))


@onnx("Flatten", since=1)
def flatten(node: Any, x: Any, *, axis: int) -> Any:
    dims = dims_of(x)
    axis = axis + len(dims) if axis < 0 else axis
    return op.reshape(x, shape_expr([product(dims[:axis]), product(dims[axis:])]))


@onnx("Squeeze", since=13)
def squeeze(node: Any, x: Any, axes: Any = None) -> Any:
    return _squeezed(node, x, None if axes is None else node.ints(axes, "axes"))


@onnx("Squeeze", since=1)
def squeeze_1(node: Any, x: Any, *, axes: Any) -> Any:
    return _squeezed(node, x, axes)


def _squeezed(node: Any, x: Any, axes: Any) -> Any:
    """`x` without `axes`, or without all of one element."""
    sizes = [d for d in dims_of(x) if not isinstance(d, IntImm)]
    if axes is None and sizes:
        symbols = [n for d in sizes for n in walk(d) if isinstance(n, tir.Var)]
        raise node.needs("dimensions, of which those of 1 are dropped,", *symbols)
    return op.squeeze(x, axes)


@onnx("Unsqueeze", since=13)
def unsqueeze(node: Any, x: Any, axes: Any) -> Any:
    return op.expand_dims(x, node.ints(axes, "axes"))


@onnx("Unsqueeze", since=1)
def unsqueeze_1(node: Any, x: Any, *, axes: Any) -> Any:
    return op.expand_dims(x, axes)


@onnx("Transpose", since=1)
def transpose(node: Any, x: Any, *, perm: Any) -> Any:
    return op.permute_dims(x, perm)


@onnx("Expand", since=8)
def expand(node: Any, x: Any, shape: Any) -> Any:
    wanted: tuple[Any, ...] = node.sizes(shape)
    dims: tuple[Any, ...] = dims_of(x)
    rank = max(len(wanted), len(dims))
    wanted = (*[1] * (rank - len(wanted)), *wanted)
    dims = (*[1] * (rank - len(dims)), *dims)
    # A dimension of 1 in the shape asked for leaves that of the data.
    target = [d if _is(w, 1) else w for d, w in zip(dims, wanted)]
    if all(isinstance(w, (int, IntImm)) for w in wanted):
        return op.broadcast_to(x, shape_expr(target))
    # What turns out to be 1 when it runs leaves the data's dimension, too.
    filled = op.full(shape_expr(wanted), const(0, dtype_of(x)), dtype_of(x))
    return op.where(op.equal(filled, filled), x, filled)


@onnx("Tile", since=6)
def tile(node: Any, x: Any, repeats: Any) -> Any:
    return _tiled(x, node.sizes(repeats, "repeats"))


@onnx("Tile", since=1)
def tile_1(node: Any, x: Any, tiles: Any, axis: Any) -> Any:
    repeats: list[Any] = [1] * len(dims_of(x))
    (count,) = node.sizes(tiles, "tiles")
    repeats[int(node.number(axis, "axis"))] = count
    return _tiled(x, repeats)


def _tiled(x: Any, repeats: Sequence[Any]) -> Any:
    """`x` repeated as a whole along each axis."""
    if all(isinstance(r, (int, IntImm)) for r in repeats):
        return op.tile(x, tuple(int(getattr(r, "value", r)) for r in repeats))
    dims = dims_of(x)
    apart = op.reshape(x, shape_expr([d for size in dims for d in (1, size)]))
    pairs = list(zip(repeats, dims))
    whole = op.broadcast_to(apart, shape_expr([d for pair in pairs for d in pair]))
    return op.reshape(whole, shape_expr([as_size(r) * d for r, d in pairs]))


# -- parts -----------------------------------------------------------------------------------------


@onnx("Slice", since=10)
def slice_(node: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    rank = len(dims_of(x))
    if not rank or len(dims_of(starts)) != 1:
        raise node.error("wanted data with axes, and starts that are a vector")
    (count,) = (getattr(d, "value", 0) for d in dims_of(starts))
    axes = const(np.arange(count)) if axes is None else axes
    steps = const(np.ones(count, "int64")) if steps is None else steps
    if all(numbers(node.graph.elements.of(v)) is not None for v in (axes, steps)):
        along = [a % rank for a in node.ints(axes, "axes")]
        if node.is_known(starts) and node.is_known(ends):
            known = map(list, _bounds(node, starts, ends))
            return op.strided_slice(x, along, *known, list(node.ints(steps, "steps")))
    # Axes that are not named are taken whole.
    whole = np.zeros(rank, "int64"), np.full(rank, np.iinfo("int64").max), np.ones(rank, "int64")
    places = op.floor_mod(op.astype(axes, "int64"), const(rank, "int64"))
    bounds = (
        op.scatter_elements(const(w), places, op.astype(given, "int64"))
        for w, given in zip(whole, (starts, ends, steps))
    )
    return op.dynamic_strided_slice(x, *bounds)


def _bounds(node: Any, starts: Any, ends: Any) -> Any:
    return node.sizes(starts, "starts"), node.sizes(ends, "ends")


@onnx("Slice", since=1)
def slice_1(node: Any, x: Any, *, axes: Any, starts: Any, ends: Any) -> Any:
    along = range(len(starts)) if axes is None else axes
    return op.strided_slice(x, list(along), list(starts), list(ends))


@onnx("Split", since=13)
def split(node: Any, x: Any, split: Any = None, *, axis: int, num_outputs: Any = None) -> Any:
    if split is not None:
        return _split(node, x, node.sizes(split, "split"), axis)
    count = len(node.proto.output)
    if num_outputs not in (None, count):
        raise node.error(f"num_outputs: wanted {count}, as it has outputs, got {num_outputs}")
    size = getattr(dims_of(x)[axis], "value", None)
    if size is None:
        return _fields(op.split(x, count, axis))
    part = -(-size // count)
    return _split(node, x, [min(part, size - i * part) for i in range(count)], axis)


@onnx("Split", since=1)
def split_1(node: Any, x: Any, _: Any = None, *, axis: Any, split: Any) -> Any:
    if split is None:
        return _fields(op.split(x, len(node.proto.output), axis or 0))
    return _split(node, x, split, axis or 0)


def _split(node: Any, x: Any, sizes: Any, axis: int) -> Any:
    if len(sizes) == 1:
        return x
    ends = [simplified(e) for e in itertools.accumulate(map(as_size, sizes))]
    places = tuple(e.value for e in ends[:-1] if isinstance(e, IntImm))
    if len(places) == len(ends) - 1:
        return _fields(node.emit(op.split(x, places, axis)))
    starts = [as_size(0), *ends[:-1]]
    return [op.strided_slice(x, [axis], [b], [e]) for b, e in zip(starts, ends)]


def _fields(value: Any) -> list[Any]:
    """The fields of a tuple, as outputs."""
    return list(value)


@onnx("Concat", since=4)
def concat(node: Any, *inputs: Any, axis: int) -> Any:
    return inputs[0] if len(inputs) == 1 else op.concat(Tuple(inputs), axis)


@onnx("Concat", since=1)
def concat_1(node: Any, *inputs: Any, axis: Any) -> Any:
    return concat(node, *inputs, axis=1 if axis is None else axis)


@onnx("Pad", since=11)
def pad(node: Any, x: Any, pads: Any, value: Any = None, axes: Any = None, *, mode: str) -> Any:
    rank, dtype = len(dims_of(x)), dtype_of(x)
    along = list(range(rank)) if axes is None else [a % rank for a in node.ints(axes, "axes")]
    value = _nothing(dtype) if value is None else value
    widths = numbers(node.graph.elements.of(pads))
    fill = node.emit(value)
    if widths is None or not isinstance(fill, Constant) or dtype.is_string or dtype.is_byte:
        return _padded_by_index(node, x, pads, along, mode, fill)
    number = node.number(fill, "constant_value")
    if not dtype.is_float and number != int(float(number)):
        return _padded_by_index(node, x, pads, along, mode, fill)
    return _padded(x, [int(w) for w in widths.reshape(-1)], along, mode, number)


def _nothing(dtype: DataType) -> Any:
    """The zero of a dtype, which of strings is the empty one."""
    return Constant(array("", dtype=dtype)) if dtype.is_string else op.zeros((), dtype)


def _padded_by_index(node: Any, x: Any, pads: Any, along: list[int], mode: str, value: Any) -> Any:
    """`x` with rows before and behind, of which the numbers are known when it runs: each row of the
    result is one of `x`, or one of the value's, which stands behind them.
    """
    pads = node.emit(op.astype(pads, "int64"))
    for i, axis in enumerate(along):
        dims = dims_of(x)
        size = op.shape_to_tensor(shape_expr([dims[axis]]))
        before, behind = (op.strided_slice(pads, [0], [k], [k + 1]) for k in (i, i + len(along)))
        total = op.maximum(op.add(op.add(before, size), behind), const(0, "int64"))
        (length,) = node.sizes(node.emit(total), "pads")
        place = node.emit(op.subtract(op.arange(PrimValue(length), dtype="int64"), before))
        size = node.emit(size)
        last = op.subtract(size, const(1, "int64"))
        if mode == "edge":
            place = op.minimum(op.maximum(place, const(0, "int64")), last)
        elif mode == "wrap":
            place = op.floor_mod(place, size)
        elif mode == "reflect":
            # There and back again, without the ends twice.
            period = op.maximum(op.multiply(last, const(2, "int64")), const(1, "int64"))
            place = node.emit(op.floor_mod(place, node.emit(period)))
            place = op.minimum(place, op.subtract(period, place))
        else:
            inside = op.logical_and(
                op.greater_equal(place, const(0, "int64")), op.less(place, size)
            )
            place = op.where(inside, place, size)
            row = [1 if k == axis else d for k, d in enumerate(dims)]
            filled = op.broadcast_to(op.reshape(value, [1] * len(dims)), shape_expr(row))
            x = op.concat(Tuple((x, filled)), axis)
        x = node.emit(op.take(x, place, axis))
    return x


@onnx("Pad", since=2)
def pad_2(node: Any, x: Any, *, mode: str, pads: Any, value: float) -> Any:
    return _padded(x, pads, list(range(len(dims_of(x)))), mode, value)


@onnx("Pad", since=1)
def pad_1(node: Any, x: Any, *, mode: str, paddings: Any, value: float) -> Any:
    return pad_2(node, x, mode=mode, pads=paddings, value=value)


def _padded(x: Any, pads: Any, along: list[int], mode: str, value: Any) -> Any:
    """`x` with rows before and behind, first all of `pads` that stand before; a negative number
    takes rows away.
    """
    rank, count = len(dims_of(x)), len(along)
    width = [0] * (2 * rank)
    for i, axis in enumerate(along):
        width[2 * axis], width[2 * axis + 1] = pads[i], pads[i + count]
    cut = [axis for axis in range(rank) if min(width[2 * axis : 2 * axis + 2]) < 0]
    if cut:
        begin = [max(0, -width[2 * a]) for a in cut]
        end = [
            simplified(dims_of(x)[a] + width[2 * a + 1]) if width[2 * a + 1] < 0 else dims_of(x)[a]
            for a in cut
        ]
        x = op.strided_slice(x, cut, begin, end)
        width = [max(0, w) for w in width]
    if not any(width):
        return x
    if dtype_of(x).is_bool:
        padded = op.nn.pad(op.astype(x, "int8"), tuple(width), mode, float(value))
        return op.astype(padded, "bool")
    return op.nn.pad(x, tuple(width), mode, float(value))


@onnx("SpaceToDepth", since=1)
def space_to_depth(node: Any, x: Any, *, blocksize: int, mode: Any = "DCR") -> Any:
    return op.nn.space_to_depth(x, blocksize, mode=mode)


@onnx("DepthToSpace", since=1)
def depth_to_space(node: Any, x: Any, *, blocksize: int, mode: Any = "DCR") -> Any:
    return op.nn.depth_to_space(x, blocksize, mode=mode)


@onnx("Trilu", since=14)
def trilu(node: Any, x: Any, k: Any = None, *, upper: int) -> Any:
    part = op.triu if upper else op.tril
    plain = not dtype_of(x).is_string
    if plain and (k is None or numbers(node.graph.elements.of(k)) is not None):
        return part(x, int(node.number(k, "k", 0)))
    rows, columns = (op.arange(PrimValue(d), dtype="int64") for d in dims_of(x)[-2:])
    diagonal = op.subtract(columns, op.expand_dims(rows, 1))
    edge = const(0, "int64") if k is None else op.reshape(k, ())
    keeps = op.greater_equal(diagonal, edge) if upper else op.less_equal(diagonal, edge)
    return op.where(keeps, x, _nothing(dtype_of(x)))


@onnx("ReverseSequence", since=10)
def reverse_sequence(node: Any, x: Any, lengths: Any, *, batch_axis: int, time_axis: int) -> Any:
    return op.reverse_sequence(x, lengths, time_axis, batch_axis)


@onnx("NonZero", since=9)
def nonzero(node: Any, x: Any) -> Any:
    return node.sized(op.nonzero(x), max(len(dims_of(x)), 1), None)
