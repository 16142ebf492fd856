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

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from ....base import CpuModel, record
from ....ir import Var
from ..primitives.packing import factors_of
from .contraction import partition_tails, strips_cost, tile_shape
from .convolution_work import Work, demand_of, wrong_tile_of
from .cost import Cost, predict, rates_of
from .low_precision import InDots, finish_copy, way_of
from .movement import Transpose, squares_of
from .queries import extent_of, loops_inside
from .view import View

_LEAST_STEPS = 1 << 14
_LEAST_CHANNELS = 8


def _grouped(view: View) -> Var | None:
    """The reduce axis that alone indexes both inputs: the channels of the input."""
    c, factors = view.convolution, factors_of(view.block)
    if factors is None or c is None:
        return None
    alone = [v for v in c.reduce if v not in c.taps and all(f.is_alone(v) for f in factors)]
    return alone[0] if alone else None


@record
class DotsOfWindows(InDots):
    """Tiles of `rows` pixels x (`vectors` x `lanes`) channels, of `group` products a step.

    side     of the tiles in which a copy of the input is made whose channels are last, before it
             is widened; 0: none is made
    squares  of so many are turned round in registers in those; 0: none are
    """

    side: int = 0
    squares: int = 0

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> DotsOfWindows | None:
        c, sizes = view.convolution, view.sizes
        if c is None or c.group_size is not None or sizes is None or sizes.steps < _LEAST_STEPS:
            return None
        out, lanes = view.block.writes[0].buffer.dtype, cpu.lanes(32)
        way = way_of(str(c.data.dtype), str(c.weight.dtype), str(out), cpu)
        if not out.is_int or way is None or _grouped(view) is None:
            return None
        if sizes.channels < _LEAST_CHANNELS or lanes < 4:
            return None
        pixels = sizes.height * sizes.width if sizes.known else None
        shape = tile_shape(pixels, sizes.channels, lanes, cpu.vector_registers - way.spare)
        plan = cls(*shape, lanes, way.group, *way.dtypes)
        if sizes.depth < _LEAST_CHANNELS:
            return plan
        squares, side = squares_of(c.data, cpu)
        return replace(plan, side=side, squares=squares)

    def wrong(self, view: View) -> str | None:
        c, s, factors = view.convolution, view.sizes, factors_of(view.block)
        pixels = s.height * s.width if s is not None and s.known else 1 << 30
        channels = 0 if s is None else -(-s.channels // self.lanes) * self.lanes
        sides = ("pixels", self.rows, pixels), ("channels", self.width, channels)
        if reason := wrong_tile_of(view, *sides):
            return reason
        assert c is not None
        if factors is None or _grouped(view) is None or c.group_size is not None:
            return "it sums no products of narrow numbers along channels that all read"
        if str(view.block.writes[0].buffer.dtype) != "int32":
            return "its sums are no int32"
        if self.squares and (self.squares & (self.squares - 1) or self.side % self.squares):
            return f"tiles of {self.side} are no squares of {self.squares}, a power of two"
        return self.wrong_operands(*sorted(factors, key=lambda f: f.load.buffer is c.weight))

    def cost(self, view: View, cpu: CpuModel) -> Cost:
        s: Any = view.sizes
        tiles = -(-s.channels // self.width)
        rates = rates_of(cpu, self.lanes, view.block.writes[0].buffer.dtype.bits)
        step = strips_cost(s.height * s.width, self.rows, self.vectors, rates)
        vain = 1 - s.channels / (tiles * self.width)
        cycles = step * tiles / self.group
        return predict(demand_of(view, cycles, s.height, tiles, cpu, vain), cpu)

    def apply(self, view: View) -> None:
        _Dots(view, self).run()


class _Dots(Work):
    """The scheduling of one convolution."""

    def __init__(self, view: View, plan: DotsOfWindows) -> None:
        super().__init__(view, plan, joins=False)
        self.plan, self.grouped = plan, _grouped(view)

    def run(self) -> None:
        sch, rv, plan = self.sch, self.rv, self.plan
        after, before = self.view.pointwise, self.inputs()
        write = self._channels_last(after)
        spatial = len(self.batch) + len(self.pixels)
        reduce = [v for v in self.c.reduce if v is not self.grouped]
        copy, streamed, *others = sch.pack_contraction(
            rv,
            [spatial, spatial + 1 + len(reduce)],
            plan.group,
            [plan.vectors, plan.lanes],
            [plan.broadcast, plan.streamed],
        )
        sch.compute_inline(copy)
        for each in before:
            sch.compute_inline(each)
        self._panels_first(streamed)
        if others and plan.side:
            self._turned_input(others[0])
        self._tile(write, len(reduce))
        for pack in (streamed, *others):
            finish_copy(sch, pack)

    def _channels_last(self, after: Any) -> Any:
        """Let the convolution write [batch, pixels, channel], and number its iterations so, the
        taps before the channels that are summed; the block that writes the result.
        """
        c, sizes = self.c, self.sizes
        places = [v for v in (c.height, c.width) if v is not None]
        self.batch = c.batch([a.var for a in self.sch.get(self.rv).iter_vars])
        self.pixels = places[-1:] if sizes.known else places
        reduce: list[Any] = [*(v for v in c.reduce if v is not self.grouped), self.grouped]

        def order(by_axis: Mapping[Any, Any], channel_last: bool) -> list[Any]:
            pixels = [by_axis[v] for v in places]
            if len(places) > len(self.pixels):
                pixels = [by_axis[c.height] * sizes.width + by_axis[c.width]]
            channel = [by_axis[c.channel]]
            ends = [*pixels, *channel] if channel_last else [*channel, *pixels]
            return [*(by_axis[v] for v in self.batch), *ends]

        first, last = (partial(order, channel_last=last) for last in (False, True))
        return self.keep_as(last, first, reduce, after)

    def _panels_first(self, pack: Any) -> None:
        """Keep the packed weight in the order in which a tile reads it."""

        def order(*indices: Any) -> list[Any]:
            *taps, panel, number, lane = indices
            return [panel, *taps, number, lane]

        ndim = self.sch.get(pack).writes[0].buffer.ndim
        self.sch.transform_layout(pack, ("write", 0), self.index_map(order, ndim))

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

        index_map = self.index_map(order, self.c.data.ndim)
        sch.transform_layout(turned, ("write", 0), index_map)
        sch.transform_block_layout(turned, index_map)
        view = View(sch, turned)
        plan = Transpose.in_squares(view, max(1, self.plan.squares), self.plan.side)
        if plan is not None:
            plan.apply(view)

    def _tile(self, write: Any, taps: int) -> None:
        sch, rv, plan = self.sch, self.rv, self.plan
        loops = list(sch.get_loops(rv))
        batch, loops = loops[: len(self.batch)], loops[len(self.batch) :]
        *rows, line = loops[: len(self.pixels)]
        jo, jv, ji = loops[len(self.pixels) : len(self.pixels) + 3]
        reduce = loops[len(self.pixels) + 3 :]
        steps, inner = reduce[: taps + 1], reduce[taps + 1 :]
        pixels = extent_of(sch, line)
        io, ii = sch.split(line, [None, plan.rows])
        sch.reorder(*batch, jo, *rows, io, *steps, ii, jv, ji, *inner)
        sch.reverse_compute_at(write, jo)
        sums = sch.cache_write(rv, 0, "local")
        sch.reverse_compute_at(sums, io)
        plan.sum_tile(sch, rv, steps, ii, jv, ji)
        *tile, last = loops_inside(sch, sums, io)
        if extent_of(sch, last) != plan.lanes:
            over, last = sch.split(last, [None, plan.lanes])
            tile = [*tile, over]
        self.finish(tile, last)
        partition_tails(sch, (io, pixels, plan.rows))
        if self.sizes.channels % plan.width:
            partition_tails(sch, (loops_inside(sch, write, jo)[0], None, 1))
