"""Convolutions whose weights are constants: vectors lie along the channels of the output.

    C[n, o, h, w] += X[n, c, h * 2 + r, w * 2 + s] * W[o // 16, c, r, s, o % 16]

    for n, part of the channels, block of rows:
        panel = X[n, :, rows of the block, :]   padded, or tile by tile
        for oo:                                 panels of weights
            for run:                            as many tiles as the first cache keeps the sums of
                for po:                         tiles of pixels
                    acc[pixels, vectors] = 0
                    for c, r, s: acc += panel[one number for each pixel] * W[oo, c, r, s, vectors]
                    T[pixels, channels] = acc
                C[channels, pixels of the run] = T, turned round

Constant weights are brought into panels when the program is built (`channel_layout`), others by a
copy before the loops if a plan says so. A step reads a run of them, and of the input one number for
each pixel, wherever that is: neither strides nor widths that vectors do not divide cost anything.
Where height and width are known, tiles take pixels of a block one after the other, over the ends of
rows; else the width is padded to whole tiles.

Threads share blocks, parts of the channels, or what is in a block. A line of memory that several of
them read is dear to write the next time, so each makes the panels that it reads, and pixels of 1x1
stay where they are if tiles read few more lines there: by what that is predicted to cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ....base import CpuModel, record
from ....ir import Var, is_const
from ...transform.rewriter import constant
from ..schedule import Schedule
from .constants import ConstantLayout
from .contraction import in_registers, partition_tails, strips_cost, tile_shape, variables_of
from .convolution_work import Work, demand_of, is_given, to_tile, wrong_tile_of
from .cost import Cost, predict, rates_of
from .matches import Sizes, block_of
from .movement import squares_of
from .panels import Ahead, Operand, ahead_of, ask_for_panels, constant_panels, pack_panels
from .plan import InTiles, Plan
from .queries import extent_of, loops_inside
from .view import View

_LEAST_STEPS = 1 << 14
# Turning the sums round costs some 16 steps, and twice that in vectors of 256 bits; of shorter sums
# that is too much.
_LEAST_TERMS, _LEAST_TERMS_NARROW = 144, 256
_MOST_PIXELS_OF_1X1 = 400
# Of a tile along the channels.
_VECTORS = (1, 2, 3, 4)
# Of the first cache for sums that are to be turned round.
_PART_OF_L1 = 3
# Steps of a tile that are written out, in multiplications: loops cost, and so does code.
_MOST_UNROLLED = 3 * 32
_SYMBOLIC_ROWS = 4
# Rows of an input that are copied at once, and pixels of one that are copied by straight code where
# each would need divisions to be found.
_ROWS_AT_ONCE = 16
_MOST_WRITTEN_OUT = 256


@record
class AlongChannels(InTiles):
    """Tiles of `rows` pixels x (`vectors` x `lanes`) channels.

    block    rows of the result for which the input is brought into a panel
    run      pixels of a block whose sums are turned round at once; 0: a row of unknown length
    squares  side of the squares that are turned round in registers; 0: none are
    line     side of a tile of such squares
    taps     that are written out
    ahead    how far, in elements, weights are asked for before they are read
    panel    the size of a panel whose reading asks for the next one; 0: it does not
    pack     whether the weight is copied into panels
    joined   whether all blocks are one loop, for threads to share
    parts    of the channels, each of which makes panels of the input of its own; 0: they share them
    placed   whether pixels are read where they are, and not brought into the order of tiles
    """

    block: int
    run: int = 0
    squares: int = 0
    line: int = 0
    taps: int = 0
    ahead: int = 0
    panel: int = 0
    pack: bool = False
    joined: bool = False
    parts: int = 0
    placed: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> AlongChannels | None:
        return None if kept_panel(view) is None else cls.fitting(view, cpu)

    @classmethod
    def fitting(cls, view: View, cpu: CpuModel) -> AlongChannels | None:
        tiled, panel = to_tile(view, cpu), kept_panel(view)
        if tiled is None:
            return None
        c, sizes, lanes, _ = tiled
        widths = _widths(sizes, lanes) if panel is None else [panel // lanes]
        if not widths or (panel is not None and panel != widths[0] * lanes):
            return None
        if panel is not None and c.panel is None and widths[0] not in _VECTORS:
            return None
        if panel is None and not _can_be_packed(view):
            return None
        pixels = sizes.height * sizes.width if sizes.known else None
        registers, channels = cpu.vector_registers, panel or sizes.channels
        height, vectors = tile_shape(pixels, channels, lanes, registers, tuple(widths))
        plan = cls(height, vectors, lanes, 1, pack=panel is None)
        ahead = Ahead() if plan.pack else ahead_of(c.weight, cpu)
        joined = sizes.known and cpu.cores > 1
        plan = replace(plan, ahead=ahead.elements, panel=ahead.panel, joined=joined)
        return min(plan._ways(view, cpu), key=lambda p: p.cost(view, cpu).seconds)

    def _ways(self, view: View, cpu: CpuModel) -> Iterable[AlongChannels]:
        """The same tiles with other blocks, and other ways for threads to come by the input."""
        c, s = _parts_of(view)
        if not s.known:
            rows = (1,) if c.height is None else (1, 2, _SYMBOLIC_ROWS)
            yield from (self._with_block(view, block, cpu) for block in rows)
            return
        tiles, halves = s.channels // self.width, range(int(s.height).bit_length())
        parts = [n for n in range(cpu.cores, tiles + 1) if tiles % n == 0 and cpu.cores > 1]
        for block in sorted({block_of(s.height, 1, s.height >> k) for k in halves}):
            plan = self._with_block(view, block, cpu)
            yield plan
            if parts and block == s.height:
                yield replace(plan, parts=parts[0])
            if _is_flat(view) and is_given(view):
                yield replace(plan, placed=True)

    def _with_block(self, view: View, block: int, cpu: CpuModel) -> AlongChannels:
        """The same with so many rows in a block, and what follows from that."""
        c, sizes = _parts_of(view)
        width, taps = sizes.width, 0
        step = min(self.rows, block * width) if sizes.known else self.rows
        if sizes.taps == 1 or not sizes.known or width % step:
            # Within a row, taps share what they read: straight code of several keeps it in
            # registers, of which none are left.
            taps = _MOST_UNROLLED // (step * self.vectors)
        if not sizes.known:
            return replace(self, block=block, taps=taps)
        # So many whole tiles that their sums stay in the first cache, or all of the block. Whole
        # rows, or parts of one: that different pixels are different elements must be seen.
        near = cpu.l1_bytes / _PART_OF_L1 / (self.width * (c.data.dtype.bits // 8))
        pixels = block * width
        fits = [n for n in range(step, pixels + 1, step) if _is_run(n, pixels, width)]
        run = max([n for n in fits if n <= near] or fits[:1] or [pixels])
        squares = 0
        if run >= self.lanes and run <= near * 3 / 4:
            squares, _ = squares_of(view.block.writes[0].buffer, cpu)
        own = replace(self, rows=step, block=block, run=run, taps=taps, parts=0, placed=False)
        # One at a time: all that they touch is in the first cache.
        return replace(own, squares=squares, line=squares)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        for vectors, rows in in_registers(cpu, _VECTORS if self.pack else (self.vectors,)):
            for plan in replace(self, rows=rows, vectors=vectors)._ways(view, cpu):
                yield from (plan, replace(plan, squares=0, line=0))

    def wrong(self, view: View) -> str | None:
        s, kept = view.sizes, kept_panel(view)
        pixels = s.height * s.width if s is not None and s.known else 1 << 30
        sides = ("pixels", self.rows, pixels), ("channels", self.width, s.channels if s else 0)
        if reason := wrong_tile_of(view, *sides):
            return reason
        c, s = _parts_of(view)
        if self.pack and not _can_be_packed(view):
            return "its weight cannot be packed: it is in panels already, or written by the block"
        if not self.pack and kept is None:
            return "its weight is in no panels of channels: it has to be packed"
        if self.width != (kept or self.width) or s.channels % self.width:
            return f"tiles of {self.width} channels, and panels of {kept} of {s.channels}"
        if self.parts and (not s.known or s.channels // self.width % self.parts):
            return f"{self.parts} parts of {s.channels} channels in tiles of {self.width}"
        if self.placed and (self.parts or not _is_flat(view) or not is_given(view)):
            return "an input that is padded, computed or copied for parts cannot stay in place"
        if not s.known:
            return (
                "pixels of a row of unknown length are turned round as they are"
                * (self.run + self.squares > 0)
                or None
            )
        whole = 1 if c.height is None else s.height
        if whole % self.block:
            return f"blocks of {self.block} rows leave a rest of {whole}"
        pixels = self.block * s.width
        if not self.run or not (self.run == pixels or _is_run(self.run, pixels, s.width)):
            return f"runs of {self.run} pixels are no parts or multiples of rows of {s.width}"
        side = self.squares
        if side and (side == 1 or side & (side - 1) or not self.line or self.line % side):
            return f"squares of {side} in tiles of {self.line}: wanted powers of two from 2 on"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        c, s = _parts_of(view)
        out, flat = view.block.writes[0].buffer.dtype, _is_flat(view)
        pixels = self.block * s.width
        tiles, strips = s.channels // self.width, -(-pixels // self.rows)
        rates, blocks = rates_of(cpu, self.lanes, out.bits), s.height / self.block
        step = strips_cost(pixels, self.rows, self.vectors, rates) * tiles * blocks
        # Sums are turned round: by squares, or one by one, each from a line of its own.
        near = self.run * self.vectors * self.lanes * out.itemsize <= cpu.l1_bytes
        turns = 4 if self.squares else 12 if near else 48
        turns *= s.channels * s.height * s.width / self.lanes
        # Each channel of a panel is a stream of its own.
        moved = self.width / 10 * s.channels * s.depth * s.taps if self.pack else 0.0
        times, size = s.images * s.groups, c.data.dtype.itemsize
        extra = times * turns + moved * s.groups
        copies = 0 if self.placed else self.parts or (1 if flat else None)
        parts = tiles * (pixels // self.run) if self.placed else self.parts
        d = demand_of(view, step, self.block, tiles, cpu, 0.0, extra, copies, parts)
        # Each tile of pixels reads the weights of a tile of channels, and its pixels.
        weights, traffic = s.depth * s.taps * self.width * size, d.traffic
        if self.placed:
            # Lines of the cache that hold pixels of a tile, of each channel.
            rows = -(-self.rows // s.width) if c.strides[0] > 1 else 1
            lines = rows + (self.rows - rows) * c.strides[0] * size / cpu.line_bytes
            reads = s.depth * lines * cpu.line_bytes
            whole = traffic[0][1] if weights + reads > cpu.l1_bytes else 0.0
            traffic = (traffic[0], (times * blocks * tiles * strips * reads, whole), *traffic[2:])
        again = times * blocks * tiles * (strips - 1) * weights
        return predict(d._replace(traffic=(*traffic, (again, weights))), cpu)

    def apply(self, view: View) -> None:
        if self.pack:
            c, _ = _parts_of(view)
            weight = Operand(c.weight, c.weight_indices)
            pack_panels(view.sch, view.rv, weight, c.channel, None, self.width, self.lanes)
            view = View(view.sch, view.rv)
        _Channels(view, self).run()


def _parts_of(view: View) -> tuple[Any, Any]:
    """The convolution and its sizes."""
    return view.convolution, view.sizes


def _is_run(count: int, pixels: int, width: int) -> bool:
    return pixels % count == 0 and (count % width == 0 or width % count == 0)


def _can_be_packed(view: View) -> bool:
    """Whether the weight can be copied into panels of channels."""
    c: Any = view.convolution
    places = [k for k, i in enumerate(c.weight_indices) if i is c.channel]
    plain = all(isinstance(i, Var) for i in c.weight_indices)
    written = c.weight is view.block.writes[0].buffer
    return (
        not c.depthwise and plain and len(places) == 1 and kept_panel(view) is None and not written
    )


def channel_layout(sch: Schedule, rv: Any, cpu: CpuModel) -> ConstantLayout | None:
    """The layout of the weight of the convolution in block `rv` for tiles of channels; None if
    there is none, or others serve it better.
    """
    view = View(sch, rv)
    c, sizes = view.convolution, view.sizes
    if c is None or sizes is None or sizes.steps < _LEAST_STEPS or not _can_be_packed(view):
        return None
    out = view.block.writes[0].buffer.dtype
    lanes = cpu.lanes(out.bits)
    widths = _widths(sizes, lanes)
    if not widths or not _pays(sizes, lanes) or str(c.weight.dtype) != str(out):
        return None
    pixels = sizes.height * sizes.width if sizes.known else None
    _, vectors = tile_shape(pixels, sizes.channels, lanes, cpu.vector_registers, tuple(widths))
    return constant_panels(Operand(c.weight, c.weight_indices), c.channel, vectors * lanes)


def _pays(sizes: Sizes, lanes: int) -> bool:
    """Whether sums are long enough, and other tiles would be no better: those of many pixels lie
    along them in whole vectors.
    """
    if sizes.depth * sizes.taps < (_LEAST_TERMS if lanes >= 16 else _LEAST_TERMS_NARROW):
        return False
    pixels = sizes.height * sizes.width
    return sizes.taps > 1 or not sizes.known or pixels <= _MOST_PIXELS_OF_1X1


def _widths(sizes: Sizes, lanes: int) -> list[int]:
    """The numbers of vectors that divide the channels of a group."""
    return [n for n in _VECTORS if lanes >= 4 and sizes.channels % (n * lanes) == 0]


def kept_panel(view: View) -> int | None:
    """The channels of a panel that the weight is kept in, of which all may be one: then its number
    does not stand in an index any more. None if it is not kept so.
    """
    c = view.convolution
    if c is None or c.panel is not None or c.group_size is not None:
        return None if c is None else c.panel
    first, *_, last = c.weight_indices
    one = is_const(first, 0) and last is c.channel and constant(c.weight.shape[0]) == 1
    return constant(c.weight.shape[-1]) if one else None


def _is_flat(view: View) -> bool:
    """Whether every element of the input is read for one pixel only."""
    c, sizes = _parts_of(view)
    return sizes.taps == 1 and sizes.known and c.height is not None


class _Channels(Work):
    """The scheduling of one convolution with vectors along the channels."""

    def __init__(self, view: View, plan: AlongChannels) -> None:
        super().__init__(view, plan, plan.joined)
        self.plan, self.flat = plan, _is_flat(view)
        self.width, self.pixels = plan.width, plan.rows

    def run(self) -> None:
        sch, sizes = self.sch, self.sizes
        after = self.view.pointwise
        if not sizes.known:
            crop = self.cropped({self.c.height: self.plan.block, self.c.width: self.pixels})
            if after is None:
                after = crop
            else:
                sch.compute_inline(crop)
        panel, before = None, list[Any]()
        if not self.plan.placed:
            inline = not sizes.known
            panel, before = self._pixel_panels() if self.flat else self.input_block(inline)
        write = self._turned_round(after)
        if self.flat and panel is not None:
            # Only now that pixels are an axis, of which a tile is a part.
            self._in_tiles(panel)
        self._tile_loops(panel, before, write)

    def _pixel_panels(self) -> tuple[Any, list[Any]]:
        """A copy of such an input, [reduced axes, pixel]: (its block, the blocks in it)."""
        sch, rv, c = self.sch, self.rv, self.c
        _, gone = self.input_block(inline=False)
        axes = [a.var for a in sch.get(rv).iter_vars]
        used = [v for v in axes if v in variables_of(c.indices)]
        kept = [v for v in used if v not in (c.height, c.width)]
        number = [r.buffer for r in sch.get(rv).reads].index(self.data())
        panel = sch.reindex_cache_read(rv, number, "global", self.by_pixel(axes, kept))
        for each in gone:
            sch.compute_inline(each)
        sch.transform_block_layout(panel, self.by_pixel(used, kept))
        return panel, gone

    def _in_tiles(self, panel: Any) -> None:
        """Keep an input [reduced axes, pixel] so that each tile of a block reads one run."""
        block = self.plan.block * self.sizes.width

        def tiles(*indices: Any) -> list[Any]:
            *others, pixel = indices
            tile = pixel % block // self.pixels
            return [pixel // block, tile, *others, pixel % block % self.pixels]

        ndim = self.sch.get(panel).writes[0].buffer.ndim
        self.sch.transform_layout(panel, ("write", 0), self.index_map(tiles, ndim))

    def _fill(self, panel: Any, loop: Any) -> None:
        """Copy runs of pixels as vectors; of several rows of the input before the next tile, so
        that both are read and written in runs.
        """
        sch, sizes, step = self.sch, self.sizes, self.pixels
        loops = loops_inside(sch, panel, loop)
        if len(loops) < 2:
            return
        *_, depth, pixel = loops
        count = extent_of(sch, pixel) or 0
        if self.c.strides == (1, 1) or sizes.width % step == 0:
            first, few = sch.split(depth, [None, _ROWS_AT_ONCE])
            tile, run = sch.split(pixel, [None, step])
            sch.reorder(first, tile, few, run)
            sch.vectorize(run)
            partition_tails(sch, (tile, count, step))
        elif count <= _MOST_WRITTEN_OUT:
            sch.unroll(pixel)

    # -- axes --------------------------------------------------------------------------------------

    def _turned_round(self, after: Any) -> Any:
        """Let the convolution write [..., panel, block, pixel, channel], and number its iterations
        so; the block that reads that and writes the result.
        """
        self.batch = self.c.batch([a.var for a in self.sch.get(self.rv).iter_vars])
        first, last = (partial(self._axes, channel_last=last) for last in (False, True))
        return self.keep_as(last, first, self.c.reduce, after)

    def _axes(self, by_axis: Mapping[Any, Any], channel_last: bool) -> list[Any]:
        """What an element's axes become: [batch, panel] and [block, pixel in it] or [row, column],
        and its channel in the panel, behind the latter or in front of them.
        """
        c, sizes, channel = self.c, self.sizes, by_axis[self.c.channel]
        pixels = [by_axis[c.width]]
        if sizes.known and c.height is not None:
            rows = self.plan.block
            pixels = [
                by_axis[c.height] // rows,
                by_axis[c.height] % rows * sizes.width + by_axis[c.width],
            ]
        elif c.height is not None:
            pixels = [by_axis[c.height], by_axis[c.width]]
        if sizes.known:
            run = self.plan.run
            pixels[-1:] = [pixels[-1] // run, pixels[-1] % run]
        first = [*(by_axis[v] for v in self.batch), channel // self.width]
        last = [channel % self.width]
        return [*first, *pixels, *last] if channel_last else [*first, *last, *pixels]

    # -- loops -------------------------------------------------------------------------------------

    def _tile_loops(self, panel: Any, before: list[Any], write: Any) -> None:
        sch, rv, c, sizes = self.sch, self.rv, self.c, self.sizes
        loops = list(sch.get_loops(rv))
        batch, loops = loops[: len(self.batch)], loops[len(self.batch) :]
        oo = loops.pop(0)
        blocks = [] if c.height is None else [loops.pop(0)]
        if blocks and not sizes.known:
            block, row = sch.split(blocks.pop(), [None, self.plan.block])
            blocks, loops = [block], [row, *loops]
        *parts, oo = sch.split(oo, [self.plan.parts, None]) if self.plan.parts else (oo,)
        outer = self.in_order(batch, parts, blocks)
        count = len(c.reduce)
        reduce, (*rows, pixel, channel) = loops[-count:], loops[:-count]
        po, pi = sch.split(pixel, [None, self.pixels])
        over, lane = sch.split(channel, [None, self.lanes])
        sch.reorder(*outer, oo, *rows, po, *reduce, pi, over, lane)
        if panel is not None and outer:
            sch.compute_at(panel, outer[-1])
            if self.flat and not before:
                self._fill(panel, outer[-1])
        home = rows[-1] if sizes.known else oo
        sch.reverse_compute_at(write, home)
        if self.plan.squares:
            self.turn_round(write, home, self.plan.squares, self.plan.line)
        self.finish_copy(write, home, sizes.known, runs=self.plan.squares > 0)
        self.sum_in_tile(po, reduce[0], 3, sch.cache_write(rv, 0, "local"))
        self.unroll_taps(reduce, self.plan.taps)
        ask_for_panels(sch, reduce, Ahead(self.plan.ahead, self.plan.panel))
        if sizes.known:
            partition_tails(sch, (po, self.plan.block * sizes.width, self.pixels))
        self.join(outer)
