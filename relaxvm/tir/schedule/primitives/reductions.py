"""Reductions in parts: their start as a block of its own (`decompose_reduction`), in two steps, so
that a loop can be run in parallel (`rfactor`), begun with what was combined with their result
(`fuse_reduction_epilogue`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....arith import as_number, number_of
from ....ir import (
    LT,
    BinaryExpr,
    IntImm,
    PrimExpr,
    Range,
    Var,
    cast,
    const,
    is_const,
    structural_equal,
    substitute,
)
from ...op import all as every
from ...op import if_then_else
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    For,
    ForKind,
    IterVar,
    LetStmt,
    SeqStmt,
    Stmt,
    seq,
)
from ..model.bindings import (
    loop_uses,
    moving_domain,
    predicate_is_domain,
    spatial_loops,
    stands_under,
)
from ..model.boxes import mapper_of
from ..model.dependence import check_init_comes_first, check_no_bare_statements
from ..model.facts import BlockKind, facts_of
from ..model.places import add_allocation, insert_before
from ..model.primitive import BLOCK, LOOP, primitive
from ..model.reducer import Reducer, match_reducer
from ..model.regions import (
    allocated_in,
    drop_buffer,
    only_plain_accesses,
    reads_memory,
    refresh_around,
    users_of,
    with_regions,
)
from ..model.state import State, free_variables, loads_of, refuse
from .cache import new_buffer
from .checks import block_under, check_runs_everywhere
from .inline import check_all_written, check_moves_up, load_indices, single_store, solved
from .nests import new_axis

# -- decompose_reduction ---------------------------------------------------------------------------


def _check_start(state: State, block: Block, target: For) -> tuple[BlockRealize, list[For]]:
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
        if facts_of(state, r.block).touched_data() & written:
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
    realize, inner = _check_start(state, block, target)
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


# -- rfactor ---------------------------------------------------------------------------------------


def _chain(state: State, target: For) -> tuple[BlockRealize, list[For]]:
    """The one block under `target`, and the loops around it that hold nothing else."""
    inner, _ = block_under(target, "rfactor wants those of one reduction")
    loops: list[For] = []
    while isinstance(around := state.parent(loops[-1] if loops else inner), For):
        loops.append(around)
    return inner, loops[::-1]


def _check_factored(
    state: State, realize: BlockRealize, loops: list[For], target: For
) -> tuple[Reducer, list[For]]:
    """The reducer, and the other loops that move reduce axes."""
    block, name = realize.block, realize.block.name_hint
    facts = facts_of(state, block)
    if facts.kind is not BlockKind.REDUCTION or not facts.simple:
        why = facts.why or ("its body is no plain update" if block.init else "it has no init")
        refuse(f"block {name} is no reduction that can be factored: {why}", block)
    reducer = match_reducer(block)
    if reducer is None:
        refuse(
            f"the reduction of block {name} is none of those that are known (sum, product, max, "
            "min, and, or, several of them, argmax, argmin)",
            block,
        )
    if len({b.ndim for b, _ in reducer.buffers}) != 1:
        refuse(
            f"block {name} keeps its results in buffers of different numbers of dimensions", block
        )
    reducing = [f for f in loops if "reduce" in loop_uses(realize, f.loop_var)]
    for f in (*reducing, target):
        uses = loop_uses(realize, f.loop_var)
        if uses != {"reduce"}:
            kinds = " and ".join(sorted(uses)) or "no"
            refuse(
                f"loop {f.loop_var.name} moves {kinds} axes of block {name}; it must move reduce "
                "axes only",
                f,
                block,
            )
    for f in state.loops_above(realize):
        if not any(f is g for g in loops) and "reduce" in loop_uses(realize, f.loop_var):
            refuse(f"loop {f.loop_var.name} of the reduction is not in the same nest", f, block)
    if not reducer.commutative and reducing[0] is not target:
        refuse(
            f"of equal values {reducer.name} takes the first, so that only the outermost loop of "
            f"the reduction, {reducing[0].loop_var.name}, can be factored",
            target,
            block,
        )
    if not predicate_is_domain(state, realize, state.loops_above(realize)):
        refuse(f"block {name} runs under a condition", block)
    check_init_comes_first(state, realize, state.loops_above(realize))
    for f in reducing:
        for e in (f.min, f.extent):
            if loads_of(e) or any(state.has_loop(v) for v in free_variables(e)):
                refuse(f"the range of loop {f.loop_var.name} changes: {f.min}, {f.extent}", f)
    why = moving_domain(state, block)
    if why:
        refuse(f"block {name} cannot be factored: {why}", block)
    others = [f for f in reducing if f is not target]
    idle = [f for f in loops if not loop_uses(realize, f.loop_var)]
    for f in (*others, *idle):
        if not state.analyzer.can_prove(f.extent >= 1):
            refuse(
                f"loop {f.loop_var.name} may have no iterations, so that partial results would not "
                "be written",
                f,
                block,
            )
    return reducer, others


def _beyond(
    state: State, realize: BlockRealize, loops: list[For], kind: str, values: dict[Any, PrimExpr]
) -> PrimExpr:
    """The condition that axes of one kind are in their domains, where loops may leave them."""
    mapper = mapper_of(state, loops)
    conditions: list[PrimExpr] = []
    for axis, value in zip(realize.block.iter_vars, realize.iter_values):
        if axis.iter_type != kind or axis.dom is None:
            continue
        end = mapper.add(number_of(axis.dom.min), number_of(axis.dom.extent))
        total = mapper.sum_of(value)
        ends = None if total is None else mapper.ends(total)
        if ends is not None and mapper.at_most(mapper.add(ends[1], 1), end):
            continue
        limit = as_number(end, axis.var.dtype)
        conditions.append(LT(substitute(value, values), limit))
    return every(*conditions)


def simultaneous(
    places: list[tuple[Buffer, tuple[PrimExpr, ...]]], values: tuple[PrimExpr, ...]
) -> Stmt:
    """Stores that happen at once: values that read what another store changes are kept first."""
    stores = [BufferStore(b, v, i) for (b, i), v in zip(places, values)]
    if len(stores) == 1:
        return stores[0]
    names = [Var(f"v_{b.name}", b.dtype) for b, _ in places]
    body: Stmt = SeqStmt(tuple(BufferStore(b, v, i) for (b, i), v in zip(places, names)))
    for var, value in reversed(list(zip(names, values))):
        body = LetStmt(var, value, body)
    return body


@primitive(loop=LOOP, gives=BLOCK)
def rfactor(state: State, loop: Var, factor_axis: int) -> tuple[State, Block]:
    """Keep partial results for each iteration of a reduction loop, and reduce them afterwards.

    factor_axis  where the buffer of partial results gets its new dimension; may be negative
    returns      the block of the partial results; the random variable of the reduction stands for
                 the second step

    Raises ScheduleError unless the block is a known reduction and the loop moves reduce axes only.

        for i, k in T.grid(8, 4):         for i, k in T.grid(8, 4):
            B[i] = B[i] + A[i, k]   →         B_rf[k, i] = B_rf[k, i] + A[i, k]
                                          for i, k in T.grid(8, 4):
                                              B[i] = B[i] + B_rf[k, i]
    """
    target = state.loop(loop)
    realize, loops = _chain(state, target)
    reducer, others = _check_factored(state, realize, loops, target)
    block = realize.block
    buffers = [b for b, _ in reducer.buffers]
    rank = buffers[0].ndim
    if not -rank - 1 <= factor_axis <= rank:
        refuse(f"factor_axis is in {-rank - 1}..{rank}, got {factor_axis}", block)
    place = factor_axis if factor_axis >= 0 else factor_axis + rank + 1
    shapes = [_at(b.shape, place, target.extent) for b in buffers]
    partial = [new_buffer(b, f"{b.name}_rf", b.scope(), s) for b, s in zip(buffers, shapes)]
    first, rf_block = _partial_block(state, realize, loops, target, others, reducer, partial, place)
    second, wb_block = _final_block(state, realize, loops, target, reducer, partial, place)
    top = loops[0]
    scope = state.scope(top)
    state = state.replace(top, SeqStmt((first, second)), [(block, wb_block)])
    state = add_allocation(state, scope, *partial)
    return state, state.now(rf_block)


def _at(indices: Any, place: int, index: PrimExpr) -> tuple[PrimExpr, ...]:
    return (*indices[:place], index, *indices[place:])


def _partial_block(
    state: State,
    realize: BlockRealize,
    loops: list[For],
    target: For,
    others: list[For],
    reducer: Reducer,
    partial: list[Buffer],
    place: int,
) -> tuple[Stmt, Block]:
    block = realize.block
    partial_axis = new_axis(f"v{target.loop_var.name}", target.extent)
    rf = partial_axis.var
    to_axes: dict[Any, PrimExpr] = {target.loop_var: rf + target.min}
    axes = [a for a in block.iter_vars if a.is_spatial]
    bound = [v for a, v in zip(block.iter_vars, realize.iter_values) if a.is_spatial]
    axes.append(partial_axis)
    bound.append(target.loop_var - target.min)
    for f in others:
        var = Var(f"v{f.loop_var.name}", f.loop_var.dtype)
        axes.append(IterVar(Range.from_min_extent(f.min, f.extent), var, "reduce"))
        bound.append(f.loop_var)
        to_axes[f.loop_var] = var
    reduced = {
        a.var: cast(a.var.dtype, substitute(v, to_axes))
        for a, v in zip(block.iter_vars, realize.iter_values)
        if a.is_reduce
    }
    around = state.loops_above(realize)
    outside = _beyond(state, realize, around, "reduce", to_axes)
    updates = [substitute(u, reduced) for u in reducer.updates]
    places = [(p, _at(i, place, rf)) for p, (_, i) in zip(partial, reducer.buffers)]
    old = tuple(BufferLoad(b, i) for b, i in places)
    values = reducer.combine(old, tuple(updates))
    if not is_const(outside, 1):
        values = tuple(if_then_else(outside, v, o) for v, o in zip(values, old))
    init = seq(*(BufferStore(b, v, i) for (b, i), v in zip(places, reducer.identity)))
    rf_block = Block(
        tuple(axes),
        (),
        (),
        f"{block.name_hint}_rf",
        simultaneous(places, values),
        init,
        annotations=block.annotations,
    )
    # Another block goes on with the old axes.
    fresh = {a.var: Var(a.var.name, a.var.dtype) for a in axes}
    rf_block = substitute(with_regions(state, rf_block), fresh)
    condition = _beyond(state, realize, around, "spatial", {})
    body: Stmt = BlockRealize(tuple(bound), condition, rf_block)
    for f in reversed(loops):
        body = f.replace(body=body)
    return body, rf_block


def _final_block(
    state: State,
    realize: BlockRealize,
    loops: list[For],
    target: For,
    reducer: Reducer,
    partial: list[Buffer],
    place: int,
) -> tuple[Stmt, Block]:
    block = realize.block
    kept = [f for f in loops if "spatial" in loop_uses(realize, f.loop_var)]
    new: dict[Any, Any] = {
        f.loop_var: Var(f.loop_var.name, f.loop_var.dtype) for f in (*kept, target)
    }
    partial_axis = new_axis(f"v{target.loop_var.name}", target.extent, kind="reduce")
    rf = partial_axis.var
    axes = [a for a in block.iter_vars if a.is_spatial]
    bound = [
        substitute(v, new) for a, v in zip(block.iter_vars, realize.iter_values) if a.is_spatial
    ]
    axes.append(partial_axis)
    bound.append(new[target.loop_var])
    places = list(reducer.buffers)
    old = tuple(BufferLoad(b, i) for b, i in places)
    step = tuple(BufferLoad(p, _at(i, place, rf)) for p, (_, i) in zip(partial, places))
    body = simultaneous(places, reducer.combine(old, step))
    # An init that names a reduce axis means its first value.
    starts: dict[Any, PrimExpr] = {a.var: a.range.min for a in block.iter_vars if a.is_reduce}
    init = None if block.init is None else substitute(block.init, starts)
    wb_block = block.replace(iter_vars=tuple(axes), body=body, init=init)
    wb_block = with_regions(state, wb_block)
    condition = _beyond(state, realize, state.loops_above(realize), "spatial", new)
    nest: Stmt = BlockRealize(tuple(bound), condition, wb_block)
    low = const(0, target.loop_var.dtype)
    nest = For(new[target.loop_var], low, target.extent, ForKind.SERIAL, nest)
    for f in reversed(kept):
        low, extent = substitute(f.min, new), substitute(f.extent, new)
        nest = For(new[f.loop_var], low, extent, ForKind.SERIAL, nest)
    return nest, wb_block


# -- fuse_reduction_epilogue -----------------------------------------------------------------------


@primitive(reduction_block=BLOCK, epilogue_block=BLOCK)
def fuse_reduction_epilogue(
    state: State, reduction_block: Block, epilogue_block: Block
) -> tuple[State, None]:
    """Let a reduction begin with what a block behind it combines with its result, and write what
    that block writes. Floats are then added in another order.

    Raises ScheduleError unless the epilogue is one store of ``X + e`` behind a sum (max(X, e)
    behind a maximum, and so on), where e is anything without X, and nobody else reads X. What is
    no such combination, a ReLU behind a sum, has to wait for the last step: `reverse_compute_at`.

        with T.init(): X[vi] = 0.0           with T.init(): D[vi] = B[vi]
        X[vi] = X[vi] + A[vi, vk]       →    D[vi] = D[vi] + A[vi, vk]
        D[vi] = X[vi] + B[vi]
    """
    block, reduction = epilogue_block, reduction_block
    what = f"block {block.name_hint} cannot begin block {reduction.name_hint}"
    reducer, start = match_reducer(reduction), reduction.init
    body = reduction.body
    if (
        reducer is None
        or facts_of(state, reduction).kind is not BlockKind.REDUCTION
        or not isinstance(body, BufferStore)
        or not isinstance(start, BufferStore)
    ):
        refuse(f"block {reduction.name_hint} is no reduction of one value with an init", reduction)
    if not structural_equal(start.value, reducer.identity[0]):
        refuse(f"{what}: that begins with {start.value}, not {reducer.identity[0]}", reduction)
    store, partial = single_store(state, block), body.buffer
    readers, writers = users_of(state, partial.data)
    others = [b for b in (*readers, *writers) if b is not block and b is not reduction]
    if others:
        refuse(f"{what}: block {others[0].name_hint} also uses {partial.name}", *others)
    if block not in readers:
        refuse(f"{what}: it does not read {partial.name}", block)
    own = BufferLoad(partial, load_indices(block, store, partial))
    parts = (store.value.a, store.value.b) if isinstance(store.value, BinaryExpr) else ()
    added = [e for e in parts if e is not own]
    if (
        type(store.value) is not type(body.value)
        or len(added) != 1
        or any(reads_memory(e, partial.data) for e in (added[0], *store.indices))
    ):
        refuse(
            f"{what}: {store.value} is no {reducer.name} of {partial.name} and something else",
            block,
        )
    scope = state.scope(state.realize(reduction))
    if scope is not state.scope(state.realize(block)):
        refuse(f"{what}: they are in different blocks", block, reduction)
    allocated_in(scope, partial, f"{what}: that")
    only_plain_accesses(state, scope, partial, what)
    for each in (reduction, block):
        check_runs_everywhere(state, each, what)
    always = const(True)
    check_all_written(state, block, own.indices, always, reduction, body.indices, always)
    check_moves_up(state, block, reduction)
    values, inside = solved(block.iter_vars, own.indices, body.indices, f"{what}: it reads")
    analyzer = state.analyzer_of(reduction)
    if not all(analyzer.can_prove(c) for c in inside):
        refuse(f"{what}: it leaves out some of {partial.name}", block)
    begun = substitute(store.replace(value=added[0]), values)
    places = tuple(analyzer.simplify(i) for i in begun.indices)
    sums = BufferLoad(store.buffer, places)
    (total,) = reducer.combine((sums,), reducer.updates)
    fused = reduction.replace(
        init=BufferStore(store.buffer, begun.value, places, store.span),
        body=BufferStore(store.buffer, total, places, body.span),
        reads=(),
        writes=(),
    )
    fused = with_regions(state, fused)
    state = refresh_around(state.replace(reduction, fused), fused)
    state = state.replace(state.realize(state.now(block)), None)
    if facts_of(state, state.now(fused)).kind is not BlockKind.REDUCTION:
        refuse(f"{what}: {facts_of(state, state.now(fused)).why}", block)
    return drop_buffer(state, partial), None
