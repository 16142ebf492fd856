"""`merge`: loops that stand side by side as one loop over both bodies."""

from __future__ import annotations

from typing import Any

from ....ir import Var, cast
from ...stmt import BlockRealize, For, ForKind, SeqStmt, Stmt, seq
from ..model.dependence import check_no_bare_statements, check_parallel, check_self_contained
from ..model.facts import BlockKind, facts_of
from ..model.primitive import LOOP, list_of, primitive
from ..model.state import State, refuse, substitute_loops
from .loops import check_plain


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
    _check(after, [after.loop(v) for v in new])
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


def _check(state: State, nest: list[For]) -> None:
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
