"""What schedules of convolutions share: sizes, the blocks before and after, the loops of a tile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ....base import CpuModel, ScheduleError
from ....ir import IntImm
from ...index_map import IndexMap
from ...stmt import Block, Buffer, BufferStore
from ...transform import PARTITION_HINT
from ..facts import BlockKind, facts_of
from ..regions import users_of
from ..schedule import Schedule
from .contraction import unroll_short
from .convolution_shape import Convolution, match_convolution
from .memory_order import fuse_run
from .queries import calls_of, extent_of, is_pointwise, loops_inside, loops_of
from .transpose import copy_by_squares, squares_of

_TYPICAL_SIDE = 56
_MOST_LANES_OF_A_COPY = 64
# Steps of an image that are worth another thread.
_LEAST_SHARED = 1 << 19


@dataclass(frozen=True)
class Sizes:
    """Extents: of the axes of a convolution; the channels are those of one group.

    height, width  typical ones where they are known only when the kernel runs
    known          whether height and width are constants
    depth          how many input channels (or whatever is reduced without being a tap)
    """

    channels: int
    groups: int
    height: int
    width: int
    known: bool
    depth: int
    taps: int

    @property
    def steps(self) -> int:
        pixels = self.height * self.width
        return self.channels * self.groups * pixels * self.depth * self.taps


def sizes_of(sch: Schedule, rv: Any, c: Convolution) -> Sizes | None:
    """The extents of the convolution in block `rv`; None if it is too small or strange."""
    loops = loops_of(sch, rv)
    if loops is None:
        return None
    extents = {v: extent_of(sch, loop) for v, loop in loops.items()}
    height = 1 if c.height is None else extents[c.height]
    channels, width = extents[c.channel], extents[c.width]
    reduce = [extents[v] for v in c.reduce]
    if channels is None or any(e is None for e in reduce):
        return None
    taps = math.prod(extents[v] or 0 for v in c.taps)
    depth = math.prod(extents[v] or 0 for v in c.reduce if v not in c.taps)
    if (width is not None and width < 2) or 0 in (height, channels, taps, depth):
        return None
    if c.group_size is not None and channels % c.group_size:
        return None
    own = c.group_size or channels
    sides = [_TYPICAL_SIDE if n is None else n for n in (height, width)]
    known = height is not None and width is not None
    return Sizes(own, channels // own, sides[0], sides[1], known, depth, taps)


_COPIES = 4  # channels that take as long as a copy of their pixels


class Work:
    """The scheduling of one convolution."""

    def __init__(self, sch: Schedule, rv: Any, c: Convolution, sizes: Sizes, cpu: CpuModel) -> None:
        self.sch, self.rv, self.c, self.sizes, self.cpu = sch, rv, c, sizes, cpu
        block: Block = sch.get(rv)
        self.lanes = cpu.lanes(block.writes[0].buffer.dtype.bits)
        self.bytes = c.data.dtype.bits // 8

    # -- what comes before and after ---------------------------------------------------------------

    def epilogue(self) -> Any:
        """The block that computes something of each element of the result, None if none does."""
        sch, rv = self.sch, self.rv
        consumers = sch.get_consumers(rv)
        if len(consumers) != 1 or not is_pointwise(sch, consumers[0], sch.get(rv).writes[0].buffer):
            return None
        return consumers[0]

    def joined(self, written: Any, after: Any) -> Any:
        """What writes the elements of a padded buffer that there are: a copy of them, or the block
        after it, which that vanishes in. Of short rows only where there are no calls to compute:
        those have full vectors where rows are one run.
        """
        if after is None or (self._is_short() and calls_of(self.sch.get(after))):
            return written
        self.sch.compute_inline(written)
        return after

    def _is_short(self) -> bool:
        return self.sizes.known and self.sizes.width <= self.cpu.line_bytes // self.bytes

    def data(self) -> Buffer:
        """The input that the block reads now."""
        conv: Convolution | None = match_convolution(self.sch.get(self.rv))
        if conv is None:
            raise ScheduleError("the padded block is no convolution any more")
        return conv.data

    def input_block(self, inline: bool) -> tuple[Any, list[Any]]:
        """(the block that computes what the convolution reads, None if that is a parameter; the
        blocks that are no longer there by themselves)

        inline  whether what that block reads is to be computed in it as well
        """
        sch = self.sch
        producers = [b for b in sch.get_producers(self.rv) if self.makes_input(b)]
        if not producers:
            return None, []
        producer = producers[0]
        gone = [b for b in sch.get_producers(producer) if self._only_feeds(b, producer)][:1]
        if not inline:
            gone = []
        for each in gone:
            sch.compute_inline(each)
        return producer, [*gone, producer]

    def makes_input(self, producer: Any) -> bool:
        block: Block = self.sch.get(producer)
        return block.writes[0].buffer is self.data() and self._only_feeds(producer, self.rv)

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

    # -- sharing among threads ---------------------------------------------------------------------

    def much_weight(self) -> bool:
        """Whether the second cache is too small for the weights."""
        sizes = self.sizes
        return sizes.channels * sizes.depth * sizes.taps * self.bytes > self.cpu.l2_bytes

    def share(self, outer: Sequence[Any]) -> int:
        """What the number of blocks of pixels should be a multiple of, for threads to share them.
        (Of much weight they share the channels, of little work images alone.)
        """
        if self.much_weight() or self.sizes.steps < _LEAST_SHARED:
            return 1
        times = math.prod(extent_of(self.sch, loop) or 1 for loop in outer)
        return 1 if times % self.cpu.cores == 0 else self.cpu.cores

    def shares_of_channels(self, outer: Sequence[Any], tiles: float, high: int) -> int:
        """How many parts of the channels to compute apart, each from a copy of the pixels of its
        own: as many as there are threads where those, given tiles, would wait for each other
        longer than the copies take.

        tiles  how many tiles of pixels there are, the last one maybe a part of one
        high   the channels of a tile
        """
        cores, channels = self.cpu.cores, self.sizes.channels
        blocks = -(-channels // high)
        times = math.prod(extent_of(self.sch, loop) or 1 for loop in outer)
        longest = -(-times * math.ceil(tiles) // cores)
        waited = 1 - times * tiles / (longest * cores)
        return cores if blocks % cores == 0 and waited > 0.05 + _COPIES * cores / channels else 1

    def in_order(self, batch: list[Any], groups: list[Any], blocks: list[Any]) -> list[Any]:
        """The loops around tiles, outermost first.

        Of unknown sizes threads share groups or blocks, whatever the batch: one loop over all of
        them, as `join` makes it, would be taken apart by divisions wherever it is used.
        """
        return [*batch, *groups, *blocks] if self.sizes.known else [*groups, *blocks, *batch]

    def join(self, outer: list[Any]) -> None:
        """One loop over all blocks, for threads to share."""
        if self.cpu.cores > 1 and len(outer) > 1 and self.sizes.known:
            self.sch.fuse(*outer)

    # -- the loops of a tile -----------------------------------------------------------------------

    def write_tile(self, write: Any, loop: Any, lanes: int) -> None:
        """Unroll and vectorize the loops that write the sums of a tile."""
        sch = self.sch
        *steps, last = loops_inside(self.sch, write, loop)
        over, lane = sch.split(last, [None, lanes])
        self.finish([*steps, over], lane)

    def finish(self, steps: Sequence[Any], lane: Any) -> None:
        self.sch.vectorize(lane)
        unroll_short(self.sch, steps)

    def sum_in_tile(self, outermost: Any, count: int) -> None:
        """Begin the sums before the loop `outermost`. Of the `count` innermost loops, those of a
        tile, the last becomes a vector and the others straight code.
        """
        first = self.sch.decompose_reduction(self.rv, outermost)
        for each in (first, self.rv):
            *steps, last = list(self.sch.get_loops(each))[-count:]
            self.finish(steps, last)

    def finish_copy(self, write: Any, loop: Any, after: Any = None) -> None:
        """Vectors for a copy of short rows in `loop`; LLVM makes those of long ones. Of an image
        whose size is not known the copy ends with the last row, without asking in each. The block
        `after`, if it is another one, goes over all rows behind it.
        """
        *rows, last = loops_inside(self.sch, write, loop)
        if (extent_of(self.sch, last) or 99) <= _MOST_LANES_OF_A_COPY:
            self.sch.vectorize(last)
        if rows and not self.sizes.known:
            self.sch.annotate(rows[-1], PARTITION_HINT, True)
        if after is not None and after is not write:
            sch = self.sch
            sch.reverse_compute_at(after, loop)
            fuse_run(sch, after, loops_inside(sch, after, loop))
            last = loops_inside(sch, after, loop)[-1]
            if (extent_of(sch, last) or 99) <= _MOST_LANES_OF_A_COPY:
                sch.vectorize(last)

    def turn_round(self, write: Any, loop: Any) -> None:
        """Let block `write` in `loop`, which reads sums [..., pixel, channel], read a copy of them,
        [..., channel, pixel], that is made by squares in registers.
        """
        sch = self.sch
        reads = [r.buffer for r in sch.get(write).reads]
        sums = next(b for b in reads if b.ndim > sch.get(write).writes[0].buffer.ndim)
        turned = sch.cache_read(write, reads.index(sums), "global")
        dtype = str(self.c.width.dtype)
        order = IndexMap.from_func(
            lambda *i: [*i[:-2], i[-1], i[-2]], ndim=sums.ndim, index_dtype=dtype
        )
        sch.transform_layout(turned, ("write", 0), order)
        along, across = loops_inside(sch, turned, loop)[-2:]
        lanes, tile = squares_of(sums, self.cpu)
        copy_by_squares(sch, turned, across, along, lanes, (tile, tile))

    def unroll_taps(self, reduce: Sequence[Any], most: int) -> None:
        """Unroll the innermost loops over taps that are at most `most` steps together."""
        taps = 1
        for loop in reversed(reduce):
            taps *= extent_of(self.sch, loop) or 99
            if taps > most:
                break
            self.sch.unroll(loop)


def extent_of_dimension(buffer: Buffer, k: int) -> int | None:
    """The size of a buffer along a dimension if it is a constant."""
    size = buffer.shape[k]
    return size.value if isinstance(size, IntImm) else None
