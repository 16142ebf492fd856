"""Moving a block under a loop of its consumers (`compute_at`) or of its producers
(`reverse_compute_at`).

The moved block gets loops of its own, over the part of its domain that one iteration of the loop
needs (or provides).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from ....arith import Numbers, number_of
from ....base import NamedTuple, ScheduleError
from ....ir import Var
from ...stmt import Block, BlockRealize, Buffer, For, ForKind, SeqStmt, Stmt, seq
from ..model.bindings import (
    covers,
    covers_domain,
    loop_uses,
    predicate_is_domain,
    runs_each_once,
    spatial_loops,
)
from ..model.boxes import Access, Box, region_while
from ..model.dependence import (
    check_final,
    check_no_bare_statements,
    domain_box,
    loops_between,
    writes_afresh,
)
from ..model.facts import BlockKind, facts_of
from ..model.places import top_child
from ..model.primitive import BLOCK, LOOP_OR_PLACE, primitive
from ..model.regions import allocated_in, only_plain_accesses
from ..model.spans import new_realize, spans_for, union
from ..model.state import State, loads_of, refuse
from .checks import check_runs_everywhere
from .inline import compute_inline, reverse_compute_inline


def _insert(
    state: State, f: For, nest: Stmt, after: Sequence[Stmt], before: Sequence[Stmt], index: int
) -> State:
    """`nest` put into the loop's body: after the children `after`, before the children `before`."""
    children = list(f.body.seq) if isinstance(f.body, SeqStmt) else [f.body]
    first = max((k + 1 for k, c in enumerate(children) if c in after), default=0)
    last = min((k for k, c in enumerate(children) if c in before), default=len(children))
    if first > last:
        refuse("its producers and consumers leave no place for it there", f)
    place = {-1: last, -2: first}.get(index, index)
    if not first <= place <= last:
        refuse(f"index {index} is not between {first} and {last}, -1 (last) or -2 (first)", f)
    children.insert(place, nest)
    return state.replace(f, f.replace(body=seq(*children)))


def _child_of(state: State, f: For, realize: BlockRealize) -> Stmt:
    """The child of the loop's body that holds `realize`."""
    return top_child(state, realize, f.body if isinstance(f.body, SeqStmt) else f)


class _Move(NamedTuple):
    block: Block
    realize: BlockRealize
    target: For
    scope: Block
    shared: list[For]  # loops around both
    entered: list[For]  # loops around the target (and it) that the block comes under


def _prepare(state: State, block: Block, loop: Var, what: str) -> _Move:
    target = state.loop(loop)
    realize = state.realize(block)
    name = block.name_hint
    scope = state.scope(realize)
    if state.scope(target) is not scope:
        refuse(f"loop {loop.name} and block {name} are in different blocks", target, block)
    if target in state.around(realize):
        refuse(f"block {name} is in loop {loop.name} already", target, block)
    facts = facts_of(state, block)
    # One that updates its elements in place may go to what feeds it, where it still runs once.
    inplace = facts.kind is BlockKind.INPLACE and what == "reverse_compute_at"
    if not facts.idempotent and not inplace:
        why = facts.why or "running it again would change its result"
        refuse(f"block {name} cannot be moved by {what}: {why}", block)
    check_runs_everywhere(state, block, f"block {name} cannot be moved by {what}")
    check_no_bare_statements(state, scope)
    around = [*state.loops_above(target), target]
    mine = state.loops_above(realize)
    shared = [f for f in around if f in mine]
    entered = [f for f in around if f not in mine]
    return _Move(block, realize, target, scope, shared, entered)


def _touching(state: State, scope: Block, data: Var) -> list[tuple[BlockRealize, bool, bool]]:
    """The blocks of the scope that touch the memory: (realize, reads, writes)."""
    out = []
    for r in state.child_realizes(scope):
        facts = facts_of(state, r.block)
        reads, writes = data in facts.used_data(), data in facts.write_data()
        if reads or writes:
            out.append((r, reads, writes))
    return out


