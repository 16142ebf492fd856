"""Large matrix products in blocks that fit the caches.

    for jb:                                     blocks of columns, some megabytes of panels
        for ko:                                 pieces of the depth
            pack B[ko, jb]                      unless it is kept in panels already
            for ib:                             a few tiles of rows: A[ib, ko] stays in L2
                for jo:                         one panel of B
                    for io:                     the panel stays near while the rows change
                        acc[rows, vectors] = sums over the piece
                        C[tile] += acc

Without blocks each panel would read all of A again, from memory if A is large. The order is that of
Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import CpuModel
from ..schedule import Schedule
from .contraction import finish_tile, pack_panels, partition_tails, plan_of

__all__ = ["schedule_blocked"]

_DEPTH = 1024
_LEAST_DEPTH = 256
# Measured on Zen 3 with depths of 256 to 2048: 4 and 16 tiles are a tenth slower.
_TILES = 8
_PANELS = 64


def schedule_blocked(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a product that is deep, and has a left side beyond the second cache. False
    if the block is none.
    """
    plan = plan_of(sch, rv, cpu)
    if plan is None or not (plan.packs or plan.contraction.panel):
        return False
    c, rows = plan.contraction, plan.rows
    width = plan.lanes * plan.vectors
    if rows is None or plan.columns % width or len(c.reduce) != 1 or c.row is None:
        return False
    if not (c.is_matrix or c.panel):
        return False
    depth = plan.depth
    step = _step(depth)
    size = c.streamed.dtype.bits // 8
    if depth is None or step is None or rows * depth * size <= cpu.l2_bytes:
        return False
    order = [sch.get(loop) for loop in sch.get_loops(rv)]
    places = {axis: _index(order, sch.get(loop)) for axis, loop in plan.loops.items()}
    reduced = places.pop(c.reduce[0])
    ko, _ = sch.split(plan.loops[c.reduce[0]], [None, step])
    partial = sch.rfactor(ko, 0)
    found = list(sch.get_loops(partial))
    ko, ki = found[reduced : reduced + 2]
    by_axis = {axis: found[k if k < reduced else k + 1] for axis, k in places.items()}
    outer = [loop for axis, loop in by_axis.items() if axis not in (c.vector, c.row)]
    panels = _panels(plan.columns // width)
    jb, jo, ji = sch.split(by_axis[c.vector], [None, panels, width])
    ib, io, ii = sch.split(by_axis[c.row], [None, _TILES, plan.height])
    sch.reorder(*outer, jb, ko, ib, jo, io, ki, ii, ji)
    if c.panel is None:
        pack_panels(sch, partial, c, ko, width, plan.lanes)
    (add,) = sch.get_consumers(partial)
    sch.set_scope(partial, 0, "local")
    sch.reverse_compute_at(add, io)
    start = sch.decompose_reduction(partial, ki)
    for each in (start, partial, add):
        *_, over_rows, over_columns = sch.get_loops(each)
        finish_tile(sch, [over_rows], over_columns, plan.lanes)
    partition_tails(sch, (ib, rows, plan.height * _TILES), (jb, plan.columns, width * panels))
    return True


def _index(nodes: Sequence[Any], node: Any) -> int:
    return next(k for k, n in enumerate(nodes) if n is node)


def _panels(total: int) -> int:
    """How many panels a block has: as many as possible without a rest, if that is many."""
    best = max(n for n in range(1, min(total, _PANELS) + 1) if total % n == 0)
    return best if best * 2 >= min(total, _PANELS) else min(total, _PANELS)


def _step(depth: int | None) -> int | None:
    """The depth of a piece: the largest part of the whole that leaves no rest; None if there is no
    good one.
    """
    if depth is None or depth <= _DEPTH:
        return None
    fits = [n for n in range(_LEAST_DEPTH, _DEPTH + 1) if depth % n == 0]
    return fits[-1] if fits else None
