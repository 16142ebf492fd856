"""Pools: maxima, minima and sums over windows that slide, computed in vectors without conditions.

    B[n, c, h, w] = max(B[n, c, h, w], X[n, c, h * 2 + r - 1, w * 2 + s - 1] or -inf beside X)

    for n, c, h:
        for x in vectors: row[x] = max over r of X[n, c, h * 2 + r - 1, x]
        pad[x] = row[x - 1], or -inf beside it
        for w in vectors: B[n, c, h, w] = max over s of pad[w * 2 + s]

Windows that slide along the last axis share the first step, which reads vectors from where they
begin: what lies in one column is reduced once. Conditions on rows are the same for a whole vector;
those on columns are left to the copy of one row. Accumulators stay in registers.

Where windows slide beside the last axis (channels last, channels in blocks) all taps are reduced
at once for some vectors of channels, and conditions are the same for all of them. Only windows that
overlap much are taken apart there, too.

Small windows over one axis, and those that need no conditions, are left as they are: LLVM makes
vectors of the loops.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ....arith import linear_in
from ....base import CpuModel, record
from ....ir import GE, LT, Call, IntImm, Var
from ...stmt import Block, BufferStore
from ..model.reducer import match_reducer
from ..primitives.windows import guarded
from ..schedule import Schedule
from .contraction import partition_tails, sums_in_registers, variables_of
from .cost import Cost, Demand, predict, rates_of
from .matches import Pool, match_pool
from .plan import Plan
from .queries import TYPICAL_SIZE, extent_of, loops_inside, loops_of
from .view import View

# Vectors that are accumulated at once, and lanes: as many as `vectorize` takes.
_VECTORS = 8
_MOST_LANES = 64
# Taps of windows, and results in a row, of which plain loops make as good vectors.
_FEW_TAPS = 9
_LONG_ROW = 32
_UNROLLED_TAPS = 32


@record
class Windows(Plan):
    """Results in registers while all taps of their windows are read.

    lanes    of a vector
    vectors  how many of them are taken at once, at most
    share    whether what neighbouring windows share is reduced first
    """

    lanes: int
    vectors: int
    share: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Windows | None:
        pool = view.found(_pool_of)
        if pool is None:
            return None
        plan = cls(cpu.lanes(view.block.writes[0].buffer.dtype.bits), _VECTORS)
        count = _taps(view, pool)
        if pool.along is not None:
            if pool.stride is None and count is math.inf:
                return None
            long = (view.extents[pool.vector] or math.inf) > _LONG_ROW
            if count <= _FEW_TAPS and (not pool.taps or (not pool.guards and long)):
                return None
        # Beside the last axis it pays where windows overlap much.
        share = pool.along is not None or _steps(view, pool, True) * 1.5 < count
        return replace(plan, share=share and _may_share(pool))

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        return self.varied(vectors=(1, 2, 4, _VECTORS), share=(False, True))

    def wrong(self, view: View) -> str | None:
        pool = view.found(_pool_of)
        if pool is None:
            return "it pools no windows that slide, over plain loops"
        if self.lanes > _MOST_LANES:
            return f"vectors have up to {_MOST_LANES} lanes"
        if self.share and not _may_share(pool):
            return "windows along one axis share nothing but what they read"
        return None

    def members(self, view: View) -> Sequence[Any]:
        return [view.rv] if view.pointwise is None else [view.rv, view.pointwise]

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        pool: Any = view.found(_pool_of)
        spatial = [view.extents[v] or TYPICAL_SIZE for v in (*pool.outer, pool.vector)]
        results, size = math.prod(spatial), view.block.writes[0].buffer.dtype.itemsize
        steps = min(_steps(view, pool, self.share), float(TYPICAL_SIZE))
        width = tile_width(view.extents[pool.vector], self.lanes, self.vectors)
        # Each tile starts and writes its results, and waits for the last of them.
        rates = rates_of(cpu, self.lanes, 8 * size)
        cycles = results * (steps / rates.products / self.lanes + 4 / width)
        read = float(results * size * (pool.stride or 1) ** 2)
        traffic = ((read, read), (float(results * size), float(results * size)))
        return predict(Demand(cycles, traffic, math.prod(spatial[:-1])), cpu)

    def apply(self, view: View) -> None:
        pool: Any = view.found(_pool_of)
        after = view.pointwise
        if pool.along is None:
            self._beside(view.sch, view.rv, pool, after)
        else:
            self._along_rows(view.sch, view.rv, pool, after)

    # -- along the last axis -----------------------------------------------------------------------

    def _along_rows(self, sch: Schedule, rv: Any, pool: Any, after: Any) -> None:
        shared = self._shared(sch, rv, pool)
        loops = _loops(sch, rv)
        outer = [loops[v] for v in pool.outer] or [sch.add_unit_loop(rv)]
        vector = loops[pool.vector]
        taps = [loops[v] for v in (*pool.taps, pool.along) if v in loops]
        sch.reorder(*outer, vector, *taps)
        for each in reversed(shared):
            sch.compute_at(each, outer[-1])
        for each in shared:
            self._row(sch, each, outer[-1])
        if extent_of(sch, vector) is not None:
            self._tile(sch, rv, vector, taps, after)
            return
        # A row of unknown length: LLVM makes vectors of it, and of what is left over.
        sch.unroll(taps[-1])
        if after is not None:
            sch.reverse_compute_at(after, vector)

    def _shared(self, sch: Schedule, rv: Any, pool: Any) -> list[Any]:
        """The blocks of what windows share: rows of the data, and copies with places beside it."""
        windows = []
        if self.share:
            windows.append(sch.separate_window(rv, [_loops(sch, rv)[pool.along]]))
        alone = self.share or not pool.taps
        if alone and pool.stride is not None and pool.along in variables_of(_conditions(sch, rv)):
            windows.append(sch.separate_window(rv, [_loops(sch, rv)[pool.along]], True))
        return windows

    def _row(self, sch: Schedule, row: Any, loop: Any) -> None:
        """The loops of what windows share, inside `loop`."""
        block: Block = sch.get(row)
        loops = _axis_loops(sch, row, loop)
        reduce = [a.var for a in block.iter_vars if not a.is_spatial]
        place = next(a.var for a in reversed(block.iter_vars) if a.is_spatial)
        if place not in loops or any(v not in loops for v in reduce):
            return
        if reduce:
            sch.reorder(loops[place], *(loops[v] for v in reduce))
            self._tile(sch, row, loops[place], [loops[v] for v in reduce], None)
            return
        # A copy: the places in the data are copied as vectors.
        parts = _parts(sch, row)
        if parts is not None:
            inside = sch.loop_partition(loops[place], [n for n in parts if n])[parts[0] > 0]
            width = tile_width(parts[1], self.lanes, self.vectors)
            over, within = sch.split(inside, [None, width])
            sch.vectorize(within)
            partition_tails(sch, (over, parts[1], width))

    # -- beside the last axis ----------------------------------------------------------------------

    def _beside(self, sch: Schedule, rv: Any, pool: Any, after: Any) -> None:
        row = None
        if self.share:
            across, along, _ = pool.beside
            row = sch.separate_window(rv, [_loops(sch, rv)[along]])
        loops = _loops(sch, rv)
        vector = loops[pool.vector]
        outer = [loops[v] for v in pool.outer]
        taps = [loops[v] for v in pool.taps if v in loops]
        if row is None:
            sch.reorder(*outer, vector, *taps)
            self._tile(sch, rv, vector, taps, after)
            return
        # Some vectors of channels at a time: what they share is little.
        width = tile_width(extent_of(sch, vector), self.lanes, self.vectors)
        over, within = sch.split(vector, [None, width])
        place = loops[across]
        outer = [loop for loop in outer if loop is not place]
        sch.reorder(*outer, over, place, within, *taps)
        sch.compute_at(row, over)
        self._tile(sch, rv, within, taps, after)
        block: Block = sch.get(row)
        inner = _axis_loops(sch, row, over)
        *_, last = (a.var for a in block.iter_vars if a.is_spatial)
        taps = [inner[a.var] for a in block.iter_vars if not a.is_spatial]
        sch.reorder(*(loop for v, loop in inner.items() if loop not in taps and v is not last))
        self._tile(sch, row, inner[last], taps, None)

    def _tile(self, sch: Schedule, rv: Any, vector: Any, taps: list[Any], after: Any) -> None:
        """Some elements at a time, in registers over all taps."""
        extent = extent_of(sch, vector)
        width = tile_width(extent, self.lanes, self.vectors, bool(_conditions(sch, rv)))
        over, within = sch.split(vector, [None, width])
        sch.reorder(over, *taps, within)
        first, write = sums_in_registers(sch, rv, over, taps[0], after)
        for each in (first, rv, write):
            sch.vectorize(list(sch.get_loops(each))[-1])
        if math.prod(extent_of(sch, t) or _UNROLLED_TAPS + 1 for t in taps) <= _UNROLLED_TAPS:
            for tap in taps:
                sch.unroll(tap)
        partition_tails(sch, (over, extent, width))


# -- what is pooled --------------------------------------------------------------------------------


def _pool_of(view: View) -> Pool | None:
    """The pool over plain loops that the block is. Of nothing there is nothing to gain."""
    pool = match_pool(view.block)
    return pool if pool is not None and view.extents and 0 not in view.extents.values() else None


def _may_share(pool: Pool) -> bool:
    """Whether windows slide along an axis, and have places along another one."""
    if pool.along is not None:
        return bool(pool.taps)
    return pool.beside is not None and len(pool.taps) > 1


def _taps(view: View, pool: Pool) -> float:
    """How many places a window has."""
    taps = [view.extents[v] for v in (*pool.taps, pool.along) if v is not None]
    return math.prod(math.inf if n is None else n for n in taps)


def _steps(view: View, pool: Pool, share: bool) -> float:
    """What a result takes, of windows that share or do not."""
    count = _taps(view, pool)
    tap, stride = (
        pool.beside[1:] if pool.along is None and pool.beside else (pool.along, pool.stride)
    )
    across = None if tap is None else view.extents[tap]
    if not share or across is None or stride is None:
        return count
    return stride * count / across + across + 2


def _loops(sch: Schedule, rv: Any) -> dict[Var, Any]:
    loops = loops_of(sch, rv)
    assert loops is not None
    return loops


# -- sizes -----------------------------------------------------------------------------------------


def tile_width(
    extent: int | None, lanes: int, vectors: int = _VECTORS, chosen: bool = False
) -> int:
    """How many elements of an axis to take at once, in `vectors` at most: if they are known, with
    as few vectors, and after them with as few pieces of vectors, as can be.

    chosen  whether conditions choose vectors: those live across branches, for which LLVM takes all
            apart whose lanes are no power of two
    """
    most = min(vectors * lanes, _MOST_LANES)
    if extent is None:
        return min(2 * lanes, most)
    if extent <= most:
        return max(extent, 1)
    best, least = most, math.inf
    widths = (lanes, 2 * lanes, 4 * lanes) if chosen else range(lanes, most + 1)
    for width in (n for n in widths if n <= most):
        whole, rest = divmod(extent, width)
        pieces = -(-width // lanes) + (width % lanes).bit_count() / 2 + 1
        cost = whole * pieces + rest
        if cost < least:
            best, least = width, cost
    return best


def _parts(sch: Schedule, rv: Any) -> tuple[int, int, int] | None:
    """How many places of a row are before the data, in it and behind it; None if not known."""
    block: Block = sch.get(rv)
    place = next(a for a in reversed(block.iter_vars) if a.is_spatial)
    if not isinstance(place.range.extent, IntImm):
        return None
    total = place.range.extent.value
    low, high = 0, total
    for each in _conditions(sch, rv):
        # Conditions on places are of the form that `separate_window` gives them.
        terms = linear_in(each.a, place.var) if type(each) in (GE, LT) else None
        if terms is None or terms[0] != 1 or not isinstance(terms[1], IntImm):
            return None
        if type(each) is GE:
            low = max(low, -terms[1].value)
        else:
            high = min(high, -terms[1].value)
    return (low, high - low, total - high) if low < high else None


# -- blocks ----------------------------------------------------------------------------------------


def _conditions(sch: Schedule, rv: Any) -> list[Any]:
    """When the terms of a reduction, or the elements of a copy, are not the value that changes
    nothing.
    """
    block: Block = sch.get(rv)
    reducer = match_reducer(block)
    if reducer is not None:
        return guarded(reducer.updates[0], reducer.identity[0])[0]
    value = block.body.value if isinstance(block.body, BufferStore) else None
    return [] if not isinstance(value, Call) else guarded(value, value.args[-1])[0]


def _axis_loops(sch: Schedule, rv: Any, outer: Any) -> dict[Var, Any]:
    """{axis: its loop} of the axes of a block that loops inside `outer` move."""
    block: Block = sch.get(rv)
    values = sch.state.realize(block).iter_values
    by_var = {sch.get(x).loop_var: x for x in loops_inside(sch, rv, outer)}
    by_axis: dict[Var, Any] = {}
    for a, value in zip(block.iter_vars, values):
        mine = [x for v, x in by_var.items() if v in variables_of((value,))]
        if len(mine) == 1:
            by_axis[a.var] = mine[0]
    return by_axis
