"""Small facts about expression trees that the analyzer and its rules share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import (
    EQ,
    GE,
    GT,
    INT_MEANING,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Mod,
    PrimExpr,
    Sub,
    Var,
    descend,
    wrap_int,
)

# a OP b is not (a NEGATED[OP] b), and is (b SWAPPED[OP] a)
NEGATED: dict[type, type] = {EQ: NE, NE: EQ, LT: GE, GE: LT, LE: GT, GT: LE}
# Leaves of a sum from which on it is asked how many of them there really are.
_MANY = 1000
_DIVISIONS = (Div, Mod, FloorDiv, FloorMod)
SWAPPED: dict[type, type] = {EQ: EQ, NE: NE, LT: GT, GT: LT, LE: GE, GE: LE}


def is_scalar_int(e: PrimExpr) -> bool:
    """Whether `e` is one integer (not a bool, not a vector)."""
    return e.dtype.is_int and e.dtype.lanes == 1


def summands(e: PrimExpr) -> list[tuple[PrimExpr, int]]:
    """The leaves of a tree of Add and Sub, with their signs, left to right. Where most are the same
    (``e = e + e``, many times), they are the two sides of `e`.
    """
    leaves: list[tuple[PrimExpr, int]] = []
    stack = [(e, 1)]
    limit = _MANY
    while stack:
        n, sign = stack.pop()
        if len(leaves) > limit and isinstance(e, (Add, Sub)):
            if limit > 4 * _distinct(e):
                return [(e.a, 1), (e.b, 1 if type(e) is Add else -1)]
            limit *= 2
        if isinstance(n, (Add, Sub)):
            stack.append((n.b, sign if type(n) is Add else -sign))
            stack.append((n.a, sign))
        else:
            leaves.append((n, sign))
    return leaves


def _distinct(e: PrimExpr) -> int:
    """How many nodes a sum has, each counted once."""
    return sum(1 for _ in descend(e, _sides, once=id))


def _sides(e: PrimExpr) -> tuple[PrimExpr, ...]:
    return (e.a, e.b) if isinstance(e, (Add, Sub)) else ()


def parts_of(e: PrimExpr) -> Sequence[PrimExpr]:
    """What must be simplified before `e`: its children, or the leaves of the sum that it is."""
    if isinstance(e, (Add, Sub)) and e.dtype.is_int and e.dtype.lanes == 1:
        return next(zip(*summands(e)))
    if isinstance(e, Let):
        return [e.value, e.body]  # where a variable is bound it stays a variable
    return e._operands_


def scalar_post_order(root: PrimExpr, done: Mapping[int, Any]) -> list[PrimExpr]:
    """The expressions in `root` whose ids are not in `done`, operands first, each once."""
    order: list[PrimExpr] = []
    seen: set[int] = set()
    stack: list[tuple[Any, bool]] = [(root, False)]
    while stack:
        n, ready = stack.pop()
        if ready or id(n) in seen or id(n) in done:
            if ready:
                order.append(n)
            continue
        seen.add(id(n))
        if type(n) is Var or type(n) is IntImm:
            order.append(n)
            continue
        stack.append((n, True))
        for c in n._operands_:
            stack.append((c, False))
    return order


def value_of(root: PrimExpr, values: Mapping[Any, int]) -> int | None:
    """What sums, products, quotients and comparisons of integers are worth where variables have
    these values; None of other expressions, and of a division by 0.
    """
    done: dict[int, int] = {}
    for n in scalar_post_order(root, done):
        if isinstance(n, IntImm):
            done[id(n)] = n.value
        elif isinstance(n, BinaryExpr) and type(n) in INT_MEANING and n.a.dtype.is_int:
            a, b = done[id(n.a)], done[id(n.b)]
            if b == 0 and type(n) in _DIVISIONS:
                return None
            done[id(n)] = wrap_int(INT_MEANING[type(n)](a, b), n.dtype)
        elif n in values:
            done[id(n)] = values[n]
        else:
            return None
    return done[id(root)]


def conjuncts(e: PrimExpr, joined: type[Any] = And) -> list[PrimExpr]:
    """The conditions that `e` joins by And (or by Or), each once."""
    if not isinstance(e, joined):
        return [e]
    start: Any = e
    inside = descend(start, lambda n: (n.a, n.b) if isinstance(n, joined) else (), once=id)
    return [n for n in inside if not isinstance(n, joined)]
