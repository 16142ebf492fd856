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

from ....base import ScheduleError
from ....ir import Var, walk
from ...stmt import Block
from ..reducer import match_reducer
from ..schedule import Schedule
from .queries import reduces

# These take sums apart, whatever the order of loops is.
_TAKE_APART = frozenset({"rfactor", "separate_window", "pack_contraction", "tensorize"})
# Reductions that give the same in any order.
_ANY_ORDER = frozenset({"max", "min"})


def sum_orders(sch: Schedule, blocks: Sequence[Any]) -> dict[Any, tuple[int, ...]]:
    """The blocks that reduce floats, and in which order: see `_order`."""
    return {rv: _order(sch, rv) for rv in blocks if _order_matters(sch.get(rv))}


def keep_orders(sch: Schedule, orders: Mapping[Any, tuple[int, ...]]) -> None:
    """Raise ScheduleError unless the blocks reduce in these orders, in one piece."""
    for inst in sch.trace.insts if orders else ():
        if inst.name in _TAKE_APART:
            raise ScheduleError(f"{inst.name} takes sums apart, and numerics are to be exact")
    for rv, order in orders.items():
        if _order(sch, rv) != order:
            raise ScheduleError("sums are added up in another order, and numerics are to be exact")


def _order_matters(block: Block) -> bool:
    reducer = match_reducer(block)
    floats = any(r.buffer.dtype.is_float for r in block.writes)
    return reduces(block) and floats and (reducer is None or reducer.name not in _ANY_ORDER)


def _order(sch: Schedule, rv: Any) -> tuple[int, ...]:
    """Which reduce axes the loops around a block move, from the outermost loop in."""
    block: Block = sch.get(rv)
    values = sch.state.realize(block).iter_values
    moved = [
        {n for n in walk(value) if isinstance(n, Var)}
        for axis, value in zip(block.iter_vars, values)
        if axis.is_reduce
    ]
    found: list[int] = []
    for loop in sch.get_loops(rv):
        var = sch.get(loop).loop_var
        found += [k for k, inside in enumerate(moved) if var in inside]
    return tuple(k for k, _ in groupby(found))
