"""`separate_window`: a reduction over windows in two steps, which neighbouring windows share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import conjuncts, interval_of, linear_in
from ....base import NamedTuple
from ....ir import (
    GE,
    GT,
    INTRINSICS,
    LE,
    LT,
    Call,
    Max,
    Min,
    PrimExpr,
    Range,
    Var,
    binary,
    cast,
    const,
    substitute,
    walk,
)
from ....ir.walk import transform
from ...op import all as every
from ...op import if_then_else
from ...stmt import Block, Buffer, BufferLoad, BufferStore, IterVar, seq
from ..model.bindings import loop_uses
from ..model.facts import BlockKind, facts_of
from ..model.places import add_allocation
from ..model.primitive import BLOCK, LOOP, list_of, primitive
from ..model.reducer import Reducer, match_reducer
from ..model.regions import with_regions
from ..model.state import State, free_variables, refuse
from .cache import new_buffer
from .checks import check_from_zero, check_runs_everywhere
from .layout import whole_nest
from .nests import looped

# Relations, and whether they ask if the left side is great enough.
_LOW = {LT: False, LE: False, GT: True, GE: True}


class _Slide(NamedTuple):
    """An index that windows slide along: ``sum = low + place``, with 0 <= place < extent.

    tap    the reduce axis that moves within a window
    axes   the spatial axes that move the window; they have no other use
    place  the axis of the first step that takes the place of both
    """

    sum: PrimExpr
    tap: Var
    axes: tuple[Var, ...]
    place: Var
    low: PrimExpr
    extent: PrimExpr


@primitive(block=BLOCK, loops=list_of(LOOP), gives=BLOCK)
def separate_window(
    state: State, block: Block, loops: Sequence[Var], padded: bool = False
) -> tuple[State, Block]:
    """Reduce over all loops but `loops` first, for each place that windows have along `loops`: so
    that windows that overlap share these results.

    loops    reduce loops; each moves one index of what is read, together with spatial axes
    padded   whether conditions on such an index move to the first step, too, which then has a
             result for places beside the data as well; else the first step has results for places
             in the data only
    returns  the block of the first step; the random variable of the reduction stands for the second

    Raises ScheduleError unless the block is a known reduction of which the order does not matter,
    and what it reads depends on the axes of `loops`, and on the spatial axes beside them, by the
    sum of both only.

        for i, j, r, s in T.grid(8, 6, 3, 3):       for i, x, r in T.grid(8, 8, 3):
            B[i, j] = max(B[i, j],             →        W[i, x] = max(W[i, x], A[i + r, x])
                          A[i + r, j + s])          for i, j, s in T.grid(8, 6, 3):
                                                        B[i, j] = max(B[i, j], W[i, j + s])
    """
    name = block.name_hint
    reducer = _reducer(state, block)
    realize = state.realize(block)
    axis_of = {v: a for a, v in zip(block.iter_vars, realize.iter_values)}
    taps: list[Var] = []
    for loop in loops:
        axis = axis_of.get(loop)
        if axis is None or loop_uses(realize, loop) != {"reduce"}:
            refuse(f"loop {loop.name} is no reduce axis of block {name}", state.loop(loop), block)
        taps.append(axis.var)
    if not taps:
        refuse("wanted at least one loop", block)
    top = whole_nest(state, block)
    conditions, value = guarded(reducer.updates[0], reducer.identity[0])
    slides, sizes = _slides(state, block, value, taps)
    moved = {v for s in slides for v in (s.tap, *s.axes)}
    first = _moved_value(state, block, value, slides, moved)
    ours: list[PrimExpr] = []
    theirs: list[PrimExpr] = []
    ends: set[tuple[Var, str]] = set()
    for each in conditions:
        moves = _moved_condition(state, each, slides, moved, ends) if padded else None
        if not free_variables(each) & moved:
            theirs.append(each)
        elif moves is None:
            ours.append(each)
        else:
            theirs.append(moves)
    slides = [_clipped(state, s, sizes[s.sum], ends) for s in slides]
    low = {s.place: s.place + s.low for s in slides}
    places = _axes_of_places(block, slides)
    (out, _), shape = reducer.buffers[0], tuple(a.range.extent for a in places)
    partial = new_buffer(out, f"{out.name}_w", out.scope(), shape)
    once = substitute(_guard(theirs, first, reducer), low)
    first_block = _first_step(state, block, reducer, partial, places, moved, once)
    back = {s.place: state.analyzer.simplify(s.sum - s.low) for s in slides}
    indices = tuple(substitute(a.var, back) for a in places)
    again = _second_step(state, block, reducer, BufferLoad(partial, indices), ours, taps)
    nests = (looped(first_block), looped(again))
    scope = state.scope(realize)
    state = state.replace(top, seq(*nests), [(block, again)])
    state = add_allocation(state, scope, partial)
    return state, state.now(first_block)


def _reducer(state: State, block: Block) -> Reducer:
    name, facts = block.name_hint, facts_of(state, block)
    if facts.kind is not BlockKind.REDUCTION or not facts.simple or block.init is None:
        refuse(f"block {name} is no reduction that can be taken apart: {facts.why}", block)
    reducer = match_reducer(block)
    if reducer is None or not reducer.commutative or len(reducer.updates) != 1:
        refuse(
            f"the reduction of block {name} is none of those that are known (sum, product, max, "
            "min, and, or)",
            block,
        )
    check_runs_everywhere(state, block)
    check_from_zero(block, block.iter_vars)
    for a in block.iter_vars:
        if not a.is_spatial and not state.analyzer.can_prove(a.range.extent >= 1):
            refuse(
                f"axis {a.var.name} may have no iterations, so that results of the first step "
                "would not be written",
                block,
            )
    return reducer


def guarded(value: PrimExpr, identity: PrimExpr) -> tuple[list[PrimExpr], PrimExpr]:
    """(conditions, value where they hold) of a term that changes nothing where they do not."""
    conditions: list[PrimExpr] = []
    while isinstance(value, Call) and value.op is INTRINSICS["if_then_else"]:
        if value.args[2] is not identity:
            break
        conditions += conjuncts(value.args[0])
        value = value.args[1]
    return conditions, value


# -- what slides -----------------------------------------------------------------------------------


def _slides(
    state: State, block: Block, value: PrimExpr, taps: Sequence[Var]
) -> tuple[list[_Slide], dict[PrimExpr, list[PrimExpr]]]:
    """The indices that windows slide along, and the sizes of the dimensions that each indexes."""
    kinds = {a.var: a for a in block.iter_vars}
    moved: dict[Var, PrimExpr] = {}
    sizes: dict[PrimExpr, list[PrimExpr]] = {}
    for n in walk(value):
        if not isinstance(n, BufferLoad):
            continue
        for index, size in zip(n.indices, n.buffer.shape):
            e = state.analyzer.simplify(index)
            used = [t for t in taps if t in free_variables(e)]
            if not used:
                continue
            if len(used) > 1 or moved.setdefault(used[0], e) is not e:
                refuse(f"block {block.name_hint} reads along {used[0].name} in several ways", block)
            sizes.setdefault(e, []).append(size)
    slides = []
    known = {v: (const(0, v.dtype), cast(v.dtype, a.range.extent) - 1) for v, a in kinds.items()}
    for tap in taps:
        if tap not in moved:
            refuse(f"block {block.name_hint} reads nothing along {tap.name}", block)
        e = moved[tap]
        others = [v for v in kinds if v in free_variables(e) and v is not tap]
        if any(not kinds[v].is_spatial for v in others):
            refuse(f"index {e} of block {block.name_hint} has two reduce axes", block)
        span = interval_of(e, known, state.analyzer)
        if span is None:
            refuse(f"no bounds are known of index {e} of block {block.name_hint}", block)
        low = state.analyzer.simplify(span[0])
        extent = state.analyzer.simplify(span[1] - low + 1)
        place = Var(f"v_{tap.name.removeprefix('v_')}_place", e.dtype)
        slides.append(_Slide(e, tap, tuple(others), place, low, extent))
    return slides, sizes


def _clipped(
    state: State, s: _Slide, sizes: Sequence[PrimExpr], ends: set[tuple[Var, str]]
) -> _Slide:
    """`s` without the places beside the data, at the ends at which no condition tells them."""
    simplify = state.analyzer.simplify
    low, end = s.low, s.low + s.extent
    if (s.tap, "low") not in ends:
        low = simplify(binary(Max, low, const(0, low.dtype)))
    if (s.tap, "high") not in ends:
        # Of no windows the last place is that of the one before the first.
        for size in sizes:
            end = binary(Min, end, cast(end.dtype, size))
    return s._replace(low=low, extent=simplify(end - low))


def _moved_value(
    state: State, block: Block, value: PrimExpr, slides: Sequence[_Slide], moved: set[Var]
) -> PrimExpr:
    """`value` by the places that windows have, counted from `low`."""
    by_index = {s.sum: s.place for s in slides}

    def place(n: Any) -> Any:
        if not isinstance(n, BufferLoad):
            return None
        simple = tuple(state.analyzer.simplify(i) for i in n.indices)
        return BufferLoad(n.buffer, tuple(by_index.get(i, i) for i in simple))

    new_value: PrimExpr = transform(value, place)
    left = free_variables(new_value) & moved
    if left:
        names = ", ".join(sorted(v.name for v in left))
        refuse(f"what block {block.name_hint} reduces depends on {names} in other ways", block)
    return new_value


def _moved_condition(
    state: State,
    condition: Any,
    slides: Sequence[_Slide],
    moved: set[Var],
    ends: set[tuple[Var, str]],
) -> PrimExpr | None:
    """The condition by places, None if that cannot be; `ends` notes which end it is about."""
    used = free_variables(condition) & moved
    if type(condition) not in _LOW or not condition.a.dtype.is_int:
        return None
    for s in slides:
        if s.tap not in used:
            continue
        dtype = s.sum.dtype
        simplify = state.analyzer.simplify
        side = simplify(cast(dtype, condition.a) - cast(dtype, condition.b))
        mine, theirs = linear_in(side, s.tap), linear_in(s.sum, s.tap)
        if mine is None or theirs is None or abs(mine[0]) != theirs[0]:
            return None
        factor = mine[0] // theirs[0]
        rest = simplify(side - s.sum * factor)
        if free_variables(rest) & moved:
            return None
        ends.add((s.tap, "low" if _LOW[type(condition)] == (factor > 0) else "high"))
        return type(condition)(simplify(s.place * factor + rest), const(0, dtype))
    return None


# -- the two steps ---------------------------------------------------------------------------------


def _guard(conditions: Sequence[PrimExpr], value: PrimExpr, reducer: Reducer) -> PrimExpr:
    return if_then_else(every(*conditions), value, reducer.identity[0]) if conditions else value


def _axes_of_places(block: Block, slides: Sequence[_Slide]) -> list[IterVar]:
    """The spatial axes of the first step: a place stands where the first axis that it replaces
    stood, or last.
    """
    axes: list[IterVar] = []
    places: dict[Var, IterVar] = {}
    for s in slides:
        dom = Range.from_min_extent(const(0, s.place.dtype), s.extent)
        places[s.place] = IterVar(dom, s.place)
    first = {s.axes[0]: s.place for s in slides if s.axes}
    moved = {v for s in slides for v in s.axes}
    for a in block.iter_vars:
        if a.var in first:
            axes.append(places.pop(first[a.var]))
        elif a.is_spatial and a.var not in moved:
            axes.append(a)
    return [*axes, *places.values()]


def _first_step(
    state: State,
    block: Block,
    reducer: Reducer,
    partial: Buffer,
    places: Sequence[IterVar],
    moved: set[Var],
    value: PrimExpr,
) -> Block:
    reduce = [a for a in block.iter_vars if not a.is_spatial and a.var not in moved]
    indices = tuple(a.var for a in places)
    old = BufferLoad(partial, indices)
    init = None
    if reduce:
        (value,) = reducer.combine((old,), (value,))
        init = BufferStore(partial, reducer.identity[0], indices)
    body = BufferStore(partial, value, indices)
    step = Block(
        (*places, *reduce), (), (), f"{block.name_hint}_{'w' if reduce else 'places'}", body, init
    )
    # The second step goes on with the axes of the block.
    fresh = {a.var: Var(a.var.name, a.var.dtype) for a in step.iter_vars}
    return with_regions(state, substitute(step, fresh))


def _second_step(
    state: State,
    block: Block,
    reducer: Reducer,
    value: PrimExpr,
    conditions: Sequence[PrimExpr],
    taps: Sequence[Var],
) -> Block:
    buffer, indices = reducer.buffers[0]
    (updated,) = reducer.combine(
        (BufferLoad(buffer, indices),), (_guard(conditions, value, reducer),)
    )
    axes = tuple(a for a in block.iter_vars if a.is_spatial or a.var in taps)
    body = BufferStore(buffer, updated, indices)
    return with_regions(state, block.replace(iter_vars=axes, body=body, reads=(), writes=()))