def _rank(state: State, scope: Block) -> dict[int, int]:
    return {id(r): k for k, r in enumerate(state.child_realizes(scope))}


# -- compute_at ------------------------------------------------------------------------------------


@primitive(block=BLOCK, loop=LOOP_OR_PLACE)
def compute_at(
    state: State,
    block: Block,
    loop: Any,
    preserve_unit_loops: bool = False,
    index: int = -1,
) -> tuple[State, None]:
    """Move a producer under a loop of its consumers, where it computes what they need there.

    preserve_unit_loops  keep loops of one iteration
    index                the place in the loop's body: -1 the last possible, -2 the first possible

    Raises ScheduleError unless the block writes only buffers of its scope, all that read them are
    in the loop, and computing an element again does no harm.

        for i in range(64):               for i_0 in range(8):
            B[i] = A[i] * 2.0       →         for ax0 in range(8):
        for i_0, i_1 in T.grid(8, 8):             B[i_0 * 8 + ax0] = A[i_0 * 8 + ax0] * 2.0
            C[i_0 * 8 + i_1] = ...            for i_1 in range(8):
                                                  C[i_0 * 8 + i_1] = ...
    """
    if loop == "inline":
        return compute_inline(state, block)
    if loop == "root":
        return state, None
    move = _prepare(state, block, loop, "compute_at")
    consumers = _check_consumers(state, move)
    after = _check_inputs(state, move)
    constraints = _needed(state, move, consumers)
    spans = spans_for(state, block, constraints, "spatial")
    around = [*state.loops_above(move.target), move.target]
    nest, _, _ = new_realize(state, block, spans, around, preserve_unit_loops)
    before = [_child_of(state, move.target, r) for r in consumers]
    state = state.replace(move.realize, None)
    return _insert(state, state.loop(loop), nest, after, before, index), None


def _check_consumers(state: State, move: _Move) -> list[BlockRealize]:
    block, name = move.block, move.block.name_hint
    facts = facts_of(state, block)
    rank = _rank(state, move.scope)
    consumers: list[BlockRealize] = []
    for a in facts.writes:
        allocated_in(move.scope, a.buffer, f"block {name} cannot be moved: it")
        only_plain_accesses(
            state, move.scope, a.buffer, f"block {name} cannot be moved", pointers=True
        )
        for r, _, writes in _touching(state, move.scope, a.buffer.data):
            if r is move.realize:
                continue
            other = r.block.name_hint
            if rank[id(r)] < rank[id(move.realize)]:
                refuse(f"block {other} uses {a.buffer.name} before block {name}", r.block, block)
            if move.target not in state.around(r):
                refuse(
                    f"block {other}, which uses {a.buffer.name} of block {name}, is not in loop "
                    f"{move.target.loop_var.name}",
                    r.block,
                    move.target,
                )
            if writes:
                _check_started_once(state, move, r, a.buffer)
            consumers.append(r)
        _check_updates_alone(state, move, consumers, a.buffer)
    if not consumers:
        refuse(f"block {name} has no consumer in loop {move.target.loop_var.name}", block)
    return consumers


def _check_updates_alone(
    state: State, move: _Move, consumers: Sequence[BlockRealize], buffer: Buffer
) -> None:
    """Where a consumer goes on updating what `block` began, an iteration may use no other elements:
    those would be begun again.
    """
    touching = [(r, facts_of(state, r.block)) for r in consumers]
    updates = [r for r, facts in touching if buffer.data in facts.write_data()]
    boxes = [
        (r, region_while(state, r, a, loops_between(state, r, move.target)))
        for r, facts in touching
        for a in (*facts.reads, *facts.writes)
        if updates and a.buffer.data is buffer.data
    ]
    same = Numbers(state.analyzer).same
    for r, box in boxes:
        if not all(map(same, box.axes, boxes[0][1].axes)):
            refuse(
                f"block {updates[0].block.name_hint} goes on updating {buffer.name}, of which "
                f"block {r.block.name_hint} uses other elements in the same iteration of loop "
                f"{move.target.loop_var.name}",
                r.block,
                updates[0].block,
            )


