"""Remove blocks: predicates become conditions, their buffers allocations, loops of one iteration
vanish.

for i, j in T.grid(16, 1):                  for i in range(16):
    with T.block("B"):                          B_data = T.allocate((16,), "float32")
        T.where(i < 10)                         if i < 10:
        B = T.alloc_buffer((16,))                   ...
        ...
"""

from __future__ import annotations

from ...base import TIRError
from ...ir import IntImm, IRModule, PassContext, PrimExpr, const
from ...ir.transform import prim_func_pass
from ..flat import flat_extent
from ..stmt import (
    Allocate,
    Block,
    BlockRealize,
    Buffer,
    DeclBuffer,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    Stmt,
)
from .rewriter import ScopedRewriter, Steps, constant


@prim_func_pass(opt_level=0)
def LowerOpaqueBlock(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Remove every block. Blocks must be opaque (ConvertBlocksToOpaque) and without views
    (LowerMatchBuffer).
    """
    return _Lower().on_function(fn)


class _Lower(ScopedRewriter):
    def on_for(self, stmt: For) -> Steps:
        loop = self.with_range(stmt)
        if (
            constant(loop.extent) == 1
            and stmt.kind != ForKind.THREAD_BINDING
            and not stmt.annotations
        ):
            self.define({stmt.loop_var: loop.min})
            body = yield stmt.body
            return body
        body = yield stmt.body
        return loop if body is loop.body else loop.replace(body=body)

    def on_realize(self, stmt: BlockRealize) -> Steps:
        predicate = self.expr(stmt.predicate)
        block = stmt.block
        if block.iter_vars or block.init is not None or block.match_buffers:
            raise TIRError(
                f"LowerOpaqueBlock: block {block.name_hint} still has axes, an init part or "
                "views; run LowerInitBlock, ConvertBlocksToOpaque and LowerMatchBuffer before"
            )
        body = yield block.body
        return _guarded(predicate, _allocated(block, body, self))

    def on_block(self, stmt: Block) -> Steps:
        # A bare block, without a realize: the root of older scripts.
        body = yield stmt.body
        return _allocated(stmt, body, self)


def _guarded(predicate: PrimExpr, body: Stmt) -> Stmt:
    if isinstance(predicate, IntImm) and predicate.value:
        return body
    return IfThenElse(predicate, body)


def _allocated(block: Block, body: Stmt, scope: ScopedRewriter) -> Stmt:
    for buffer in reversed(block.alloc_buffers):
        body = allocation(scope.buffer(buffer), body, scope)
    return body


def allocation(buffer: Buffer, body: Stmt, scope: ScopedRewriter) -> Stmt:
    """`body` with memory for `buffer`."""
    plain = (
        not buffer.strides
        and isinstance(buffer.elem_offset, IntImm)
        and buffer.elem_offset.value == 0
    )
    extents = buffer.shape if plain else (flat_extent(buffer),)
    extents = tuple(scope.expr(e) for e in extents)
    return Allocate(buffer.data, buffer.dtype, extents, const(True), DeclBuffer(buffer, body))
