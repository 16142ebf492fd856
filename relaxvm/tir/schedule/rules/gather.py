"""Gathers: an index that is read from memory stands inside another index.

    for i, j: B[i, j] = A[I[i], j]          rows: whole runs of A are copied, I is read once a row
    for i, j: B[i, j] = A[I[i, j], j]       across rows, as gather_elements along another axis:

        for jo:                             columns of A, so few that they stay in the second cache
            panel = A[:, jo]
            for i, j in columns: B[i, j] = panel[I[i, j], j]

Read as written, each element of the second kind comes from another line of A, and when the next one
of that line is wanted it has left the caches. Indices are checked where they are read
(`bound_check`); the checks are what `GuardIndices` finds proven by, also in the panel.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from ....base import CpuModel
from ....ir import IntImm, Var, walk
from ...stmt import Block, BufferLoad, BufferStore
from ...transform import PARTITION_HINT
from ..facts import facts_of
from ..schedule import Schedule
from .contraction import variables_of
from .queries import extent_of, loops_of


class _Across(NamedTuple):
    """A gather across rows.

    load    what is gathered from
    axis    the dimension that the indices are of
    along   the axis of the block along both last dimensions
    kept    axes of the block that are dimensions of what is gathered from, without the last one
    """

    load: BufferLoad
    axis: int
    along: Var
    kept: tuple[Var, ...]


def schedule_gather(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Copy columns of what block `rv` gathers from, if it does that across rows of what is beyond
    the second cache. False if not.
    """
    block: Block = sch.get(rv)
    loops = loops_of(sch, rv)
    if not loops or not facts_of(sch.state, block).elementwise:
        return False
    gather = _match(block, loops)
    if gather is None:
        return False
    buffer = gather.load.buffer
    along = gather.along
    size, columns = buffer.shape[gather.axis], extent_of(sch, loops[along])
    if not isinstance(size, IntImm) or columns is None:
        return False
    item = buffer.dtype.itemsize
    rest = [v for v in loops if v not in gather.kept and v is not along]
    times = 1
    for v in rest:
        times *= extent_of(sch, loops[v]) or 0
    # A copy pays where most of it is read, and where reading it in place misses the cache.
    if 2 * times < size.value or size.value * columns * item < cpu.l2_bytes:
        return False
    width = _width(size.value * item, columns, cpu)
    if width * item < cpu.line_bytes:
        return False
    outer, inner = sch.split(loops[along], [None, width])
    sch.reorder(*(loops[v] for v in gather.kept), outer, *(loops[v] for v in rest), inner)
    if columns % width:
        sch.annotate(outer, PARTITION_HINT, True)
    position = [r.buffer for r in block.reads].index(buffer)
    panel = sch.cache_read(rv, position, "global")
    sch.compute_at(panel, outer)
    return True


def _width(column_bytes: int, columns: int, cpu: CpuModel) -> int:
    """How many columns half of the second cache holds: a power of two, or all of them."""
    width = 1
    while 2 * width * column_bytes <= cpu.l2_bytes // 2 and width < columns:
        width *= 2
    return min(width, columns)


def _match(block: Block, loops: dict[Var, Any]) -> _Across | None:
    """The gather across rows that the block is: of one buffer, in one place."""
    store = block.body
    if not isinstance(store, BufferStore) or not store.indices:
        return None
    along = store.indices[-1]
    if not isinstance(along, Var) or along not in loops:
        return None
    loads = [n for n in walk(store.value) if isinstance(n, BufferLoad)]
    for load in loads:
        if len(load.indices) < 2 or load.indices[-1] is not along:
            continue
        indirect = [
            k for k, i in enumerate(load.indices) if any(isinstance(n, BufferLoad) for n in walk(i))
        ]
        if len(indirect) != 1 or along not in variables_of((load.indices[indirect[0]],)):
            continue
        if sum(other.buffer.data is load.buffer.data for other in loads) != 1:
            continue
        others = [i for k, i in enumerate(load.indices[:-1]) if k != indirect[0]]
        kept = tuple(v for v in others if isinstance(v, Var) and v in loops and v is not along)
        if len(set(kept)) == len(others):
            return _Across(load, indirect[0], along, kept)
    return None
