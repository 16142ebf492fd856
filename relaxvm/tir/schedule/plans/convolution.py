"""Convolutions: sums over windows, computed in tiles of channels x rows x vectors along the width.

    C[n, o, h, w] += X[n, c, h * 2 + r, w * 2 + s] * W[o, c, r, s]

    for n, ho:                                  blocks of rows
        panel = X[n, :, rows of the block, :]   padded; columns sorted by w % stride
        for oo:                                 tiles of output channels
            for hi, wo:                         tiles of rows and of vectors
                acc[channels, rows, vectors] = 0
                for c, r, s: acc += W * panel
                C[tile] = acc

A panel fits the second cache. It is where padding is computed, where a stride in the width becomes
a stride of one, and where rows are padded so that vectors divide them: the loops over tiles have no
conditions, and load vectors from where they begin. A convolution whose input needs none of that
reads it in place.

Height and width that are known only when the kernel runs are padded to whole tiles in the panel.
Where every element of the input is read for one pixel only, pixels are one row (`AlongPixels`);
where weights are in panels of channels, vectors lie along those (`convolution_channels.py`).

Depthwise convolutions (a weight belongs to one channel of the output, a channel of the output to
one of the input) are the case without a row axis: tiles are rows x vectors of one channel, and all
taps are unrolled, so that neighbouring rows share what they load.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from ....base import CpuModel, record
from ...transform.rewriter import constant
from .contraction import in_registers, partition_tails
from .convolution_work import Work, demand_of, much_weight, share_of, to_tile, wrong_tile_of
from .cost import Cost, predict, rates_of
from .matches import Sizes, Tile, block_of, rests_cost, tile_of, tiles_cost
from .plan import InTiles, Plan
from .queries import calls_of, extent_of, loops_inside
from .view import View

_MOST_TAPS = 32
_MOST_ROLLED = 8
_MOST_ROWS_AT_ONCE = 8
_LEAST_CHANNELS = 24
# What a core reads from its second cache while it multiplies.
_L2_BYTES_A_CYCLE = 24
# Of an image whose size is not known: rows of a block, which the height is padded to.
_SYMBOLIC_ROWS = 8
_COPIES = 4  # channels that take as long as a copy of their pixels


@record
class AlongWidth(InTiles):
    """Tiles of `channels` x `rows` x (`vectors` x `lanes`) along the width.

    block   rows of the result for which the input is brought into a panel
    groups  of channels whose panels are made at once, where those are whole images
    taps    that are written out
    apart   whether what alone reads the sums goes over whole rows, behind the tiles of a block
    joined  whether all blocks are one loop, for threads to share
    """

    channels: int
    block: int
    groups: int = 1
    taps: int = _MOST_ROLLED
    apart: bool = False
    joined: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> AlongWidth | None:
        tiled = to_tile(view, cpu)
        if tiled is None or _is_flat(view, _LEAST_CHANNELS):
            return None
        c, sizes, lanes, size = tiled
        even = c.group_size is not None  # groups that begin in the middle of a tile would share it
        # Of unknown sizes tiles are two rows of one vector: few of those are in vain.
        sides = (sizes.height, sizes.width) if sizes.known else (8 if c.depthwise else 2, lanes)
        t = tile_of(sizes.channels, *sides, lanes, cpu.vector_registers, even=even)
        after = view.pointwise
        short = sizes.known and sizes.width <= cpu.line_bytes // size
        # Calls have full vectors where rows are one run.
        apart = bool(short and sizes.width % t.lanes and after and calls_of(view.sch.get(after)))
        taps = _MOST_TAPS if c.depthwise else _MOST_ROLLED
        joined = sizes.known and cpu.cores > 1
        plan = cls(t.rows, t.vectors, t.lanes, t.channels, 1, 1, taps, apart, joined)
        # How many rows of the result to compute from one panel. Weights that no cache of a core
        # keeps are read once more for each block.
        across = constant(c.data.shape[-1]) or sizes.width
        room = cpu.l1_bytes if c.depthwise else cpu.l2_bytes
        part = 2 if much_weight(sizes, size, cpu) else 4
        most = room / part / (sizes.depth * across * size * c.strides[1])
        if c.height is None:
            return plan
        if not sizes.known:
            return replace(plan, block=block_of(_SYMBOLIC_ROWS, t.rows, most))
        times = sizes.images * (1 if c.group_size is None else sizes.groups)
        high, _ = plan._padded_sides(sizes)
        block = block_of(high, t.rows, most, share_of(sizes, times, size, cpu))
        # Where a panel is a whole image, several: what was just stored in other pieces is slow to
        # load.
        share = share_of(sizes, sizes.images, size, cpu)
        groups = block_of(sizes.groups, 1, most / max(1, sizes.height), share)
        return replace(plan, block=block, groups=groups if c.group_size and block == high else 1)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        sizes: Any = view.sizes
        rows, vectors = (1, 2, 3, 4, 6, 8), (1, 2, 3, 4)
        tiles: Any = self.varied(channels=range(1, 9), rows=rows, vectors=vectors)
        for tile in tiles:
            if (tile.channels + 1) * tile.rows * tile.vectors < cpu.vector_registers:
                high, _ = tile._padded_sides(sizes)
                halves = {block_of(high, tile.rows, high / n) for n in (1, 2, 4, 8)}
                yield from tile.varied(block=sorted({self.block, *halves}))

    def wrong(self, view: View) -> str | None:
        c, s = view.convolution, view.sizes
        many = 1 << 30  # what is not known when the plan is made is padded to whole tiles
        sides = (0, 0, 0) if s is None else (s.channels, s.height, -(-s.width // self.lanes))
        if s is not None and not s.known:
            sides = (s.channels, many, many)
        named = zip(
            ("channels", "rows", "vectors"), (self.channels, self.rows, self.vectors), sides
        )
        if reason := wrong_tile_of(view, *named):
            return reason
        assert c is not None
        assert s is not None
        if self.lanes > 1 << (s.width - 1).bit_length() and s.known:
            return f"vectors of {self.lanes} lanes, and the width is {s.width}"
        if c.group_size is not None and s.channels % self.channels:
            return f"tiles of {self.channels} channels, and groups of {s.channels}: some share one"
        high, _ = self._padded_sides(s)
        high = high if s.known else _SYMBOLIC_ROWS
        if self.block != high and (self.block % self.rows or high % self.block):
            return f"blocks of {self.block} rows are no whole tiles of {self.rows}, or leave a rest"
        if s.groups % self.groups:
            return f"panels of {self.groups} groups at once, and there are {s.groups}"
        if self.apart and (view.pointwise is None or not self._is_ragged(s)):
            return "nothing is computed of rows that are copied from padded ones"
        return None

    def _is_ragged(self, sizes: Sizes) -> bool:
        return not sizes.known or sizes.width % self.lanes != 0

    def _padded_sides(self, sizes: Sizes) -> tuple[int, int]:
        """(rows, vectors along the width) of the result, with what tiles compute in vain."""
        high, along = sizes.height, -(-sizes.width // self.lanes)
        if self._is_ragged(sizes):
            high, along = (-(-n // m) * m for n, m in ((high, self.rows), (along, self.vectors)))
        return high, along

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        s: Any = view.sizes
        high, along = self._padded_sides(s)
        tile = self.channels, self.rows, self.vectors
        out = view.block.writes[0].buffer.dtype
        rates = rates_of(cpu, self.lanes, out.bits)
        # Of neighbouring taps but one begins where a line does.
        lines = 1.0 if s.taps == 1 else 1.0 + self.lanes * out.itemsize / cpu.line_bytes
        if view.convolution is not None and view.convolution.depthwise:
            # Rows share what they load; sums are so short that the next ones begin meanwhile.
            high_taps = math.isqrt(s.taps)
            lines *= (self.rows + high_taps - 1) / (self.rows * high_taps)
            rates = replace(rates, latency=1.0)
        padded = self._is_ragged(s)
        step = tiles_cost(s.channels, high, along, tile, padded, rates=rates, lines=lines)
        step *= rests_cost(high, along, self.rows, self.vectors, padded)
        vain = 1 - s.height * s.width / (high * along * self.lanes)
        tiles = -(-s.channels // self.channels)
        return predict(demand_of(view, step, self.block, tiles, cpu, vain), cpu)

    def apply(self, view: View) -> None:
        work = _Convolve(view, self, self.joined)
        sch, rv, sizes, after = view.sch, view.rv, work.sizes, view.pointwise
        ragged, write = self._is_ragged(sizes), after
        if ragged:
            rows = self.rows if sizes.known else self.block
            write = work.cropped({work.c.height: rows, work.c.width: self.vectors * self.lanes})
            if after is not None and not self.apart:
                sch.compute_inline(write)
                write = after
        panel = work.panel(ragged)
        if not ragged and after is None:
            write = sch.cache_write(rv, 0, "local")
        elif not ragged:
            sch.set_scope(rv, 0, "local")
        work.tile(self, panel, write, after, ragged)


class _Convolve(Work):
    """The scheduling of one convolution with vectors along the width."""

    def panel(self, ragged: bool) -> Any:
        """The block that computes what the convolution reads; None if that is an input."""
        sch, rv, stride = self.sch, self.rv, self.c.strides[0]
        if not self.sizes.known and stride != 1:
            self._whole_phases()
        panel, _ = self.input_block(inline=ragged)
        if panel is None and stride != 1:
            data = self.data()
            reads = [r.buffer for r in sch.get(rv).reads]
            panel = sch.cache_read(rv, reads.index(data), "global")
        if panel is not None and stride != 1:

            def by_phase(*indices: Any) -> list[Any]:
                return [*indices[:-1], indices[-1] % stride, indices[-1] // stride]

            index_map = self.index_map(by_phase, self.c.data.ndim)
            sch.transform_layout(panel, ("write", 0), index_map)
        return panel

    def _whole_phases(self) -> None:
        """Let an input that is copied for its padding have as many columns of each phase: so the
        copy fills all of it.
        """
        sch, columns = self.sch, [1] * (self.data().ndim - 1) + [self.c.strides[0]]
        for copy in self.inputs():
            padded = sch.get(copy)
            sch.pad_einsum(copy, columns)
            if sch.get(copy) is padded:
                continue
            for each in (*sch.get_consumers(copy), *sch.get_producers(copy)):
                sch.compute_inline(each)

    def tile(self, t: AlongWidth, panel: Any, write: Any, after: Any, ragged: bool) -> None:
        sch, rv, c, sizes = self.sch, self.rv, self.c, self.sizes
        loops: Any = View(sch, rv).by_axis
        high, along = t._padded_sides(sizes)
        height = sch.add_unit_loop(rv) if c.height is None else loops[c.height]
        batch = [x for v, x in loops.items() if v not in (c.width, c.height, c.channel, *c.reduce)]
        groups: list[Any] = []
        blocks: list[Any] = []
        channel = loops[c.channel]
        if c.group_size is not None:
            group, channel = sch.split(channel, [None, c.group_size])
            groups.append(group)
        if t.block < high or not sizes.known or not batch + groups:
            ho, hi, hv = sch.split(height, [None, t.block // t.rows, t.rows])
            blocks.append(ho)
        else:
            hi, hv = sch.split(height, [None, t.rows])
        several: list[Any] = []
        if panel is not None and groups and not blocks and sizes.known:
            group, few = sch.split(groups[0], [None, t.groups])
            groups, several = [group], [few]
        outer = self.in_order(batch, groups, blocks)
        vector, lane = sch.split(loops[c.width], [None, t.lanes])
        wo, wv = sch.split(vector, [None, t.vectors])
        oo, oi = sch.split(channel, [None, t.channels])
        reduce = [loops[v] for v in c.reduce]
        sch.reorder(*outer, *several, oo, hi, wo, *reduce, oi, hv, wv, lane)
        if panel is not None:
            sch.compute_at(panel, outer[-1])
            self._spread(panel)
        sums = write
        if ragged:
            sch.reverse_compute_at(write, oo)
            self.finish_copy(write, oo, sizes.known, after)
            if sizes.known:
                self._write_rows_out(after or write, oo)
            sums = sch.cache_write(rv, 0, "local")
        self.sum_in_tile(wo, reduce[0], 4, sums)
        self.unroll_taps(reduce, t.taps)
        rows, vectors = (hi, high, t.rows), (wo, along, t.vectors)
        partition_tails(sch, (oo, sizes.channels, t.channels), rows, vectors)
        self.join(outer)

    def _write_rows_out(self, copy: Any, loop: Any) -> None:
        """Let a loop over short rows, each a vector, write several in one iteration."""
        sch = self.sch
        *rows, last = loops_inside(sch, copy, loop)
        count = extent_of(sch, rows[-1]) if rows else None
        if count is None or not self.is_short(last):
            return
        few = next(n for n in range(_MOST_ROWS_AT_ONCE, 0, -1) if count % n == 0)
        sch.unroll(sch.split(rows[-1], [None, few])[1])

    def _spread(self, panel: Any) -> None:
        """Let the innermost loop of a panel sorted by phases write neighbours."""
        sch, stride = self.sch, self.c.strides[0]
        if stride == 1:
            return
        last = list(sch.get_loops(panel))[-1]
        column, phase = sch.split(last, [None, stride])
        sch.reorder(phase, column)


# -- all pixels in one row -------------------------------------------------------------------------


def _is_flat(view: View, channels: int = 1) -> bool:
    """Whether every element of the input is read for one pixel only, for so many channels."""
    c, sizes = view.convolution, view.sizes
    return (
        c is not None
        and sizes is not None
        and sizes.taps == 1
        and sizes.known
        and c.group_size is None
        and c.height is not None
        and c.height is view.block.writes[0].region[-2].min
        and sizes.channels >= channels
    )


@record
class AlongPixels(InTiles):
    """Tiles of `rows` channels x (`vectors` x `lanes`) pixels: the product of the weights and a
    matrix [reduced axes, pixels].

    block   tiles of pixels for which the weights are read once; 0: all channels of one tile of
            pixels come after each other, and the weights stay near
    parts   of the channels that are computed apart, each from a copy of the pixels of its own
    joined  whether all blocks are one loop, for threads to share
    """

    block: int = 0
    parts: int = 0
    joined: bool = False

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> AlongPixels | None:
        tiled = to_tile(view, cpu)
        if tiled is None or not _is_flat(view, _LEAST_CHANNELS):
            return None
        _, sizes, lanes, size = tiled
        pixels, vector = sizes.height * sizes.width, lanes * size
        near = int(cpu.l1_bytes / 2 / (sizes.depth * vector))
        far = (near, vector / _L2_BYTES_A_CYCLE)
        t = tile_of(sizes.channels, 1, pixels, lanes, cpu.vector_registers, far=far)
        across, half = t.vectors * t.lanes, cpu.l2_bytes // 2
        block = parts = 0
        if sizes.depth * sizes.channels * size <= half:
            # The weights stay in the second cache, one tile of pixels in the first.
            parts = _parts_of(sizes, t, cpu)
        else:
            # The weights are read once for as many pixels as the second cache holds.
            block, ragged = -(-pixels // across), -(-pixels // t.lanes) % t.vectors > 0
            one = sizes.depth * across * size
            if not ragged:
                block = block_of(block, 1, half / one, share_of(sizes, sizes.images, size, cpu))
        return cls(t.channels, t.vectors, t.lanes, block, parts, cpu.cores > 1)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        sizes: Any = view.sizes
        for vectors, rows in in_registers(cpu, range(1, 9), most_rows=8):
            count = -(-sizes.height * sizes.width // (vectors * self.lanes))
            # Of blocks that do not divide the pixels, tiles would ask in each step where those end.
            ragged = -(-sizes.height * sizes.width // self.lanes) % vectors
            halves = (block_of(count, 1, count / n) for n in ((1,) if ragged else (1, 2, 4, 8)))
            for block in sorted({0, *halves}):
                yield replace(self, rows=rows, vectors=vectors, block=block, parts=0)

    def wrong(self, view: View) -> str | None:
        s = view.sizes
        count = 0 if s is None else -(-s.height * s.width // self.lanes)
        channels = 0 if s is None else s.channels
        rows, vectors = ("channels", self.rows, channels), ("vectors", self.vectors, count)
        if reason := wrong_tile_of(view, rows, vectors):
            return reason
        if not _is_flat(view):
            return "its input's elements are read for several pixels, or channels are in groups"
        tiles = -(-count // self.vectors)
        if self.block > tiles:
            return f"blocks of {self.block} tiles of pixels, and there are {tiles}"
        if self.parts > 1 and (self.block or self.parts > -(-channels // self.rows)):
            return f"{self.parts} parts of the channels, and tiles of {self.rows} of {channels}"
        return None

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        s: Any = view.sizes
        along = -(-s.height * s.width // self.lanes)
        out = view.block.writes[0].buffer.dtype
        vector, rates = self.lanes * out.itemsize, rates_of(cpu, self.lanes, out.bits)
        far = (int(cpu.l1_bytes / 2 / (s.depth * vector)), vector / rates.l2)
        tile = self.rows, 1, self.vectors
        step = tiles_cost(s.channels, 1, along, tile, False, far, rates)
        block = max(1, -(-s.height * self.vectors * max(1, self.block) // along))
        vain = 1 - s.height * s.width / (along * self.lanes)
        tiles = -(-s.channels // self.rows)
        return predict(demand_of(view, step, block, tiles, cpu, vain), cpu)

    def apply(self, view: View) -> None:
        work = Work(view, self, self.joined)
        sch, rv, c, sizes, after = view.sch, view.rv, work.c, work.sizes, view.pointwise
        pixels = sizes.height * sizes.width
        axes = [a.var for a in view.block.iter_vars]
        batch = c.batch(axes)
        before, flat = work.inputs(), work.by_pixel
        reads = [r.buffer for r in sch.get(rv).reads]
        of_data = flat(axes, [*batch, *c.reduce])
        panel = sch.reindex_cache_read(rv, reads.index(c.data), "global", of_data)
        for each in before:
            sch.compute_inline(each)
        out = sch.reindex_cache_write(rv, 0, "global", flat(axes, [*batch, c.channel]))
        sch.transform_block_layout(rv, flat(axes, [*batch, c.channel, *c.reduce]))
        used = [v for v in axes if v is not c.channel]
        sch.transform_block_layout(panel, flat(used, [*batch, *c.reduce]))
        if after is not None:
            sch.compute_inline(out)
        write = out if after is None else after
        if pixels % self.lanes:
            sch.pad_einsum(rv, [1] * (len(batch) + 1 + len(c.reduce)) + [self.lanes])
            padded = next(b for b in sch.get_producers(rv))
            sch.compute_inline(panel)
            panel = padded
            for b in sch.get_consumers(rv):
                sch.compute_inline(b)
        written = [*batch, c.channel, c.height, c.width]
        sch.transform_block_layout(write, flat(written, [*batch, c.channel]))
        self._tile(work, panel, bool(before), write, len(batch))

    def _tile(self, work: Work, panel: Any, computed: bool, write: Any, batches: int) -> None:
        sch, rv, sizes, lanes = work.sch, work.rv, work.sizes, self.lanes
        pixels = sizes.height * sizes.width

        def by_tile(*indices: Any) -> list[Any]:
            *others, pixel = indices
            tile = pixel // self.width
            return [*others[:batches], tile, *others[batches:], pixel % self.width]

        ndim = batches + 1 + len(work.c.reduce)
        sch.transform_layout(panel, ("write", 0), work.index_map(by_tile, ndim))
        *loops, pixel = sch.get_loops(rv)
        outer, channel, reduce = loops[:batches], loops[batches], loops[batches + 1 :]
        vector, lane = sch.split(pixel, [None, lanes])
        ft, fv = sch.split(vector, [None, self.vectors])
        oo, oi = sch.split(channel, [None, self.rows])
        along = -(-pixels // lanes)
        if not self.block:
            if self.parts > 1:
                part, oo = sch.split(oo, [self.parts, None])
                outer.append(part)
            sch.reorder(*outer, ft, oo, *reduce, oi, fv, lane)
            block = copied = ft
            inner = oo
        else:
            fb, ft = sch.split(ft, [None, self.block])
            sch.reorder(*outer, fb, oo, ft, *reduce, oi, fv, lane)
            block, copied, inner = fb, oo, ft
        sch.compute_at(panel, block)
        if pixels % lanes == 0:
            if not computed:
                over, run = sch.split(sch.get_loops(panel)[-1], [None, lanes])
                work.finish([over], run)
            sch.set_scope(rv, 0, "local")
            sums = write
        else:
            sch.reverse_compute_at(write, copied)
            sums = sch.cache_write(rv, 0, "local")
        work.sum_in_tile(inner, reduce[0], 3, sums)
        partition_tails(sch, (oo, sizes.channels, self.rows), (ft, along, self.vectors))
        if along % self.vectors == 0:
            work.join([*outer, block])


def _parts_of(sizes: Sizes, t: Tile, cpu: CpuModel) -> int:
    """How many parts of the channels to compute apart: as many as there are threads where those,
    given tiles of pixels (the last one maybe a part of one), would wait for each other longer than
    the copies take; else 0.
    """
    tiles = -(-sizes.height * sizes.width // t.lanes) / t.vectors
    blocks = -(-sizes.channels // t.channels)
    longest = -(-sizes.images * math.ceil(tiles) // cpu.cores)
    waited = 1 - sizes.images * tiles / (longest * cpu.cores)
    pays = waited > 0.05 + _COPIES * cpu.cores / sizes.channels
    return cpu.cores if cpu.cores > 1 and blocks % cpu.cores == 0 and pays else 0