def _check_started_once(state: State, move: _Move, r: BlockRealize, buffer: Buffer) -> None:
    """A block that goes on with what `block` began must do so within one iteration."""
    inner = loops_between(state, r, move.target)
    determined = spatial_loops(state, r, [*move.entered, *inner])
    for f in move.entered:
        if loop_uses(r, f.loop_var) & {"reduce"} or f.loop_var not in determined:
            refuse(
                f"block {r.block.name_hint} goes on updating {buffer.name} in later iterations of "
                f"loop {f.loop_var.name}, which would start it again",
                r.block,
                f,
            )


def _check_inputs(state: State, move: _Move) -> list[Stmt]:
    """Refuse if what the block reads is written later; returns the children of the loop that write
    it there.
    """
    name = move.block.name_hint
    rank = _rank(state, move.scope)
    after: list[Stmt] = []
    for data in facts_of(state, move.block).read_data():
        for r, _, writes in _touching(state, move.scope, data):
            if not writes or r is move.realize:
                continue
            if rank[id(r)] > rank[id(move.realize)]:
                refuse(
                    f"block {r.block.name_hint} writes {data.name} after block {name} has read it",
                    r.block,
                    move.block,
                )
            for f in move.shared:
                if loop_uses(r, f.loop_var) & {"reduce"} and f in state.around(r):
                    refuse(
                        f"block {r.block.name_hint} is still reducing {data.name} over loop "
                        f"{f.loop_var.name}",
                        r.block,
                    )
            check_final(state, r, move.realize, move.target)
            if move.target in state.around(r):
                after.append(_child_of(state, move.target, r))
    return after


def _needed(
    state: State, move: _Move, consumers: Sequence[BlockRealize]
) -> list[tuple[Access, Box]]:
    """What the consumers touch in one iteration of the target, by access of the block."""
    out: list[tuple[Access, Box]] = []
    for w in facts_of(state, move.block).writes:
        boxes = (
            _without_loads(_box_around(state, r, a, loops_between(state, r, move.target)))
            for r in consumers
            for facts in (facts_of(state, r.block),)
            for a in (*facts.reads, *facts.writes)
            if a.buffer.data is w.buffer.data
        )
        total = union(state, boxes)
        if total is not None:
            out.append((w, total))
    return out


def _box_around(state: State, realize: BlockRealize, access: Access, loops: Sequence[For]) -> Box:
    """What the access touches while the loops run, or a little more: where the predicate of a last
    tile makes an extent depend on loops outside, the whole tile.
    """
    box = region_while(state, realize, access, loops)
    if all(axis is not None and isinstance(axis[1], int) for axis in box.axes):
        return box
    whole = region_while(state, realize, access, loops, constrained=False)
    axes = tuple(
        b if b is not None and isinstance(b[1], int) and not (a and isinstance(a[1], int)) else a
        for a, b in zip(box.axes, whole.axes)
    )
    return Box(axes, box.exact and all(a is b for a, b in zip(axes, box.axes)))


def _without_loads(box: Box) -> Box:
    """The box with whole axes where an index is read from memory: conditions of the consumer may
    keep that index in bounds, and those do not go with the moved block.
    """
    return box._replace(axes=tuple(None if a and loads_of(a[0]) else a for a in box.axes))


def places_for_compute_at(state: State, block: Block) -> list[Var]:
    """The loops to which `compute_at` can move the block, outermost first."""
    if block is state.root():
        return []
    scope = state.scope(state.realize(block))
    loops: list[Var] = []
    for r in state.child_realizes(scope):
        if (
            r.block is not block
            and facts_of(state, r.block).read_data() & facts_of(state, block).write_data()
        ):
            loops = [f.loop_var for f in state.loops_above(r)]
            break
    places: list[Var] = []
    for v in loops:
        with contextlib.suppress(ScheduleError):
            compute_at(state, block, v)
            places.append(v)
    return places


# -- reverse_compute_at ----------------------------------------------------------------------------


