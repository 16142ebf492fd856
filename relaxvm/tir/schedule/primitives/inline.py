"""Inlining: a block's expression is put where its result is used, and the block vanishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn

from ....arith import conjuncts, number_of
from ....base import ScheduleError
from ....ir import GE, LT, And, IntImm, PrimExpr, Range, Var, cast, const, substitute
from ...index_map import IndexMap
from ...op import if_then_else
from ...stmt import Block, BlockRealize, Buffer, BufferLoad, BufferStore, IterVar
from ..model.bindings import covers_domain, predicate_is_domain, runs_each_once, stands_under
from ..model.dependence import check_final, loops_left
from ..model.facts import BlockKind, facts_of
from ..model.primitive import BLOCK, primitive
from ..model.regions import (
    allocated_in,
    check_no_bare_stores,
    drop_buffer,
    only_plain_accesses,
    reads_memory,
    refresh_around,
    replace_accesses,
    users_of,
    with_regions,
)
from ..model.state import State, loads_of, refuse
from .checks import check_runs_everywhere


def single_store(state: State, block: Block, what: str = "inlined") -> BufferStore:
    """The one statement of a complete block. Refuses any other block."""
    name = block.name_hint
    facts = facts_of(state, block)
    if facts.kind is not BlockKind.COMPLETE:
        why = facts.why or {
            BlockKind.REDUCTION: "it is a reduction",
            BlockKind.UPDATE: "it goes on with a reduction that another block started",
            BlockKind.INPLACE: "it updates a buffer in place",
        }.get(facts.kind, "")
        refuse(f"block {name} cannot be {what}: {why}", block)
    if not isinstance(block.body, BufferStore) or block.alloc_buffers:
        refuse(f"block {name} cannot be {what}: it does more than one store", block)
    return block.body


def solved(
    axes: Sequence[IterVar], indices: Sequence[PrimExpr], targets: Sequence[PrimExpr], what: str
) -> tuple[dict[Any, PrimExpr], list[PrimExpr]]:
    """Where `indices` over the axes are `targets`: (values of the axes, conditions under which
    there is such a place in their domains). Refuses unless there is one at most.
    """
    values = _plainly_solved(axes, indices, targets)
    if values is None:
        shifted = {a.var: a.var + a.range.min for a in axes}
        forth = IndexMap([a.var for a in axes], [substitute(i, shifted) for i in indices])
        try:
            back = forth.left_inverse([a.range.extent for a in axes])
        except ScheduleError:
            shown = ", ".join(map(str, indices))
            refuse(f"{what} [{shown}], which is not shown to be another place in each iteration")
        places = zip(axes, back.map_indices(targets))
        values = {a.var: cast(a.var.dtype, e) + a.range.min for a, e in places}
    conditions: list[PrimExpr] = []
    for a in axes:
        assert a.dom is not None
        conditions += [values[a.var] >= a.dom.min, values[a.var] < a.dom.min + a.dom.extent]
    for i, wanted in zip(indices, targets):
        conditions.append(cast(wanted.dtype, substitute(i, values)).equal(wanted))
    return values, conditions


def _order(state: State) -> dict[int, int]:
    return {id(b): k for k, b in enumerate(state.blocks())}


def check_inputs_stay(state: State, block: Block, until: Block, moved: str) -> None:
    """Refuse if what `block` reads is written again before `until`, where the reading moves to, has
    run for the last time. What `until` itself writes it has to write once (`_check_own_places`
    looks where it reads that).
    """
    name, there = block.name_hint, until.name_hint
    reads = facts_of(state, block).read_data()
    check_no_bare_stores(state, reads, block, f"block {name} cannot be {moved}")
    order = _order(state)
    mine, theirs = state.realize(block), state.realize(until)
    again = loops_left(state, theirs, mine)
    for other in state.blocks():
        if state.child_realizes(other) or other is block:
            continue
        hit = facts_of(state, other).write_data() & reads
        if not hit:
            continue
        data = next(iter(hit)).name
        if other is until:
            loops = state.loops_above(theirs)
            if not runs_each_once(state, theirs, loops) or not facts_of(state, until).elementwise:
                _refuse_own(block, until, moved, data)
            continue
        if order[id(other)] < order[id(block)]:
            check_final(state, state.realize(other), mine, theirs)
            continue
        before = order[id(other)] < order[id(until)]
        if before or any(f in state.around(other) for f in again):
            refuse(
                f"block {name} cannot be {moved}: block {other.name_hint} writes {data}, which it "
                f"reads, before block {there} runs" + ("" if before else " again"),
                block,
                other,
            )


def _refuse_own(block: Block, until: Block, moved: str, data: str) -> NoReturn:
    refuse(
        f"block {block.name_hint} cannot be {moved}: block {until.name_hint}, where it would be "
        f"computed, writes {data}, which it reads",
        block,
        until,
    )


def _check_own_places(state: State, block: Block, before: Block, after: Block) -> None:
    """Refuse if `before`, become `after` by inlining `block`, reads what it writes anywhere but
    where it writes it.
    """
    hit = facts_of(state, before).write_data() & facts_of(state, block).read_data()
    if hit and facts_of(state, after).kind is not BlockKind.INPLACE:
        _refuse_own(block, before, "inlined", next(iter(hit)).name)


def _plainly_solved(
    axes: Sequence[IterVar], indices: Sequence[PrimExpr], targets: Sequence[PrimExpr]
) -> dict[Any, PrimExpr] | None:
    """The values of the axes where the indices are distinct axes and numbers; else None."""
    own = {i: w for i, w in zip(indices, targets) if isinstance(i, Var)}
    numbers = sum(isinstance(i, IntImm) for i in indices)
    if len(own) + numbers != len(indices) or not own.keys() <= {a.var for a in axes}:
        return None
    values: dict[Any, PrimExpr] = {}
    for a in axes:
        if a.var not in own and number_of(a.range.extent) != 1:
            return None
        values[a.var] = cast(a.var.dtype, own.get(a.var, a.range.min))
    return values


@primitive(block=BLOCK)
def compute_inline(state: State, block: Block) -> tuple[State, None]:
    """Put the expression of a block into the blocks that read its result.

    Raises ScheduleError unless the block is one store ``B[...] = expression`` of a buffer that is
    allocated in its scope and written by it alone, at another place in each iteration.

        B[vi] = A[vi] * 2.0     →     C[vi] = A[vi] * 2.0 + 1.0
        C[vi] = B[vi] + 1.0
    """
    store = single_store(state, block)
    name, buffer = block.name_hint, store.buffer
    scope = state.scope(state.realize(block))
    allocated_in(scope, buffer, f"block {name} cannot be inlined: it")
    written = f"block {name} cannot be inlined: it writes {buffer.name}"
    places = [Var(f"place{k}", i.dtype) for k, i in enumerate(store.indices)]
    axis_values, inside = solved(block.iter_vars, store.indices, places, written)
    check_runs_everywhere(state, block, f"block {name} cannot be inlined")
    readers, writers = users_of(state, buffer.data)
    if len(writers) != 1:
        other = next(w for w in writers if w is not block)
        refuse(
            f"block {name} cannot be inlined: block {other.name_hint} also writes {buffer.name}",
            block,
            other,
        )
    only_plain_accesses(state, scope, buffer, f"block {name} cannot be inlined", predicates=True)
    realizes = [state.realize(b) for b in state.blocks(scope)]
    guards = [r for r in realizes if reads_memory(r.predicate, buffer.data)]
    readers += [r.block for r in guards if r.block not in readers]
    order = _order(state)
    for r in readers:
        if order[id(r)] < order[id(block)]:
            refuse(f"block {r.name_hint} reads {buffer.name} before block {name} writes it", r)
        check_inputs_stay(state, block, r, "inlined")

    analyzer = state.analyzer
    plain = all(isinstance(i, (Var, IntImm)) for i in store.indices)

    def simpler(n: BufferLoad) -> PrimExpr:
        return BufferLoad(n.buffer, tuple(analyzer.simplify(i) for i in n.indices))

    def inlined(n: BufferLoad) -> PrimExpr | None:
        if n.buffer.data is not buffer.data:
            return None
        positions: dict[Any, PrimExpr] = {p: cast(p.dtype, i) for p, i in zip(places, n.indices)}
        values = {axis: substitute(e, positions) for axis, e in axis_values.items()}
        value = substitute(store.value, values)
        if plain:
            return value
        value = replace_accesses(value, simpler)
        for c in inside:
            # What nobody wrote may be anything.
            condition = substitute(c, positions)
            if not analyzer.can_prove(condition):
                value = if_then_else(condition, value, const(0, value.dtype))
        return value

    for guard in guards:
        guarded = guard.replace(predicate=replace_accesses(guard.predicate, inlined))
        state = state.replace(guard, guarded)
    for r in readers:
        analyzer = state.analyzer_of(r)
        now = state.now(r)
        kept = tuple(region for region in now.reads if region.buffer.data is not buffer.data)
        new_block = replace_accesses(now.replace(reads=kept), inlined)
        new_block = with_regions(state, new_block)
        state = refresh_around(state.replace(now, new_block), new_block)
        _check_own_places(state, block, r, state.now(r))
    state = state.replace(state.realize(state.now(block)), None)
    return drop_buffer(state, buffer), None


@primitive(block=BLOCK)
def reverse_compute_inline(state: State, block: Block) -> tuple[State, None]:
    """Put the expression of a block into the block whose result it reads.

    Raises ScheduleError unless the block is one store of an expression over one buffer that a
    single complete block before it writes and nobody else reads, always at the same indices:
    another place in each iteration. Where the block leaves out some of what its producer writes,
    or runs under a condition, the producer does so from then on.

        B[vi, vj] = A[vi, vj] * 2.0              →     C[vi * 8 + vj] = A[vi, vj] * 2.0 + 1.0
        C[vk] = B[vk // 8, vk % 8] + 1.0
    """
    store = single_store(state, block)
    name = block.name_hint
    producer, buffer = _only_producer(state, block)
    made_by = single_store(state, producer)
    scope = state.scope(state.realize(block))
    allocated_in(scope, buffer, f"block {name} cannot be inlined: the block before it")
    only_plain_accesses(state, scope, buffer, f"block {name} cannot be inlined")
    indices = load_indices(block, store, buffer)
    ours, theirs = (_condition(state, each) for each in (block, producer))
    check_all_written(state, block, indices, ours, producer, made_by.indices, theirs)
    check_moves_up(state, block, producer)
    reads = f"block {name} cannot be inlined: it reads {buffer.name}"
    values, inside = solved(block.iter_vars, indices, made_by.indices, reads)
    simplify = state.analyzer_of(producer).simplify
    values = {axis: simplify(e) for axis, e in values.items()}
    conditions = [simplify(c) for c in (*inside, substitute(ours, values))]

    def inlined(n: BufferLoad) -> PrimExpr | None:
        return made_by.value if n.buffer.data is buffer.data else None

    # The axes are replaced before the producer's value, which has axes of its own, is put in.
    moved = substitute(store, values)
    value = replace_accesses(moved.value, inlined)
    places = tuple(simplify(i) for i in moved.indices)
    new_store = BufferStore(moved.buffer, value, places, store.span)
    axes = tuple(_narrowed(a, conditions) for a in producer.iter_vars)
    new_block = producer.replace(iter_vars=axes, body=new_store, reads=(), writes=())
    new_block = with_regions(state, new_block)
    realize = state.realize(producer)
    bound = {a.var: v for a, v in zip(axes, realize.iter_values)}
    predicate = realize.predicate
    for c in conditions:
        predicate = _both(predicate, simplify(substitute(c, bound)))
    new = BlockRealize(realize.iter_values, predicate, new_block, realize.span)
    state = state.replace(realize, new, [(producer, new_block)])
    state = refresh_around(state, new_block)
    state = state.replace(state.realize(state.now(block)), None)
    return drop_buffer(state, buffer), None


def _both(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if isinstance(a, IntImm) or b in conjuncts(a):
        return b if isinstance(a, IntImm) and a.value else a
    return a if isinstance(b, IntImm) and b.value else And(a, b)


def _narrowed(axis: IterVar, conditions: Sequence[PrimExpr]) -> IterVar:
    """The axis with a smaller domain, where a condition says that it has one."""
    dom = axis.dom
    for c in conditions:
        if dom is None or not isinstance(c, (GE, LT)) or c.a is not axis.var:
            continue
        if isinstance(c.b, IntImm) and isinstance(c, LT):
            dom = Range.from_min_extent(dom.min, c.b - dom.min)
        elif isinstance(c.b, IntImm):
            dom = Range.from_min_extent(c.b, dom.min + dom.extent - c.b)
    return axis if dom is axis.dom else axis.replace(dom=dom)


def _condition(state: State, block: Block) -> PrimExpr:
    """The condition under which an iteration of the block is run, over its axes. Refuses where it
    is not known.
    """
    realize = state.realize(block)
    loops = state.loops_above(realize)
    what = f"block {block.name_hint} cannot be inlined"
    why = stands_under(state, realize) or covers_domain(state, realize, loops)
    if why:
        refuse(f"{what}: {why}", block)
    if predicate_is_domain(state, realize, loops):
        return const(True)
    if loads_of(realize.predicate):
        refuse(f"{what}: its predicate reads a buffer", block)
    axes = [IterVar(Range.from_min_extent(f.min, f.extent), f.loop_var) for f in loops]
    axis_vars = [a.var for a in block.iter_vars]
    values, _ = solved(axes, realize.iter_values, axis_vars, f"{what}: loops run its iterations")
    return substitute(realize.predicate, values)


def check_all_written(
    state: State,
    block: Block,
    indices: Sequence[PrimExpr],
    ours: PrimExpr,
    producer: Block,
    places: Sequence[PrimExpr],
    theirs: PrimExpr,
) -> None:
    """Refuse unless the producer, which runs where `theirs` holds, writes what the block reads
    where `ours` does.
    """
    what = f"block {producer.name_hint} writes"
    axes = [a for a in producer.iter_vars if a.is_spatial]
    values, inside = solved(axes, places, indices, what)
    analyzer = state.analyzer_of(block)
    with analyzer.constraint_scope(ours):
        shown = all(analyzer.can_prove(c) for c in (*inside, substitute(theirs, values)))
    if not shown:
        refuse(
            f"block {block.name_hint} reads more than block {producer.name_hint} is shown to write",
            block,
            producer,
        )


def _only_producer(state: State, block: Block) -> tuple[Block, Buffer]:
    name = block.name_hint
    producers: list[tuple[Block, Buffer]] = []
    for a in facts_of(state, block).reads:
        _, writers = users_of(state, a.buffer.data)
        if writers and not any(a.buffer is b for _, b in producers):
            if len(writers) > 1:
                refuse(
                    f"{len(writers)} blocks write {a.buffer.name}, which block {name} reads",
                    *writers,
                )
            producers.append((writers[0], a.buffer))
    if len(producers) != 1:
        names = ", ".join(p.name_hint for p, _ in producers) or "none"
        refuse(
            f"block {name} needs exactly one producer to be inlined into; it has: {names}", block
        )
    producer, buffer = producers[0]
    readers, _ = users_of(state, buffer.data)
    if [r for r in readers if r is not block]:
        other = next(r for r in readers if r is not block)
        refuse(f"block {other.name_hint} also reads {buffer.name}", other)
    if state.scope(state.realize(producer)) is not state.scope(state.realize(block)):
        refuse(
            f"the block {producer.name_hint} that writes {buffer.name} is in another scope",
            producer,
        )
    return producer, buffer


def load_indices(block: Block, store: BufferStore, buffer: Buffer) -> Any:
    loads = {n for e in (store.value, *store.indices) for n in loads_of(e)}
    seen = [n.indices for n in loads if n.buffer.data is buffer.data]
    if len(seen) != 1:
        refuse(f"block {block.name_hint} reads {buffer.name} at several places", block)
    return seen[0]


def check_moves_up(state: State, block: Block, producer: Block) -> None:
    """Refuse if what `block` reads or writes is touched between the producer and it."""
    facts = facts_of(state, block)
    what = f"block {block.name_hint} cannot move up to block {producer.name_hint}"
    check_no_bare_stores(state, facts.read_data(), block, what)
    for w in facts.writes:
        only_plain_accesses(state, state.root(), w.buffer, what)
    order = _order(state)
    for other in state.blocks():
        if state.child_realizes(other) or other is block or other is producer:
            continue
        shares = any(
            f in state.around(other)
            for f in loops_left(state, state.realize(producer), state.realize(block))
        )
        between = order[id(producer)] < order[id(other)] < order[id(block)]
        if not between and not shares:
            continue
        hit = facts_of(state, other).shared_data(facts)
        if hit:
            told = f"block {other.name_hint}, between them or in the same loop"
            refuse(f"{what}: {told}, uses {next(iter(hit)).name}", block, other)
    mine = facts_of(state, producer)
    if mine.read_data() & facts.write_data():
        refuse(f"block {producer.name_hint} reads what block {block.name_hint} writes", producer)
