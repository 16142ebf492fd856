"""Primitives that pad: `decompose_padding` takes a padding apart, `pad_einsum` pads a contraction
to sizes that divide.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from ....arith import interval_of
from ....ir import (
    INTRINSICS,
    LT,
    And,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Mod,
    Mul,
    PrimExpr,
    Range,
    Select,
    Var,
    cast,
    const,
    substitute,
    walk,
)
from ...copies import fresh_copy
from ...op import all as every
from ...op import if_then_else
from ...stmt import Block, BlockRealize, Buffer, BufferLoad, BufferStore, For, ForKind, Stmt
from ..model.boxes import Access
from ..model.dependence import loops_between
from ..model.facts import BlockKind, Facts, facts_of
from ..model.places import add_allocation, insert_after, insert_before, nest_of
from ..model.primitive import BLOCK, LOOP, primitive
from ..model.reducer import match_reducer
from ..model.regions import only_plain_accesses, users_of, with_regions
from ..model.state import State, free_variables, refuse
from .cache import new_buffer
from .checks import check_from_zero, check_own_loops, check_runs_everywhere
from .inline import single_store
from .layout import whole_nest
from .nests import axes_over, looped


@primitive(block=BLOCK, loop=LOOP, gives=BLOCK)
def decompose_padding(state: State, block: Block, loop: Var) -> tuple[State, Block]:
    """Take ``if_then_else(inside, A[...], value)`` apart: fill with the value before `loop`, then
    copy where `inside` holds. Returns the block that fills.

        for i in range(10):               for i in range(10):
            P[i] = if_then_else(    →         P[i] = 0.0
              i > 0, A[i - 1], 0.0)       for i in range(10):
                                              T.where(i > 0)
                                              P[i] = A[i - 1]
    """
    target = state.loop(loop)
    store = single_store(state, block, "taken apart")
    name, value = block.name_hint, store.value
    realize = state.realize(block)
    if target not in state.around(realize):
        refuse(f"loop {loop.name} is not around block {name}", target, block)
    if isinstance(value, Call) and value.op is INTRINSICS["if_then_else"]:
        condition, inside, outside = value.args
    elif isinstance(value, Select):
        condition, inside, outside = value.condition, value.true_value, value.false_value
    else:
        refuse(f"block {name} is no padding: its value is no if_then_else", block)
    if not isinstance(outside, (IntImm, FloatImm)):
        refuse(f"the padding of block {name} is no constant: {outside}", block)
    check_runs_everywhere(state, block, f"block {name} cannot be taken apart")
    written = facts_of(state, block).write_data()
    for r in state.child_realizes(target.body):
        if r is not realize and facts_of(state, r.block).touched_data() & written:
            refuse(f"block {r.block.name_hint} uses the same elements in loop {loop.name}", r.block)
    filling = block.replace(body=store.replace(value=outside), name_hint=f"{name}_pad_const")
    fill_realize: Stmt = BlockRealize(realize.iter_values, realize.predicate, filling)
    for f in (*reversed(loops_between(state, realize, target)), target):
        kind = ForKind.SERIAL if f.kind == ForKind.THREAD_BINDING else f.kind
        fill_realize = For(f.loop_var, f.min, f.extent, kind, fill_realize)
    fill = fresh_copy(fill_realize)
    bound = {a.var: v for a, v in zip(block.iter_vars, realize.iter_values)}
    where = substitute(condition, bound)
    certain = isinstance(realize.predicate, IntImm) and realize.predicate.value
    predicate = where if certain else And(realize.predicate, where)
    copying = with_regions(state, block.replace(body=store.replace(value=inside)))
    state = state.replace(
        realize, BlockRealize(realize.iter_values, predicate, copying), [(block, copying)]
    )
    state = insert_before(state, state.loop(loop), fill)
    first = state.child_realizes(fill)[0].block
    fixed = with_regions(state, first)
    state = state.replace(first, fixed)
    return state, state.now(fixed)


# -- pad_einsum ------------------------------------------------------------------------------------


@primitive(block=BLOCK)
def pad_einsum(state: State, block: Block, padding: Sequence[int]) -> tuple[State, None]:
    """Let a contraction run over axes padded to multiples.

    padding  for each axis of the block, the number that its extent becomes a multiple of

    Inputs are copied into buffers padded with the value that changes nothing (0 for sums of
    products), the result is copied out of a padded buffer. Raises ScheduleError unless the block is
    a sum over loads, with one loop per axis, whose padded axes index what they write, and, if they
    are reduced, what they read, by themselves. Other indices (``h * 2 + r``) may be any sums.

        C[i, j] += A[i, k] * B[k, j]    →    A_pad = A padded with 0;  B_pad = B padded with 0
                                             C_pad[i, j] += A_pad[i, k] * B_pad[k, j]
                                             C = C_pad without the padding
    """
    name = block.name_hint
    facts = facts_of(state, block)
    if facts.kind not in (BlockKind.REDUCTION, BlockKind.COMPLETE) or not facts.simple:
        refuse(f"block {name} is no contraction: {facts.why or facts.kind}", block)
    if facts.guarded:
        refuse(f"block {name} writes under a condition", block)
    if len(padding) != len(block.iter_vars):
        refuse(f"block {name} has {len(block.iter_vars)} axes, got {len(padding)} paddings", block)
    check_runs_everywhere(state, block, f"block {name} cannot be padded")
    whole_nest(state, block)
    grown = _grown(state, block, padding)
    if not grown:
        return state, None
    _check_value(block, facts, grown)
    scope = state.scope(state.realize(block))
    summed = {a.var for a in block.iter_vars if not a.is_spatial}
    replaced: dict[Any, Buffer] = {}
    before: list[Stmt] = []
    after: list[Stmt] = []
    for access, is_write in [(a, False) for a in facts.reads] + [(a, True) for a in facts.writes]:
        indices = [low for low, _ in access.box]
        shape = [
            _reach(state, block, access.buffer, i, size, grown)
            for i, size in zip(indices, access.buffer.shape)
        ]
        there = replaced.get(access.buffer)
        if there is not None and all(a is b for a, b in zip(shape, there.shape)):
            continue
        if there is not None:
            refuse(f"block {name} reads {access.buffer.name} twice, in different ways", block)
        matter = grown.keys() if is_write else grown.keys() & summed
        same = all(a is b for a, b in zip(shape, access.buffer.shape))
        if same and not any(free_variables(i) & matter for i in indices):
            continue
        only_plain_accesses(state, scope, access.buffer, "pad_einsum")
        pad = new_buffer(access.buffer, f"{access.buffer.name}_pad", access.buffer.scope(), shape)
        replaced[access.buffer] = pad
        if is_write:
            after.append(_copy_out(state, block, access, pad))
        else:
            before.append(_copy_in(state, block, access, pad))
    state = _rebuild(state, block, grown, replaced)
    anchor = nest_of(state, block)
    for s in before:
        state = insert_before(state, anchor, s)
    anchor = nest_of(state, block)
    for s in reversed(after):
        state = insert_after(state, anchor, s)
    return add_allocation(state, scope, *replaced.values()), None


def _grown(state: State, block: Block, padding: Sequence[int]) -> dict[Var, PrimExpr]:
    """{axis: extent} of the axes that are not multiples of their padding."""
    check_own_loops(state, block)
    check_from_zero(block, block.iter_vars)
    grown: dict[Var, PrimExpr] = {}
    for a, p in zip(block.iter_vars, padding):
        if p < 1:
            refuse(f"a padding is at least 1, got {p}", block)
        extent = a.range.extent
        if p > 1 and not state.analyzer.can_prove_equal(extent % p, 0):
            grown[a.var] = state.analyzer.simplify((extent + (p - 1)) // p * p)
    return grown


def _extents_of(block: Block) -> dict[Var, PrimExpr]:
    return {a.var: a.range.extent for a in block.iter_vars}


def _reach(
    state: State,
    block: Block,
    buffer: Buffer,
    index: PrimExpr,
    size: PrimExpr,
    grown: dict[Var, PrimExpr],
) -> PrimExpr:
    """The size of a padded buffer along a dimension that is accessed at `index`."""
    if not free_variables(index) & grown.keys():
        return size
    old = _extents_of(block)
    if isinstance(index, Var) and state.analyzer.can_prove_equal(old[index], size):
        return grown[index]
    known = {v: (const(0, e.dtype), e - 1) for v, e in {**old, **grown}.items()}
    span = interval_of(index, known, state.analyzer)
    if span is None or not state.analyzer.can_prove(span[0] >= 0):
        refuse(
            f"block {block.name_hint} reads {buffer.name} at {index}, which is not shown to stay "
            "at or above 0 where the axes are padded",
            block,
        )
    # What lies behind is never read: a stride may leave some of a row over.
    return state.analyzer.simplify(cast(size.dtype, span[1] + 1))


_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)


def _check_value(block: Block, facts: Facts, grown: Collection[Var]) -> None:
    """Refuse unless padding with zeros changes no result."""
    name = block.name_hint
    for n in walk(block.body):
        if isinstance(n, _DIVISIONS) and n.dtype.is_int and not isinstance(n.b, IntImm):
            refuse(f"block {name} divides by {n.b}, which would be 0 in the padding", block)
    reduced = [a.var for a in block.iter_vars if not a.is_spatial and a.var in grown]
    for access in (*facts.reads, *facts.writes):
        is_written = any(access is w for w in facts.writes)
        for low, _ in access.box:
            if isinstance(low, (Var, IntImm)):
                continue
            if is_written or any(v in reduced for v in free_variables(low)):
                refuse(
                    f"block {name} indexes {access.buffer.name} by {low}, which is no axis", block
                )
    written = {low for access in facts.writes for low, _ in access.box}
    for a in block.iter_vars:
        if a.is_spatial and a.var in grown and not any(a.var is low for low in written):
            refuse(f"axis {a.var.name} of block {name} does not index what it writes", block)
    if not reduced:
        return
    reducer = match_reducer(block)
    if reducer is None or reducer.name != "sum":
        refuse(f"block {name} is not a sum, so that zeros would change its result", block)
    for v in reduced:
        if not _vanishes(reducer.updates[0], v):
            refuse(f"the terms of block {name} do not vanish where axis {v.name} is padded", block)


def _vanishes(e: PrimExpr, axis: Var) -> bool:
    """Whether a term is 0 where the padded loads over `axis` are."""
    if isinstance(e, Mul):
        return _vanishes(e.a, axis) or _vanishes(e.b, axis)
    if isinstance(e, Cast):
        return _vanishes(e.value, axis)
    return isinstance(e, BufferLoad) and any(i is axis for i in e.indices)


def _copy_in(state: State, block: Block, access: Access, pad: Buffer) -> Stmt:
    """What is read, within the old extents of axes that index it by themselves; else 0."""
    source, old = access.buffer, _extents_of(block)
    axes = axes_over(pad.shape)
    indices = tuple(a.var for a in axes)
    value: PrimExpr = BufferLoad(source, indices)
    conditions: list[PrimExpr] = []
    for a, (low, _), there, padded in zip(axes, access.box, source.shape, pad.shape):
        before = there if not isinstance(low, Var) else old.get(low, there)
        enough = state.analyzer.can_prove(there >= before)
        for limit in (before,) if enough else (before, there):
            if not state.analyzer.can_prove(limit >= padded):
                conditions.append(LT(a.var, cast(a.var.dtype, limit)))
    if conditions:
        value = if_then_else(every(*conditions), value, const(0, source.dtype))
    copying = Block(axes, (), (), pad.name, BufferStore(pad, value, indices))
    return looped(with_regions(state, copying))


def _copy_out(state: State, block: Block, access: Access, pad: Buffer) -> Stmt:
    """The elements that `block` wrote before it was padded, back into its buffer."""
    used = {v for low, _ in access.box for v in free_variables(low)}
    axes = [
        a.replace(var=Var(f"v{k}", a.var.dtype), iter_type="spatial")
        for k, a in enumerate(a for a in block.iter_vars if a.var in used)
    ]
    names = dict(zip((a.var for a in block.iter_vars if a.var in used), (a.var for a in axes)))
    indices = tuple(substitute(low, names) for low, _ in access.box)
    store = BufferStore(access.buffer, BufferLoad(pad, indices), indices)
    copying = Block(tuple(axes), (), (), pad.name, store)
    return looped(with_regions(state, copying))


def _rebuild(
    state: State, block: Block, grown: dict[Var, PrimExpr], replaced: dict[Any, Buffer]
) -> State:
    """The contraction over the padded buffers and extents."""
    for buffer in {a.buffer for a in facts_of(state, block).writes} & replaced.keys():
        if any(w is not block for w in users_of(state, buffer.data)[1]):
            refuse(f"another block writes {buffer.name}", block)
    padded = substitute(block.replace(reads=(), writes=()), replaced)
    axes = tuple(
        a.replace(dom=Range.from_min_extent(a.range.min, grown.get(a.var, a.range.extent)))
        for a in padded.iter_vars
    )
    padded = with_regions(state, padded.replace(iter_vars=axes))
    realize = state.realize(block)
    new = BlockRealize(realize.iter_values, const(True), padded)
    state = state.replace(realize, new, [(block, padded)])
    loops: Any = dict(zip((a.var for a in block.iter_vars), realize.iter_values))
    for v, extent in grown.items():
        loop = state.loop(loops[v])
        state = state.replace(loop, loop.replace(extent=extent))
    return state
