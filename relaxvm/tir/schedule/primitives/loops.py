"""Primitives that change loops: split, fuse, reorder, unit loops, partitions, and loops that stand
side by side as one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

from ....arith import IterMapper, Numbers, number_of
from ....ir import (
    INT32,
    LT,
    And,
    FloorDiv,
    FloorMod,
    IntImm,
    PrimExpr,
    Var,
    as_expr,
    binary,
    cast,
    const,
    is_const,
)
from ....ir.walk import holds
from ...copies import fresh_copy
from ...op import ceildiv
from ...stmt import Block, BlockRealize, For, ForKind, IfThenElse, SeqStmt, Stmt, seq, statements_in
from ..model.boxes import mapper_of
from ..model.dependence import (
    check_no_bare_statements,
    check_parallel,
    check_reorder,
    check_self_contained,
)
from ..model.facts import BlockKind, facts_of
from ..model.primitive import BLOCK, BLOCK_OR_LOOP, EXPR, LOOP, list_of, primitive
from ..model.state import (
    State,
    free_variables,
    loads_of,
    rebuilt_outside_blocks,
    refuse,
    substitute_loops,
)

Loops = tuple[Var, ...]


def check_plain(f: For, what: str) -> None:
    """A loop that is to be replaced must not carry marks that would be lost."""
    if f.kind == ForKind.THREAD_BINDING:
        refuse(f"loop {f.loop_var.name} is bound to a thread and cannot be {what}", f)
    if f.annotations:
        keys = ", ".join(map(str, f.annotations))
        refuse(f"loop {f.loop_var.name} has annotations ({keys}); unannotate it first", f)


def _tidy(state: State, stmt: Stmt, loops: Sequence[For]) -> Stmt:
    """Bindings with // and % written as plain digits of the loops where that is possible."""

    def simple(e: PrimExpr) -> PrimExpr:
        if type(e) is Var or not holds(e, (FloorDiv, FloorMod)):
            return e
        mapper = mapper_of(state, loops)
        total = mapper.sum_of(e)
        return e if total is None else mapper.to_expr(total, e.dtype)

    def change(s: Stmt) -> Stmt | None:
        if type(s) is BlockRealize:
            values = tuple(simple(v) for v in s.iter_values)
            if any(a is not b for a, b in zip(values, s.iter_values)):
                return s.replace(iter_values=values)
        return None

    return rebuilt_outside_blocks(stmt, change)


def guarded(stmt: Stmt, condition: PrimExpr) -> Stmt:
    """`stmt` run only where `condition` holds: as predicate of the blocks in it, as an `if` around
    statements outside of blocks.
    """

    def change(s: Stmt) -> Stmt | None:
        if type(s) is BlockRealize:
            old = s.predicate
            if isinstance(old, IntImm) and old.value:
                return s.replace(predicate=condition)
            # What the old one reads may be there only where the new one holds.
            both = (condition, old) if loads_of(old) else (old, condition)
            return s.replace(predicate=And(*both))
        if type(s) not in (For, SeqStmt, Block):
            # What it reads first (a condition, the value of a let) may not be there otherwise.
            return IfThenElse(condition, s)
        return None

    return rebuilt_outside_blocks(stmt, change)


# -- split -----------------------------------------------------------------------------------------


def _factors(state: State, f: For, wanted: Sequence[Any]) -> tuple[list[PrimExpr], bool]:
    """The extents of the new loops, and whether their product may exceed the loop's extent."""
    name, dtype = f.loop_var.name, f.loop_var.dtype
    if not wanted:
        refuse(f"no factors for loop {name}", f)
    unknown = [k for k, x in enumerate(wanted) if x is None]
    if len(unknown) > 1:
        refuse(f"at most one factor may be None, got {len(unknown)} of them", f)
    extents: list[PrimExpr | None] = []
    for x in wanted:
        if x is None:
            extents.append(None)
            continue
        given_as = as_expr(x)
        if isinstance(given_as, IntImm) and not 0 < given_as.value < 1 << (dtype.bits - 1):
            refuse(
                f"a factor of loop {name} is {given_as.value}; factors are positive, and fit the "
                f"loop's {dtype}",
                f,
            )
        e = cast(dtype, given_as)
        extents.append(e)
    known = [number_of(e) for e in extents if e is not None]
    numbers = Numbers(state.analyzer)
    product: Any = math.prod(k for k in known if isinstance(k, int))
    for k in known:
        if not isinstance(k, int):
            product = numbers.mul(product, k)
    total = number_of(f.extent)
    if unknown:
        inferred: Any = numbers.multiple(total, product)
        exact = inferred is not None
        if not exact:
            inferred = ceildiv(f.extent, cast(dtype, as_expr(product)))
        extents[unknown[0]] = cast(dtype, as_expr(inferred))
    else:
        exact = numbers.equal(total, product)
        if not exact and not numbers.at_most(total, product):
            refuse(
                f"the factors of loop {name} multiply to {product}, which is not shown to be at "
                f"least its extent {f.extent}; give None for one of them",
                f,
            )
    return [e for e in extents if e is not None], not exact


