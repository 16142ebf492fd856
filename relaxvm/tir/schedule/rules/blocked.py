"""Large matrix products in blocks that fit the caches.

    for jb:                                     blocks of columns, some megabytes of panels
        for ko:                                 pieces of the depth
            pack B[ko, jb]                      unless it is kept in panels already
            for ib:                             a few tiles of rows
                pack A[ib, ko]                  stays in the second cache
                for jo:                         one panel of B
                    for io:                     the panel stays near while the rows change
                        acc[rows, vectors] = sums over the piece
                        C[tile] += acc

Without blocks each panel would read all of A again, from memory if A is large. The order is that of
Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008). Rows of A are
copied because in place they are often a power of two apart: then few of them fit a cache.
"""

from __future__ import annotations

from typing import Any

from ....base import CpuModel
from ..schedule import Schedule
from .contraction import Plan, accumulate, epilogue_of, partition_tails, plan_of
from .panels import pack_panels

# The depth of a piece at most. Each piece reads and writes the sums again; but where panels come
# from memory, a block should be wide rather than deep, so that it is read in long runs.
_DEPTH = 1024
_DEPTH_FROM_MEMORY = 512
_DEPTH_OF_FEW_ROWS = 128
# Rows that fewer panels read are not worth a copy.
_FEW_PANELS = 8


def schedule_blocked(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Apply the rule to a product whose inputs are beyond the second cache. False if the block is
    none.
    """
    plan = plan_of(sch, rv, cpu)
    if plan is None or not (plan.packs(cpu) or plan.contraction.panel):
        return False
    c, rows, depth, columns = plan.contraction, plan.rows, plan.depth, plan.columns
    width, size = plan.width, c.streamed.bytes
    if rows is None or depth is None or columns is None or c.row is None:
        return False
    if len(c.reduce) != 1 or not (c.streamed.is_plain or c.panel) or not c.broadcast.is_plain:
        return False
    # Where the last panel is not full, there is code for each kind of corner: worth it only if
    # reading the left side in place is slow.
    if columns % width and depth <= _DEPTH and c.broadcast.indices[-1] is not c.row:
        return False
    packs_left = rows * depth * size > 2 * cpu.l2_bytes and columns >= _FEW_PANELS * width
    from_memory = c.panel is None and columns * depth * size > cpu.l3_bytes // 2
    if not (packs_left or from_memory):
        return False
    most = _DEPTH_FROM_MEMORY if from_memory else _DEPTH
    step = _step(depth, most if packs_left else _DEPTH_OF_FEW_ROWS)
    if step is None:
        return False
    block, ko, ki, column, row = _pieces(sch, rv, plan, step)
    # Shares of the caches measured on Zen 3: others use the third one too.
    share = cpu.l3_bytes // (8 if from_memory else 16)
    panels = _panels(-(-columns // width), share // (step * width * size), cpu.cores)
    room = cpu.l2_bytes * 3 // 8
    tiles = _balanced(-(-rows // plan.height), room // (step * plan.height * size))
    jb, jo, ji = sch.split(column, [None, panels, width])
    ib, io, ii = sch.split(row, [None, tiles, plan.height])
    order = [jb] if ko is None else [jb, ko]
    sch.reorder(*order, ib, jo, io, ki, ii, ji)
    if c.panel is None:
        pack_panels(sch, block, c.streamed, c.vector, order[-1], width, plan.lanes)
    if packs_left:
        pack_panels(sch, block, c.broadcast, c.row, ib, plan.height, plan.lanes)
    # Sums of a piece are added to the result; whole ones can go on to what alone reads them.
    write = epilogue_of(sch, block) if ko is None else sch.get_consumers(block)[0]
    accumulate(sch, block, io, [ii, ji], [ki], plan.lanes, write)
    plan.ask_for_panels(sch, [ki], cpu)
    # In the last blocks, tiles that are full still carry no conditions.
    lower, right = (rows, plan.height * tiles), (columns, width * panels)
    partition_tails(sch, (ib, *lower), (io, *lower), (jb, *right), (jo, *right))
    return True


def _pieces(sch: Schedule, rv: Any, plan: Plan, step: int) -> tuple[Any, Any, Any, Any, Any]:
    """(the block that makes sums over a piece; its loops: over pieces, in a piece, over columns,
    over rows). The loop over pieces is None if there is one only. The outer loops are outermost.
    """
    (reduced,) = plan.reduce
    sch.reorder(*plan.outer, reduced, plan.column, plan.row)
    if step == plan.depth:
        return rv, None, reduced, plan.column, plan.row
    ko, _ = sch.split(reduced, [None, step])
    partial = sch.rfactor(ko, 0)
    return (partial, *sch.get_loops(partial)[-4:])


def _panels(total: int, most: int, cores: int) -> int:
    """How many panels a block has: as many as fit, but a block for each core at least. Without a
    rest if blocks half as large allow that.
    """
    most = max(1, min(most, total // cores))
    even = [n for n in range(-(-most // 2), most + 1) if total % n == 0]
    return even[-1] if even else _balanced(total, most)


def _balanced(total: int, most: int) -> int:
    """The size of parts of `total`, at most `most` each, that differ as little as can be."""
    parts = -(-total // max(1, most))
    return -(-total // parts)


def _step(depth: int, most: int) -> int | None:
    """The depth of a piece: the largest part of the whole, up to `most`, that leaves no rest; None
    if there is no good one.
    """
    if depth <= most:
        return depth
    fits = [n for n in range(most // 4, most + 1) if depth % n == 0]
    return fits[-1] if fits else None
