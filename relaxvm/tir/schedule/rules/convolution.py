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
Weights that are kept in panels of channels have tiles of their own (`convolution_channels.py`).

Depthwise convolutions (a weight belongs to one channel of the output, a channel of the output to
one of the input) are the case without a row axis: tiles are rows x vectors of one channel, and all
taps are unrolled, so that neighbouring rows share what they load.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import CpuModel
from ....ir import Var
from ...index_map import IndexMap
from ...transform import PARTITION_HINT
from ..schedule import Schedule
from .convolution_channels import kept_panel, schedule_channels
from .convolution_shape import Convolution, Tile, block_of, match_convolution, tile_of
from .convolution_work import Sizes, Work, extent_of_dimension, sizes_of
from .queries import loops_of

_MOST_TAPS = 32
_MOST_ROLLED = 8
_LEAST_STEPS = 1 << 12
_LEAST_CHANNELS = 24
# What a core reads from its second cache while it multiplies.
_L2_BYTES_A_CYCLE = 24
# Of an image whose size is not known: rows of a block, which the height is padded to.
_SYMBOLIC_ROWS = 8


# -- scheduling ------------------------------------------------------------------------------------


def schedule_convolutions(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Tile the first convolution among `blocks`; returns the blocks that are taken care of."""
    for rv in blocks:
        conv = match_convolution(sch.get(rv))
        if conv is not None:
            sizes = sizes_of(sch, rv, conv)
            if sizes is not None and sizes.steps >= _LEAST_STEPS and _pays(conv, sizes):
                if kept_panel(sch, rv, conv, cpu) is not None:
                    return [rv, *schedule_channels(sch, rv, conv, sizes, cpu)]
                work = _Convolve(sch, rv, conv, sizes, cpu)
                return [rv, *(work.run_flat() if work.is_flat() else work.run())]
    return ()


def _pays(c: Convolution, sizes: Sizes) -> bool:
    """Whether tiles are worth their panels: of an image whose size is not known, columns sorted by
    phases cost more than the few sums of a depthwise convolution.
    """
    return sizes.known or not c.depthwise or c.strides[0] == 1


class _Convolve(Work):
    """The scheduling of one convolution with vectors along the width."""

    def __init__(self, sch: Schedule, rv: Any, c: Convolution, sizes: Sizes, cpu: CpuModel) -> None:
        super().__init__(sch, rv, c, sizes, cpu)
        even = c.group_size is not None  # groups that begin in the middle of a tile would share it
        # Of unknown sizes tiles are two rows of one vector: few of those are in vain.
        sides = (
            (sizes.height, sizes.width) if sizes.known else (8 if c.depthwise else 2, self.lanes)
        )
        self.tile = tile_of(sizes.channels, *sides, self.lanes, cpu.vector_registers, even=even)
        self.ragged = not sizes.known or sizes.width % self.tile.lanes != 0

    def run(self) -> list[Any]:
        """Schedule it; returns the blocks before and after it that went along."""
        sch, rv = self.sch, self.rv
        after = self.epilogue()
        if self.ragged:
            t, c = self.tile, self.c
            rows = t.rows if self.sizes.known else self._rows([])
            whole = {c.height: rows, c.width: t.vectors * t.lanes}
            sch.pad_einsum(rv, [whole.get(a.var, 1) for a in sch.get(rv).iter_vars])
            written = next(b for b in sch.get_consumers(rv))
            write = self.joined(written, after)
        panel, before = self._panel()
        if not self.ragged and after is None:
            write = sch.cache_write(rv, 0, "local")
        elif not self.ragged:
            write = after
            sch.set_scope(rv, 0, "local")
        self._tile(panel, write, after)
        return [*before, *([] if after is None else [after])]

    # -- all pixels in one row ---------------------------------------------------------------------

    def is_flat(self) -> bool:
        """Whether every element of the input is read for one pixel only."""
        c, sizes = self.c, self.sizes
        written = self.sch.get(self.rv).writes[0].region
        return (
            sizes.taps == 1
            and sizes.known
            and c.group_size is None
            and c.height is not None
            and c.height is written[-2].min
            and sizes.channels >= _LEAST_CHANNELS
        )

    def run_flat(self) -> list[Any]:
        """Schedule it as the product of the weights and a matrix [reduced axes, pixels]."""
        sch, rv, c, sizes = self.sch, self.rv, self.c, self.sizes
        pixels = sizes.height * sizes.width
        vector = self.lanes * self.bytes
        near = int(self.cpu.l1_bytes / 2 / (sizes.depth * vector))
        far = (near, vector / _L2_BYTES_A_CYCLE)
        t = tile_of(sizes.channels, 1, pixels, self.lanes, self.cpu.vector_registers, far=far)
        axes = [a.var for a in sch.get(rv).iter_vars]
        batch = [v for v in axes if v not in (c.height, c.width, c.channel, *c.reduce)]
        after = self.epilogue()
        before = [b for b in sch.get_producers(rv) if self.makes_input(b)]
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
        self._tile_flat(panel, before, write, t, len(batch))
        return [*before, *([] if after is None else [after])]

    def _tile_flat(self, panel: Any, before: list[Any], write: Any, t: Tile, batches: int) -> None:
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
            shares = self.shares_of_channels(outer, -(-pixels // t.lanes) / t.vectors, t.channels)
            if shares > 1:
                part, oo = sch.split(oo, [shares, None])
                outer.append(part)
            sch.reorder(*outer, ft, oo, *reduce, oi, fv, lane)
            block = copied = ft
            inner = oo
        else:
            # The weights are read once for as many pixels as the second cache holds.
            count = -(-pixels // across)
            share = self.share(outer)
            size = count if ragged else block_of(count, 1, half / one, share)
            fb, ft = sch.split(ft, [None, size])
            sch.reorder(*outer, fb, oo, ft, *reduce, oi, fv, lane)
            block, copied, inner = fb, oo, ft
        sch.compute_at(panel, block)
        exact = pixels % t.lanes == 0
        if exact:
            if not before:
                over, run = sch.split(sch.get_loops(panel)[-1], [None, t.lanes])
                self.finish([over], run)
            sch.set_scope(rv, 0, "local")
            sums = write
        else:
            sch.reverse_compute_at(write, copied)
            sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, inner)
        self.sum_in_tile(reduce[0], 3)
        self.write_tile(sums, inner, t.lanes)
        if sizes.channels % t.channels:
            sch.annotate(oo, PARTITION_HINT, True)
        if ragged:
            sch.annotate(ft, PARTITION_HINT, True)
        else:
            self.join([*outer, block])

    def _three(self, loops: list[Any], batches: int) -> list[Any]:
        """The loops of a flat convolution: those of the batch, the channel, [reduced], pixels."""
        return [*loops[:batches], loops[batches], loops[batches + 1 : -1], loops[-1]]

    # -- what comes before and after ---------------------------------------------------------------

    def _panel(self) -> tuple[Any, list[Any]]:
        """(the block that computes what the convolution reads, None if it reads its input in place;
        the blocks that vanished in it)
        """
        sch, rv = self.sch, self.rv
        if not self.sizes.known and self.c.strides[0] != 1:
            self._whole_phases()
        panel, before = self.input_block(inline=self.ragged)
        if panel is None and self.c.strides[0] != 1:
            data = self.data()
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

    def _whole_phases(self) -> None:
        """Let the padded input have as many columns of each phase: so the copy fills all of it."""
        sch = self.sch
        (copy,) = (b for b in sch.get_producers(self.rv) if self.makes_input(b))
        ndim = self.data().ndim
        sch.pad_einsum(copy, [1] * (ndim - 1) + [self.c.strides[0]])
        for each in (*sch.get_consumers(copy), *sch.get_producers(copy)):
            sch.compute_inline(each)

    # -- loops -------------------------------------------------------------------------------------

    def _tile(self, panel: Any, write: Any, after: Any) -> None:
        sch, rv, c, t, sizes = self.sch, self.rv, self.c, self.tile, self.sizes
        loops = loops_of(sch, rv)
        assert loops is not None
        high, along = self._padded_sides()
        height = sch.add_unit_loop(rv) if c.height is None else loops[c.height]
        batch = [x for v, x in loops.items() if v not in (c.width, c.height, c.channel, *c.reduce)]
        groups: list[Any] = []
        blocks: list[Any] = []
        channel = loops[c.channel]
        if c.group_size is not None:
            group, channel = sch.split(channel, [None, c.group_size])
            groups.append(group)
        rows = self._rows([*batch, *groups])
        if rows < high or not sizes.known or not batch + groups:
            ho, hi, hv = sch.split(height, [None, rows // t.rows, t.rows])
            blocks.append(ho)
        else:
            hi, hv = sch.split(height, [None, t.rows])
        several: list[Any] = []
        if panel is not None and groups and not blocks and sizes.known:
            group, few = sch.split(groups[0], [None, self._groups(batch)])
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
        if self.ragged:
            sch.reverse_compute_at(write, oo)
            self.finish_copy(write, oo, after)
            sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, wo)
        self.sum_in_tile(reduce[0], 4)
        self.write_tile(sums, wo, t.lanes)
        self.unroll_taps(reduce, _MOST_TAPS if c.depthwise else _MOST_ROLLED)
        for loop, total, size in (
            (oo, sizes.channels, t.channels),
            (hi, high, t.rows),
            (wo, along, t.vectors),
        ):
            if total % size:
                # Full tiles get a loop of their own, in which no condition is left.
                sch.annotate(loop, PARTITION_HINT, True)
        self.join(outer)

    def _padded_sides(self) -> tuple[int, int]:
        """(rows, vectors along the width) of the result, with what tiles compute in vain."""
        t, sizes = self.tile, self.sizes
        high, along = sizes.height, -(-sizes.width // t.lanes)
        if self.ragged:
            high, along = (-(-n // m) * m for n, m in ((high, t.rows), (along, t.vectors)))
        return high, along

    def _rows(self, outer: Sequence[Any]) -> int:
        """The rows of a block."""
        if self.c.height is None:
            return 1
        if not self.sizes.known:
            return block_of(_SYMBOLIC_ROWS, self.tile.rows, self._most_rows())
        high, _ = self._padded_sides()
        return block_of(high, self.tile.rows, self._most_rows(), self.share(outer))

    def _groups(self, outer: Sequence[Any]) -> int:
        """The groups to copy panels of at once, where a panel is a whole image: several, as what
        was just stored in other pieces is slow to load.
        """
        count = self._most_rows() / max(1, self.sizes.height)
        return block_of(self.sizes.groups, 1, count, self.share(outer))

    def _most_rows(self) -> float:
        """How many rows of the result to compute from one panel."""
        c, sizes = self.c, self.sizes
        across = extent_of_dimension(c.data, -1) or sizes.width
        room = self.cpu.l1_bytes if c.depthwise else self.cpu.l2_bytes
        # Weights that no cache of a core keeps are read once more for each block.
        part = 2 if self.much_weight() else 4
        return room / part / (sizes.depth * across * self.bytes * c.strides[1])

    def _spread(self, panel: Any) -> None:
        """Let the innermost loop of a panel sorted by phases write neighbours."""
        sch, stride = self.sch, self.c.strides[0]
        if stride == 1:
            return
        last = list(sch.get_loops(panel))[-1]
        column, phase = sch.split(last, [None, stride])
        sch.reorder(phase, column)


class _Flat:
    """Index maps that put height and width into one axis of pixels, the last one."""

    def __init__(self, axes: Sequence[Var], c: Convolution, width: int) -> None:
        self.c, self.width = c, width

    def map(self, axes: Sequence[Any], kept: Sequence[Any]) -> IndexMap:
        """axes -> (those of them that are kept, pixel)"""

        def index(*indices: Any) -> list[Any]:
            by_axis = dict(zip(axes, indices))
            return [
                *(by_axis[v] for v in kept),
                by_axis[self.c.height] * self.width + by_axis[self.c.width],
            ]

        dtype = str(self.c.width.dtype)
        index_map: IndexMap = IndexMap.from_func(index, ndim=len(axes), index_dtype=dtype)
        return index_map
