"""The innermost loop or block that holds all accesses of a buffer."""

from __future__ import annotations

from typing import Any

from ...base import NamedTuple
from ...ir import Call, Var, walk
from ..stmt import BlockRealize, Buffer, BufferLoad, BufferStore, For, PrimFunc, Stmt
from .scope import post_order_expr


class _Scope(NamedTuple):
    """A loop or block, and what is around it.

    carry  where what is written here must be alive, if a reduction carries it on
    """

    stmt: Stmt | None
    inside: _Scope | None
    depth: int
    carry: _Scope | None = None


def detect_buffer_access_lca(func: PrimFunc) -> dict[Buffer, Stmt | None]:
    """For each buffer accessed, the innermost `For` or `Block` that holds all accesses (None: the
    function itself).

    What a block with reduce axes writes is carried from iteration to iteration, so for it the loops
    bound to those axes are inside.
    """
    ancestors: dict[Buffer, _Scope] = {}
    by_data: dict[Any, Buffer] = {}
    allocated: dict[Buffer, _Scope] = {}
    root = _Scope(None, None, 0)
    for n in walk(func):
        if isinstance(n, Buffer):
            by_data.setdefault(n.data, n)

    def meet(buffer: Buffer, scope: _Scope) -> None:
        ancestors[buffer] = scope if buffer not in ancestors else _common(ancestors[buffer], scope)

    def look(expr: Any, scope: _Scope) -> None:
        for n in post_order_expr(expr):
            if isinstance(n, BufferLoad):
                meet(n.buffer, scope)
            elif isinstance(n, Call):
                for a in n.args:
                    arg: Any = a
                    if isinstance(arg, Buffer):
                        meet(arg, scope)
                    elif isinstance(arg, Var) and arg in by_data:
                        meet(by_data[arg], scope)

    stack: list[tuple[Any, _Scope]] = [(func.body, root)]
    while stack:
        s, scope = stack.pop()
        if isinstance(s, BlockRealize):
            for e in (*s.iter_values, s.predicate):
                look(e, scope)
            inner = _Scope(
                s.block, scope, scope.depth + 1, _outside_reduction(s, scope) or scope.carry
            )
            for b in s.block.alloc_buffers:
                allocated[b] = inner
            for m in s.block.match_buffers:
                meet(m.source.buffer, inner)
            for body in (s.block.body, s.block.init):
                if body is not None:
                    stack.append((body, inner))
            continue
        inner = scope
        if isinstance(s, For):
            inner = _Scope(s, scope, scope.depth + 1, scope.carry)
        if isinstance(s, BufferStore):
            local = (
                s.buffer in allocated
                and scope.carry
                and allocated[s.buffer].depth > scope.carry.depth
            )
            meet(s.buffer, scope if scope.carry is None or local else scope.carry)
        for child in reversed(s._children_):
            if isinstance(child, Stmt):
                stack.append((child, inner))
            elif not isinstance(child, Buffer) and hasattr(child, "dtype"):
                look(child, scope)
    return {b: scope.stmt for b, scope in ancestors.items()}


def _outside_reduction(s: BlockRealize, scope: _Scope) -> _Scope | None:
    """The scope around the outermost loop that a reduce axis of the block is bound to, if there is
    one.
    """
    bound: set[int] = set()
    for axis, value in zip(s.block.iter_vars, s.iter_values):
        if axis.is_reduce:
            bound.update(id(n) for n in post_order_expr(value) if isinstance(n, Var))
    outer: _Scope | None = None
    each: _Scope | None = scope
    while each is not None:
        if isinstance(each.stmt, For) and id(each.stmt.loop_var) in bound:
            outer = each.inside
        each = each.inside
    return outer


def _common(a: _Scope, b: _Scope) -> _Scope:
    while a is not b:
        if a.depth >= b.depth:
            assert a.inside is not None
            a = a.inside
        else:
            assert b.inside is not None
            b = b.inside
    return a
