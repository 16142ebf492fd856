"""Operators that write at indices: scatter_elements, scatter_nd, index_put, slice_scatter.

Negative indices count from the end; an index that is still out of bounds stops the program with an
error before anything is written. Where several updates meet, they are applied in row-major order,
so the last one wins.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te
from ...base import StructInfoError, VMValueError
from ...ir import And, FloorDiv, FloorMod, IntImm, Max, Min, PrimExpr, cast, const, is_const
from ...tir import Buffer, Stmt, if_then_else, seq
from .. import shape_facts
from ..derive import (
    prove_dims,
)
from ..expr import Call
from ..rules import LowerBuilder, Ops
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    StructInfo,
    TensorStructInfo,
)
from .broadcast import unbroadcast
from .faces import bounded, from_end, numbered
from .index import (
    check_columns,
    check_indices,
    index_depth,
    index_dims,
    same_rank,
    slice_bounds,
    want_beside,
)
from .infer import INTEGER, NUMBER, axis_of, check_kind, same_dtype, scalar_of, tensor, tensor_of
from .infer import tensors as tensor_fields
from .loops import call_loops, for_each, load, store
from .lower import call_te
from .manipulate import own_index, tuple_fields
from .names import ops
from .record import Prim, missing, op
from .sizes import ONE, ZERO, want_broadcast, want_same

BY_POSITION = missing("axes are numbered by position")
_REDUCTIONS = ("update", "add", "mul", "mean", "max", "min")
_ND_REDUCTIONS = ("update", "add", "mul", "max", "min")


def _divided(total: PrimExpr, count: PrimExpr) -> PrimExpr:
    by = cast(total.dtype, count)
    return total / by if total.dtype.is_float else FloorDiv(total, by)


_COMBINE: dict[str, Callable[[PrimExpr, PrimExpr], PrimExpr]] = {
    "update": lambda old, new: new,
    "add": lambda old, new: old + new,
    "mean": lambda old, new: old + new,
    "mul": lambda old, new: old * new,
    "max": Max,
    "min": Min,
}
_AT: dict[str, Any] = {
    "add": np.add,
    "mean": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


def _put_numpy(data: Any, where: tuple[Any, ...], updates: Any, reduction: str) -> Any:
    """`data` with `updates` combined in at the index arrays `where`."""
    result = np.array(data)
    if reduction == "update":
        _assign(result, where, updates)
        return result
    _AT[reduction].at(result, where, updates)
    if reduction == "mean":
        count = np.ones(result.shape, "int64")
        np.add.at(count, where, 1)
        divide = np.floor_divide if result.dtype.kind in "iu" else np.divide
        result = divide(result, count.astype(result.dtype))
    return result


def _assign(array: np.ndarray, where: tuple[Any, ...], updates: Any) -> None:
    """One after the other, so that the last of several updates of one place wins."""
    lead = np.broadcast_shapes(*(np.shape(w) for w in where)) if where else ()
    rest = array.shape[len(where) :]
    values = np.broadcast_to(updates, (*lead, *rest))
    for index in np.ndindex(*lead):
        place = tuple(int(np.broadcast_to(w, lead)[index]) for w in where)
        array[place] = values[index]


def _copy(data: Buffer, out: Buffer) -> Stmt:
    return for_each(data.shape, lambda *i: store(out, load(data, *i), *i))


def _combine(out: Buffer, reduction: str, new: PrimExpr, *place: PrimExpr) -> Stmt:
    return store(out, _COMBINE[reduction](load(out, *place), new), *place)


def _want_reduction(reduction: str, known: tuple[str, ...], info: TensorStructInfo) -> None:
    if reduction not in known:
        raise StructInfoError(f"reduction: wanted one of {', '.join(known)}, got {reduction!r}")
    if reduction != "update":
        check_kind(info.dtype, f"data (with reduction {reduction!r})", NUMBER)


# -- gradients ------------------------------------------------------------------------------------


def _combined_grad(
    ops: Ops,
    reduction: str,
    values: tuple[Any, Any, Any, Any],
    gather: Callable[[Any], Any],
    scatter: Callable[[Any, Any, str], Any],
) -> tuple[Any, Any]:
    """The gradients of data and of updates, exact also where several updates meet in a place.

    values   data, updates, the result, and the gradient of the result
    gather   (x in the shape of data) -> what stands at the places of the updates
    scatter  (x, new values, reduction) -> x with them combined in
    """
    data, updates, y, gy = values
    if reduction == "add":
        return gy, gather(gy)
    if reduction == "update":
        # The numbers of the updates, scattered in the same way, say which of them is the last.
        numbers, _ = numbered(ops, updates)
        nobody = ops.full_like(data, -1, "int64")
        lasting = ops.equal(gather(scatter(nobody, numbers, "update")), numbers)
        return scatter(gy, ops.zeros_like(updates), "update"), ops.where(lasting, gather(gy), 0.0)
    if reduction == "mean":
        share = ops.divide(gy, scatter(ops.ones_like(data), ops.ones_like(updates), "add"))
        return share, gather(share)
    dtype = data.struct_info.dtype
    if reduction == "mul":
        # Of each place the product of what is not 0, and how many zeros there are.
        zeros = ops.equal(data, 0.0), ops.equal(updates, 0.0)
        factors = [ops.where(z, 1.0, v) for z, v in zip(zeros, values)]
        counts = [ops.astype(z, dtype) for z in zeros]
        product = scatter(factors[0], factors[1], "mul")
        count = scatter(counts[0], counts[1], "add")
        return (
            ops.multiply(gy, _others(ops, data, zeros[0], product, count)),
            ops.multiply(
                gather(gy), _others(ops, updates, zeros[1], gather(product), gather(count))
            ),
        )
    # Equal extreme values share the gradient.
    chosen = ops.equal(data, y), ops.equal(updates, gather(y))
    of_data, of_updates = (ops.astype(c, dtype) for c in chosen)
    share = ops.divide(gy, scatter(of_data, of_updates, "add"))
    return ops.where(chosen[0], share, 0.0), ops.where(chosen[1], gather(share), 0.0)


def _others(ops: Ops, value: Any, is_zero: Any, product: Any, zeros: Any) -> Any:
    """The product of all others at the place of each of `value`."""
    of_zero = ops.where(ops.equal(zeros, 1.0), product, 0.0)
    of_rest = ops.where(ops.equal(zeros, 0.0), ops.divide(product, value), 0.0)
    return ops.where(is_zero, of_zero, of_rest)


# -- scatter_elements -----------------------------------------------------------------------------


def _scatter_elements_numpy(
    data: Any, indices: Any, updates: Any, *, axis: int = 0, reduction: str = "update"
) -> Any:
    along = axis % data.ndim
    where = list(np.broadcast_arrays(*np.indices(indices.shape, sparse=True)))
    where[along] = bounded(indices, data.shape[along], "scatter_elements")
    return _put_numpy(data, tuple(where), updates, reduction)


def _lower_scatter_elements(builder: LowerBuilder, call: Call) -> Expr:
    data, indices, updates = call.args
    own = tensor_of(data).dims
    along, reduction = call.attrs["axis"] % len(own), call.attrs["reduction"]

    def fill(
        data: Buffer, indices: Buffer, updates: Buffer, *, out: list[Buffer], scratch: Any = ()
    ) -> Stmt:
        (result,) = out

        def one(*i: PrimExpr) -> list[Stmt]:
            place = (*i[:along], from_end(load(indices, *i), data.shape[along]), *i[along + 1 :])
            stmts = [_combine(result, reduction, load(updates, *i), *place)]
            stmts += [store(c, load(c, *place) + 1, *place) for c in scratch]
            return stmts

        checked = check_indices("scatter_elements", [(indices, data.shape[along])])
        steps = [checked, _copy(data, result), for_each(indices.shape, one)]
        if scratch:
            (count,) = scratch
            steps.insert(1, for_each(count.shape, lambda *i: store(count, ONE, *i)))
            steps.append(for_each(count.shape, lambda *i: _average(result, count, *i)))
        return seq(*steps)

    scratch = [(own, "int64")] if reduction == "mean" else []
    return call_loops(builder, call, fill, data, indices, updates, scratch=scratch)


def _average(sums: Buffer, count: Buffer, *i: PrimExpr) -> Stmt:
    return store(sums, _divided(load(sums, *i), load(count, *i)), *i)


def _scatter_elements_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, indices, updates = call.args
    axis = call.attrs["axis"]
    of_data, of_updates = _combined_grad(
        ops,
        call.attrs["reduction"],
        (data, updates, y, gy),
        lambda x: ops.gather_elements(x, indices, axis=axis),
        lambda x, new, how: ops.scatter_elements(x, indices, new, axis=axis, reduction=how),
    )
    return of_data, None, of_updates


@op("scatter_elements", _scatter_elements_numpy, _lower_scatter_elements, _scatter_elements_grad)
def scatter_elements(
    data: Expr, indices: Expr, updates: Expr, axis: int = 0, reduction: str = "update"
) -> StructInfo:
    """`data` with ``out[..., indices[i, j, ...], ...]`` (at `axis`) combined with ``updates[i, j,
    ...]``.

    reduction  "update" (replaced), "add", "mul", "max", "min", or "mean" of the element and all
               its updates
    """
    info, index = tensor(data, "data"), tensor(indices, "indices", INTEGER)
    new = tensor(updates, "updates")
    dtype = same_dtype((info, new), ("data", "updates"))
    _want_reduction(reduction, _REDUCTIONS, info)
    same_rank(index, info, ("indices", "data"))
    same_rank(new, index, ("updates", "indices"))
    if info.ndim == 0:
        raise StructInfoError("data: wanted at least one dimension")
    want_beside(index, info, ("indices", "data"), axis_of(axis, info.ndim))
    want_same(new.dims, index.dims, "dimension {k}: updates has {a}, indices has {b}")
    return info if dtype is info.dtype else info.replace(dtype=dtype)


# -- scatter_nd -----------------------------------------------------------------------------------


def _scatter_nd_numpy(data: Any, indices: Any, updates: Any, *, reduction: str = "update") -> Any:
    depth = indices.shape[-1]
    where = tuple(bounded(indices[..., k], data.shape[k], "scatter_nd") for k in range(depth))
    if depth == 0:
        result = np.array(data)
        for i in np.ndindex(*indices.shape[:-1]):
            result = updates[i] if reduction == "update" else _AT[reduction](result, updates[i])
        return np.asarray(result, data.dtype)
    return _put_numpy(data, where, updates, reduction)


def _lower_scatter_nd(builder: LowerBuilder, call: Call) -> Expr:
    data, indices, updates = call.args
    depth = index_depth(tensor_of(indices), "indices")
    reduction = call.attrs["reduction"]

    def fill(data: Buffer, indices: Buffer, updates: Buffer, *, out: list[Buffer]) -> Stmt:
        (to,) = out
        many = len(indices.shape) - 1

        def one(*i: PrimExpr) -> Stmt:
            place = [
                from_end(load(indices, *i[:many], const(k, "int64")), data.shape[k])
                for k in range(depth)
            ]
            return _combine(to, reduction, load(updates, *i), *place, *i[many:])

        checked = check_columns("scatter_nd", indices, data.shape[:depth])
        return seq(*([checked] if checked else []), _copy(data, to), for_each(updates.shape, one))

    return call_loops(builder, call, fill, data, indices, updates)


def _scatter_nd_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, indices, updates = call.args
    of_data, of_updates = _combined_grad(
        ops,
        call.attrs["reduction"],
        (data, updates, y, gy),
        lambda x: ops.gather_nd(x, indices),
        lambda x, new, how: ops.scatter_nd(x, indices, new, reduction=how),
    )
    return of_data, None, of_updates


@op("scatter_nd", _scatter_nd_numpy, _lower_scatter_nd, _scatter_nd_grad, BY_POSITION)
def scatter_nd(data: Expr, indices: Expr, updates: Expr, reduction: str = "update") -> StructInfo:
    """`data` with the slices at the index tuples in the last dimension of `indices` combined with
    `updates`.

    data     [d0, d1, ..., rest...]    indices  [i..., depth], depth constant
    updates  [i..., rest...]
    """
    info, index = tensor(data, "data"), tensor(indices, "indices", INTEGER)
    new = tensor(updates, "updates")
    dtype = same_dtype((info, new), ("data", "updates"))
    _want_reduction(reduction, _ND_REDUCTIONS, info)
    depth = index_depth(index, "indices")
    if depth > info.ndim:
        raise StructInfoError(f"indices: {depth} indices for {info.ndim} dimensions of data")
    wanted = (*index.dims[:-1], *info.dims[depth:])
    if new.ndim != len(wanted):
        raise StructInfoError(f"updates: wanted {len(wanted)} dimensions, got {new.ndim}")
    want_same(new.dims, wanted, "updates: dimension {k}: wanted {b}, got {a}")
    return info if dtype is info.dtype else info.replace(dtype=dtype)


# -- index_put ------------------------------------------------------------------------------------


def _index_put_numpy(data: Any, indices: Any, values: Any, *, accumulate: bool = False) -> Any:
    where = tuple(bounded(i, d, "index_put") for i, d in zip(indices, data.shape))
    return _put_numpy(data, where, values, "add" if accumulate else "update")


def _lower_index_put(builder: LowerBuilder, call: Call) -> Expr:
    data, fields, values = call.args[0], tuple_fields(call.args[1]), call.args[2]
    own, new = (tensor_of(a).dims for a in (data, values))
    shapes = [tensor_of(f).dims for f in fields]
    lead = shape_facts.broadcast_dims(builder, shapes, "index_put")
    target = (*lead, *own[len(fields) :])
    reduction = "add" if call.attrs["accumulate"] else "update"
    # Values are brought to their full shape by an operator, which checks what it must.
    if len(new) != len(target) or not all(prove_dims(a, b) for a, b in zip(new, target)):
        values = builder.emit(ops.broadcast_to(values, ShapeExpr(target)))

    def fill(
        data: Buffer, indices: list[Buffer], values: Buffer, dims: Any, *, out: list[Buffer]
    ) -> Stmt:
        (result,) = out
        many = len(dims)

        def element(buffer: Buffer, i: Any) -> PrimExpr:
            skip = many - len(buffer.shape)
            own = [own_index(e, d, t) for e, d, t in zip(i[skip:many], buffer.shape, dims[skip:])]
            return load(buffer, *own)

        def one(*i: PrimExpr) -> Stmt:
            place = [from_end(element(b, i), d) for b, d in zip(indices, data.shape)]
            return _combine(result, reduction, load(values, *i), *place, *i[many:])

        checked = check_indices("index_put", list(zip(indices, data.shape)))
        return seq(checked, _copy(data, result), for_each(values.shape, one))

    return call_loops(builder, call, fill, data, fields, values, ShapeExpr(lead))


def _index_put_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data, indices, values = call.args
    reduction = "add" if call.attrs["accumulate"] else "update"

    def get(x: Any) -> Any:
        return ops.index_tensor(x, indices)

    full: Any = values
    if reduction == "update" and get(data).struct_info.dims is not None:
        full = ops.broadcast_to(values, ShapeExpr(get(data).struct_info.dims))
    of_data, of_values = _combined_grad(
        ops,
        reduction,
        (data, full, y, gy),
        get,
        lambda x, new, how: ops.index_put(x, indices, new, accumulate=how == "add"),
    )
    return of_data, None, unbroadcast(ops, of_values, values)


@op("index_put", _index_put_numpy, _lower_index_put, _index_put_grad, BY_POSITION)
def index_put(data: Expr, indices: Expr, values: Expr, accumulate: bool = False) -> StructInfo:
    """`data` with ``out[i0, i1, ...] = values`` (or ``+=`` with `accumulate`) of numpy.

    indices  a tuple of integer tensors that broadcast, for the first axes; `values` broadcasts to
             what they select
    """
    info, new = tensor(data, "data"), tensor(values, "values")
    infos = tensor_fields(indices, "indices", INTEGER)
    if not infos:
        raise StructInfoError("indices: wanted at least one tensor")
    if len(infos) > info.ndim:
        raise StructInfoError(f"indices: {len(infos)} of them for {info.ndim} dimensions")
    dtype = same_dtype((info, new), ("data", "values"))
    if accumulate:
        check_kind(info.dtype, "data (with accumulate)", NUMBER)
    dims, rest = index_dims(infos), info.dims[len(infos) :]
    lead = max(i.ndim for i in infos) if dims is None else len(dims)
    if new.ndim > lead + len(rest):
        raise StructInfoError(
            f"values: wanted at most {lead + len(rest)} dimensions, got {new.ndim}"
        )
    for k, (size, target) in enumerate(zip(new.dims[::-1], (*(dims or ()), *rest)[::-1])):
        text = "values: dimension {k}: {size} does not broadcast to {target}"
        want_broadcast(size, target, text, k=-k - 1)
    return info if dtype is info.dtype else info.replace(dtype=dtype)


# -- slice_scatter --------------------------------------------------------------------------------


def _slice_scatter_numpy(
    input_tensor: Any, src: Any, start: Any, end: Any, step: Any = 1, *, axis: int = 0
) -> Any:
    result = np.array(input_tensor)
    index: list[Any] = [slice(None)] * result.ndim
    index[axis] = slice(int(start), int(end), int(step))
    if result[tuple(index)].shape != np.shape(src):
        raise VMValueError(
            f"slice_scatter: src: wanted shape {result[tuple(index)].shape}, got {np.shape(src)}"
        )
    result[tuple(index)] = src
    return result


def _slice_scatter_place(call: Call) -> tuple[int, PrimExpr, PrimExpr]:
    """Axis, where the slice starts, and its step."""
    info: Any = call.args[0].struct_info
    along = axis_of(call.attrs["axis"], info.ndim)
    start, end = (cast("int64", scalar_of(a)) for a in call.args[2:4])
    step = cast("int64", scalar_of(call.args[4])) if len(call.args) > 4 else ONE
    return along, slice_bounds(info.dims[along], start, end, step, False)[0], step


def _lower_slice_scatter(builder: LowerBuilder, call: Call) -> Expr:
    data, src = call.args[:2]
    along, begin, step = _slice_scatter_place(call)

    def compute(data: te.Tensor, src: te.Tensor, begin: PrimExpr, step: PrimExpr) -> te.Tensor:
        def value(*i: PrimExpr) -> PrimExpr:
            past = i[along] - begin
            place = FloorDiv(past, step)
            here = And(past >= ZERO, place < src.shape[along])
            if not is_const(step, 1):
                here = And(here, FloorMod(past, step).equal(ZERO))
            return if_then_else(here, src(*i[:along], place, *i[along + 1 :]), data(*i))

        return te.compute(data.shape, value, "slice_scatter")

    return call_te(builder, call, compute, data, src, begin, step)


def _slice_scatter_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    _, src, *place = call.args
    axis = call.attrs["axis"]
    start, end, step = (*place, ONE)[:3]
    axes = (axis,)
    of_src = ops.strided_slice(gy, axes, (start,), (end,), (step,))
    rest = ops.slice_scatter(gy, ops.zeros_like(src), *place, axis=axis)
    return (rest, of_src, *[None] * len(place))


@op("slice_scatter", _slice_scatter_numpy, _lower_slice_scatter, _slice_scatter_grad)
def slice_scatter(
    input_tensor: Expr, src: Expr, start: Prim, end: Prim, step: Prim = 1, axis: int = 0
) -> StructInfo:
    """`input_tensor` with ``out[..., start:end:step, ...] = src`` along `axis`; `step` is a
    positive constant.
    """
    info, new = tensor(input_tensor, "input_tensor"), tensor(src, "src")
    dtype = same_dtype((info, new), ("input_tensor", "src"))
    same_rank(new, info, ("src", "input_tensor"))
    if info.ndim == 0:
        raise StructInfoError("input_tensor: wanted at least one dimension")
    along = axis_of(axis, info.ndim)
    place = []
    for x, name in ((start, "start"), (end, "end"), (step, "step")):
        value = getattr(x, "struct_info", None)
        if isinstance(x, int):
            place.append(const(x, "int64"))
            continue
        if not isinstance(value, PrimStructInfo) or not value.dtype.is_int or value.value is None:
            raise StructInfoError(
                f"{name}: wanted an integer, constant or of known symbols, got {value}"
            )
        place.append(cast("int64", value.value))
    if not isinstance(place[2], IntImm) or place[2].value < 1:
        raise StructInfoError(f"step: wanted a positive constant, got {place[2]}")
    wanted = list(info.dims)
    first, last, by = place
    wanted[along] = slice_bounds(wanted[along], first, last, by, False)[1]
    want_same(new.dims, wanted, "src: dimension {k}: wanted {b}, got {a}")
    return info if dtype is info.dtype else info.replace(dtype=dtype)
