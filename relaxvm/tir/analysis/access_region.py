"""Which boxes of which buffers a block reads and writes.

for i in range(4):
    C[vi] = C[vi] + A[vi * 4 + i]         reads C[vi], A[vi * 4 : vi * 4 + 4]     writes C[vi]
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ...arith import Analyzer, Ends, Interval, interval_of
from ...base import TIRError
from ...ir import INTRINSICS, Call, Let, Max, Min, Range, Var, cast, const
from ..stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    SeqStmt,
    While,
)
from .scope import post_order_expr


def get_block_access_region(
    block: Block, buffer_data_to_buffer: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """[reads, writes, opaque] of a block, in order of first access.

    buffer_data_to_buffer  the buffers that exist outside, by their data variables; others are left
                           out. Without it, all but those made inside the block

    A region is exact for indices that are sums of loop variables with constant factors, and
    otherwise as small as can be proved, up to the whole buffer. What a block with `init` writes is
    not listed among its reads. `opaque` lists the buffers whose address is taken.
    """
    if not isinstance(block, Block):
        raise TIRError(f"get_block_access_region: wanted a Block, got {type(block).__name__}")
    finder = _Finder(block, buffer_data_to_buffer)
    finder.run()
    return finder.result()


def get_block_read_write_region(
    block: Block, buffer_data_to_buffer: Mapping[Var, Buffer] | None = None
) -> list[list[BufferRegion]]:
    """[reads, writes] of a block; a buffer whose address is taken is read and written whole."""
    reads, writes, opaque = get_block_access_region(block, buffer_data_to_buffer)
    taken = {id(r.buffer) for r in opaque}
    return [[r for r in side if id(r.buffer) not in taken] + opaque for side in (reads, writes)]


class _Box:
    """The boxes of one buffer met so far, as one; None for an axis: all of it."""

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer
        self.axes: list[Interval | None] = []
        self.empty = True

    def add(self, axes: list[Interval | None], analyzer: Analyzer) -> None:
        if self.empty:
            self.axes, self.empty = axes, False
            return
        for k, (old, new) in enumerate(zip(self.axes, axes)):
            if old is None or new is None:
                self.axes[k] = None
            elif old != new:
                ends = Ends(analyzer).extreme
                self.axes[k] = ends(Min, old[0], new[0]), ends(Max, old[1], new[1])

    def region(self, analyzer: Analyzer) -> BufferRegion:
        ranges = []
        for axis, extent in zip(self.axes, self.buffer.shape):
            if axis is None:
                ranges.append(Range.from_min_extent(const(0, extent.dtype), extent))
                continue
            low, high = axis
            if low is high:
                ranges.append(Range.from_min_extent(low, const(1, low.dtype)))
            else:
                high = cast(low.dtype, high)
                ranges.append(
                    Range.from_min_extent(analyzer.simplify(low), analyzer.simplify(high - low + 1))
                )
        return BufferRegion(self.buffer, tuple(ranges))


class _Finder:
    def __init__(self, block: Block, outside: Mapping[Var, Buffer] | None) -> None:
        self.block, self.outside = block, outside
        self.analyzer = Analyzer(wrap=False)
        self.reads: dict[Buffer, _Box] = {}
        self.writes: dict[Buffer, _Box] = {}
        self.opaque: dict[Buffer, None] = {}
        self.inside: set[int] = set()
        # What a block declares, it may use by way of pointers alone.
        self.by_data = {id(r.buffer.data): r.buffer for r in (*block.reads, *block.writes)}
        self.sources: dict[Buffer, BufferRegion] = {}
        # The values of variables that move. One table is enough: a variable is defined before what
        # is in its scope is visited.
        self.known: dict[Any, Interval | None] = {}
        self._stack: list[tuple[Any, bool]] = []  # statement, whether a condition guards it

    def result(self) -> list[list[BufferRegion]]:
        written = set(self.writes) if self.block.init is not None else set()
        reads = [b.region(self.analyzer) for k, b in self.reads.items() if k not in written]
        writes = [b.region(self.analyzer) for b in self.writes.values()]
        return [reads, writes, [BufferRegion.full_region(b) for b in self.opaque]]

    def run(self) -> None:
        for axis in self.block.iter_vars:
            if axis.dom is not None:
                self.analyzer.bind(axis.var, axis.dom, allow_override=True)
        self._enter(self.block, False)
        while self._stack:
            s, guarded = self._stack.pop()
            visit = _VISITS.get(type(s))
            if visit is None:
                raise TIRError(f"get_block_access_region: cannot look into a {type(s).__name__}")
            visit(self, s, guarded)

    def _enter(self, block: Block, guarded: bool) -> None:
        for b in block.alloc_buffers:
            self.inside.add(id(b.data))
        for m in block.match_buffers:
            if self._origin(m.source.buffer) is m.buffer:
                raise TIRError(f"match_buffer {m.buffer.name} is its own source")
            self.sources[m.buffer] = m.source
            self.by_data[id(m.buffer.data)] = m.buffer
            for e in (*m.buffer.shape, *m.buffer.strides, m.buffer.elem_offset):
                if isinstance(e, Var):
                    self.known.setdefault(e, None)
        self._push(guarded, block.init, block.body)

    def _push(self, guarded: bool, *stmts: Any) -> None:
        self._stack.extend((s, guarded) for s in reversed(stmts) if s is not None)

    # -- accesses ----------------------------------------------------------------------------------

    def _origin(self, buffer: Buffer) -> Buffer:
        while buffer in self.sources:
            buffer = self.sources[buffer].buffer
        return buffer

    def _counts(self, buffer: Buffer) -> bool:
        if id(buffer.data) in self.inside:
            return False
        return self.outside is None or buffer.data in self.outside

    def _access(
        self, table: dict[Buffer, _Box], buffer: Buffer, indices: Iterable[Any], guarded: bool
    ) -> None:
        axes = [self._axis(i, e, guarded) for i, e in zip(indices, buffer.shape)]
        self._add(table, buffer, axes, guarded)

    def _axis(self, index: Any, extent: Any, guarded: bool) -> Interval | None:
        interval = interval_of(index, self.known, self.analyzer)
        if interval is None:
            return None
        low, high = self.analyzer.simplify(interval[0]), self.analyzer.simplify(interval[1])
        if guarded:
            # What is executed is in bounds, so a guarded access may be cut to them.
            ends = Ends(self.analyzer).extreme
            low = ends(Max, low, const(0, low.dtype))
            high = ends(Min, high, cast(high.dtype, extent) - 1)
        return low, high

    def _add(
        self,
        table: dict[Buffer, _Box],
        buffer: Buffer,
        axes: list[Interval | None],
        guarded: bool,
    ) -> None:
        # An access by way of match_buffer counts as one of all that it matches.
        while buffer in self.sources:
            source = self.sources[buffer]
            axes = [
                self._range(r.min, r.extent, e, guarded)
                for r, e in zip(source.region, source.buffer.shape)
            ]
            buffer = source.buffer
        if not self._counts(buffer):
            return
        self.by_data.setdefault(id(buffer.data), buffer)
        if buffer not in table:
            table[buffer] = _Box(buffer)
        table[buffer].add(axes, self.analyzer)

    def _range(self, low: Any, extent: Any, size: Any, guarded: bool) -> Interval | None:
        first = self._axis(low, size, guarded)
        last = self._axis(low + cast(low.dtype, extent) - 1, size, guarded)
        if first is None or last is None:
            return None
        return first[0], last[1]

    def _expr(self, expr: Any, guarded: bool) -> None:
        order = post_order_expr(expr)
        if any(type(n) is Call and n.op is INTRINSICS["if_then_else"] for n in order):
            guarded = True
        if any(type(n) is Let for n in order):
            # The variables of lets move in ways not followed here.
            self.known.update({n.var: None for n in order if type(n) is Let})
        for n in order:
            if type(n) is Call:
                self._call(n)
            elif type(n) is BufferLoad:
                self._access(self.reads, n.buffer, n.indices, guarded)

    def _call(self, n: Call) -> None:
        for a in n.args:
            arg: Any = a
            if n.op is INTRINSICS["address_of"] and isinstance(arg, BufferLoad):
                arg = arg.buffer
            if isinstance(arg, Var) and arg.dtype.is_handle:
                arg = self._of_data(arg)
            if isinstance(arg, Buffer):
                arg = self._origin(arg)
                if self._counts(arg):
                    self.opaque[arg] = None

    def _of_data(self, data: Var) -> Buffer | None:
        if self.outside is not None and data in self.outside:
            return self.outside[data]
        return self.by_data.get(id(data))

    # -- statements --------------------------------------------------------------------------------

    def _seq(self, s: SeqStmt, guarded: bool) -> None:
        self._push(guarded, *s.seq)

    def _store(self, s: BufferStore, guarded: bool) -> None:
        for e in (*s.indices, s.value):
            self._expr(e, guarded)
        self._access(self.writes, s.buffer, s.indices, guarded)

    def _for(self, s: For, guarded: bool) -> None:
        self._expr(s.min, guarded)
        self._expr(s.extent, guarded)
        self._loop(s.loop_var, s.min, s.extent, s.body, guarded)

    def _loop(self, var: Var, low: Any, extent: Any, body: Any, guarded: bool) -> None:
        first = interval_of(low, self.known, self.analyzer)
        last = interval_of(low + extent - 1, self.known, self.analyzer)
        moving = None if first is None or last is None else (first[0], last[1])
        if moving is not None:
            moving = (self.analyzer.simplify(moving[0]), self.analyzer.simplify(moving[1]))
        self.known[var] = moving
        self._push(guarded, body)

    def _while(self, s: While, guarded: bool) -> None:
        self._expr(s.condition, guarded)
        self._push(guarded, s.body)

    def _if(self, s: IfThenElse, guarded: bool) -> None:
        self._expr(s.condition, guarded)
        self._push(True, s.then_case, s.else_case)

    def _let(self, s: LetStmt, guarded: bool) -> None:
        self._expr(s.value, guarded)
        value = interval_of(s.value, self.known, self.analyzer) if s.var.dtype.is_int else None
        self.known[s.var] = value
        self._push(guarded, s.body)

    def _evaluate(self, s: Evaluate, guarded: bool) -> None:
        self._expr(s.value, guarded)

    def _assert(self, s: AssertStmt, guarded: bool) -> None:
        self._expr(s.condition, guarded)
        self._push(guarded, s.body)

    def _attr(self, s: AttrStmt, guarded: bool) -> None:
        self._expr(s.value, guarded)
        if s.attr_key == "thread_extent" and isinstance(s.node, IterVar):
            self._loop(s.node.var, const(0, s.node.var.dtype), s.value, s.body, guarded)
        else:
            self._push(guarded, s.body)

    def _allocate(self, s: Any, guarded: bool) -> None:
        self.inside.add(id(s.buffer_var))
        self._push(guarded, s.body)

    def _declare(self, s: DeclBuffer, guarded: bool) -> None:
        self._push(guarded, s.body)

    def _block(self, s: BlockRealize, guarded: bool) -> None:
        for e in (*s.iter_values, s.predicate):
            self._expr(e, guarded)
        inner = guarded or not getattr(s.predicate, "value", 0)
        bound = [interval_of(v, self.known, self.analyzer) for v in s.iter_values]
        self.known.update(zip([axis.var for axis in s.block.iter_vars], bound))
        if not s.block.reads and not s.block.writes:
            self._enter(s.block, inner)
            return
        for table, regions in ((self.reads, s.block.reads), (self.writes, s.block.writes)):
            for region in regions:
                axes = [
                    self._range(r.min, r.extent, e, inner)
                    for r, e in zip(region.region, region.buffer.shape)
                ]
                self._add(table, region.buffer, axes, inner)


_VISITS: dict[type, Any] = {
    SeqStmt: _Finder._seq,
    BufferStore: _Finder._store,
    For: _Finder._for,
    While: _Finder._while,
    IfThenElse: _Finder._if,
    LetStmt: _Finder._let,
    Evaluate: _Finder._evaluate,
    AssertStmt: _Finder._assert,
    AttrStmt: _Finder._attr,
    Allocate: _Finder._allocate,
    AllocateConst: _Finder._allocate,
    DeclBuffer: _Finder._declare,
    BlockRealize: _Finder._block,
}
