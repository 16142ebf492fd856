"""Chains of blocks over the same rows: softmax, the normalisations, log-sum-exp, variance.

    for i, k: top[i] = max(top[i], A[i, k])         for i:
    for i, j: E[i, j] = exp(A[i, j] - top[i])           for k: top = max(top, A[i, k])
    for i, k: sum[i] += E[i, k]               →         for j: E[j] = exp(A[i, j] - top)
    for i, j: B[i, j] = E[i, j] / sum[i]                       sum += E[j]
                                                        for j: B[i, j] = E[j] / sum

A *row* axis is one that all blocks share: what a block writes at one place of it, later blocks read
at this place only. The blocks are put under one loop over the rows, so that a row stays in cache;
`CompactBufferAllocation` then keeps one row of what lies between the blocks.

Where the rows lie across memory (a softmax along the first axis), the last axis is a row axis, too.
Rows are then taken a few cache lines at a time, and stay the innermost loop.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import Analyzer
from ....base import CpuModel, NamedTuple, ScheduleError, record
from ....ir import FloorDiv, IntImm, PrimExpr, Range, Var, is_const, substitute, walk
from ...flat import flat_index
from ...stmt import PREFETCH, Block, Buffer, BufferLoad
from ...transform.rewriter import constant
from ..model.facts import BlockKind
from ..schedule import Schedule
from .contraction import match_contraction, partition_tails
from .cost import Cost, Demand, predict
from .finishing import is_large
from .low_precision import sums_narrow
from .plan import Plan
from .queries import TYPICAL_SIZE, calls_of, extent_of, loops_of, product_of, reduces, run_length
from .view import CALL_CYCLES, View

# Blocks of one chain at most: so that the search for chains is linear in the size of a kernel.
_LONGEST = 32
# Of short rows, those that are taken at once at most, and their elements. Of still shorter ones
# LLVM makes vectors across rows.
_MOST_ROWS = 8
_SHORT_ROWS = 512
_SHORTEST = 32
# Calls that a pass computes for each element, so that it leaves memory idle.
_MUCH = 1
# Of a row, asked for at once: not more lines than a core can wait for.
_AHEAD_BYTES = 1024


@record
class RowChain(Plan):
    """A block and those before it, `blocks` in all, under loops over the rows that they share.

    rows   how many are taken at once, of short ones
    width  how many are taken at once where they lie across memory; 0: as if they lay along it
    far    bytes from which on what is read is asked for one row ahead; 0: nothing is
    """

    blocks: int
    rows: int
    width: int = 0
    far: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> RowChain | None:
        shared = view.found(_shared_rows)
        if shared is None:
            return None
        chain = shared.part(shared.longest)
        if not any(map(reduces, chain.blocks)):
            return None
        if chain.lies_across():
            return cls(len(chain.blocks), 1, _width(chain, cpu))
        large = any(
            is_large(view.sch, r.buffer, cpu.l2_bytes) for b in chain.blocks for r in b.reads
        )
        far = cpu.l2_bytes if large else 0
        return cls(len(chain.blocks), _several(chain, cpu), far=far)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        wide = [self.width // 2, self.width, 2 * self.width] if self.width else [0]
        blocks, rows = range(self.blocks, 1, -1), (1, 2, 4, _MOST_ROWS)
        return self.varied(blocks=blocks, rows=rows, width=wide, far={0, self.far})

    def wrong(self, view: View) -> str | None:
        shared = view.found(_shared_rows)
        if shared is None:
            return "no block before it shares rows with it"
        if not 2 <= self.blocks <= shared.longest:
            return f"a chain of {self.blocks} blocks, and {shared.longest} share rows"
        chain = shared.part(self.blocks)
        if not any(map(reduces, chain.blocks)):
            return "nothing is reduced along the rows"
        count = chain.extent()
        if self.width:
            if self.rows > 1 or self.far or not chain.lies_across():
                return f"{self.width} rows across memory, and they lie along it"
            if count is not None and self.width > count:
                return f"{self.width} rows at once, and there are {count}"
        elif self.rows > 1 and (count is None or count % self.rows or chain.spans()):
            return f"{self.rows} rows at once leave a rest of {count or 'unknown many'}"
        return None

    def members(self, view: View) -> Sequence[Any]:
        return self._chain(view).rvs

    def _chain(self, view: View) -> _Chain:
        shared: Any = view.found(_shared_rows)
        part: _Chain = shared.part(self.blocks)
        return part

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        # Shorter chains leave blocks to themselves, which are to be compared with.
        shared: Any = view.found(_shared_rows)
        chain, whole = self._chain(view), shared.part(shared.longest)
        inside = {r.buffer for b in chain.blocks for r in b.writes} - {*view.sch.state.fn.buffers}
        times = math.prod(chain.extent(k) or TYPICAL_SIZE for k in range(len(chain.axes)))
        at_once = max(self.rows, self.width)
        cycles, traffic = 0.0, []
        for block in whole.blocks:
            steps = math.prod(constant(a.range.extent) or TYPICAL_SIZE for a in block.iter_vars)
            lanes = cpu.lanes(max(r.buffer.dtype.bits for r in block.writes))
            cycles += steps / lanes * (1 + CALL_CYCLES * calls_of(block))
            for r in (*block.reads, *block.writes):
                size = float(steps * r.buffer.dtype.itemsize)
                kept = size / times * at_once if r.buffer in inside else size
                traffic.append((size, kept))
        return predict(Demand(cycles, tuple(traffic), -(-times // at_once)), cpu)

    def apply(self, view: View) -> None:
        sch, chain = view.sch, self._chain(view)
        inner: list[list[Any]] = []
        merged: list[Any] = []
        for k, block in enumerate(chain.blocks):
            by_axis: Any = loops_of(sch, chain.rvs[k])
            outer, ends, last = [], [], []
            axes = [axis[k] for axis in chain.axes]
            across = axes.pop() if self.width else None
            for var, each in axes:
                loop = by_axis[var]
                if each > 1:
                    loop, rest = sch.split(loop, [None, each])
                    ends.append(rest)
                outer.append(loop)
            if self.rows > 1:
                outer[-1], within = sch.split(outer[-1], [None, self.rows])
                ends.insert(0, within)
            if across is not None:
                over, within = sch.split(by_axis[across[0]], [None, self.width])
                outer.append(over)
                last.append(within)
            order = _memory_order(block)
            used = {axis[k][0] for axis in chain.axes}
            left = sorted((v for v in by_axis if v not in used), key=lambda v: order.get(v, -1))
            rest = [*ends, *(by_axis[v] for v in left), *last]
            sch.reorder(*outer, *rest)
            if across is None and left:
                run = run_length(sch, block, by_axis, left)
                rest[-run:] = [sch.fuse(*rest[-run:])]
            inner.append(rest)
            merged.append(outer[-1])
        joined = sch.merge(*merged)
        if self.width:
            partition_tails(sch, (joined, chain.extent(), self.width))
        groups = _join_neighbours(sch, chain, inner, 1 if self.rows > 1 else 0)
        if self.far:
            _fetch_ahead(sch, chain, groups, self.far)


# -- which axes are rows ---------------------------------------------------------------------------


class _Chain(NamedTuple):
    """Blocks that share rows.

    axes  for each row axis: in each block its axis, and how many of that's values are one row
    """

    rvs: Sequence[Any]
    blocks: Sequence[Block]
    axes: Sequence[Sequence[tuple[Var, int]]]

    def extent(self, axis: int = -1) -> int | None:
        """Of an axis of rows, None if it is known only when the kernel runs."""
        var, _ = self.axes[axis][0]
        return constant(next(a.range.extent for a in self.blocks[0].iter_vars if a.var is var))

    def spans(self) -> bool:
        """Whether a row is several places of the last axis of rows in some block."""
        return any(each > 1 for _, each in self.axes[-1])

    def lies_across(self) -> bool:
        """Whether neighbours in memory belong to different rows in all that is reduced."""
        for block, (own, _) in zip(self.blocks, self.axes[-1]):
            if not reduces(block):
                continue
            order = _memory_order(block)
            # Of several axes in the last dimension, rows are the ones with the longer steps.
            if {v for v, position in order.items() if position == max(order.values())} != {own}:
                return False
        return True


def _shared_rows(view: View) -> _Rows | None:
    """The rows that the block shares with some before it; None if there are none."""
    window: list[Any] = []
    for rv in reversed(view.upto):
        if len(window) == _LONGEST or not _may_join(view if rv is view.rv else View(view.sch, rv)):
            break
        window.insert(0, rv)
    if len(window) < 2 or not any(reduces(view.sch.get(rv)) for rv in window):
        return None
    rows = _Rows(window, [view.sch.get(rv) for rv in window])
    return rows if rows.longest > 1 else None


def _may_join(view: View) -> bool:
    if match_contraction(view.block) is not None or sums_narrow(view.block):
        return False
    facts = view.facts
    return (facts.elementwise or facts.kind is BlockKind.REDUCTION) and view.by_axis is not None


@record(frozen=False)
class _Axis:
    """A row axis: in each block (by its number) an axis, and how many of its values are one row."""

    members: dict[int, tuple[Var, int]]
    holds: bool = True


class _Rows:
    """The row axes of the last of some blocks, and how many blocks before it share them.

    longest  how many of the last blocks share at least one row axis, the last one included
    """

    def __init__(self, rvs: Sequence[Any], blocks: Sequence[Block]) -> None:
        self.rvs, self.blocks = rvs, blocks
        self._links: dict[tuple[int, Var], list[tuple[int, Var, int, bool]]] = {}
        self._written: dict[Var, tuple[int, tuple[Any, ...]]] = {}
        self._extents: list[dict[Var, PrimExpr]] = []
        for k, block in enumerate(blocks):
            self._extents.append({a.var: a.range.extent for a in block.iter_vars})
            self._link(k, block)
        last = len(blocks) - 1
        candidates = [self._follow(last, a.var) for a in blocks[last].iter_vars if a.is_spatial]
        candidates = [axis for axis in candidates if axis.holds]
        # For each number of blocks, the axes that these share, in the order of the last block's.
        self._axes = [candidates]
        for k in reversed(range(last)):
            candidates = [axis for axis in candidates if k in axis.members]
            if not any(self._is_many(axis, last) for axis in candidates):
                break
            self._axes.append(candidates)
        self.longest = len(self._axes)

    def part(self, count: int) -> _Chain:
        """The last blocks as a chain."""
        numbers = range(len(self.blocks) - count, len(self.blocks))
        axes = [[axis.members[k] for k in numbers] for axis in self._axes[count - 1]]
        return _Chain(self.rvs[-count:], self.blocks[-count:], axes)

    def _is_many(self, axis: _Axis, k: int) -> bool:
        var, each = axis.members[k]
        extent = self._extents[k][var]
        return not (isinstance(extent, IntImm) and extent.value <= each)

    def _link(self, k: int, block: Block) -> None:
        """Note which axes of earlier blocks the axes of this one follow."""
        analyzer = Analyzer(wrap=False)
        for a in block.iter_vars:
            analyzer.bind(a.var, Range.from_min_extent(a.range.min, a.range.extent))
        for load in (n for n in walk(block.body) if isinstance(n, BufferLoad)):
            writer = self._written.get(load.buffer.data)
            if writer is None:
                continue
            number, axes = writer
            for theirs, index in zip(axes, load.indices):
                mine, each = _divided(analyzer.simplify(index))
                if theirs is not None and mine in self._extents[k]:
                    self._links.setdefault((k, mine), []).append((number, theirs, each, True))
                    self._links.setdefault((number, theirs), []).append((k, mine, each, False))
        for region in block.writes:
            indices = tuple(
                r.min if r.min in self._extents[k] and is_const(r.extent, 1) else None
                for r in region.region
            )
            data = region.buffer.data
            # Several writers of one buffer: nothing is followed through it.
            self._written[data] = (k, () if data in self._written else indices)

    def _follow(self, k: int, var: Var) -> _Axis:
        """Everything that moves together with an axis of block `k`."""
        axis = _Axis({k: (var, 1)})
        stack = [k]
        while stack and axis.holds:
            here = stack.pop()
            mine, each = axis.members[here]
            for other, theirs, step, is_writer in self._links.get((here, mine), ()):
                if is_writer and each % step:
                    if step % each:
                        axis.holds = False
                        break
                    # One value of theirs spans several rows so far: they become one.
                    wider = step // each
                    axis.members = {b: (v, n * wider) for b, (v, n) in axis.members.items()}
                    mine, each = axis.members[here]
                width = each // step if is_writer else each * step
                if other not in axis.members:
                    axis.members[other] = (theirs, width)
                    stack.append(other)
                elif axis.members[other] != (theirs, width):
                    axis.holds = False
        for b, (v, _) in axis.members.items():
            kinds = {a.var: a.iter_type for a in self.blocks[b].iter_vars}
            axis.holds = axis.holds and kinds[v] == "spatial"
        return axis


def _divided(index: PrimExpr) -> tuple[Any, int]:
    """(axis, c) of the index ``axis // c``."""
    if isinstance(index, FloorDiv) and isinstance(index.b, IntImm) and index.b.value > 0:
        return index.a, index.b.value
    return index, 1


