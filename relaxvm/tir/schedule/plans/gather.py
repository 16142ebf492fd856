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

import math
from collections.abc import Iterable
from typing import Any

from ....base import CpuModel, record
from ....ir import IntImm, Var
from .contraction import partition_tails
from .cost import Cost, predict
from .matches import Across
from .plan import Plan
from .view import View


@record
class Gather(Plan):
    """Panels of `columns` of what is gathered from."""

    columns: int

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Gather | None:
        gather = view.gather
        if gather is None:
            return None
        buffer = gather.load.buffer
        size, columns = buffer.shape[gather.axis], view.extents[gather.along]
        if not isinstance(size, IntImm) or columns is None:
            return None
        item = buffer.dtype.itemsize
        times = math.prod(view.extents[v] or 0 for v in _rest(view, gather))
        # A copy pays where most of it is read, and where reading it in place misses the cache.
        if 2 * times < size.value or size.value * columns * item < cpu.l2_bytes:
            return None
        width = _width(size.value * item, columns, cpu)
        return None if width * item < cpu.line_bytes else cls(width)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        return self.varied(columns=(max(1, self.columns // 2), self.columns * 2))

    def wrong(self, view: View) -> str | None:
        gather = view.gather
        if gather is None:
            return "it gathers nothing across rows"
        columns = view.extents[gather.along]
        if columns is None or self.columns > columns:
            return f"panels of {self.columns} columns, and there are {columns or 'unknown many'}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        gather: Any = view.gather
        demand, buffer = view.sweep(cpu, self.columns), gather.load.buffer
        size: Any = buffer.shape[gather.axis]
        panel = float(size.value * self.columns * buffer.dtype.itemsize)
        # A panel is copied, and then read from where that is.
        near = tuple((amount, min(whole, panel)) for amount, whole in demand.traffic)
        return predict(demand._replace(traffic=(*near, *demand.traffic)), cpu)

    def apply(self, view: View) -> None:
        sch = view.sch
        gather: Any = view.gather
        loops: Any = view.by_axis
        outer, inner = sch.split(loops[gather.along], [None, self.columns])
        rest = [loops[v] for v in _rest(view, gather)]
        sch.reorder(*(loops[v] for v in gather.kept), outer, *rest, inner)
        partition_tails(sch, (outer, view.extents[gather.along], self.columns))
        position = [r.buffer for r in view.block.reads].index(gather.load.buffer)
        sch.compute_at(sch.cache_read(view.rv, position, "global"), outer)


def _rest(view: View, gather: Across) -> list[Var]:
    """The axes that the panel is read again for."""
    return [v for v in view.extents if v not in gather.kept and v is not gather.along]


def _width(column_bytes: int, columns: int, cpu: CpuModel) -> int:
    """How many columns half of the second cache holds: a power of two, or all of them."""
    width = 1
    while 2 * width * column_bytes <= cpu.l2_bytes // 2 and width < columns:
        width *= 2
    return min(width, columns)
