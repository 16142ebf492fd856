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
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....base import CpuModel
from ....ir import GE, LT, Call, IntImm, Var, walk
from ...stmt import Block, BufferLoad, BufferStore
from ...transform import linear_in
from ..reducer import match_reducer
from ..regions import users_of
from ..schedule import Schedule
from ..windows import guarded
from .contraction import partition_tails, variables_of
from .queries import extent_of, is_pointwise, loops_inside, loops_of

_REDUCERS = frozenset({"max", "min", "sum", "prod"})
# Vectors that are accumulated at once, and lanes: as many as `vectorize` takes.
_VECTORS = 8
_MOST_LANES = 64
# Taps of windows, and results in a row, of which plain loops make as good vectors.
_FEW_TAPS = 9
_LONG_ROW = 32
_UNROLLED_TAPS = 32
_LONGEST_WINDOW = 64


# -- what a pool is --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pool:
    """What a block pools.

    vector    the axis along the last dimension of the result
    outer     the other spatial axes, in order
    along     the tap that moves along the last dimension of the data; None if the vector axis
              stands there alone
    taps      the other taps
    stride    by how much the data's last index grows with the vector axis; None if that varies
    beside    the last axis of `outer` along which windows slide, its tap and its stride; None if
              there is none
    guards    whether windows have places that do not count
    """

    vector: Var
    outer: tuple[Var, ...]
    along: Var | None
    taps: tuple[Var, ...]
    stride: int | None
    beside: tuple[Var, Var, int] | None
    guards: bool


def match_pool(block: Block) -> Pool | None:
    """The pool that `block` is, or None."""
    reducer = match_reducer(block)
    if reducer is None or reducer.name not in _REDUCERS or len(reducer.updates) != 1:
        return None
    conditions, value = guarded(reducer.updates[0], reducer.identity[0])
    loads = [n for n in walk(value) if isinstance(n, BufferLoad)]
    _, written = reducer.buffers[0]
    if len(loads) != 1 or not written or not all(isinstance(i, Var) for i in written):
        return None
    kinds = {a.var: a.iter_type for a in block.iter_vars}
    reduce = [v for v, kind in kinds.items() if kind != "spatial"]
    if {*written} != {v for v, kind in kinds.items() if kind == "spatial"}:
        return None
    vector: Any = written[-1]
    indices = [Analyzer(wrap=True).simplify(i) for i in loads[0].indices]
    used = [variables_of((i,)) for i in indices]
    sliding = [(u & {*reduce}, u & {*written}) for u in used]
    if not any(taps and axes for taps, axes in sliding) or any(len(t) > 1 for t, _ in sliding):
        return None
    if any(sum(v in u for u in used) > 1 for v in (*reduce, vector)):
        return None
    if vector not in used[-1]:
        return None
    step = linear_in(indices[-1], vector)
    stride = None if step is None else step[0]
    along = next(iter(sliding[-1][0]), None)
    if along is None and (indices[-1] is not vector or vector in variables_of(conditions)):
        return None
    if along is not None and _is_row(block, along):
        return None
    outer: Any = tuple(v for v in written if v is not vector)
    beside = []
    for (inner, axes), index in zip(sliding[:-1], indices):
        if len(inner) == len(axes) == 1:
            (axis,), (tap,) = axes, inner
            terms = linear_in(index, axis)
            if terms is not None:
                beside.append((axis, tap, terms[0]))
    return Pool(
        vector,
        outer,
        along,
        tuple(v for v in reduce if v is not along),
        stride,
        beside[-1] if beside else None,
        bool(conditions),
    )


def _is_row(block: Block, along: Var) -> bool:
    """Whether a window is so long that it is better reduced by itself, as rows are."""
    extent = next(a.range.extent for a in block.iter_vars if a.var is along)
    return isinstance(extent, IntImm) and extent.value > _LONGEST_WINDOW


# -- scheduling ------------------------------------------------------------------------------------


