"""Boxes of elements: what an access of a block touches while some loops run."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import IterMapper, IterSumExpr, Numbers, Span, as_number, interval_of, number_of
from ....base import NamedTuple
from ....ir import IntImm, PrimExpr, Substitution, Var, cast, const
from ...stmt import BlockRealize, Buffer, For
from .state import State, free_variables

ALWAYS = const(True)


class Access(NamedTuple):
    """A box of elements: (first index, extent) along each dimension, over the block's axes."""

    buffer: Buffer
    box: tuple[tuple[PrimExpr, Any], ...]

    def why_unlike(self, other: Access) -> str:
        """Why the indices of two accesses of one memory cannot be compared; empty if they can: the
        buffers are one, or lie over the memory in the same way.
        """
        a, b = self.buffer, other.buffer
        if a is b or (a.dtype, a.shape, a.strides, a.elem_offset) == (
            b.dtype,
            b.shape,
            b.strides,
            b.elem_offset,
        ):
            return ""
        return f"{a.name} and {b.name} are different views of one memory"


class Box(NamedTuple):
    """(first index, extent) along each dimension; None where nothing is known.

    exact  whether every element of the box is touched
    """

    axes: tuple[Span | None, ...]
    exact: bool

    def fills(self, shape: Iterable[PrimExpr], numbers: Numbers) -> bool:
        """Whether it is shown to be all of a buffer of that shape."""
        sizes = map(number_of, shape)
        return self.exact and all(
            axis is not None and number_of(axis[0]) == 0 and numbers.equal(axis[1], size)
            for axis, size in zip(self.axes, sizes)
        )


_RANGE = operator.attrgetter("loop_var", "min", "extent")


def iters_of(loops: Iterable[For]) -> dict[Var, tuple[PrimExpr, PrimExpr]]:
    """The loops as iterators."""
    return {f.loop_var: (f.min, f.extent) for f in loops}


def mapper_of(state: State, loops: Sequence[For], predicate: PrimExpr = ALWAYS) -> IterMapper:
    """The mapper over `loops` that knows a predicate: the same one whenever it is asked for."""

    def mapper() -> IterMapper:
        over = IterMapper(iters_of(loops), state.analyzer)
        if predicate is not ALWAYS:
            over.constrain(predicate)
        return over

    known: IterMapper = state.remember(("mapper", *map(_RANGE, loops)), predicate, mapper)
    return known


def may_be_empty(mapper: IterMapper, realize: BlockRealize, loops: Sequence[For]) -> For | None:
    """A loop that moves no axis of the block and may have no iterations. (Where one that moves an
    axis has none, the block has nothing to do.)
    """
    for f in loops:
        if not (isinstance(f.extent, IntImm) and f.extent.value > 0) and not any(
            f.loop_var in free_variables(value) for value in realize.iter_values
        ):
            if not mapper.at_most(1, number_of(f.extent)):
                return f
    return None


def bound_box(realize: BlockRealize, access: Access) -> tuple[tuple[PrimExpr, Any], ...]:
    """A box over the axes as one over the loops."""
    axes = zip(realize.block.iter_vars, realize.iter_values)
    bound = Substitution({a.var: v for a, v in axes})
    return tuple([(bound(low), e if isinstance(e, int) else bound(e)) for low, e in access.box])


def region_while(
    state: State,
    realize: BlockRealize,
    access: Access,
    loops: Sequence[For],
    constrained: bool = True,
) -> Box:
    """What `access` of the block touches while `loops` run, in terms of the loops outside.

    constrained  whether to use the block's predicate; without it, the box is one around that
    """
    certain = not constrained or isinstance(realize.predicate, IntImm)
    predicate = ALWAYS if certain else realize.predicate
    single = _single_values(state, realize)
    about = (access, realize.iter_values, predicate, tuple(single.items()), *map(_RANGE, loops))

    def region() -> Box:
        mapper = mapper_of(state, loops, predicate)
        return _region(state, realize, access, loops, mapper, Substitution(single))

    box: Box = state.remember(about, realize.block, region)
    return box


def _region(
    state: State,
    realize: BlockRealize,
    access: Access,
    loops: Sequence[For],
    mapper: IterMapper,
    single: Substitution,
) -> Box:
    axes: list[Span | None] = []
    sums: list[IterSumExpr] = []
    exact = True
    moving = {f.loop_var for f in loops}
    for low, extent in bound_box(realize, access):
        low = single(low)
        # An extent that the loops change is no number to them.
        steady = isinstance(extent, int) or not free_variables(extent) & moving
        total = mapper.sum_of(low) if steady else None
        span = None if total is None else mapper.span(total, number_of(extent))
        if [e for e in span or () if isinstance(e, PrimExpr) and free_variables(e) & moving]:
            # Loops that are as long as another one of them says.
            span = None
        if total is None or span is None:
            exact = False
            axes.append(_general(state, low, extent, loops, moving))
            continue
        axes.append((as_number(span[0], low.dtype), span[1]))
        sums.append(total)
        # An extent that is a size may be 0.
        exact = exact and (
            not total.args
            or mapper.dense_extent(total, 1) is not None
            or mapper.dense_extent(total, number_of(extent)) is not None
        )
    exact = exact and may_be_empty(mapper, realize, loops) is None
    return Box(tuple(axes), exact and mapper.independent(sums))


def _single_values(state: State, realize: BlockRealize) -> dict[Var, PrimExpr]:
    """What the loops of one iteration around a block stand for."""
    if not state.has(realize):
        return {}
    loops = state.loops_above(realize)
    return {f.loop_var: f.min for f in loops if type(f.extent) is IntImm and f.extent.value == 1}


def _general(
    state: State, low: PrimExpr, extent: Any, loops: Sequence[For], moving: set[Var]
) -> Span | None:
    known = {}
    for f in loops:
        known[f.loop_var] = (f.min, f.min + f.extent - 1)
    if any(free_variables(a) & moving for f in loops for a in (f.min, f.extent)):
        return None
    simplify = state.analyzer.simplify
    interval = interval_of(low, known, state.analyzer)
    if interval is None:
        return None
    first, last = simplify(interval[0]), interval[1]
    number = number_of(extent)
    if not isinstance(extent, int) and free_variables(extent) & moving:
        ends = interval_of(simplify(low + cast(low.dtype, extent) - 1), known, state.analyzer)
        if ends is None:
            return None
        last, number = ends[1], 1
    span = number_of(simplify(last - interval[0]))
    if isinstance(span, int) and isinstance(number, int):
        return first, span + number
    return first, number_of(simplify(span + number))
