"""Loops side by side that go over the same range, element by element, as one: what they both read,
or one reads of the other, comes from memory once.

    for i in T.serial(n):                for i in T.serial(n):
        B[i] = max(A[i], 0)       ->         B[i] = max(A[i], 0)
    for i in T.serial(n):                    C[i] = B[i] * 2
        C[i] = B[i] * 2
"""

from __future__ import annotations

from typing import Any

from ....base import ScheduleError, decided, declined
from ....ir import PrimExpr, substitute
from ...stmt import Block, Buffer
from ..schedule import Schedule

MOST_BUFFERS = 8  # as many streams as a core's prefetchers follow


def merge_neighbours(sch: Schedule, blocks: Any) -> None:
    """Merge each loop with the one before it, where both go through an array in step and the order
    of what they do allows it.
    """
    before: Any = None
    for rv in blocks:
        loops = list(sch.get_loops(rv))
        block: Block = sch.get(rv)
        if len(loops) != 1 or any(axis.is_reduce for axis in block.iter_vars):
            before = None
            continue
        loop, first, places = loops[0], block, _places(block, block)
        if before is not None:
            joined = before[2] | _places(block, before[1])
            in_step = len(joined) < len(before[2]) + len(places)
            if in_step and len({buffer for buffer, _ in joined}) <= MOST_BUFFERS:
                try:
                    loop = sch.merge(before[0], loop)
                except ScheduleError as error:
                    declined("block {} not in one loop with {}: {}", block, before[1], str(error))
                else:
                    decided("block {} runs in one loop with {}", block, before[1])
                    first, places = before[1], joined
        before = loop, first, places


def _places(block: Block, like: Block) -> set[tuple[Buffer, tuple[PrimExpr, ...]]]:
    """What a block reads and writes: buffers, and where, in the axes of the block `like`."""
    axes: dict[Any, PrimExpr] = {a.var: b.var for a, b in zip(block.iter_vars, like.iter_vars)}
    return {
        (r.buffer, tuple(substitute(x.min, axes) for x in r.region))
        for r in (*block.reads, *block.writes)
    }