# -- sizes -----------------------------------------------------------------------------------------


def _memory_order(block: Block) -> dict[Var, int]:
    """For each axis the dimension that it moves in, in the load or store with most dimensions."""
    # Reads first: what is reduced is only there.
    places: list[tuple[PrimExpr, ...]] = [
        tuple(r.min for r in region.region) for region in (*block.reads, *block.writes)
    ]
    if not places:
        return {}
    indices = max(places, key=len)
    axes = {a.var for a in block.iter_vars}
    return {
        v: k
        for k, index in enumerate(indices)
        for v in walk(index)
        if isinstance(v, Var) and v in axes
    }


def _width(chain: _Chain, cpu: CpuModel) -> int:
    """How many rows that lie across memory to take at once: at least two cache lines of them, more
    if what they keep still fits into half of the second-level cache; no more than there are.
    """
    length, bits = 1, 8
    for block in filter(reduces, chain.blocks):
        sums = [constant(a.range.extent) for a in block.iter_vars if a.is_reduce]
        length = max(length, math.prod(1024 if n is None else n for n in sums))
        bits = max(bits, *(r.buffer.dtype.bits for r in (*block.reads, *block.writes)))
    line = cpu.line_bytes * 8 // bits
    width = 2 * line
    while width < 16 * line and 2 * width * length * bits // 8 <= cpu.l2_bytes // 2:
        width *= 2
    whole = chain.extent()
    if whole is None or whole == 0:
        return width
    return -(-whole // -(-whole // width))  # parts of nearly one size


def _several(chain: _Chain, cpu: CpuModel) -> int:
    """How many rows to take at once where they are short: what one of them waits for, as the sum of
    its vectors, another need not.
    """
    count = chain.extent() or 1
    steps = 1
    for block in chain.blocks:
        sums = product_of(constant(a.range.extent) for a in block.iter_vars if a.is_reduce)
        if sums is None:
            return 1
        steps = max(steps, sums)
    most = min(_MOST_ROWS, _SHORT_ROWS // steps, count // (4 * cpu.cores))
    if steps < _SHORTEST or chain.spans():
        return 1
    return max((n for n in range(1, most + 1) if count % n == 0), default=1)


# -- scheduling ------------------------------------------------------------------------------------


def _join_neighbours(
    sch: Schedule, chain: _Chain, inner: list[list[Any]], over: int
) -> list[list[int]]:
    """Let blocks that run over the same elements of a row do so in one loop, and start sums before
    the loops that they are sums over. Returns which blocks are together.

    over  how many of the inner loops are over rows
    """
    group: list[int] = []
    summed: set[Var] = set()
    groups: list[list[int]] = []
    for k, block in enumerate(chain.blocks):
        reads = {r.buffer.data for r in block.reads}
        fits = bool(group) and bool(inner[k]) and not reads & summed
        if not (fits and _same_extents(sch, inner[group[0]], inner[k])):
            group, summed = [], set()
            groups.append(group)
        group.append(k)
        if reduces(block):
            summed |= {r.buffer.data for r in block.writes}
    for group in groups:
        # Where they stay loops of their own, the row is in cache all the same.
        with contextlib.suppress(ScheduleError):
            if len(group) > 1:
                sch.merge(*(inner[k][-1] for k in group))
    for k, rv in enumerate(chain.rvs):
        if reduces(chain.blocks[k]) and inner[k]:
            depth = len(inner[k]) - over
            sch.decompose_reduction(rv, sch.get_loops(rv)[-depth])
    return groups


def _fetch_ahead(sch: Schedule, chain: _Chain, groups: list[list[int]], far: int) -> None:
    """Where rows come from memory: ask for the next one while computing on this one, in the pass
    that has most to compute. It was read by the first pass, so memory has nothing to do meanwhile.
    """
    if len(groups) < 2:
        return
    first = {r.buffer for k in groups[0] for r in chain.blocks[k].reads}
    best, most = None, _MUCH - 1
    for group in groups[1:]:
        reads = {r.buffer for k in group for r in chain.blocks[k].reads}
        cost = sum(calls_of(chain.blocks[k]) for k in group)
        if cost > most and any(is_large(sch, b, far) for b in first & reads):
            best, most = group, cost
    if best is None:
        return
    rv = chain.rvs[best[0]]
    loops = sch.get_loops(rv)
    row, extent = _row_step(sch, rv, first), extent_of(sch, loops[-1])
    if row is None or not extent:
        return
    size = max(1, _AHEAD_BYTES * 8 // max(b.dtype.bits for b in first))
    chunk = math.gcd(extent, size)
    if chunk * 4 < size or chunk == extent:
        return
    outer, _ = sch.split(loops[-1], [None, chunk])
    sch.annotate(outer, PREFETCH, row)


def _row_step(sch: Schedule, rv: Any, buffers: set[Buffer]) -> int | None:
    """How many elements a row is from the next one in what the block reads of `buffers`."""
    block: Block = sch.get(rv)
    loops = [sch.get(loop) for loop in sch.get_loops(rv)]
    realize = sch.state.realize(block)
    values = dict(zip((a.var for a in block.iter_vars), realize.iter_values))
    steps: set[int] = set()
    for n in walk(block.body):
        if not isinstance(n, BufferLoad) or n.buffer not in buffers:
            continue
        place = substitute(flat_index(n.buffer, n.indices), values)
        for outer in loops[-2::-1]:
            moved = substitute(place, {outer.loop_var: outer.loop_var + 1})
            step = sch.state.analyzer.simplify(moved - place)
            if isinstance(step, IntImm) and step.value:
                steps.add(step.value)
                break
    return steps.pop() if len(steps) == 1 else None


def _same_extents(sch: Schedule, first: list[Any], second: list[Any]) -> bool:
    prove = sch.state.analyzer.can_prove_equal
    return len(first) == len(second) and all(
        prove(sch.get(a).extent, sch.get(b).extent) for a, b in zip(first, second)
    )
