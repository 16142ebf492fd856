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

from collections.abc import Iterable
from typing import Any

from ....base import CpuModel, ScheduleError, record
from ..schedule import Schedule
from .contraction import accumulate, in_registers, partition_tails
from .cost import Cost, predict
from .panels import Operand, move_panels, pack_panels
from .plan import InTiles, Plan
from .tile import demand_of_tiles
from .view import View

_LEAST_ROWS = 8
_LEAST_STEPS = 1 << 12


@record
class Ragged(InTiles):
    """Tiles of `rows` x (`vectors` x `lanes`) sums, of zeros where there are no more.

    pack_rows  whether rows are copied, too
    """

    pack_rows: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Ragged | None:
        p = view.product
        if p is None or p.row is None or not p.is_tiled(max(view.steps, 1)):
            return None
        columns, rows = p.columns, p.rows
        lanes = cpu.lanes(view.block.writes[0].buffer.dtype.bits)
        if None not in (columns, rows, p.depth) or (columns is not None and columns * 2 < lanes):
            return None
        if (rows or _LEAST_ROWS) < _LEAST_ROWS or view.steps < _LEAST_STEPS:
            return None
        if not p.contraction.streamed.is_plain:
            return None
        # A few rows more are computed, of zeros, rather than each step asking which there are.
        pack_rows = p.contraction.broadcast.is_plain and (rows is None or p.depth is None)
        return cls(*p.shape(lanes, cpu.vector_registers), lanes, pack_rows)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        for vectors, rows in in_registers(cpu, range(1, 9)):
            yield Ragged(rows, vectors, self.lanes, self.pack_rows)

    def wrong(self, view: View) -> str | None:
        p = view.product
        if p is None or p.row is None or not p.contraction.streamed.is_plain:
            return "it sums no products of rows and a plain matrix"
        if self.pack_rows and not p.contraction.broadcast.is_plain:
            return "rows cannot be copied: they are indexed by more than axes"
        for what, size, most in (("rows", self.rows, p.rows), ("columns", self.lanes, p.columns)):
            if most is not None and size > 2 * most:
                return f"tiles of {size} {what}, and there are {most}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        p: Any = view.product
        return predict(demand_of_tiles(p, self, True, cpu), cpu)

    def apply(self, view: View) -> None:
        sch, rv, width = view.sch, view.rv, self.width
        p: Any = view.product
        columns, source = p.columns, p.contraction
        pads: dict[Any, int] = {}
        if columns is None or columns % width:
            pads[source.vector] = width
        if p.rows is None and self.pack_rows:
            pads[source.row] = self.rows
        write = view.epilogue
        if pads:
            sch.pad_einsum(rv, [pads.get(a.var, 1) for a in view.block.iter_vars])
            (crop,) = sch.get_consumers(rv)
            if write is None:
                write = crop
            else:
                sch.compute_inline(crop)
        padded = View(sch, rv).product if pads else p
        if padded is None:
            raise ScheduleError("the padded block is no product any more")
        c = padded.contraction
        jo, ji = sch.split(padded.column, [None, width])
        io, ii = sch.split(padded.row, [None, self.rows])
        sch.reorder(*padded.outer, jo, io, *padded.reduce, ii, ji)
        _fill(sch, rv, source.streamed, c.streamed, c.vector, jo, width)
        if self.pack_rows:
            _fill(sch, rv, source.broadcast, c.broadcast, c.row, None, self.rows)
        whole = source.vector not in pads
        accumulate(sch, rv, io, [ii, ji], padded.reduce, self.lanes, write, whole=whole)
        if p.rows is not None or not self.pack_rows:
            partition_tails(sch, (io, p.rows, self.rows))
        if columns is None or columns > width:
            partition_tails(sch, (jo, columns, width))


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
