"""argmax and argmin: where the greatest and the least element stand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te, tir
from ...base import DataType, StructInfoError, VMValueError
from ...ir import IntImm, Max, Min, Or, PrimExpr, Select, cast, const, is_const
from ...tir import Buffer, Stmt
from ..expr import Call
from ..rules import LowerBuilder, operator_name
from ..struct_info import Expr, StructInfo
from .faces import ravel, unravel
from .families import reduced_dims, reduced_info
from .infer import ANY, axes_of, axis_of, dims_product, tensor, tensor_of
from .loops import assert_that, call_checked
from .lower import elementwise
from .record import missing, op
from .statistical import te_max, te_min

_INDEX = missing("gives an index")
_NOTHING = "there are no elements to choose from"


def _arg_numpy(f: Callable[..., Any]) -> Callable[..., Any]:
    def meaning(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        x = np.asarray(x)
        reduced = x.size if axis is None else x.shape[axis]
        if reduced == 0:
            shape = np.sum(x, axis=axis, keepdims=keepdims).shape
            if 0 not in shape:
                raise VMValueError(f"{f.__name__}: {_NOTHING}")
            return np.zeros(shape, np.int64)
        if x.ndim == 0:
            return np.zeros((), np.int64)
        return np.asarray(f(x, axis=axis, keepdims=keepdims)).astype(np.int64)

    return meaning


# Below this many elements of a row, parts of it are not worth looking at one by one.
_LEAST = 1024


def _part(count: int) -> int:
    """How many elements a part has: about as many as there are parts, but some vectors."""
    return max(256, 1 << (math.isqrt(count - 1).bit_length()))


def _place_dtype(count: PrimExpr) -> DataType:
    """Twice as many of the shorter places fit a vector."""
    short = isinstance(count, IntImm) and count.value < 1 << 31
    return DataType("int32" if short else "int64")


def _hit(v: PrimExpr, best: PrimExpr) -> PrimExpr:
    """Whether an element is the extreme one. NaN is extreme, and equal to no value."""
    return Or(v.equal(best), tir.isnan(v)) if v.dtype.is_float else v.equal(best)


def _arg_lower(extreme: Callable[..., Any]) -> Callable[..., Any]:
    """Two reductions that become vectors: the extreme value, then the first place that has it. Of
    many elements in a row it is that of parts first, and only one of these is looked at again.
    """

    def compute(x: te.Tensor, *, axis: int | None, keepdims: bool) -> te.Tensor:
        axes = axes_of(axis, x.ndim)
        if not axes:
            return elementwise(x, lambda v: const(0, "int64"))
        dims = reduced_dims(x.shape, axes, keepdims)
        count = dims_product([x.shape[a] for a in axes])
        is_run = axes == tuple(range(x.ndim - len(axes), x.ndim))
        if is_run and isinstance(count, IntImm) and count.value >= _LEAST:
            best_of = in_parts(x, count.value, x.ndim - len(axes))
        else:
            best_of = whole(x, axes, count)

        def at(*index: PrimExpr) -> PrimExpr:
            own = [i for k, i in enumerate(index) if not (keepdims and k in axes)]
            return cast("int64", best_of(*own))

        return te.compute(dims, at, "arg")

    def whole(x: te.Tensor, axes: tuple[int, ...], count: PrimExpr) -> te.Tensor:
        """The place of the extreme element along `axes`, for each index of the other axes."""
        dims = tuple(d for k, d in enumerate(x.shape) if k not in axes)
        places = _place_dtype(count)

        def reduced(name: str, value: Callable[..., PrimExpr]) -> Any:
            """The extreme of value(axes, element, its place, index of the result)."""
            over = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}

            def at(*index: PrimExpr) -> Any:
                rest = iter(index)
                where = [over[k].var if k in over else next(rest) for k in range(x.ndim)]
                place = cast(
                    places, ravel([o.var for o in over.values()], [x.shape[a] for a in axes])
                )
                return value(list(over.values()), x(*where), place, index)

            return te.compute(dims, at, name)

        best = reduced("best", lambda over, v, place, index: extreme(v, axis=over))
        # Not the greatest of all integers, at which minima start: LLVM would make a condition of
        # the choice between a place and it, and no vectors.
        nowhere = cast(places, count)
        return reduced(
            "place",
            lambda over, v, place, index: te.min(
                Select(_hit(v, best(*index)), place, nowhere), axis=over
            ),
        )

    def in_parts(x: te.Tensor, count: int, lead: int) -> te.Tensor:
        """As `whole`, along all axes but the `lead` first ones; `count` elements lie in a row.

        Only in the first part that has the extreme value its place is looked for. The last part
        ends with the last element: what it shares with the one before changes nothing.
        """
        dims, size = x.shape[:lead], _part(count)
        length, parts = const(size, "int64"), -(-count // size)
        places = _place_dtype(const(count, "int64"))

        def element(index: Any, part: PrimExpr, j: Any) -> PrimExpr:
            where = unravel(start(part) + j.var, x.shape[lead:])
            return x(*index, *where)

        def start(part: PrimExpr) -> PrimExpr:
            return Min(cast("int64", part) * length, const(count - size, "int64"))

        def inside() -> Any:
            return te.reduce_axis((0, length), "j")

        def over_parts() -> Any:
            return te.reduce_axis((0, const(parts, "int64")), "p")

        j, p, q, k = inside(), over_parts(), over_parts(), inside()
        tops = te.compute(
            (*dims, const(parts, "int64")),
            lambda *i: extreme(element(i[:-1], i[-1], j), axis=[j]),
            "part_best",
        )
        best = te.compute(dims, lambda *i: extreme(tops(*i, p.var), axis=[p]), "best")

        def first_part(*i: PrimExpr) -> Any:
            hit = _hit(tops(*i, q.var), best(*i))
            return te.min(Select(hit, cast(places, q.var), const(parts, places)), axis=[q])

        part = te.compute(dims, first_part, "part")

        def there(*i: PrimExpr) -> PrimExpr:
            # One of the parts, for all who do not know that there is one.
            return Max(Min(part(*i), const(parts - 1, places)), const(0, places))

        def first(*i: PrimExpr) -> Any:
            hit = _hit(element(i, there(*i), k), best(*i))
            return te.min(Select(hit, cast(places, k.var), const(size, places)), axis=[k])

        best_of = te.compute(dims, first, "place")
        return te.compute(dims, lambda *i: best_of(*i) + cast(places, start(there(*i))), "in_all")

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        (x,) = call.args
        short = operator_name(call)
        axes = axes_of(call.attrs["axis"], tensor_of(x).ndim)

        def check(source: Buffer) -> Stmt | None:
            count = dims_product([source.shape[a] for a in axes])
            results = dims_product([d for k, d in enumerate(source.shape) if k not in axes])
            if isinstance(count, IntImm) and count.value > 0:
                return None
            return assert_that(Or(count > 0, results.equal(0)), f"{short}: {_NOTHING}")

        return call_checked(builder, call, compute, check, x, **dict(call.attrs))

    return lower


def _arg_info(x: Expr, axis: int | None, keepdims: bool) -> StructInfo:
    info = tensor(x, "x", ANY)
    if axis is not None:
        axis_of(axis, info.ndim)
    for a in axes_of(axis, info.ndim):
        if is_const(info.dims[a], 0):
            raise StructInfoError(f"x: axis {a} is empty: {_NOTHING}")
    return reduced_info(info, axis, keepdims, DataType("int64"))


@op("argmax", _arg_numpy(np.argmax), _arg_lower(te_max), _INDEX)
def argmax(x: Expr, axis: int | None = None, keepdims: bool = False) -> StructInfo:
    """The int64 index of the first greatest element along `axis` (None: of x flattened); the first
    NaN if there is one.

    Raises StructInfoError if the axis is known to be empty; the program stops with an error if it
    turns out to be.
    """
    return _arg_info(x, axis, keepdims)


@op("argmin", _arg_numpy(np.argmin), _arg_lower(te_min), _INDEX)
def argmin(x: Expr, axis: int | None = None, keepdims: bool = False) -> StructInfo:
    """The int64 index of the first least element along `axis` (None: of x flattened); the first NaN
    if there is one.

    Raises StructInfoError if the axis is known to be empty; the program stops with an error if it
    turns out to be.
    """
    return _arg_info(x, axis, keepdims)
