"""Copies of buffers: `cache_read` before they are read, `cache_write` after they are written, both
by their place (`read_at`, `write_at` a loop, `cache_inplace` around a block that changes what it
reads); and `cache_index`: what a block computes from its axes alone, computed once and kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import Numbers, Span, as_number, number_of
from ....base import DataType
from ....ir import (
    Add,
    Call,
    Cast,
    IntImm,
    Node,
    PrimExpr,
    Var,
    binary,
    cast,
    children,
    const,
    descend,
    substitute,
    walk,
)
from ....ir.walk import transform
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    IterVar,
    SeqStmt,
    Stmt,
    decl_buffer,
    seq,
)
from ..model.bindings import loop_uses, runs_everywhere, runs_its_part
from ..model.boxes import Box, region_while
from ..model.dependence import loops_between
from ..model.facts import facts_of
from ..model.places import (
    add_allocation,
    common_place,
    insert_after,
    insert_before,
    nest_of,
    top_child,
)
from ..model.primitive import BLOCK, LOOP, list_of, primitive
from ..model.regions import (
    only_plain_accesses,
    point_region,
    refresh_around,
    replace_buffer,
    with_regions,
)
from ..model.spans import new_realize, union
from ..model.state import State, free_variables, refuse
from .marks import check_scope, find_buffer
from .moving import compute_at, reverse_compute_at
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
    access = facts.write_of(buffer)
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


# -- by their place --------------------------------------------------------------------------------


@primitive(loop=LOOP, block=BLOCK, gives=BLOCK)
def read_at(
    state: State, loop: Var, block: Block, read_buffer_index: int | str, storage_scope: str
) -> tuple[State, Block]:
    """Copy what a block reads of a buffer in one iteration of a loop, where that begins: a
    `cache_read`, then `compute_at`. Returns the block that copies.

        for io:                          for io:
            for ii:                          for ax: A_local[io * 8 + ax] = A[io * 8 + ax]
                B[...] = A[...]     →        for ii: B[...] = A_local[...]
    """
    state, copy = cache_read(state, block, read_buffer_index, storage_scope)
    state, _ = compute_at(state, copy, loop)
    return state, state.now(copy)


@primitive(loop=LOOP, block=BLOCK, gives=BLOCK)
def write_at(
    state: State, loop: Var, block: Block, write_buffer_index: int | str, storage_scope: str
) -> tuple[State, Block]:
    """Let a block write a copy, which is copied out where an iteration of the loop ends: a
    `cache_write`, then `reverse_compute_at`. Returns the block that copies.

        for io:                          for io:
            for ii: B[...] = ...    →        for ii: B_local[...] = ...
                                             for ax: B[io * 8 + ax] = B_local[io * 8 + ax]
    """
    state, copy = cache_write(state, block, write_buffer_index, storage_scope)
    state, _ = reverse_compute_at(state, copy, loop)
    return state, state.now(copy)


@primitive(block=BLOCK, gives=list_of(BLOCK))
def cache_inplace(
    state: State, block: Block, read_buffer_index: int | str, storage_scope: str
) -> tuple[State, tuple[Block, ...]]:
    """Let a block that changes a buffer in place change a copy: copied in before, out afterwards.

    returns  the block that copies in, and the one that copies out

        A[i] = A[i] + 1.0    →    A_local[v0] = A[v0]
                                  A_local[i] = A_local[i] + 1.0
                                  A[v0] = A_local[v0]
    """
    buffer = find_buffer(block, read_buffer_index, "read")
    name = block.name_hint
    facts = facts_of(state, block)
    if buffer.data not in facts.write_data():
        refuse(f"block {name} does not write {buffer.name}, which it reads", block)
    realize = state.realize(block)
    scope = state.scope(realize)
    only_plain_accesses(state, scope, buffer, f"cache_inplace of {buffer.name}")
    anchor = nest_of(state, block)
    for r in state.child_realizes(anchor):
        if r is not realize and buffer.data in facts_of(state, r.block).touched_data():
            refuse(f"block {r.block.name_hint} in the same loops uses {buffer.name}", r.block)
    copy = new_buffer(buffer, f"{buffer.name}_{storage_scope}", storage_scope)
    read = copy_block(copy.name, buffer, copy)
    write = copy_block(copy.name, copy, buffer)
    replaced = replace_buffer(block, buffer, copy)
    state = insert_before(state, anchor, looped(read))
    state = insert_after(state, anchor, looped(write))
    state = add_allocation(state, scope, copy)
    state = state.exchange(state.now(block), replaced)
    state = refresh_around(state, replaced)
    return state, (state.now(read), state.now(write))


# -- what is computed from axes --------------------------------------------------------------------


@primitive(block=BLOCK, gives=list_of(BLOCK))
def cache_index(
    state: State, block: Block, storage_scope: str, cse_thresh: int = 0
) -> tuple[State, list[Block]]:
    """Compute indices that a block computes from its axes before it, into buffers, and read those.

    cse_thresh  0: each index that is no sum of axes and numbers; else each expression of the axes
                that occurs more often than this, and is not part of another that does
    returns     the blocks that compute them

    Raises ScheduleError unless the block is stores, lets and conditions only, and something is
    found. The new blocks stand at the start of the block's scope: the ranges of its axes are known
    there.

        C[vi] = A[vi * vi % 7 // 2]     →     index_0[v0] = v0 * v0 % 7 // 2
                                              C[vi] = A[index_0[vi]]
    """
    check_scope(storage_scope, block)
    name = block.name_hint
    if not facts_of(state, block).simple:
        refuse(f"block {name} does more than stores, lets and conditions", block)
    axes = {a.var: a for a in block.iter_vars}
    chosen = _often(block, axes, cse_thresh) if cse_thresh > 0 else _indices(block, axes)
    if not chosen:
        refuse(f"block {name} computes nothing from its axes that could be kept", block)
    scope = state.scope(state.realize(block))
    nests = []
    new_blocks: list[Block] = []
    buffers: list[Buffer] = []
    kept: dict[int, PrimExpr] = {}
    for e in chosen:
        used = [axes[v] for v in axes if v in free_variables(e)]
        for a in used:
            if a.dom is None or any(state.has_loop(v) for v in free_variables(a.dom)):
                refuse(f"the range of axis {a.var.name} of block {name} changes", block)
        new_block, buffer, load = _kept(e, used, len(new_blocks), storage_scope)
        new_blocks.append(with_regions(state, new_block))
        nests.append(looped(new_blocks[-1]))
        buffers.append(buffer)
        kept[id(e)] = load
    new = transform(block, None, pre=lambda n: kept.get(id(n)), without=(Buffer, IterVar))
    state = state.replace(block, with_regions(state, new))
    scope = state.now(scope)
    state = insert_before(state, scope.body, seq(*nests))
    state = add_allocation(state, scope, *buffers)
    return state, [state.now(b) for b in new_blocks]


def _kept(
    e: PrimExpr, used: list[IterVar], position: int, scope: str
) -> tuple[Block, Buffer, PrimExpr]:
    """(the block that computes `e`, its buffer, the load that stands for `e`)."""
    name = f"index_{position}"
    sizes = tuple(a.range.extent for a in used)
    buffer = decl_buffer(sizes, e.dtype, name, scope=scope)
    new = [new_axis(f"v{k}", a.range.extent, a.var.dtype) for k, a in enumerate(used)]
    places = {a.var: cast(a.var.dtype, v.var) + a.range.min for a, v in zip(used, new)}
    store = BufferStore(buffer, substitute(e, places), tuple(v.var for v in new))
    block = Block(tuple(new), (), (), name, store)
    return block, buffer, BufferLoad(buffer, tuple(a.var - a.range.min for a in used))


def _of_axes(e: Any, axes: dict[Var, IterVar]) -> bool:
    """Whether `e` is computed from the axes alone, and cannot fail where it would not be asked."""
    inside = free_variables(e)
    if not inside or not inside <= set(axes):
        return False
    for n in walk(e):
        if isinstance(n, BufferLoad):
            return False
        if isinstance(n, Call) and getattr(n.op, "effect", "") != "pure":
            return False
    return True


def _indices(block: Block, axes: dict[Var, IterVar]) -> list[PrimExpr]:
    """The indices of loads that are computed from axes by more than sums."""
    by_id: dict[int, PrimExpr] = {}
    for n in walk(block.body):
        for i in n.indices if isinstance(n, BufferLoad) else ():
            plain = all(type(m).__name__ in ("Add", "Sub", "Var", "IntImm") for m in walk(i))
            if not plain and _of_axes(i, axes):
                by_id.setdefault(id(i), i)
    return list(by_id.values())


def _often(block: Block, axes: dict[Var, IterVar], threshold: int) -> list[PrimExpr]:
    """The expressions of axes that occur more than `threshold` times, the largest ones."""
    count: dict[int, int] = {}
    by_id: dict[int, PrimExpr] = {}
    body: Node = block.body
    for n in descend(body, children):
        if isinstance(n, PrimExpr) and not isinstance(n, (Var, IntImm, Cast)) and _of_axes(n, axes):
            count[id(n)] = count.get(id(n), 0) + 1
            by_id[id(n)] = n
    chosen = {k for k, times in count.items() if times > threshold}
    inner = {id(m) for k in chosen for m in walk(by_id[k]) if m is not by_id[k] and id(m) in chosen}
    often = [by_id[k] for k in chosen - inner if by_id[k].dtype is not DataType("bool")]
    return sorted(often, key=str)
