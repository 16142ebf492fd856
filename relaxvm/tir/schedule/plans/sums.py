"""Sums over axes that may turn out to have no values, and the order in which floats are added up.

A block sets its result to the first value when its reduce axes start, so it never does where an
axis has no iteration. `te.create_prim_func` adds a block for that case:

    for i, j: if k <= 0: C[i, j] = 0         without_empty(fn): only the second nest, and {k}
    for i, j, r in grid(m, n, k): C[i, j] += A[i, r] * B[r, j]

Two blocks that write C are in the way of every schedule, and one is enough as soon as the first
value is set outside the loops over r, whatever k is (`is_filled`).

Where numerics are to be exact, rules that change the order of a sum are refused:

    for i, k: C[i] += A[i, k]
        split i, k; k outside, i inside      each C[i] gets its terms in the same order
        sums of parts of k, then their sum   another order: other digits
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ....arith import Analyzer, conjuncts, detect_linear_equation
from ....base import ScheduleError
from ....ir import (
    LE,
    FloorDiv,
    FloorMod,
    IntImm,
    Or,
    PrimExpr,
    Var,
    const,
    descend,
    is_const,
    substitute,
)
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
from ..model.reducer import match_reducer
from ..model.state import free_variables
from ..model.trace import Instruction
from ..primitives.intrin import TensorIntrin
from ..schedule import Schedule
from .queries import reduces

# -- sums of nothing -------------------------------------------------------------------------------


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


# -- the order of terms ----------------------------------------------------------------------------


# These take sums apart, whatever the order of loops is; so does an intrinsic that sums.
_TAKE_APART = frozenset({"rfactor", "separate_window", "pack_contraction", "fewer_products"})
# Reductions that give the same in any order.
_ANY_ORDER = frozenset({"max", "min"})


def sum_orders(sch: Schedule, blocks: Sequence[Any]) -> dict[Any, tuple[int, ...]]:
    """The blocks that reduce floats, and in which order: see `_order`."""
    return {rv: _order(sch, rv) for rv in blocks if order_matters(sch.get(rv))}


def keep_orders(sch: Schedule, orders: Mapping[Any, tuple[int, ...]]) -> None:
    """Raise ScheduleError unless the blocks reduce in these orders, in one piece."""
    for inst in sch.trace.insts if orders else ():
        if inst.name in _TAKE_APART or (inst.name == "tensorize" and _sums(inst)):
            raise ScheduleError(f"{inst.name} takes sums apart, and numerics are to be exact")
    for rv, order in orders.items():
        if _order(sch, rv) != order:
            raise ScheduleError("sums are added up in another order, and numerics are to be exact")


def _sums(inst: Instruction) -> bool:
    intrin = TensorIntrin.get(inst.args["tensor_intrin"])
    assert intrin is not None
    return any(isinstance(s, Block) and reduces(s) for s in statements_in(intrin.desc.body))


def order_matters(block: Block) -> bool:
    """Whether `block` adds up floats, or reduces them in another way that depends on the order."""
    reducer = match_reducer(block)
    floats = any(r.buffer.dtype.is_float for r in block.writes)
    return reduces(block) and floats and (reducer is None or reducer.name not in _ANY_ORDER)


def _order(sch: Schedule, rv: Any) -> tuple[int, ...]:
    """Which reduce axes the loops around a block move, from the outermost loop in; and, as -1 - k,
    those axes k that do not go up when the loops do.
    """
    block: Block = sch.get(rv)
    values = sch.state.realize(block).iter_values
    reduced = [v for axis, v in zip(block.iter_vars, values) if axis.is_reduce]
    moved = [free_variables(value) for value in reduced]
    order: list[int] = []
    loops = [sch.get(loop).loop_var for loop in sch.get_loops(rv)]
    for var in loops:
        order += [k for k, inside in enumerate(moved) if var in inside]
    down = [-1 - k for k, value in enumerate(reduced) if not _goes_up(value, loops)]
    return (*(k for k, _ in groupby(order)), *down)


def _goes_up(value: PrimExpr, loops: Sequence[Var]) -> bool:
    """Whether the outer of two loops takes the larger steps in `value`, and none goes back. What is
    no sum of loops times numbers, or a quotient or rest of one, is taken to go up.
    """
    while isinstance(value, (FloorDiv, FloorMod)):
        value = value.a  # as of loops that were fused
    inside = free_variables(value)
    parts = detect_linear_equation(value, [v for v in loops if v in inside])
    steps = [part.value if isinstance(part, IntImm) else 0 for part in parts[:-1]]
    return sorted(steps, reverse=True) == steps and min(steps, default=0) >= 0
