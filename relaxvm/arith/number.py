"""Numbers that are Python ints where they are constant, and expressions elsewhere."""

from __future__ import annotations

from typing import Any

from ..ir import Add, Cast, FloorDiv, IntImm, Mul, PrimExpr, Sub, as_expr, binary, cast, const
from .analyzer import Analyzer

Number = int | PrimExpr


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
            if isinstance(x, IntImm):
                wide = y.dtype
            elif isinstance(y, IntImm):
                wide = x.dtype
            x, y = cast(wide, x), cast(wide, y)
        return number_of(self.analyzer.simplify(binary(cls, x, y)))

    def add(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a + b
        return self._make(Add, a, b)

    def sub(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a - b
        return self._make(Sub, a, b)

    def mul(self, a: Number, b: Number) -> Number:
        if isinstance(a, int) and isinstance(b, int):
            return a * b
        return self._make(Mul, a, b)

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
