"""Operators that read at indices: take, strided_slice, index_tensor, gather_elements, gather_nd.

Negative indices count from the end. An index that is still out of bounds stops the program with an
error instead of being read at, unless `take`'s mode says what it means; a result that was given to
be written to is left half written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import RelaxvmError, StructInfoError, VMValueError
from ...ir import (
    And,
    FloatImm,
    FloorDiv,
    IntImm,
    Max,
    Min,
    Not,
    Or,
    PrimExpr,
    Select,
    cast,
    const,
    is_const,
)
from ...ir import Var as TirVar
from ...te import broadcast_value
from ...tir import Buffer, Stmt, bound_check, if_then_else, seq
from ..expr import Call, PrimValue
from ..rules import LowerBuilder, Ops
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
)
from .faces import (
    as_scalars,
    bounded,
    from_end,
    inside,
    numbered,
    prepared,
    reshaped_to,
    scalars,
    unravel,
)
from .infer import (
    INTEGER,
    axes_of,
    axis_of,
    check_kind,
    dims_product,
    known_sizes,
    scalar_of,
    tensor,
    tensor_of,
    want_word,
)
from .infer import tensors as tensor_fields
from .loops import assert_that, call_checked, for_each, load
from .lower import call_te
from .manipulate import tuple_fields
from .names import ops
from .record import missing, op
from .sizes import (
    ONE,
    ZERO,
    KnownTensor,
    broadcast_dims,
    least,
    most,
    simplified,
    size_analyzer,
    want_at_most,
    want_equal,
    want_same,
    want_true,
)

BY_POSITION = missing("axes are numbered by position")


def checked(op_name: str, index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """The place in an axis of `size` that an index means; stops the program if there is none.

    Where an index is read, there it is checked: a pass over all of them before would read them
    twice.
    """
    return bound_check(from_end(index, size), size, f"{op_name}: an index is out of bounds")


def check_indices(op_name: str, pairs: Any) -> Stmt | None:
    """A statement that stops the program unless all elements of each index buffer are in bounds of
    the size beside it.
    """
    message = f"{op_name}: an index is out of bounds"

    def check(buffer: Buffer, size: PrimExpr) -> Stmt:
        def one(*i: PrimExpr) -> Stmt:
            return assert_that(inside(from_end(load(buffer, *i), size), size), message)

        return for_each(buffer.shape, one, "c")

    loops = [check(buffer, size) for buffer, size in pairs]
    return seq(*loops) if loops else None


# -- take -----------------------------------------------------------------------------------------

_MODES = ("fast", "wrap", "clip", "nan")


def _take_numpy(x: Any, indices: Any, *, axis: int | None = None, mode: str = "fast") -> Any:
    if axis is None:
        x, axis = x.reshape(-1), 0
    size = x.shape[axis]
    wide = np.asarray(indices).astype("int64")
    if mode == "fast":
        return np.take(x, bounded(indices, size, "take"), axis)
    if wide.size and size == 0:
        raise VMValueError("take: the axis is empty")
    if mode == "wrap":
        return np.take(x, wide % max(size, 1), axis)
    taken = np.take(x, np.clip(wide, 0, max(size - 1, 0)), axis)
    if mode == "nan":
        outside = ((wide < 0) | (wide >= size)).reshape(
            (1,) * axis + wide.shape + (1,) * (x.ndim - axis - 1)
        )
        taken = np.where(outside, np.asarray(np.nan, x.dtype), taken)
    return taken


def _lower_take(builder: LowerBuilder, call: Call) -> Expr:
    x, indices = call.args
    mode = call.attrs["mode"]
    ndim = tensor_of(x).ndim
    axis = call.attrs["axis"]
    along = None if axis is None else axis_of(axis, ndim)

    def compute(x: te.Tensor, indices: Any) -> te.Tensor:
        own = indices.shape if isinstance(indices, te.Tensor) else ()
        size = dims_product(x.shape) if along is None else x.shape[along]
        before = () if along is None else x.shape[:along]
        after = () if along is None else x.shape[along + 1 :]

        places = _places(indices, size, mode)

        def value(*i: PrimExpr) -> PrimExpr:
            where = i[len(before) : len(before) + len(own)]
            raw = indices(*where) if isinstance(indices, te.Tensor) else indices
            place = places(*where) if places is not None else _place(raw, size, mode)
            place = cast("int64", place)
            if along is None:
                taken = x(*unravel(place, x.shape))
            else:
                taken = x(*i[:along], place, *i[along + len(own) :])
            if mode != "nan":
                return taken
            wide = cast("int64", raw)
            nan: PrimExpr = FloatImm(x.dtype, float("nan"))
            return if_then_else(inside(wide, size), taken, nan)

        return te.compute((*before, *own, *after), value, "take")

    def check(x: Buffer, *index: Buffer) -> Stmt | None:
        size = dims_product(x.shape) if along is None else x.shape[along]
        if mode == "fast":
            return None
        if isinstance(size, IntImm) and size.value > 0:
            return None
        count = dims_product(index[0].shape) if index else ONE
        return assert_that(Or(size > ZERO, count <= ZERO), "take: the axis is empty")

    return call_checked(builder, call, compute, check, x, indices)


def _clip(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    return Max(Min(index, size - 1), ZERO)


def _place(index: PrimExpr, size: PrimExpr, mode: str) -> PrimExpr:
    if mode == "fast":
        return checked("take", index, size)
    wide = cast("int64", index)
    return wide % size if mode == "wrap" else _clip(wide, size)


def _places(indices: Any, size: PrimExpr, mode: str) -> te.Tensor | None:
    """Where the indices point to, in one tensor for all slices that are read there; None for a
    single index.
    """
    if not isinstance(indices, te.Tensor) or indices.ndim == 0:
        return None
    short = isinstance(size, IntImm) and size.value < 1 << 31
    dtype = "int32" if short else "int64"
    return te.compute(
        indices.shape, lambda *i: cast(dtype, _place(indices(*i), size, mode)), "place"
    )


def _take_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x, indices = call.args
    info: Any = x.struct_info
    axis = call.attrs["axis"]
    if isinstance(indices.struct_info, PrimStructInfo):
        indices = ops.full(ShapeExpr(()), indices, "int64")
    if call.attrs["mode"] != "fast":
        indices, gy = _bounded_take(ops, call, indices, gy)
    if axis is None:
        flat = ops.index_put(ops.zeros_like(ops.flatten(x)), (indices,), gy, accumulate=True)
        return reshaped_to(ops, flat, x), None
    along = axis_of(axis, info.ndim)
    many = tensor_of(indices).ndim
    # The axis to the front, where index_put works; and the same for the gradient.
    to_front = (along, *(k for k in range(info.ndim) if k != along))
    rest = [k for k in range(info.ndim - 1 + many) if not along <= k < along + many]
    gradient = ops.permute_dims(gy, axes=(*range(along, along + many), *rest))
    zeros = ops.zeros_like(ops.permute_dims(x, axes=to_front))
    put = ops.index_put(zeros, (indices,), gradient, accumulate=True)
    return ops.permute_dims(put, axes=tuple(to_front.index(k) for k in range(info.ndim))), None


def _bounded_take(ops: Ops, call: Call, indices: Any, gy: Expr) -> tuple[Any, Expr]:
    """The indices that `take` reads in its mode, and the gradient without that of NaNs."""
    x, mode, axis = call.args[0], call.attrs["mode"], call.attrs["axis"]
    info: Any = x.struct_info
    dims = known_sizes(x, "the gradient of take: x")
    size = dims_product(dims) if axis is None else dims[axis_of(axis, info.ndim)]
    wide = ops.astype(indices, "int64")
    if mode == "wrap":
        return ops.floor_mod(wide, PrimValue(size)), gy
    if mode == "nan":
        many = tensor_of(indices).ndim
        along = 0 if axis is None else axis_of(axis, info.ndim)
        last = 0 if axis is None else info.ndim - along - 1
        there = ops.logical_and(ops.greater_equal(wide, 0), ops.less(wide, PrimValue(size)))
        if last:
            there = ops.expand_dims(there, axis=tuple(range(many, many + last)))
        gy = ops.where(there, gy, 0.0)
    return ops.clip(wide, 0, PrimValue(size - 1)), gy


@op("take", _take_numpy, _lower_take, _take_grad)
def take(x: Expr, indices: Expr, axis: int | None = None, mode: str = "fast") -> StructInfo:
    """The slices of `x` along `axis` at `indices` (a tensor of integers, or a scalar); without
    axis, of the flattened `x`.

    mode  what an index out of bounds means: "fast": the program stops with an error (negative
          ones count from the end);
          "wrap": it is taken modulo the size; "clip": the nearest one; "nan": the result is NaN
    """
    info = tensor(x, "x")
    where = indices.struct_info
    if isinstance(where, PrimStructInfo):
        check_kind(where.dtype, "indices", INTEGER)
        own: Sequence[PrimExpr] = ()
    else:
        own = tensor(indices, "indices", INTEGER).dims
    want_word("mode", mode, _MODES)
    if mode == "nan" and info.dtype != "void" and not info.dtype.is_float:
        raise StructInfoError(f'mode: "nan" is for floats, x is {info.dtype}')
    around: tuple[Sequence[PrimExpr], Sequence[PrimExpr]] = (), ()
    if axis is None:
        size = dims_product(info.dims)
    else:
        along = axis_of(axis, info.ndim)
        size, around = info.dims[along], (info.dims[:along], info.dims[along + 1 :])
    if isinstance(where, PrimStructInfo) and mode == "fast":
        index = cast("int64", scalar_of(indices))
        text = "indices: {index} is out of bounds for size {size}"
        want_true(inside(from_end(index, size), size), text, index=index, size=size)
    return TensorStructInfo([*around[0], *own, *around[1]], info.dtype, info.vdevice)


# -- strided_slice --------------------------------------------------------------------------------


def slice_bounds(
    size: PrimExpr, begin: PrimExpr, end: PrimExpr, step: PrimExpr, inbound: bool
) -> tuple[PrimExpr, PrimExpr]:
    """Where a slice of an axis of `size` starts, and how long it is, as Python's slices have it.

    inbound  begin and end are taken as they are: between 0 and the size
    """
    analyzer = size_analyzer(size)
    if not inbound:
        begin, end = (_counted(v, size, analyzer) for v in (begin, end))
        if isinstance(step, IntImm):
            low, high = (ZERO, size) if step.value > 0 else (const(-1, "int64"), size - 1)
            begin, end = (most(least(v, high, analyzer), low, analyzer) for v in (begin, end))
        else:
            forward = step > ZERO
            low, high = Select(forward, ZERO, const(-1, "int64")), Select(forward, size, size - 1)
            begin, end = (Max(Min(v, high), low) for v in (begin, end))
    if isinstance(step, IntImm):
        distance = end - begin if step.value > 0 else begin - end
        by = const(abs(step.value), "int64")
        length = FloorDiv(distance + (abs(step.value) - 1), by) if abs(step.value) > 1 else distance
    else:
        by = Max(Select(step > ZERO, step, ZERO - step), ONE)
        distance = Select(step > ZERO, end - begin, begin - end)
        length = FloorDiv(distance + by - 1, by)
    length = simplified(length)
    # What is promised needs no bound; a constant that breaks the promise is an empty slice.
    known = inbound and not isinstance(length, IntImm)
    return simplified(begin), length if known else most(length, ZERO, analyzer)


def _counted(v: PrimExpr, size: PrimExpr, analyzer: Any) -> PrimExpr:
    if analyzer.can_prove(v >= 0):
        return v
    if isinstance(v, IntImm):
        return v + size
    # Only constants are surely negative or not; symbols are sizes unless they stand alone as
    # scalars.
    return Select(v < ZERO, v + size, v)


def slice_parts(call: Call) -> tuple[tuple[int, ...], list[tuple[Any, Any, Any]]]:
    """The axes of a strided_slice, and begin, end and stride of each."""
    x: Any = call.args[0].struct_info
    axes = _axes(call.args[1], x.ndim)
    begin, end = scalars(call.args[2], "begin"), scalars(call.args[3], "end")
    steps = scalars(call.args[4], "strides") if len(call.args) > 4 else [ONE] * len(axes)
    steps = [_small(s) for s in steps]
    return axes, list(zip(begin, end, steps))


_LONGEST = 1 << 40


def _small(step: PrimExpr) -> PrimExpr:
    """A stride without the values that no axis needs, so that arithmetic does not overflow."""
    if isinstance(step, IntImm) and abs(step.value) <= _LONGEST:
        return step
    if isinstance(step, IntImm):
        return const(_LONGEST if step.value > 0 else -_LONGEST, "int64")
    return Max(Min(step, const(_LONGEST, "int64")), const(-_LONGEST, "int64"))


def _axes(axes: Expr, ndim: int) -> tuple[int, ...]:
    numbers = []
    for v in scalars(axes, "axes"):
        if not isinstance(v, IntImm):
            raise StructInfoError(f"axes: wanted constant integers, got {v}")
        numbers.append(v.value)
    if ndim == -1:
        return tuple(numbers)
    return axes_of(tuple(numbers), ndim, "axes")


def _slice_numpy(
    x: Any, axes: Any, begin: Any, end: Any, strides: Any = None, *, assume_inbound: bool = False
) -> Any:
    steps = [1] * len(axes) if strides is None else strides
    index = [slice(None)] * x.ndim
    for a, b, e, s in zip(axes, begin, end, steps):
        b, e, s = int(b), int(e), int(s)
        if s == 0:
            raise VMValueError("strided_slice: a stride is 0")
        size = x.shape[int(a)]
        if assume_inbound:
            length = -((b - e) // s)
            last = b + (length - 1) * s
            if length < 0 or (length and not (0 <= b < size and 0 <= last < size)):
                raise VMValueError("strided_slice: begin or end is out of bounds")
            e = None if s < 0 and e < 0 else e
        index[int(a)] = slice(b, e, s)
    return x[tuple(index)].copy()


def _lower_slice(builder: LowerBuilder, call: Call) -> Expr:
    x = call.args[0]
    own = tensor_of(x).dims
    axes, parts = slice_parts(call)
    starts = [
        slice_bounds(own[a], begin, end, step, call.attrs["assume_inbound"])[0]
        for a, (begin, end, step) in zip(axes, parts)
    ]

    def compute(x: te.Tensor, dims: list[PrimExpr], where: Any, by: Any) -> te.Tensor:
        def value(*i: PrimExpr) -> PrimExpr:
            index = list(i)
            for a, s, k in zip(axes, where, by):
                index[a] = s + i[a] * k
            return x(*index)

        return te.compute(tuple(dims), value, "strided_slice")

    return call_te(
        builder,
        call,
        compute,
        x,
        ShapeExpr(tensor_of(call).dims),
        starts,
        [step for _, _, step in parts],
    )


def _want_inbound(start: PrimExpr, step: PrimExpr, length: PrimExpr, size: PrimExpr) -> None:
    """What was promised is checked when it cannot be proved: the kernel must not read elsewhere."""
    last = start + (length - 1) * step
    # Only the symbols of the size are known to be sizes; others may be negative.
    analyzer = size_analyzer(size)
    if all(analyzer.can_prove(c) for c in (length >= 0, start >= 0, last >= 0)):
        if analyzer.can_prove(start < size) and analyzer.can_prove(last < size):
            return
    low, high = Min(start, last), Max(start, last)
    fits = Or(length.equal(ZERO), And(length > ZERO, And(low >= ZERO, high < size)))
    text = (
        "begin, end: {start} to {last} is out of bounds for size {size}, but assume_inbound is set"
    )
    want_equal(Select(fits, ONE, ZERO), ONE, text, start=start, last=last, size=size)


def _slice_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x = call.args[0]
    own = known_sizes(x, "the gradient of strided_slice: x")
    dims = list(known_sizes(call, "the gradient of strided_slice: the result"))
    axes, parts = slice_parts(call)
    for a, (begin, end, step) in zip(axes, parts):
        start, length = slice_bounds(own[a], begin, end, step, call.attrs["assume_inbound"])
        if not isinstance(step, IntImm):
            raise StructInfoError("strided_slice: the gradient needs constant strides")
        if step.value < 0:
            # The same elements from the other side.
            gy, start = ops.flip(gy, axis=a), start + (length - 1) * step
        dims[a] = own[a]
        by = abs(step.value)
        stop = simplified(start + (length - 1) * by + 1)
        # An empty slice puts nothing anywhere, wherever it stands.
        empty = is_const(length, 0)
        gy = ops.slice_scatter(
            ops.zeros(ShapeExpr(dims), tensor_of(x).dtype),
            gy,
            PrimValue(ZERO if empty else simplified(start)),
            PrimValue(ZERO if empty else stop),
            PrimValue(by),
            axis=a,
        )
    return (gy, *[None] * (len(call.args) - 1))


def _slice_arguments(values: dict[str, Any]) -> None:
    for name in ("axes", "begin", "end", "strides"):
        try:
            values[name] = as_scalars(values[name])
        except RelaxvmError as error:
            raise StructInfoError(f"{name}: {error}") from None


@prepared(_slice_arguments)
@op("strided_slice", _slice_numpy, _lower_slice, _slice_grad)
def strided_slice(
    x: Expr,
    axes: Expr,
    begin: Expr,
    end: Expr,
    strides: Expr | None = None,
    assume_inbound: bool = False,
) -> StructInfo:
    """``x[..., begin:end:stride, ...]`` along each of `axes`, with the meaning of Python's slices.

    axes, begin, end, strides  tuples of integers, which may be symbolic (but for axes)
    assume_inbound  begin and end lie within the axis, as the program says, which makes
                    sizes simpler expressions
    """
    info = tensor(x, "x")
    cut = _axes(axes, info.ndim)
    values = [scalars(begin, "begin"), scalars(end, "end")]
    if strides is not None:
        values.append(scalars(strides, "strides"))
    for name, each in zip(("begin", "end", "strides"), values):
        if len(each) != len(cut):
            raise StructInfoError(
                f"{name}: wanted {len(cut)} values, one per axis, got {len(each)}"
            )
    steps = values[2] if strides is not None else [ONE] * len(cut)
    if any(is_const(s, 0) for s in steps):
        raise StructInfoError("strides: a stride is 0")
    dims = list(info.dims)
    for a, b, e, s in zip(cut, values[0], values[1], map(_small, steps)):
        if not isinstance(s, IntImm):
            want_true(Not(s.equal(ZERO)), "strides: a stride is 0")
        if assume_inbound:
            _known_inbound(b, e, dims[a])
        start, length = slice_bounds(dims[a], b, e, s, assume_inbound)
        if assume_inbound:
            _want_inbound(start, s, length, dims[a])
        dims[a] = length
    return TensorStructInfo(dims, info.dtype, info.vdevice)


def _known_inbound(begin: Any, end: Any, size: Any) -> None:
    for name, v in (("begin", begin), ("end", end)):
        if isinstance(v, IntImm) and isinstance(size, IntImm) and not -1 <= v.value <= size.value:
            raise StructInfoError(
                f"{name}: {v.value} is out of bounds for size {size.value}, "
                "but assume_inbound is set"
            )


def _dynamic_numpy(x: Any, begin: Any, end: Any, strides: Any) -> Any:
    return _slice_numpy(x, range(len(begin)), begin, end, strides)


def _lower_dynamic(builder: LowerBuilder, call: Call) -> Expr:
    """The elements of the tensors become symbols, and the slice an ordinary one."""
    x = call.args[0]
    ndim = tensor_of(x).ndim
    shifted = []
    for k, name in enumerate(("b", "e", "s")):
        # Clipped, so that no arithmetic on them overflows; no axis is that long.
        values = builder.emit(ops.clip(call.args[k + 1], -_LONGEST, _LONGEST))
        dims = tuple(TirVar(f"{name}{a}", "int64") for a in range(ndim))
        shape = builder.emit(ops.tensor_to_shape(values))
        builder.match_cast(shape, ShapeStructInfo(dims))
        shifted.append(dims)
    begin, end, strides = shifted
    return ops.strided_slice(x, tuple(range(ndim)), begin, end, strides)


def _dynamic_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    x: Any = call.args[0]
    numbers, count = numbered(ops, x)
    places = ops.dynamic_strided_slice(numbers, *call.args[1:])
    flat = ops.zeros(ShapeExpr((count,)), x.struct_info.dtype)
    grad = reshaped_to(ops, ops.index_put(flat, (places,), gy, accumulate=True), x)
    return grad, None, None, None


@op("dynamic_strided_slice", _dynamic_numpy, _lower_dynamic, _dynamic_grad, BY_POSITION)
def dynamic_strided_slice(x: Expr, begin: Expr, end: Expr, strides: Expr) -> StructInfo:
    """As strided_slice over all axes; `begin`, `end` and `strides` are int64 tensors with a value
    per axis.
    """
    info = tensor(x, "x")
    for value, name in ((begin, "begin"), (end, "end"), (strides, "strides")):
        info_of = tensor(value, name, INTEGER, 1)
        if info_of.dtype not in ("void", "int64"):
            raise StructInfoError(f"{name}: wanted int64, got {info_of.dtype}")
        text = "{name}: wanted {b} values, one per axis, got {a}"
        want_equal(info_of.dims[0], const(info.ndim, "int64"), text, name=name)
    return TensorStructInfo(None, info.dtype, info.vdevice, info.ndim)


# -- index_tensor ---------------------------------------------------------------------------------


def index_dims(infos: Sequence[KnownTensor]) -> tuple[PrimExpr, ...] | None:
    """The shape that index tensors broadcast to; None if that depends on symbols."""
    names = [f"indices: field {k}" for k in range(len(infos))]
    return broadcast_dims([i.dims for i in infos], names)


def _index_tensor_numpy(data: Any, indices: Any) -> Any:
    return data[tuple(bounded(i, d, "index_tensor") for i, d in zip(indices, data.shape))]


def _lower_index_tensor(builder: LowerBuilder, call: Call) -> Expr:
    data, fields = call.args[0], tuple_fields(call.args[1])
    dims = tensor_of(call).dims
    lead = dims[: len(dims) - (tensor_of(data).ndim - len(fields))]

    def compute(data: te.Tensor, indices: list[te.Tensor], dims: list[PrimExpr]) -> te.Tensor:
        count = len(dims)

        def value(*i: PrimExpr) -> PrimExpr:
            places = [
                checked("index_tensor", broadcast_value(t, i[:count], dims), d)
                for t, d in zip(indices, data.shape)
            ]
            return data(*places, *i[count:])

        return te.compute((*dims, *data.shape[len(indices) :]), value, "index_tensor")

    return call_te(builder, call, compute, data, fields, ShapeExpr(lead))


def _index_tensor_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, indices = call.args
    return ops.index_put(ops.zeros_like(data), indices, gy, accumulate=True), None


@op("index_tensor", _index_tensor_numpy, _lower_index_tensor, _index_tensor_grad, BY_POSITION)
def index_tensor(data: Expr, indices: Expr) -> StructInfo:
    """``data[i0, i1, ...]`` of numpy: `indices` is a tuple of integer tensors that broadcast, for
    the first axes.
    """
    info = tensor(data, "data")
    infos = tensor_fields(indices, "indices", INTEGER)
    if not infos:
        raise StructInfoError("indices: wanted at least one tensor")
    if len(infos) > info.ndim:
        raise StructInfoError(f"indices: {len(infos)} of them for {info.ndim} dimensions")
    dims, rest = index_dims(infos), info.dims[len(infos) :]
    if dims is None:
        ndim = max(i.ndim for i in infos) + len(rest)
        return TensorStructInfo(None, info.dtype, info.vdevice, ndim)
    return TensorStructInfo([*dims, *rest], info.dtype, info.vdevice)


# -- gather ---------------------------------------------------------------------------------------


def want_beside(small: KnownTensor, large: KnownTensor, names: tuple[str, str], but: int) -> None:
    """No dimension of `small` is larger than that of `large`, of the same rank, but for axis `but`.

    Raises StructInfoError if one certainly is.
    """
    same_rank(small, large, names)
    text = "dimension {k}: {small} has {size}, more than the {most} of {large}"
    for k, (size, limit) in enumerate(zip(small.dims, large.dims)):
        if k != but:
            want_at_most(size, limit, text, k=k, small=names[0], large=names[1])


def same_rank(a: KnownTensor, b: KnownTensor, names: tuple[str, str]) -> None:
    """Raise StructInfoError if the ranks differ."""
    if a.ndim != b.ndim:
        raise StructInfoError(
            f"{names[0]} has {a.ndim} dimensions, {names[1]} has {b.ndim}; wanted the same"
        )


def _gather_elements_numpy(data: Any, indices: Any, *, axis: int = 0) -> Any:
    along = axis % data.ndim
    grid = list(np.indices(indices.shape, sparse=True))
    grid[along] = bounded(indices, data.shape[along], "gather_elements")
    return data[tuple(grid)]


def _lower_gather_elements(builder: LowerBuilder, call: Call) -> Expr:
    data, indices = call.args
    along = call.attrs["axis"] % tensor_of(data).ndim

    def compute(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        def value(*i: PrimExpr) -> PrimExpr:
            place = checked("gather_elements", indices(*i), data.shape[along])
            return data(*i[:along], place, *i[along + 1 :])

        return te.compute(indices.shape, value, "gather_elements")

    return call_te(builder, call, compute, data, indices)


def _gather_elements_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, indices = call.args
    zeros = ops.zeros_like(data)
    return ops.scatter_elements(zeros, indices, gy, axis=call.attrs["axis"], reduction="add"), None


@op("gather_elements", _gather_elements_numpy, _lower_gather_elements, _gather_elements_grad)
def gather_elements(data: Expr, indices: Expr, axis: int = 0) -> StructInfo:
    """The element at i, j, ... is ``data[..., indices[i, j, ...], ...]``, replaced at `axis`; the
    shape is that of `indices`.
    """
    info, index = tensor(data, "data"), tensor(indices, "indices", INTEGER)
    if info.ndim == 0:
        raise StructInfoError("data: wanted at least one dimension")
    want_beside(index, info, ("indices", "data"), axis_of(axis, info.ndim))
    return TensorStructInfo(index.shape, info.dtype, info.vdevice)


def _gather_nd_numpy(data: Any, indices: Any, *, batch_dims: int = 0) -> Any:
    depth = indices.shape[-1]
    lead = indices.shape[:-1]
    places = list(np.indices(lead, sparse=True))[:batch_dims]
    for k in range(depth):
        places.append(bounded(indices[..., k], data.shape[batch_dims + k], "gather_nd"))
    slices = (
        data[tuple(np.broadcast_to(p, lead) for p in places)]
        if places
        else np.broadcast_to(data, (*lead, *data.shape))
    )
    return np.array(slices)


def index_depth(info: KnownTensor, name: str) -> int:
    """How many indices the last dimension of a tensor of indices holds.

    Raises StructInfoError if it is a symbol, as the rank of the result depends on it.
    """
    if info.ndim == 0:
        raise StructInfoError(f"{name}: wanted at least one dimension")
    last = info.dims[-1]
    if not isinstance(last, IntImm):
        raise StructInfoError(f"{name}: the last dimension must be constant, got {last}")
    return last.value


def _lower_gather_nd(builder: LowerBuilder, call: Call) -> Expr:
    data, indices = call.args
    batch: int = call.attrs["batch_dims"]
    depth = index_depth(tensor_of(indices), "indices")

    def compute(data: te.Tensor, indices: te.Tensor) -> te.Tensor:
        many = indices.ndim - 1

        def value(*i: PrimExpr) -> PrimExpr:
            places = [
                checked("gather_nd", indices(*i[:many], const(k, "int64")), data.shape[batch + k])
                for k in range(depth)
            ]
            return data(*i[:batch], *places, *i[many:])

        dims = (*indices.shape[:-1], *data.shape[batch + depth :])
        return te.compute(dims, value, "gather_nd")

    return call_te(builder, call, compute, data, indices)


def check_columns(op_name: str, indices: Buffer, sizes: Any) -> Stmt | None:
    """As `check_indices`, for a tensor of indices whose last dimension has one index for each of
    `sizes`.
    """
    message = f"{op_name}: an index is out of bounds"
    if not sizes:
        return None

    def row(*i: PrimExpr) -> list[Stmt]:
        return [
            assert_that(inside(from_end(load(indices, *i, const(k, "int64")), d), d), message)
            for k, d in enumerate(sizes)
        ]

    return for_each(indices.shape[:-1], row, "c")


def _gather_nd_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, indices = call.args
    info: Any = indices.struct_info
    batch = call.attrs["batch_dims"]
    if batch:
        lead = known_sizes(indices, "the gradient of gather_nd: indices")[:-1]
        columns = []
        for k in range(batch):
            count = ops.arange(0, lead[k], 1, info.dtype)
            column = ops.reshape(
                count, ShapeExpr([d if j == k else ONE for j, d in enumerate((*lead, ONE))])
            )
            columns.append(ops.broadcast_to(column, ShapeExpr([*lead, 1])))
        indices = ops.concat([*columns, indices], axis=-1)
    return ops.scatter_nd(ops.zeros_like(data), indices, gy, reduction="add"), None


@op("gather_nd", _gather_nd_numpy, _lower_gather_nd, _gather_nd_grad, BY_POSITION)
def gather_nd(data: Expr, indices: Expr, batch_dims: int = 0) -> StructInfo:
    """Slices of `data` at the index tuples in the last dimension of `indices`; the first
    `batch_dims` dimensions are shared.

    data     [b..., d0, d1, ..., rest...]      indices  [b..., i..., depth], depth constant
    returns  [b..., i..., rest...]
    """
    info, index = tensor(data, "data"), tensor(indices, "indices", INTEGER)
    if batch_dims < 0:
        raise StructInfoError(f"batch_dims: wanted at least 0, got {batch_dims}")
    depth = index_depth(index, "indices")
    if batch_dims > index.ndim - 1:
        raise StructInfoError(f"batch_dims: {batch_dims} of the {index.ndim} dimensions of indices")
    if batch_dims + depth > info.ndim:
        raise StructInfoError(
            f"indices: {batch_dims} batch dimensions and {depth} indices for {info.ndim} "
            "dimensions of data"
        )
    text = "dimension {k}: indices has {a}, data has {b}"
    want_same(index.dims[:batch_dims], info.dims, text)
    dims = [*index.dims[:-1], *info.dims[batch_dims + depth :]]
    return TensorStructInfo(dims, info.dtype, info.vdevice)
