"""Check every access that is not provably inside its memory.

    B[A[i]] = 1.0                               B[bound_check(A[i], 16, "B")] = 1.0

`bound_check(index, limit, name)` is `index` where 0 <= index < limit; elsewhere the function
leaves with a failure that names the buffer. It stands where the index is evaluated, so accesses
behind conditions are checked only if reached.

Runs where `PassContext(config={"tir.instrument_bound_checkers": True})` says so, and on every
kernel that is rebuilt from a file: together with the checks of the wrapper it keeps such a kernel
inside the memory it was given. What it relies on is checked elsewhere: sizes (wrapper),
allocations (code generator), single definitions (here).
"""

from __future__ import annotations

from typing import Any

from ...arith import ConstIntBound
from ...base import DataType, TIRError
from ...ir import (
    EQ,
    GE,
    LT,
    FloorDiv,
    IntImm,
    IRModule,
    Let,
    Max,
    Mul,
    Or,
    PassContext,
    PrimExpr,
    Select,
    Var,
    binary,
    cast,
    const,
    walk,
)
from ...ir.transform import prim_func_pass, register_config
from ..flat import flat_extent
from ..stmt import (
    Allocate,
    AllocateConst,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    LetStmt,
    PrimFunc,
    Stmt,
)
from .bound_check import checked_index
from .rewriter import ScopedRewriter, Steps, with_loads

_INT64 = DataType("int64")

register_config(
    "tir.instrument_bound_checkers",
    bool,
    False,
    "check at run time every access that is not provably in bounds",
)


@prim_func_pass(opt_level=0)
def InstrumentBoundCheckers(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, *, force: bool = False
) -> PrimFunc:
    """Guard accesses. Buffers must be flat (FlattenBuffer). Does nothing unless configured or
    `force`d.
    """
    if not (force or ctx.get("tir.instrument_bound_checkers")):
        return fn
    _require_single_definitions(fn)
    return _Instrument(fn).on_function(fn)


def _require_single_definitions(fn: PrimFunc) -> None:
    seen: dict[Var, Any] = dict.fromkeys(fn.params)
    for n in walk(fn.body):
        if isinstance(n, (For, LetStmt, Let, Allocate, AllocateConst)):
            var = (
                n.loop_var
                if isinstance(n, For)
                else n.buffer_var
                if hasattr(n, "buffer_var")
                else n.var
            )
            if var in seen:
                raise TIRError(f"variable {var.name} is defined twice; rename one of the two")
            seen[var] = n


class _Instrument(ScopedRewriter):
    def __init__(self, fn: PrimFunc) -> None:
        super().__init__(fn)
        self.limits: dict[Var, PrimExpr] = {}
        self._memo = {}
        for buffer in fn.buffers:
            self.limits[buffer.data] = _bytes(_parameter_elements(buffer), buffer.dtype)

    # -- memory ------------------------------------------------------------------------------------

    def on_allocate(self, stmt: Allocate) -> Steps:
        lets: list[tuple[Var, PrimExpr]] = []
        extents = []
        total: PrimExpr = const(stmt.dtype.lanes, _INT64)
        for e in stmt.extents:
            e = self.expr(e)
            if not isinstance(e, IntImm):
                # The size is fixed here: memory that the extent was read from may change.
                wide = binary(Max, cast(_INT64, e), const(0, _INT64))
                var = Var(f"{stmt.buffer_var.name}_extent", _INT64)
                lets.append((var, wide))
                self.analyzer.update(var, ConstIntBound(0, int(_INT64.max_value)))
                e = var
            extents.append(e)
            total = binary(
                Mul,
                total,
                cast(_INT64, e) if not isinstance(e, IntImm) else const(max(e.value, 0), _INT64),
            )
        self.limits[stmt.buffer_var] = _bytes(total, stmt.dtype.element)
        body = yield stmt.body
        result: Stmt = stmt.replace(extents=tuple(extents) if lets else stmt.extents, body=body)
        for var, value in reversed(lets):
            result = LetStmt(var, value, result)
        return result

    def on_allocate_const(self, stmt: AllocateConst) -> Steps:
        self.limits[stmt.buffer_var] = const(len(stmt.data) * stmt.dtype.itemsize, _INT64)
        body = yield stmt.body
        return stmt.replace(body=body)

    # -- ranges ------------------------------------------------------------------------------------

    def on_for(self, stmt: For) -> Steps:
        self._memo = {}
        first, extent = self.expr(stmt.min), self.expr(stmt.extent)
        loop = stmt.replace(min=first, extent=extent)
        self.enter(loop)
        body = yield stmt.body
        self._memo = {}
        return loop.replace(body=body)

    # -- accesses ----------------------------------------------------------------------------------

    def expr(self, e: PrimExpr) -> PrimExpr:
        return with_loads(e, self._access, self._memo)

    def _access(self, n: BufferLoad) -> BufferLoad:
        index = self._checked(n.buffer, n.indices)
        return n if index is n.indices[0] else BufferLoad(n.buffer, (index,))

    def on_store(self, stmt: BufferStore) -> Stmt:
        value = self.expr(stmt.value)
        index = self._checked(stmt.buffer, tuple(self.expr(i) for i in stmt.indices))
        same = index is stmt.indices[0] and value is stmt.value
        return stmt if same else stmt.replace(value=value, indices=(index,))

    def _checked(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> PrimExpr:
        if len(indices) != 1 or buffer.dtype.lanes != 1:
            raise TIRError(
                f"InstrumentBoundCheckers: {buffer.name} is not flat; run FlattenBuffer first"
            )
        limit = self.limits.get(buffer.data)
        if limit is None:
            raise TIRError(
                f"InstrumentBoundCheckers: the memory behind {buffer.name} is not known here"
            )
        size = const(buffer.dtype.itemsize, _INT64)
        if not isinstance(buffer.elem_offset, IntImm) or buffer.elem_offset.value or buffer.strides:
            raise TIRError(
                f"InstrumentBoundCheckers: {buffer.name} is not flat; run FlattenBuffer first"
            )
        elements = _divided(limit, size)
        return checked_index(indices[0], elements, buffer.name, self._proven)

    def _proven(self, index: PrimExpr, limit: PrimExpr) -> bool:
        low, high = self.analyzer.const_int_bound(index)
        if low < 0:
            return False
        if isinstance(limit, IntImm):
            return high < limit.value
        wide = cast(_INT64, index)
        return bool(
            self.analyzer.can_prove(LT(wide, limit))
            and self.analyzer.can_prove(GE(wide, const(0, _INT64)))
        )


def _parameter_elements(buffer: Buffer) -> PrimExpr:
    """How many elements a parameter's memory has. An empty array has none, whatever its strides
    say.
    """
    elements = flat_extent(buffer)
    if buffer.strides:
        empty: PrimExpr | None = None
        for e in buffer.shape:
            is_zero = binary(EQ, cast(_INT64, e), const(0, _INT64))
            empty = is_zero if empty is None else Or(empty, is_zero)
        if empty is not None:
            elements = Select(empty, const(0, _INT64), elements)
    return elements


def _bytes(elements: PrimExpr, dtype: DataType) -> PrimExpr:
    return binary(Mul, elements, const(dtype.itemsize, _INT64))


def _divided(limit: PrimExpr, size: PrimExpr) -> PrimExpr:
    """limit // size; undoes the multiplication where it can be seen."""
    if isinstance(limit, Mul) and limit.b is size:
        return limit.a
    return binary(FloorDiv, limit, size)
