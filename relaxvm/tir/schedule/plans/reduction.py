"""Reductions that are no contractions: sums, maxima and the like along any axes.

    along rows       for i: for k: B[i] += A[i, k]      LLVM keeps vectors of partial results
    of everything    partial results of parts of some thousand elements, then the sum of those
    across rows      for jo: for k: for j in tile: B[j] += A[k, j]
                     a tile of B stays in registers, or, where that reads longer runs of memory, in
                     cache, and takes several rows of A in each step

Loops are put into the order in which the largest operand lies in memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from ....base import CpuModel, record
from ...stmt import Block
from ..model.facts import BlockKind
from ..model.reducer import match_reducer
from .contraction import partition_tails
from .cost import Cost, predict
from .plan import Plan
from .queries import TYPICAL_SIZE, Order, is_plain, largest_operand, run_length
from .view import View

# A partial result is of about this many elements: so few that rounding errors stay small, so many
# that combining the results costs nothing.
_PART = 1 << 14
# Rows taken in each step across rows.
_STEP = 4
# Iterations from which on a reduction is long, windows are not.
_LONG = 64
# Vectors of results that are kept in registers while all rows are read.
_IN_REGISTERS = 8


@record
class Begin(Plan):
    """Results are started before the loops over what is reduced: a condition that asks for the
    first iteration keeps LLVM from making vectors of them.
    """

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Begin | None:
        operand = largest_operand(view.block)
        fits = operand is not None and not is_plain(operand, view.block)
        plan = cls()
        if not fits or plan.wrong(view) is not None:
            return None
        reduce = [view.extents[a.var] for a in view.block.iter_vars if a.is_reduce]
        return plan if math.prod(n or _LONG for n in reduce) >= _LONG else None

    def wrong(self, view: View) -> str | None:
        return _wrong(view)

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        return predict(view.sweep(cpu, 1), cpu)

    def apply(self, view: View) -> None:
        sch, loops = view.sch, view.by_axis
        assert loops is not None
        spatial = [loops[a.var] for a in view.block.iter_vars if a.is_spatial]
        reduce = [loops[a.var] for a in view.block.iter_vars if a.is_reduce]
        sch.reorder(*spatial, *reduce)
        sch.decompose_reduction(view.rv, reduce[0])


@record
class Rows(Plan):
    """Along rows: the loops over what is reduced are innermost, those that are one run of memory
    become one.

    part  elements whose results are partial ones, which are combined at the end; 0: no such parts
    """

    part: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Rows | None:
        order = view.order
        if order is None or order.last in order.spatial:
            return None
        plan = cls(_PART)
        return plan if plan.wrong(view) is None else cls()

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        return self.varied(part=(0, _PART // 4, _PART, 4 * _PART))

    def simpler(self) -> Rows | None:
        return Rows() if self.part else None

    def wrong(self, view: View) -> str | None:
        order = view.order
        if order is None or order.last in order.spatial:
            return _wrong(view) or "what is reduced does not lie along rows"
        if not self.part:
            return None
        if _run_of(view, order) < len(order.reduce) or not _may_be_parted(view.block):
            return "parts are of rows that are one run of memory, and are combined in any order"
        if _parts([view.extents[v] for v in order.reduce], self.part) is None:
            return f"there are not several parts of about {self.part} elements without a rest"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        order: Any = view.order
        if self.part:
            return predict(view.sweep(cpu, self.part, 0, int(view.steps) // self.part), cpu)
        run = order.reduce[len(order.reduce) - _run_of(view, order) :]
        return predict(
            view.sweep(cpu, math.prod(view.extents[v] or TYPICAL_SIZE for v in run)), cpu
        )

    def apply(self, view: View) -> None:
        sch, rv = view.sch, view.rv
        order: Any = view.order
        loops: Any = view.by_axis
        count = _run_of(view, order)
        reduce = [loops[v] for v in order.reduce]
        sch.reorder(*(loops[v] for v in order.spatial), *reduce)
        run = reduce[len(reduce) - count :]
        parts = _parts([view.extents[v] for v in order.reduce], self.part) if self.part else None
        if parts is not None:
            k, factor = parts
            over, within = run[:k], run[k:]
            if factor > 1:
                first, second = sch.split(run[k - 1], [None, factor])
                over, within = [*run[: k - 1], first], [second, *within]
            sch.fuse(*within)
            partial = sch.rfactor(sch.fuse(*over), 0)
            sch.decompose_reduction(partial, sch.get_loops(partial)[-1])
            sch.decompose_reduction(rv, sch.get_loops(rv)[-1])
            return
        inner = sch.fuse(*run)
        sch.decompose_reduction(rv, reduce[0] if count < len(reduce) else inner)


@record
class Columns(Plan):
    """Across rows: a tile of results is kept while all rows are read.

    tile   elements of a tile at most; 0: a row of results stays in registers
    steps  rows that are taken at once; 0: one
    """

    tile: int = 0
    steps: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Columns | None:
        order = view.order
        if order is None or order.last not in order.spatial:
            return None
        bits = order.operand.buffer.dtype.bits
        near = cls()
        width = view.extents[order.tail[-1]] if order.tail else None
        if near.wrong(view) is None and width is not None:
            if width <= _IN_REGISTERS * cpu.lanes(bits):
                return near
        # A quarter of the first-level cache, of whole rows of the last axes.
        plan = cls(max(1, cpu.l1_bytes * 8 // bits // 4), _STEP)
        return plan if plan.wrong(view) is None else replace(plan, steps=0)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        tiles = {0, max(1, self.tile // 4), self.tile, self.tile * 4}
        return self.varied(tile=tiles, steps=(0, 2, _STEP, 8))

    def wrong(self, view: View) -> str | None:
        order = view.order
        if order is None or order.last not in order.spatial:
            return _wrong(view) or "what is reduced lies along rows"
        single = len(view.block.writes) == 1
        if not self.tile:
            known = order.tail and view.extents[order.tail[-1]] is not None
            if self.steps or len(order.tail) != 1 or not single or not known:
                return "results in registers are one row of a known size, of one result"
            return None
        rows = view.extents[order.reduce[-1]]
        if self.steps and (self.steps == 1 or not single or rows is None or rows % self.steps):
            return f"{self.steps} rows at once, of one result, leave a rest of {rows or 'unknown'}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        order: Any = view.order
        row = math.prod(view.extents[v] or TYPICAL_SIZE for v in order.tail)
        # Results that are kept in cache are loaded and stored for each few rows.
        work = 1 / max(1, self.steps) if self.tile else 0.0
        return predict(view.sweep(cpu, min(row, self.tile or row), work), cpu)

    def apply(self, view: View) -> None:
        sch = view.sch
        order: Any = view.order
        loops = dict(view.by_axis or {})
        tail, spatial = order.tail, order.spatial
        reduce = [loops[v] for v in order.reduce]
        if not self.tile:
            outer = [loops[v] for v in spatial if v is not tail[-1]]
            sch.reorder(*outer, *reduce, loops[tail[-1]])
            sch.decompose_reduction(view.rv, reduce[0])
            return
        room = self.tile
        tile: list[Any] = []
        tails: list[Any] = []
        for v in reversed(tail):
            extent = view.extents[v]
            if extent is not None and extent <= room:
                tile.insert(0, loops[v])
                room //= max(extent, 1)
                continue
            if room > 1:
                over, within = sch.split(loops[v], [None, room])
                loops[v] = over
                tile.insert(0, within)
                tails.append((over, extent, room))
            break
        inside = {id(t) for t in tile}
        outer = [loops[v] for v in spatial if id(loops[v]) not in inside]
        *slow, fast = reduce
        if self.steps:
            fast, step = sch.split(fast, [None, self.steps])
            sch.reorder(*outer, *slow, fast, *tile, step)
            sch.unroll(step)
        else:
            sch.reorder(*outer, *slow, fast, *tile)
        sch.decompose_reduction(view.rv, slow[0] if slow else fast)
        partition_tails(sch, *tails)


# -- what is reduced -------------------------------------------------------------------------------


def _wrong(view: View) -> str | None:
    """Why a block cannot be scheduled as a reduction."""
    if view.by_axis is None or view.facts.kind is not BlockKind.REDUCTION:
        return "it is no reduction over loops of an axis each"
    if not any(a.is_reduce for a in view.block.iter_vars):
        return "no axis of it is reduced"
    return None


def _run_of(view: View, order: Order) -> int:
    """How many of the reduced axes, counted from the last, are one run of memory."""
    assert view.by_axis is not None
    return run_length(view.sch, view.block, view.by_axis, order.reduce)


def _may_be_parted(block: Block) -> bool:
    reducer = match_reducer(block)
    return reducer is not None and reducer.commutative


def _parts(extents: Sequence[int | None], size: int) -> tuple[int, int] | None:
    """(k, factor): parts of at most `size` elements consist of the loops from `k` on and of
    `factor` steps of the one before, which it divides: so that elements are found without
    divisions. None if all is little, or if there are no such parts of a good size.
    """
    known = [n for n in extents if n is not None]
    if len(known) < len(extents) or math.prod(known) < 4 * size:
        return None
    whole, k = 1, len(known)
    while k and whole * known[k - 1] <= size:
        k -= 1
        whole *= known[k]
    factor = next(n for n in range(size // whole, 0, -1) if known[k - 1] % n == 0)
    return None if whole * factor < size // 16 else (k, factor)
