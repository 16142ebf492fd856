"""Matrix products of few rows, in which each element of the matrix is used so rarely that reading
it is the work. Nothing is copied.

`Dots`: the columns lie along the depth, so that sums are of products of two runs of memory, a
matrix times a vector among them. LLVM makes vectors along the depth, of partial sums.

    for jo:                                 a few columns
        for io:                             a few rows
            acc[rows, columns] = 0
            for k: acc += A[row, k] * B[column, k]
            C[tile] = acc

`Streaming`: the columns lie side by side, and are read as fast as memory allows.

    for jo:                         blocks of columns whose sums stay in the second cache
        C[jo block] = 0
        for ko:                     a few rows of the matrix are read side by side, in long runs
            for j in block:
                C[j] += A[k] * B[k, j] + A[k + 1] * B[k + 1, j] + ...

Where that leaves fewer blocks than cores, parts of the matrix's rows are summed apart, each into
sums of its own, and those are added at the end. Register tiles would read a short piece of each
row: too short for the prefetchers, a page a piece. The loop over j is left to LLVM's vectoriser,
which also makes the tail.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....base import CpuModel, record
from .contraction import Product, partition_tails, sums_in_registers, unroll_short
from .cost import Cost, Demand, predict, rates_of
from .plan import Plan
from .queries import extent_of, last_moving
from .view import View

# With more rows, panels pay.
_MOST_ROWS = 48
_LEAST_DEPTH = 64
# (rows, columns) of a tile, by rows: the sums, their factors and some room fit sixteen registers.
_TILES = {1: (1, 8), 2: (2, 5), 3: (3, 4)}
_TILE = (4, 3)
_TYPICAL = 1024


@record
class Dots(Plan):
    """Tiles of `rows` x `columns` sums, each a vector of partial sums along the depth."""

    rows: int
    columns: int

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Dots | None:
        p = view.product
        if p is None or not p.is_tiled(view.steps) or not _is_along_depth(p):
            return None
        rows, columns, last = p.rows, p.columns, p.depths[-1]
        few = min(n for n in (rows, columns, _MOST_ROWS + 1) if n is not None)
        if few > _MOST_ROWS or (last is not None and last < _LEAST_DEPTH):
            return None
        height, width = _TILES.get(rows or few, _TILE)
        if columns is not None and columns < width:
            width, height = _TILES.get(columns, _TILE)
        return cls(height, width)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        for rows in range(1, 9):
            for columns in range(1, 9):
                if rows * columns + rows + 1 <= cpu.vector_registers:
                    yield Dots(rows, columns)

    def wrong(self, view: View) -> str | None:
        p = view.product
        if p is None or not _is_along_depth(p):
            return "it sums no products of two inputs that both lie along the depth"
        for what, size, most in (("rows", self.rows, p.rows), ("columns", self.columns, p.columns)):
            # A single row or column is taken with others where the standard tile has them.
            if most is not None and size > max(most, _TILE[0]):
                return f"tiles of {size} {what}, and there are {most}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        p: Any = view.product
        rows, columns, depth = (n or _TYPICAL for n in (p.rows, p.columns, p.depth))
        size = p.contraction.streamed.bytes
        across, strips = -(-columns // self.columns), -(-rows // self.rows)
        steps = -(-depth // cpu.lanes(8 * size))
        sums = self.rows * self.columns
        a_cycle = rates_of(cpu, cpu.lanes(8 * size), 8 * size).products
        cycles = (
            p.times
            * across
            * strips
            * (steps * max(sums / a_cycle, (self.rows + self.columns) / a_cycle, 2) + 4 * sums)
        )
        right, left = depth * columns * size, depth * rows * size
        strip = depth * self.columns * size
        traffic = (
            (p.times * right, p.times * right),
            (p.times * right * (strips - 1), strip),
            (p.times * left * across, left),
        )
        done = rows * columns / (across * self.columns * strips * self.rows)
        return predict(
            Demand(cycles, (*traffic, (p.times * left * across, left)), p.times * across, 1 - done),
            cpu,
        )

    def apply(self, view: View) -> None:
        sch, rv = view.sch, view.rv
        p: Any = view.product
        jo, ji = sch.split(p.column, [None, self.columns])
        io, ii = (None, None) if p.row is None else sch.split(p.row, [None, self.rows])
        over, tile = ([jo], [ji]) if io is None else ([jo, io], [ii, ji])
        sch.reorder(*p.outer, *over, *p.reduce, *tile)
        start, sums = sums_in_registers(sch, rv, over[-1], p.reduce[0])
        for each in (start, rv, sums):
            unroll_short(sch, list(sch.get_loops(each))[-len(tile) :])
        tails = [(jo, p.columns, self.columns)]
        if io is not None:
            tails.append((io, p.rows, self.rows))
        partition_tails(sch, *tails)


def _is_along_depth(p: Product) -> bool:
    """Whether the innermost reduce axis moves both inputs through neighbours."""
    c = p.contraction
    deepest = c.reduce[-1]
    return all(
        x.is_plain and last_moving(x.indices, x.buffer) is deepest
        for x in (c.streamed, c.broadcast)
    )


_FEW_ROWS = 4
_RUNS = 8
_PARTS = 2  # of the matrix for each core


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
        if p is None or not p.is_tiled(view.steps) or p.rows is None or p.rows > _FEW_ROWS:
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
        if p.rows is None or p.rows > 4 * _FEW_ROWS:
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
