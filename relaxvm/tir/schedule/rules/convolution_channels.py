"""Convolutions whose weights are constants: vectors lie along the channels of the output.

    C[n, o, h, w] += X[n, c, h * 2 + r, w * 2 + s] * W[o // 16, c, r, s, o % 16]

    for n, block of rows:
        panel = X[n, :, rows of the block, :]   padded
        for oo:                                 panels of weights
            for run:                            as many tiles as the first cache keeps the sums of
                for po:                         tiles of pixels
                    acc[pixels, vectors] = 0
                    for c, r, s: acc += panel[one number for each pixel] * W[oo, c, r, s, vectors]
                    T[pixels, channels] = acc
                C[channels, pixels of the run] = T, turned round

Weights are brought into panels when the program is built (`channel_layout`). A step reads a run of
them, and of the input one number for each pixel, wherever that is: neither strides nor widths
that vectors do not divide cost anything. Where height and width are known, tiles take pixels of a
block one after the other, over the ends of rows; else the width is padded to whole tiles.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from ....base import CpuModel
from ....ir import Var, is_const
from ...index_map import IndexMap
from ...transform import PARTITION_HINT
from ..schedule import Schedule
from .constants import ConstantLayout
from .contraction import tile_shape, variables_of
from .convolution_shape import Convolution, block_of, match_convolution
from .convolution_work import Sizes, Work, extent_of_dimension, sizes_of
from .panels import ahead_of, ask_for_panels
from .queries import extent_of, loops_inside, loops_of

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
_MOST_UNROLLED = 9 * 32
_SYMBOLIC_ROWS = 4
# Rows of an input that are copied at once, and pixels of one that are copied by straight code where
# each would need divisions to be found.
_ROWS_AT_ONCE = 16
_MOST_WRITTEN_OUT = 256


def channel_layout(sch: Schedule, rv: Any, cpu: CpuModel) -> ConstantLayout | None:
    """The layout of the weight of the convolution in block `rv` for tiles of channels; None if
    there is none, or others serve it better.
    """
    c = match_convolution(sch.get(rv))
    sizes = None if c is None else sizes_of(sch, rv, c)
    if c is None or sizes is None or c.panel is not None or sizes.steps < _LEAST_STEPS:
        return None
    places = [k for k, i in enumerate(c.weight_indices) if i is c.channel]
    plain = all(isinstance(i, Var) for i in c.weight_indices)
    lanes = cpu.lanes(sch.get(rv).writes[0].buffer.dtype.bits)
    if c.depthwise or not plain or len(places) != 1 or not _pays(sizes, lanes):
        return None
    shape = _tile(sizes, lanes, cpu)
    if shape is None or str(c.weight.dtype) != str(sch.get(rv).writes[0].buffer.dtype):
        return None
    width, place = shape[1] * lanes, places[0]

    def panel(*indices: Any) -> list[Any]:
        others = [e for k, e in enumerate(indices) if k != place]
        return [indices[place] // width, *others, indices[place] % width]

    def pack(array: np.ndarray) -> np.ndarray:
        split = (*array.shape[:place], -1, width, *array.shape[place + 1 :])
        return np.moveaxis(array.reshape(split), (place, place + 1), (0, -1))

    ndim, dtype = len(c.weight_indices), str(c.channel.dtype)
    index_map = IndexMap.from_func(panel, ndim=ndim, index_dtype=dtype)
    return ConstantLayout(c.weight, index_map, pack)


def _pays(sizes: Sizes, lanes: int) -> bool:
    """Whether sums are long enough, and other tiles would be no better: those of many pixels lie
    along them in whole vectors.
    """
    if sizes.depth * sizes.taps < (_LEAST_TERMS if lanes >= 16 else _LEAST_TERMS_NARROW):
        return False
    pixels = sizes.height * sizes.width
    return sizes.taps > 1 or not sizes.known or pixels <= _MOST_PIXELS_OF_1X1


def _tile(sizes: Sizes, lanes: int, cpu: CpuModel) -> tuple[int, int] | None:
    """(pixels, vectors) of a tile; None if vectors do not divide the channels of a group."""
    widths = [n for n in _VECTORS if sizes.channels % (n * lanes) == 0]
    if not widths or lanes < 4:
        return None
    pixels = sizes.height * sizes.width if sizes.known else None
    return tile_shape(pixels, sizes.channels, lanes, cpu.vector_registers, widths)


def kept_panel(sch: Schedule, rv: Any, c: Convolution, cpu: CpuModel) -> int | None:
    """The channels of a panel that the weight is kept in, of which all may be one: then its number
    does not stand in an index any more. None if it is not kept so.
    """
    if c.panel is not None or c.group_size is not None:
        return c.panel
    first, *_, last = c.weight_indices
    count = extent_of_dimension(c.weight, -1)
    lanes = cpu.lanes(sch.get(rv).writes[0].buffer.dtype.bits)
    one = is_const(first, 0) and last is c.channel and extent_of_dimension(c.weight, 0) == 1
    return count if one and count in [n * lanes for n in _VECTORS] else None


def schedule_channels(
    sch: Schedule, rv: Any, c: Convolution, sizes: Sizes, cpu: CpuModel
) -> list[Any]:
    """Schedule a convolution whose weights are kept in panels; returns the blocks before and after
    it that went along.
    """
    return _Channels(sch, rv, c, sizes, cpu).run()


class _Channels(Work):
    """The scheduling of one convolution with vectors along the channels."""

    def __init__(self, sch: Schedule, rv: Any, c: Convolution, sizes: Sizes, cpu: CpuModel) -> None:
        super().__init__(sch, rv, c, sizes, cpu)
        panel = kept_panel(sch, rv, c, cpu)
        assert panel is not None
        self.width = panel
        vectors = [panel // self.lanes]
        pixels = sizes.height * sizes.width if sizes.known else None
        self.pixels, _ = tile_shape(pixels, panel, self.lanes, cpu.vector_registers, vectors)

        loops = loops_of(sch, rv) or {}
        one = {c.height, c.width, c.channel, *c.reduce}
        self.shared = self.share([x for v, x in loops.items() if v not in one])

    def run(self) -> list[Any]:
        sch, rv, sizes = self.sch, self.rv, self.sizes
        after = self.epilogue()
        if not sizes.known:
            whole = {self.c.height: self._rows(), self.c.width: self.pixels}
            sch.pad_einsum(rv, [whole.get(a.var, 1) for a in sch.get(rv).iter_vars])
            after = self.joined(next(b for b in sch.get_consumers(rv)), after)
        if self._is_flat():
            panel, before = self._pixel_panels()
        else:
            panel, before = self.input_block(inline=not sizes.known)
        write = self._turned_round(after)
        if self._is_flat():
            # Only now that pixels are an axis, of which a tile is a part.
            self._in_tiles(panel)
        self._tile_loops(panel, before, write)
        return [*before, *([] if after is None else [after])]

    def _is_flat(self) -> bool:
        """Whether every element of the input is read for one pixel only."""
        sizes = self.sizes
        return sizes.taps == 1 and sizes.known and self.c.height is not None

    def _pixel_panels(self) -> tuple[Any, list[Any]]:
        """A copy of such an input, [reduced axes, pixel]: (its block, the blocks in it)."""
        sch, rv, c, sizes = self.sch, self.rv, self.c, self.sizes
        _, gone = self.input_block(inline=False)
        axes = [a.var for a in sch.get(rv).iter_vars]
        used = [v for v in axes if v in variables_of(c.indices)]
        kept = [v for v in used if v not in (c.height, c.width)]

        def pixels(over: list[Var], *indices: Any) -> list[Any]:
            by_axis = dict(zip(over, indices))
            assert c.height is not None
            return [*(by_axis[v] for v in kept), by_axis[c.height] * sizes.width + by_axis[c.width]]

        number = [r.buffer for r in sch.get(rv).reads].index(self.data())
        of_all, of_used = (self._map(partial(pixels, a), len(a)) for a in (axes, used))
        panel = sch.reindex_cache_read(rv, number, "global", of_all)
        for each in gone:
            sch.compute_inline(each)
        sch.transform_block_layout(panel, of_used)
        return panel, gone

    def _in_tiles(self, panel: Any) -> None:
        """Keep an input [reduced axes, pixel] so that each tile reads one run."""

        def tiles(*indices: Any) -> list[Any]:
            *others, pixel = indices
            return [pixel // self.pixels, *others, pixel % self.pixels]

        ndim = self.sch.get(panel).writes[0].buffer.ndim
        self.sch.transform_layout(panel, ("write", 0), self._map(tiles, ndim))

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
            if count % step:
                sch.annotate(tile, PARTITION_HINT, True)
        elif count <= _MOST_WRITTEN_OUT:
            sch.unroll(pixel)

    def _rows(self) -> int:
        """The rows of a block: what fits the second cache with the weights of a tile."""
        c, sizes = self.c, self.sizes
        if c.height is None:
            return 1
        if self._is_flat():
            return sizes.height
        across = extent_of_dimension(c.data, -1) or sizes.width
        row = sizes.depth * across * self.bytes * c.strides[1]
        most = self.cpu.l2_bytes / (2 if self.much_weight() else 4) / row
        if not sizes.known:
            return block_of(_SYMBOLIC_ROWS, 1, most)
        return block_of(sizes.height, 1, most, self.shared)

    def _run(self) -> int:
        """How many pixels of a block to turn round at once: so many whole tiles that their sums
        stay in the first cache, or all of the block.
        """
        step, width = self.pixels, self.sizes.width
        pixels = self._rows() * width
        # Whole rows, or parts of one: that different pixels are different elements must be seen.
        fits = [
            n
            for n in range(step, pixels + 1, step)
            if pixels % n == 0 and (n % width == 0 or width % n == 0)
        ]
        return max([n for n in fits if n <= self._near()] or fits[:1] or [pixels])

    def _near(self) -> float:
        """Of how many pixels the first cache keeps the sums."""
        return self.cpu.l1_bytes / _PART_OF_L1 / (self.width * self.bytes)

    # -- axes --------------------------------------------------------------------------------------

    def _turned_round(self, after: Any) -> Any:
        """Let the convolution write [..., panel, block, pixel, channel], and number its iterations
        so; the block that reads that and writes the result.
        """
        sch, rv, c = self.sch, self.rv, self.c
        axes = [a.var for a in sch.get(rv).iter_vars]
        ndim = len(axes)
        self.batch = [v for v in axes if v not in (c.height, c.width, c.channel, *c.reduce)]
        written = [v for v in axes if v not in c.reduce]

        def kept(*indices: Any) -> list[Any]:
            return self._axes(dict(zip(axes, indices)), channel_last=True)

        def iterations(*indices: Any) -> list[Any]:
            by_axis = dict(zip(axes, indices))
            return [*self._axes(by_axis, channel_last=True), *(by_axis[v] for v in c.reduce)]

        def copied(*indices: Any) -> list[Any]:
            return self._axes(dict(zip(written, indices)), channel_last=False)

        write = sch.reindex_cache_write(rv, 0, "global", self._map(kept, ndim))
        sch.transform_block_layout(rv, self._map(iterations, ndim))
        if after is not None:
            sch.compute_inline(write)
            write = after
        sch.transform_block_layout(write, self._map(copied, len(written)))
        return write

    def _map(self, f: Any, ndim: int) -> IndexMap:
        dtype = str(self.c.width.dtype)
        return IndexMap.from_func(f, ndim=ndim, index_dtype=dtype)

    def _axes(self, by_axis: dict[Any, Any], channel_last: bool) -> list[Any]:
        """What an element's axes become: [batch, panel] and [block, pixel in it] or [row, column],
        and its channel in the panel, behind the latter or in front of them.
        """
        c, sizes, channel = self.c, self.sizes, by_axis[self.c.channel]
        pixels = [by_axis[c.width]]
        if sizes.known and c.height is not None:
            rows = self._rows()
            pixels = [
                by_axis[c.height] // rows,
                by_axis[c.height] % rows * sizes.width + by_axis[c.width],
            ]
        elif c.height is not None:
            pixels = [by_axis[c.height], by_axis[c.width]]
        if sizes.known:
            run = self._run()
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
            block, row = sch.split(blocks.pop(), [None, self._rows()])
            blocks, loops = [block], [row, *loops]
        outer = self.in_order(batch, [], blocks)
        count = len(c.reduce)
        reduce, (*rows, pixel, channel) = loops[-count:], loops[:-count]
        po, pi = sch.split(pixel, [None, self.pixels])
        over, lane = sch.split(channel, [None, self.lanes])
        sch.reorder(*outer, oo, *rows, po, *reduce, pi, over, lane)
        if panel is not None and outer:
            sch.compute_at(panel, outer[-1])
            if self._is_flat() and not before:
                self._fill(panel, outer[-1])
        home = rows[-1] if sizes.known else oo
        sch.reverse_compute_at(write, home)
        if sizes.known and self._run() % self.lanes < 2 and self._run() <= self._near() / 2:
            self.turn_round(write, home)
        self.finish_copy(write, home)
        sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, po)
        self.sum_in_tile(reduce[0], 3)
        self.write_tile(sums, po, self.lanes)
        if sizes.taps == 1 or not sizes.known or sizes.width % self.pixels:
            # Within a row, taps share what they read: straight code of several keeps it in
            # registers, of which none are left.
            self.unroll_taps(reduce, _MOST_UNROLLED // (self.pixels * self.width // self.lanes))
        ask_for_panels(sch, reduce, ahead_of(c.weight, self.cpu))
        if sizes.known and self._rows() * sizes.width % self.pixels:
            sch.annotate(po, PARTITION_HINT, True)
        self.join(outer)