@primitive(block=BLOCK, loop=LOOP_OR_PLACE)
def reverse_compute_at(
    state: State,
    block: Block,
    loop: Any,
    preserve_unit_loops: bool = False,
    index: int = -1,
) -> tuple[State, None]:
    """Move a consumer under a loop of its producers, where it uses what they have just written.

    preserve_unit_loops  keep loops of one iteration
    index                the place in the loop's body: -1 the last possible, -2 the first possible

    Raises ScheduleError unless what the block reads in each iteration is complete by then, and all
    of its domain is still run.

        for i_0, i_1 in T.grid(8, 8):     for i_0 in range(8):
            B[i_0 * 8 + i_1] = ...  →         for i_1 in range(8):
        for i in range(64):                       B[i_0 * 8 + i_1] = ...
            C[i] = B[i] + 1.0                 for ax0 in range(8):
                                                  C[i_0 * 8 + ax0] = B[i_0 * 8 + ax0] + 1.0
    """
    if loop == "inline":
        return reverse_compute_inline(state, block)
    if loop == "root":
        return state, None
    move = _prepare(state, block, loop, "reverse_compute_at")
    producers = _check_producers(state, move)
    constraints = _provided(state, move, producers)
    around = [*state.loops_above(move.target), move.target]
    for axes in ("all", "spatial"):
        spans = spans_for(state, block, constraints, axes)
        nest, realize, new_loops = new_realize(state, block, spans, around, preserve_unit_loops)
        if _adds_each_once(move, realize):
            break
    _check_all_run(state, move, realize, [*around, *new_loops])
    once = facts_of(state, block).idempotent
    if not once and not runs_each_once(state, realize, [*around, *new_loops]):
        refuse(
            f"block {block.name_hint} cannot be moved by reverse_compute_at: it would update the "
            "same elements again",
            block,
            move.target,
        )
    _check_apart(state, move, realize, [*around, *new_loops])
    _check_provided(state, move, realize, new_loops, producers)
    after = [_child_of(state, move.target, r) for r in producers]
    state = state.replace(move.realize, None)
    return _insert(state, state.loop(loop), nest, after, [], index), None


def _adds_each_once(move: _Move, realize: BlockRealize) -> bool:
    """Whether no loop around the target makes a reduction add something again, or out of order.

    A loop that moves no axis is harmless if each of its iterations starts the reduction afresh.
    """
    moving = [f for f in move.entered if loop_uses(realize, f.loop_var)]
    if not any("reduce" in loop_uses(realize, f.loop_var) for f in moving):
        return True
    return all(
        f.kind is ForKind.SERIAL and (f in moving or number_of(f.extent) == 1) for f in move.entered
    )


def _check_producers(state: State, move: _Move) -> list[BlockRealize]:
    """The blocks in the target that write what the block reads; refuse where others interfere."""
    block, name = move.block, move.block.name_hint
    facts = facts_of(state, block)
    rank = _rank(state, move.scope)
    mine = rank[id(move.realize)]
    inside = [r for r in state.child_realizes(move.scope) if move.target in state.around(r)]
    first = min((rank[id(r)] for r in inside), default=mine)
    if first > mine:
        refuse(f"loop {move.target.loop_var.name} comes after block {name}", move.target, block)
    producers: list[BlockRealize] = []
    for r in state.child_realizes(move.scope):
        theirs = facts_of(state, r.block)
        if r is not move.realize and rank[id(r)] < first:
            _check_earlier(state, move, r)
        if r is move.realize or rank[id(r)] < first:
            continue
        other = r.block.name_hint
        clash = theirs.touched_data() & facts.write_data()
        within = move.target in state.around(r)
        if clash and (within or rank[id(r)] < mine):
            refuse(
                f"block {other} uses {next(iter(clash)).name}, which block {name} writes, before "
                f"block {name} runs now",
                r.block,
                block,
            )
        if not theirs.write_data() & facts.read_data():
            continue
        if not within:
            if rank[id(r)] < mine:
                refuse(
                    f"block {other}, which writes what block {name} reads, is not in loop "
                    f"{move.target.loop_var.name}",
                    r.block,
                    move.target,
                )
            continue
        for f in move.entered:
            if loop_uses(r, f.loop_var) & {"reduce"}:
                refuse(
                    f"block {other} reduces over loop {f.loop_var.name}: its result is not "
                    "complete inside that loop",
                    r.block,
                    f,
                )
        if theirs.kind is BlockKind.OPAQUE:
            refuse(f"nothing is known about block {other}: {theirs.why}", r.block)
        producers.append(r)
    if not producers:
        refuse(f"no producer of block {name} is in loop {move.target.loop_var.name}", block)
    return producers


