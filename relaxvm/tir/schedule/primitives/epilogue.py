"""`fuse_reduction_epilogue`: a reduction that begins with what was combined with its result."""

from __future__ import annotations

from ....ir import BinaryExpr, const, structural_equal, substitute
from ...stmt import Block, BufferLoad, BufferStore
from ..model.facts import BlockKind, facts_of
from ..model.primitive import BLOCK, primitive
from ..model.reducer import match_reducer
from ..model.regions import (
    allocated_in,
    drop_buffer,
    only_plain_accesses,
    reads_memory,
    refresh_around,
    users_of,
    with_regions,
)
from ..model.state import State, refuse
from .checks import check_runs_everywhere
from .inline import check_all_written, check_moves_up, load_indices, single_store, solved


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
