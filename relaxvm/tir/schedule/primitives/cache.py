"""Copies of buffers: `cache_read` before they are read, `cache_write` after they are written."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import Numbers, Span, as_number, number_of
from ....ir import Add, PrimExpr, binary, cast, const
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    SeqStmt,
    Stmt,
    decl_buffer,
)
from ..model.bindings import loop_uses, runs_everywhere, runs_its_part
from ..model.boxes import Box, region_while
from ..model.dependence import loops_between
from ..model.facts import facts_of
from ..model.places import add_allocation, common_place, insert_after, insert_before, top_child
from ..model.primitive import BLOCK, list_of, primitive
from ..model.regions import only_plain_accesses, point_region, refresh_around, replace_buffer
from ..model.spans import new_realize, union
from ..model.state import State, refuse
from .marks import check_scope, find_buffer
from .nests import looped, new_axis


def new_buffer(like: Buffer, name: str, scope: str, shape: Any = None) -> Buffer:
    """A buffer to allocate, of the dtype (and shape) of another."""
    check_scope(scope)
    shape = like.shape if shape is None else shape
    return decl_buffer(shape, like.dtype, name, scope=scope)


def copy_block(
    name: str, source: Buffer, target: Buffer, parts: Iterable[Span | None] = itertools.repeat(None)
) -> Block:
    """``target[low + v] = source[low + v]`` over the parts (low, extent) of dimensions, or all of
    those of which none is given.
    """
    sizes = [(0, size) if part is None else part for part, size in zip(parts, source.shape)]
    axes = tuple(
        new_axis(f"v{k}", extent, source.shape[k].dtype) for k, (_, extent) in enumerate(sizes)
    )
    lows = (as_number(low, a.var.dtype) for a, (low, _) in zip(axes, sizes))
    indices = tuple(binary(Add, low, a.var) for a, low in zip(axes, lows))
    read, written = (point_region(b, indices) for b in (source, target))
    store = BufferStore(target, BufferLoad(source, indices), indices)
    return Block(axes, (read,), (written,), name, store)


def _check_accesses(state: State, scope: Block, buffer: Buffer, what: str) -> None:
    """Refuse uses of the buffer that may not go to a copy of its shape instead."""
    compact = not buffer.strides and number_of(buffer.elem_offset) == 0
    only_plain_accesses(state, scope, buffer, what, pointers=compact)


def _region(state: State, users: Sequence[tuple[BlockRealize, Any]], inside: Stmt) -> Box | None:
    """What the accesses touch while all loops inside `inside` run."""
    boxes = (region_while(state, r, a, loops_between(state, r, inside)) for r, a in users)
    return union(state, boxes)


def _placed(
    state: State,
    scope: Block,
    place: Stmt,
    block_name: str,
    source: Buffer,
    target: Buffer,
    box: Box | None,
    written: bool,
) -> tuple[Stmt, Block]:
    """A copy of the part `box` of a buffer, to stand in `place`: (its loops, its block).

    written  whether all of the box, and nothing else, has been written: then it is in bounds
    """
    m = Numbers(state.analyzer)
    around = loops_between(state, place, scope)
    around += [place] if isinstance(place, For) else []

    def is_part(span: Any, size: PrimExpr) -> bool:
        if span is None or not isinstance(span[1], int) or m.at_most(number_of(size), span[1]):
            return False
        return bool(around) or written or m.inside(span, (const(0, size.dtype), number_of(size)))

    axes = box.axes if box is not None else [None] * source.ndim
    spans = [s if is_part(s, size) else None for s, size in zip(axes, source.shape)]
    if not around:
        block = copy_block(block_name, source, target, spans)
        return looped(block), block
    block = copy_block(block_name, source, target)
    parts = [(a.var, s) for a, s in zip(block.iter_vars, spans) if s is not None]
    wanted = {v: (cast(v.dtype, s[0]), s[1]) for v, s in parts}
    return new_realize(state, block, wanted, around, True)[0], block


def _chosen(
    state: State, blocks: Sequence[Block] | None, all_of: list[BlockRealize], what: str
) -> list[BlockRealize]:
    if not blocks:
        return all_of
    wanted = {id(b) for b in blocks}
    known = {id(b) for r in all_of for b in (r.block, *state.blocks(r.block))}
    for b in blocks:
        if id(b) not in known:
            refuse(f"block {b.name_hint} does not read {what}", b)
    return [
        r
        for r in all_of
        if id(r.block) in wanted or any(id(b) in wanted for b in state.blocks(r.block))
    ]


def _rebind(state: State, blocks: Sequence[Block], old: Buffer, new: Buffer) -> State:
    """The blocks with one buffer in place of another."""
    for block in blocks:
        now = state.now(block)
        rebound = replace_buffer(now, old, new)
        if rebound is not now:
            state = state.exchange(now, rebound)
            state = refresh_around(state, rebound)
    return state


@primitive(block=BLOCK, consumer_blocks=list_of(BLOCK), gives=BLOCK)
def cache_read(
    state: State,
    block: Block,
    read_buffer_index: int | str,
    storage_scope: str,
    consumer_blocks: Sequence[Block] | None = None,
) -> tuple[State, Block]:
    """Copy a buffer that a block reads into a new one in `storage_scope`, and read that instead.

    read_buffer_index  position in the block's reads, or the buffer's name
    consumer_blocks    the blocks that read the copy; default: all of the scope
    returns            the block that copies

    The copy stands after the block that writes the buffer, or at the start of the scope. Raises
    ScheduleError if the buffer is written by several blocks, or by one that reads the copy.

        B[vi] = A[vi] * 2.0     →     A_local[v0] = A[v0]
                                      B[vi] = A_local[vi] * 2.0
    """
    buffer = find_buffer(block, read_buffer_index, "read")
    scope = state.scope(state.realize(block))
    users = state.child_realizes(scope)
    what = f"cache_read of {buffer.name}"
    readers = [r for r in users if buffer.data in facts_of(state, r.block).used_data()]
    writers = [r for r in users if buffer.data in facts_of(state, r.block).write_data()]
    if len(writers) > 1:
        refuse(
            f"{len(writers)} blocks write {buffer.name}; only one may", *[w.block for w in writers]
        )
    _check_accesses(state, scope, buffer, what)
    readers = _chosen(state, consumer_blocks, [r for r in readers if r not in writers], buffer.name)
    if not any(r.block is block for r in readers):
        refuse(f"block {block.name_hint} writes {buffer.name} itself", block)
    anchor: Stmt | None = None
    place: Stmt = scope
    if writers:
        anchor, place = _after_writer(state, scope, writers[0], readers, buffer)
    accesses = [
        (r, a)
        for r in readers
        for a in facts_of(state, r.block).reads
        if a.buffer.data is buffer.data
    ]
    box = _region(state, accesses, place)
    name = f"{buffer.name}_{storage_scope}"
    copy = new_buffer(buffer, name, storage_scope)
    nest, new_block = _placed(state, scope, place, name, buffer, copy, box, False)
    if anchor is None:
        state = insert_before(state, scope.body, nest)
    else:
        if any(anchor in state.around(r) for r in readers):
            name = writers[0].block.name_hint
            refuse(f"block {name} and its readers are in one statement", block)
        state = insert_after(state, anchor, nest)
    state = add_allocation(state, scope, copy)
    state = _rebind(state, [r.block for r in readers], buffer, copy)
    return state, state.now(new_block)


def _after_writer(
    state: State,
    scope: Block,
    writer: BlockRealize,
    readers: Sequence[BlockRealize],
    buffer: Buffer,
    near: bool = False,
) -> tuple[Stmt, Stmt]:
    """(the statement that holds the writer, what it directly stands in): both within the innermost
    place common to the writer and its readers (near: and one of its readers).
    """
    order = state.child_realizes(scope)
    for r in readers:
        if order.index(r) < order.index(writer):
            refuse(f"block {r.block.name_hint} reads {buffer.name} before it is written", r.block)
    if near:
        # What is read outside is complete anyway: stay close to the first reader.
        places = [common_place(state, [writer, r], scope) for r in readers]
        place = max(places, key=lambda s: len(state.around(s)))
    else:
        place = common_place(state, [writer, *readers], scope)
    for s in state.around(writer):
        if s is scope:
            break
        if isinstance(s, For) and s in state.around(place):
            uses = loop_uses(writer, s.loop_var)
            if uses & {"reduce"}:
                refuse(
                    f"block {writer.block.name_hint} is still reducing {buffer.name} over loop "
                    f"{s.loop_var.name} there",
                    writer.block,
                )
    return top_child(state, writer, place), place


@primitive(block=BLOCK, consumer_blocks=list_of(BLOCK), gives=BLOCK)
def cache_write(
    state: State,
    block: Block,
    write_buffer_index: int | str,
    storage_scope: str,
    consumer_blocks: Sequence[Block] | None = None,
) -> tuple[State, Block]:
    """Let a block write a new buffer in `storage_scope`, and copy that to the old one afterwards.

    write_buffer_index  position in the block's writes, or the buffer's name
    consumer_blocks     the blocks that read the new buffer; default: none, all read the old one
    returns             the block that copies

    Raises ScheduleError if another block writes the buffer, or if it is not shown which elements
    are written.

        C[vi] = A[vi] * 2.0     →     C_local[vi] = A[vi] * 2.0
                                      C[v0] = C_local[v0]
    """
    buffer = find_buffer(block, write_buffer_index, "write")
    name = block.name_hint
    realize = state.realize(block)
    scope = state.scope(realize)
    users = state.child_realizes(scope)
    _check_accesses(state, scope, buffer, f"cache_write of {buffer.name}")
    facts = facts_of(state, block)
    if not facts.idempotent:
        refuse(
            f"block {name} does not write {buffer.name} afresh: {facts.why or facts.kind}", block
        )
    writers = [r for r in users if buffer.data in facts_of(state, r.block).write_data()]
    why = runs_everywhere(state, block)
    if why and not runs_its_part(state, realize):
        refuse(f"it is not shown which elements block {name} writes: {why}", block)
    readers = [r for r in users if buffer.data in facts_of(state, r.block).used_data()]
    readers = [r for r in readers if r is not realize]
    if readers:
        anchor, place = _after_writer(state, scope, realize, readers, buffer, near=True)
    else:
        place = scope.body if scope.body in state.around(realize) else scope
        anchor = top_child(state, realize, place) if place is not realize else realize
        if place is scope.body and not isinstance(place, SeqStmt):
            anchor, place = scope.body, scope
    access = next(a for a in facts.writes if a.buffer.data is buffer.data)
    box = _region(state, [(realize, access)], place)
    if box is None or not box.exact:
        refuse(f"it is not shown that block {name} writes a whole region of {buffer.name}", block)
    if facts.guarded:
        refuse(f"block {name} writes {buffer.name} under a condition", block)
    if any(b is None for b in box.axes):
        refuse(f"it is not known which region of {buffer.name} block {name} writes", block)
    _check_inside(state, buffer, box, name, block)
    for r in writers:
        if r is not realize and not _apart(state, box, r, buffer, place):
            refuse(f"block {r.block.name_hint} also writes {buffer.name}", r.block)
    copy_name = f"{buffer.name}_{storage_scope}"
    copy = new_buffer(buffer, copy_name, storage_scope)
    nest, new_block = _placed(state, scope, place, copy_name, copy, buffer, box, True)
    state = insert_after(state, anchor, nest)
    moved = [block]
    if consumer_blocks:
        moved += [r.block for r in _chosen(state, consumer_blocks, readers, buffer.name)]
    state = add_allocation(state, scope, copy)
    state = _rebind(state, moved, buffer, copy)
    return state, state.now(new_block)


def _apart(state: State, box: Box, other: BlockRealize, buffer: Buffer, place: Stmt) -> bool:
    """Whether another block writes no element of `box`, as long as the loops in `place` run."""
    m = Numbers(state.analyzer)
    for access in facts_of(state, other.block).writes:
        if access.buffer.data is not buffer.data:
            continue
        theirs = _region(state, [(other, access)], place)
        if theirs is None or not any(
            a is not None and b is not None and (m.before(a, b) or m.before(b, a))
            for a, b in zip(box.axes, theirs.axes)
        ):
            return False
    return True


def _check_inside(state: State, buffer: Buffer, box: Box, name: str, block: Block) -> None:
    """A region that is copied back must be what was written: constant where loops are around."""
    for k, (size, span) in enumerate(zip(buffer.shape, box.axes)):
        m = Numbers(state.analyzer)
        assert span is not None
        if not isinstance(span[1], int) and not m.equal(span[1], number_of(size)):
            refuse(
                f"the part of dimension {k} of {buffer.name} that block {name} writes has the "
                f"size {span[1]}",
                block,
            )
