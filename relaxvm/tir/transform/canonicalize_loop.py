"""Let every loop begin at 0.

for i in range(2, 10):                      for i in range(8):
    A[i] = 1.0                                  A[i + 2] = 1.0
"""

from __future__ import annotations

from ...ir import IRModule, PassContext, Var, const
from ...ir import transform as passes
from ..copies import renew
from ..stmt import Block, For, LetStmt, PrimFunc
from .rewriter import ScopedRewriter, Steps, constant, is_plain, replace_tuple


@passes.prim_func_pass(opt_level=0)
def CanonicalizeLoop(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Let every loop begin at 0, but those bound to threads."""
    return _FromZero().on_function(fn)


class _FromZero(ScopedRewriter):
    def on_for(self, stmt: For) -> Steps:
        start, extent = self.expr(stmt.min), self.expr(stmt.extent)
        if constant(start) == 0 or stmt.thread_binding is not None:
            body = yield stmt.body
            return stmt.replace(min=start, extent=extent, body=body)
        var, zero = renew(stmt.loop_var), const(0, stmt.loop_var.dtype)
        # The body may store where a computed start was read.
        held = None if is_plain(start) else Var("start", start.dtype)
        self.define({stmt.loop_var: var + (start if held is None else held)})
        body = yield stmt.body
        loop = stmt.replace(loop_var=var, min=zero, extent=extent, body=body)
        return loop if held is None else LetStmt(held, start, loop)

    def on_block(self, stmt: Block) -> Steps:
        block = yield from super().on_block(stmt)
        parts = ("reads", "writes", "match_buffers")
        return block.replace(**{p: replace_tuple(getattr(stmt, p), self.expr) for p in parts})
