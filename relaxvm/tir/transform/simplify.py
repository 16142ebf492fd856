"""Simplify expressions with what is known where they stand, and drop conditions that are decided.

for i in range(16):                         for i in range(16):
    if i < 16:                                  A[i] = 0.0
        A[(i * 4 + 3) // 4] = 0.0
"""

from __future__ import annotations

from ...ir import IntImm, IRModule, PassContext, PrimExpr, substitute
from ...ir.transform import prim_func_pass
from ..stmt import AssertStmt, BufferStore, Evaluate, For, ForKind, IfThenElse, PrimFunc, While, seq
from .rewriter import ScopedRewriter, Steps, constant, replace_tuple, stable

__all__ = ["Simplify"]


@prim_func_pass(opt_level=0)
def Simplify(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Simplify every expression under the ranges of the loops and the conditions around it."""
    return _Simplify(fn).on_function(fn)


class _Simplify(ScopedRewriter):
    def expr(self, e: PrimExpr) -> PrimExpr:
        return self.analyzer.simplify(e)

    def on_store(self, stmt: BufferStore) -> Steps:
        return stmt.replace(
            value=self.expr(stmt.value), indices=replace_tuple(stmt.indices, self.expr)
        )
        yield stmt

    def on_for(self, stmt: For) -> Steps:
        first, extent = self.expr(stmt.min), self.expr(stmt.extent)
        count = constant(extent)
        if count is not None and count <= 0:
            return seq()
        if count == 1 and stmt.kind != ForKind.THREAD_BINDING and not stmt.annotations:
            body = yield substitute(stmt.body, {stmt.loop_var: first})
            return body
        made = stmt.replace(min=first, extent=extent)
        with self.loop_range(made):
            body = yield stmt.body
        return made.replace(body=body)

    def on_if(self, stmt: IfThenElse) -> Steps:
        condition = self.expr(stmt.condition)
        if isinstance(condition, IntImm):
            taken = stmt.then_case if condition.value else stmt.else_case
            if taken is None:
                return seq()
            made = yield taken
            return made
        with self.analyzer.constraint_scope(stable(condition)):
            then_case = yield stmt.then_case
        else_case = stmt.else_case
        if else_case is not None:
            else_case = yield else_case
        return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)

    def on_assert(self, stmt: AssertStmt) -> Steps:
        condition = self.expr(stmt.condition)
        if isinstance(condition, IntImm) and condition.value:
            body = yield stmt.body
            return body
        with self.analyzer.constraint_scope(stable(condition)):
            body = yield stmt.body
        return stmt.replace(condition=condition, body=body)

    def on_while(self, stmt: While) -> Steps:
        condition = self.expr(stmt.condition)
        if isinstance(condition, IntImm) and not condition.value:
            return seq()
        body = yield stmt.body
        return stmt.replace(condition=condition, body=body)

    def on_evaluate(self, stmt: Evaluate) -> Steps:
        return stmt.replace(value=self.expr(stmt.value))
        yield stmt
