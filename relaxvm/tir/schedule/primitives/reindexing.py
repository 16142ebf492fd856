"""Copies of a buffer indexed by the axes of a block: `reindex`, and with a layout of one's own,
`reindex_cache_read` and `reindex_cache_write`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir import INTRINSICS, Call, PrimExpr, Select, Var, substitute, walk
from ...index_map import IndexMap
from ...stmt import Block, Buffer, BufferLoad, BufferStore, IterVar
from ..model.boxes import Access
from ..model.facts import BlockKind, facts_of
from ..model.places import add_allocation, insert_after, insert_before, nest_of
from ..model.primitive import BLOCK, primitive
from ..model.regions import (
    only_plain_accesses,
    refresh_around,
    replace_accesses,
    users_of,
    with_regions,
)
from ..model.state import State, free_variables, refuse
from .cache import new_buffer
from .checks import check_from_zero, check_runs_everywhere, check_takes
from .layout import INDEX_MAP
from .marks import BUFFER, buffer_of, find_buffer
from .nests import looped, new_axis


def _single_access(state: State, block: Block, buffer: Buffer, write: bool) -> Access:
    facts = facts_of(state, block)
    name = block.name_hint
    if facts.kind is BlockKind.OPAQUE or not facts.simple:
        refuse(f"block {name} is not plain: {facts.why or 'it holds other blocks or loops'}", block)
    side = facts.writes if write else facts.reads
    accesses = [a for a in side if a.buffer is buffer]
    if not accesses:
        refuse(f"block {name} only updates {buffer.name}; give it as a write", block)
    if len(accesses) > 1:
        refuse(f"block {name} uses {buffer.name} at {len(accesses)} places", block)
    if any(size != 1 for _, size in accesses[0].box):
        refuse(f"block {name} uses more of {buffer.name} than one element at a time", block)
    check_runs_everywhere(state, block)
    for n in walk(block.body):
        # A guarded load may be out of bounds where the guard is false; the copy would read it.
        guarded = isinstance(n, Select) or (
            isinstance(n, Call) and n.op is INTRINSICS["if_then_else"]
        )
        if (
            guarded
            and not write
            and any(isinstance(m, BufferLoad) and m.buffer is buffer for m in walk(n))
        ):
            refuse(f"block {name} reads {buffer.name} under a condition", block)
    return accesses[0]


def _copied(
    state: State,
    block: Block,
    access: Access,
    write: bool,
    index_map: IndexMap,
    axes: Sequence[IterVar],
    name: str,
    scope_name: str,
) -> tuple[State, Block]:
    """`block` over a new buffer indexed by ``index_map(axes)``, and the block that copies."""
    buffer = access.buffer
    extents = [a.range.extent for a in axes]
    shape = index_map.map_shape(extents, state.analyzer)
    copy = new_buffer(buffer, name, scope_name, shape)
    copy_axes = tuple(new_axis(a.var.name, a.range.extent, a.var.dtype) for a in axes)
    fresh = {a.var: new.var for a, new in zip(axes, copy_axes)}
    outside = [low for low, _ in access.box]
    theirs = tuple(substitute(e, fresh) for e in outside)
    ours = index_map.map_indices([fresh[a.var] for a in axes])
    if write:
        store = BufferStore(buffer, BufferLoad(copy, ours), theirs)
    else:
        store = BufferStore(copy, BufferLoad(buffer, theirs), ours)
    copying = with_regions(state, Block(copy_axes, (), (), name, store))
    inner = index_map.map_indices([a.var for a in axes])

    def load(n: BufferLoad) -> PrimExpr | None:
        return BufferLoad(copy, inner) if n.buffer is buffer else None

    def new_store(n: BufferStore) -> BufferStore | None:
        return n.replace(buffer=copy, indices=inner) if n.buffer is buffer else None

    copied = replace_accesses(
        block.replace(reads=(), writes=()), load, new_store if write else None
    )
    copied = with_regions(state, copied)
    realize = state.realize(block)
    scope = state.scope(realize)
    anchor = nest_of(state, block)
    state = (insert_after if write else insert_before)(state, anchor, looped(copying))
    state = add_allocation(state, scope, copy)
    state = state.replace(state.now(block), copied)
    state = refresh_around(state, copied)
    return state, state.now(copying)


def _check_alone(state: State, block: Block, buffer: Buffer, write: bool) -> None:
    """Refuse if the copy, outside of the loops, would not see what the block saw."""
    realize = state.realize(block)
    scope = state.scope(realize)
    only_plain_accesses(state, scope, buffer, f"reindexing {buffer.name}")
    anchor = nest_of(state, block)
    readers, writers = users_of(state, buffer.data)
    for other in (*writers, *(readers if write else ())):
        if other is not block and anchor in state.around(other):
            refuse(f"block {other.name_hint} in the same loops uses {buffer.name}", other)
    for other in writers:
        if write and other is not block:
            refuse(f"block {other.name_hint} also writes {buffer.name}", other)
    if write and not facts_of(state, block).idempotent:
        refuse(f"block {block.name_hint} goes on with what is in {buffer.name} already", block)
    if write and facts_of(state, block).guarded:
        refuse(f"block {block.name_hint} writes {buffer.name} under a condition", block)
    if not write and buffer.data in facts_of(state, block).write_data():
        refuse(f"block {block.name_hint} writes {buffer.name} itself", block)


def _used_axes(block: Block, access: Access) -> list[IterVar]:
    free = {v for low, _ in access.box for v in free_variables(low)}
    return [a for a in block.iter_vars if a.var in free]


@primitive(block=BLOCK, buffer=BUFFER, gives=BLOCK)
def reindex(
    state: State, block: Block, buffer: Any, skip_simplify: bool = False
) -> tuple[State, Block]:
    """Copy a buffer into one that is indexed by the block's own axes, one dimension each.

    buffer   ("read" or "write", position), or a name
    returns  the block that copies

        C[vi] += A[vi + vk] * ...    →    A_reindex[v0, v1] = A[v0 + v1]
                                          C[vi] += A_reindex[vi, vk] * ...
    """
    what, old = buffer_of(block, buffer)
    write = what == "write"
    _check_alone(state, block, old, write)
    access = _single_access(state, block, old, write)
    axes = _used_axes(block, access)
    check_from_zero(block, axes)
    variables = [Var(a.var.name, a.var.dtype) for a in axes]
    if not axes:
        refuse(f"no axis of block {block.name_hint} indexes {old.name}", block)
    identity = IndexMap(variables, variables)
    return _copied(state, block, access, write, identity, axes, f"{old.name}_reindex", old.scope())


def _with_map(
    state: State, block: Block, old: Buffer, write: bool, index_map: IndexMap, storage_scope: str
) -> tuple[State, Block]:
    _check_alone(state, block, old, write)
    access = _single_access(state, block, old, write)
    count = len(block.iter_vars)
    check_takes(index_map, count, f"block {block.name_hint} has {count} axes, the index map", block)
    used = {v for e in index_map.final_indices for v in free_variables(e)}
    kept = [(v, a) for v, a in zip(index_map.initial_indices, block.iter_vars) if v in used]
    axes = [a for _, a in kept]
    check_from_zero(block, axes)
    small = IndexMap([v for v, _ in kept], index_map.final_indices)
    extents = [a.range.extent for a in axes]
    if not small.is_injective(extents, state.analyzer):
        refuse(
            f"{index_map} is not shown to keep the iterations of block {block.name_hint} apart",
            block,
        )
    free = {v for low, _ in access.box for v in free_variables(low)}
    for a in block.iter_vars:
        if a.var in free and not any(a is b for b in axes):
            refuse(f"axis {a.var.name} indexes {old.name}, but the index map leaves it out", block)
        if write and a.is_reduce and any(a is b for b in axes):
            refuse(f"the reduce axis {a.var.name} cannot index what is written", block)
    name = f"{old.name}_{storage_scope}"
    return _copied(state, block, access, write, small, axes, name, storage_scope)


@primitive(block=BLOCK, index_map=INDEX_MAP, gives=BLOCK)
def reindex_cache_read(
    state: State,
    block: Block,
    read_buffer_index: int | str,
    storage_scope: str,
    index_map: IndexMap,
) -> tuple[State, Block]:
    """Copy a buffer that a block reads into one indexed by ``index_map(axes of the block)``.

    returns  the block that copies

        C[vi, vj] += A[vi, vk] * ...    →    A_local[v1, v0] = A[v0, v1]
                                             C[vi, vj] += A_local[vk, vi] * ...
    """
    old = find_buffer(block, read_buffer_index, "read")
    return _with_map(state, block, old, False, index_map, storage_scope)


@primitive(block=BLOCK, index_map=INDEX_MAP, gives=BLOCK)
def reindex_cache_write(
    state: State,
    block: Block,
    write_buffer_index: int | str,
    storage_scope: str,
    index_map: IndexMap,
) -> tuple[State, Block]:
    """Let a block write a buffer indexed by ``index_map(its axes)``, copied out afterwards.

    returns  the block that copies

        C[vi, vj] = ...    →    C_local[vj, vi] = ...
                                C[v0, v1] = C_local[v1, v0]
    """
    old = find_buffer(block, write_buffer_index, "write")
    return _with_map(state, block, old, True, index_map, storage_scope)
