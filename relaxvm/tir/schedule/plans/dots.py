"""Products of few rows and a matrix whose columns lie along the depth: sums of products of two runs
of memory, a matrix times a vector among them.

    for jo:                                 a few columns
        for io:                             a few rows
            acc[rows, columns] = 0
            for k: acc += A[row, k] * B[column, k]
            C[tile] = acc

Nothing is copied: each run is read from its first to its last element. LLVM makes vectors along the
depth, of partial sums.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....base import CpuModel, record
from .contraction import Product, partition_tails, sums_in_registers, unroll_short
from .cost import Cost, Demand, predict, rates_of
from .plan import Plan
from .queries import last_moving
from .view import View

# With more rows, panels pay.
_MOST_ROWS = 48
_LEAST_DEPTH = 64
# (rows, columns) of a tile, by rows: the sums, their factors and some room fit sixteen registers.
_TILES = {1: (1, 8), 2: (2, 5), 3: (3, 4)}
_TILE = (4, 3)
_SUMS = 14  # in registers, with their factors
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