@primitive(loop=LOOP, factors=list_of(EXPR), gives=list_of(LOOP))
def split(
    state: State,
    loop: Var,
    factors: Sequence[Any],
    preserve_unit_iters: bool = True,
    disable_predication: bool = False,
) -> tuple[State, Loops]:
    """Replace a loop by a nest of loops, one per factor, outermost first.

    factors              extents of the new loops; one may be None: as many as needed
    preserve_unit_iters  keep the variables of loops of one iteration in the bindings
    disable_predication  refuse, instead of adding a predicate, where the factors do not divide
    returns              the new loops

    Where the product of the factors exceeds the loop's extent, a predicate leaves out the rest.
    Raises ScheduleError for factors that are not positive or too small.

        for i in range(30):               for i_0, i_1 in T.grid(8, 4):
            with T.block("B"):      →         with T.block("B"):
                vi = ...(30, i)                   vi = ...(30, i_0 * 4 + i_1)
                                                  T.where(i_0 * 4 + i_1 < 30)
    """
    f = state.loop(loop)
    check_plain(f, "split")
    extents, rest = _factors(state, f, factors)
    if rest and disable_predication:
        refuse(
            f"the factors do not divide the extent {f.extent} of loop {loop.name} as far as can be "
            "shown, and disable_predication forbids the predicate that would make it right",
            f,
        )
    if rest:
        _check_bounds_stay(f)
    new = [Var(f"{loop.name}_{k}", loop.dtype) for k in range(len(extents))]
    value: PrimExpr = const(0, loop.dtype)
    for var, extent in zip(new, extents):
        unit = is_const(extent, 1)
        digit: PrimExpr = const(0, loop.dtype) if unit and not preserve_unit_iters else var
        value = value * extent + digit
    body, moved = substitute_loops(f.body, {loop: value + f.min})
    if rest:
        body = guarded(body, LT(value, f.extent))
    loop_nest = body
    zero = const(0, loop.dtype)
    nest: list[For] = []
    for var, extent in zip(reversed(new), reversed(extents)):
        loop_nest = For(var, zero, extent, ForKind.SERIAL, loop_nest, span=f.span)
        nest.append(loop_nest)
    if len(new) > 1:
        around = [s for s in state.around(state.loop(loop)) if type(s) is For]
        tidy = _tidy(state, loop_nest, [*nest, *around[1:], *inner_loops(body)])
        loop_nest = tidy
    return state.replace(f, loop_nest, moved), tuple(new)


def _check_bounds_stay(f: For) -> None:
    """Refuse where a loop inside reads how long it runs at a place that `f` moves: in iterations
    that a predicate leaves out, it would read beyond.
    """
    for inner in inner_loops(f.body):
        for e in (inner.min, inner.extent):
            if any(f.loop_var in free_variables(n) for n in loads_of(e)):
                refuse(
                    f"the range of loop {inner.loop_var.name} is read at an index that loop "
                    f"{f.loop_var.name} moves, so that only factors that divide can split it",
                    f,
                    inner,
                )


def inner_loops(root: Stmt) -> list[For]:
    """The loops below `root`, blocks not entered."""
    return [s for s in statements_in(root, (Block,)) if type(s) is For]


# -- fuse ------------------------------------------------------------------------------------------


def check_nest(state: State, loops: Sequence[For]) -> None:
    """Each loop is all that the one before holds, and does not depend on it."""
    for outer, inner in itertools.pairwise(loops):
        names = f"loop {inner.loop_var.name} and loop {outer.loop_var.name}"
        if outer.body is not inner:
            if outer is inner:
                refuse(f"loop {inner.loop_var.name} is given twice", inner)
            reason = "it is not in it"
            if outer in state.around(inner):
                reason = "other statements or loops stand between them"
            refuse(f"{names} do not directly follow each other: {reason}", outer, inner)
    for k, f in enumerate(loops):
        _check_range(f, loops[:k])


