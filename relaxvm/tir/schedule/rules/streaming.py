"""Products of a matrix and few rows, as long as memory allows: each element of the matrix is used
so rarely that reading it is the work.

    for jo:                         blocks of columns whose sums stay in the second cache
        C[jo block] = 0
        for ko:                     a few rows of the matrix are read side by side, in long runs
            for j in block:
                C[j] += A[k] * B[k, j] + A[k + 1] * B[k + 1, j] + ...

Where that leaves fewer blocks than cores, parts of the matrix's rows are summed apart, each into
sums of its own, and those are added at the end.

Register tiles would read a short piece of each row: too short for the prefetchers, a page a piece.
The loop over j is left to LLVM's vectoriser, which also makes the tail.
"""

from __future__ import annotations

from typing import Any

from ....base import CpuModel
from ..schedule import Schedule
from .contraction import partition_tails, plan_of
from .queries import extent_of

_MOST_ROWS = 4
_RUNS = 8
_PARTS = 2  # of the matrix for each core


def schedule_streaming(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a contraction with at most four rows whose matrix is large, or of a width
    that is known only later. False if the block is none.
    """
    plan = plan_of(sch, rv, cpu, ragged=True)
    if plan is None or plan.rows is None or plan.rows > _MOST_ROWS:
        return False
    c, rows, columns, last = plan.contraction, plan.rows, plan.columns, plan.depths[-1]
    if not (c.unit and c.streamed.is_plain):
        return False
    steps = _RUNS // (1 if rows == 1 else 2 if rows == 2 else 4)
    if last is not None and last < steps:
        return False
    size = plan.streamed_bytes()
    if columns is not None and size is not None and size <= cpu.l2_bytes:
        return False
    width = cpu.l2_bytes // (4 * c.streamed.bytes * rows)
    if columns is not None:
        blocks = -(-columns // width)
        width = min(columns, -(-columns // (blocks * plan.lanes)) * plan.lanes)
    block, outer = rv, plan.outer
    units = [x for x in outer if extent_of(sch, x) == 1]
    *around, deepest = plan.reduce
    column, row = plan.column, [] if plan.row is None else [plan.row]
    parts = _PARTS * cpu.cores
    few = cpu.cores > 1 and columns is not None and columns < cpu.cores * width
    alone = units == outer and not around
    if few and alone and last is not None and last % (parts * steps) == 0:
        sch.reorder(*units, deepest, column, *row)
        block = sch.rfactor(sch.split(deepest, [parts, None])[0], 0)
        *units, part, deepest, column = sch.get_loops(block)[: len(units) + 3]
        row = sch.get_loops(block)[len(units) + 3 :]
        outer = [*units, part]
        sch.decompose_reduction(rv, sch.get_loops(rv)[0])
    jo, ji = sch.split(column, [None, width])
    ko, ki = sch.split(deepest, [None, steps])
    inner = [ji, *row]
    sch.reorder(*outer, jo, *around, ko, *inner, ki)
    sch.decompose_reduction(block, [*around, ko][0])
    for loop in (ki, *inner[1:]):
        sch.unroll(loop)
    partition_tails(sch, (jo, columns, width), (ko, last, steps))
    return True