def _check_earlier(state: State, move: _Move, r: BlockRealize) -> None:
    """A block before the target, but in a loop around it, must have nothing to do with the moved
    one: it is not complete there.
    """
    hit = facts_of(state, r.block).shared_data(facts_of(state, move.block))
    for f in move.entered:
        if hit and number_of(f.extent) != 1 and f in state.around(r):
            refuse(
                f"block {r.block.name_hint} in loop {f.loop_var.name} is not finished with "
                f"{next(iter(hit)).name} there",
                r.block,
                f,
            )


def _provided(
    state: State, move: _Move, producers: Sequence[BlockRealize]
) -> list[tuple[Access, Box]]:
    out: list[tuple[Access, Box]] = []
    for a in facts_of(state, move.block).reads:
        boxes = (
            region_while(state, r, w, loops_between(state, r, move.target))
            for r in producers
            for w in facts_of(state, r.block).writes
            if w.buffer.data is a.buffer.data
        )
        total = union(state, boxes)
        if total is not None:
            out.append((a, total))
    return out


def _check_all_run(state: State, move: _Move, realize: BlockRealize, loops: Sequence[For]) -> None:
    name, loop = move.block.name_hint, move.target.loop_var.name
    why = covers_domain(state, realize, loops)
    if not why and not predicate_is_domain(state, realize, loops):
        why = "its predicate would leave out part of its domain"
    if why:
        refuse(f"block {name} cannot be moved into loop {loop}: {why}", move.block, move.target)


def _check_apart(state: State, move: _Move, realize: BlockRealize, loops: Sequence[For]) -> None:
    """Refuse where iterations that run at the same time would run the same part of the block."""
    determined = spatial_loops(state, realize, loops)
    for f in move.entered:
        one_by_one = f.kind in (ForKind.SERIAL, ForKind.UNROLLED) or number_of(f.extent) == 1
        if not one_by_one and f.loop_var not in determined:
            refuse(
                f"block {move.block.name_hint} would be run by several iterations of loop "
                f"{f.loop_var.name} at the same time",
                move.block,
                f,
            )


def _check_provided(
    state: State,
    move: _Move,
    realize: BlockRealize,
    new_loops: Sequence[For],
    producers: Sequence[BlockRealize],
) -> None:
    name = move.block.name_hint
    for a in facts_of(state, move.block).reads:
        writers = [r for r in producers if a.buffer.data in facts_of(state, r.block).write_data()]
        if not writers:
            continue
        first = writers[0]
        facts = facts_of(state, first.block)
        fresh = writes_afresh(state, first, facts)
        why = "" if fresh else "it goes on with what was written before"
        if not why and not predicate_is_domain(state, first, state.loops_above(first)):
            why = "it runs under a condition"
        if not why:
            access = next(w for w in facts.writes if w.buffer.data is a.buffer.data)
            inner = loops_between(state, first, move.target)
            written = region_while(state, first, access, inner)
            whole = domain_box(state, first.block, access)
            read = region_while(state, realize, a, new_loops)
            why = a.why_unlike(access) or covers(state, facts, written, whole, read, a.buffer)
        if why:
            refuse(
                f"block {name} would read {a.buffer.name} before block {first.block.name_hint} has "
                f"written it: {why}",
                move.block,
                move.target,
                first.block,
            )
