"""argmax and argmin: where the greatest and the least element stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import te, tir
from ...base import DataType, StructInfoError, VMValueError
from ...ir.expr import And, IntImm, Or, PrimExpr, Select, cast, const
from ...tir.stmt import Buffer, Stmt
from ..expr import Call
from ..struct_info import Expr, StructInfo
from .families import reduced_info
from .infer import ANY, axes_of, axis_of, dims_product, tensor
from .loops import assert_that, call_checked
from .lower import elementwise
from .record import missing, op
from .statistical import infinite, te_max, te_min

__all__ = [
    "arg_reducer",
    "argmax",
    "argmin",
]

_NUMBERED = missing("axes are numbered by position")
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


def arg_reducer(better: Callable[[PrimExpr, PrimExpr], PrimExpr], sign: int) -> Callable[..., Any]:
    """A te reducer of (index, value): the first value that none is `better` than, or the first NaN;
    -1 over nothing.

    sign  of the infinity that is the worst value
    """

    def combine(x: Any, y: Any) -> tuple[PrimExpr, PrimExpr]:
        (i, a), (j, b) = x, y
        first = better(b, a)
        equal = b.equal(a)
        if a.dtype.is_float:
            first = Or(first, And(tir.isnan(b), tir.logical_not(tir.isnan(a))))
            equal = Or(equal, And(tir.isnan(a), tir.isnan(b)))
        zero = const(0, i.dtype)
        takes = And(j >= zero, Or(Or(i < zero, first), And(equal, j < i)))
        return Select(takes, j, i), Select(takes, b, a)

    return te.comm_reducer(combine, lambda i, d: (const(-1, i), infinite(d, sign)), "arg")


def _arg_lower(extreme: Callable[..., Any]) -> Callable[..., Any]:
    """Two reductions that become vectors: the extreme value, then the first place that has it. NaN
    is extreme, and equal to no value: the first one counts.
    """

    def compute(x: te.Tensor, *, axis: int | None, keepdims: bool) -> te.Tensor:
        axes = axes_of(axis, x.ndim)
        if not axes:
            return elementwise(x, lambda v: const(0, "int64"))
        dims = [
            const(1, d.dtype) if k in axes else d
            for k, d in enumerate(x.shape)
            if keepdims or k not in axes
        ]
        # Twice as many of the shorter ones fit a vector.
        count = dims_product([x.shape[a] for a in axes])
        short = isinstance(count, IntImm) and count.value < 1 << 31
        places = DataType("int32" if short else "int64")

        def reduced(name: str, value: Callable[..., PrimExpr]) -> Any:
            """The extreme of value(element, its place, index of the result)."""
            over = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}

            def at(*index: PrimExpr) -> Any:
                rest = iter([i for k, i in enumerate(index) if not (keepdims and k in over)])
                where = [over[k].var if k in over else next(rest) for k in range(x.ndim)]
                place: PrimExpr = const(0, places)
                for a in axes:
                    place = place * cast(places, x.shape[a]) + cast(places, over[a].var)
                return value(list(over.values()), x(*where), place, index)

            return te.compute(tuple(dims), at, name)

        best = reduced("best", lambda over, v, place, index: extreme(v, axis=over))
        nowhere = const(places.max_value, places)

        def first(over: Any, v: PrimExpr, place: PrimExpr, index: Any) -> Any:
            hit = v.equal(best(*index))
            if v.dtype.is_float:
                hit = Or(hit, tir.isnan(v))
            return te.min(Select(hit, place, nowhere), axis=over)

        found = reduced("place", first)
        return te.compute(tuple(dims), lambda *index: cast("int64", found(*index)), "arg")

    def lower(builder: Any, call: Call) -> Expr:
        (x,) = call.args
        short = call.op.short  # type: ignore[attr-defined]
        axes = axes_of(call.attrs["axis"], x.struct_info.ndim)  # type: ignore[attr-defined]

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
    if info.dims is not None:
        for a in axes_of(axis, info.ndim):
            if isinstance(info.dims[a], IntImm) and info.dims[a].value == 0:  # type: ignore[attr-defined]
                raise StructInfoError(f"x: axis {a} is empty: {_NOTHING}")
    return reduced_info(info, axis, keepdims, DataType("int64"))


@op(
    "argmax",
    numpy=_arg_numpy(np.argmax),
    lower=_arg_lower(te_max),
    grad=_INDEX,
    layout=_NUMBERED,
)
def argmax(x: Expr, axis: int | None = None, keepdims: bool = False) -> StructInfo:
    """The int64 index of the first greatest element along `axis` (None: of x flattened); the first
    NaN if there is one.

    Raises StructInfoError if the axis is known to be empty; the program stops with an error if it
    turns out to be.
    """
    return _arg_info(x, axis, keepdims)


@op(
    "argmin",
    numpy=_arg_numpy(np.argmin),
    lower=_arg_lower(te_min),
    grad=_INDEX,
    layout=_NUMBERED,
)
def argmin(x: Expr, axis: int | None = None, keepdims: bool = False) -> StructInfo:
    """The int64 index of the first least element along `axis` (None: of x flattened); the first NaN
    if there is one.

    Raises StructInfoError if the axis is known to be empty; the program stops with an error if it
    turns out to be.
    """
    return _arg_info(x, axis, keepdims)
