"""Inlining: a block's expression is put where its result is used, and the block vanishes."""

from __future__ import annotations

from typing import Any

from ...arith.number import Numbers, number_of
from ...ir import LT, And, IntImm, PrimExpr, Var
from ...ir.expr import cast
from ...ir.walk import substitute
from ..stmt import Block, BlockRealize, Buffer, BufferLoad, BufferStore
from .bindings import predicate_is_domain, runs_everywhere
from .dependence import check_final, domain_box, loops_left
from .facts import facts_of
from .primitive import BLOCK, primitive
from .regions import (
    allocated_in,
    check_no_bare_stores,
    drop_buffer,
    only_plain_accesses,
    refresh_around,
    replace_accesses,
    users_of,
    with_regions,
)
from .state import State, refuse

__all__ = ["compute_inline", "reverse_compute_inline"]


def single_store(state: State, block: Block, what: str = "inlined") -> BufferStore:
    """The one statement of a complete block. Refuses any other block."""
    name = block.name_hint
    facts = facts_of(state, block)
    if facts.kind != "complete":
        why = facts.why or {
            "reduction": "it is a reduction",
            "update": "it goes on with a reduction that another block started",
            "inplace": "it updates a buffer in place",
        }.get(facts.kind, "")
        refuse(f"block {name} cannot be {what}: {why}", block)
    if not isinstance(block.body, BufferStore) or block.alloc_buffers:
        refuse(f"block {name} cannot be {what}: it does more than one store", block)
    return block.body


def _axes_of_indices(block: Block, indices: Any, what: str) -> dict[int, Var]:
    """dimension -> axis, for indices that are distinct axes (or 0 in a dimension of size 1)."""
    own = {a.var for a in block.iter_vars}
    found: dict[int, Var] = {}
    for k, index in enumerate(indices):
        if isinstance(index, Var) and index in own and index not in found.values():
            found[k] = index
        elif not isinstance(index, IntImm):
            refuse(
                f"block {block.name_hint} cannot be inlined: dimension {k} of {what} is indexed "
                f"by {index}, which is not an axis of its own",
                block,
            )
    for a in block.iter_vars:
        unit = isinstance(a.dom.extent, IntImm) and a.dom.extent.value == 1  # type: ignore[union-attr]
        if a.var not in found.values() and not unit:
            refuse(
                f"block {block.name_hint} cannot be inlined: its axis {a.var.name} does not index "
                f"{what}",
                block,
            )
    return found


def _order(state: State) -> dict[int, int]:
    return {id(b): k for k, b in enumerate(state.blocks())}


