"""Small facts about expression trees that the analyzer and its rules share."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ..ir import EQ, GE, GT, LE, LT, NE, Add, And, Let, PrimExpr, Sub

# a OP b is not (a NEGATED[OP] b), and is (b SWAPPED[OP] a)
NEGATED: dict[type, type] = {EQ: NE, NE: EQ, LT: GE, GE: LT, LE: GT, GT: LE}
SWAPPED: dict[type, type] = {EQ: EQ, NE: NE, LT: GT, GT: LT, LE: GE, GE: LE}


def is_scalar_int(e: PrimExpr) -> bool:
    """Whether `e` is one integer (not a bool, not a vector)."""
    return e.dtype.is_int and e.dtype.lanes == 1


def summands(e: PrimExpr) -> Iterator[tuple[PrimExpr, int]]:
    """The leaves of a tree of Add and Sub, with their signs, left to right."""
    stack = [(e, 1)]
    while stack:
        n, sign = stack.pop()
        if isinstance(n, Add):
            stack.append((n.b, sign))
            stack.append((n.a, sign))
        elif isinstance(n, Sub):
            stack.append((n.b, -sign))
            stack.append((n.a, sign))
        else:
            yield n, sign


def parts_of(e: PrimExpr) -> list[PrimExpr]:
    """What must be simplified before `e`: its children, or the leaves of the sum that it is."""
    if isinstance(e, (Add, Sub)) and is_scalar_int(e):
        return [leaf for leaf, _ in summands(e)]
    if isinstance(e, Let):
        return [e.value, e.body]  # where a variable is bound it stays a variable
    return [c for c in e._children_() if isinstance(c, PrimExpr)]


def scalar_post_order(root: PrimExpr, done: dict[int, Any]) -> Iterator[PrimExpr]:
    stack: list[tuple[PrimExpr, bool]] = [(root, False)]
    while stack:
        n, ready = stack.pop()
        if id(n) in done:
            continue
        if ready:
            yield n
            continue
        below = [(c, False) for c in n._children_() if isinstance(c, PrimExpr)]
        if below:
            stack.append((n, True))
            stack.extend(below)
        else:
            yield n


def conjuncts(e: PrimExpr, joined: type = And) -> list[PrimExpr]:
    """The conditions that `e` joins by And (or by Or), each once."""
    out: list[PrimExpr] = []
    stack = [e]
    seen: set[int] = set()
    while stack:
        n = stack.pop()
        if id(n) in seen:
            continue
        seen.add(id(n))
        if isinstance(n, joined):
            stack.extend((n.b, n.a))  # type: ignore[attr-defined]
        else:
            out.append(n)
    return out
