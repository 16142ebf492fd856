"""What a block is, found out once: its kind, its axes and loops, the product that it sums."""

from __future__ import annotations

import contextlib
import enum
import math
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, TypeVar

from ....base import CpuModel, ScheduleError
from ....ir import Var
from ...index_map import IndexMap
from ...stmt import Block, BufferStore
from ...transform.rewriter import constant
from ..model.facts import BlockKind, Facts, facts_of
from ..primitives.packing import factors_of
from ..schedule import Schedule
from .contraction import Product, match_contraction
from .cost import Demand
from .matches import (
    Across,
    Convolution,
    Sizes,
    match_convolution,
    match_gather,
    match_pool,
    other_axis,
    sizes_of,
)
from .queries import (
    TYPICAL_SIZE,
    Order,
    calls_of,
    extent_of,
    is_pointwise,
    last_moving,
    loops_of,
    order_of,
    reduces,
    root_of,
)

T = TypeVar("T")
CALL_CYCLES = 20  # of a function of one vector, in predictions
_LOOP_CYCLES = 2  # of beginning and leaving one


class Kind(enum.Enum):
    """What a block computes, of one element of its result or along its loops.

    CONVOLUTION  sums of products over windows that slide
    CONTRACTION  other sums of products of two inputs
    POOL         maxima, minima and sums over windows that slide
    REDUCTION    whatever else is reduced along axes
    TRANSPOSE    each element once, from what lies along another axis
    GATHER       each element once, from where an index says, across rows
    ELEMENTWISE  each element once
    OTHER        none of these
    """

    CONVOLUTION = "convolution"
    CONTRACTION = "contraction"
    POOL = "pool"
    REDUCTION = "reduction"
    TRANSPOSE = "transpose"
    GATHER = "gather"
    ELEMENTWISE = "elementwise"
    OTHER = "other"


_IN_TILES = (Kind.CONTRACTION, Kind.CONVOLUTION, Kind.POOL)


def give_axes_loops(sch: Schedule, rv: Any) -> None:
    """Let a block of products or windows, whose loops are parts of axes and may ask whether they
    are too far, have a loop for each axis; where the order matters it stays.
    """
    view = View(sch, rv)
    values = sch.state.realize(view.block).iter_values
    if all(isinstance(v, Var) for v in values) or view.kind not in _IN_TILES:
        return
    axes = len(values)
    with contextlib.suppress(ScheduleError), sch.attempt():
        sch.transform_block_layout(rv, IndexMap.from_func(lambda *axes: [*axes], ndim=axes))


