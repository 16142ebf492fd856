"""What plans of convolutions share: the blocks before and after, what threads share, tiles."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ....base import CpuModel, ScheduleError
from ....ir import Var
from ...index_map import IndexMap
from ...stmt import Block, Buffer, BufferStore
from ..model.facts import BlockKind, facts_of
from ..model.regions import users_of
from .contraction import finish_tile, partition_tails, unroll_short
from .cost import Demand
from .matches import Convolution, Sizes, match_convolution
from .movement import copy_by_squares
from .plan import InTiles
from .queries import extent_of, fuse_run, loops_inside
from .view import View

_Axes = Callable[[Mapping[Var, Any]], list[Any]]
_MOST_LANES_OF_A_COPY = 64
# Steps of an image that are worth another thread.
_LEAST_SHARED = 1 << 19
_LEAST_STEPS = 1 << 12


def to_tile(view: View, cpu: CpuModel) -> tuple[Convolution, Sizes, int, int] | None:
    """(the convolution, its sizes, lanes, bytes of an element) if tiles of its pixels pay: of an
    image whose size is not known, columns sorted by phases cost more than the few sums of a
    depthwise convolution.
    """
    c, sizes = view.convolution, view.sizes
    if c is None or sizes is None or sizes.steps < _LEAST_STEPS:
        return None
    if c.depthwise and c.strides[0] != 1 and not sizes.known:
        return None
    lanes = cpu.lanes(view.block.writes[0].buffer.dtype.bits)
    return c, sizes, lanes, c.data.dtype.bits // 8


# -- what threads share ----------------------------------------------------------------------------


def much_weight(sizes: Sizes, size: int, cpu: CpuModel) -> bool:
    """Whether the second cache is too small for the weights, of so many bytes an element."""
    return sizes.channels * sizes.depth * sizes.taps * size > cpu.l2_bytes


def share_of(sizes: Sizes, times: int, size: int, cpu: CpuModel) -> int:
    """What the number of blocks of pixels, `times` over, should be a multiple of, for threads to
    share them. (Of much weight they share the channels, of little work images alone.)
    """
    if much_weight(sizes, size, cpu) or sizes.steps < _LEAST_SHARED:
        return 1
    return 1 if times % cpu.cores == 0 else cpu.cores


def wrong_tile_of(view: View, *sides: tuple[str, int, int]) -> str | None:
    """Why tiles do not fit the convolution in a block; None if they do.

    sides  (what it counts, the size of a tile, how many there are)
    """
    if view.convolution is None or view.sizes is None:
        return "nothing slides over an image, or it has no pixels or channels of a constant number"
    for what, size, most in sides:
        if size > most:
            return f"tiles of {size} {what}, and there are {most}"
    return None


class Work:
    """The loops of one convolution, while a plan is carried out."""

    def __init__(self, view: View, plan: InTiles, joins: bool) -> None:
        """joins: whether threads share one loop over all blocks"""
        self.view, self.sch, self.rv = view, view.sch, view.rv
        self.lanes, self.joins = plan.lanes, joins

    @property
    def c(self) -> Convolution:
        assert self.view.convolution is not None
        return self.view.convolution

    @property
    def sizes(self) -> Sizes:
        assert self.view.sizes is not None
        return self.view.sizes

    def index_map(self, f: Callable[..., Sequence[Any]], ndim: int) -> IndexMap:
        return IndexMap.from_func(f, ndim=ndim, index_dtype=str(self.c.width.dtype))

    def over(self, axes: Sequence[Var], f: _Axes) -> IndexMap:
        """From the axes to what `f` makes of {axis: index}."""
        return self.index_map(lambda *indices: f(dict(zip(axes, indices))), len(axes))

    def by_pixel(self, axes: Sequence[Any], kept: Sequence[Any]) -> IndexMap:
        """From the axes to (those of them that are kept, the number of the pixel in its image)."""

        def order(by_axis: Mapping[Any, Any]) -> list[Any]:
            pixel = by_axis[self.c.height] * self.sizes.width + by_axis[self.c.width]
            return [*(by_axis[v] for v in kept), pixel]

        return self.over(axes, order)

    # -- what comes before and after ---------------------------------------------------------------

    def data(self) -> Buffer:
        """The input that the block reads now."""
        conv = match_convolution(self.sch.get(self.rv))
        if conv is None:
            raise ScheduleError("the padded block is no convolution any more")
        return conv.data

    def input_block(self, inline: bool) -> tuple[Any, list[Any]]:
        """(the block that computes what the convolution reads, None if that is a parameter; the
        blocks that are no longer there by themselves)

        inline  whether what that block reads is to be computed in it as well
        """
        sch = self.sch
        producers = self.inputs()
        if not producers:
            return None, []
        producer = producers[0]
        gone = [b for b in sch.get_producers(producer) if self._only_feeds(b, producer)][:1]
        if not inline:
            gone = []
        for each in gone:
            sch.compute_inline(each)
        return producer, [*gone, producer]

    def inputs(self) -> list[Any]:
        """The blocks that compute what the convolution reads, for it alone."""
        data = self.data()
        return [
            b
            for b in self.sch.get_producers(self.rv)
            if self.sch.get(b).writes[0].buffer is data and self._only_feeds(b, self.rv)
        ]

    def _only_feeds(self, producer: Any, reader: Any) -> bool:
        """Whether a block computes elements one by one, for `reader` alone."""
        sch = self.sch
        block: Block = sch.get(producer)
        if not isinstance(block.body, BufferStore):
            return False
        readers, writers = users_of(sch.state, block.writes[0].buffer.data)
        parameters = {b.data for b in sch.state.fn.buffers}
        return (
            facts_of(sch.state, block).kind is BlockKind.COMPLETE
            and block.writes[0].buffer.data not in parameters
            and len(writers) == 1
            and len(readers) == 1
            and readers[0] is sch.get(reader)
        )

    def cropped(self, whole: Mapping[Any, int]) -> Any:
        """Pad axes of the convolution to multiples; the block that copies its result from that."""
        sch, rv, block = self.sch, self.rv, self.sch.get(self.rv)
        sch.pad_einsum(rv, [whole.get(a.var, 1) for a in block.iter_vars])
        if sch.get(rv).writes[0].buffer is block.writes[0].buffer:
            # Of no axis there was a rest.
            return sch.cache_write(rv, 0, "global")
        (crop,) = sch.get_consumers(rv)
        return crop

    # -- loops around tiles ------------------------------------------------------------------------

    def in_order(self, batch: list[Any], groups: list[Any], blocks: list[Any]) -> list[Any]:
        """The loops around tiles, outermost first.

        Of unknown sizes threads share groups or blocks, whatever the batch: one loop over all of
        them, as `join` makes it, would be taken apart by divisions wherever it is used.
        """
        return [*batch, *groups, *blocks] if self.sizes.known else [*groups, *blocks, *batch]

    def join(self, outer: list[Any]) -> None:
        """One loop over all blocks, for threads to share."""
        if self.joins and len(outer) > 1:
            self.sch.fuse(*outer)

    def keep_as(self, kept: _Axes, copied: _Axes, reduce: Sequence[Var], after: Any) -> Any:
        """Let the convolution write what `kept` makes of {axis: index}, and number its iterations
        so, those of the axes `reduce` behind; the block that writes the result, which is `after` if
        that is one, goes over it as `copied` says.
        """
        sch, rv = self.sch, self.rv
        axes = [a.var for a in sch.get(rv).iter_vars]
        spatial = [v for v in axes if v not in self.c.reduce]

        def with_sums(by_axis: Mapping[Any, Any]) -> list[Any]:
            return [*kept(by_axis), *(by_axis[v] for v in reduce)]

        write = sch.reindex_cache_write(rv, 0, "global", self.over(axes, kept))
        sch.transform_block_layout(rv, self.over(axes, with_sums))
        if after is not None:
            sch.compute_inline(write)
            write = after
        sch.transform_block_layout(write, self.over(spatial, copied))
        return write

    # -- the loops of a tile -----------------------------------------------------------------------

    def finish(self, steps: Sequence[Any], lane: Any) -> None:
        self.sch.vectorize(lane)
        unroll_short(self.sch, steps)

    def sum_in_tile(self, loop: Any, outermost: Any, count: int, write: Any) -> None:
        """Begin the sums of an iteration of `loop` before the loop `outermost` in it, and let the
        block `write` write them. Of the `count` innermost loops, those of a tile, the last becomes
        a vector and the others straight code.
        """
        self.sch.reverse_compute_at(write, loop)
        first = self.sch.decompose_reduction(self.rv, outermost)
        for each in (first, self.rv):
            *steps, last = list(self.sch.get_loops(each))[-count:]
            self.finish(steps, last)
        finish_tile(self.sch, loops_inside(self.sch, write, loop), self.lanes)

    def is_short(self, loop: Any) -> bool:
        """Whether a loop over a row is short enough to be one vector."""
        return (extent_of(self.sch, loop) or 99) <= _MOST_LANES_OF_A_COPY

    def finish_copy(
        self, write: Any, loop: Any, known: bool, after: Any = None, runs: bool = False
    ) -> None:
        """Vectors for a copy of short rows in `loop`, and of long ones that it reads as runs; LLVM
        makes those of others. Of an image whose size is not known the copy ends with the last row,
        without asking in each. The block `after`, if it is another one, goes over all rows behind
        it.
        """
        sch = self.sch
        *rows, last = loops_inside(sch, write, loop)
        if self.is_short(last):
            sch.vectorize(last)
        elif runs:
            size = extent_of(sch, last) or 1
            parts = (n for n in range(_MOST_LANES_OF_A_COPY, self.lanes - 1, -1) if size % n == 0)
            if part := next(parts, 0):
                sch.vectorize(sch.split(last, [None, part])[-1])
        if rows and not known:
            partition_tails(sch, (rows[-1], None, 1))
        if after is not None and after is not write:
            sch.reverse_compute_at(after, loop)
            fuse_run(sch, after, loops_inside(sch, after, loop))
            last = loops_inside(sch, after, loop)[-1]
            if self.is_short(last):
                sch.vectorize(last)

    def turn_round(self, write: Any, loop: Any, lanes: int, line: int) -> None:
        """Let block `write` in `loop`, which reads sums [..., pixel, channel], read a copy of them,
        [..., channel, pixel], that is made by squares of `lanes` in registers, in tiles of `line`.
        """
        sch = self.sch
        reads = [r.buffer for r in sch.get(write).reads]
        sums = next(b for b in reads if b.ndim > sch.get(write).writes[0].buffer.ndim)
        turned = sch.cache_read(write, reads.index(sums), "global")
        order = self.index_map(lambda *i: [*i[:-2], i[-1], i[-2]], sums.ndim)
        sch.transform_layout(turned, ("write", 0), order)
        along, across = loops_inside(sch, turned, loop)[-2:]
        copy_by_squares(sch, turned, across, along, lanes, (line, line))

    def unroll_taps(self, reduce: Sequence[Any], most: int) -> None:
        """Unroll the innermost loops over taps that are at most `most` steps together."""
        taps = 1
        for loop in reversed(reduce):
            taps *= extent_of(self.sch, loop) or 99
            if taps > most:
                break
            self.sch.unroll(loop)


def demand_of(
    view: View,
    step: float,
    block: int,
    tiles: int,
    cpu: CpuModel,
    vain: float = 0.0,
    extra: float = 0.0,
    copies: int | None = None,
    parts: int = 0,
) -> Demand:
    """What a plan for a convolution demands.

    step    cycles of one product of all sums of an image and a group
    block   rows of the result that share a panel of the input
    tiles   how many tiles of channels read a panel
    extra   cycles beside the sums and the panels
    copies  how many panels of a block there are; None: one if it takes one
    parts   of a block, each of which waits for no other; 0: all wait for its panel
    """
    c, s = view.convolution, view.sizes
    assert c is not None
    assert s is not None
    out = view.block.writes[0].buffer
    times, size = s.images * s.groups, c.data.dtype.itemsize
    blocks = -(-s.height // block)
    pixels = s.height * s.width
    # Rows of which the windows of two blocks have a part are read for both.
    along, down = c.strides
    rows = blocks * (block * down + max(0, math.isqrt(s.taps) - down))
    read = s.depth * rows * s.width * along * size
    weights = s.channels * s.depth * s.taps * size
    panel = read / blocks
    written = s.channels * pixels * out.dtype.itemsize
    traffic = (
        (times * read, times * read),
        (times * read * max(0, tiles - 1), panel),
        (times * weights * blocks, weights),
        (times * written, times * written),
    )
    if copies is None:
        copies = int(along > 1 or not is_given(view))
    # Panels are computed where the input is, or brought into the order in which vectors load it,
    # while nothing is multiplied.
    copied = times * copies * read * (0.5 / size if along > 1 else 3 / cpu.rates.l2)
    # Threads share pixels, and all read the weights; or channels, and all read what others wrote.
    # Where the pixels of two meet, both write to the same lines.
    apart = times * blocks >= cpu.cores and copies < 2
    crossing = (s.depth + 2 * s.channels) * cpu.line_bytes if apart else read
    handed = crossing * (1 - 1 / cpu.cores) if times < cpu.cores else 0.0
    copied += from_memory(weights, apart, cpu)
    cycles, many = times * step * s.depth * s.taps + extra, times * blocks * max(1, parts)
    if many > 1 or parts:
        return Demand(cycles + copied, traffic, many, vain, 0.0, handed)
    return Demand(cycles, traffic, tiles, vain, copied, panel if copies else handed)


def from_memory(weights: float, apart: bool, cpu: CpuModel) -> float:
    """Cycles until so many bytes of weights come from memory, which nothing hides, if the second
    cache cannot keep what a thread reads of them: all, if threads work on pixels apart.
    """
    each = weights / (1 if apart else cpu.cores)
    return each * cpu.cores / cpu.rates.memory if each > cpu.l2_bytes else 0.0


def is_given(view: View) -> bool:
    """Whether the input of a convolution is a parameter."""
    return view.convolution is not None and view.convolution.data in view.sch.state.fn.buffers
