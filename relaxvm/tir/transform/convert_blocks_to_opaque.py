"""Replace the axes of blocks by what they stand for.

for i, j in T.grid(16, 16):                 for i, j in T.grid(16, 16):
    with T.block("B"):                          with T.block("B"):
        vi, vj = T.axis.remap("SS", [i, j])         B[i, j] = A[i, j]
        B[vi, vj] = A[vi, vj]
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import prim_func_pass
from ..stmt import Block, BlockRealize, MatchBufferRegion, PrimFunc
from .rewriter import ScopedRewriter, Steps, StmtRewriter, replace_tuple


@prim_func_pass(opt_level=0)
def ConvertBlocksToOpaque(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Substitute the iteration variables of every block."""
    return _Substitute().on_function(fn)


class _Substitute(ScopedRewriter):
    on_for = StmtRewriter.on_for

    def on_realize(self, stmt: BlockRealize) -> Steps:
        block = stmt.block
        # The predicate is over the loops around, and over the axes in older scripts.
        values = replace_tuple(stmt.iter_values, self.expr)
        if block.iter_vars:
            self.define({axis.var: value for axis, value in zip(block.iter_vars, values)})
        predicate = self.expr(stmt.predicate)
        opaque = yield block
        if not block.iter_vars:
            return stmt.replace(predicate=predicate, block=opaque)
        return stmt.replace(iter_values=(), predicate=predicate, block=opaque.replace(iter_vars=()))

    def on_realize_block(self, stmt: Block) -> Block:
        """The block's own expressions."""

        return stmt.replace(
            reads=replace_tuple(stmt.reads, self.resolve),
            writes=replace_tuple(stmt.writes, self.resolve),
            alloc_buffers=replace_tuple(stmt.alloc_buffers, self.buffer),
            match_buffers=replace_tuple(stmt.match_buffers, self._match),
        )

    def _match(self, match: MatchBufferRegion) -> MatchBufferRegion:
        # The body's view is rewritten with the axes in its strides and offset; so is this one.
        source = self.resolve(match.source)
        return match.replace(buffer=self.buffer(match.buffer), source=source)

    def on_block(self, stmt: Block) -> Steps:
        opaque = self.on_realize_block(stmt)
        init = stmt.init
        if init is not None:
            init = yield init
        body = yield stmt.body
        if opaque is stmt and init is stmt.init and body is stmt.body:
            return stmt
        # Without axes the bindings no longer fit the realize: both change together in `on_realize`.
        return opaque.replace(init=init, body=body)
