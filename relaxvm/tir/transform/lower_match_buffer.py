"""Replace the views of `T.match_buffer` inside blocks by the buffers they are views of.

    with T.block():                                        with T.block():
        A0 = T.match_buffer(A[i * 4:i * 4 + 4, 0:8], (4, 8))     A[i * 4 + j, k] = 1.0
        A0[j, k] = 1.0

Variables in the view's shape, strides and element offset get the values that the region gives
them. A constant that must equal one of them is asserted unless it can be proven.
"""

from __future__ import annotations

from typing import Any

from ...base import TIRError
from ...ir import (
    EQ,
    Add,
    IRModule,
    PassContext,
    PrimExpr,
    Ramp,
    StringImm,
    Var,
    binary,
    cast,
    const,
)
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ..flat import strides_of
from ..stmt import (
    AssertStmt,
    Block,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    MatchBufferRegion,
    PrimFunc,
    Stmt,
    statements_in,
)
from .rewriter import N, ScopedRewriter, Steps, replace_tuple


@prim_func_pass(opt_level=0)
def LowerMatchBuffer(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove every match_buffer of a block."""
    views = any(type(s) is Block and s.match_buffers for s in statements_in(fn.body))
    return _Lower(fn).on_function(fn) if views else fn


_ACCESSES = frozenset({Buffer, BufferLoad, BufferRegion})


def _kept(n: Any) -> Any:
    return n if type(n) is Buffer else None


class _Lower(ScopedRewriter):
    def __init__(self, fn: PrimFunc) -> None:
        super().__init__(fn)
        self.views: dict[Buffer, BufferRegion] = {}

    def resolve(self, n: N) -> N:
        if not self.views and not self.env:
            return n
        # A region's buffer and a load's buffer are children; what holds them is rewritten.
        return transform(n, self._access, _kept, self._memo, _ACCESSES)

    def _access(self, n: Any) -> Any:
        if n.buffer not in self.views:
            return None
        if type(n) is BufferRegion:
            return self._region(n)
        return BufferLoad(*self._source(n.buffer, n.indices))

    def _source(
        self, view: Buffer, indices: tuple[PrimExpr, ...]
    ) -> tuple[Buffer, tuple[PrimExpr, ...]]:
        source = self.views[view]
        leading = len(source.region) - len(indices)
        shifted = [r.min for r in source.region[:leading]]
        for r, index in zip(source.region[leading:], indices):
            shifted.append(_shifted(r.min, index))
        return source.buffer, tuple(shifted)

    def _region(self, n: BufferRegion) -> BufferRegion:
        source = self.views[n.buffer]
        leading = len(source.region) - len(n.region)
        ranges = list(source.region[:leading])
        for outer, inner in zip(source.region[leading:], n.region):
            ranges.append(inner.replace(min=binary(Add, outer.min, inner.min)))
        return BufferRegion(source.buffer, tuple(ranges))

    def on_store(self, stmt: BufferStore) -> Stmt:
        value, indices = self.expr(stmt.value), replace_tuple(stmt.indices, self.expr)
        if stmt.buffer in self.views:
            buffer, indices = self._source(stmt.buffer, indices)
            return BufferStore(buffer, value, indices, stmt.span)
        return stmt.replace(value=value, indices=indices)

    def on_block(self, stmt: Block) -> Steps:
        checks: list[PrimExpr] = []
        for match in stmt.match_buffers:
            checks += self._bind(match)

        block = (
            stmt.replace(
                reads=replace_tuple(stmt.reads, self.resolve),
                writes=replace_tuple(stmt.writes, self.resolve),
                match_buffers=(),
            )
            if self.views or stmt.match_buffers
            else stmt
        )
        init = stmt.init
        if init is not None:
            init = yield init
        body = yield stmt.body
        for check in reversed(checks):
            message = f"match_buffer in block {stmt.name_hint}: the region does not fit"
            body = AssertStmt(check, StringImm(message), body)
        return block.replace(init=init, body=body)

    def _bind(self, match: MatchBufferRegion) -> list[PrimExpr]:
        """Make a view known; returns what must hold for it."""
        view = match.buffer
        source = self.resolve(match.source)
        leading = len(source.region) - len(view.shape)
        if leading < 0:
            raise TIRError(
                f"match_buffer {view.name}: it has {len(view.shape)} dimensions, its source "
                f"{source.buffer.name} has {len(source.region)}"
            )
        if view.dtype is not source.buffer.dtype:
            raise TIRError(
                f"match_buffer {view.name}: {view.dtype} is a view of {source.buffer.dtype}"
            )
        self.views[view] = source
        wanted: list[tuple[PrimExpr, PrimExpr]] = [
            (const(1, r.extent.dtype), r.extent) for r in source.region[:leading]
        ]
        wanted += zip(view.shape, (r.extent for r in source.region[leading:]))
        strides = strides_of(source.buffer)
        if view.strides:
            wanted += zip(view.strides, strides[leading:])
        offset: PrimExpr = source.buffer.elem_offset
        for r, stride in zip(source.region, strides):
            offset = binary(Add, offset, binary_mul(r.min, stride))
        if isinstance(view.elem_offset, Var):
            wanted.append((view.elem_offset, offset))
        values: dict[Any, Any] = {view.data: source.buffer.data}
        checks: list[PrimExpr] = []
        for expected, got in wanted:
            if (
                isinstance(expected, Var)
                and expected not in values
                and id(expected) not in self.env
            ):
                values[expected] = cast(expected.dtype, got)
        self.define(values)
        for expected, got in wanted:
            if not isinstance(expected, Var) or expected not in values:
                condition = binary(EQ, self.expr(expected), got)
                if not self.analyzer.can_prove(condition):
                    checks.append(condition)
        return checks


def binary_mul(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    """a * b with dtypes matched."""
    return a * b


def _shifted(start: PrimExpr, index: PrimExpr) -> PrimExpr:
    """start + index, where the index may be a vector."""
    if index.dtype.lanes == 1:
        return binary(Add, start, index)
    if isinstance(index, Ramp):
        return Ramp(binary(Add, start, index.base), index.stride, index.lanes)
    return binary(Add, cast(index.dtype, start), index)
