"""Matrix products of any width, also one that is known only when the kernel runs.

The streamed input is copied into panels anyway; where the last panel is not full, zeros fill it.
So every tile computes whole vectors, and only writing a tile back looks at the width.

    for jo:                                         ceil(columns / width) tiles
        panel[k, 0:width] = B[k, jo tile] or 0
        for io:
            acc[rows, width] = sums over k          no condition
            C[tile] = acc where j < columns
"""

from __future__ import annotations

from typing import Any

from ....base import CpuModel
from ...transform import PARTITION_HINT
from ..schedule import Schedule
from .contraction import (
    accumulate,
    compute_panel_at,
    extent_of,
    iterations,
    loops_of,
    match_contraction,
    panel_map,
    partition_tails,
    tile_shape,
)

__all__ = ["schedule_ragged"]

_LEAST_ROWS = 8
_LEAST_STEPS = 1 << 12
_TYPICAL_COLUMNS = 1024


def schedule_ragged(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a product whose columns are no whole vectors. False if the block is none,
    or has too few rows to be worth the copy.
    """
    block = sch.get(rv)
    c = match_contraction(block)
    loops = loops_of(sch, rv)
    if c is None or loops is None or not c.is_matrix or c.row is None:
        return False
    columns, rows = extent_of(sch, loops[c.vector]), extent_of(sch, loops[c.row])
    lanes = cpu.lanes(block.writes[0].buffer.dtype.bits)
    if columns is not None and (columns % lanes == 0 or columns * 2 < lanes):
        return False
    if (rows or _LEAST_ROWS) < _LEAST_ROWS or iterations(sch, sch.get_loops(rv)) < _LEAST_STEPS:
        return False
    height, vectors = tile_shape(rows, columns or _TYPICAL_COLUMNS, lanes, cpu.vector_registers)
    width = lanes * vectors
    axes = [a.var for a in block.iter_vars]
    sch.pad_einsum(rv, [width if v is c.vector else 1 for v in axes])
    (write,) = sch.get_consumers(rv)
    copy = next(p for p in sch.get_producers(rv) if c.streamed in _inputs(sch, p))
    c, loops = match_contraction(sch.get(rv)), loops_of(sch, rv)
    if c is None or loops is None or c.row is None:
        return False
    outer = [loop for axis, loop in loops.items() if axis not in (c.vector, c.row, *c.reduce)]
    reduce = [loops[v] for v in c.reduce]
    jo, ji = sch.split(loops[c.vector], [None, width])
    io, ii = sch.split(loops[c.row], [None, height])
    sch.reorder(*outer, jo, io, *reduce, ii, ji)
    sch.transform_layout(copy, ("write", 0), panel_map(c, width))
    compute_panel_at(sch, copy, c, jo)
    accumulate(sch, rv, io, [ii, ji], reduce, lanes, write, whole=False)
    partition_tails(sch, (io, rows, height))
    if columns is None or columns > width:
        sch.annotate(jo, PARTITION_HINT, True)
    return True


def _inputs(sch: Schedule, rv: Any) -> list[Any]:
    return [r.buffer for r in sch.get(rv).reads]