def _check_range(f: For, others: Sequence[For]) -> None:
    """Refuse where how long a loop runs depends on one of the others."""
    used = (free_variables(f.min) | free_variables(f.extent)) & {g.loop_var for g in others}
    if used:
        name = next(iter(used)).name
        refuse(f"the range of loop {f.loop_var.name} depends on loop {name}", f)


@primitive(loops=list_of(LOOP), gives=LOOP)
def fuse(state: State, *loops: Var, preserve_unit_iters: bool = True) -> tuple[State, Var]:
    """Replace loops that directly follow each other, outermost first, by one.

    preserve_unit_iters  False: loops of one iteration do not appear in the new bindings
    returns              the new loop

    Raises ScheduleError unless each loop is the only thing in the one before and its range does not
    depend on it.

        for i, j in T.grid(8, 4):         for i_j_fused in range(32):
            with T.block("B"):      →         with T.block("B"):
                vi = ...(8, i)                    vi = ...(8, i_j_fused // 4)
                vj = ...(4, j)                    vj = ...(4, i_j_fused % 4)
    """
    if not loops:
        refuse("no loops to fuse")
    nest = [state.loop(v) for v in loops]
    for f in nest:
        check_plain(f, "fused")
    check_nest(state, nest)
    dtype = max((v.dtype for v in loops), key=lambda d: d.bits)
    var = Var("_".join(v.name for v in loops) + "_fused", dtype)
    values: dict[Var, PrimExpr] = {}
    below: PrimExpr = const(1, dtype)
    for k, f in reversed(list(enumerate(nest))):
        extent = cast(dtype, f.extent)
        unit = is_const(extent, 1)
        digit: PrimExpr = binary(FloorDiv, var, below)
        if k:
            digit = digit % extent
        if unit and not preserve_unit_iters:
            digit = const(0, dtype)
        values[f.loop_var] = cast(f.loop_var.dtype, digit + cast(dtype, f.min))
        below = extent * below
    body, moved = substitute_loops(nest[-1].body, values)
    fused = For(var, const(0, dtype), below, ForKind.SERIAL, body, span=nest[0].span)
    around = [s for s in state.around(state.loop(loops[0])) if type(s) is For]
    tidy = _tidy(state, fused, [fused, *around[1:], *inner_loops(body)])
    return state.replace(nest[0], tidy, moved), var


# -- reorder ---------------------------------------------------------------------------------------


@primitive(ordered_loops=list_of(LOOP))
def reorder(state: State, *ordered_loops: Var) -> tuple[State, None]:
    """Put loops of one nest into the given order; loops between them stay where they are.

    Raises ScheduleError if the loops are not in one chain, if the range of one depends on another
    that would come to stand inside it, or if the blocks inside are not shown to allow it.

        for i, k in T.grid(8, 4):         for k, i in T.grid(4, 8):
            with T.block("B"):      →         with T.block("B"):
                ...                               ...
    """
    nest = [state.loop(v) for v in ordered_loops]
    if len({id(f) for f in nest}) != len(nest):
        refuse("a loop is given twice", *nest)
    if len(nest) < 2:
        return state, None
    chain = _chain(state, nest)
    wanted = {id(f) for f in nest}
    order = iter(nest)
    new = [next(order) if id(f) in wanted else f for f in chain]
    if all(a is b for a, b in zip(chain, new)):
        return state, None
    for k, f in enumerate(new):
        _check_range(f, new[k + 1 :])
    check_reorder(state, chain, new)
    body = chain[-1].body
    for f in reversed(new):
        body = f.replace(body=body)
    return state.replace(chain[0], body), None


def _chain(state: State, nest: Sequence[For]) -> list[For]:
    """All loops from the outermost of `nest` to the innermost. Raises if they are no chain."""
    depth = {f: len(state.around(f)) for f in nest}
    top, bottom = min(nest, key=depth.__getitem__), max(nest, key=depth.__getitem__)
    chain: list[For] = []
    wanted = {id(f) for f in nest}
    for s in state.around(bottom):
        if type(s) is not For:
            what = "a block" if isinstance(s, (Block, BlockRealize)) else "other statements"
            missing = next(f for f in nest if not any(f is g for g in chain))
            refuse(
                f"loop {missing.loop_var.name} and loop {bottom.loop_var.name} are not in one nest "
                f"of loops: {what} stand between them",
                missing,
                bottom,
            )
        chain.append(s)
        wanted.discard(id(s))
        if s is top and not wanted:
            return chain[::-1]
    missing = next(f for f in nest if id(f) in wanted)
    refuse(f"loop {missing.loop_var.name} is not in one nest with the others", missing, bottom)


