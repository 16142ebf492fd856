"""Copies of statements with variables of their own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from ..ir import Let, Node, Var, walk
from ..ir.walk import transform
from .stmt import Allocate, AllocateConst, Block, DeclBuffer, For, LetStmt, MatchBufferRegion

S = TypeVar("S", bound=Node)


def renew(v: Var) -> Var:
    """A new variable of the same name and type."""
    return type(v)(v.name, v.dtype, v.type_annotation)


def _of_block(n: Block) -> tuple[Any, ...]:
    matched = [m.buffer for m in n.match_buffers]
    return (*[axis.var for axis in n.iter_vars], *n.alloc_buffers, *matched)


_DEFINED: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    For: lambda n: (n.loop_var,),
    LetStmt: lambda n: (n.var,),
    Let: lambda n: (n.var,),
    Allocate: lambda n: (n.buffer_var,),
    AllocateConst: lambda n: (n.buffer_var,),
    DeclBuffer: lambda n: (n.buffer,),
    Block: _of_block,
}


def defined(n: Any) -> tuple[Any, ...]:
    """The variables and buffers that a statement or a `Let` defines."""
    of = _DEFINED.get(type(n))
    return () if of is None else of(n)


def fresh_copy(
    stmt: S,
    values: Mapping[Any, Node] | None = None,
    nodes: Sequence[Node] | None = None,
    post: Callable[[Any], Node | None] | None = None,
) -> S:
    """`stmt`, or an expression, with every variable and buffer that it defines renewed, and
    `values` put in.

    nodes  what can be reached from `stmt`, if it is known
    post   sees each node that stands there then, as that of `transform`
    """
    mapping: dict[Any, Node] = dict(values or {})
    nodes = walk(stmt) if nodes is None else nodes
    for n in nodes:
        for own in defined(n) if type(n) in _DEFINED else ():
            if isinstance(own, Var):
                mapping.setdefault(own, renew(own))
        if isinstance(n, Block):
            for b in n.alloc_buffers:
                mapping.setdefault(b.data, renew(b.data))
            for m in n.match_buffers:
                _define(mapping, m)
    memo = {id(key): (key, value) for key, value in mapping.items()}
    blocks = {id(n) for n in nodes if isinstance(n, Block)}

    def copied(n: Any) -> Any:
        # A block that mentions none of them is copied all the same: it is found by identity.
        if id(n) in blocks:
            n = Block(*[getattr(n, name) for name in n._fields])
        changed = None if post is None else post(n)
        return n if changed is None else changed

    only = frozenset({Block}) if post is None else None
    return transform(stmt, copied, memo=memo, only=only)


def _define(mapping: dict[Any, Node], match: MatchBufferRegion) -> None:
    """The variables that a match_buffer gives a value; an extent of its region has one already."""
    buffer, known = match.buffer, {r.extent for r in match.source.region}
    mapping.setdefault(buffer.data, renew(buffer.data))
    for e in (*buffer.shape, *buffer.strides, buffer.elem_offset):
        if isinstance(e, Var) and e not in known:
            mapping.setdefault(e, renew(e))
