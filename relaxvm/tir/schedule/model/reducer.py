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

from collections.abc import Callable, Sequence
from typing import Any

from ....base import DataType, NamedTuple
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
        return _pair(*plain) or _several(plain)
    return _several(plain)


def _reads(e: Any, buffer: Buffer) -> bool:
    return buffer.data in {n.buffer.data for n in nodes_of(e, BufferLoad)}


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


def _pair(*stores: BufferStore) -> Reducer | None:
    """``index, value = Select(old < new, ...)``: argmax or argmin. Of equal values the first
    counts; or that of the least index, in whatever order they come:

    value = Select(old > new, old, new)
    index = Select(old > new or (old == new and old index < new index), old index, new index)
    """
    if not all(isinstance(s.value, Select) for s in stores):
        return None
    return _arg_reducer(stores, 1) or _arg_reducer(stores, 0)


def _arg_reducer(stores: Sequence[BufferStore], key: int) -> Reducer | None:
    """The reduction whose values, not their indices, the store number `key` keeps."""
    selects: list[Any] = [s.value for s in stores]
    olds = [BufferLoad(s.buffer, s.indices) for s in stores]
    compare, keep = selects[key].condition, selects[key].true_value is olds[key]
    if not isinstance(compare, (LT, LE, GT, GE)):
        return None
    kind, old_left = type(compare), compare.a is olds[key]

    def compared(old: PrimExpr, new: PrimExpr) -> PrimExpr:
        return kind(old, new) if old_left else kind(new, old)

    sides = [(s.true_value, s.false_value)[:: 1 if keep else -1] for s in selects]
    updates = tuple(new for _, new in sides)
    if (
        any(kept is not old for (kept, _), old in zip(sides, olds))
        or any(_reads(e, s.buffer) for e in updates for s in stores)
        or compare is not compared(olds[key], updates[key])
    ):
        return None
    index = 1 - key
    ties = selects[index].condition is not compare

    def conditions(old: Sequence[PrimExpr], new: Sequence[PrimExpr]) -> list[PrimExpr]:
        wins = compared(old[key], new[key])
        both: list[PrimExpr] = [wins, wins]
        if ties:
            both[index] = Or(wins, And(EQ(old[key], new[key]), LT(old[index], new[index])))
        return both

    strict = keep and old_left and kind in (LT, GT)
    if ties and not (strict and selects[index].condition is conditions(olds, updates)[index]):
        return None

    def combine(old: tuple[PrimExpr, ...], new: tuple[PrimExpr, ...]) -> tuple[PrimExpr, ...]:
        triples = zip(conditions(old, new), old, new)
        return tuple(Select(c, o, n) if keep else Select(c, n, o) for c, o, n in triples)

    # Which of the two keys wins: "old > new keeps old" and "old < new takes new" look for the
    # greatest.
    greater = (kind in (GT, GE)) == (old_left == keep)
    dtypes = [s.buffer.dtype for s in stores]
    identity = [max_value(d) if ties else const(0, d) for d in dtypes]
    identity[key] = _lowest(dtypes[key]) if greater else _highest(dtypes[key])
    places = tuple((s.buffer, s.indices) for s in stores)
    name = "argmax" if greater else "argmin"
    return Reducer(name, combine, tuple(identity), places, updates, ties)
