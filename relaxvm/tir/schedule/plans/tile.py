"""Contractions in tiles that stay in registers: see `contraction.py`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....base import CpuModel, record
from ..schedule import Schedule
from .constants import ConstantLayout
from .contraction import (
    PAGE,
    Product,
    accumulate,
    in_registers,
    partition_tails,
    strips_cost,
    vector_lanes,
)
from .cost import Cost, Demand, predict, rates_of
from .panels import Ahead, ask_for_panels, constant_panels, pack_panels
from .plan import InTiles, Plan
from .view import View

_MOST_VECTORS = 8
_PAGE_CYCLES = 7  # to find another page in the second table of pages
_TYPICAL = 1024  # what a size counts as in predictions that is known only when the kernel runs


@record
class Tile(InTiles):
    """Tiles of `rows` x (`vectors` x `lanes`) sums in registers.

    pack      whether the streamed input is copied into panels
    epilogue  whether what alone reads the sums is computed in the tiles
    ahead     how far, in elements, panels that are there are asked for before they are read
    panel     the size of a panel whose reading asks for the next one; 0: it does not
    """

    pack: bool = False
    epilogue: bool = False
    ahead: int = 0
    panel: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Tile | None:
        p = view.product
        if p is None or p.columns is None or not p.is_tiled(view.steps):
            return None
        most = cpu.lanes(view.block.writes[0].buffer.dtype.bits)
        lanes = vector_lanes(p.contraction.panel or p.columns, most)
        if lanes < 2:
            return None
        height, vectors = p.shape(lanes, cpu.vector_registers)
        height = min(height, p.most_rows(cpu))
        pack = p.needs_panels(height, cpu)
        epilogue = view.epilogue is not None
        return cls(height, vectors, lanes, pack, epilogue, *p.asks_ahead(height, cpu))

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        p: Any = view.product
        panel = p.contraction.panel
        widths = [v for v in range(1, _MOST_VECTORS + 1) if panel in (None, v * self.lanes)]
        for vectors, rows in in_registers(cpu, widths):
            packs = {p.needs_panels(rows, cpu), p.can_be_packed(), False}
            if not p.contraction.unit and p.can_be_packed():
                packs = {True}
            for pack in packs:
                ahead = p.asks_ahead(rows, cpu)
                yield Tile(rows, vectors, self.lanes, pack, self.epilogue, *ahead)

    def wrong(self, view: View) -> str | None:
        return wrong_tile(view, self.rows, self.width, self.lanes, self.pack)

    def simpler(self) -> Tile | None:
        return replace(self, epilogue=False) if self.epilogue else None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        p: Any = view.product
        return predict(demand_of_tiles(p, self, self.pack, cpu), cpu)

    def apply(self, view: View) -> None:
        sch = view.sch
        p: Any = view.product
        c, rv = p.contraction, view.rv
        epilogue = view.epilogue if self.epilogue else None
        jo, ji = sch.split(p.column, [None, self.width])
        if p.row is None:
            sch.reorder(*p.outer, jo, *p.reduce, ji)
            accumulate(sch, rv, jo, [ji], p.reduce, self.lanes, epilogue)
            return
        io, ii = sch.split(p.row, [None, self.rows])
        sch.reorder(*p.outer, jo, io, *p.reduce, ii, ji)
        if self.pack:
            pack_panels(sch, rv, c.streamed, c.vector, jo, self.width, self.lanes)
        accumulate(sch, rv, io, [ii, ji], p.reduce, self.lanes, epilogue)
        ask_for_panels(sch, p.reduce, Ahead(self.ahead, self.panel))
        partition_tails(sch, (jo, p.columns, self.width), (io, p.rows, self.rows))


def wrong_tile(view: View, rows: int, columns: int, lanes: int, pack: bool) -> str | None:
    """Why tiles of so many rows and columns do not fit a block; None if they do."""
    p = view.product
    if p is None:
        return "it sums no products of two inputs over plain loops"
    if not (p.contraction.unit or pack) and p.can_be_packed():
        return "columns of the streamed input are no neighbours: it has to be packed"
    if pack and not p.can_be_packed():
        return "the streamed input cannot be packed: there are no rows, or it is in panels already"
    panel = p.contraction.panel
    if panel is not None and columns != panel:
        return f"tiles of {columns} columns, and the streamed input is in panels of {panel}"
    sizes = (("rows", rows, p.rows, 1), ("columns", columns, p.columns, lanes))
    for what, size, most, step in sizes:
        if most is not None and size > -(-most // step) * step:
            return f"tiles of {size} {what}, and there are {most}"
    return None


def demand_of_tiles(p: Product, tile: InTiles, pack: bool, cpu: CpuModel) -> Demand:
    """What tiles demand that read all of the depth, one panel after the other."""
    rows, width = tile.rows, tile.width
    columns, depth, high = (n or _TYPICAL for n in (p.columns, p.depth, p.rows))
    size = p.contraction.streamed.bytes
    panels, strips = -(-columns // width), -(-high // rows)
    rates = rates_of(cpu, tile.lanes, 8 * size)
    cycles = p.times * panels * depth * strips_cost(high, rows, tile.vectors, rates)
    panel, right, left = depth * width * size, depth * columns * size, high * depth * size
    out = high * columns * size
    times = p.times
    near = panel
    if not pack and p.contraction.panel is None:
        # A piece of each row, on a page of its own: its lines share few sets of a cache.
        step = min(columns * size, PAGE)
        near = max(panel, depth * step)
        cycles += times * panels * strips * depth * step / PAGE * _PAGE_CYCLES
    # The first strip of rows reads a panel from where it is, the others from a cache.
    # Rows that push each other out of the first cache come from the next one in each step.
    pushed = strips * rows * depth * cpu.line_bytes if rows > p.most_rows(cpu) else 0.0
    traffic = (
        (times * panels * pushed, left),
        (times * right * (3 if pack else 1), times * right),
        (times * (strips - 1) * panels * panel, near),
        (times * left * panels, left),
        (times * out, times * out),
    )
    return Demand(cycles, traffic, times * panels, 1 - columns / (panels * width))


def panel_layout(sch: Schedule, rv: Any, cpu: CpuModel) -> ConstantLayout | None:
    """The layout of an input of the contraction in block `rv` that would spare its schedule a copy
    into panels, or let it read memory in one run; None if there is none.
    """
    view = View(sch, rv)
    plan, p = Tile.choose(view, cpu), view.product
    if plan is None or p is None or p.columns is None or p.columns % plan.width:
        return None
    # One row reads the matrix once: panels make one run of it, if it comes from the second cache.
    # From memory, several long runs side by side are faster.
    size = p.streamed_bytes()
    far = size is None or size > cpu.l2_bytes
    if p.rows == 1 and (p.columns == plan.width or far):
        return None
    if not p.can_be_packed():
        return None
    c = p.contraction
    # Narrower vectors, taken because they fill the columns, are no reason to keep panels.
    if plan.lanes < cpu.lanes(c.streamed.buffer.dtype.bits) and p.columns > plan.width:
        return None
    return constant_panels(c.streamed, c.vector, plan.width)
