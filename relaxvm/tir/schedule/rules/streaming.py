"""Products of a matrix and few rows, as long as memory allows: each element of the matrix is used
so rarely that reading it is the work.

    for jo:                         blocks of columns whose sums stay in the first cache
        C[jo block] = 0
        for ko:                     a few rows of the matrix are read side by side, in long runs
            for j in block:
                C[j] += A[k] * B[k, j] + A[k + 1] * B[k + 1, j] + ...

Register tiles would read a short piece of each row: too short for the prefetchers, a page a piece.
The loop over j is left to LLVM's vectoriser, which also makes the tail.
"""

from __future__ import annotations

import math
from typing import Any

from ....base import CpuModel
from ...stmt import Block
from ..schedule import Schedule
from .contraction import extent_of, loops_of, match_contraction, partition_tails

__all__ = ["schedule_streaming"]

_MOST_ROWS = 4
_RUNS = 8


def schedule_streaming(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a contraction with at most four rows whose matrix is large, or of a width
    that is known only later. False if the block is none.
    """
    block: Block = sch.get(rv)
    c = match_contraction(block)
    loops = loops_of(sch, rv)
    if c is None or loops is None or not (c.unit and c.is_matrix):
        return False
    row = None if c.row is None else loops[c.row]
    rows = 1 if row is None else extent_of(sch, row)
    if rows is None or rows > _MOST_ROWS:
        return False
    columns = extent_of(sch, loops[c.vector])
    depths = [extent_of(sch, loops[v]) for v in c.reduce]
    steps = _RUNS // (1 if rows == 1 else 2 if rows == 2 else 4)
    last = depths[-1]
    if last is not None and last < steps:
        return False
    size = c.streamed.dtype.bits // 8
    known = [d for d in (columns, *depths) if d is not None]
    if columns is not None and math.prod(known) * size <= cpu.l2_bytes:
        return False
    width = cpu.l1_bytes // (2 * size * rows)
    outer = [loop for axis, loop in loops.items() if axis not in (c.vector, c.row, *c.reduce)]
    reduce = [loops[v] for v in c.reduce]
    jo, ji = sch.split(loops[c.vector], [None, width])
    ko, ki = sch.split(reduce[-1], [None, steps])
    inner = [ji] if row is None else [ji, row]
    sch.reorder(*outer, jo, *reduce[:-1], ko, *inner, ki)
    sch.decompose_reduction(rv, [*reduce[:-1], ko][0])
    for loop in (ki, *inner[1:]):
        sch.unroll(loop)
    partition_tails(sch, (jo, columns, width), (ko, last, steps))
    return True
