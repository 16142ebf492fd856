"""Copies of buffers by their place: `read_at` and `write_at` a loop, `cache_inplace` around a block
that changes what it reads.
"""

from __future__ import annotations

from ....ir import Var
from ...stmt import Block
from ..model.facts import facts_of
from ..model.places import add_allocation, insert_after, insert_before, nest_of
from ..model.primitive import BLOCK, LOOP, list_of, primitive
from ..model.regions import only_plain_accesses, refresh_around, replace_buffer
from ..model.state import State, refuse
from .cache import cache_read, cache_write, copy_block, new_buffer
from .marks import find_buffer
from .moving import compute_at, reverse_compute_at
from .nests import looped


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
        theirs = facts_of(state, r.block)
        if r is not realize and buffer.data in theirs.read_data() | theirs.write_data():
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