@primitive(block=BLOCK)
def reorder_block_iter_var(
    state: State, block: Block, new_order: Sequence[int]
) -> tuple[State, None]:
    """Put the axes of a block into another order; nothing else changes.

    new_order  the old positions, in their new order

        vi, vj = T.axis.remap("SS", [i, j])   →   vj, vi = T.axis.remap("SS", [j, i])
    """
    count = len(block.iter_vars)
    if sorted(new_order) != list(range(count)):
        refuse(
            f"new_order is a permutation of 0..{count - 1} for block {block.name_hint}, got "
            f"{list(new_order)}",
            block,
        )
    realize = state.realize(block)
    new_block = block.replace(iter_vars=tuple(block.iter_vars[k] for k in new_order))
    new = BlockRealize(
        tuple(realize.iter_values[k] for k in new_order), realize.predicate, new_block, realize.span
    )
    return state.replace(realize, new, [(block, new_block)]), None


# -- unit loops and partitions ---------------------------------------------------------------------


@primitive(block_or_loop=BLOCK_OR_LOOP, gives=LOOP)
def add_unit_loop(state: State, block_or_loop: Any) -> tuple[State, Var]:
    """Put a loop of one iteration around a block or loop, and return it.

    for i in range(8):        for u in range(1):
        ...             →         for i in range(8):
                                      ...
    """
    if isinstance(block_or_loop, Var):
        inner: Stmt = state.loop(block_or_loop)
        dtype = block_or_loop.dtype
    else:
        inner = state.realize(block_or_loop)
        axes = block_or_loop.iter_vars
        dtype = axes[0].var.dtype if axes else INT32
        if inner is state.fn.body:
            refuse("the root block is not in a loop", block_or_loop)
    var = Var("u", dtype)
    unit_loop = For(var, const(0, var.dtype), const(1, var.dtype), ForKind.SERIAL, inner)
    return state.replace(inner, unit_loop), var


@primitive(loop=LOOP, factors=list_of(EXPR), gives=list_of(LOOP))
def loop_partition(
    state: State, loop: Var, factors: Sequence[Any], preserve_unit_iters: bool = True
) -> tuple[State, Loops]:
    """Replace a loop by several that run one after the other over consecutive parts of its range.

    factors  the lengths of the parts; one may be None: the rest
    returns  the new loops, in order

    Each part has its own copy of the body. Raises ScheduleError if the lengths do not add up to the
    loop's extent.

        for i in range(30):       for i_0 in range(28):
            ...             →         ...
                                  for i_1 in range(28, 30):
                                      ...
    """
    f = state.loop(loop)
    check_plain(f, "partitioned")
    unknown = [k for k, x in enumerate(factors or ()) if x is None]
    if not factors or len(unknown) > 1:
        refuse("wanted lengths of the parts, at most one of them None", f)
    mapper = IterMapper({}, state.analyzer)
    lengths: list[Any] = [None if x is None else number_of(as_expr(x)) for x in factors]
    total: Any = 0
    for n in lengths:
        if isinstance(n, int) and n < 0:
            refuse(f"a part of loop {loop.name} has the length {n}", f)
        if n is not None:
            total = mapper.add(total, n)
    extent = number_of(f.extent)
    if not (mapper.at_most if unknown else mapper.equal)(total, extent):
        refuse(f"the parts of loop {loop.name} have {total} iterations, the loop {f.extent}", f)
    if unknown:
        lengths[unknown[0]] = mapper.sub(extent, total)
    parts: list[Stmt] = []
    new: list[Var] = []
    first: Any = number_of(f.min)
    pairs: list[Any] = []
    for k, n in enumerate(lengths):
        var = Var(f"{loop.name}_{k}", loop.dtype)
        body = f.body if k == 0 else fresh_copy(f.body)
        unit = n == 1 and not preserve_unit_iters
        value = cast(loop.dtype, as_expr(first)) if unit else var
        body, moved = substitute_loops(body, {loop: value})
        if k == 0:
            pairs += moved
        low, length = cast(loop.dtype, as_expr(first)), cast(loop.dtype, as_expr(n))
        parts.append(f.replace(loop_var=var, min=low, extent=length, body=body))
        new.append(var)
        first = mapper.add(first, n)
    return state.replace(f, seq(*parts), pairs), tuple(new)


