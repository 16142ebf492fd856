"""Intervals whose ends are expressions.

An end that is not known is one of the two variables `neg_inf()` and `pos_inf()`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..base import dtype as as_dtype
from ..ir import (
    Add,
    Broadcast,
    Call,
    Cast,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Op,
    PrimExpr,
    Ramp,
    Range,
    Select,
    Sub,
    Var,
    as_expr,
    cast,
    const,
    match,
    walk,
)
from .tree import scalar_post_order

if TYPE_CHECKING:
    from .analyzer import Analyzer


_NEG_INF, _POS_INF = (Var(name, as_dtype("handle")) for name in ("neg_inf", "pos_inf"))


def neg_inf() -> Var:
    """The end of an interval without a least value."""
    return _NEG_INF


def pos_inf() -> Var:
    """The end of an interval without a greatest value."""
    return _POS_INF


class IntSet:
    """A set of integers: an `IntervalSet`. Made by `single_point`, `vector` or `interval`."""

    __slots__ = ("max_value", "min_value")
    min_value: PrimExpr
    max_value: PrimExpr

    @staticmethod
    def single_point(point: Any) -> IntervalSet:
        """The set of one value."""
        return IntervalSet(point, point)

    @staticmethod
    def interval(min_value: Any, max_value: Any) -> IntervalSet:
        """All values from `min_value` to `max_value`, both included."""
        return IntervalSet(min_value, max_value)

    @staticmethod
    def from_range(r: Range) -> IntervalSet:
        """The values of a range."""
        return IntervalSet(r.min, r.min + r.extent - 1)

    @staticmethod
    def everything() -> IntervalSet:
        """All integers."""
        return IntervalSet(_NEG_INF, _POS_INF)

    @staticmethod
    def nothing() -> IntervalSet:
        """No integer."""
        return IntervalSet(_POS_INF, _NEG_INF)

    @staticmethod
    def vector(vec: Any) -> IntervalSet:
        """What covers the lanes of a vector."""
        vec = as_expr(vec)
        if not isinstance(vec, Ramp):
            return IntSet.single_point(vec.value if isinstance(vec, Broadcast) else vec)
        first, last = vec.base, vec.base + vec.stride * (vec.lanes - 1)
        if isinstance(vec.stride, IntImm):
            return IntervalSet(*((first, last) if vec.stride.value >= 0 else (last, first)))
        return IntervalSet(Min(first, last), Max(first, last))

    def is_nothing(self) -> bool:
        """Whether the set is certainly empty."""
        a, b = self.min_value, self.max_value
        if a is _POS_INF or b is _NEG_INF:
            return True
        return isinstance(a, IntImm) and isinstance(b, IntImm) and a.value > b.value

    def is_everything(self) -> bool:
        """Whether the set is all integers."""
        return self.min_value is _NEG_INF and self.max_value is _POS_INF

    def is_single_point(self) -> bool:
        """Whether the set is certainly one value."""
        return self.min_value is self.max_value


class IntervalSet(IntSet):
    """The integers from `min_value` to `max_value`, both included."""

    __slots__ = ()

    def __init__(self, min_value: Any, max_value: Any) -> None:
        low, high = as_expr(min_value), as_expr(max_value)
        if is_finite(low) and is_finite(high):
            low, high = match(low, high)
        self.min_value, self.max_value = low, high

    def __repr__(self) -> str:
        return f"IntervalSet[{self.min_value}, {self.max_value}]"


def is_finite(e: PrimExpr) -> bool:
    """Whether an end is known."""
    return e is not _NEG_INF and e is not _POS_INF


# -- the set of an expression ----------------------------------------------------------------------


def int_set(known: Analyzer, expr: Any, domains: Mapping[Var, IntSet] | None) -> IntervalSet:
    """What covers `expr` while the variables in `domains` take all values of their sets. Without
    `domains`: while the variables that `known` has a range for do.
    """
    expr = as_expr(expr)
    if domains is None:
        domains = {v: IntervalSet(*ends) for v, ends in known._ranges.items()}
    sets: dict[int, tuple[PrimExpr, IntervalSet]] = {}
    ops = Ends(known)
    for e in scalar_post_order(expr, sets):
        sets[id(e)] = (e, ops.of(e, lambda c: sets[id(c)][1], domains))
    interval = sets[id(expr)][1]
    # Ends may mention variables whose sets mention others.
    moving = [v for v in domains if not domains[v].is_single_point()]
    for _ in range(len(moving)):
        if not any(n in moving for n in _variables(interval)):
            break
        low, high = interval.min_value, interval.max_value
        narrower = IntervalSet(
            low if low is _NEG_INF else int_set(known, low, domains).min_value,
            high if high is _POS_INF else int_set(known, high, domains).max_value,
        )
        interval = narrower
    return interval


def _variables(s: IntSet) -> set[Any]:
    return {n for e in (s.min_value, s.max_value) for n in walk(e) if isinstance(n, Var)}


class Ends:
    """Interval arithmetic on ends that are expressions."""

    def __init__(self, known: Analyzer) -> None:
        self.known = known

    def of(
        self, e: Any, of: Callable[[Any], IntervalSet], domains: Mapping[Var, IntSet]
    ) -> IntervalSet:
        if isinstance(e, Var):
            domain = domains.get(e)
            return (
                IntSet.single_point(e)
                if domain is None
                else IntervalSet(domain.min_value, domain.max_value)
            )
        parts = [c for c in e._children_() if isinstance(c, PrimExpr)]
        if isinstance(e, (Ramp, Broadcast)):
            return self._vector(e, of)
        if all(of(c).is_single_point() and of(c).min_value is c for c in parts):
            return IntSet.single_point(e)
        rule = _SETS.get(e.op if isinstance(e, Call) else type(e))
        return IntSet.everything() if rule is None else rule(self, e, of)

    def simple(self, e: PrimExpr) -> PrimExpr:
        return self.known.simplify(e)

    def sign(self, e: PrimExpr) -> int:
        """1 for e >= 0, -1 for e <= 0, 0 if that is not known."""
        if not is_finite(e):
            return 1 if e is _POS_INF else -1
        if self.known.can_prove(e >= 0):
            return 1
        return -1 if self.known.can_prove(e <= 0) else 0

    def extreme(self, kind: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The lesser (`kind` Min) or greater of two ends."""
        out, far = (_NEG_INF, _POS_INF) if kind is Min else (_POS_INF, _NEG_INF)
        if a is out or b is out:
            return out
        if a is far or b is far:
            return b if a is far else a
        a, b = match(a, b)
        return self.simple(kind(a, b))

    def union(self, a: IntSet, b: IntSet) -> IntervalSet:
        if a.is_nothing() or b.is_nothing():
            kept = b if a.is_nothing() else a
            return IntervalSet(kept.min_value, kept.max_value)
        return IntervalSet(
            self.extreme(Min, a.min_value, b.min_value), self.extreme(Max, a.max_value, b.max_value)
        )

    def _vector(self, e: Any, of: Callable[[Any], IntervalSet]) -> IntervalSet:
        if isinstance(e, Broadcast):
            return of(e.value)
        last = self.simple(e.stride * (e.lanes - 1))
        step = IntervalSet(
            self.extreme(Min, last, const(0, last.dtype)),
            self.extreme(Max, last, const(0, last.dtype)),
        )
        return self.add(of(e.base), step)

    def add(self, a: IntSet, b: IntSet) -> IntervalSet:
        def end(x: PrimExpr, y: PrimExpr, out: PrimExpr) -> PrimExpr:
            return self.simple(x + y) if is_finite(x) and is_finite(y) else out

        return IntervalSet(
            end(a.min_value, b.min_value, _NEG_INF), end(a.max_value, b.max_value, _POS_INF)
        )

    def negative(self, a: IntSet) -> IntervalSet:
        def end(x: PrimExpr, out: PrimExpr) -> PrimExpr:
            return self.simple(const(0, x.dtype) - x) if is_finite(x) else out

        return IntervalSet(end(a.max_value, _NEG_INF), end(a.min_value, _POS_INF))

    def sum(self, e: Any, of: Any) -> IntervalSet:
        other = of(e.b)
        return self.add(of(e.a), other if isinstance(e, Add) else self.negative(other))

    def product(self, e: Mul, of: Any) -> IntervalSet:
        a, b = of(e.a), of(e.b)
        if a.is_single_point():
            a, b = b, a
        if not b.is_single_point():
            ends = (a.min_value, a.max_value, b.min_value, b.max_value)
            if not all(map(is_finite, ends)):
                return IntSet.everything()
            corners = [self.simple(x * y) for x in ends[:2] for y in ends[2:]]
            interval = IntSet.single_point(corners[0])
            for c in corners[1:]:
                interval = self.union(interval, IntSet.single_point(c))
            return interval
        return self._monotone(a, b.min_value, lambda x: x * b.min_value)

    def _monotone(self, a: IntSet, factor: PrimExpr, f: Callable[[Any], Any]) -> IntervalSet:
        """f of an interval, rising if the factor is positive and falling if it is negative."""
        sign = self.sign(factor)
        if isinstance(factor, IntImm) and factor.value == 0:
            return IntSet.single_point(factor)
        if not sign:
            return IntSet.everything()
        low, high = (a.min_value, a.max_value) if sign > 0 else (a.max_value, a.min_value)
        return IntervalSet(
            self.simple(f(low)) if is_finite(low) else _NEG_INF,
            self.simple(f(high)) if is_finite(high) else _POS_INF,
        )

    def quotient(self, e: Any, of: Any) -> IntervalSet:
        x, y = e.args if isinstance(e, Call) else (e.a, e.b)
        a, b = of(x), of(y)
        if not b.is_single_point() or not self.known.never_zero(b.min_value):
            return IntSet.everything()
        by = b.min_value
        return self._monotone(
            a, by, lambda v: Call(e.dtype, e.op, (v, by)) if isinstance(e, Call) else type(e)(v, by)
        )

    def remainder(self, e: Any, of: Any) -> IntervalSet:
        x, y = e.args if isinstance(e, Call) else (e.a, e.b)
        a, b = of(x), of(y)
        by, floor = b.min_value, isinstance(e, FloorMod)
        if not b.is_single_point() or self.sign(by) <= 0:
            return IntSet.everything()
        if is_finite(a.min_value) and is_finite(a.max_value) and floor:
            quotients = [self.simple(FloorDiv(v, by)) for v in (a.min_value, a.max_value)]
            if self.known.can_prove_equal(*quotients):
                whole = quotients[0] * by
                return IntervalSet(
                    self.simple(a.min_value - whole), self.simple(a.max_value - whole)
                )
        top = self.simple(by - 1)
        zero = const(0, by.dtype)
        below = zero if floor or self.sign(a.min_value) > 0 else self.simple(zero - top)
        return IntervalSet(below, top)

    def extremum(self, e: Any, of: Any) -> IntervalSet:
        a, b = of(e.a), of(e.b)
        return IntervalSet(
            self.extreme(type(e), a.min_value, b.min_value),
            self.extreme(type(e), a.max_value, b.max_value),
        )

    def choice(self, e: Any, of: Any) -> IntervalSet:
        yes, no = e.args[1:] if isinstance(e, Call) else (e.true_value, e.false_value)
        return self.union(of(yes), of(no))

    def cast(self, e: Cast, of: Any) -> IntervalSet:
        a = of(e.value)
        if not (e.dtype.is_int and e.value.dtype.is_int):
            return IntSet.everything()
        return IntervalSet(
            *(cast(e.dtype, v) if is_finite(v) else v for v in (a.min_value, a.max_value))
        )


_SETS: dict[Any, Callable[[Ends, Any, Any], IntervalSet]] = {
    Add: Ends.sum,
    Sub: Ends.sum,
    Mul: Ends.product,
    FloorDiv: Ends.quotient,
    Div: Ends.quotient,
    Op.get("tir.truncdiv"): Ends.quotient,
    FloorMod: Ends.remainder,
    Mod: Ends.remainder,
    Op.get("tir.truncmod"): Ends.remainder,
    Min: Ends.extremum,
    Max: Ends.extremum,
    Select: Ends.choice,
    Op.get("tir.if_then_else"): Ends.choice,
    Cast: Ends.cast,
}
