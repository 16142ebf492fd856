"""Elements moved, none computed: reshapes, permutations, slices, concatenations, padding."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..... import tir
from .....ir import IntImm, walk
from ....expr import Tuple, const
from ....op.sizes import simplified
from ..registry import direct, onnx, op
from ..values import as_size, dims_of, dtype_of, product, quotient, shape_expr

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
    shape = op.astype(shape, "int64")
    old = dims_of(x)
    if not allowzero:
        (count,) = (getattr(d, "value", 0) for d in dims_of(shape))
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
    return op.tile(x, node.ints(repeats, "repeats"))


@onnx("Tile", since=1)
def tile_1(node: Any, x: Any, tiles: Any, axis: Any) -> Any:
    repeats = [1] * len(dims_of(x))
    repeats[int(node.number(axis, "axis"))] = int(node.number(tiles, "tiles"))
    return op.tile(x, tuple(repeats))


# -- parts -----------------------------------------------------------------------------------------


@onnx("Slice", since=10)
def slice_(node: Any, x: Any, starts: Any, ends: Any, axes: Any = None, steps: Any = None) -> Any:
    rank = len(dims_of(x))
    (count,) = (getattr(d, "value", 0) for d in dims_of(starts))
    along = list(range(count)) if axes is None else [a % rank for a in node.ints(axes, "axes")]
    if steps is not None and not node.is_known(steps):
        node.known(steps, "steps")
    by = [1] * count if steps is None else list(node.ints(steps, "steps"))
    if node.is_known(starts) and node.is_known(ends):
        return op.strided_slice(x, along, *map(list, _bounds(node, starts, ends)), by)
    # Axes that are not named are taken whole.
    whole = np.zeros(rank, "int64"), np.full(rank, np.iinfo("int64").max)
    steps_of = np.ones(rank, "int64")
    steps_of[along] = by
    places = const(np.array(along, "int64"))
    begin, end = (
        op.scatter_elements(const(w), places, op.astype(known, "int64"))
        for w, known in zip(whole, (starts, ends))
    )
    return op.dynamic_strided_slice(x, begin, end, const(steps_of))


def _bounds(node: Any, starts: Any, ends: Any) -> Any:
    return node.sizes(starts, "starts"), node.sizes(ends, "ends")


@onnx("Slice", since=1)
def slice_1(node: Any, x: Any, *, axes: Any, starts: Any, ends: Any) -> Any:
    along = range(len(starts)) if axes is None else axes
    return op.strided_slice(x, list(along), list(starts), list(ends))


@onnx("Split", since=13)
def split(node: Any, x: Any, split: Any = None, *, axis: int, num_outputs: Any = None) -> Any:
    if split is not None:
        return _split(node, x, node.ints(split, "split"), axis)
    count = num_outputs or len(node.proto.output)
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
    return _fields(node.emit(op.split(x, tuple(int(s) for s in np.cumsum(sizes)[:-1]), axis)))


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
    rank = len(dims_of(x))
    along = list(range(rank)) if axes is None else [a % rank for a in node.ints(axes, "axes")]
    number = node.number(value, "constant_value", 0)
    return _padded(x, node.ints(pads, "pads"), along, mode, number)


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
    return part(x, int(node.number(k, "k", 0)))


@onnx("ReverseSequence", since=10)
def reverse_sequence(node: Any, x: Any, lengths: Any, *, batch_axis: int, time_axis: int) -> Any:
    return op.reverse_sequence(x, lengths, time_axis, batch_axis)


direct({"NonZero": op.nonzero}, since=9)
