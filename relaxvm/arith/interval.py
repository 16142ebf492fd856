"""Intervals whose ends are expressions: the values of an index while loops run.

`interval_of` gives them as pairs, in which None is an end that is not known; `IntSet` is TVM's
class for them, whose unknown ends are the two variables `neg_inf()` and `pos_inf()`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ..base import dtype as as_dtype
from ..ir import (
    INTRINSICS,
    Add,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    PrimExpr,
    Ramp,
    Range,
    Select,
    StringImm,
    Sub,
    Var,
    as_expr,
    binary,
    cast,
    const,
    match,
    substitute,
    walk,
)
from ..ir.walk import transform
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

Interval = tuple[PrimExpr, PrimExpr]
"""(least, greatest), both included."""

Domains = Mapping[Any, Interval | None]
"""The values of variables; None: unknown. A variable that is not there is a fixed number outside.
"""

_Ends = tuple[PrimExpr | None, PrimExpr | None]
"""An interval of which an end may not be known."""

_UNKNOWN: _Ends = (None, None)


def interval_of(expr: PrimExpr, known: Domains, analyzer: Analyzer) -> Interval | None:
    """Bounds of the integer (or vector of integers) `expr`, or None where one is not known. A value
    that is read from memory is not.

    The bounds are reached for sums of distinct variables with constant factors; else they may be
    wider than need be.
    """
    if type(expr) is IntImm:
        return expr, expr
    low, high = Ends(analyzer).of(expr, known)
    return None if low is None or high is None else (low, high)


def range_of(
    first: PrimExpr, extent: PrimExpr, known: Domains, analyzer: Analyzer
) -> tuple[PrimExpr, PrimExpr] | None:
    """`interval_of` the variable of a loop over ``first .. first + extent``."""
    if type(first) is type(extent) is IntImm and extent.value > 0:
        return first, binary(Add, first, IntImm(extent.dtype, extent.value - 1))
    low = interval_of(first, known, analyzer)
    high = interval_of(first + extent - 1, known, analyzer)
    return None if low is None or high is None else (low[0], high[1])


def int_set(known: Analyzer, expr: Any, domains: Mapping[Var, IntSet] | None) -> IntervalSet:
    """What covers `expr` while the variables in `domains` take all values of their sets. Without
    `domains`: while the variables that `known` has a range for do.
    """
    expr = as_expr(expr)
    moving: dict[Var, _Ends] = {
        v: (cast(v.dtype, low), cast(v.dtype, high)) for v, (low, high) in known._ranges.items()
    }
    if domains is not None:
        moving = {v: ends_of(s) for v, s in domains.items()}
    ends = Ends(known, known.simplify, reads=True)
    low, high = ends.of(expr, moving)
    # Ends may mention variables whose sets mention others.
    changing = {v for v, (a, b) in moving.items() if a is None or a is not b}
    for _ in changing:
        if not any(n in changing for e in (low, high) if e is not None for n in walk(e)):
            break
        low = low if low is None else ends.of(low, moving)[0]
        high = high if high is None else ends.of(high, moving)[1]
    return set_of((low, high))


def set_of(interval: _Ends) -> IntervalSet:
    """An interval as TVM's class."""
    low, high = interval
    return IntervalSet(_NEG_INF if low is None else low, _POS_INF if high is None else high)


def ends_of(s: IntSet) -> _Ends:
    """The reverse of `set_of`."""
    low, high = s.min_value, s.max_value
    return low if is_finite(low) else None, high if is_finite(high) else None


