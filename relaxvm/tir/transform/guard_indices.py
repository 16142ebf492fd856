"""Guard each index that is not provably within its axis: nothing a kernel is given may crash it.

    B[i] = A[I[i]]                              B[i] = A[bound_check(I[i], 16, "A")]

`bound_check(index, limit, name)` is `index` where 0 <= index < limit; elsewhere the function
leaves with a failure that names the buffer. It stands where the index is evaluated, so accesses
behind conditions are checked only if reached.

What follows from loop ranges, conditions around the access and sizes is proven here, axis by axis,
while the axes are still to be seen. So ordinary kernels carry no guards; what stays are indices
read from data, given as scalars, or beyond what `arith` can prove. Kernels that a file brings are
not trusted to declare their buffers rightly: `InstrumentBoundCheckers` guards their flat accesses
as well. `PassContext(config={"tir.guard_indices": False})` leaves the guards out, for those who
know their data.
"""

from __future__ import annotations

import operator
from typing import Any

from ...base import DataType
from ...ir import (
    Call,
    FloorMod,
    IntImm,
    Intrinsic,
    IRModule,
    Let,
    Not,
    PassContext,
    PrimExpr,
    Var,
    cast,
)
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..stmt import Buffer, BufferLoad, BufferStore, IfThenElse, LetStmt, PrimFunc, Stmt, While
from .bound_check import checked_index
from .rewriter import ScopedRewriter, Steps, reads_memory, replace_tuple, stable

_INT64 = DataType("int64")
_MAX_NESTING = 64
# Arms that share expressions are looked at under every way to them, up to this many.
_MAX_BRANCHES = 200

register_config(
    "tir.guard_indices",
    bool,
    True,
    "check at run time every index that is not provably within its axis",
)


@prim_func_pass(opt_level=0)
def GuardIndices(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Guard indices that may leave their axis. Blocks must be lowered, buffers not yet flat."""
    return _Guard(fn).on_function(fn) if ctx.get("tir.guard_indices") else fn


_ASKED = frozenset({Buffer, BufferLoad, Let, Call})


class _Guard(ScopedRewriter):
    def __init__(self, fn: PrimFunc) -> None:
        super().__init__(fn)
        self._nesting = 0
        self._branches = 0

    # -- what is known -----------------------------------------------------------------------------

    def on_for(self, stmt: Any) -> Steps:
        self._memo = {}
        narrowed = self.with_range(stmt)
        extent = narrowed.extent
        if isinstance(extent, IntImm) and extent.value >= 1:
            self.enter(narrowed)
            body = yield stmt.body
        else:
            # Where the body runs, the extent is not 0: x % n is below n there.
            with self._given(extent >= 1):
                self.enter(narrowed)
                body = yield stmt.body
        self._memo = {}
        return narrowed if body is narrowed.body else narrowed.replace(body=body)

    def on_if(self, stmt: IfThenElse) -> Steps:
        condition = self.expr(stmt.condition)
        with self._given(stmt.condition):
            then_case = yield stmt.then_case
        else_case = stmt.else_case
        if else_case is not None:
            with self._given(Not(stmt.condition)):
                else_case = yield else_case
        self._memo = {}
        return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)

    def on_while(self, stmt: While) -> Steps:
        condition = self.expr(stmt.condition)
        body = yield stmt.body
        self._memo = {}
        return stmt.replace(condition=condition, body=body)

    def on_let(self, stmt: LetStmt) -> Steps:
        value = self.expr(stmt.value)
        self._learn(stmt.var, stmt.value)
        body = yield stmt.body
        return stmt.replace(value=value, body=body)

    def _given(self, condition: PrimExpr) -> Any:
        # What was decided without the condition need not hold for what is decided with it.
        self._memo = {}
        return self.analyzer.constraint_scope(stable(condition))

    def _learn(self, var: Var, value: PrimExpr) -> None:
        if not var.dtype.is_int or var.dtype.lanes != 1:
            return
        if reads_memory(value):
            self.analyzer.update(var, self.analyzer.const_int_bound(value))
        else:
            self.analyzer.bind(var, value, allow_override=True)

    # -- accesses ----------------------------------------------------------------------------------

    def on_store(self, stmt: BufferStore) -> Stmt:
        value = self.expr(stmt.value)
        indices = self._checked(stmt.buffer, replace_tuple(stmt.indices, self.expr))
        return stmt.replace(value=value, indices=indices)

    def expr(self, e: PrimExpr) -> PrimExpr:
        if type(e) in (Var, IntImm):
            return e
        return transform(e, self._access, self._enter, self._memo, _ASKED)

    def _enter(self, n: Any) -> Any:
        if type(n) is Buffer:
            return n
        if type(n) is Let:
            self._learn(n.var, n.value)
        if type(n) is not Call or not _is_branch(n):
            return None
        self._branches = self._branches + 1 if self._nesting else 0
        if self._nesting >= _MAX_NESTING or self._branches >= _MAX_BRANCHES:
            return None
        # Only the arm that is taken is evaluated, so its condition holds there.
        condition, then_value, else_value = n.args
        before = self._memo
        self._nesting += 1
        args = [self.expr(condition)]
        for known, arm in ((condition, then_value), (Not(condition), else_value)):
            with self._given(known):
                args.append(self.expr(arm))
        self._nesting -= 1
        self._memo = before
        same = all(a is b for a, b in zip(args, n.args))
        return n if same else n.replace(args=tuple(args))

    def _access(self, n: Any) -> Any:
        if type(n) is not BufferLoad:
            return None
        return n.replace(indices=self._checked(n.buffer, n.indices))

    def _checked(self, buffer: Buffer, indices: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        if len(indices) != len(buffer.shape):
            return indices
        pairs = zip(indices, buffer.shape)
        checked = [checked_index(i, e, buffer.name, self._proven) for i, e in pairs]
        return indices if all(map(operator.is_, checked, indices)) else tuple(checked)

    def _proven(self, index: PrimExpr, extent: PrimExpr) -> bool:
        low, high = self.analyzer.const_int_bound(index)
        if low >= 0 and isinstance(extent, IntImm) and high < extent.value:
            return True
        if isinstance(index, FloorMod) and index.b is extent:
            return self.analyzer.const_int_bound(extent).min_value >= 1
        wide = index if index.dtype is extent.dtype else cast(_INT64, index)
        limit = extent if index.dtype is extent.dtype else cast(_INT64, extent)
        return bool(
            (low >= 0 or self.analyzer.can_prove(wide >= 0))
            and self.analyzer.can_prove(wide < limit)
        )


def _is_branch(n: Call) -> bool:
    return isinstance(n.op, Intrinsic) and n.op.name == "tir.if_then_else" and len(n.args) == 3
