"""Reductions that are known to be associative and commutative, with the value that changes nothing.

    sum   X + e     0            product  X * e    1
    max   max(X, e) least        min      min(X, e) greatest
    and   X and e   True         or       X or e   False
    argmax, argmin: an index and a value, kept together (`Select` on a comparison of the values, and
    of the indices where the values are equal)
    several of the first six side by side, each with a buffer of its own

Floating sums and products are taken for associative: a schedule may reorder them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ....base import DataType
from ....ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    BinaryExpr,
    Max,
    Min,
    Mul,
    Or,
    PrimExpr,
    Select,
    Var,
    const,
    nodes_of,
    substitute,
)
from ...op import max_value, min_value
from ...stmt import Block, Buffer, BufferLoad, BufferStore, LetStmt, SeqStmt, statements_in


class Reducer(NamedTuple):
    """combine    (values so far, new values) -> values
    identity      values that change nothing when combined
    buffers       where the values are kept, with the indices
    updates       the new values that the block combines in each step
    commutative   whether the order of the steps does not matter (of equal keys argmax takes the
                  first)
    """

    name: str
    combine: Callable[[tuple[PrimExpr, ...], tuple[PrimExpr, ...]], tuple[PrimExpr, ...]]
    identity: tuple[PrimExpr, ...]
    buffers: tuple[tuple[Buffer, tuple[PrimExpr, ...]], ...]
    updates: tuple[PrimExpr, ...]
    commutative: bool


def _lowest(dtype: DataType) -> PrimExpr:
    return const(float("-inf"), dtype) if dtype.is_float else min_value(dtype)


def _highest(dtype: DataType) -> PrimExpr:
    return const(float("inf"), dtype) if dtype.is_float else max_value(dtype)


# The class of the update -> (name, identity of a dtype).
_SINGLE: dict[type, tuple[str, Callable[[DataType], PrimExpr]]] = {
    Add: ("sum", lambda d: const(0, d)),
    Mul: ("prod", lambda d: const(1, d)),
    Max: ("max", _lowest),
    Min: ("min", _highest),
    And: ("and", lambda d: const(True, d)),
    Or: ("or", lambda d: const(False, d)),
}


def match_reducer(block: Block) -> Reducer | None:
    """The reduction that the body of `block` is a step of, or None if it is none of those known."""
    lets: dict[Var, PrimExpr] = {}
    stores: list[BufferStore] = []
    for s in statements_in(block.body):
        if isinstance(s, LetStmt):
            lets[s.var] = s.value
        elif isinstance(s, BufferStore):
            stores.append(s)
        elif not isinstance(s, SeqStmt):
            return None
    if len(stores) == 1 and not lets:
        return _single(stores[0])
    plain = [s.replace(value=_without_lets(s.value, lets)) for s in stores]
    if len(stores) == 2:
        return _pair(*plain) or _ordered_pair(*plain) or _several(plain)
    return _several(plain)


def _reads(e: Any, buffer: Buffer) -> bool:
    return any(n.buffer.data is buffer.data for n in nodes_of(e, BufferLoad))


def _single(store: BufferStore) -> Reducer | None:
    value = store.value
    rule = _SINGLE.get(type(value))
    if rule is None or not isinstance(value, BinaryExpr):
        return None
    own = BufferLoad(store.buffer, store.indices)
    if value.a is own:
        update = value.b
    elif value.b is own:
        update = value.a
    else:
        return None
    if _reads(update, store.buffer):
        return None
    name, identity = rule
    kind: Any = type(value)

    def combine(old: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return (kind(old[0], new[0]),)

    place = (store.buffer, store.indices)
    return Reducer(name, combine, (identity(store.buffer.dtype),), (place,), (update,), True)


def _without_lets(e: PrimExpr, lets: dict[Var, PrimExpr]) -> PrimExpr:
    for v in reversed(list(lets)):
        e = substitute(e, {v: lets[v]})
    return e


def _several(stores: list[BufferStore]) -> Reducer | None:
    """Reductions side by side, none of which reads what another keeps."""
    parts = [_single(s) for s in stores]
    reducers = [p for p in parts if p is not None]
    memory = {s.buffer.data for s in stores}
    if len(reducers) != len(stores) or len(memory) != len(stores):
        return None
    if any(_reads(p.updates[0], s.buffer) for p in reducers for s in stores):
        return None

    def combine(old: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        return tuple(p.combine((o,), (n,))[0] for p, o, n in zip(reducers, old, new))

    return Reducer(
        " and ".join(p.name for p in reducers),
        combine,
        tuple(p.identity[0] for p in reducers),
        tuple(p.buffers[0] for p in reducers),
        tuple(p.updates[0] for p in reducers),
        True,
    )


def _ordered_pair(first: BufferStore, second: BufferStore) -> Reducer | None:
    """argmax or argmin that takes the least index of equal values, in whatever order they come:

    value = Select(old > new, old, new)
    index = Select(old > new or (old == new and old index < new index), old index, new index)
    """
    for index, value in ((first, second), (second, first)):
        a, b = index.value, value.value
        old_index, old_value = (BufferLoad(s.buffer, s.indices) for s in (index, value))
        if not (isinstance(a, Select) and isinstance(b, Select)):
            continue
        beats = b.condition
        if not isinstance(beats, (GT, LT)) or beats.a is not old_value:
            continue
        new_index, new_value = a.false_value, b.false_value
        tie = And(EQ(old_value, new_value), LT(old_index, new_index))
        if (
            a.true_value is not old_index
            or b.true_value is not old_value
            or beats.b is not new_value
            or a.condition is not Or(beats, tie)
            or any(_reads(e, s.buffer) for e in (new_index, new_value) for s in (first, second))
        ):
            continue
        greater = type(beats) is GT
        return _lexicographic(index, value, new_index, new_value, greater, index is first)
    return None


def _lexicographic(
    index: BufferStore,
    value: BufferStore,
    new_index: PrimExpr,
    new_value: PrimExpr,
    greater: bool,
    index_first: bool,
) -> Reducer:
    def in_order(i: Any, v: Any) -> tuple[Any, Any]:
        return (i, v) if index_first else (v, i)

    def combine(old: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        (i, v), (j, w) = in_order(*old), in_order(*new)
        beats = GT(v, w) if greater else LT(v, w)
        keeps = Or(beats, And(EQ(v, w), LT(i, j)))
        return in_order(Select(keeps, i, j), Select(beats, v, w))

    dtype = value.buffer.dtype
    worst = _lowest(dtype) if greater else _highest(dtype)
    return Reducer(
        "argmax" if greater else "argmin",
        combine,
        in_order(max_value(index.buffer.dtype), worst),
        in_order((index.buffer, index.indices), (value.buffer, value.indices)),
        in_order(new_index, new_value),
        True,
    )


def _pair(first: BufferStore, second: BufferStore) -> Reducer | None:
    """``index, value = Select(old < new, ...)``: argmax or argmin."""
    a, b = first.value, second.value
    if not (isinstance(a, Select) and isinstance(b, Select)):
        return None
    for value_store, picked in ((second, b), (first, a)):
        compare = picked.condition
        own = BufferLoad(value_store.buffer, value_store.indices)
        if not isinstance(compare, (LT, LE, GT, GE)):
            continue
        if compare.a is not own and compare.b is not own:
            continue
        reducer = _arg_reducer(first, second, a, b, value_store, compare)
        if reducer is not None:
            return reducer
    return None


def _arg_reducer(
    first: BufferStore, second: BufferStore, a: Select, b: Select, keyed: BufferStore, compare: Any
) -> Reducer | None:
    stores, selects = (first, second), (a, b)
    key = 0 if keyed is first else 1
    own = BufferLoad(keyed.buffer, keyed.indices)
    new_key = compare.b if compare.a is own else compare.a
    updates: list[PrimExpr] = []
    keeps_old: list[bool] = []
    for store, select in zip(stores, selects):
        if select.condition is not a.condition:
            return None
        old = BufferLoad(store.buffer, store.indices)
        if select.true_value is old:
            keeps_old.append(True)
            updates.append(select.false_value)
        elif select.false_value is old:
            keeps_old.append(False)
            updates.append(select.true_value)
        else:
            return None
        if _reads(updates[-1], first.buffer) or _reads(updates[-1], second.buffer):
            return None
    if len(set(keeps_old)) != 1 or updates[key] is not new_key:
        return None
    kind, old_left, keep = type(compare), compare.a is own, keeps_old[0]
    # Which of the two keys wins: "old > new keeps old" and "old < new takes new" look for the
    # greatest.
    greater = (kind in (GT, GE)) == (old_left == keep)
    dtypes = [s.buffer.dtype for s in stores]

    def combine(old: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        condition = kind(old[key], new[key]) if old_left else kind(new[key], old[key])
        return tuple(
            Select(condition, o, n) if keep else Select(condition, n, o) for o, n in zip(old, new)
        )

    worst = _lowest(dtypes[key]) if greater else _highest(dtypes[key])
    identity = [const(0, d) for d in dtypes]
    identity[key] = worst
    places = tuple((s.buffer, s.indices) for s in stores)
    name = "argmax" if greater else "argmin"
    return Reducer(name, combine, tuple(identity), places, tuple(updates), False)
