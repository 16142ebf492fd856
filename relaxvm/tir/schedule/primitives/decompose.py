"""`decompose_reduction`: the start of a reduction as a block of its own."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir import IntImm, PrimExpr, Var, substitute
from ...stmt import Block, BlockRealize, BufferStore, For, ForKind, IterVar, Stmt
from ..model.bindings import loop_uses, moving_domain, spatial_loops, stands_under
from ..model.dependence import check_init_comes_first, check_no_bare_statements
from ..model.facts import BlockKind, facts_of
from ..model.places import insert_before
from ..model.primitive import BLOCK, LOOP, primitive
from ..model.regions import refresh_around, users_of, with_regions
from ..model.state import State, refuse


def _check(state: State, block: Block, target: For) -> tuple[BlockRealize, list[For]]:
    """The realize and the loops from `target` inwards; refuses where init cannot move before it."""
    name = block.name_hint
    facts = facts_of(state, block)
    if block.init is None or facts.kind is not BlockKind.REDUCTION:
        why = facts.why or "it has no init"
        refuse(f"block {name} is no reduction that can be decomposed: {why}", block)
    realize = state.realize(block)
    loops = state.loops_above(realize)
    if target not in loops:
        refuse(f"loop {target.loop_var.name} is not around block {name}", target, block)
    inner = loops[loops.index(target) :]
    for f in loops[: loops.index(target)]:
        if loop_uses(realize, f.loop_var) & {"reduce"}:
            refuse(
                f"loop {f.loop_var.name}, outside of loop {target.loop_var.name}, moves a reduce "
                f"axis of block {name}: init would run again in each of its iterations",
                f,
                block,
            )
    why = stands_under(state, realize, target) or moving_domain(state, block)
    if why:
        refuse(f"block {name} cannot be decomposed: {why}", block)
    check_no_bare_statements(state, target.body)
    determined = spatial_loops(state, realize, inner)
    for f in inner:
        uses = loop_uses(realize, f.loop_var)
        if uses == {"reduce"} or (uses == {"spatial"} and f.loop_var in determined):
            continue
        if getattr(f.extent, "value", 0) == 1:
            continue
        refuse(
            f"loop {f.loop_var.name} runs the same reduction of block {name} more than once, so "
            "that init must stay in it",
            f,
            block,
        )
    check_init_comes_first(state, realize, inner)
    _check_not_empty(state, block, realize, inner)
    written = facts.write_data()
    for r in state.child_realizes(target.body):
        if r is realize:
            break
        theirs = facts_of(state, r.block)
        if (theirs.read_data() | theirs.write_data()) & written:
            refuse(f"block {r.block.name_hint} uses the same elements before block {name}", r.block)
    return realize, inner


def _check_not_empty(state: State, block: Block, realize: BlockRealize, inner: list[For]) -> None:
    """Where a reduction has no iterations its init does not run now, but will: refuse if that
    could be seen.
    """
    for f in inner:
        if "reduce" not in loop_uses(realize, f.loop_var):
            continue
        if isinstance(f.extent, IntImm) and f.extent.value <= 0:
            refuse(f"loop {f.loop_var.name} has no iterations", f)
        if state.analyzer.can_prove(f.extent >= 1):
            continue
        for w in facts_of(state, block).writes:
            for other in users_of(state, w.buffer.data)[1]:
                if other is not block and not _same_start(other, block):
                    refuse(
                        f"loop {f.loop_var.name} may have no iterations, and what block "
                        f"{other.name_hint} wrote would then be overwritten",
                        f,
                        other,
                    )


def _same_start(other: Block, block: Block) -> bool:
    a, b = other.body, block.init
    return isinstance(a, BufferStore) and isinstance(b, BufferStore) and a.value is b.value


@primitive(block=BLOCK, loop=LOOP, gives=BLOCK)
def decompose_reduction(state: State, block: Block, loop: Var) -> tuple[State, Block]:
    """Make the init of a reduction a block of its own, before `loop`. Returns that block.

    The random variable of the reduction stands for the update that is left. Raises ScheduleError if
    a loop outside of `loop` is part of the reduction, or init would not run once per element.

        for i, k in T.grid(8, 4):         for i in range(8):
            with T.init():          →         B[i] = 0.0
                B[i] = 0.0                for i, k in T.grid(8, 4):
            B[i] = B[i] + A[i, k]             B[i] = B[i] + A[i, k]
    """
    target = state.loop(loop)
    realize, inner = _check(state, block, target)
    nest, init = init_nest(state, realize, inner)
    update = with_regions(state, block.replace(init=None, name_hint=f"{block.name_hint}_update"))
    state = state.replace(block, update)
    state = insert_before(state, state.loop(loop), nest)
    state = refresh_around(state, init)
    return state, state.now(init)


def init_nest(state: State, realize: BlockRealize, inner: Sequence[For]) -> tuple[Stmt, Block]:
    """The init of a reduction under those of the loops `inner` that move its spatial axes: (the
    nest, its block).
    """
    block = realize.block
    assert block.init is not None
    values: dict[Var, PrimExpr] = {}
    kept: list[tuple[For, Var]] = []
    for f in inner:
        if loop_uses(realize, f.loop_var) & {"spatial"}:
            var = Var(f"{f.loop_var.name}_init", f.loop_var.dtype)
            kept.append((f, var))
            values[f.loop_var] = var
        else:
            values[f.loop_var] = substitute(f.min, values)
    axes: list[IterVar] = []
    bound: list[PrimExpr] = []
    renamed: dict[Any, PrimExpr] = {}
    for axis, value in zip(block.iter_vars, realize.iter_values):
        if axis.is_reduce:
            renamed[axis.var] = axis.range.min
            continue
        var = Var(f"{axis.var.name}_init", axis.var.dtype)
        axes.append(axis.replace(var=var))
        renamed[axis.var] = var
        bound.append(substitute(value, values))
    body = substitute(block.init, renamed)
    predicate = state.analyzer.simplify(substitute(realize.predicate, values))
    init = with_regions(
        state, Block(tuple(axes), (), (), f"{block.name_hint}_init", body, span=block.span)
    )
    nest: Stmt = BlockRealize(tuple(bound), predicate, init)
    for f, var in reversed(kept):
        kind = ForKind.SERIAL if f.kind == ForKind.THREAD_BINDING else f.kind
        low, extent = substitute(f.min, values), substitute(f.extent, values)
        nest = For(var, low, extent, kind, nest)
    return nest, init
