"""Keeping what blocks declare (reads, writes, buffers) in step with what they do."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ....ir import IntImm, PrimExpr, Range, Var, const, descend, substitute, walk
from ....ir.walk import transform
from ...analysis import get_block_access_region
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    For,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    statements_below,
)
from .boxes import Access
from .facts import BlockKind, Facts, facts_of
from .state import State, loads_of, refuse


def point_region(buffer: Buffer, indices: Iterable[PrimExpr]) -> BufferRegion:
    """The region of one element."""
    return BufferRegion(buffer, tuple(Range.from_min_extent(i, const(1, i.dtype)) for i in indices))


def access_region(state: State, a: Access) -> BufferRegion:
    """An access as a region: the same one whenever it is asked for."""

    def region() -> BufferRegion:
        ends = [(low, const(e, low.dtype) if isinstance(e, int) else e) for low, e in a.box]
        return BufferRegion(a.buffer, tuple([Range.from_min_extent(*pair) for pair in ends]))

    known: BufferRegion = state.remember(a.box, a.buffer, region)
    return known


def with_regions(state: State, block: Block) -> Block:
    """The block with `reads` and `writes` that say what it does."""
    facts = facts_of(state, block)
    buffers = [a.buffer for a in facts.reads]
    if facts.kind is not BlockKind.OPAQUE and len({id(b) for b in buffers}) == len(buffers):
        # Every buffer has one box. What a block updates it also reads, unless it has an init.
        own = facts.writes if facts.updates else ()
        reads = tuple([access_region(state, a) for a in (*own, *facts.reads)])
        writes = tuple([access_region(state, a) for a in facts.writes])
        same = reads == block.reads and writes == block.writes
        return block if same else block.replace(reads=reads, writes=writes)
    all_reads, all_writes, opaque = get_block_access_region(block)
    taken = {r.buffer.data for r in opaque}
    reads = tuple(r for r in all_reads if r.buffer.data not in taken)
    kept = tuple(r for r in all_writes if r.buffer.data not in taken)
    reads += tuple(r for r in block.reads if r.buffer.data in taken)
    kept += tuple(r for r in block.writes if r.buffer.data in taken)
    return block.replace(reads=reads, writes=kept)


def refresh_around(state: State, stmt: Stmt) -> State:
    """The state with the declared regions of the blocks around `stmt` found anew, inside out."""
    for block in state.blocks_around(stmt):
        if block.reads or block.writes:
            now = state.now(block)
            refreshed = with_regions(state, now)
            if refreshed is not now:
                state = state.replace(now, refreshed)
    return state


def owner_of(state: State, data: Var) -> Block | None:
    """The block that allocates the memory `data`; None for parameters."""
    for block in state.blocks():
        if any(b.data is data for b in block.alloc_buffers):
            return block
    return None


def allocated_in(scope: Block, buffer: Buffer, what: str) -> None:
    """Refuse unless `buffer` is memory of the block `scope`, unseen outside of it."""
    if not any(b.data is buffer.data for b in scope.alloc_buffers):
        refuse(
            f"{what} writes {buffer.name}, which is seen outside of block {scope.name_hint}: it is "
            "an output of it, not a buffer allocated in it"
        )


def drop_buffer(state: State, buffer: Buffer) -> State:
    """The state without the allocation of `buffer`."""
    owner = owner_of(state, buffer.data)
    if owner is None:
        return state
    kept = tuple(b for b in owner.alloc_buffers if b.data is not buffer.data)
    return state.replace(owner, owner.replace(alloc_buffers=kept))


def users_of(state: State, data: Var) -> tuple[list[Block], list[Block]]:
    """(readers, writers): the innermost blocks that touch the memory, in program order."""
    readers: list[Block] = []
    writers: list[Block] = []
    for block in state.blocks():
        if state.child_realizes(block):
            continue
        facts = facts_of(state, block)
        if data in facts.write_data():
            writers.append(block)
        if data in facts.used_data():
            readers.append(block)
    return readers, writers


def replace_accesses(
    root: Any,
    load: Callable[[BufferLoad], PrimExpr | None] | None,
    store: Callable[[BufferStore], BufferStore | None] | None = None,
) -> Any:
    """`root` with loads and stores rewritten; the operands of each are rewritten before it."""

    def post(n: Any) -> Any:
        if load is not None and isinstance(n, BufferLoad):
            return load(n)
        if store is not None and isinstance(n, BufferStore):
            return store(n)
        return None

    asked = frozenset({Buffer, BufferLoad, BufferStore})
    return transform(root, post, lambda n: n if isinstance(n, Buffer) else None, only=asked)


def replace_buffer(root: Any, old: Buffer, new: Buffer) -> Any:
    """`root` with a buffer replaced: accesses, regions, and pointers to its data."""
    return substitute(root, {old: new, old.data: new.data})


def reads_memory(e: PrimExpr, data: Var) -> bool:
    """Whether an expression loads from the memory `data`."""
    return type(e) is not IntImm and any(n.buffer.data is data for n in loads_of(e))


def only_plain_accesses(
    state: State,
    root: Stmt,
    buffer: Buffer,
    what: str,
    outside: bool = False,
    predicates: bool = False,
    pointers: bool = False,
) -> None:
    """Refuse where the memory is used by way of views or pointers, or in the bindings of blocks.

    outside     whether it may be used outside of blocks: by statements, by the ranges of loops
    predicates  whether the predicates of blocks may read it
    pointers    whether blocks may use it by way of views and of pointers, if they declare so
    """
    stack: list[tuple[Stmt, bool, bool]] = [(root, False, False)]
    while stack:
        s, in_block, trusted = stack.pop()
        if not (outside or in_block or type(s) in (SeqStmt, BlockRealize, Block)):
            _check_outside(s, buffer, what)
        if isinstance(s, BlockRealize):
            for e in s.iter_values if predicates else (*s.iter_values, s.predicate):
                if not isinstance(e, Var) and reads_memory(e, buffer.data):
                    refuse(f"{what}: {buffer.name} is read in the binding of a block", s)
        if isinstance(s, Block):
            facts = facts_of(state, s) if not state.child_realizes(s) else None
            declared = (r.buffer.data is buffer.data for r in (*s.reads, *s.writes))
            trusted = pointers and any(declared)
            if facts is not None and facts.simple:
                _check_simple(facts, buffer, what, trusted)
                continue
            if not trusted:
                _check_views(s, buffer, what)
            in_block = facts is not None
        elif type(s) not in (For, SeqStmt, BlockRealize):
            _walk_for_pointers(s, buffer, what, in_block and trusted)
        for c in statements_below(s):
            stack.append((c, in_block, trusted))


def check_no_bare_stores(state: State, data: set[Var], block: Block, what: str) -> None:
    """Refuse where a statement outside of blocks writes one of the memories `data`."""

    def bare() -> list[BufferStore]:
        around = descend(state.fn.body, lambda s: () if is_innermost(s) else statements_below(s))
        return [s for s in around if type(s) is BufferStore]

    def is_innermost(s: Stmt) -> bool:
        return type(s) is Block and not state.child_realizes(s)

    for s in state.remember("bare stores", state.fn.body, bare):
        if s.buffer.data in data:
            refuse(f"{what}: {s.buffer.name} is written outside of blocks", block)


def _check_outside(s: Stmt, buffer: Buffer, what: str) -> None:
    """Refuse where a statement, or the range of a loop, uses the buffer outside of blocks."""
    if isinstance(s, For):
        for load in (*loads_of(s.min), *loads_of(s.extent)):
            if load.buffer.data is buffer.data:
                refuse(f"{what}: {buffer.name} says how long loop {s.loop_var.name} runs", s)
    else:
        loads = [n for c in s._children_ if isinstance(c, PrimExpr) for n in loads_of(c)]
        for n in (s, *loads):
            if isinstance(n, (BufferLoad, BufferStore)) and n.buffer.data is buffer.data:
                refuse(f"{what}: {buffer.name} is used outside of blocks")


def _check_simple(facts: Facts, buffer: Buffer, what: str, pointers: bool) -> None:
    for a in (*facts.reads, *facts.writes):
        if a.buffer.data is buffer.data and a.buffer is not buffer:
            refuse(f"{what}: {buffer.name} is also used under the name {a.buffer.name}")
    if buffer.data in facts.pointers and not pointers:
        refuse(f"{what}: the address of {buffer.name} is taken")


def _check_views(block: Block, buffer: Buffer, what: str) -> None:
    for m in block.match_buffers:
        if m.source.buffer.data is buffer.data:
            refuse(f"{what}: {buffer.name} is used by way of match_buffer {m.buffer.name}", block)


def _walk_for_pointers(root: Stmt, buffer: Buffer, what: str, pointers: bool) -> None:
    for n in walk(root):
        if (
            isinstance(n, MatchBufferRegion)
            and not pointers
            and n.source.buffer.data is buffer.data
        ):
            refuse(f"{what}: {buffer.name} is used by way of match_buffer {n.buffer.name}")
        if isinstance(n, Buffer) and n is not buffer and n.data is buffer.data:
            refuse(f"{what}: {buffer.name} is also used under the name {n.name}")
        if isinstance(n, (BufferLoad, BufferStore, BufferRegion, Buffer, Block)):
            continue
        if not pointers and any(c is buffer.data for c in n._children_):
            refuse(f"{what}: the address of {buffer.name} is taken")