def schedule_pools(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Schedule the pools among `blocks`; returns the blocks that are taken care of."""
    taken: list[Any] = []
    for rv in blocks:
        pool = match_pool(sch.get(rv))
        loops = None if pool is None else loops_of(sch, rv)
        # Of nothing there is nothing to gain, and little to be proven.
        if pool is not None and loops and all(extent_of(sch, x) != 0 for x in loops.values()):
            taken += _Pooling(sch, rv, pool, cpu).run()
    return taken


class _Pooling:
    """The scheduling of one pool."""

    def __init__(self, sch: Schedule, rv: Any, pool: Pool, cpu: CpuModel) -> None:
        self.sch, self.rv, self.pool, self.cpu = sch, rv, pool, cpu
        block: Block = sch.get(rv)
        self.lanes = cpu.lanes(block.writes[0].buffer.dtype.bits)
        loops = self._loops()
        taps = [extent_of(sch, loops[v]) for v in (*pool.taps, *self._along())]
        self.count = math.prod(math.inf if n is None else n for n in taps)

    def run(self) -> list[Any]:
        """Schedule it; returns the blocks that are taken care of, none if it is left as it is."""
        pool = self.pool
        if pool.along is not None and pool.stride is None and self.count is math.inf:
            return []
        if pool.along is not None and self.count <= _FEW_TAPS:
            extent = extent_of(self.sch, self._loops()[pool.vector])
            if not pool.taps or (not pool.guards and (extent or math.inf) > _LONG_ROW):
                return []
        after = self._epilogue()
        if pool.along is None:
            self._beside(after)
        else:
            self._along_rows(after)
        return [self.rv, *([] if after is None else [after])]

    def _loops(self) -> dict[Var, Any]:
        loops = loops_of(self.sch, self.rv)
        assert loops is not None
        return loops

    def _along(self) -> tuple[Var, ...]:
        return () if self.pool.along is None else (self.pool.along,)

    def _epilogue(self) -> Any:
        """The block that computes something of each element of the result, None if none does."""
        sch = self.sch
        consumers = sch.get_consumers(self.rv)
        if len(consumers) != 1:
            return None
        mine: Block = sch.get(self.rv)
        pooled = mine.writes[0].buffer
        root: Block = sch.get(sch.get_block("root"))
        inside = any(b is pooled for b in root.alloc_buffers)
        alone = len(users_of(sch.state, pooled.data)[0]) == 1
        fits = inside and alone and is_pointwise(sch, consumers[0], pooled)
        return consumers[0] if fits else None

    # -- along the last axis -----------------------------------------------------------------------

    def _along_rows(self, after: Any) -> None:
        sch, rv, pool = self.sch, self.rv, self.pool
        assert pool.along is not None
        shared = self._shared()
        loops = self._loops()
        outer = [loops[v] for v in pool.outer] or [sch.add_unit_loop(rv)]
        vector, tap = loops[pool.vector], loops[pool.along]
        sch.reorder(*outer, vector, tap)
        for each in reversed(shared):
            sch.compute_at(each, outer[-1])
        for each in shared:
            self._row(each, outer[-1])
        if extent_of(sch, vector) is not None:
            self._tile(rv, vector, [tap], after)
            return
        # A row of unknown length: LLVM makes vectors of it, and of what is left over.
        sch.unroll(tap)
        if after is not None:
            sch.reverse_compute_at(after, vector)

    def _shared(self) -> list[Any]:
        """The blocks of what windows share: rows of the data, and copies with places beside it."""
        sch, rv, pool = self.sch, self.rv, self.pool
        (along,) = self._along()
        windows = []
        if pool.taps:
            windows.append(sch.separate_window(rv, [self._loops()[along]]))
        if pool.stride is not None and along in variables_of(_conditions(sch.get(rv))):
            windows.append(sch.separate_window(rv, [self._loops()[along]], True))
        return windows

    def _row(self, row: Any, loop: Any) -> None:
        """The loops of what windows share, inside `loop`."""
        sch = self.sch
        block: Block = sch.get(row)
        loops = _axis_loops(sch, row, loop)
        reduce = [a.var for a in block.iter_vars if not a.is_spatial]
        place = next(a.var for a in reversed(block.iter_vars) if a.is_spatial)
        if place not in loops or any(v not in loops for v in reduce):
            return
        if reduce:
            sch.reorder(loops[place], *(loops[v] for v in reduce))
            self._tile(row, loops[place], [loops[v] for v in reduce], None)
            return
        # A copy: the places in the data are copied as vectors.
        parts = _parts(block)
        if parts is not None:
            inside = sch.loop_partition(loops[place], [n for n in parts if n])[parts[0] > 0]
            width = tile_width(parts[1], self.lanes)
            over, within = sch.split(inside, [None, width])
            sch.vectorize(within)
            partition_tails(sch, (over, parts[1], width))

    # -- beside the last axis ----------------------------------------------------------------------

    def _beside(self, after: Any) -> None:
        sch, rv, pool = self.sch, self.rv, self.pool
        row = None
        if self._is_worth_sharing():
            assert pool.beside is not None
            across, along, _ = pool.beside
            row = sch.separate_window(rv, [self._loops()[along]])
        loops = self._loops()
        vector = loops[pool.vector]
        outer = [loops[v] for v in pool.outer]
        taps = [loops[v] for v in pool.taps if v in loops]
        if row is None:
            sch.reorder(*outer, vector, *taps)
            self._tile(rv, vector, taps, after)
            return
        # Some vectors of channels at a time: what they share is little.
        over, within = sch.split(vector, [None, tile_width(extent_of(sch, vector), self.lanes)])
        place = loops[across]
        outer = [loop for loop in outer if loop is not place]
        sch.reorder(*outer, over, place, within, *taps)
        sch.compute_at(row, over)
        self._tile(rv, within, taps, after)
        block: Block = sch.get(row)
        inner = _axis_loops(sch, row, over)
        *_, last = (a.var for a in block.iter_vars if a.is_spatial)
        taps = [inner[a.var] for a in block.iter_vars if not a.is_spatial]
        sch.reorder(*(loop for v, loop in inner.items() if loop not in taps and v is not last))
        self._tile(row, inner[last], taps, None)

    def _is_worth_sharing(self) -> bool:
        """Whether windows overlap so much that two steps are less work than one."""
        if self.pool.beside is None or len(self.pool.taps) < 2:
            return False
        _, tap, stride = self.pool.beside
        across = extent_of(self.sch, self._loops()[tap])
        if across is None or self.count is math.inf:
            return False
        return self.count > 1.5 * (stride * self.count / across + across + 2)

    # -- tiles -------------------------------------------------------------------------------------

    def _tile(self, rv: Any, vector: Any, taps: list[Any], after: Any) -> None:
        """Some elements at a time, in registers over all taps."""
        sch = self.sch
        extent = extent_of(sch, vector)
        width = tile_width(extent, self.lanes, bool(_conditions(sch.get(rv))))
        over, within = sch.split(vector, [None, width])
        sch.reorder(over, *taps, within)
        if after is None:
            write = sch.cache_write(rv, 0, "local")
        else:
            write = after
            sch.set_scope(rv, 0, "local")
        sch.reverse_compute_at(write, over)
        first = sch.decompose_reduction(rv, taps[0])
        for each in (first, rv, write):
            sch.vectorize(list(sch.get_loops(each))[-1])
        if math.prod(extent_of(sch, t) or _UNROLLED_TAPS + 1 for t in taps) <= _UNROLLED_TAPS:
            for tap in taps:
                sch.unroll(tap)
        partition_tails(sch, (over, extent, width))


# -- sizes -----------------------------------------------------------------------------------------


def tile_width(extent: int | None, lanes: int, chosen: bool = False) -> int:
    """How many elements of an axis to take at once: if they are known, with as few vectors, and
    after them with as few pieces of vectors, as can be.

    chosen  whether conditions choose vectors: those live across branches, for which LLVM takes all
            apart whose lanes are no power of two
    """
    most = min(_VECTORS * lanes, _MOST_LANES)
    if extent is None:
        return min(2 * lanes, most)
    if extent <= most:
        return max(extent, 1)
    best, least = most, math.inf
    widths = (lanes, 2 * lanes, 4 * lanes) if chosen else range(lanes, most + 1)
    for width in widths:
        whole, rest = divmod(extent, width)
        pieces = -(-width // lanes) + (width % lanes).bit_count() / 2 + 1
        cost = whole * pieces + rest
        if cost < least:
            best, least = width, cost
    return best


def _parts(block: Block) -> tuple[int, int, int] | None:
    """How many places of a row are before the data, in it and behind it; None if not known."""
    place = next(a for a in reversed(block.iter_vars) if a.is_spatial)
    if not isinstance(place.range.extent, IntImm):
        return None
    total = place.range.extent.value
    low, high = 0, total
    for each in _conditions(block):
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


def _conditions(block: Block) -> list[Any]:
    """When the terms of a reduction, or the elements of a copy, are not the value that changes
    nothing.
    """
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
