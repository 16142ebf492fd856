"""Write out what each virtual thread does.

for i in T.thread_binding(2, "vthread"):    A[0] = 1.0
    A[i] = 1.0                              A[1] = 1.0

They come one after the other, as they run: each with buffers of its own where it allocates some.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext, const, walk
from ...ir.transform import prim_func_pass
from ..stmt import AttrStmt, For, ForKind, IterVar, PrimFunc, Stmt, seq
from .rewriter import Steps, StmtRewriter, constant
from .unroll_loop import MAX_NODES, MAX_TOTAL_NODES, iterations

# TVM writes out fewer than as many.
_MAX_THREADS = 16


@prim_func_pass(opt_level=0)
def InjectVirtualThread(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Expand loops and launches of "vthread", "vthread.x" …: fewer than 16 threads are written out,
    of more (of a number that is not constant, or where it would grow the function too much) a
    serial loop is made.
    """
    return _Expand().on_function(fn)


class _Expand(StmtRewriter):
    def __init__(self) -> None:
        super().__init__()
        self._nodes_left = MAX_TOTAL_NODES

    def on_for(self, stmt: For) -> Steps:
        loop: Any = yield from super().on_for(stmt)
        axis = loop.thread_binding
        return self._expanded(loop) if axis is not None and _is_virtual(axis) else loop

    def on_attr(self, stmt: AttrStmt) -> Steps:
        attr: Any = yield from super().on_attr(stmt)
        axis = attr.node
        keys = ("thread_extent", "virtual_thread")
        if attr.attr_key not in keys or not isinstance(axis, IterVar) or not _is_virtual(axis):
            return attr
        zero = const(0, axis.var.dtype)
        return self._expanded(For(axis.var, zero, attr.value, ForKind.SERIAL, attr.body))

    def _expanded(self, loop: For) -> Stmt:
        loop = loop.replace(kind=ForKind.SERIAL, thread_binding=None)
        extent = constant(loop.extent)
        if extent is None or extent >= _MAX_THREADS:
            return loop
        nodes = extent * sum(1 for _ in walk(loop.body))
        if nodes > min(MAX_NODES, self._nodes_left):
            return loop
        self._nodes_left -= nodes
        return seq(*iterations(loop, extent))


def _is_virtual(axis: IterVar) -> bool:
    return axis.thread_tag.startswith("vthread")
