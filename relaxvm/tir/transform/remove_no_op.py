"""Drop statements that do nothing: empty loops and branches, pure evaluations, unused lets and
allocations.

for i in range(8):                          A[0] = 1.0
    T.evaluate(0)
A[0] = 1.0
"""

from __future__ import annotations

from ...ir import Call, Intrinsic, IRModule, Not, PassContext, PrimExpr, walk
from ...ir.transform import prim_func_pass, register_config
from ..stmt import (
    Allocate,
    AllocateConst,
    AttrStmt,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    is_no_op,
    seq,
)
from .known_values import KnowingRewriter
from .rewriter import Steps, StmtRewriter

# Of so many statements behind it a store is compared with.
_FAR = 16

register_config(
    "tir.RemoveNoOp.use_dataflow_analysis",
    bool,
    False,
    "RemoveNoOp: stores of what is there already go, and those repeated before anything reads them",
)
register_config(
    "tir.RemoveNoOp.max_simplification_steps",
    int,
    0,
    "RemoveNoOp: no effect; nothing here is simplified again and again",
    lambda value: value >= 0,
)


@prim_func_pass(opt_level=0)
def RemoveNoOp(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove what has no effect. Expressions that read memory count as having one."""
    if ctx.get("tir.RemoveNoOp.use_dataflow_analysis"):
        fn = _RemoveStores(fn).on_function(fn)
    return _Remove().on_function(fn)


class _RemoveStores(KnowingRewriter):
    """Without stores of what is there already, and of what nothing reads before the next store."""

    def on_store(self, stmt: BufferStore) -> Stmt:
        there = self.known.value_at(stmt.buffer, stmt.indices)
        again = there is not None and there is self.analyzer.simplify(stmt.value)
        if again or stmt.value is BufferLoad(stmt.buffer, stmt.indices):
            return seq() if all(map(_is_pure, stmt.indices)) else stmt
        return super().on_store(stmt)

    def on_seq(self, stmt: SeqStmt) -> Steps:
        parts: list[Stmt] = [
            each
            for k, each in enumerate(stmt.seq)
            if not self.known.overwrites(each, stmt.seq[k + 1 : k + 1 + _FAR])
        ]
        if len(parts) < len(stmt.seq):
            kept = yield seq(*parts)
        else:
            kept = yield from super().on_seq(stmt)
        return kept


class _Remove(StmtRewriter):
    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        return seq() if not is_no_op(stmt) and _is_pure(stmt.value) else stmt

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
