"""Affine facts: how an index moves with a loop, and how parts of an axis lie to each other.

    question                                                 answer
    linear_in(e, v)       e as c * v + rest                  exact, or None
    stride(index, v)      its step with v                    exact, or None
    Numbers.equal, at_most, multiple                         certain, or no
    Numbers.inside(a, b), before(a, b), same(a, b)           certain, or no
    Numbers.hull(a, b)    the least part around two          exact, or None where none is told

Sums over several loops, cut into digits by // and %, are those of `iter_map.IterMapper`; values
as intervals of any expressions, `interval.interval_of`. Numbers are Python ints where they are
constant, and expressions elsewhere.
"""

from __future__ import annotations

from typing import Any

from ..base import DataType
from ..ir import (
    Add,
    Cast,
    FloorDiv,
    IntImm,
    Mul,
    PrimExpr,
    Sub,
    Var,
    as_expr,
    binary,
    cast,
    const,
    walk,
)
from .analyzer import Analyzer
from .tree import scalar_post_order, summands

Number = int | PrimExpr

Span = tuple[PrimExpr, Number]
"""A part of an axis: from the first element on, so many."""


def linear_in(e: PrimExpr, var: Var) -> tuple[int, PrimExpr] | None:
    """(c, rest) with e = c * var + rest, or None. For simplified expressions."""
    factor = 0
    rest: PrimExpr = const(0, e.dtype)
    for n, sign in reversed(summands(e)):
        if not any(v is var for v in walk(n)):
            rest = binary(Add if sign > 0 else Sub, rest, n)
        elif _is_var(n, var):
            factor += sign
        elif isinstance(n, Mul) and _is_var(n.a, var) and isinstance(n.b, IntImm):
            factor += sign * n.b.value
        else:
            return None
    return factor, rest


def _is_var(n: Any, var: Var) -> bool:
    return n is var or (getattr(n, "value", None) is var and n.dtype.bits >= var.dtype.bits)


def stride(index: PrimExpr, var: Var) -> int | None:
    """By how much an index grows when `var` grows by 1; None if that is not a constant. An index
    does not overflow: sums are looked for behind casts too.
    """
    steps: dict[int, int | None] = {}
    for e in scalar_post_order(index, {}):
        step: int | None = int(e is var)
        if type(e) is Var or type(e) is IntImm:
            steps[id(e)] = step
            continue
        below = list(map(steps.__getitem__, map(id, e._operands_)))
        if below.count(0) < len(below):
            step = None if None in below else _STEPS.get(type(e), _no_step)(e, *below)
        steps[id(e)] = step
    return steps[id(index)] if index.dtype.lanes == 1 else None


def _no_step(e: PrimExpr, *below: Any) -> None:
    return None


def _step_of_product(e: Mul, a: int, b: int) -> int | None:
    if isinstance(e.b, IntImm):
        return a * e.b.value
    return b * e.a.value if isinstance(e.a, IntImm) else None


def _step_of_cast(e: Cast, a: int) -> int | None:
    wider = e.dtype.is_int and e.value.dtype.is_int and e.dtype.bits >= e.value.dtype.bits
    return a if wider else None


_STEPS: dict[type, Any] = {
    Add: lambda e, a, b: a + b,
    Sub: lambda e, a, b: a - b,
    Mul: _step_of_product,
    Cast: _step_of_cast,
}


def number_of(e: Any) -> Number:
    """The value of an integer constant; any other expression itself."""
    if isinstance(e, IntImm):
        return e.value
    return e if isinstance(e, (int, PrimExpr)) else as_expr(e)


def as_number(n: Number, dtype: Any) -> PrimExpr:
    """A number as an expression of `dtype`."""
    return const(n, dtype) if isinstance(n, int) else cast(dtype, n)


def factors_of(n: Number) -> list[Number]:
    """The factors of a product, its constant last."""
    factors: list[Number] = []
    constant = 1
    work = [n]
    while work:
        e = number_of(work.pop())
        if isinstance(e, int):
            constant *= e
        elif isinstance(e, Mul):
            work += [e.a, e.b]
        elif isinstance(e, Cast) and e.dtype.is_int:
            work.append(e.value)
        else:
            factors.append(e)
    return [*factors, constant]


def _fits(e: PrimExpr, dtype: DataType) -> bool:
    """Whether `e` is a constant that `dtype` has."""
    return isinstance(e, IntImm) and dtype.min_value <= e.value <= dtype.max_value


