"""The values an index takes while loops run, as a pair of expressions (least, greatest)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...arith import Analyzer
from ...ir import (
    INTRINSICS,
    Add,
    Broadcast,
    Call,
    Cast,
    FloorDiv,
    FloorMod,
    Let,
    Max,
    Min,
    Mul,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    binary,
    cast,
    const,
    substitute,
)
from ...ir.walk import transform
from ..stmt import BufferLoad
from .scope import operands, post_order_expr

Interval = tuple[PrimExpr, PrimExpr]
"""(least, greatest), both included."""

Known = Mapping[Any, "Interval | None"]
"""The values of variables; None: unknown. A variable that is not there is a fixed number outside.
"""


def interval_of(expr: PrimExpr, known: Known, analyzer: Analyzer) -> Interval | None:
    """Bounds of the integer (or vector of integers) `expr`, or None where nothing is known.

    The bounds are reached for sums of distinct variables with constant factors; else they may be
    wider than need be.
    """
    order = post_order_expr(expr)
    if any(type(n) is Let for n in order):
        order = post_order_expr(transform(expr, _inline))
    done: dict[int, Interval | None] = {}
    fixed: dict[int, bool] = {}
    for n in order:
        fixed[id(n)] = _is_fixed(n, known, fixed)
        if fixed[id(n)] and n.dtype.lanes == 1:
            done[id(n)] = (n, n)
        elif not n.dtype.is_int:
            done[id(n)] = None
        else:
            done[id(n)] = _step(n, known, done, analyzer)
    return done[id(order[-1])]


def _inline(n: Any) -> Any:
    return substitute(n.body, {n.var: n.value}) if type(n) is Let else None


def _is_fixed(n: Any, known: Known, fixed: dict[int, bool]) -> bool:
    if isinstance(n, Var):
        return n not in known
    if type(n) is BufferLoad or (type(n) is Call and getattr(n.op, "effect", "") != "pure"):
        return False
    return _all(n, fixed)


def _all(n: Any, fixed: dict[int, bool]) -> bool:
    return all(fixed[id(c)] for c in operands(n))


def _step(
    n: Any,
    known: Known,
    done: dict[int, Interval | None],
    analyzer: Analyzer,
) -> Interval | None:
    if isinstance(n, Var):
        return known.get(n)
    parts = [done[id(c)] for c in operands(n)]
    kind = type(n)
    if kind in (Select, Call):
        sides = parts[1:]
        if kind is Call and n.op is not INTRINSICS["if_then_else"]:
            return None
        if sides[0] is None or sides[1] is None:
            return None
        (a, b), (c, d) = sides[0], sides[1]
        return least(a, c, analyzer), greatest(b, d, analyzer)
    if any(p is None for p in parts):
        return None
    if kind is Cast and parts[0] is not None:
        if not n.value.dtype.is_int:
            return None
        low, high = parts[0]
        return cast(n.dtype.element, low), cast(n.dtype.element, high)
    if kind is Broadcast:
        return parts[0]
    if kind is Ramp:
        return _ramp(n, parts, analyzer)
    rule = _RULES.get(kind)
    return None if rule is None else rule(parts[0], parts[1], analyzer)


def least(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """The lesser of two bounds, decided if it can be proved."""
    if a is b or analyzer.can_prove(a <= b):
        return a
    return b if analyzer.can_prove(b <= a) else binary(Min, a, b)


def greatest(a: PrimExpr, b: PrimExpr, analyzer: Analyzer) -> PrimExpr:
    """The greater of two bounds, decided if it can be proved."""
    if a is b or analyzer.can_prove(a >= b):
        return a
    return b if analyzer.can_prove(b >= a) else binary(Max, a, b)


def _ramp(n: Any, parts: list[Any], analyzer: Analyzer) -> Interval | None:
    (low, high), (step, step_high) = parts
    if step is not step_high:
        return None
    last = step * const(n.lanes - 1, step.dtype)
    if analyzer.can_prove(step >= 0):
        return low, high + last
    if analyzer.can_prove(step <= 0):
        return low + last, high
    return None


def _mul(a: Interval, b: Interval, analyzer: Analyzer) -> Interval | None:
    if a[0] is a[1]:
        a, b = b, a
    if b[0] is not b[1]:
        return None
    factor = b[0]
    if analyzer.can_prove(factor >= 0):
        return a[0] * factor, a[1] * factor
    if analyzer.can_prove(factor <= 0):
        return a[1] * factor, a[0] * factor
    return None


def _floordiv(a: Interval, b: Interval, analyzer: Analyzer) -> Interval | None:
    if b[0] is not b[1] or not analyzer.can_prove(b[0] > 0):
        return None
    return a[0] // b[0], a[1] // b[0]


def _floormod(a: Interval, b: Interval, analyzer: Analyzer) -> Interval | None:
    if b[0] is not b[1] or not analyzer.can_prove(b[0] > 0):
        return None
    divisor = b[0]
    if analyzer.can_prove_equal(a[0] // divisor, a[1] // divisor):
        return a[0] % divisor, a[1] % divisor
    return const(0, divisor.dtype), divisor - 1


_RULES: dict[type, Any] = {
    Add: lambda a, b, an: (a[0] + b[0], a[1] + b[1]),
    Sub: lambda a, b, an: (a[0] - b[1], a[1] - b[0]),
    Mul: _mul,
    FloorDiv: _floordiv,
    FloorMod: _floormod,
    Min: lambda a, b, an: (least(a[0], b[0], an), least(a[1], b[1], an)),
    Max: lambda a, b, an: (greatest(a[0], b[0], an), greatest(a[1], b[1], an)),
}
