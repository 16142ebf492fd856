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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....arith import Analyzer
from ....base import CpuModel, ScheduleError
from ....ir import FloorDiv, IntImm, PrimExpr, Range, Var, is_const, substitute, walk
from ...stmt import PREFETCH, Block, Buffer, BufferLoad
from ...transform import PARTITION_HINT
from ..facts import BlockKind, facts_of
from ..schedule import Schedule
from .contraction import match_contraction
from .low_precision import sums_narrow
from .memory_order import run_length
from .nontemporal import flat_index, is_large
from .queries import calls_of, extent_of, loops_of, reduces

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


def schedule_chains(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Put neighbouring blocks that share rows under loops over them; returns those blocks."""
    taken: list[Any] = []
    run: list[Any] = []
    for rv in [*blocks, None]:
        if rv is not None and _may_join(sch, rv):
            run.append(rv)
            continue
        taken += _schedule_run(sch, run, cpu)
        run = []
    return taken


def _may_join(sch: Schedule, rv: Any) -> bool:
    block: Block = sch.get(rv)
    if match_contraction(block) is not None or sums_narrow(block):
        return False
    facts = facts_of(sch.state, block)
    return (facts.elementwise or facts.kind is BlockKind.REDUCTION) and (
        loops_of(sch, rv) is not None
    )


def _schedule_run(sch: Schedule, run: list[Any], cpu: CpuModel) -> list[Any]:
    """Schedule the longest part at the end of the run that shares rows, then the part before it."""
    taken: list[Any] = []
    while len(run) >= 2:
        window = run[-_LONGEST:]
        rows = _Rows([sch.get(rv) for rv in window])
        first = rows.first
        if first is None or not any(reduces(b) for b in rows.blocks[first:]):
            run = run[:-1]
            continue
        _put_under_rows(sch, window[first:], rows, cpu)
        taken += window[first:]
        run = run[: len(run) - len(window) + first]
    return taken


# -- which axes are rows ---------------------------------------------------------------------------


@dataclass
class _Axis:
    """A row axis: in each block (by its number) an axis, and how many of its values are one row."""

    members: dict[int, tuple[Var, int]]
    holds: bool = True


class _Rows:
    """The row axes of the last of some blocks, and how many blocks before it share them.

    first   the first block that shares at least one row axis with all that follow; None if there
            is no such block
    axes    the axes that the blocks from `first` on share, in the order of the last block's
    """

    def __init__(self, blocks: list[Block]) -> None:
        self.blocks = blocks
        self._links: dict[tuple[int, Var], list[tuple[int, Var, int, bool]]] = {}
        self._written: dict[Var, tuple[int, tuple[Any, ...]]] = {}
        self._several: set[Var] = set()
        self._extents: list[dict[Var, PrimExpr]] = []
        for k, block in enumerate(blocks):
            self._extents.append({a.var: a.range.extent for a in block.iter_vars})
            self._link(k, block)
        last = len(blocks) - 1
        candidates = [self._follow(last, a.var) for a in blocks[last].iter_vars if a.is_spatial]
        candidates = [axis for axis in candidates if axis.holds]
        self.axes: list[_Axis] = []
        self.first: int | None = None
        for k in reversed(range(last)):
            left = [axis for axis in candidates if k in axis.members]
            if not any(self._is_many(axis, last) for axis in left):
                break
            candidates, self.first, self.axes = left, k, left

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


# -- scheduling ------------------------------------------------------------------------------------


def _put_under_rows(sch: Schedule, chain: list[Any], rows: _Rows, cpu: CpuModel) -> None:
    offset = len(rows.blocks) - len(chain)
    loops = [loops_of(sch, rv) for rv in chain]
    axes = list(rows.axes)
    narrow = None
    if _lies_across(rows, offset, axes):
        narrow = axes.pop()
    width = 0 if narrow is None else _width(rows, offset, narrow, cpu)
    few = 1 if narrow is not None else _several(rows, offset, axes, cpu)
    inner: list[list[Any]] = []
    merged: list[Any] = []
    for k, by_axis in enumerate(loops):
        assert by_axis is not None
        outer, ends, used = [], [], set()
        for axis in axes:
            var, each = axis.members[k + offset]
            used.add(var)
            loop = by_axis[var]
            if each > 1:
                loop, rest = sch.split(loop, [None, each])
                ends.append(rest)
            outer.append(loop)
        if few > 1:
            outer[-1], within = sch.split(outer[-1], [None, few])
            ends.insert(0, within)
        last = []
        if narrow is not None:
            var, _ = narrow.members[k + offset]
            used.add(var)
            across, within = sch.split(by_axis[var], [None, width])
            outer.append(across)
            last.append(within)
        block = rows.blocks[k + offset]
        order = _memory_order(block)
        left = sorted((v for v in by_axis if v not in used), key=lambda v: order.get(v, -1))
        rest = [*ends, *(by_axis[v] for v in left), *last]
        sch.reorder(*outer, *rest)
        if narrow is None and left:
            run = run_length(sch, block, by_axis, left)
            rest[-run:] = [sch.fuse(*rest[-run:])]
        inner.append(rest)
        merged.append(outer[-1])
    joined = sch.merge(*merged)
    if narrow is not None and not _divides(rows, offset, narrow, width):
        sch.annotate(joined, PARTITION_HINT, True)
    groups = _join_neighbours(sch, chain, rows.blocks[offset:], inner, 1 if few > 1 else 0)
    if narrow is None:
        _fetch_ahead(sch, chain, rows.blocks[offset:], groups, cpu)


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


def _lies_across(rows: _Rows, offset: int, axes: list[_Axis]) -> bool:
    """Whether neighbours in memory belong to different rows in all that is reduced."""
    for k, block in enumerate(rows.blocks[offset:], offset):
        if not reduces(block):
            continue
        own = {axis.members[k][0] for axis in axes[-1:]}
        order = _memory_order(block)
        # Of several axes in the last dimension, rows are the ones with the longer steps.
        if {v for v, position in order.items() if position == max(order.values())} != own:
            return False
    return True


def _width(rows: _Rows, offset: int, narrow: _Axis, cpu: CpuModel) -> int:
    """How many rows that lie across memory to take at once: at least two cache lines of them, more
    if what they keep still fits into half of the second-level cache; no more than there are.
    """
    length, bits = 1, 8
    for block in rows.blocks[offset:]:
        if not reduces(block):
            continue
        steps = 1
        for a in block.iter_vars:
            if a.is_reduce:
                extent = a.range.extent
                steps *= extent.value if isinstance(extent, IntImm) else 1024
        length = max(length, steps)
        bits = max(bits, *(r.buffer.dtype.bits for r in (*block.reads, *block.writes)))
    line = cpu.line_bytes * 8 // bits
    width = 2 * line
    while width < 16 * line and 2 * width * length * bits // 8 <= cpu.l2_bytes // 2:
        width *= 2
    whole = _extent(rows, offset, narrow)
    if whole is None or whole == 0:
        return width
    return -(-whole // -(-whole // width))  # parts of nearly one size


def _several(rows: _Rows, offset: int, axes: list[_Axis], cpu: CpuModel) -> int:
    """How many rows to take at once where they are short: what one of them waits for, as the sum of
    its vectors, another need not.
    """
    count = _extent(rows, offset, axes[-1]) or 1
    steps = 1
    for block in rows.blocks[offset:]:
        inside = [a.range.extent for a in block.iter_vars if a.is_reduce]
        if not all(isinstance(e, IntImm) for e in inside):
            return 1
        steps = max(steps, math.prod(e.value for e in inside if isinstance(e, IntImm)))
    most = min(_MOST_ROWS, _SHORT_ROWS // steps, count // (4 * cpu.cores))
    if steps < _SHORTEST or any(each > 1 for _, each in axes[-1].members.values()):
        return 1
    return max((n for n in range(1, most + 1) if count % n == 0), default=1)


def _divides(rows: _Rows, offset: int, narrow: _Axis, width: int) -> bool:
    whole = _extent(rows, offset, narrow)
    return whole is not None and whole % width == 0


def _extent(rows: _Rows, offset: int, axis: _Axis) -> int | None:
    """Of an axis of rows, None if it is known only when the kernel runs."""
    var, _ = axis.members[offset]
    extent = next(a.range.extent for a in rows.blocks[offset].iter_vars if a.var is var)
    return extent.value if isinstance(extent, IntImm) else None


def _join_neighbours(
    sch: Schedule, chain: list[Any], blocks: list[Block], inner: list[list[Any]], over: int
) -> list[list[int]]:
    """Let blocks that run over the same elements of a row do so in one loop, and start sums before
    the loops that they are sums over. Returns which blocks are together.

    over  how many of the inner loops are over rows
    """
    group: list[int] = []
    summed: set[Var] = set()
    groups: list[list[int]] = []
    for k, block in enumerate(blocks):
        reads = {r.buffer.data for r in block.reads}
        fits = bool(group) and bool(inner[k]) and not reads & summed
        if not (fits and _same_extents(sch, inner[group[0]], inner[k])):
            group, summed = [], set()
            groups.append(group)
        group.append(k)
        if reduces(block):
            summed |= {r.buffer.data for r in block.writes}
    for group in groups:
        if len(group) > 1:
            _join(sch, [inner[k][-1] for k in group])
    for k, rv in enumerate(chain):
        if reduces(blocks[k]) and inner[k]:
            depth = len(inner[k]) - over
            sch.decompose_reduction(rv, sch.get_loops(rv)[-depth])
    return groups


def _fetch_ahead(
    sch: Schedule, chain: list[Any], blocks: list[Block], groups: list[list[int]], cpu: CpuModel
) -> None:
    """Where rows come from memory: ask for the next one while computing on this one, in the pass
    that has most to compute. It was read by the first pass, so memory has nothing to do meanwhile.
    """
    if len(groups) < 2:
        return
    first = {r.buffer for k in groups[0] for r in blocks[k].reads}
    best, most = None, _MUCH - 1
    for group in groups[1:]:
        reads = {r.buffer for k in group for r in blocks[k].reads}
        cost = sum(calls_of(blocks[k]) for k in group)
        if cost > most and any(is_large(sch, b, cpu.l2_bytes) for b in first & reads):
            best, most = group, cost
    if best is None:
        return
    rv = chain[best[0]]
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
        place = flat_index(n, values)
        for outer in loops[-2::-1]:
            moved = substitute(place, {outer.loop_var: outer.loop_var + 1})
            step = sch.state.analyzer.simplify(moved - place)
            if isinstance(step, IntImm) and step.value:
                steps.add(step.value)
                break
    return steps.pop() if len(steps) == 1 else None


def _join(sch: Schedule, loops: list[Any]) -> None:
    try:
        sch.merge(*loops)
    except ScheduleError:
        # They stay loops of their own: the row is in cache all the same.
        return


def _same_extents(sch: Schedule, first: list[Any], second: list[Any]) -> bool:
    prove = sch.state.analyzer.can_prove_equal
    return len(first) == len(second) and all(
        prove(sch.get(a).extent, sch.get(b).extent) for a, b in zip(first, second)
    )
