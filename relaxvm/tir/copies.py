"""Copies of statements with variables of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from ..ir import Let, Node, Var, walk
from ..ir.walk import transform
from .stmt import Allocate, AllocateConst, Block, For, LetStmt, MatchBufferRegion, Stmt

S = TypeVar("S", bound=Stmt)


def renew(v: Var) -> Var:
    """A new variable of the same name and type."""
    return type(v)(v.name, v.dtype, v.type_annotation)


def fresh_copy(stmt: S, values: Mapping[Any, Node] | None = None) -> S:
    """`stmt` with every variable and buffer that it defines renewed, and `values` put in."""
    mapping: dict[Any, Node] = dict(values or {})
    for n in walk(stmt):
        if isinstance(n, For):
            mapping.setdefault(n.loop_var, renew(n.loop_var))
        elif isinstance(n, (LetStmt, Let)):
            mapping.setdefault(n.var, renew(n.var))
        elif isinstance(n, (Allocate, AllocateConst)):
            mapping.setdefault(n.buffer_var, renew(n.buffer_var))
        elif isinstance(n, Block):
            for axis in n.iter_vars:
                mapping.setdefault(axis.var, renew(axis.var))
            for b in n.alloc_buffers:
                mapping.setdefault(b.data, renew(b.data))
            for m in n.match_buffers:
                _define(mapping, m)
    by_id = {id(key): value for key, value in mapping.items()}
    blocks = {id(n) for n in walk(stmt) if isinstance(n, Block)}

    def copied(n: Any) -> Any:
        # A block that mentions none of them is copied all the same: it is found by identity.
        if id(n) in blocks:
            return Block(*[getattr(n, name) for name in n._fields])
        return None

    return transform(stmt, copied, pre=lambda n: by_id.get(id(n)))


def _define(mapping: dict[Any, Node], match: MatchBufferRegion) -> None:
    """The variables that a match_buffer gives a value; an extent of its region has one already."""
    buffer, known = match.buffer, {r.extent for r in match.source.region}
    mapping.setdefault(buffer.data, renew(buffer.data))
    for e in (*buffer.shape, *buffer.strides, buffer.elem_offset):
        if isinstance(e, Var) and e not in known:
            mapping.setdefault(e, renew(e))
