"""Drop statements that do nothing: empty loops and branches, pure evaluations, unused lets and
allocations.

for i in range(8):                          A[0] = 1.0
    T.evaluate(0)
A[0] = 1.0
"""

from __future__ import annotations

from ...ir import Call, Intrinsic, IRModule, Not, PassContext, PrimExpr, walk
from ...ir.transform import prim_func_pass
from ..stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    BufferLoad,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    is_no_op,
    seq,
)
from .rewriter import Steps, StmtRewriter

__all__ = ["RemoveNoOp"]


@prim_func_pass(opt_level=0)
def RemoveNoOp(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove what has no effect. Expressions that read memory count as having one."""
    return _Remove().on_function(fn)


class _Remove(StmtRewriter):
    def on_evaluate(self, stmt: Evaluate) -> Steps:
        return seq() if not is_no_op(stmt) and _is_pure(stmt.value) else stmt
        yield stmt

    def on_for(self, stmt: For) -> Steps:
        body = yield stmt.body
        return body if is_no_op(body) else stmt.replace(body=body)

    def on_if(self, stmt: IfThenElse) -> Steps:
        then_case = yield stmt.then_case
        else_case = stmt.else_case
        if else_case is not None:
            else_case = yield else_case
            if is_no_op(else_case):
                else_case = None
        if not is_no_op(then_case):
            return stmt.replace(then_case=then_case, else_case=else_case)
        if else_case is None:
            return seq() if _is_pure(stmt.condition) else Evaluate(stmt.condition)
        return stmt.replace(condition=Not(stmt.condition), then_case=else_case, else_case=None)

    def on_let(self, stmt: LetStmt) -> Steps:
        body = yield stmt.body
        if is_no_op(body) and _is_pure(stmt.value):
            return body
        return stmt.replace(body=body)

    def on_allocate(self, stmt: Allocate) -> Steps:
        body = yield stmt.body
        return body if is_no_op(body) else stmt.replace(body=body)

    def on_allocate_const(self, stmt: AllocateConst) -> Steps:
        body = yield stmt.body
        return body if is_no_op(body) else stmt.replace(body=body)

    def on_decl(self, stmt: DeclBuffer) -> Steps:
        body = yield stmt.body
        return body if is_no_op(body) else stmt.replace(body=body)

    def on_attr(self, stmt: AttrStmt) -> Steps:
        body = yield stmt.body
        return body if is_no_op(body) else stmt.replace(body=body)


def _is_pure(e: PrimExpr) -> bool:
    """Whether evaluating `e` changes nothing, cannot leave, and reads no memory (which might be
    out of bounds).
    """
    for n in walk(e):
        if isinstance(n, BufferLoad):
            return False
        if isinstance(n, Call) and not (isinstance(n.op, Intrinsic) and n.op.effect == "pure"):
            return False
    return True
