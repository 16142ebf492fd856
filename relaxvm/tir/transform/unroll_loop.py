"""Write out the loops marked `T.unroll`, and short serial loops if asked to.

    for i in T.unroll(3):                       A[0] = 1.0
        A[i] = 1.0                              A[1] = 1.0
                                                A[2] = 1.0

A loop whose extent is not a constant, or that would grow the function too much, stays a loop.
"""

from __future__ import annotations

from typing import Any

from ...ir import IntImm, IRModule, Let, Node, PassContext, Var, walk
from ...ir.expr import wrap_int
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..stmt import (
    Allocate,
    AllocateConst,
    Block,
    Buffer,
    DeclBuffer,
    For,
    ForKind,
    LetStmt,
    PrimFunc,
    seq,
)
from .rewriter import Steps, StmtRewriter, constant

__all__ = ["UnrollLoop"]

MAX_NODES = 20_000
# LLVM takes some 6 s for as many.
MAX_TOTAL_NODES = 40_000

register_config(
    "tir.UnrollLoop.auto_max_extent",
    int,
    0,
    "UnrollLoop also writes out innermost serial loops of at most this many iterations",
    lambda value: 0 <= value <= 1024,
)


@prim_func_pass(opt_level=0)
def UnrollLoop(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Unroll loops of kind "unroll"."""
    return _Unroll(ctx.get("tir.UnrollLoop.auto_max_extent")).on_function(fn)


class _Unroll(StmtRewriter):
    def __init__(self, auto_max_extent: int) -> None:
        super().__init__()
        self.auto_max_extent = auto_max_extent
        self._left = MAX_TOTAL_NODES

    def on_for(self, stmt: For) -> Steps:
        body = yield stmt.body
        made = stmt.replace(body=body)
        extent = constant(made.extent)
        auto = (
            made.kind == ForKind.SERIAL
            and extent is not None
            and extent <= self.auto_max_extent
            and not any(isinstance(n, For) for n in walk(stmt.body))
        )
        if extent is None or not (made.kind == ForKind.UNROLLED or auto):
            return made
        if extent <= 0:
            return seq()
        nodes = sum(1 for _ in walk(body))
        if nodes * extent > min(MAX_NODES, self._left):
            return made
        self._left -= nodes * extent
        definitions = _definitions(body)
        copies = []
        for i in range(extent):
            index: Any = made.min + i
            if isinstance(made.min, IntImm):
                index = IntImm(
                    made.loop_var.dtype, wrap_int(made.min.value + i, made.loop_var.dtype)
                )
            copies.append(_copy(body, {id(made.loop_var): index}, definitions if i else []))
        return seq(*copies)


def _definitions(body: Node) -> list[Any]:
    """The variables and buffers that are bound inside, which each copy needs of its own."""
    found: list[Any] = []
    for n in walk(body):
        if isinstance(n, (For, LetStmt, Let)):
            found.append(n.loop_var if isinstance(n, For) else n.var)
        elif isinstance(n, (Allocate, AllocateConst)):
            found.append(n.buffer_var)
        elif isinstance(n, DeclBuffer):
            found.append(n.buffer)
        elif isinstance(n, Block):
            found += [axis.var for axis in n.iter_vars]
            found += [b for buffer in n.alloc_buffers for b in (buffer.data, buffer)]
            found += [b for match in n.match_buffers for b in (match.buffer.data, match.buffer)]
    return list(dict.fromkeys(found))


def _copy(body: Any, mapping: dict[int, Any], definitions: list[Any]) -> Any:
    for n in definitions:
        if isinstance(n, Var):
            mapping[id(n)] = type(n)(n.name, n.dtype, n.type_annotation)
    fresh: dict[int, tuple[Any, Any]] = {}
    for n in definitions:
        if isinstance(n, Buffer):
            made = transform(n, None, pre=lambda c: mapping.get(id(c)), memo=fresh)
            # A view of outside memory is a new buffer too: two declarations of one buffer would
            # clash.
            mapping[id(n)] = made if made is not n else Buffer(*(getattr(n, f) for f in n._fields))
    return transform(body, None, pre=lambda c: mapping.get(id(c)))
