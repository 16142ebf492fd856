"""Sums over axes that may turn out to have no values.

A block sets its result to the first value when its reduce axes start, so it never does where an
axis has no iteration. `te.create_prim_func` adds a block for that case:

    for i, j: if k <= 0: C[i, j] = 0         without_empty(fn): only the second nest, and {k}
    for i, j, r in grid(m, n, k): C[i, j] += A[i, r] * B[r, j]

Two blocks that write C are in the way of every schedule, and one is enough as soon as the first
value is set outside the loops over r, whatever k is (`is_filled`).
"""

from __future__ import annotations

from typing import Any

from ....arith import Analyzer, conjuncts
from ....ir import LE, IntImm, Or, PrimExpr, Var, const, descend, is_const, substitute
from ...stmt import (
    Block,
    BlockRealize,
    BufferStore,
    For,
    PrimFunc,
    SeqStmt,
    Stmt,
    statements_below,
    statements_in,
)
from ...transform.rewriter import constant
from ..model.state import free_variables
from .queries import reduces


def without_empty(fn: PrimFunc) -> tuple[PrimFunc, frozenset[Var]] | None:
    """`fn` without its blocks for sums of nothing, and the symbols that decide whether a sum is
    one; None if there are no such blocks.
    """
    root = fn.body.block if isinstance(fn.body, BlockRealize) else None
    if root is None or not isinstance(root.body, SeqStmt):
        return None
    sums = [s for s in statements_in(root.body) if isinstance(s, Block) and s.init is not None]
    kept: list[Stmt] = []
    symbols: set[Var] = set()
    for nest in root.body.seq:
        sizes = _sum_of_nothing(nest, sums)
        if sizes is None:
            kept.append(nest)
        symbols |= sizes or frozenset()
    if len(kept) == len(root.body.seq):
        return None
    body = kept[0] if len(kept) == 1 else SeqStmt(tuple(kept))
    return fn.replace(body=fn.body.replace(block=root.replace(body=body))), frozenset(symbols)


def _sum_of_nothing(nest: Stmt, sums: list[Block]) -> frozenset[Var] | None:
    """The symbols of the condition, if all that `nest` does is what one of the sums would do at
    its start, under the condition that the sum has no values.
    """
    s = nest
    while isinstance(s, For):
        s = s.body
    if not isinstance(s, BlockRealize) or not isinstance(s.block.body, BufferStore):
        return None
    store = s.block.body
    extents = _empty_extents(s.predicate)
    if not extents or s.block.init is not None:
        return None
    for block in sums:
        extents_of = [a.range.extent for a in block.iter_vars if a.is_reduce]
        may_be = [e for e in extents_of if not isinstance(e, IntImm)]
        same = (
            isinstance(block.init, BufferStore)
            and block.init.buffer is store.buffer
            and len(may_be) == len(extents)
            and all(a is b for a, b in zip(may_be, extents))
            and block.init.value is store.value
            and not free_variables(store.value)
        )
        if same:
            return frozenset(v for e in extents for v in free_variables(e))
    return None


def _empty_extents(predicate: PrimExpr) -> list[PrimExpr]:
    """[a, b] of `a <= 0 or b <= 0`; [] of anything else."""
    parts = conjuncts(predicate, Or)
    extents = [e.a for e in parts if isinstance(e, LE) and constant(e.b) == 0]
    return extents if len(extents) == len(parts) else []


def is_filled(fn: PrimFunc, symbols: frozenset[Var]) -> bool:
    """Whether what sums over axes of the extents `symbols` are written to gets its first value,
    and goes on to its readers, in loops that run whatever the symbols are.
    """

    def below(item: tuple[Stmt, frozenset[Var]]) -> list[tuple[Stmt, frozenset[Var]]]:
        s, on = item
        if isinstance(s, For):
            on |= _mentioned((s.min, s.extent), symbols)
        elif isinstance(s, BlockRealize):
            on |= _mentioned((s.predicate,), symbols)
        return [(c, on) for c in statements_below(s)]

    start: tuple[Stmt, frozenset[Var]] = (fn.body, frozenset())
    inside = [(s, on) for s, on in descend(start, below) if isinstance(s, Block)]
    sums = [b for b, on in inside if on and reduces(b)]
    if any(b.init is not None for b in sums):
        return False
    others = [(b, _missed(b, on)) for b, on in inside[1:] if not (on and reduces(b))]
    reached = {r.buffer.data for b in sums for r in b.writes}
    if not reached <= {r.buffer.data for b, _ in others for r in b.writes}:
        return False
    # What is written from the sums, however far away.
    while True:
        touched = [
            (b, missed)
            for b, missed in others
            if any(r.buffer.data in reached for r in (*b.reads, *b.writes))
        ]
        more = {r.buffer.data for b, _ in touched for r in b.writes} - reached
        if not more:
            return not any(missed for _, missed in touched)
        reached |= more


def _mentioned(values: Any, symbols: frozenset[Var]) -> frozenset[Var]:
    return frozenset(v for e in values for v in free_variables(e) if v in symbols)


def _missed(block: Block, symbols: frozenset[Var]) -> bool:
    """Whether a block that does not run where one of the symbols is 0 leaves out something: what it
    writes has elements then.
    """
    none = Analyzer(wrap=False)
    return any(
        not any(is_const(none.simplify(substitute(n, {v: const(0, v.dtype)})), 0) for n in b.shape)
        for b in (r.buffer for r in block.writes)
        for v in symbols
    )
