"""Convolutions of narrow integers by dot products: vectors lie along the channels of the output.

    C[n, o, h, w] += int32(X[n, c, h + r, w + s] - zx) * int32(W[o, c, r, s] - zw[o])

    X_p = X, its channels last, in the packed dtype; zero points taken off where that has room
    W_p = W in panels of channels                       (`pack_contraction`)
    for n, jo:                                          panels
        for io:                                         tiles of pixels
            acc[pixels, vectors] = 0
            for r, s, c: acc += dot(X_p[a few channels of each pixel], W_p[vectors])
            T[pixels, channels] = acc
        C[channels, pixels] = T, turned round           or what is computed of each element of it

One instruction multiplies neighbours along the reduced axis, of which an image has none: its
channels are far from each other. So both inputs are packed, and the result is turned round.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....base import CpuModel
from ....ir import Var
from ...index_map import IndexMap
from ..dot_intrins import dot_intrin
from ..packing import factors_of
from ..schedule import Schedule
from .contraction import partition_tails, tile_shape, unroll_short
from .convolution_shape import Convolution, match_convolution
from .convolution_work import Sizes, Work, sizes_of
from .low_precision import Way, finish_copy, way_of
from .queries import extent_of, loops_inside
from .transpose import Transpose
from .view import View

_LEAST_STEPS = 1 << 14
_LEAST_CHANNELS = 8


def schedule_dot_convolutions(sch: Schedule, blocks: Sequence[Any], cpu: CpuModel) -> Sequence[Any]:
    """Tile the first convolution of narrow integers among `blocks`; returns the blocks that are
    taken care of.
    """
    for rv in blocks:
        c = match_convolution(sch.get(rv))
        sizes = None if c is None or c.group_size is not None else sizes_of(sch, rv, c)
        if c is None or sizes is None or sizes.steps < _LEAST_STEPS:
            continue
        out = sch.get(rv).writes[0].buffer.dtype
        way = way_of(str(c.data.dtype), str(c.weight.dtype), str(out), cpu)
        grouped = _grouped(sch, rv, c)
        if out.is_int and way is not None and grouped is not None and _pays(sizes, cpu):
            return _Dots(sch, rv, c, sizes, cpu, way, grouped).run()
    return ()


def _pays(sizes: Sizes, cpu: CpuModel) -> bool:
    return sizes.channels >= _LEAST_CHANNELS and cpu.lanes(32) >= 4


def _grouped(sch: Schedule, rv: Any, c: Convolution) -> Var | None:
    """The reduce axis that alone indexes both inputs: the channels of the input."""
    factors = factors_of(sch.get(rv))
    if factors is None:
        return None
    alone = [v for v in c.reduce if v not in c.taps and all(f.is_alone(v) for f in factors)]
    return alone[0] if alone else None


class _Dots(Work):
    """The scheduling of one convolution."""

    def __init__(
        self,
        sch: Schedule,
        rv: Any,
        c: Convolution,
        sizes: Sizes,
        cpu: CpuModel,
        way: Way,
        grouped: Var,
    ) -> None:
        super().__init__(sch, rv, c, sizes, cpu)
        self.way, self.grouped = way, grouped
        pixels = sizes.height * sizes.width if sizes.known else None
        registers = cpu.vector_registers - way.spare
        self.height, self.vectors = tile_shape(pixels, sizes.channels, self.lanes, registers)

    def run(self) -> list[Any]:
        """Schedule it; returns the blocks before and after it that went along."""
        sch, rv, way = self.sch, self.rv, self.way
        after = self.epilogue()
        before = [b for b in sch.get_producers(rv) if self.makes_input(b)]
        write = self._channels_last(after)
        spatial = len(self.batch) + len(self.pixels)
        reduce = [v for v in self.c.reduce if v is not self.grouped]
        copy, streamed, *others = sch.pack_contraction(
            rv,
            [spatial, spatial + 1 + len(reduce)],
            way.group,
            [self.vectors, self.lanes],
            [way.broadcast, way.streamed],
        )
        sch.compute_inline(copy)
        for each in before:
            sch.compute_inline(each)
        self._panels_first(streamed)
        if others and self.sizes.depth >= _LEAST_CHANNELS:
            self._turned_input(others[0])
        self._tile(write, len(reduce))
        for pack in (streamed, *others):
            finish_copy(sch, pack)
        return [rv, *before, *([] if after is None else [after])]

    def _channels_last(self, after: Any) -> Any:
        """Let the convolution write [batch, pixels, channel], and number its iterations so, the
        taps before the channels that are summed; the block that writes the result.
        """
        sch, rv, c, sizes = self.sch, self.rv, self.c, self.sizes
        axes = [a.var for a in sch.get(rv).iter_vars]
        places = [v for v in (c.height, c.width) if v is not None]
        self.batch = [v for v in axes if v not in (*places, c.channel, *c.reduce)]
        self.pixels = places[-1:] if sizes.known else places
        reduce = [*(v for v in c.reduce if v is not self.grouped), self.grouped]

        def pixels(by_axis: dict[Any, Any]) -> list[Any]:
            if len(places) == len(self.pixels):
                return [by_axis[v] for v in places]
            return [by_axis[c.height] * sizes.width + by_axis[c.width]]

        def written(*indices: Any) -> list[Any]:
            by_axis = dict(zip(axes, indices))
            return [*(by_axis[v] for v in self.batch), *pixels(by_axis), by_axis[c.channel]]

        def iterations(*indices: Any) -> list[Any]:
            by_axis = dict(zip(axes, indices))
            return [*written(*indices), *(by_axis[v] for v in reduce)]

        spatial = [v for v in axes if v not in c.reduce]

        def copied(*indices: Any) -> list[Any]:
            by_axis = dict(zip(spatial, indices))
            return [*(by_axis[v] for v in self.batch), by_axis[c.channel], *pixels(by_axis)]

        write = sch.reindex_cache_write(rv, 0, "global", self._map(written, len(axes)))
        sch.transform_block_layout(rv, self._map(iterations, len(axes)))
        if after is not None:
            sch.compute_inline(write)
            write = after
        sch.transform_block_layout(write, self._map(copied, len(spatial)))
        return write

    def _panels_first(self, pack: Any) -> None:
        """Keep the packed weight in the order in which a tile reads it."""

        def order(*indices: Any) -> list[Any]:
            *taps, panel, number, lane = indices
            return [panel, *taps, number, lane]

        ndim = self.sch.get(pack).writes[0].buffer.ndim
        self.sch.transform_layout(pack, ("write", 0), self._map(order, ndim))

    def _turned_input(self, pack: Any) -> None:
        """Let `pack`, which pads and widens, read an input whose channels are last already: turning
        it round is a plain copy, done in registers.
        """
        sch, batch = self.sch, len(self.batch)
        reads = [r.buffer for r in sch.get(pack).reads]
        (source,) = (k for k, b in enumerate(reads) if b.ndim == self.c.data.ndim)
        turned = sch.cache_read(pack, source, "global")

        def order(*indices: Any) -> list[Any]:
            return [*indices[:batch], *indices[batch + 1 :], indices[batch]]

        index_map = self._map(order, self.c.data.ndim)
        sch.transform_layout(turned, ("write", 0), index_map)
        sch.transform_block_layout(turned, index_map)
        view = View(sch, turned)
        plan = Transpose.choose(view, self.cpu)
        if plan is not None:
            plan.apply(view)

    def _map(self, f: Any, ndim: int) -> IndexMap:
        return IndexMap.from_func(f, ndim=ndim, index_dtype=str(self.c.width.dtype))

    def _tile(self, write: Any, taps: int) -> None:
        sch, rv, way = self.sch, self.rv, self.way
        loops = list(sch.get_loops(rv))
        batch, loops = loops[: len(self.batch)], loops[len(self.batch) :]
        *rows, line = loops[: len(self.pixels)]
        jo, jv, ji = loops[len(self.pixels) : len(self.pixels) + 3]
        reduce = loops[len(self.pixels) + 3 :]
        steps, inner = reduce[: taps + 1], reduce[taps + 1 :]
        pixels, channels = extent_of(sch, line), self.sizes.channels
        io, ii = sch.split(line, [None, self.height])
        sch.reorder(*batch, jo, *rows, io, *steps, ii, jv, ji, *inner)
        sch.reverse_compute_at(write, jo)
        sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, io)
        start = sch.decompose_reduction(rv, steps[0])
        for each in (start, sums):
            *tile, last = loops_inside(sch, each, io)
            self._finish_tile(tile, last)
        unroll_short(sch, [ii, jv])
        if way.group > 1:
            sch.tensorize(ji, dot_intrin(self.lanes, way.broadcast, way.streamed))
        else:
            sch.vectorize(ji)
        partition_tails(sch, (io, pixels, self.height))
        if channels % (self.lanes * self.vectors):
            partition_tails(sch, (loops_inside(sch, write, jo)[0], None, 1))

    def _finish_tile(self, tile: list[Any], last: Any) -> None:
        sch = self.sch
        if extent_of(sch, last) != self.lanes:
            over, last = sch.split(last, [None, self.lanes])
            tile = [*tile, over]
        self.finish(tile, last)
