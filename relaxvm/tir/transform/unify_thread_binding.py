"""One variable for all loops that are bound to one thread.

for i in T.thread_binding(4, "threadIdx.x"):    for i in T.thread_binding(4, "threadIdx.x"):
    A[i] = 1.0                                      A[i] = 1.0
for j in T.thread_binding(4, "threadIdx.x"):    for i in T.thread_binding(4, "threadIdx.x"):
    B[j] = A[3 - j]                                 B[i] = A[3 - i]

Threads run one after the other here, so that loops stay where they are: one loop around both
stores would read what later threads write. For the same reason a loop inside of one that is bound
to the same thread becomes a serial one: every thread does for itself what they would share.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, Node, PassContext, PrimExpr, Var, const
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ..stmt import AttrStmt, For, ForKind, IterVar, PrimFunc, Stmt
from .convert_ssa import with_single_definitions
from .rewriter import Steps, StmtRewriter


@prim_func_pass(opt_level=0)
def UnifyThreadBinding(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Give the loops and launches of each thread one variable in a kernel (the outermost loop over
    threads); those of "vthread", and those of another range, keep theirs.
    """
    finder = _Threads()
    finder.on_function(fn)
    if finder.shared:
        finder = _Threads()
        finder.on_function(fn := with_single_definitions(fn))
    names, inner = finder.names, finder.inner

    def unify(n: Node) -> Node | None:
        # Seen with the variables replaced already, so that it is known by the former one.
        if isinstance(n, For) and n.loop_var in inner:
            return n.replace(kind=ForKind.SERIAL, thread_binding=None)
        if isinstance(n, AttrStmt) and isinstance(n.node, IterVar) and n.node.var in inner:
            var = n.node.var
            return For(var, const(0, var.dtype), n.value, ForKind.SERIAL, n.body)
        return None

    if not names and not inner:
        return fn
    return transform(fn, unify, pre=lambda n: names.get(n) if isinstance(n, Var) else None)


class _Threads(StmtRewriter):
    """Which variable each thread gets.

    names   variable of a loop -> the one to take its place
    inner   those of loops inside of one of the same thread
    shared  whether a variable belongs to two threads
    """

    def __init__(self) -> None:
        super().__init__()
        self.names: dict[Var, Var] = {}
        self.inner: set[Var] = set()
        self.shared = False
        self._open: list[str] = []
        # Tag and range -> their variable in this kernel.
        self._axes: dict[tuple[str, PrimExpr, PrimExpr], Var] = {}
        self._tags: dict[Var, tuple[str, bool]] = {}

    def _enter(self, var: Var, tag: str, first: PrimExpr, extent: PrimExpr) -> None:
        if not self._open:
            self._axes = {}
        is_inner = tag in self._open
        self.shared |= self._tags.setdefault(var, (tag, is_inner)) != (tag, is_inner)
        self._open.append(tag)
        if is_inner:
            self.inner.add(var)
            return
        axis = self._axes.setdefault((tag, first, extent), var)
        if axis is not var:
            self.names[var] = axis

    def on_for(self, stmt: For) -> Steps:
        binding = stmt.thread_binding
        if binding is None or binding.thread_tag == "vthread":
            return (yield from super().on_for(stmt))
        self._enter(stmt.loop_var, binding.thread_tag, stmt.min, stmt.extent)
        loop: Stmt = yield from super().on_for(stmt)
        self._open.pop()
        return loop

    def on_attr(self, stmt: AttrStmt) -> Steps:
        axis: Any = stmt.node
        if stmt.attr_key != "thread_extent" or not isinstance(axis, IterVar):
            return (yield from super().on_attr(stmt))
        self._enter(axis.var, axis.thread_tag, const(0, axis.var.dtype), stmt.value)
        attr: Stmt = yield from super().on_attr(stmt)
        self._open.pop()
        return attr
