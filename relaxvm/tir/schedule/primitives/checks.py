"""What several primitives ask of a block before they change it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ....ir import is_const
from ...index_map import IndexMap
from ...stmt import Block, BlockRealize, For, IterVar, Stmt
from ..model.bindings import runs_everywhere
from ..model.state import State, refuse


def check_runs_everywhere(state: State, block: Block, what: str = "") -> None:
    """Refuse, as `what` cannot be, unless every iteration of the block's domain is run."""
    why = runs_everywhere(state, block)
    if why:
        what = what or f"the iterations of block {block.name_hint} are not known"
        refuse(f"{what}: {why}", block)


def check_from_zero(block: Block, axes: Iterable[IterVar]) -> None:
    """Refuse axes that do not start at 0."""
    for a in axes:
        if not is_const(a.range.min, 0):
            refuse(f"axis {a.var.name} of block {block.name_hint} does not start at 0", block)


def check_own_loops(state: State, block: Block) -> None:
    """Refuse unless each axis is a loop of its own, without annotations."""
    realize = state.realize(block)
    loops: set[Any] = {f.loop_var for f in state.loops_above(realize) if not f.annotations}
    for a, v in zip(block.iter_vars, realize.iter_values):
        if v not in loops:
            refuse(f"axis {a.var.name} of block {block.name_hint} has no loop of its own", block)
        loops.remove(v)


def check_takes(index_map: IndexMap, count: int, what: str, *sites: Any) -> None:
    """Refuse an index map that takes another number of indices than `what` says."""
    if len(index_map.initial_indices) != count:
        refuse(f"{what} takes {len(index_map.initial_indices)}", *sites)


def block_under(loop: For, what: str) -> tuple[BlockRealize, list[For]]:
    """The only block under a loop, and the loops from that inwards. Refuses more, with `what`."""
    loops: list[For] = []
    inner: Stmt = loop
    while isinstance(inner, For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, BlockRealize):
        refuse(f"loop {loop.loop_var.name} holds more than the loops of one block; {what}", loop)
    return inner, loops
