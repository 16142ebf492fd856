"""`cache_index`: what a block computes from its axes alone, computed once and kept."""

from __future__ import annotations

from typing import Any

from ....base import DataType
from ....ir import (
    Call,
    Cast,
    IntImm,
    Node,
    PrimExpr,
    Var,
    cast,
    children,
    descend,
    substitute,
    walk,
)
from ....ir.walk import transform
from ...stmt import Block, Buffer, BufferLoad, BufferStore, IterVar, decl_buffer, seq
from ..model.facts import facts_of
from ..model.places import add_allocation, insert_before
from ..model.primitive import BLOCK, list_of, primitive
from ..model.regions import with_regions
from ..model.state import State, free_variables, refuse
from .marks import check_scope
from .nests import looped, new_axis


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
