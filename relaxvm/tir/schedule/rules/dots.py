"""Products of few rows and a matrix whose columns lie along the depth: sums of products of two runs
of memory, a matrix times a vector among them.

    for jo:                                 a few columns
        for io:                             a few rows
            acc[rows, columns] = 0
            for k: acc += A[row, k] * B[column, k]
            C[tile] = acc

Nothing is copied: each run is read from its first to its last element. LLVM makes vectors along the
depth, of partial sums.
"""

from __future__ import annotations

from typing import Any

from ....base import CpuModel
from ....ir import is_const
from ..schedule import Schedule
from .contraction import Plan, partition_tails, plan_of, unroll_short
from .panels import Operand

# With more rows, panels pay.
_MOST_ROWS = 48
_LEAST_DEPTH = 64
# (rows, columns) of a tile, by rows: the sums, their factors and some room fit sixteen registers.
_TILES = {1: (1, 8), 2: (2, 5), 3: (3, 4)}
_TILE = (4, 3)


def schedule_dots(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a contraction of few rows or columns, with both inputs along the depth.
    False if the block is none.
    """
    plan = plan_of(sch, rv, cpu, ragged=True)
    if plan is None or not _is_along_depth(plan):
        return False
    rows, columns, last = plan.rows, plan.columns, plan.depths[-1]
    few = min(n for n in (rows, columns, _MOST_ROWS + 1) if n is not None)
    if few > _MOST_ROWS or (last is not None and last < _LEAST_DEPTH):
        return False
    height, width = _TILES.get(rows or few, _TILE)
    if columns is not None and columns < width:
        width, height = _TILES.get(columns, _TILE)
    jo, ji = sch.split(plan.column, [None, width])
    io, ii = (None, None) if plan.row is None else sch.split(plan.row, [None, height])
    over, tile = ([jo], [ji]) if io is None else ([jo, io], [ii, ji])
    sch.reorder(*plan.outer, *over, *plan.reduce, *tile)
    sums = sch.cache_write(rv, 0, "local")
    sch.reverse_compute_at(sums, over[-1])
    start = sch.decompose_reduction(rv, plan.reduce[0])
    for each in (start, rv, sums):
        unroll_short(sch, list(sch.get_loops(each))[-len(tile) :])
    tails = [(jo, columns, width)]
    if io is not None:
        tails.append((io, rows, height))
    partition_tails(sch, *tails)
    return True


def _is_along_depth(plan: Plan) -> bool:
    """Whether the innermost reduce axis moves both inputs through neighbours."""
    c = plan.contraction
    deepest = c.reduce[-1]
    return all(x.is_plain and _last_moving(x) is deepest for x in (c.streamed, c.broadcast))


def _last_moving(x: Operand) -> Any:
    """The last index along which there is more than one element."""
    sizes = zip(reversed(x.indices), reversed(x.buffer.shape))
    return next((i for i, n in sizes if not is_const(n, 1)), None)
