"""Whether a schedule adds up floats in the order in which they were added before.

    for i, k: C[i] += A[i, k]
        split i, k; k outside, i inside      each C[i] gets its terms in the same order
        sums of parts of k, then their sum   another order: other digits

Where numerics are to be exact, rules that change the order are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from ....arith import detect_linear_equation
from ....base import ScheduleError
from ....ir import FloorDiv, FloorMod, IntImm, PrimExpr, Var
from ...stmt import Block
from ..model.reducer import match_reducer
from ..model.state import free_variables
from ..schedule import Schedule
from .queries import reduces

# These take sums apart, whatever the order of loops is.
_TAKE_APART = frozenset(
    {"rfactor", "separate_window", "pack_contraction", "fewer_products", "tensorize"}
)
# Reductions that give the same in any order.
_ANY_ORDER = frozenset({"max", "min"})


def sum_orders(sch: Schedule, blocks: Sequence[Any]) -> dict[Any, tuple[int, ...]]:
    """The blocks that reduce floats, and in which order: see `_order`."""
    return {rv: _order(sch, rv) for rv in blocks if order_matters(sch.get(rv))}


def keep_orders(sch: Schedule, orders: Mapping[Any, tuple[int, ...]]) -> None:
    """Raise ScheduleError unless the blocks reduce in these orders, in one piece."""
    for inst in sch.trace.insts if orders else ():
        if inst.name in _TAKE_APART:
            raise ScheduleError(f"{inst.name} takes sums apart, and numerics are to be exact")
    for rv, order in orders.items():
        if _order(sch, rv) != order:
            raise ScheduleError("sums are added up in another order, and numerics are to be exact")


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
