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

Depthwise convolutions (a weight belongs to one channel of the output, a channel of the output to
one of the input) are the case without a row axis: tiles are rows x vectors of one channel, and all
taps are unrolled, so that neighbouring rows share what they load.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....base import CpuModel, ScheduleError
from ....ir import IntImm, PrimExpr, Var, walk
from ...stmt import Block, Buffer, BufferLoad, BufferStore
from ...transform import PARTITION_HINT
from ..facts import facts_of
from ..index_map import IndexMap
from ..regions import users_of
from ..schedule import Schedule
from .contraction import extent_of, loops_of, unroll_short
from .convolution_shape import Convolution, Tile, block_of, match_convolution, tile_of

__all__ = ["schedule_convolutions"]

_MOST_TAPS = 32
_MOST_ROLLED = 8
_LEAST_STEPS = 1 << 12
_LEAST_CHANNELS = 24
_MOST_LANES_OF_A_COPY = 64


# -- scheduling ------------------------------------------------------------------------------------


def schedule_convolutions(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Tile the first convolution among `blocks`; returns the blocks that are taken care of."""
    for rv in blocks:
        found = match_convolution(sch.get(rv))
        if found is not None:
            sizes = _sizes(sch, rv, found)
            if sizes is not None and sizes.steps >= _LEAST_STEPS:
                work = _Convolve(sch, rv, found, sizes, cpu)
                return [rv, *(work.run_flat() if work.is_flat() else work.run())]
    return ()


@dataclass(frozen=True)
class _Sizes:
    """Extents: of the axes of a convolution; the channels are those of one group.

    depth  how many input channels (or whatever is reduced without being a tap)
    """

    channels: int
    groups: int
    height: int
    width: int
    depth: int
    taps: int

    @property
    def steps(self) -> int:
        pixels = self.height * self.width
        return self.channels * self.groups * pixels * self.depth * self.taps


def _sizes(sch: Schedule, rv: Any, c: Convolution) -> _Sizes | None:
    loops = loops_of(sch, rv)
    if loops is None:
        return None
    extents = {v: extent_of(sch, loop) for v, loop in loops.items()}
    height = 1 if c.height is None else extents[c.height]
    channels, width = extents[c.channel], extents[c.width]
    reduce = [extents[v] for v in c.reduce]
    if height is None or channels is None or width is None or any(e is None for e in reduce):
        return None
    taps = math.prod(extents[v] or 0 for v in c.taps)
    depth = math.prod(extents[v] or 0 for v in c.reduce if v not in c.taps)
    if width < 2 or 0 in (height, channels, taps, depth):
        return None
    if c.group_size is not None and channels % c.group_size:
        return None
    own = c.group_size or channels
    return _Sizes(own, channels // own, height, width, depth, taps)


class _Convolve:
    """The scheduling of one convolution."""

    def __init__(
        self, sch: Schedule, rv: Any, c: Convolution, sizes: _Sizes, cpu: CpuModel
    ) -> None:
        self.sch, self.rv, self.c, self.sizes, self.cpu = sch, rv, c, sizes, cpu
        block: Block = sch.get(rv)
        self.lanes = cpu.lanes(block.writes[0].buffer.dtype.bits)
        # Groups that begin in the middle of a tile would share it.
        self.tile = tile_of(
            sizes.channels,
            sizes.height,
            sizes.width,
            self.lanes,
            cpu.vector_registers,
            even=c.group_size is not None,
        )
        self.ragged = sizes.width % self.tile.lanes != 0
        self.bytes = c.data.dtype.bits // 8

    def run(self) -> list[Any]:
        """Schedule it; returns the blocks before and after it that went along."""
        sch, rv = self.sch, self.rv
        after = self._epilogue()
        if self.ragged:
            t, c = self.tile, self.c
            whole = {c.height: t.rows, c.width: t.vectors * t.lanes}
            sch.pad_einsum(rv, [whole.get(a.var, 1) for a in sch.get(rv).iter_vars])
            written = next(b for b in sch.get_consumers(rv))
            after = self._joined(written, after)
        panel, before = self._panel()
        if after is None:
            write = sch.cache_write(rv, 0, "local")
        else:
            write = after
            if not self.ragged:
                sch.set_scope(rv, 0, "local")
        self._tile(panel, write)
        return [*before, *([] if after is None else [after])]

    # -- all pixels in one row ---------------------------------------------------------------------

    def is_flat(self) -> bool:
        """Whether every element of the input is read for one pixel only."""
        c, sizes = self.c, self.sizes
        written = self.sch.get(self.rv).writes[0].region
        return (
            sizes.taps == 1
            and c.group_size is None
            and c.height is not None
            and c.height is written[-2].min
            and sizes.channels >= _LEAST_CHANNELS
        )

    def run_flat(self) -> list[Any]:
        """Schedule it as the product of the weights and a matrix [reduced axes, pixels]."""
        sch, rv, c, sizes = self.sch, self.rv, self.c, self.sizes
        pixels = sizes.height * sizes.width
        t = tile_of(sizes.channels, 1, pixels, self.lanes, self.cpu.vector_registers)
        axes = [a.var for a in sch.get(rv).iter_vars]
        batch = [v for v in axes if v not in (c.height, c.width, c.channel, *c.reduce)]
        after = self._epilogue()
        before = [b for b in sch.get_producers(rv) if self._makes_input(b)]
        flat = _Flat(axes, c, sizes.width)
        reads = [r.buffer for r in sch.get(rv).reads]
        panel = sch.reindex_cache_read(
            rv, reads.index(c.data), "global", flat.map(axes, [*batch, *c.reduce])
        )
        for each in before:
            sch.compute_inline(each)
        out = sch.reindex_cache_write(rv, 0, "global", flat.map(axes, [*batch, c.channel]))
        sch.transform_block_layout(rv, flat.map(axes, [*batch, c.channel, *c.reduce]))
        used = [v for v in axes if v is not c.channel]
        sch.transform_block_layout(panel, flat.map(used, [*batch, *c.reduce]))
        if after is not None:
            sch.compute_inline(out)
        write = out if after is None else after
        count = len(batch) + 2
        if pixels % t.lanes:
            sch.pad_einsum(rv, [1] * (count - 1 + len(c.reduce)) + [t.lanes])
            padded = next(b for b in sch.get_producers(rv))
            sch.compute_inline(panel)
            panel = padded
            for b in sch.get_consumers(rv):
                sch.compute_inline(b)
        written = [*batch, c.channel, c.height, c.width]
        sch.transform_block_layout(write, flat.map(written, [*batch, c.channel]))
        self._tile_flat(panel, write, t, len(batch))
        return [*before, *([] if after is None else [after])]

    def _tile_flat(self, panel: Any, write: Any, t: Tile, batches: int) -> None:
        sch, rv, sizes = self.sch, self.rv, self.sizes
        pixels = sizes.height * sizes.width
        across = t.vectors * t.lanes

        def by_tile(*indices: Any) -> list[Any]:
            return [
                *indices[:batches],
                indices[-1] // across,
                *indices[batches:-1],
                indices[-1] % across,
            ]

        ndim = batches + 1 + len(self.c.reduce)
        tiles = IndexMap.from_func(by_tile, ndim=ndim, index_dtype=str(self.c.width.dtype))
        sch.transform_layout(panel, ("write", 0), tiles)
        *outer, channel, reduce, pixel = self._three(list(sch.get_loops(rv)), batches)
        vector, lane = sch.split(pixel, [None, t.lanes])
        ft, fv = sch.split(vector, [None, t.vectors])
        oo, oi = sch.split(channel, [None, t.channels])
        one = sizes.depth * across * self.bytes
        half = self.cpu.l2_bytes // 2
        ragged = -(-pixels // t.lanes) % t.vectors > 0
        if sizes.depth * sizes.channels * self.bytes <= half:
            # The weights stay in the second cache, one tile of pixels in the first.
            sch.reorder(*outer, ft, oo, *reduce, oi, fv, lane)
            block = copied = ft
            inner = oo
        else:
            # The weights are read once for as many pixels as the second cache holds.
            count = -(-pixels // across)
            share = self._share(outer)
            size = count if ragged else block_of(count, 1, half / one, share)
            fb, ft = sch.split(ft, [None, size])
            sch.reorder(*outer, fb, oo, ft, *reduce, oi, fv, lane)
            block, copied, inner = fb, oo, ft
        sch.compute_at(panel, block)
        exact = pixels % t.lanes == 0
        if exact:
            sch.set_scope(rv, 0, "local")
            sums = write
        else:
            sch.reverse_compute_at(write, copied)
            sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, inner)
        first = sch.decompose_reduction(rv, reduce[0])
        for each in (first, rv):
            *steps, last = list(sch.get_loops(each))[-3:]
            self._finish(steps, last)
        self._write_tile(sums, inner, t.lanes)
        if sizes.channels % t.channels:
            sch.annotate(oo, PARTITION_HINT, True)
        if ragged:
            sch.annotate(ft, PARTITION_HINT, True)
        else:
            self._join([*outer, block])

    def _much_weight(self) -> bool:
        """Whether the second cache is too small for the weights."""
        sizes = self.sizes
        return sizes.channels * sizes.depth * sizes.taps * self.bytes > self.cpu.l2_bytes

    def _share(self, outer: Sequence[Any]) -> int:
        """What the number of blocks of pixels should be a multiple of, for threads to share them.
        (Of much weight they share the channels.)
        """
        if self._much_weight():
            return 1
        times = math.prod(extent_of(self.sch, loop) or 1 for loop in outer)
        return 1 if times % self.cpu.cores == 0 else self.cpu.cores

    def _join(self, outer: list[Any]) -> None:
        """One loop over all blocks, for threads to share."""
        if self.cpu.cores > 1 and len(outer) > 1:
            self.sch.fuse(*outer)

    def _three(self, loops: list[Any], batches: int) -> list[Any]:
        """The loops of a flat convolution: those of the batch, the channel, [reduced], pixels."""
        return [*loops[:batches], loops[batches], loops[batches + 1 : -1], loops[-1]]

    # -- what comes before and after ---------------------------------------------------------------

    def _epilogue(self) -> Any:
        """The block that computes something of each element of the result, None if none does."""
        sch, rv = self.sch, self.rv
        consumers = sch.get_consumers(rv)
        if len(consumers) != 1 or not self._is_pointwise(consumers[0], sch.get(rv)):
            return None
        return consumers[0]

    def _is_pointwise(self, rv: Any, block: Block) -> bool:
        """Whether a block reads what `block` writes just where it writes itself."""
        reader: Block = self.sch.get(rv)
        if not isinstance(reader.body, BufferStore) or reader.init is not None:
            return False
        axes = tuple(a.var for a in reader.iter_vars)
        made = block.writes[0].buffer
        reads = [n for n in walk(reader.body) if isinstance(n, BufferLoad) and n.buffer is made]
        return (
            facts_of(self.sch.state, reader).kind == "complete"
            and _same(reader.body.indices, axes)
            and all(_same(n.indices, axes) for n in reads)
        )

    def _joined(self, written: Any, after: Any) -> Any:
        """The copy out of a padded buffer and what comes after it, as one block."""
        if after is None:
            return written
        self.sch.compute_inline(written)
        return after

    def _panel(self) -> tuple[Any, list[Any]]:
        """(the block that computes what the convolution reads, None if it reads its input in place;
        the blocks that vanished in it)
        """
        sch, rv = self.sch, self.rv
        producers = [b for b in sch.get_producers(rv) if self._makes_input(b)]
        before: list[Any] = []
        panel = None
        if producers:
            panel = producers[0]
            more = [b for b in sch.get_producers(panel) if self._only_feeds(b, panel)]
            if self.ragged and more:
                sch.compute_inline(more[0])
                before = more[:1]
            before = [*before, panel]
        elif self.c.strides[0] != 1:
            data = self._data()
            reads = [r.buffer for r in sch.get(rv).reads]
            panel = sch.cache_read(rv, reads.index(data), "global")
        if panel is not None and self.c.strides[0] != 1:
            stride = self.c.strides[0]

            def by_phase(*indices: Any) -> list[Any]:
                return [*indices[:-1], indices[-1] % stride, indices[-1] // stride]

            index_map = IndexMap.from_func(
                by_phase, ndim=self.c.data.ndim, index_dtype=str(self.c.width.dtype)
            )
            sch.transform_layout(panel, ("write", 0), index_map)
        return panel, before

    def _data(self) -> Buffer:
        """The input that the block reads now."""
        found: Convolution | None = match_convolution(self.sch.get(self.rv))
        if found is None:
            raise ScheduleError("the padded block is no convolution any more")
        return found.data

    def _makes_input(self, producer: Any) -> bool:
        block: Block = self.sch.get(producer)
        return block.writes[0].buffer is self._data() and self._only_feeds(producer, self.rv)

    def _only_feeds(self, producer: Any, reader: Any) -> bool:
        """Whether a block computes elements one by one, for `reader` alone."""
        sch = self.sch
        block: Block = sch.get(producer)
        if not isinstance(block.body, BufferStore):
            return False
        readers, writers = users_of(sch.state, block.writes[0].buffer.data)
        parameters = {b.data for b in sch.state.fn.buffers}
        return (
            facts_of(sch.state, block).kind == "complete"
            and block.writes[0].buffer.data not in parameters
            and len(writers) == 1
            and len(readers) == 1
            and readers[0] is sch.get(reader)
        )

    # -- loops -------------------------------------------------------------------------------------

    def _tile(self, panel: Any, write: Any) -> None:
        sch, rv, c, t, sizes = self.sch, self.rv, self.c, self.tile, self.sizes
        loops = loops_of(sch, rv)
        assert loops is not None
        high, along = sizes.height, -(-sizes.width // t.lanes)
        if self.ragged:
            high, along = (-(-n // m) * m for n, m in ((high, t.rows), (along, t.vectors)))
        height = sch.add_unit_loop(rv) if c.height is None else loops[c.height]
        outer = [x for v, x in loops.items() if v not in (c.width, c.height, c.channel, *c.reduce)]
        channel = loops[c.channel]
        if c.group_size is not None:
            group, channel = sch.split(channel, [None, c.group_size])
            outer.append(group)
        rows = block_of(high, t.rows, self._most_rows(), self._share(outer))
        if rows < high or not outer:
            ho, hi, hv = sch.split(height, [None, rows // t.rows, t.rows])
            outer.append(ho)
        else:
            hi, hv = sch.split(height, [None, t.rows])
        vector, lane = sch.split(loops[c.width], [None, t.lanes])
        wo, wv = sch.split(vector, [None, t.vectors])
        oo, oi = sch.split(channel, [None, t.channels])
        reduce = [loops[v] for v in c.reduce]
        sch.reorder(*outer, oo, hi, wo, *reduce, oi, hv, wv, lane)
        if panel is not None:
            sch.compute_at(panel, outer[-1])
            self._spread(panel)
        sums = write
        if self.ragged:
            sch.reverse_compute_at(write, oo)
            last = list(sch.get_loops(write))[-1]
            if (extent_of(sch, last) or 99) <= _MOST_LANES_OF_A_COPY:
                sch.vectorize(last)
            sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, wo)
        first = sch.decompose_reduction(rv, reduce[0])
        for each in (first, rv):
            *steps, last = list(sch.get_loops(each))[-4:]
            self._finish(steps, last)
        self._write_tile(sums, wo, t.lanes)
        self._unroll_taps(reduce)
        for loop, total, size in (
            (oo, sizes.channels, t.channels),
            (hi, high, t.rows),
            (wo, along, t.vectors),
        ):
            if total % size:
                # Full tiles get a loop of their own, in which no condition is left.
                sch.annotate(loop, PARTITION_HINT, True)
        self._join(outer)

    def _most_rows(self) -> float:
        """How many rows of the result to compute from one panel."""
        c, sizes = self.c, self.sizes
        across = extent_of_dimension(c.data, -1) or sizes.width
        room = self.cpu.l1_bytes if c.depthwise else self.cpu.l2_bytes
        # Weights that no cache of a core keeps are read once more for each block.
        part = 2 if self._much_weight() else 4
        return room / part / (sizes.depth * across * self.bytes * c.strides[1])

    def _spread(self, panel: Any) -> None:
        """Let the innermost loop of a panel sorted by phases write neighbours."""
        sch, stride = self.sch, self.c.strides[0]
        if stride == 1:
            return
        last = list(sch.get_loops(panel))[-1]
        column, phase = sch.split(last, [None, stride])
        sch.reorder(phase, column)

    def _write_tile(self, write: Any, at: Any, lanes: int) -> None:
        """Unroll and vectorize the loops that write the sums of a tile."""
        sch = self.sch
        loops = list(sch.get_loops(write))
        wanted = sch.get(at)
        place = next(k for k, x in enumerate(loops) if sch.get(x) is wanted)
        *steps, last = loops[place + 1 :]
        over, lane = sch.split(last, [None, lanes])
        self._finish([*steps, over], lane)

    def _finish(self, steps: Sequence[Any], lane: Any) -> None:
        self.sch.vectorize(lane)
        unroll_short(self.sch, steps)

    def _unroll_taps(self, reduce: Sequence[Any]) -> None:
        """Of a depthwise convolution all taps, of another one the innermost few."""
        taps = 1
        for loop in reversed(reduce):
            taps *= extent_of(self.sch, loop) or 99
            if taps > (_MOST_TAPS if self.c.depthwise else _MOST_ROLLED):
                break
            self.sch.unroll(loop)


class _Flat:
    """Index maps that put height and width into one axis of pixels, the last one."""

    def __init__(self, axes: Sequence[Var], c: Convolution, width: int) -> None:
        self.c, self.width = c, width

    def map(self, axes: Sequence[Any], kept: Sequence[Any]) -> IndexMap:
        """axes -> (those of them that are kept, pixel)"""

        def index(*indices: Any) -> list[Any]:
            at = dict(zip(axes, indices))
            return [*(at[v] for v in kept), at[self.c.height] * self.width + at[self.c.width]]

        dtype = str(self.c.width.dtype)
        made: IndexMap = IndexMap.from_func(index, ndim=len(axes), index_dtype=dtype)
        return made


def extent_of_dimension(buffer: Buffer, k: int) -> int | None:
    """The size of a buffer along a dimension if it is a constant."""
    size = buffer.shape[k]
    return size.value if isinstance(size, IntImm) else None


def _same(indices: Sequence[PrimExpr], axes: Sequence[Any]) -> bool:
    return len(indices) == len(axes) and all(i is a for i, a in zip(indices, axes))