def check_inputs_stay(state: State, block: Block, until: Block, moved: str) -> None:
    """Refuse if what `block` reads is written again before `until`, where the reading moves to, has
    run for the last time.
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
            refuse(
                f"block {name} cannot be {moved}: block {there}, where it would be computed, "
                f"writes {data}, which it reads",
                block,
                until,
            )
        if order[id(other)] < order[id(block)]:
            check_final(state, state.realize(other), mine, theirs)
            continue
        before = order[id(other)] < order[id(until)]
        if before or any(state.path(other).within(f) for f in again):
            refuse(
                f"block {name} cannot be {moved}: block {other.name_hint} writes {data}, which it "
                f"reads, before block {there} runs" + ("" if before else " again"),
                block,
                other,
            )


@primitive(block=BLOCK)
def compute_inline(state: State, block: Block) -> tuple[State, None]:
    """Put the expression of a block into the blocks that read its result.

    Raises ScheduleError unless the block is one store ``B[axes] = expression`` of a buffer that is
    allocated in its scope, written by it alone, and indexed by distinct axes.

        B[vi] = A[vi] * 2.0     →     C[vi] = A[vi] * 2.0 + 1.0
        C[vi] = B[vi] + 1.0
    """
    store = single_store(state, block)
    name, buffer = block.name_hint, store.buffer
    scope = state.scope(state.realize(block))
    allocated_in(state, scope, buffer, f"block {name} cannot be inlined: it")
    dims = _axes_of_indices(block, store.indices, buffer.name)
    why = runs_everywhere(state, block)
    if why:
        refuse(f"block {name} cannot be inlined: {why}", block)
    readers, writers = users_of(state, buffer.data)
    if len(writers) != 1:
        other = next(w for w in writers if w is not block)
        refuse(
            f"block {name} cannot be inlined: block {other.name_hint} also writes {buffer.name}",
            block,
            other,
        )
    only_plain_accesses(state, scope, buffer, f"block {name} cannot be inlined")
    order = _order(state)
    for r in readers:
        if order[id(r)] < order[id(block)]:
            refuse(f"block {r.name_hint} reads {buffer.name} before block {name} writes it", r)
        check_inputs_stay(state, block, r, "inlined")
    check_no_loads_outside(state, readers, buffer)

    def inlined(n: BufferLoad) -> PrimExpr | None:
        if n.buffer.data is not buffer.data:
            return None
        values = {axis: cast(axis.dtype, n.indices[k]) for k, axis in dims.items()}
        for a in block.iter_vars:
            values.setdefault(a.var, a.dom.min)  # type: ignore[union-attr]
        return substitute(store.value, values)

    for r in readers:
        now = state.now(r)
        made = replace_accesses(now.replace(reads=()), inlined)
        made = with_regions(state, made)
        state = refresh_after(state.replace(now, made), made)
    state = state.replace(state.realize(state.now(block)), None)
    return drop_buffer(state, buffer), None


def refresh_after(state: State, block: Block) -> State:
    """Bring the blocks around a changed block in step."""
    return refresh_around(state, block)


def check_no_loads_outside(state: State, blocks: list[Block], buffer: Buffer) -> None:
    """Refuse where bindings, predicates or loop ranges read the buffer."""
    for path in state.index.values():
        s: Any = path.stmt
        parts: tuple[Any, ...] = ()
        if isinstance(s, BlockRealize):
            parts = (*s.iter_values, s.predicate)
        for e in parts:
            stack = [e]
            while stack:
                n = stack.pop()
                if isinstance(n, BufferLoad) and n.buffer.data is buffer.data:
                    refuse(f"{buffer.name} is read in the binding of block {s.block.name_hint}", s)
                stack.extend(n._children_())


@primitive(block=BLOCK)
def reverse_compute_inline(state: State, block: Block) -> tuple[State, None]:
    """Put the expression of a block into the block whose result it reads.

    Raises ScheduleError unless the block is one store of an expression over one buffer that a
    single complete block before it writes and nobody else reads, indexed by distinct axes.

        B[vi] = A[vi] * 2.0     →     C[vi] = A[vi] * 2.0 + 1.0
        C[vi] = B[vi] + 1.0
    """
    store = single_store(state, block)
    name = block.name_hint
    producer, buffer = _only_producer(state, block)
    made_by = single_store(state, producer)
    scope = state.scope(state.realize(block))
    allocated_in(state, scope, buffer, f"block {name} cannot be inlined: the block before it")
    only_plain_accesses(state, scope, buffer, f"block {name} cannot be inlined")
    dims = _axes_of_indices(block, _load_indices(block, store, buffer), buffer.name)
    for each in (producer, block):
        why = runs_everywhere(state, each)
        if why:
            refuse(f"block {each.name_hint} cannot be inlined: {why}", each)
    _check_all_written(state, block, producer, dims, buffer)
    _check_moves_up(state, block, producer)
    values: dict[Var, PrimExpr] = {
        axis: cast(axis.dtype, made_by.indices[k]) for k, axis in dims.items()
    }
    for a in block.iter_vars:
        values.setdefault(a.var, a.dom.min)  # type: ignore[union-attr]

    def inlined(n: BufferLoad) -> PrimExpr | None:
        return made_by.value if n.buffer.data is buffer.data else None

    # The axes are replaced before the producer's value, which has axes of its own, is put in.
    moved = substitute(store, values)
    value = replace_accesses(moved.value, inlined)
    new_store = BufferStore(moved.buffer, value, moved.indices, store.span)
    made = with_regions(state, producer.replace(body=new_store, reads=(), writes=()))
    realize = state.realize(producer)
    predicate = _narrowed(state, realize, block, dims, made_by)
    new = BlockRealize(realize.iter_values, predicate, made, realize.span)
    state = state.replace(realize, new, [(producer, made)])
    state = refresh_around(state, made)
    state = state.replace(state.realize(state.now(block)), None)
    return drop_buffer(state, buffer), None


def _check_all_written(
    state: State, block: Block, producer: Block, dims: dict[int, Var], buffer: Buffer
) -> None:
    """Refuse unless the producer writes an element for every iteration of the block."""
    access = next(a for a in facts_of(state, producer).writes if a.buffer.data is buffer.data)
    written = domain_box(state, producer, access)
    domains = {a.var: a.dom for a in block.iter_vars}
    numbers = Numbers(state.analyzer)
    for k, axis in dims.items():
        dom, found = domains[axis], written.axes[k]
        assert dom is not None
        first = None if found is None else numbers.sub(number_of(dom.min), number_of(found[0]))
        inside = (
            written.exact
            and found is not None
            and first is not None
            and numbers.at_most(0, first)
            and numbers.at_most(numbers.add(first, number_of(dom.extent)), found[1])
        )
        if not inside:
            refuse(
                f"block {block.name_hint} runs over more of {buffer.name} than block "
                f"{producer.name_hint} is shown to write",
                block,
                producer,
            )


def _only_producer(state: State, block: Block) -> tuple[Block, Buffer]:
    name = block.name_hint
    found: list[tuple[Block, Buffer]] = []
    for a in facts_of(state, block).reads:
        _, writers = users_of(state, a.buffer.data)
        if writers and not any(a.buffer is b for _, b in found):
            if len(writers) > 1:
                refuse(
                    f"{len(writers)} blocks write {a.buffer.name}, which block {name} reads",
                    *writers,
                )
            found.append((writers[0], a.buffer))
    if len(found) != 1:
        names = ", ".join(p.name_hint for p, _ in found) or "none"
        refuse(
            f"block {name} needs exactly one producer to be inlined into; it has: {names}", block
        )
    producer, buffer = found[0]
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


def _load_indices(block: Block, store: BufferStore, buffer: Buffer) -> Any:
    seen: list[Any] = []
    stack: list[Any] = [store.value, *store.indices]
    while stack:
        n = stack.pop()
        if isinstance(n, BufferLoad) and n.buffer.data is buffer.data:
            seen.append(n)
        stack.extend(n._children_())
    if len({id(n) for n in seen}) != 1:
        refuse(f"block {block.name_hint} reads {buffer.name} at several places", block)
    return seen[0].indices


def _check_moves_up(state: State, block: Block, producer: Block) -> None:
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
            state.path(other).within(f)
            for f in loops_left(state, state.realize(producer), state.realize(block))
        )
        between = order[id(producer)] < order[id(other)] < order[id(block)]
        if not between and not shares:
            continue
        theirs = facts_of(state, other)
        hit = (theirs.write_data() & (facts.read_data() | facts.write_data())) | (
            theirs.read_data() & facts.write_data()
        )
        if hit:
            refuse(
                f"block {block.name_hint} cannot move up to block {producer.name_hint}: block "
                f"{other.name_hint}, between them or in the same loop, uses {next(iter(hit)).name}",
                block,
                other,
            )
    mine = facts_of(state, producer)
    if mine.read_data() & facts.write_data():
        refuse(f"block {producer.name_hint} reads what block {block.name_hint} writes", producer)


def _narrowed(
    state: State, realize: BlockRealize, block: Block, dims: dict[int, Var], made_by: BufferStore
) -> PrimExpr:
    """The producer's predicate, and where the consumer has a smaller domain, that as well."""
    predicate = realize.predicate
    bound = {a.var: v for a, v in zip(realize.block.iter_vars, realize.iter_values)}
    ends = {a.var: a.dom for a in block.iter_vars}
    for k, axis in dims.items():
        dom = ends[axis]
        assert dom is not None
        whole = isinstance(dom.min, IntImm) and dom.min.value == 0
        if whole and state.analyzer.can_prove_equal(dom.extent, made_by.buffer.shape[k]):
            continue
        value = cast(axis.dtype, substitute(made_by.indices[k], bound))
        condition: PrimExpr = LT(value, dom.min + dom.extent)
        if not whole:
            condition = And(dom.min <= value, condition)
        certain = isinstance(predicate, IntImm) and predicate.value
        predicate = condition if certain else And(predicate, condition)
    if predicate is not realize.predicate and not predicate_is_domain(
        state, realize, state.loops_above(realize)
    ):
        refuse(f"block {realize.block.name_hint} runs under a condition", realize.block)
    return predicate
