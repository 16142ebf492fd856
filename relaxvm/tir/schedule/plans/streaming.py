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

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....base import CpuModel, record
from .contraction import partition_tails
from .cost import Cost, Demand, predict
from .plan import Plan
from .queries import extent_of
from .view import View

_MOST_ROWS = 4
_RUNS = 8
_PARTS = 2  # of the matrix for each core
_TYPICAL = 1024


@record
class Streaming(Plan):
    """Blocks of `width` columns, `runs` rows of the matrix side by side.

    parts  of the matrix's rows that are summed apart; 0: all together
    """

    width: int
    runs: int
    parts: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Streaming | None:
        p = view.product
        if p is None or not p.is_tiled(view.steps) or p.rows is None or p.rows > _MOST_ROWS:
            return None
        c, rows, columns, last = p.contraction, p.rows, p.columns, p.depths[-1]
        if not (c.unit and c.streamed.is_plain):
            return None
        runs = _RUNS // (1 if rows == 1 else 2 if rows == 2 else 4)
        if last is not None and last < runs:
            return None
        size = p.streamed_bytes()
        if columns is not None and size is not None and size <= cpu.l2_bytes:
            return None
        lanes = cpu.lanes(view.block.writes[0].buffer.dtype.bits)
        width = cpu.l2_bytes // (4 * c.streamed.bytes * rows)
        if columns is not None:
            blocks = -(-columns // width)
            width = min(columns, -(-columns // (blocks * lanes)) * lanes)
        plan = cls(width, runs)
        parted = replace(plan, parts=_PARTS * cpu.cores)
        few = cpu.cores > 1 and columns is not None and columns < cpu.cores * width
        return parted if few and parted.wrong(view) is None else plan

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        widths = {max(1, self.width // 2), self.width, self.width * 2}
        parts = [n for n in (0, cpu.cores, _PARTS * cpu.cores) if n != 1]
        return self.varied(width=widths, runs=(1, 2, 4, 8), parts=parts)

    def simpler(self) -> Streaming | None:
        return replace(self, parts=0) if self.parts else None

    def wrong(self, view: View) -> str | None:
        p = view.product
        if p is None or not (p.contraction.unit and p.contraction.streamed.is_plain):
            return "it sums no products with a matrix whose columns lie side by side"
        if p.rows is None or p.rows > 4 * _MOST_ROWS:
            return f"it is for few rows, and there are {p.rows or 'unknown many'}"
        if p.columns is not None and self.width > p.columns:
            return f"blocks of {self.width} columns, and there are {p.columns}"
        last = p.depths[-1]
        if last is not None and self.runs > last:
            return f"{self.runs} rows side by side, and there are {last}"
        if self.parts:
            units = all(extent_of(view.sch, loop) == 1 for loop in p.outer)
            if not units or len(p.reduce) > 1 or last is None or last % (self.parts * self.runs):
                return f"{self.parts} parts of {self.runs} rows each do not make one product"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        p: Any = view.product
        columns, depth = (n or _TYPICAL for n in (p.columns, p.depth))
        size = p.contraction.streamed.bytes
        matrix, sums = columns * depth * size * p.times, columns * p.rows * size
        vectors = matrix / size / cpu.lanes(8 * size)
        # Each step reads its runs and reads and writes the sums.
        cycles = vectors * (1 + p.rows * max(1, 4 / self.runs)) / cpu.rates.products
        traffic = (
            (matrix, matrix),
            (2 * sums * depth / self.runs * p.times, self.width * p.rows * size),
        )
        parts = max(1, self.parts) * -(-columns // self.width) * p.times
        return predict(Demand(cycles, traffic, parts), cpu)

    def apply(self, view: View) -> None:
        sch, block = view.sch, view.rv
        p: Any = view.product
        outer, column, row = p.outer, p.column, [] if p.row is None else [p.row]
        *around, deepest = p.reduce
        if self.parts:
            sch.reorder(*outer, deepest, column, *row)
            count = len(outer)
            block = sch.rfactor(sch.split(deepest, [self.parts, None])[0], 0)
            *outer, deepest, column = sch.get_loops(block)[: count + 3]
            row = sch.get_loops(block)[count + 3 :]
            sch.decompose_reduction(view.rv, sch.get_loops(view.rv)[0])
        jo, ji = sch.split(column, [None, self.width])
        ko, ki = sch.split(deepest, [None, self.runs])
        inner = [ji, *row]
        sch.reorder(*outer, jo, *around, ko, *inner, ki)
        sch.decompose_reduction(block, [*around, ko][0])
        for loop in (ki, *inner[1:]):
            sch.unroll(loop)
        partition_tails(sch, (jo, p.columns, self.width), (ko, p.depths[-1], self.runs))
