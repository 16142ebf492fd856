"""Primitives that find blocks and loops. They change nothing."""

from __future__ import annotations

from typing import Any

from ....base import did_you_mean
from ....ir import Var
from ...stmt import Block, BlockRealize, For, Stmt
from ..model.facts import facts_of
from ..model.primitive import BLOCK, BLOCK_OR_LOOP, LOOP, list_of, primitive
from ..model.state import State, refuse


@primitive(gives=BLOCK)
def get_block(state: State, name: str, func_name: str | None = None) -> tuple[State, Block]:
    """The block of that name. Raises ScheduleError if there is none, or more than one."""
    named = [b for b in state.blocks() if b.name_hint == name]
    if not named:
        names = sorted({b.name_hint for b in state.blocks()})
        hint = did_you_mean(name, names)
        refuse(f"no block is named {name!r}{hint}; there are: {', '.join(names[:8])}")
    if len(named) > 1:
        refuse(
            f"{len(named)} blocks are named {name!r}; rename them, or use get_child_blocks", *named
        )
    return state, named[0]


@primitive(block=BLOCK, gives=list_of(LOOP))
def get_loops(state: State, block: Block) -> tuple[State, tuple[Var, ...]]:
    """The loops around a block within the next block outside, outermost first."""
    if block is state.root():
        return state, ()
    return state, tuple([f.loop_var for f in state.loops_above(state.realize(block))])


@primitive(block_or_loop=BLOCK_OR_LOOP, gives=list_of(BLOCK))
def get_child_blocks(state: State, block_or_loop: Any) -> tuple[State, tuple[Block, ...]]:
    """The blocks directly inside a block or loop, in program order."""
    target: Stmt = state.loop(block_or_loop) if isinstance(block_or_loop, Var) else block_or_loop
    state.check(target)
    root = target.body if isinstance(target, For) else target
    return state, tuple(r.block for r in state.child_realizes(root))


def siblings(state: State, block: Block) -> list[BlockRealize]:
    """All blocks of the block's scope, itself included, in program order."""
    return state.child_realizes(state.scope(state.realize(block)))


def producers_of(state: State, block: Block) -> list[BlockRealize]:
    """The blocks of the scope, before `block`, that write what it reads."""
    wanted = facts_of(state, block).used_data()
    out: list[BlockRealize] = []
    for r in siblings(state, block):
        if r.block is block:
            break
        if facts_of(state, r.block).write_data() & wanted:
            out.append(r)
    return out


def consumers_of(state: State, block: Block) -> list[BlockRealize]:
    """The blocks of the scope, after `block`, that read (or go on updating) what it writes."""
    written = facts_of(state, block).write_data()
    out: list[BlockRealize] = []
    for r in reversed(siblings(state, block)):
        if r.block is block:
            break
        if facts_of(state, r.block).used_data() & written:
            out.append(r)
    return out[::-1]


@primitive(block=BLOCK, gives=list_of(BLOCK))
def get_producers(state: State, block: Block) -> tuple[State, tuple[Block, ...]]:
    """The blocks of the same scope that write what `block` reads."""
    return state, tuple(r.block for r in producers_of(state, block))


@primitive(block=BLOCK, gives=list_of(BLOCK))
def get_consumers(state: State, block: Block) -> tuple[State, tuple[Block, ...]]:
    """The blocks of the same scope that read what `block` writes."""
    return state, tuple(r.block for r in consumers_of(state, block))


@primitive(scope_block=BLOCK, gives=list_of(BLOCK))
def get_output_blocks(state: State, scope_block: Block) -> tuple[State, tuple[Block, ...]]:
    """The blocks directly in `scope_block` that write something which is seen outside of it."""
    own = {b.data for b in scope_block.alloc_buffers}
    return state, tuple(
        r.block
        for r in state.child_realizes(scope_block)
        if facts_of(state, r.block).write_data() - own
    )
