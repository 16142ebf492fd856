"""Finding common places of statements, and putting statements before or after others."""

from __future__ import annotations

from collections.abc import Sequence

from ...stmt import Block, Buffer, SeqStmt, Stmt, seq
from .state import Path, State


def common_place(state: State, stmts: Sequence[Stmt], scope: Block) -> Path:
    """The innermost statement that holds all of `stmts`, not above `scope`."""
    path: Path = state.path(stmts[0])
    common = [p for p in path if p.stmt is not stmts[0]]
    for s in stmts[1:]:
        around = {id(p.stmt) for p in state.path(s)}
        common = [p for p in common if id(p.stmt) in around]
    for p in common:
        if isinstance(p.stmt, (SeqStmt, Block)):
            return p
    return state.path(scope)


def top_child(state: State, stmt: Stmt, outer: Stmt) -> Stmt:
    """The statement directly in `outer` (or in its sequence) that holds `stmt`."""
    inner = stmt
    for p in state.path(stmt):
        if p.stmt is outer:
            return inner
        inner = p.stmt
    return inner


def nest_of(state: State, block: Block) -> Stmt:
    """The statement directly in its scope that holds `block`, as both are now."""
    realize = state.realize(state.now(block))
    scope = state.scope(realize)
    return top_child(state, realize, scope.body if isinstance(scope.body, SeqStmt) else scope)


def insert_after(state: State, anchor: Stmt, new: Stmt) -> State:
    """`new` directly after `anchor`."""
    return _insert(state, anchor, new, 1)


def insert_before(state: State, anchor: Stmt, new: Stmt) -> State:
    """`new` directly before `anchor`."""
    return _insert(state, anchor, new, 0)


def _insert(state: State, anchor: Stmt, new: Stmt, shift: int) -> State:
    parent = state.path(anchor).parent
    if parent is not None and isinstance(parent.stmt, SeqStmt):
        parts = list(parent.stmt.seq)
        place = next(k for k, c in enumerate(parts) if c is anchor)
        parts.insert(place + shift, new)
        return state.replace(parent.stmt, seq(*parts))
    both = (anchor, new) if shift else (new, anchor)
    return state.replace(anchor, seq(*both))


def add_allocation(state: State, scope: Block, buffer: Buffer) -> State:
    """`buffer` allocated in `scope`, too."""
    now = state.now(scope)
    return state.replace(now, now.replace(alloc_buffers=(*now.alloc_buffers, buffer)))