class Ends:
    """_Ends arithmetic on ends that are expressions.

    simple  what is done to each end that is computed
    reads   whether what is read from memory at a fixed place counts as fixed
    """

    def __init__(
        self,
        known: Analyzer,
        simple: Callable[[PrimExpr], PrimExpr] = lambda e: e,
        reads: bool = False,
    ) -> None:
        self.known, self.simple, self.reads = known, simple, reads
        self._wraps = False

    def of(self, expr: PrimExpr, known: Mapping[Any, _Ends | None]) -> _Ends:
        """The interval of an expression, from those of variables."""
        done: dict[int, _Ends] = {}
        order = scalar_post_order(expr, done)
        if Let in map(type, order):
            expr = transform(expr, _inlined)
            order = scalar_post_order(expr, done)
        for n in order:
            done[id(n)] = self._one(n, known, done)
        return done[id(expr)]

    def _one(self, n: Any, known: Mapping[Any, _Ends | None], done: dict[int, _Ends]) -> _Ends:
        if isinstance(n, Var):
            return known.get(n, (n, n)) or _UNKNOWN
        if type(n) is IntImm:
            return n, n
        parts = list(map(done.__getitem__, map(id, n._operands_)))
        if n.dtype.lanes == 1 and self._is_steady(n):
            if all(map(operator.is_, n._operands_, map(_FIRST, parts))):
                return n, n
        if not n.dtype.is_int:
            return _UNKNOWN
        rule = _RULES.get(n.op if type(n) is Call else type(n))
        if rule is None:
            return _UNKNOWN
        self._wraps = False
        ends = rule(self, n, *parts)
        return _UNKNOWN if self._wraps else ends

    def _end(self, kind: Any, a: PrimExpr | None, b: PrimExpr | None) -> PrimExpr | None:
        """The operation on two ends. Where its constant does not fit its dtype, nothing is known of
        what may wrap.
        """
        if a is None or b is None:
            return None
        if isinstance(a, IntImm) and isinstance(b, IntImm) and a.dtype is b.dtype:
            value = _EXACT[kind](a.value, b.value)
            self._wraps |= not a.dtype.min_value <= value <= a.dtype.max_value
        return self.simple(binary(kind, a, b))

    def _is_steady(self, n: Any) -> bool:
        """Whether a node is worth the same whenever its operands are."""
        if type(n) is Call and not self.reads:
            return getattr(n.op, "effect", "") == "pure"
        return self.reads or isinstance(n, _STEADY)

    def sign(self, e: PrimExpr) -> int:
        """1 for e >= 0, -1 for e <= 0, 0 if that is not known."""
        if type(e) is IntImm:
            return 1 if e.value >= 0 else -1
        if self.known.can_prove(e >= 0):
            return 1
        return -1 if self.known.can_prove(e <= 0) else 0

    def extreme(self, kind: Any, a: PrimExpr, b: PrimExpr) -> PrimExpr:
        """The lesser (`kind` Min) or the greater of two ends, decided if it can be proved."""
        small, large = (a, b) if kind is Min else (b, a)
        if a is b or self.known.can_prove(small <= large):
            return a
        return b if self.known.can_prove(large <= small) else self.simple(binary(kind, a, b))

    def union(self, a: _Ends, b: _Ends) -> _Ends:
        """The least interval around both."""
        (p, q), (r, s) = a, b
        return (
            None if p is None or r is None else self.extreme(Min, p, r),
            None if q is None or s is None else self.extreme(Max, q, s),
        )

    def add(self, e: Any, a: _Ends, b: _Ends) -> _Ends:
        return self._end(Add, a[0], b[0]), self._end(Add, a[1], b[1])

    def sub(self, e: Any, a: _Ends, b: _Ends) -> _Ends:
        return self._end(Sub, a[0], b[1]), self._end(Sub, a[1], b[0])

    def product(self, e: Any, a: _Ends, b: _Ends) -> _Ends:
        if a[0] is a[1]:
            a, b = b, a
        factor = b[0]
        if factor is not None and factor is b[1]:
            if isinstance(factor, IntImm) and factor.value == 0:
                return b
            return self._monotone(a, self.sign(factor), lambda x: self._end(Mul, x, factor))
        corners = [self._end(Mul, x, y) for x in a for y in b]
        interval = corners[0], corners[0]
        for c in corners[1:]:
            interval = self.union(interval, (c, c))
        return interval

    def _monotone(self, a: _Ends, sign: int, f: Callable[[Any], PrimExpr | None]) -> _Ends:
        """f of an interval, rising if the sign is positive and falling if it is negative."""
        if not sign:
            return _UNKNOWN
        low, high = a if sign > 0 else a[::-1]
        return None if low is None else f(low), None if high is None else f(high)

    def _sign_of_divisor(self, by: PrimExpr) -> int:
        """The sign of what is not 0; 0 if that is not known."""
        return self.sign(by) if self.known.never_zero(by) else int(self.known.can_prove(by > 0))

    def quotient(self, e: Any, a: _Ends, b: _Ends) -> _Ends:
        by = b[0]
        if by is None or by is not b[1]:
            return _UNKNOWN

        def divided(x: PrimExpr) -> PrimExpr | None:
            if type(e) is Call:
                return self.simple(Call(e.dtype, e.op, match(x, by)))
            return self._end(type(e), x, by)

        return self._monotone(a, self._sign_of_divisor(by), divided)

    def remainder(self, e: Any, a: _Ends, b: _Ends) -> _Ends:
        by = b[0]
        if by is None or by is not b[1] or self._sign_of_divisor(by) <= 0:
            return _UNKNOWN
        floor = type(e) is FloorMod
        if floor and a[0] is not None and a[1] is not None:
            if self.known.can_prove_equal(a[0] // by, a[1] // by):
                return self.simple(a[0] % by), self.simple(a[1] % by)
        zero, top = const(0, by.dtype), self.simple(by - 1)
        positive = floor or (a[0] is not None and self.sign(a[0]) > 0)
        return (zero if positive else self.simple(zero - top)), top

    def extremum(self, e: Any, a: _Ends, b: _Ends) -> _Ends:
        kind = type(e)

        def end(x: PrimExpr | None, y: PrimExpr | None, either: bool) -> PrimExpr | None:
            if x is None or y is None:
                # min(x, y) is at most either of them, max(x, y) at least.
                return (y if x is None else x) if either else None
            return self.extreme(kind, x, y)

        return end(a[0], b[0], kind is Max), end(a[1], b[1], kind is Min)

    def choice(self, e: Any, condition: _Ends, yes: _Ends, no: _Ends) -> _Ends:
        return self.union(yes, no)

    def cast(self, e: Cast, a: _Ends) -> _Ends:
        if not e.value.dtype.is_int:
            return _UNKNOWN
        to = e.dtype.element
        for end in a:
            if isinstance(end, IntImm):
                self._wraps |= not to.min_value <= end.value <= to.max_value
        return None if a[0] is None else cast(to, a[0]), None if a[1] is None else cast(to, a[1])

    def lanes(self, e: Ramp, first: _Ends, step: _Ends) -> _Ends:
        if step[0] is None or step[0] is not step[1]:
            return _UNKNOWN
        last = self._end(Mul, step[0], const(e.lanes - 1, step[0].dtype))
        zero = const(0, step[0].dtype)
        return self.add(e, first, self.union((zero, zero), (last, last)))


def _inlined(n: Any) -> Any:
    return substitute(n.body, {n.var: n.value}) if type(n) is Let else None


_FIRST = operator.itemgetter(0)
_EXACT: dict[Any, Callable[[int, int], int]] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    FloorDiv: lambda a, b: a // b,
    Div: lambda a, b: a // b if (a < 0) == (b < 0) else -(-a // b),
}
_STEADY = (BinaryExpr, Cast, Select, Not, FloatImm, StringImm)
_RULES: dict[Any, Callable[..., _Ends]] = {
    Add: Ends.add,
    Sub: Ends.sub,
    Mul: Ends.product,
    FloorDiv: Ends.quotient,
    Div: Ends.quotient,
    INTRINSICS["truncdiv"]: Ends.quotient,
    FloorMod: Ends.remainder,
    Mod: Ends.remainder,
    INTRINSICS["truncmod"]: Ends.remainder,
    Min: Ends.extremum,
    Max: Ends.extremum,
    Select: Ends.choice,
    INTRINSICS["if_then_else"]: Ends.choice,
    Cast: Ends.cast,
    Broadcast: lambda ends, e, a: a,
    Ramp: Ends.lanes,
}