class Numbers:
    """Arithmetic and proofs about numbers; constants cost no proof.

    analyzer  what is known about the variables; None: nothing
    """

    def __init__(self, analyzer: Analyzer | None = None) -> None:
        self._analyzer = analyzer

    @property
    def analyzer(self) -> Analyzer:
        """Made when a symbolic number needs it."""
        if self._analyzer is None:
            self._analyzer = Analyzer(wrap=False)
        return self._analyzer

    def _make(self, cls: Any, a: Number, b: Number) -> Number:
        x, y = as_expr(a), as_expr(b)
        if x.dtype is not y.dtype:
            wide = x.dtype if x.dtype.bits >= y.dtype.bits else y.dtype
            if _fits(x, y.dtype):
                wide = y.dtype
            elif _fits(y, x.dtype):
                wide = x.dtype
            x, y = cast(wide, x), cast(wide, y)
        return number_of(self.analyzer.simplify(binary(cls, x, y)))

    def add(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        if type(a) is int and a == 0:
            return b
        return a if type(b) is int and b == 0 else self._make(Add, a, b)

    def sub(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return a if type(b) is int and b == 0 else self._make(Sub, a, b)

    def mul(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        if type(a) is int and a == 1:
            return b
        return a if type(b) is int and b == 1 else self._make(Mul, a, b)

    def floordiv(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a // b if b else 0
        return self._make(FloorDiv, a, b)

    def ceildiv(self, a: Number, b: Number) -> Number:
        """a / b rounded up, for a positive b."""
        return self.floordiv(self.sub(self.add(a, b), 1), b)

    def _pieces(self, extent: Number, size: Number) -> Number:
        exact = self.multiple(extent, size)
        return self.ceildiv(extent, size) if exact is None else exact

    def equal(self, a: Number, b: Number) -> bool:
        if isinstance(a, int) and isinstance(b, int):
            return a == b
        return a is b or self.analyzer.can_prove_equal(a, b)

    def at_most(self, a: Number, b: Number) -> bool:
        """Whether a <= b is certain."""
        if isinstance(a, int) and isinstance(b, int):
            return a <= b
        return self.equal(a, b) or self.analyzer.can_prove(as_expr(a) <= as_expr(b))

    def multiple(self, a: Number, b: Number) -> Number | None:
        """a / b if that is exact for certain."""
        if isinstance(a, int) and isinstance(b, int):
            return a // b if b and a % b == 0 else None
        if self.equal(a, b):
            return 1
        if b == 1:
            return a
        if isinstance(a, int):
            return 0 if a == 0 else None
        return self._without_factors(a, b)

    def inside(self, a: Span, b: Span) -> bool:
        """Whether all of `a` is in `b` for certain."""
        if isinstance(a[1], int) and isinstance(b[1], int) and a[1] > b[1]:
            return False
        first = 0 if a[0] is b[0] else self.sub(number_of(a[0]), number_of(b[0]))
        return self.at_most(0, first) and self.at_most(self.add(first, a[1]), b[1])

    def before(self, a: Span, b: Span) -> bool:
        """Whether all of `a` is before `b` for certain."""
        return self.at_most(self.add(number_of(a[0]), a[1]), number_of(b[0]))

    def same(self, a: Span | None, b: Span | None) -> bool:
        """Whether both are the same for certain."""
        return a is not None and b is not None and a[0] is b[0] and self.equal(a[1], b[1])

    def hull(self, a: Span | None, b: Span | None) -> Span | None:
        """The least part around both; None if it is not known which of them is where."""
        if a is None or b is None:
            return None
        gap = 0 if a[0] is b[0] else self.sub(number_of(b[0]), number_of(a[0]))
        if not isinstance(gap, int):
            return None
        if gap < 0:
            a, b, gap = b, a, -gap
        end = self.add(b[1], gap)
        if self.at_most(a[1], end):
            return a[0], end
        return a if self.at_most(end, a[1]) else None

    def _without_factors(self, a: Number, b: Number) -> Number | None:
        """A product without the factors of another. Where one of these is 0 the loops that run
        over the product are empty, so that nothing depends on the answer.
        """
        left_a, left_b = factors_of(a), factors_of(b)
        number_a, number_b = left_a.pop(), left_b.pop()
        assert isinstance(number_a, int)
        assert isinstance(number_b, int)
        for factor in left_b:
            same = next((f for f in left_a if f is factor), None)
            if same is None:
                return None
            del left_a[next(k for k, f in enumerate(left_a) if f is factor)]
        if number_b == 0 or number_a % number_b:
            return None
        result: Number = number_a // number_b
        for factor in left_a:
            result = self.mul(result, factor)
        return result
