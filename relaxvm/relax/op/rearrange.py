"""Operators that repeat or reorder elements: repeat, tile, flip, roll, reverse_sequence, meshgrid,
one_hot, layout_transform.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...arith import Analyzer
from ...base import DataType, StructInfoError, VMValueError
from ...ir import FloorDiv, FloorMod, PrimExpr, Select, as_expr, cast, const, walk
from ...tir import Buffer, IndexMap, IndexMapError, Stmt, evaluate_expr, seq
from ..derive import common_vdevice, dims_equal
from ..expr import Call, PrimValue, Tuple, TupleGetItem
from ..rules import LowerBuilder, Ops
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .broadcast import check_number
from .faces import numbered, prepared, ravel, reshaped_to, unravel
from .infer import (
    INTEGER,
    axes_of,
    axis_of,
    dims_product,
    known_sizes,
    same_dtype,
    shaped,
    tensor,
    tensor_of,
)
from .infer import tensors as tensor_fields
from .loops import assert_that, call_checked, call_loops, for_each, load, store
from .lower import call_te, te_lower
from .manipulate import tuple_fields
from .record import Prim, missing, op
from .sizes import ONE, ZERO, simplified, want_equal

MOST = 1 << 40
"""More than any axis has: larger numbers would only overflow."""
BY_POSITION = missing("axes are numbered by position")


# -- repeat, tile ---------------------------------------------------------------------------------


def _te_repeat(data: te.Tensor, repeats: int, axis: Any) -> te.Tensor:
    times = const(repeats, "int64")
    if axis is None:
        total = simplified(dims_product(data.shape) * times)
        return te.compute((total,), lambda i: data(*unravel(i // times, data.shape)), "repeat")
    nth = axis % data.ndim
    dims = [simplified(d * times) if k == nth else d for k, d in enumerate(data.shape)]
    return te.compute(dims, lambda *i: data(*i[:nth], i[nth] // times, *i[nth + 1 :]), "repeat")


def _repeat_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, times, axis = call.args[0], call.attrs["repeats"], call.attrs["axis"]
    dims = known_sizes(data, "the gradient of repeat: data")
    if axis is None:
        split: list[Any] = [dims_product(dims), times]
        kept: list[Any] = [dims_product(dims), 1]
    else:
        along = axis % len(dims)
        split = [*dims[: along + 1], times, *dims[along + 1 :]]
        kept = [*dims[: along + 1], 1, *dims[along + 1 :]]
    summed = ops.collapse_sum_to(ops.reshape(gy, ShapeExpr(split)), ShapeExpr(kept))
    return (reshaped_to(ops, summed, data),)


@op(
    "repeat",
    numpy=lambda data, *, repeats, axis=None: np.repeat(data, repeats, axis),
    lower=te_lower(_te_repeat),
    grad=_repeat_grad,
)
def repeat(data: Expr, repeats: int, axis: int | None = None) -> StructInfo:
    """Every element `repeats` times in a row along `axis`; without an axis, of the flattened
    tensor.
    """
    info = tensor(data, "data")
    if not 0 <= repeats <= MOST:
        raise StructInfoError(f"repeats: wanted at least 0 and at most 2**40, got {repeats}")
    if axis is None:
        return shaped(info, (dims_product(info.dims) * repeats,))
    along = axis_of(axis, info.ndim)
    return shaped(info, [d * repeats if k == along else d for k, d in enumerate(info.dims)])


def _te_tile(data: te.Tensor, repeats: Any) -> te.Tensor:
    times = _times(repeats, data.ndim)
    own = [ONE] * (len(times) - data.ndim) + list(data.shape)
    dims = [simplified(d * t) for d, t in zip(own, times)]
    skip = len(times) - data.ndim

    def value(*i: PrimExpr) -> PrimExpr:
        return data(
            *(e if t == 1 else e % d for e, d, t in zip(i[skip:], data.shape, times[skip:]))
        )

    return te.compute(dims, value, "tile")


def _times(repeats: Any, ndim: int) -> tuple[int, ...]:
    counts = (repeats,) if isinstance(repeats, int) else tuple(repeats)
    return (1,) * (ndim - len(counts)) + counts


def _tile_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data = call.args[0]
    dims = known_sizes(data, "the gradient of tile: data")
    times = _times(call.attrs["repeats"], len(dims))
    own = [ONE] * (len(times) - len(dims)) + list(dims)
    split: list[Any] = [each for pair in zip(times, own) for each in pair]
    kept: list[Any] = [each for d in own for each in (1, d)]
    summed = ops.collapse_sum_to(ops.reshape(gy, ShapeExpr(split)), ShapeExpr(kept))
    return (reshaped_to(ops, summed, data),)


@op(
    "tile",
    numpy=lambda data, *, repeats: np.tile(data, repeats),
    lower=te_lower(_te_tile),
    grad=_tile_grad,
)
def tile(data: Expr, repeats: int | tuple[int, ...]) -> StructInfo:
    """`data` put side by side with itself, ``repeats[k]`` times along axis k; fewer of them count
    from the last axis.
    """
    info = tensor(data, "data")
    for r in (repeats,) if isinstance(repeats, int) else repeats:
        if isinstance(r, bool) or not isinstance(r, int) or not 0 <= r <= MOST:
            raise StructInfoError(f"repeats: wanted ints of 0 to 2**40, got {r!r}")
    times = _times(repeats, info.ndim)
    own = [ONE] * (len(times) - info.ndim) + list(info.dims)
    return shaped(info, [dims_product((d, const(t, "int64"))) for d, t in zip(own, times)])


# -- flip, roll, reverse_sequence -----------------------------------------------------------------


def _te_flip(data: te.Tensor, axis: Any) -> te.Tensor:
    axes = axes_of(axis, data.ndim)
    return te.compute(
        data.shape,
        lambda *i: data(
            *(d - 1 - e if k in axes else e for k, (e, d) in enumerate(zip(i, data.shape)))
        ),
        "flip",
    )


@op(
    "flip",
    numpy=lambda data, *, axis: np.flip(data, axis).copy(),
    lower=te_lower(_te_flip),
    grad=lambda ops, call, y, gy: (ops.flip(gy, axis=call.attrs["axis"]),),
)
def flip(data: Expr, axis: int | tuple[int, ...]) -> StructInfo:
    """`data` with the order along `axis` reversed."""
    info = tensor(data, "data")
    axes_of(axis, info.ndim)
    return info


def _shifts(shift: Any, axis: Any, ndim: int) -> dict[int, int]:
    """How far each axis is rolled; shifts along the same axis add up."""
    axes = (axis,) if isinstance(axis, int) else tuple(axis)
    by = (shift,) if isinstance(shift, int) else tuple(shift)
    by = by * len(axes) if len(by) == 1 else by
    axes = axes * len(by) if len(axes) == 1 else axes
    if len(by) != len(axes):
        raise StructInfoError(f"shift: wanted one for each of {len(axes)} axes, got {len(by)}")
    total: dict[int, int] = {}
    for a, s in zip(axes, by):
        if isinstance(s, bool) or not isinstance(s, int):
            raise StructInfoError(f"shift: wanted ints, got {s!r}")
        along = axis_of(a, ndim)
        total[along] = total.get(along, 0) + s
    return total


def _te_roll(data: te.Tensor, shift: Any, axis: Any) -> te.Tensor:
    if axis is None:
        total = dims_product(data.shape)
        by = shift if isinstance(shift, int) else sum(shift)
        return te.compute(
            data.shape,
            lambda *i: data(*unravel((ravel(i, data.shape) - by) % total, data.shape)),
            "roll",
        )
    shifts = _shifts(shift, axis, data.ndim)
    return te.compute(
        data.shape,
        lambda *i: data(
            *(
                (e - shifts[k]) % d if k in shifts else e
                for k, (e, d) in enumerate(zip(i, data.shape))
            )
        ),
        "roll",
    )


def _roll_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    shift = call.attrs["shift"]
    back = -shift if isinstance(shift, int) else tuple(-s for s in shift)
    return (ops.roll(gy, shift=back, axis=call.attrs["axis"]),)


@op(
    "roll",
    numpy=lambda data, *, shift, axis=None: np.roll(data, shift, axis),
    lower=te_lower(_te_roll),
    grad=_roll_grad,
)
def roll(
    data: Expr, shift: int | tuple[int, ...], axis: int | tuple[int, ...] | None = None
) -> StructInfo:
    """`data` moved by `shift` places along `axis`, what falls off coming in again; with no axis, as
    if it were flat.
    """
    info = tensor(data, "data")
    for s in (shift,) if isinstance(shift, int) else shift:
        if isinstance(s, bool) or not isinstance(s, int) or not -MOST <= s <= MOST:
            raise StructInfoError(f"shift: wanted ints of at most 2**40, got {s!r}")
    if axis is not None:
        _shifts(shift, axis, info.ndim)
    return info


def _reverse_numpy(data: Any, seq_lengths: Any, *, seq_axis: int = 1, batch_axis: int = 0) -> Any:
    size = data.shape[seq_axis]
    lengths = np.asarray(seq_lengths, "int64")
    if lengths.size and (lengths.min() < 0 or lengths.max() > size):
        raise VMValueError(f"reverse_sequence: a length is not within 0 to {size}")
    moved = np.moveaxis(data, (batch_axis, seq_axis), (0, 1)).copy()
    for row, length in zip(moved, lengths):
        row[:length] = row[:length][::-1].copy()
    return np.ascontiguousarray(np.moveaxis(moved, (0, 1), (batch_axis, seq_axis)))


def _lower_reverse(builder: LowerBuilder, call: Call) -> Expr:
    data, lengths = call.args
    ndim = tensor_of(data).ndim
    along, batch = call.attrs["seq_axis"] % ndim, call.attrs["batch_axis"] % ndim

    def compute(data: te.Tensor, lengths: te.Tensor) -> te.Tensor:
        def value(*i: PrimExpr) -> PrimExpr:
            length = cast("int64", lengths(i[batch]))
            from_back = Select(i[along] < length, length - 1 - i[along], i[along])
            return data(*i[:along], from_back, *i[along + 1 :])

        return te.compute(data.shape, value, "reverse_sequence")

    def check(data: Buffer, lengths: Buffer) -> Stmt:
        size = data.shape[along]
        return for_each(
            lengths.shape,
            lambda j: _lengths_within(cast("int64", load(lengths, j)), size),
            "j",
        )

    return call_checked(builder, call, compute, check, data, lengths)


def _lengths_within(length: PrimExpr, size: PrimExpr) -> list[Stmt]:
    message = "reverse_sequence: seq_lengths: a length is not within 0 and the size of seq_axis"
    return [assert_that(length >= ZERO, message), assert_that(length <= size, message)]


@op(
    "reverse_sequence",
    numpy=_reverse_numpy,
    lower=_lower_reverse,
    grad=lambda ops, call, y, gy: (
        ops.reverse_sequence(gy, call.args[1], **dict(call.attrs)),
        None,
    ),
)
def reverse_sequence(
    data: Expr, seq_lengths: Expr, seq_axis: int = 1, batch_axis: int = 0
) -> StructInfo:
    """The first ``seq_lengths[b]`` elements along `seq_axis` in reverse order, for each `b` along
    `batch_axis`.

    A length outside 0 to the size of `seq_axis` stops the program.
    """
    info = tensor(data, "data")
    lengths = tensor(seq_lengths, "seq_lengths", INTEGER, 1)
    along = axis_of(seq_axis, info.ndim, "seq_axis")
    batch = axis_of(batch_axis, info.ndim, "batch_axis")
    if along == batch:
        raise StructInfoError(f"seq_axis and batch_axis: wanted different axes, got {along} twice")
    want_equal(lengths.dims[0], info.dims[batch], "seq_lengths: wanted {b} lengths, got {a}")
    return info


# -- meshgrid, one_hot ----------------------------------------------------------------------------


def _grid_places(count: int, indexing: str) -> list[int]:
    """Which axis of the grid each tensor runs along."""
    places = list(range(count))
    if indexing == "xy" and count > 1:
        places[:2] = [1, 0]
    return places


def _te_meshgrid(tensors: list[te.Tensor], indexing: Any) -> list[te.Tensor]:
    places = _grid_places(len(tensors), indexing or "ij")
    dims = [ONE] * len(tensors)
    for t, p in zip(tensors, places):
        dims[p] = t.shape[0] if t.ndim else ONE
    return [
        te.compute(dims, lambda *i, t=t, p=p: t(i[p]) if t.ndim else t(), f"grid_{k}")
        for k, (t, p) in enumerate(zip(tensors, places))
    ]


def _lower_meshgrid(builder: LowerBuilder, call: Call) -> Expr:
    fields = tuple_fields(call.args[0])
    return call_te(builder, call, _te_meshgrid, fields, indexing=call.attrs["indexing"])


def _meshgrid_numpy(tensors: Any, *, indexing: str | None = "ij") -> tuple[Any, ...]:
    order: Any = indexing or "ij"
    return tuple(np.meshgrid(*tensors, indexing=order))


def _meshgrid_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    fields = tuple_fields(call.args[0])
    places = _grid_places(len(fields), call.attrs["indexing"] or "ij")
    grads = []
    for k, (f, p) in enumerate(zip(fields, places)):
        dims = known_sizes(f, f"the gradient of meshgrid: field {k}")
        kept = [ONE] * len(fields)
        if dims:
            kept[p] = dims[0]
        summed = ops.collapse_sum_to(TupleGetItem(gy, k), ShapeExpr(kept))
        grads.append(reshaped_to(ops, summed, f))
    return (Tuple(grads),)


@op("meshgrid", _meshgrid_numpy, _lower_meshgrid, _meshgrid_grad, missing("takes and gives tuples"))
def meshgrid(tensors: Expr, indexing: str | None = "ij") -> StructInfo:
    """The coordinates of a grid, one tensor of the grid's shape for each of several tensors of one
    dimension.

    indexing  "ij": tensor k runs along axis k; "xy": the first two change places
    """
    infos = tensor_fields(tensors, "tensors")
    if not infos:
        raise StructInfoError("tensors: wanted at least one")
    if indexing not in (None, "ij", "xy"):
        raise StructInfoError(f'indexing: wanted "ij" or "xy", got {indexing!r}')
    for k, i in enumerate(infos):
        if i.ndim > 1:
            raise StructInfoError(f"tensors: field {k}: wanted at most one dimension, got {i.ndim}")
    dtype = same_dtype(infos, [f"field {k}" for k in range(len(infos))])
    dims = [ONE] * len(infos)
    for i, p in zip(infos, _grid_places(len(infos), indexing or "ij")):
        dims[p] = i.dims[0] if i.dims else ONE
    field = TensorStructInfo(dims, dtype, common_vdevice(infos))
    return TupleStructInfo((field,) * len(infos))


def _one_hot_numpy(
    indices: Any, on_value: Any, off_value: Any, *, depth: int, axis: int = -1
) -> Any:
    wide = np.asarray(indices).astype("int64")
    along = axis if axis >= 0 else axis + wide.ndim + 1
    places = np.arange(depth).reshape((depth, *[1] * (wide.ndim - along)))
    hot = np.expand_dims(wide, along) == places
    return np.where(hot, on_value, off_value).astype(np.asarray(on_value).dtype)


def _te_one_hot(
    indices: te.Tensor, on_value: PrimExpr, off_value: PrimExpr, depth: int, axis: int
) -> te.Tensor:
    along = axis if axis >= 0 else axis + indices.ndim + 1
    dims = [*indices.shape[:along], const(depth, "int64"), *indices.shape[along:]]

    def value(*i: PrimExpr) -> PrimExpr:
        hot = cast("int64", indices(*i[:along], *i[along + 1 :])).equal(i[along])
        return Select(hot, on_value, off_value)

    return te.compute(dims, value, "one_hot")


@op(
    "one_hot",
    numpy=_one_hot_numpy,
    lower=te_lower(_te_one_hot),
    grad=missing("the indices are integers"),
    layout=BY_POSITION,
)
def one_hot(
    indices: Expr, on_value: Prim, off_value: Prim, depth: int, axis: int = -1
) -> StructInfo:
    """For each index a row of `depth` values along a new dimension `axis`: `on_value` at the index,
    else `off_value`.

    The values' dtype is the result's. An index outside 0 to `depth` - 1 gives a row of `off_value`.
    """
    info = tensor(indices, "indices", INTEGER)
    values = []
    for x, name in ((on_value, "on_value"), (off_value, "off_value")):
        v = x.struct_info
        if not isinstance(v, PrimStructInfo):
            raise StructInfoError(
                f"{name}: wanted a scalar value such as R.prim_value(1.0), got {v}"
            )
        values.append(v)
    dtype = same_dtype(values, ("on_value", "off_value"))
    if not 1 <= depth <= MOST:
        raise StructInfoError(f"depth: wanted at least 1 and at most 2**40, got {depth}")
    along = axis_of(axis, info.ndim, extra=1)
    return TensorStructInfo([*info.dims[:along], depth, *info.dims[along:]], dtype, info.vdevice)


# -- layout_transform -----------------------------------------------------------------------------


def _as_map(values: dict[str, Any]) -> None:
    index_map = values["index_map"]
    x = values["x"]
    if isinstance(index_map, str):
        values["index_map"] = IndexMap.from_text(index_map, index_dtype="int64")
    elif callable(index_map) and not isinstance(index_map, IndexMap):
        ndim = getattr(getattr(x, "struct_info", None), "ndim", -1)
        ndim = None if ndim == -1 else ndim
        values["index_map"] = IndexMap.from_func(index_map, ndim, index_dtype="int64")
    elif isinstance(index_map, IndexMap):
        # What undoes it follows from it, and memory is an attribute of its own.
        wide = index_map.widened(DataType("int64"))
        values["index_map"] = wide.replace(inverse_index_map=None, axis_separators=())
    if isinstance(values["pad_value"], PrimValue):
        values["pad_value"] = values["pad_value"].value
    if hasattr(values["pad_value"], "value"):
        values["pad_value"] = values["pad_value"].value


def _layout_numpy(x: Any, *, index_map: IndexMap, pad_value: Any = None, **separators: Any) -> Any:
    shape = [int(evaluate_expr(d)) for d in index_map.padded_shape(x.shape)]
    if pad_value is None and np.prod(shape) != x.size:
        raise VMValueError(f"layout_transform: pad_value: nothing fills {shape} from {x.shape}")
    result = np.full(shape, 0 if pad_value is None else pad_value, x.dtype)
    result[index_map.places(x.shape)] = x
    return result


def _cuts(index_map: Any) -> bool:
    """Whether indices are divided."""
    return any(
        isinstance(n, (FloorDiv, FloorMod)) for e in index_map.final_indices for n in walk(e)
    )


def _inverse(index_map: IndexMap, dims: Sequence[Any]) -> IndexMap | None:
    """The map back; None unless it is shown that each place gets one element."""
    wide = [cast("int64", as_expr(d, "int64")) for d in dims]
    try:
        # There, a block of fewer elements than it holds is smaller.
        if dims_equal(index_map.map_shape(wide), index_map.padded_shape(dims)) is not True:
            return None
        return index_map.inverse(wide) if index_map.is_bijective(wide) else None
    except IndexMapError:
        return None


def _lower_layout(builder: LowerBuilder, call: Call) -> Expr:
    x = call.args[0]
    info: Any = x.struct_info
    index_map, pad = call.attrs["index_map"], call.attrs["pad_value"]
    value = const(0 if pad is None else pad, info.dtype)
    back = _inverse(index_map, info.dims)
    if back is not None and not _cuts(back):
        # What each place takes, so that schedules see a transposition.
        def gather(x: te.Tensor) -> te.Tensor:
            back: Any = _inverse(index_map, x.shape)
            shape = index_map.padded_shape(x.shape)
            return te.compute(shape, lambda *i: x(*back.map_indices(i)), "layout_transform")

        return call_te(builder, call, gather, x)

    def fill(x: Buffer, *, out: list[Buffer]) -> Stmt:
        (moved,) = out
        analyzer = Analyzer(wrap=False)
        moving = for_each(
            x.shape, lambda *i: store(moved, load(x, *i), *index_map.map_indices(i, analyzer))
        )
        if back is not None:
            return moving
        return seq(for_each(moved.shape, lambda *i: store(moved, value, *i)), moving)

    return call_loops(builder, call, fill, x)


def _layout_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    """The numbers of the elements are moved the same way: they say where each gradient goes back.
    Padding is marked by -1.
    """
    x: Any = call.args[0]
    numbers, count = numbered(ops, x)
    places = ops.layout_transform(numbers, index_map=call.attrs["index_map"], pad_value=-1)
    there = ops.where(ops.less(places, 0), 0.0, gy)
    flat = ops.zeros(ShapeExpr((count,)), x.struct_info.dtype)
    grad = ops.index_put(flat, (ops.maximum(places, 0),), there, accumulate=True)
    return (reshaped_to(ops, grad, x),)


@prepared(_as_map)
@op(
    "layout_transform",
    numpy=_layout_numpy,
    lower=_lower_layout,
    grad=_layout_grad,
    layout=missing("is itself a change of layout"),
)
def layout_transform(
    x: Expr,
    index_map: IndexMap,
    pad_value: int | float | bool | None = None,
    axis_separators: tuple[int, ...] | None = None,
    input_axis_separators: tuple[int, ...] | None = None,
) -> StructInfo:
    """`x` with the element at `i` moved to ``index_map(i)``, as in ``lambda n, c: (n, c // 4, c %
    4)``.

    pad_value  what stands in places that nothing is moved to; needed if there are any
    axis_separators, input_axis_separators  kept for passes that map axes to memory
    """
    info = tensor(x, "x")
    if not isinstance(index_map, IndexMap):
        raise StructInfoError(
            f"index_map: wanted a function of indices or an IndexMap, got {index_map!r}"
        )
    index_map.only_arithmetic()
    if info.ndim != len(index_map.initial_indices):
        raise StructInfoError(
            f"index_map: wanted {info.ndim} indices, it takes {len(index_map.initial_indices)}"
        )
    if pad_value is not None and info.dtype != "void":
        check_number(pad_value, info.dtype, "pad_value")
    dims = index_map.padded_shape(info.dims)
    if pad_value is None:
        have, want = simplified(dims_product(info.dims)), simplified(dims_product(dims))
        want_equal(have, want, "pad_value: {a} elements go to {b} places; say what fills the rest")
    return TensorStructInfo(dims, info.dtype, info.vdevice)
