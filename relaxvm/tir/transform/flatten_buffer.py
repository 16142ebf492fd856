"""Make every buffer one-dimensional: indices, strides and offsets become one 64-bit index.

    A: T.Buffer((16, 8), "float32")             A_1 = T.Buffer((128,), "float32", data=A.data)
    A[i, j] = 1.0                               A_1[i * 8 + j] = 1.0

The parameters keep their shapes: `buffer_map` is what callers see. A buffer of vectors becomes one
of their elements.
"""

from __future__ import annotations

from typing import Any

from ...base import DataType, TIRError
from ...ir import (
    Add,
    FloorDiv,
    FloorMod,
    IntImm,
    IRModule,
    Mul,
    Node,
    PassContext,
    PrimExpr,
    Ramp,
    Sub,
    binary,
    cast,
    const,
    walk,
)
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ..flat import flat_buffer, flat_index, strides_of
from ..stmt import Allocate, Buffer, BufferLoad, BufferStore, DeclBuffer, PrimFunc, Stmt
from .rewriter import ScopedRewriter, Steps, replace_tuple, with_loads

_INT64 = DataType("int64")
_DIVISIONS = {FloorDiv, FloorMod}
_ARITHMETIC = (Add, Sub, Mul, FloorDiv, FloorMod)


@prim_func_pass(opt_level=0)
def FlattenBuffer(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Flatten all accesses. Blocks must be gone (LowerOpaqueBlock)."""
    return _Flatten(fn).on_function(fn)


class _Flatten(ScopedRewriter):
    def __init__(self, fn: PrimFunc) -> None:
        super().__init__(fn)
        self.fn = fn
        self.flat: dict[Buffer, Buffer] = {}
        self._strides: dict[Buffer, tuple[PrimExpr, ...]] = {}
        self._widened: dict[int, tuple[Node, Node]] = {}

    def on_function(self, fn: PrimFunc) -> PrimFunc:
        body = self.run(fn.body)
        # Aliases of the parameters are declared around the body, in the order of the parameters.
        for buffer in reversed(fn.buffers):
            flat = self.flat.get(buffer)
            if flat is not None and flat is not buffer:
                body = DeclBuffer(flat, body)
        return fn.replace(body=body)

    # -- buffers -----------------------------------------------------------------------------------

    def flattened(self, buffer: Buffer) -> Buffer:
        """The one-dimensional buffer over the same memory."""
        flat = self.flat.get(buffer)
        if flat is None:
            flat = self.flat[buffer] = flat_buffer(buffer)
        return flat

    def on_decl(self, stmt: DeclBuffer) -> Steps:
        flat = self.flattened(stmt.buffer)
        body = yield stmt.body
        return stmt.replace(buffer=flat, body=body)

    def on_allocate(self, stmt: Allocate) -> Steps:
        body = yield stmt.body
        extents = stmt.extents
        if len(extents) != 1:
            total: PrimExpr = const(1, _INT64)
            for e in extents:
                total = binary(Mul, total, cast(_INT64, e))
            # A product that would not fit is kept as factors: the code generator checks it.
            if isinstance(total, IntImm) or not extents:
                extents = (total,) if _fits(stmt) else extents
        return stmt.replace(extents=extents, body=body)

    # -- accesses ----------------------------------------------------------------------------------

    def expr(self, e: PrimExpr) -> PrimExpr:
        return with_loads(e, self._access, self._memo)

    def _access(self, n: BufferLoad) -> BufferLoad:
        flat, index = self._place(n.buffer, n.indices)
        return n if flat is n.buffer and index is n.indices[0] else BufferLoad(flat, (index,))

    def on_store(self, stmt: BufferStore) -> Stmt:
        value, indices = self.expr(stmt.value), replace_tuple(stmt.indices, self.expr)
        flat, index = self._place(stmt.buffer, indices)
        return stmt.replace(
            buffer=flat,
            value=value,
            indices=indices if indices and index is indices[0] and len(indices) == 1 else (index,),
        )

    def _place(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> tuple[Buffer, PrimExpr]:
        flat = self.flattened(buffer)
        strides = self._strides.get(buffer)
        if strides is None:
            strides = self._strides[buffer] = strides_of(buffer)
        index = flat_index(buffer, indices, self.widen, strides)
        if not _DIVISIONS.isdisjoint(map(type, walk(index))):
            # What layouts of tiles leave behind: x // 8 * 8 + x % 8.
            index = self.analyzer.simplify(index)
        lanes = buffer.dtype.lanes
        if lanes == 1:
            return flat, index
        if index.dtype.lanes != 1:
            raise TIRError(
                f"FlattenBuffer: a vector access of {buffer.name}, whose elements are vectors"
            )
        return flat, Ramp(binary(Mul, index, const(lanes, _INT64)), const(1, _INT64), lanes)

    # -- 64-bit indices ----------------------------------------------------------------------------

    def define(self, values: Any) -> None:
        super().define(values)
        self._widened = {}

    def on_for(self, stmt: Any) -> Steps:
        # The range of a variable decides what can be widened: nothing is remembered across a
        # loop's edge.
        self._widened, self._memo = {}, {}
        loop = yield from super().on_for(stmt)
        self._widened, self._memo = {}, {}
        return loop

    def widen(self, index: PrimExpr) -> PrimExpr:
        """An int64 expression of the same value: the cast goes inside where bounds show that
        nothing wraps.
        """
        if index.dtype is _INT64:
            return index

        def outside(e: Any) -> PrimExpr | None:
            inside = type(e) in _ARITHMETIC and self._cannot_wrap(e)
            return None if inside else cast(_INT64, e)

        return transform(
            index, lambda e: binary(type(e), e.a, e.b), pre=outside, memo=self._widened
        )

    def _cannot_wrap(self, e: Any) -> bool:
        if not e.dtype.is_int or e.dtype.lanes != 1:
            return False
        if type(e) in (FloorDiv, FloorMod):
            # Nothing is larger than before; other divisors may be 0.
            return isinstance(e.b, IntImm) and e.b.value > 0
        (a, b), (c, d) = self.analyzer.const_int_bound(e.a), self.analyzer.const_int_bound(e.b)
        if type(e) is Add:
            low, high = a + c, b + d
        elif type(e) is Sub:
            low, high = a - d, b - c
        else:
            ends = (a * c, a * d, b * c, b * d)
            low, high = min(ends), max(ends)
        return bool(int(e.dtype.min_value) <= low and high <= int(e.dtype.max_value))


def _fits(stmt: Allocate) -> bool:
    total = 1
    for e in stmt.extents:
        total *= max(e.value, 0) if isinstance(e, IntImm) else 1
    return total < 1 << 62
