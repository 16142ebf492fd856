"""Move the buffers of `T.alloc_buffer` down to where they are used.

    with T.block("root"):                       with T.block("root"):
        B = T.alloc_buffer((64,))                   for i in T.parallel(8):
        for i in T.parallel(8):                         with T.block(""):
            ... B ...                                       B = T.alloc_buffer((64,))
                                                            ... B ...

A buffer goes to the innermost place that holds all its uses, but into a loop only if the loop is
parallel: the iterations of any other loop may hand values on to the next. Inside a parallel loop
each iteration gets its own memory.
"""

from __future__ import annotations

from typing import Any

from ...base import TIRError
from ...ir import IRModule, Node, PassContext, Var, const, descend, walk
from ...ir.transform import prim_func_pass
from ..stmt import (
    Block,
    BlockRealize,
    Buffer,
    For,
    ForKind,
    PrimFunc,
    Stmt,
    While,
    statements_below,
)
from .rewriter import MAX_STATEMENTS, Steps, StmtRewriter


@prim_func_pass(opt_level=0)
def PlanAndUpdateBufferAllocationLocation(
    fn: PrimFunc, mod: IRModule, ctx: PassContext
) -> PrimFunc:
    """Allocate every block-level buffer at the innermost place that may hold it."""
    places = _places(fn)
    if not places:
        return fn
    return _Mover(places).on_function(fn)


class _Path:
    """A chain of scopes, from the outside in. Shared tails make the walk linear."""

    __slots__ = ("depth", "node", "parent")

    def __init__(self, node: Stmt, parent: _Path | None) -> None:
        self.node, self.parent = node, parent
        self.depth: int = 0 if parent is None else parent.depth + 1


def _places(fn: PrimFunc) -> dict[int, list[Buffer]]:
    """The buffers to allocate in each parallel loop or block, by the statement's id: those that
    move.
    """
    owners: dict[Any, tuple[Buffer, Block]] = {}
    lowest: dict[Any, _Path] = {}
    handles: dict[Node, list[Var]] = {}  # in what stands in statements, often the same
    shared: set[int] = set()
    seen: set[int] = set()

    def placed(n: Stmt, around: _Path | None) -> tuple[Stmt, _Path | None]:
        return n, _Path(n, around) if isinstance(n, (Block, For, While)) else around

    def below(visit: tuple[Stmt, _Path | None]) -> list[tuple[Stmt, _Path | None]]:
        return [placed(s, visit[1]) for s in statements_below(visit[0])]

    for visits, (n, path) in enumerate(descend(placed(fn.body, None), below)):
        if visits > MAX_STATEMENTS:
            raise TIRError("PlanAndUpdateBufferAllocationLocation: the function is too large")
        if id(n) in seen:
            shared.add(id(n))
        seen.add(id(n))
        skip: set[int] = set()
        if isinstance(n, Block):
            owners.update({buffer.data: (buffer, n) for buffer in n.alloc_buffers})
            skip = {id(b) for b in n.alloc_buffers}
        for child in n._children_:
            if not child._children_ and not (type(child) is Var and child.dtype.is_handle):
                continue
            if not isinstance(child, Stmt) and id(child) not in skip and path is not None:
                if child not in handles:
                    inside = [v for v in walk(child) if isinstance(v, Var) and v.dtype.is_handle]
                    handles[child] = inside
                for used in handles[child]:
                    former = lowest.get(used)
                    lowest[used] = path if former is None else _common(former, path)
    moves: dict[int, list[Buffer]] = {}
    for data, (buffer, owner) in owners.items():
        place = lowest.get(data)
        if place is None:
            continue
        target = _allowed(place, owner, shared)
        if target is not owner:
            moves.setdefault(id(target), []).append(buffer)
    return moves


def _common(a: _Path, b: _Path) -> _Path:
    while a is not b:
        if a.depth >= b.depth and a.parent is not None:
            a = a.parent
        elif b.parent is not None:
            b = b.parent
        else:
            return a
    return a


def _allowed(place: _Path, owner: Block, shared: set[int]) -> Stmt:
    """The innermost scope on the way from `owner` to `place` that is not behind a serial loop or a
    shared statement.
    """
    chain: list[Stmt] = []
    step: _Path | None = place
    while step is not None and step.node is not owner:
        chain.append(step.node)
        step = step.parent
    best: Stmt = owner
    for node in reversed(chain):
        parallel = isinstance(node, For) and node.kind == ForKind.PARALLEL
        if id(node) in shared or not (parallel or isinstance(node, Block)):
            break
        if parallel:
            best = node
    return best


class _Mover(StmtRewriter):
    def __init__(self, moves: dict[int, list[Buffer]]) -> None:
        super().__init__()
        self.moves = moves
        self.moved = {id(b) for buffers in moves.values() for b in buffers}

    def on_block(self, stmt: Block) -> Steps:
        init = stmt.init
        if init is not None:
            init = yield init
        body = yield stmt.body
        kept = tuple(b for b in stmt.alloc_buffers if id(b) not in self.moved)
        if len(kept) == len(stmt.alloc_buffers):
            kept = stmt.alloc_buffers
        return stmt.replace(init=init, body=body, alloc_buffers=kept)

    def on_for(self, stmt: For) -> Steps:
        body = yield stmt.body
        buffers = self.moves.get(id(stmt))
        if buffers:
            block = Block((), (), (), "", body, alloc_buffers=tuple(buffers))
            body = BlockRealize((), const(True), block)
        return stmt.replace(body=body)
