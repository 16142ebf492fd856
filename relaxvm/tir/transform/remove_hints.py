"""Drop what computes nothing: `T.assume`, stores of `T.undef()`, and assertions.

T.evaluate(T.assume(A[i] < 4))              B[i] = A[i]
B[i] = T.undef()
assert A[i] < 4, "too large"
B[i] = A[i]
"""

from __future__ import annotations

from ...base import TIRError
from ...ir import INTRINSICS, Call, IRModule, PassContext, PrimExpr, walk
from ...ir.transform import prim_func_pass
from ..stmt import AssertStmt, BufferStore, Evaluate, PrimFunc, Stmt, seq
from .rewriter import Steps, StmtRewriter


@prim_func_pass(opt_level=0)
def RemoveAssume(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove every `T.assume` that stands as a statement."""
    return _RemoveAssume().on_function(fn)


class _RemoveAssume(StmtRewriter):
    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        return seq() if _calls(stmt.value, "assume") else stmt


@prim_func_pass(opt_level=0)
def SkipAssert(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove every assertion: what stands under it runs whether the condition holds or not."""
    return _SkipAssert().on_function(fn)


class _SkipAssert(StmtRewriter):
    def on_assert(self, stmt: AssertStmt) -> Steps:
        body: Stmt = yield stmt.body
        return body


@prim_func_pass(opt_level=0)
def RemoveStoreUndef(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove stores of `T.undef()`: what was there is as good as any value. Raises TIRError where
    `T.undef()` is part of something else.
    """
    result = _RemoveStoreUndef().on_function(fn)
    if any(isinstance(n, Call) and _calls(n, "undef") for n in walk(result.body)):
        raise TIRError("RemoveStoreUndef: T.undef() is used otherwise than as the value of a store")
    return result


class _RemoveStoreUndef(StmtRewriter):
    def on_store(self, stmt: BufferStore) -> Stmt:
        return seq() if _calls(stmt.value, "undef") else stmt


def _calls(e: PrimExpr, name: str) -> bool:
    return isinstance(e, Call) and e.op is INTRINSICS[name]
