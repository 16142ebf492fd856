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

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....base import CpuModel, record
from ..schedule import Schedule
from .contraction import Product, accumulate, partition_tails
from .cost import Cost, Demand, predict
from .panels import Ahead, ask_for_panels, pack_panels
from .plan import InTiles, Plan
from .tile import Tile, demand_of_tiles, wrong_tile
from .view import View

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
