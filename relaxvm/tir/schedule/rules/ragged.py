"""Matrix products of a size that is known only when the kernel runs.

Inputs are copied into panels anyway; where the last panel is not full, zeros fill it. So every tile
computes whole vectors, and only writing a tile back looks at how far the result goes.

    rows[io, k, 0:height] = A[io tile, k] or 0          if rows or depth are unknown
    for jo:                                             ceil(columns / width) tiles
        panel[k, 0:width] = B[k, jo tile] or 0
        for io:
            acc[rows, width] = sums over k              no condition
            C[tile] = acc where there is one            or what alone reads the sums

Rows are copied because those of an unknown length need an address each: too many for the registers.
"""

from __future__ import annotations

from typing import Any

from ....base import CpuModel
from ...transform import PARTITION_HINT
from ..schedule import Schedule
from .contraction import accumulate, epilogue_of, partition_tails, plan_of
from .panels import Operand, move_panels, pack_panels
from .queries import iterations

_LEAST_ROWS = 8
_LEAST_STEPS = 1 << 12


def schedule_ragged(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a product whose rows, columns or depth are of an unknown size. False if the
    block is none, or has too few rows to be worth the copy.
    """
    plan = plan_of(sch, rv, cpu, ragged=True)
    if plan is None or not plan.contraction.streamed.is_plain:
        return False
    row = plan.contraction.row
    if row is None:
        return False
    columns, rows, lanes = plan.columns, plan.rows, plan.lanes
    if None not in (columns, rows, plan.depth) or (columns is not None and columns * 2 < lanes):
        return False
    if (rows or _LEAST_ROWS) < _LEAST_ROWS or iterations(sch, sch.get_loops(rv)) < _LEAST_STEPS:
        return False
    # A few rows more are computed, of zeros, rather than each step asking which there are.
    packs_left = plan.contraction.broadcast.is_plain and (rows is None or plan.depth is None)
    pads = {}
    if columns is None or columns % plan.width:
        pads[plan.contraction.vector] = plan.width
    if rows is None and packs_left:
        pads[row] = plan.height
    write = epilogue_of(sch, rv)
    if pads:
        sch.pad_einsum(rv, [pads.get(a.var, 1) for a in sch.get(rv).iter_vars])
        (crop,) = sch.get_consumers(rv)
        if write is None:
            write = crop
        else:
            sch.compute_inline(crop)
    padded = plan_of(sch, rv, cpu, ragged=True)
    if padded is None:
        return False
    c, width, height = padded.contraction, plan.width, plan.height
    jo, ji = sch.split(padded.column, [None, width])
    io, ii = sch.split(padded.row, [None, height])
    sch.reorder(*padded.outer, jo, io, *padded.reduce, ii, ji)
    _fill(sch, rv, plan.contraction.streamed, c.streamed, c.vector, jo, width)
    if packs_left:
        _fill(sch, rv, plan.contraction.broadcast, c.broadcast, c.row, None, height)
    whole = plan.contraction.vector not in pads
    accumulate(sch, rv, io, [ii, ji], padded.reduce, lanes, write, whole=whole)
    if rows is not None or not packs_left:
        partition_tails(sch, (io, rows, height))
    if plan.contraction.vector in pads and (columns is None or columns > width):
        sch.annotate(jo, PARTITION_HINT, True)
    return True


def _fill(
    sch: Schedule, rv: Any, source: Operand, padded: Operand, axis: Any, loop: Any, width: int
) -> None:
    """Copy an input into panels; the copy that filled it up with zeros becomes that."""
    if source.buffer is padded.buffer:
        pack_panels(sch, rv, padded, axis, loop, width, 1)
        return
    copy = next(
        p
        for p in sch.get_producers(rv)
        if any(w.buffer is padded.buffer for w in sch.get(p).writes)
    )
    move_panels(sch, copy, padded, axis, loop, width, 1)
