"""Finding common places of statements, and putting statements before or after others."""

from __future__ import annotations

from collections.abc import Sequence

from ...stmt import Block, Buffer, SeqStmt, Stmt, seq
from .state import State


def common_place(state: State, stmts: Sequence[Stmt], scope: Block) -> Stmt:
    """The innermost statement that holds all of `stmts`, not above `scope`."""
    common = state.around(stmts[0])[1:]
    for s in stmts[1:]:
        around = state.around(s)
        common = [each for each in common if each in around]
    return next((s for s in common if isinstance(s, (SeqStmt, Block))), scope)


def top_child(state: State, stmt: Stmt, outer: Stmt) -> Stmt:
    """The statement directly in `outer` (or in its sequence) that holds `stmt`."""
    inner = stmt
    for s in state.around(stmt):
        if s is outer:
            return inner
        inner = s
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
    parent = state.parent(anchor)
    if isinstance(parent, SeqStmt):
        parts = list(parent.seq)
        parts.insert(parts.index(anchor) + shift, new)
        return state.replace(parent, seq(*parts))
    both = (anchor, new) if shift else (new, anchor)
    return state.replace(anchor, seq(*both))


def add_allocation(state: State, scope: Block, *buffers: Buffer) -> State:
    """The buffers allocated in `scope`, too."""
    now = state.now(scope)
    return state.replace(now, now.replace(alloc_buffers=(*now.alloc_buffers, *buffers)))
