"""Which changes of order the blocks under a loop allow.

An iteration of a loop is *self-contained* if what it reads of a buffer that is written under the
loop, it has written itself before. Then iterations may run in any order.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ....arith import IterMapper, Numbers, number_of
from ....ir import IntImm, Var, as_expr, const
from ...stmt import (
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    Evaluate,
    For,
    ForKind,
    SeqStmt,
    Stmt,
    is_no_op,
    statements_below,
    statements_in,
)
from .bindings import covers, loop_uses, predicate_is_domain, spatial_loops
from .boxes import Access, Box, bound_box, iters_of, mapper_of, region_while
from .facts import BlockKind, Facts, facts_of
from .state import State, free_variables, loads_of, refuse


def loops_between(state: State, stmt: Stmt, outer: Stmt) -> list[For]:
    """The loops strictly inside `outer` around `stmt`, from the outside in."""
    around = state.around(stmt)
    inside = around[1 : around.index(outer)] if outer in around else around[1:]
    return [s for s in reversed(inside) if type(s) is For]


def _loops_in(state: State, realize: BlockRealize, body: Stmt) -> list[For]:
    """The loops that one run of `body` has around a block, from the outside in."""
    inside = loops_between(state, realize, body)
    return [body, *inside] if isinstance(body, For) else inside


def check_no_bare_statements(state: State, root: Stmt) -> None:
    """Refuse where something is done outside of blocks: nothing is known about it."""
    blocks = (BlockRealize, Block)
    statements = [root]
    for c in statements_below(root):
        statements += statements_in(c, blocks)
    _check_steady_bounds(state, root, statements)
    for s in statements:
        if type(s) in blocks and s is not root:
            continue
        below = statements_below(s)
        if not below and not is_no_op(s):
            kind = "call" if isinstance(s, Evaluate) else "statement"
            refuse(f"a {kind} stands outside of the blocks here; put it into a block", root)
        if type(s) not in (For, SeqStmt, Block, BlockRealize) and below:
            refuse(f"a {type(s).__name__} stands outside of the blocks here", root)


def _check_steady_bounds(state: State, root: Stmt, statements: Iterable[Stmt]) -> None:
    """Refuse where how long a loop under `root` runs, or which iterations of a block are run, is
    read from what is written under it.
    """
    bounds: list[tuple[str, Stmt, BufferLoad]] = []
    for s in statements:
        if type(s) is For and s is not root:
            what, parts = f"the range of loop {s.loop_var.name}", [s.min, s.extent]
        elif type(s) is BlockRealize:
            what = f"which iterations of block {s.block.name_hint} are run"
            parts = [*s.iter_values, s.predicate]
        else:
            continue
        site: Stmt = s.block if type(s) is BlockRealize else s
        for e in parts:
            if type(e) is not Var and type(e) is not IntImm:
                for n in loads_of(e):
                    bounds.append((what, site, n))
    if not bounds:
        return
    written = {
        data for r in state.child_realizes(root) for data in facts_of(state, r.block).write_data()
    }
    for what, place, n in bounds:
        if n.buffer.data in written:
            refuse(f"{what} is read from {n.buffer.name}", place)


def domain_box(state: State, block: Block, access: Access) -> Box:
    """What the block would touch if it were run on all of its domain."""
    loops = [
        For(a.var, a.dom.min, a.dom.extent, ForKind.SERIAL, _NOTHING)
        for a in block.iter_vars
        if a.dom is not None
    ]
    realize = BlockRealize(tuple(a.var for a in block.iter_vars), const(True), block)
    return region_while(state, realize, access, loops)


_NOTHING = SeqStmt(())


def check_self_contained(
    state: State,
    realizes: Sequence[BlockRealize],
    body: Stmt,
    outer: Sequence[For],
    only: Var | None = None,
) -> None:
    """Refuse unless one run of `body` is self-contained.

    outer  the loops whose iterations are to be reordered
    only   look at this memory alone, even if a single block touches it
    """
    touched: dict[Var, list[tuple[BlockRealize, Facts]]] = {}
    written: dict[Var, Buffer] = {}
    for r in realizes:
        facts = facts_of(state, r.block)
        for a in facts.writes:
            written.setdefault(a.buffer.data, a.buffer)
        for data in facts.touched_data():
            touched.setdefault(data, []).append((r, facts))
    for data, buffer in written.items():
        if only is not None and data is not only:
            continue
        if only is None and len(touched[data]) < 2:
            continue
        users = touched[data]
        if only is None:
            # Where a guard cuts the last part short, what would be without it is the part.
            guarded = any(not isinstance(r.predicate, IntImm) for r, _ in users)
            ways = (True, False) if guarded else (True,)
            if any(_has_parts(state, data, users, body, outer, guards) for guards in ways):
                continue
        _check_buffer(state, buffer, users, body, outer)


def _has_parts(
    state: State,
    data: Var,
    users: Sequence[tuple[BlockRealize, Facts]],
    body: Stmt,
    outer: Sequence[For],
    guards: bool,
) -> bool:
    """Whether each iteration of the loops `outer` has a part of a buffer for itself, which all that
    it touches is in: one index says which iteration it is.

    guards  whether conditions of blocks count; without them blocks may touch more
    """
    apart = {f.loop_var for f in outer if number_of(f.extent) != 1}
    first: Access | None = None
    parts: dict[int, Any] = {}  # the spans along dimensions in which iterations may differ
    numbers = Numbers(state.analyzer)
    for r, facts in users:
        around = _loops_in(state, r, body)
        for a in (*facts.reads, *facts.writes):
            if a.buffer.data is not data:
                continue
            if first is None:
                first, lows = a, [free_variables(low) for low, _ in bound_box(r, a)]
                parts = {k: None for k, used in enumerate(lows) if used & apart}
            if a.why_unlike(first):
                return False
            some = Access(a.buffer, tuple(a.box[k] for k in parts))
            axes = region_while(state, r, some, around, guards).axes
            parts = {
                k: axis
                for (k, part), axis in zip(parts.items(), axes)
                if axis is not None and (a is first or numbers.same(axis, part))
            }
            if not parts:
                return not apart
    iters = iters_of([*state.loops_above(users[0][0]), *outer])
    places = []
    for low, extent in parts.values():
        inside = Var("inside", low.dtype)
        iters[inside] = (const(0, low.dtype), as_expr(extent))
        places.append(low + inside)
    return apart <= IterMapper(iters, state.analyzer).determined(places)


def _check_buffer(
    state: State,
    buffer: Buffer,
    users: Sequence[tuple[BlockRealize, Facts]],
    body: Stmt,
    outer: Sequence[For],
) -> None:
    first, facts = users[0]
    name = first.block.name_hint
    if not (buffer.data in facts.write_data() and writes_afresh(state, first, facts)):
        refuse(
            f"iterations hand values on to each other through {buffer.name}: block {name} uses it "
            "first, and does not write it afresh",
            first.block,
        )
    for f in outer:
        if loop_uses(first, f.loop_var) & {"reduce"}:
            refuse(
                f"iterations hand values on to each other through {buffer.name}, which block "
                f"{name} reduces over loop {f.loop_var.name}",
                first.block,
                f,
            )
    access = facts.write_of(buffer)
    if not predicate_is_domain(state, first, state.loops_above(first)):
        refuse(f"block {name} writes {buffer.name} under a condition", first.block)
    written = region_while(state, first, access, _loops_in(state, first, body))
    whole = domain_box(state, first.block, access)
    for r, other in users[1:]:
        around = _loops_in(state, r, body)
        for a in (*other.reads, *other.writes):
            if a.buffer.data is not buffer.data:
                continue
            why = a.why_unlike(access) or covers(
                state, facts, written, whole, region_while(state, r, a, around), buffer
            )
            if why:
                refuse(
                    f"iterations may hand values on to each other through {buffer.name}, which "
                    f"block {name} writes and block {r.block.name_hint} uses: {why}",
                    first.block,
                    r.block,
                )


def loops_left(state: State, inside: Stmt, other: Stmt) -> list[For]:
    """The loops of more than one iteration around `inside` that are not around `other`."""
    return [
        f
        for f in state.loops_above(inside)
        if number_of(f.extent) != 1 and f not in state.around(other)
    ]


def check_final(state: State, writer: BlockRealize, reader: Stmt, later: Stmt) -> None:
    """Refuse unless what `writer` writes for `reader`, in loops around both, is what `later` finds
    there when the loops have ended.
    """
    shared = [f for f in loops_left(state, reader, later) if f in state.around(writer)]
    if not shared:
        return
    # The block directly in the loops, where the writer is inside others.
    for s in state.around(writer):
        if s is shared[-1]:
            break
        if isinstance(s, BlockRealize):
            writer = s
    facts = facts_of(state, writer.block)
    loops = state.loops_above(writer)
    determined = spatial_loops(state, writer, loops[loops.index(shared[0]) :])
    for f in shared:
        once = f.loop_var in determined and loop_uses(writer, f.loop_var) == {"spatial"}
        if not (once and writes_afresh(state, writer, facts)):
            refuse(
                f"block {writer.block.name_hint} may write the same elements again in loop "
                f"{f.loop_var.name}",
                writer.block,
                f,
            )


# -- reorder ---------------------------------------------------------------------------------------


def check_reorder(state: State, old: Sequence[For], new: Sequence[For]) -> None:
    """Refuse unless the loops of a chain may be put from the `old` into the `new` order."""
    rank = {id(f): k for k, f in enumerate(new)}
    swapped = [(a, b) for k, a in enumerate(old) for b in old[k + 1 :] if rank[id(a)] > rank[id(b)]]
    body = old[-1].body
    check_no_bare_statements(state, body)
    realizes = state.child_realizes(body)
    for r in realizes:
        _check_swaps(state, r, [*old, *loops_between(state, r, body)], swapped)
    if len(realizes) > 1:
        check_self_contained(state, realizes, body, old)


def _check_swaps(
    state: State,
    realize: BlockRealize,
    loops: Sequence[For],
    swapped: Sequence[tuple[For, For]],
) -> None:
    block = realize.block
    facts = facts_of(state, block)
    name = block.name_hint
    if facts.kind is BlockKind.OPAQUE:
        refuse(f"the iterations of block {name} have an order: {facts.why}", block)
    if facts.elementwise:
        return
    determined = spatial_loops(state, realize, loops)
    for pair in swapped:
        reducing = [f for f in pair if loop_uses(realize, f.loop_var) & {"reduce"}]
        if not reducing:
            continue
        if len(reducing) == 2:
            _check_reduce_order(state, realize, loops, pair, facts)
            continue
        other = pair[0] if pair[1] is reducing[0] else pair[1]
        if other.loop_var in determined:
            continue
        if facts.kind is BlockKind.UPDATE and facts.commutative:
            continue
        refuse(
            f"block {name} reduces over loop {reducing[0].loop_var.name}, and runs the same "
            f"reduction again for iterations of loop {other.loop_var.name}: these two loops cannot "
            "change places",
            block,
            *pair,
        )


def _check_reduce_order(
    state: State,
    realize: BlockRealize,
    loops: Sequence[For],
    pair: tuple[For, For],
    facts: Facts,
) -> None:
    block = realize.block
    if not facts.commutative:
        names = f"{pair[0].loop_var.name} and {pair[1].loop_var.name}"
        refuse(
            f"block {block.name_hint} reduces over the loops {names}, and its reduction is not one "
            "that is known to be commutative (sum, product, max, min, and, or)",
            block,
            *pair,
        )
    if block.init is not None:
        check_init_comes_first(state, realize, loops)


def writes_afresh(state: State, realize: BlockRealize, facts: Facts) -> bool:
    """Whether what the block writes does not depend on what was there before."""
    if facts.kind is not BlockKind.REDUCTION:
        return facts.idempotent
    return not _late_start(state, realize, state.loops_above(realize))


def check_init_comes_first(state: State, realize: BlockRealize, loops: Sequence[For]) -> None:
    """Refuse unless the first iteration of all reduce loops is the one that runs `init`."""
    axis = _late_start(state, realize, loops)
    if axis:
        refuse(
            f"the reduce axis {axis} of block {realize.block.name_hint} is not shown to start with "
            "its least value",
            realize.block,
        )


def _late_start(state: State, realize: BlockRealize, loops: Sequence[For]) -> str:
    """The name of a reduce axis that may not be at its least value in the first iteration."""
    mapper = mapper_of(state, loops)
    for axis, value in zip(realize.block.iter_vars, realize.iter_values):
        if not axis.is_reduce or axis.dom is None:
            continue
        total = mapper.sum_of(value)
        if (
            total is None
            or mapper.digits(total) is None
            or not mapper.equal(total.base, number_of(axis.dom.min))
        ):
            return axis.var.name
    return ""


# -- parallel and vectorized -----------------------------------------------------------------------


def check_parallel(state: State, f: For, how: str) -> None:
    """Refuse unless the iterations of `f` may run at the same time.

    how  "parallel" allows memory that every iteration has for itself; "vectorized" does not

    Rules ask on a copy of the schedule first: what is shown is remembered.
    """
    key = ("check_parallel", how, f.loop_var)
    state.remember(key, state.fn, lambda: _check_parallel(state, f, how))


def _check_parallel(state: State, f: For, how: str) -> None:
    check_no_bare_statements(state, f.body)
    realizes = state.child_realizes(f.body)
    private: list[tuple[BlockRealize, Buffer]] = []
    for r in realizes:
        facts = facts_of(state, r.block)
        name, loop = r.block.name_hint, f.loop_var.name
        if facts.kind is BlockKind.OPAQUE:
            refuse(f"the iterations of block {name} have an order: {facts.why}", r.block)
        bad = loop_uses(r, f.loop_var) - {"spatial"}
        if bad:
            axis = next(
                a.var.name
                for a, v in zip(r.block.iter_vars, r.iter_values)
                if a.iter_type in bad and f.loop_var in free_variables(v)
            )
            instead = "; use rfactor, or decompose_reduction and an outer loop"
            refuse(
                f"loop {loop} cannot be {how}: it moves the {next(iter(bad))} axis {axis} of block "
                f"{name}{instead if 'reduce' in bad else ''}",
                f,
                r.block,
            )
        if _tells_apart(state, f, r):
            continue
        for a in facts.writes:
            if how != "parallel" or not writes_afresh(state, r, facts):
                refuse(
                    f"loop {loop} cannot be {how}: block {name} writes the same elements of "
                    f"{a.buffer.name} in different iterations",
                    f,
                    r.block,
                )
            private.append((r, a.buffer))
    if len(realizes) > 1:
        check_self_contained(state, realizes, f.body, [f])
    for r, buffer in private:
        _check_private(state, f, r, buffer, realizes)


def _tells_apart(state: State, f: For, r: BlockRealize) -> bool:
    """Whether the iterations of `f` run different spatial instances of a block."""
    axes = zip(r.block.iter_vars, r.iter_values)
    moved = [v for a, v in axes if a.is_spatial and f.loop_var in free_variables(v)]
    inside = [f, *loops_between(state, r, f)]
    # Digits of a sum, as of fused loops that are split again: only with the loops around `f` is it
    # seen that none is carried.
    return number_of(f.extent) == 1 or any(
        f.loop_var in mapper_of(state, loops).determined(moved)
        for loops in (inside, [*state.loops_above(f), *inside])
        if moved
    )


def _check_private(
    state: State, f: For, r: BlockRealize, buffer: Buffer, realizes: Sequence[BlockRealize]
) -> None:
    """Refuse unless lowering gives every iteration of `f` memory of its own for `buffer`."""
    name, loop = r.block.name_hint, f.loop_var.name
    start = f"loop {loop} cannot be parallel: block {name} writes the same elements of"
    owner: Block | None = None
    between: For | None = None
    for s in state.around(f):
        if isinstance(s, For) and s is not f and s.kind != ForKind.PARALLEL:
            between = between or s
        if isinstance(s, Block) and any(b.data is buffer.data for b in s.alloc_buffers):
            owner = s
            break
    if owner is None:
        refuse(f"{start} {buffer.name} in different iterations, and it is seen outside", f, r.block)
    inside = {id(each.block) for each in realizes}
    for each in state.child_realizes(owner):
        if id(each.block) in inside or f in state.around(each):
            continue
        if isinstance(each.block, Block) and each.block in state.around(f):
            continue
        facts = facts_of(state, each.block)
        if buffer.data in facts.touched_data():
            refuse(
                f"{start} {buffer.name} in different iterations, and block {each.block.name_hint} "
                "uses it outside of the loop",
                f,
                r.block,
            )
    if between is not None:
        refuse(
            f"{start} {buffer.name} in different iterations, and loop {between.loop_var.name} "
            "outside of it is not parallel: make the outer loop parallel, or fuse them",
            f,
            r.block,
        )
