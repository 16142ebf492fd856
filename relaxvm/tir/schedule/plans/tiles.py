"""Matrix products in tiles that stay in registers (`contraction.py`): plainly, in blocks that fit
the caches, and of sizes that are known only when the kernel runs.

`Blocked`, for large products:

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

`Ragged`: inputs are copied into panels anyway; where the last panel is not full, zeros fill it. So
every tile computes whole vectors, and only writing a tile back looks at how far the result goes.

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
from dataclasses import replace
from typing import Any

from ....base import CpuModel, ScheduleError, record
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
from .panels import Ahead, Operand, ask_for_panels, constant_panels, move_panels, pack_panels
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


# -- in blocks that fit the caches -----------------------------------------------------------------


# The depth of a piece at most. Each piece reads and writes the sums again; but where panels come
# from memory, a block should be wide rather than deep, so that it is read in long runs.
_DEPTH = 1024
_DEPTH_FROM_MEMORY = 512
_DEPTH_OF_FEW_ROWS = 128
# Rows that fewer panels read are not worth a copy.
_FEW_PANELS = 8


@record
class Blocked(InTiles):
    """Tiles of `rows` x (`vectors` x `lanes`) sums over pieces of the `depth`, in blocks of
    `panels` tiles of columns and `tiles` of rows.

    pack_rows  whether rows of the other input are copied too
    epilogue, ahead, panel  as of `Tile`
    """

    depth: int
    panels: int
    tiles: int
    pack_rows: bool = False
    epilogue: bool = False
    ahead: int = 0
    panel: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Blocked | None:
        tile, p = Tile.choose(view, cpu), view.product
        if tile is None or p is None or not (tile.pack or p.contraction.panel):
            return None
        c, rows, depth, columns = p.contraction, p.rows, p.depth, p.columns
        if rows is None or depth is None or columns is None or not _is_plain(p):
            return None
        width, size = tile.width, c.streamed.bytes
        # Where the last panel is not full, there is code for each kind of corner: worth it only if
        # reading the left side in place is slow.
        if columns % width and depth <= _DEPTH and c.broadcast.indices[-1] is not c.row:
            return None
        pack_rows = rows * depth * size > 2 * cpu.l2_bytes and columns >= _FEW_PANELS * width
        from_memory = c.panel is None and columns * depth * size > cpu.l3_bytes // 2
        if not (pack_rows or from_memory):
            return None
        most = _DEPTH_FROM_MEMORY if from_memory else _DEPTH
        step = _step(depth, most if pack_rows else _DEPTH_OF_FEW_ROWS)
        if step is None:
            return None
        # Shares of the caches measured on Zen 3: others use the third one too.
        share = cpu.l3_bytes // (8 if from_memory else 16)
        panels = _panels(-(-columns // width), share // (step * width * size), cpu.cores)
        room = cpu.l2_bytes * 3 // 8
        high = p.shape(tile.lanes, cpu.vector_registers)[0] if pack_rows else tile.rows
        tiles = _balanced(-(-rows // high), room // (step * high * size))
        # Sums of a piece are added to the result; whole ones can go on to what alone reads them.
        epilogue = step == depth and view.epilogue is not None
        ahead = tile.ahead, tile.panel
        sizes = high, tile.vectors, tile.lanes, step, panels, tiles
        return cls(*sizes, pack_rows, epilogue, *ahead)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        p: Any = view.product
        for depth in {n for n in (128, 256, 512, 1024, p.depth) if p.depth % n == 0}:
            panels, tiles = ({max(1, n // 2), n, n * 2} for n in (self.panels, self.tiles))
            epilogue = depth == p.depth and view.epilogue is not None
            plan = replace(self, depth=depth, epilogue=epilogue)
            yield from plan.varied(panels=panels, tiles=tiles, pack_rows=(False, True))

    def wrong(self, view: View) -> str | None:
        p: Any = view.product
        if p is None or None in (p.rows, p.depth, p.columns) or not _is_plain(p):
            return "it sums no products of known sizes along one axis, of rows and columns"
        pack = p.contraction.panel is None
        if reason := wrong_tile(view, self.rows, self.width, self.lanes, pack):
            return reason
        if p.depth % self.depth:
            return f"pieces of {self.depth} leave a rest of the depth {p.depth}"
        for what, count, size, total in (
            ("panels", self.panels, self.width, p.columns),
            ("tiles", self.tiles, self.rows, p.rows),
        ):
            if count > -(-total // size):
                return f"blocks of {count} {what} of {size}, and there are {-(-total // size)}"
        if self.epilogue and self.depth != p.depth:
            return "what reads the sums cannot be computed in a piece of the depth"
        return None

    def simpler(self) -> Blocked | None:
        return replace(self, epilogue=False) if self.epilogue else None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        p: Any = view.product
        pack = p.contraction.panel is None
        whole = demand_of_tiles(p, self, pack, cpu)
        size = p.contraction.streamed.bytes
        out = p.rows * p.columns * size
        left, right = p.rows * p.depth * size, p.columns * p.depth * size
        blocks = -(-p.columns // (self.width * self.panels))
        strips = -(-p.rows // (self.rows * self.tiles))
        part = self.depth * self.rows * self.tiles * size
        panel = self.depth * self.width * size
        wide = panel * self.panels
        traffic = [
            (right * (2 if pack else 1), right),
            (right * max(0, strips - 1), wide),
            (left * blocks * (2 if self.pack_rows else 1), left),
            (left * blocks * self.panels, part if self.pack_rows else left),
            (out * (2 * (p.depth // self.depth) - 1), out),
        ]
        return predict(Demand(whole.cycles, tuple(traffic), p.times * blocks, whole.vain), cpu)

    def apply(self, view: View) -> None:
        sch = view.sch
        p: Any = view.product
        c, width = p.contraction, self.width
        block, ko, ki, column, row = _pieces(sch, view.rv, p, self.depth)
        jb, jo, ji = sch.split(column, [None, self.panels, width])
        ib, io, ii = sch.split(row, [None, self.tiles, self.rows])
        order = [jb] if ko is None else [jb, ko]
        sch.reorder(*order, ib, jo, io, ki, ii, ji)
        if c.panel is None:
            pack_panels(sch, block, c.streamed, c.vector, order[-1], width, self.lanes)
        if self.pack_rows:
            pack_panels(sch, block, c.broadcast, c.row, ib, self.rows, self.lanes)
        write = sch.get_consumers(block)[0] if ko is not None else None
        if ko is None and self.epilogue:
            write = view.epilogue
        accumulate(sch, block, io, [ii, ji], [ki], self.lanes, write)
        ask_for_panels(sch, [ki], Ahead(self.ahead, self.panel))
        # In the last blocks, tiles that are full still carry no conditions.
        lower, right = (p.rows, self.rows * self.tiles), (p.columns, width * self.panels)
        partition_tails(sch, (ib, *lower), (io, *lower), (jb, *right), (jo, *right))


def _is_plain(p: Product) -> bool:
    """Whether there are rows, columns and products along one axis each."""
    c = p.contraction
    return (
        c.row is not None
        and len(c.reduce) == 1
        and (c.streamed.is_plain or c.panel is not None)
        and c.broadcast.is_plain
    )


def _pieces(sch: Schedule, rv: Any, p: Product, step: int) -> tuple[Any, Any, Any, Any, Any]:
    """(the block that makes sums over a piece; its loops: over pieces, in a piece, over columns,
    over rows). The loop over pieces is None if there is one only. The outer loops are outermost.
    """
    (reduced,) = p.reduce
    sch.reorder(*p.outer, reduced, p.column, p.row)
    if step == p.depth:
        return rv, None, reduced, p.column, p.row
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


# -- of sizes that are known late ------------------------------------------------------------------


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
        if width > 1 and (columns is None or columns % width):
            pads[source.vector] = width
        if p.rows is None and self.pack_rows and self.rows > 1:
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