# -- merge -----------------------------------------------------------------------------------------


@primitive(loops=list_of(LOOP), gives=LOOP)
def merge(state: State, *loops: Var) -> tuple[State, Var]:
    """Join loops of equal extents that stand in different nests under one sequence. Returns the
    innermost new loop.

    Each loop's nest, from the sequence down to it, must hold nothing else. Raises ScheduleError for
    loops of different kinds, and unless what a later nest reads in an iteration was written in that
    iteration of an earlier one.

        for i in range(8):            for i_m in range(8):
            B[i] = A[i] * 2.0    →        B[i_m] = A[i_m] * 2.0
        for j in range(8):                C[i_m] = B[i_m] + 1.0
            C[j] = B[j] + 1.0
    """
    if len(loops) < 2:
        refuse("merge wants at least two loops", *[state.loop(v) for v in loops])
    parent, chains = _chains(state, loops)
    children = list(parent.seq)
    chains.sort(key=lambda c: children.index(c[0]))
    spots = [children.index(c[0]) for c in chains]
    if spots != list(range(spots[0], spots[0] + len(spots))):
        refuse("other statements stand between the loops to merge", *[c[0] for c in chains])
    depth = len(chains[0])
    for c in chains[1:]:
        if len(c) != depth:
            refuse(f"the loops to merge are {depth} and {len(c)} deep", c[-1])
        for f, g in zip(chains[0], c):
            if f.kind is not g.kind and {f.kind, g.kind} != {ForKind.SERIAL, ForKind.UNROLLED}:
                names = f"loop {f.loop_var.name} is {f.kind.name.lower()}, loop {g.loop_var.name}"
                refuse(f"{names} {g.kind.name.lower()}; merge wants loops of one kind", f, g)
            same = state.analyzer.can_prove_equal
            if not (same(f.extent, g.extent) and same(f.min, g.min)):
                refuse(
                    f"loop {f.loop_var.name} runs over {f.extent} values from {f.min}, loop "
                    f"{g.loop_var.name} over {g.extent} from {g.min}",
                    f,
                    g,
                )
    new = [Var(f"{f.loop_var.name}_m", f.loop_var.dtype) for f in chains[0]]
    bodies: list[Stmt] = []
    moved: list[Any] = []
    for c in chains:
        values = {f.loop_var: cast(f.loop_var.dtype, v) for f, v in zip(c, new)}
        body, pairs = substitute_loops(c[-1].body, values)
        bodies.append(body)
        moved += pairs
    nest: Stmt = seq(*bodies)
    for f, v in reversed(list(zip(chains[0], new))):
        nest = f.replace(loop_var=v, body=nest)
    kept = children[: spots[0]] + [nest] + children[spots[-1] + 1 :]
    after = state.replace(parent, seq(*kept), moved)
    _check_merged(after, [after.loop(v) for v in new])
    return after, new[-1]


def _chains(state: State, loops: tuple[Var, ...]) -> tuple[SeqStmt, list[list[For]]]:
    """The sequence that holds the loops, and for each loop the nest from there down to it."""
    chains: list[list[For]] = []
    parent: SeqStmt | None = None
    for v in loops:
        target = state.loop(v)
        chain: list[For] = []
        for s in state.around(target):
            if isinstance(s, For):
                check_plain(s, "merged")
                chain.append(s)
                continue
            if not isinstance(s, SeqStmt):
                refuse(f"loop {v.name} does not stand in a sequence with the others", target)
            if parent is not None and s is not parent:
                refuse(f"loop {v.name} is in another sequence than the others", target)
            parent = s
            break
        chains.append(chain[::-1])
    assert parent is not None
    if len({id(c[0]) for c in chains}) != len(chains):
        refuse("two of the loops to merge are in the same nest", *[c[0] for c in chains])
    return parent, chains


def _check_merged(state: State, nest: list[For]) -> None:
    body = nest[-1].body
    check_no_bare_statements(state, body)
    realizes: list[BlockRealize] = state.child_realizes(body)
    for r in realizes:
        facts = facts_of(state, r.block)
        if facts.kind is BlockKind.OPAQUE:
            refuse(f"nothing is known about block {r.block.name_hint}: {facts.why}", r.block)
    check_self_contained(state, realizes, body, nest)
    for f in nest:
        if f.kind is ForKind.PARALLEL or f.kind is ForKind.VECTORIZED:
            check_parallel(state, f, "parallel" if f.kind is ForKind.PARALLEL else "vectorized")
