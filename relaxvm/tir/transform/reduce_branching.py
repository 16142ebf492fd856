"""Do without a condition where its other side is what the one side gives anyway.

    for i in range(16):                         for i in range(16):
        T.assume(i < 14 or A[i] == 0)               T.assume(i < 14 or A[i] == 0)
    for i in range(16):                         for i in range(16):
        if i < 14:                                  B[i] = A[i] + 1
            B[i] = A[i] + 1
        else:
            B[i] = 1

What is known of A comes from the stores before, and from `T.assume`. Only stores and choices whose
loads stay within their buffers without the condition.
"""

from __future__ import annotations

from typing import Any

from ...ir import GE, INTRINSICS, LT, Call, IRModule, Not, PassContext, PrimExpr, cast, walk
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..stmt import Buffer, BufferLoad, BufferStore, IfThenElse, PrimFunc
from .known_values import KnowingRewriter, has_effects
from .rewriter import Steps, is_plain

_IF = INTRINSICS["if_then_else"]


register_config(
    "tir.ReduceBranchingThroughOvercompute.use_dataflow_analysis",
    bool,
    False,
    "ReduceBranchingThroughOvercompute: no effect; what buffers hold is always known here",
)


@prim_func_pass(opt_level=0)
def ReduceBranchingThroughOvercompute(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Drop conditions without which the same is stored."""
    return _Reduce(fn).on_function(fn)


@prim_func_pass(opt_level=0)
def UseAssumeToReduceBranches(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Drop conditions without which the same is stored, if the function assumes anything."""
    assumes = any(isinstance(n, Call) and n.op is INTRINSICS["assume"] for n in walk(fn.body))
    return _Reduce(fn).on_function(fn) if assumes else fn


class _Reduce(KnowingRewriter):
    def expr(self, e: PrimExpr) -> PrimExpr:
        return transform(e, self._choice, pre=lambda n: n if isinstance(n, Buffer) else None)

    def _choice(self, n: Any) -> PrimExpr | None:
        if not (isinstance(n, Call) and n.op is _IF and n.dtype.lanes == 1):
            return None
        condition, yes, no = n.args
        if self._gives(yes, no, Not(condition)):
            return yes
        return no if self._gives(no, yes, condition) else None

    def on_if(self, stmt: IfThenElse) -> Steps:
        store, other = stmt.then_case, stmt.else_case
        if isinstance(store, BufferStore):
            value: PrimExpr | None = None
            if other is None:
                value = BufferLoad(store.buffer, store.indices)
            elif isinstance(other, BufferStore) and other.buffer is store.buffer:
                value = other.value if other.indices == store.indices else None
            if value is not None and self._gives(store.value, value, Not(stmt.condition), store):
                return (yield store)
        return (yield from super().on_if(stmt))

    def _gives(
        self, e: PrimExpr, wanted: PrimExpr, negation: PrimExpr, store: BufferStore | None = None
    ) -> bool:
        """Whether `e`, stored or used without the condition that `negation` denies, is `wanted`."""
        if not is_plain(negation) or any(has_effects(n) for n in (e, wanted)):
            return False
        with self.analyzer.constraint_scope(negation):
            loads = (n for n in walk(e) if isinstance(n, BufferLoad))
            if not all(map(self._is_inside, loads)) or not (
                store is None or self._is_inside(store)
            ):
                return False
            return self._known(e) is self._known(wanted)

    def _known(self, e: PrimExpr) -> PrimExpr:
        def value(n: Any) -> Any:
            return self.known.value_at(n.buffer, n.indices) if type(n) is BufferLoad else None

        return self.analyzer.simplify(transform(e, value))

    def _is_inside(self, access: BufferLoad | BufferStore) -> bool:
        prove = self.analyzer.can_prove
        return all(
            i.dtype.lanes == 1 and prove(GE(i, cast(i.dtype, 0))) and prove(LT(i, cast(i.dtype, e)))
            for i, e in zip(access.indices, access.buffer.shape)
        )