class View:
    """A block of a schedule, as those see it who plan its loops. Nothing of it is changed by
    looking; what is found out is kept, and holds as long as the block is not scheduled.

    left  the blocks of the function that are not scheduled so far, in order; None: all are left
    """

    def __init__(self, sch: Schedule, rv: Any, left: Sequence[Any] | None = None) -> None:
        self.sch = sch
        self.rv = rv
        self.block: Block = sch.get(rv)
        if not isinstance(self.block, Block):
            raise ScheduleError(f"plans are for blocks, got {type(self.block).__name__}")
        self._left = left
        self._found: dict[Callable[[View], Any], Any] = {}

    def forget(self) -> None:
        """Find everything out anew: blocks and loops that were asked for in an attempt that was
        given up are not known to the schedule.
        """
        sch, rv, left = self.sch, self.rv, self._left
        self.__dict__.clear()
        View.__init__(self, sch, rv, left)

    def found(self, match: Callable[[View], T]) -> T:
        """What `match` finds out about the block and those around it, asked once."""
        if match not in self._found:
            self._found[match] = match(self)
        found: T = self._found[match]
        return found

    @cached_property
    def left(self) -> Sequence[Any]:
        """The blocks that may be scheduled with this one, itself among them, in order."""
        if self._left is not None:
            return self._left
        blocks = self.sch.get_child_blocks(root_of(self.sch))
        return [self.rv if self.sch.get(b) is self.block else b for b in blocks]

    @property
    def upto(self) -> Sequence[Any]:
        """Those of them that come before it, and itself."""
        return self.left[: self.left.index(self.rv) + 1] if self.rv in self.left else [self.rv]

    @cached_property
    def facts(self) -> Facts:
        return facts_of(self.sch.state, self.block)

    @cached_property
    def kind(self) -> Kind:
        block = self.block
        if reduces(block):
            if self.convolution is not None:
                return Kind.CONVOLUTION
            if match_contraction(block) is not None or factors_of(block) is not None:
                return Kind.CONTRACTION
            if match_pool(block) is not None:
                return Kind.POOL
            return Kind.REDUCTION if self.facts.kind is BlockKind.REDUCTION else Kind.OTHER
        if not self.facts.elementwise:
            return Kind.OTHER
        if self.gather is not None:
            return Kind.GATHER
        return Kind.ELEMENTWISE if self.transposed is None else Kind.TRANSPOSE

    @cached_property
    def loops(self) -> list[Any]:
        """The loops around the block, outermost first."""
        return list(self.sch.get_loops(self.rv))

    @cached_property
    def by_axis(self) -> dict[Var, Any] | None:
        """{axis: loop} if each axis of the block is a loop of its own, and there are no others."""
        return loops_of(self.sch, self.rv)

    @cached_property
    def extents(self) -> dict[Var, int | None]:
        """Of the axes that are loops; None: known only when the kernel runs."""
        return {v: extent_of(self.sch, loop) for v, loop in (self.by_axis or {}).items()}

    @cached_property
    def steps(self) -> float:
        """How often the block runs, symbols taken for typical."""
        extents = (extent_of(self.sch, loop) for loop in self.loops)
        return math.prod((TYPICAL_SIZE if n is None else n for n in extents), start=1.0)

    def sweep(
        self, cpu: CpuModel, inner: float = math.inf, work: float = 0.0, parts: int = 0
    ) -> Demand:
        """What the block demands whose loops go over it once.

        inner  steps of the innermost loop, which vectors take
        work   cycles of a vector beside those of loading, storing and functions
        parts  that threads can share; 0: all that it writes
        """
        block = self.block
        buffers = {r.buffer: False for r in block.reads} | {r.buffer: True for r in block.writes}
        written = math.prod(
            constant(a.range.extent) or TYPICAL_SIZE for a in block.iter_vars if a.is_spatial
        )
        inner = max(1.0, min(inner, self.steps))
        vectors = -(-inner // cpu.lanes(max(b.dtype.bits for b in buffers)))
        cycles = vectors * (1 + work + CALL_CYCLES * calls_of(block)) + _LOOP_CYCLES
        traffic = []
        for b, is_result in buffers.items():
            size = math.prod(constant(n) or TYPICAL_SIZE for n in b.shape) * b.dtype.itemsize
            moved = float(written if is_result else self.steps) * b.dtype.itemsize
            traffic.append((moved, min(moved, size)))
        return Demand(self.steps / inner * cycles, tuple(traffic), parts or max(1, written))

    @cached_property
    def product(self) -> Product | None:
        """What the block sums, if that is a product of two inputs over plain loops."""
        c = match_contraction(self.block)
        loops = None if c is None else self.by_axis
        return None if c is None or loops is None else Product(c, loops, self.extents)

    @cached_property
    def epilogue(self) -> Any:
        """The block that alone reads the result, element by element; None if there is none, or if
        the result is an output.
        """
        sch, readers = self.sch, self.sch.get_consumers(self.rv)
        out = self.block.writes[0].buffer if self.block.writes else None
        root: Block = sch.get(root_of(sch))
        if len(readers) != 1 or not any(b is out for b in root.alloc_buffers):
            return None
        reader: Block = sch.get(readers[0])
        return readers[0] if isinstance(reader.body, BufferStore) and not reduces(reader) else None

    @cached_property
    def pointwise(self) -> Any:
        """The block that alone reads the result, just where it writes; None if there is none."""
        after = self.epilogue
        here = after is not None and is_pointwise(self.sch, after, self.block.writes[0].buffer)
        return after if here else None

    @cached_property
    def convolution(self) -> Convolution | None:
        """What the block convolves, if that is what it does."""
        return match_convolution(self.block) if reduces(self.block) else None

    @cached_property
    def sizes(self) -> Sizes | None:
        """Those of the convolution; None if it is too small or strange."""
        c = None if self.by_axis is None else self.convolution
        return None if c is None else sizes_of(c, self.extents)

    @cached_property
    def order(self) -> Order | None:
        """How what the block reduces lies in memory, if its accesses are plain."""
        if self.by_axis is None or self.facts.kind is not BlockKind.REDUCTION:
            return None
        return order_of(self.block)

    @cached_property
    def gather(self) -> Across | None:
        """The gather across rows that the block is."""
        loops = self.by_axis
        return match_gather(self.block, loops) if loops and self.facts.elementwise else None

    @cached_property
    def transposed(self) -> tuple[Var, Var] | None:
        """(the axis along which the source lies, that of the result) if these are not the same."""
        store, loops = self.block.body, self.by_axis
        if not isinstance(store, BufferStore) or not loops or not store.indices:
            return None
        along = last_moving(store.indices, store.buffer)
        across = other_axis(store, loops) if self.facts.elementwise else None
        return None if across is None or along not in loops else (across, along)
