"""Parts of a loop function being parsed: blocks, regions and ranges."""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...base import UNKNOWN, TIRError
from ...ir import (
    EQ,
    Add,
    FloatImm,
    IntImm,
    Map,
    PrimExpr,
    Ramp,
    Range,
    const,
    match,
)
from ...tir import (
    Allocate,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    IfThenElse,
    IterVar,
    MatchBufferRegion,
    Stmt,
    decl_buffer,
    is_no_op,
    seq,
)
from . import records as rec


class Jumps:
    """How a loop being parsed is left early: ``break`` and ``continue`` set a number in memory,
    what stands after them runs only while it is 0.

    frames  blocks around the loop
    """

    GO_ON, NEXT, LEAVE = 0, 1, 2

    def __init__(self, frames: int) -> None:
        self.frames = frames
        self.count = 0
        self.leaves = False
        self.state = decl_buffer((1,), "int32", "jump")

    def set(self, number: int, span: Any = UNKNOWN) -> Stmt:
        """The statement that says how to go on."""
        return BufferStore(self.state, const(number), (const(0),), span)

    def guarded(self, body: Stmt) -> Stmt:
        """`body`, which stands after a jump."""
        if is_no_op(body):
            return body
        return IfThenElse(EQ(self.state[0], const(self.GO_ON)), body)

    def iteration(self, body: Stmt) -> Stmt:
        """One iteration, from its beginning."""
        return seq(self.set(self.GO_ON), body)

    def goes_on(self) -> PrimExpr:
        """Whether the loop has not been left."""
        return self.state[0] < self.LEAVE


def with_memory(buffer: Buffer, body: Stmt, span: Any) -> Stmt:
    """`body` with memory for `buffer`."""
    declared = DeclBuffer(buffer, body, span)
    return Allocate(buffer.data, buffer.dtype, buffer.shape, const(True), declared, Map(), span)


class Frame:
    """A block being parsed; for the function itself `spec` is None and only buffers and attributes
    are collected.
    """

    def __init__(self, spec: rec.BlockSpec | None, depth: int) -> None:
        self.spec = spec
        self.depth = depth
        self.iter_vars: list[IterVar] = []
        self.iter_values: list[PrimExpr] = []
        self.reads: tuple[BufferRegion, ...] | None = None
        self.writes: tuple[BufferRegion, ...] | None = None
        self.predicate: PrimExpr | None = None
        self.init: Stmt | None = None
        self.buffers: list[Buffer] = []
        self.matches: list[MatchBufferRegion] = []
        self.attrs: dict[str, Any] | None = None


def between(start: Any, stop: Any) -> tuple[PrimExpr, PrimExpr]:
    """(start, stop - start); of ``start, start + n`` exactly n."""
    low, high = match(start, stop)
    if isinstance(high, Add):
        if high.a is low:
            return low, high.b
        if high.b is low:
            return low, high.a
    extent = high - low
    if not isinstance(extent, IntImm) and extent.dtype.is_int:
        # A[i * 4 + 2 : i * 4 + 4] has two elements.
        simpler = Analyzer(wrap=True).simplify(extent)
        if isinstance(simpler, IntImm):
            return low, simpler
    return low, extent


def region_of(value: Any) -> BufferRegion:
    """`value` as a region: a whole buffer, one element, or a region. Raises TIRError for anything
    else.
    """
    if isinstance(value, Buffer):
        return BufferRegion.full_region(value)
    if isinstance(value, BufferLoad):
        ranges = []
        for i in value.indices:
            if isinstance(i, Ramp):
                if not isinstance(i.stride, IntImm) or i.stride.value != 1:
                    raise TIRError("a region has step 1")
                ranges.append(Range.from_min_extent(i.base, const(i.lanes, i.base.dtype)))
            else:
                ranges.append(Range.from_min_extent(i, const(1, i.dtype)))
        return BufferRegion(value.buffer, tuple(ranges))
    if isinstance(value, BufferRegion):
        return value
    raise TIRError(f"wanted a buffer region such as A[0:4, i], got {type(value).__name__}")


def vector_indices(region: BufferRegion) -> tuple[PrimExpr, ...]:
    """The indices of all elements of a region along its one axis that is longer than 1."""
    indices: list[PrimExpr] = []
    wide = 0
    for r in region.region:
        if not isinstance(r.extent, IntImm):
            raise TIRError(
                f"a slice of buffer {region.buffer.name} used as a value has a constant length"
            )
        if r.extent.value < 1:
            raise TIRError(f"a slice of buffer {region.buffer.name} used as a value is not empty")
        wide += r.extent.value > 1
        indices.append(r.min if r.extent.value == 1 else Ramp(r.min, 1, r.extent.value))
    if wide > 1:
        raise TIRError(f"a slice of buffer {region.buffer.name} used as a value has one long axis")
    return tuple(indices)


def flat_numbers(data: Any) -> Any:
    """Nested lists of numbers as one tuple; arrays as they are. Raises TIRError for others."""
    if hasattr(data, "reshape") or hasattr(data, "numpy"):
        return data
    flat: list[Any] = []
    stack = [data]
    while stack:
        each = stack.pop()
        if isinstance(each, (list, tuple)):
            stack.extend(reversed(each))
        elif isinstance(each, (IntImm, FloatImm)):
            flat.append(each.value)
        elif isinstance(each, (int, float)):
            flat.append(each)
        else:
            raise TIRError(f"constant data are numbers, got {type(each).__name__}")
    return tuple(flat)
