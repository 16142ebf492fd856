"""Polynomials with integer coefficients over expressions: the canonical form of sums and products.

The ring operations hold modulo two to any width, so that collecting terms is right for wrapping
integers too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import gcd
from typing import Any

from ..base import DataType
from ..ir import Add, IntImm, Mul, PrimExpr, Sub

Monomial = tuple[PrimExpr, ...]  # factors in canonical order; () is the constant term
_MAX_TERMS = 256
_MAX_DEGREE = 8


class Poly:
    """A sum of monomials with nonzero coefficients. Treated as immutable once built."""

    __slots__ = ("terms",)

    def __init__(self, terms: dict[Monomial, int] | None = None) -> None:
        self.terms: dict[Monomial, int] = terms if terms is not None else {}

    @staticmethod
    def constant(value: int) -> Poly:
        return Poly({(): value}) if value else Poly()

    @staticmethod
    def atom(expr: PrimExpr) -> Poly:
        return Poly({(expr,): 1})

    @property
    def const(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def is_const(self) -> bool:
        return not self.terms or (len(self.terms) == 1 and () in self.terms)

    def add_to(self, into: dict[Monomial, int], factor: int = 1) -> None:
        """Add `factor` times this to a dictionary of terms."""
        for monomial, coefficient in self.terms.items():
            total = into.get(monomial, 0) + coefficient * factor
            if total:
                into[monomial] = total
            else:
                into.pop(monomial, None)

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        other.add_to(terms)
        return Poly(terms)

    def __sub__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        other.add_to(terms, -1)
        return Poly(terms)

    def scale(self, factor: int) -> Poly:
        return Poly({m: c * factor for m, c in self.terms.items()}) if factor else Poly()

    @property
    def content(self) -> int:
        """The greatest common divisor of all coefficients but the constant; 0 if there are none."""
        return gcd(*(c for m, c in self.terms.items() if m))

    def over(self, divisor: int) -> Poly:
        """Divided by what divides all coefficients but the constant, which is rounded down."""
        return Poly({m: q for m, c in self.terms.items() if (q := c // divisor)})

    def over_up(self, divisor: int) -> Poly:
        """The same with the constant rounded up."""
        return self.scale(-1).over(divisor).scale(-1)

    def sides(self) -> tuple[Poly, Poly]:
        """(a, b) without constants and negative coefficients: this is a - b and the constant."""
        left = {m: c for m, c in self.terms.items() if m and c > 0}
        return Poly(left), Poly({m: -c for m, c in self.terms.items() if m and c < 0})

    def times(self, other: Poly, order: Callable[[PrimExpr], Any]) -> Poly | None:
        """The product, or None if it would be too large to be worth expanding."""
        if len(self.terms) * len(other.terms) > _MAX_TERMS:
            return None
        terms: dict[Monomial, int] = {}
        for m1, c1 in self.terms.items():
            for m2, c2 in other.terms.items():
                if len(m1) + len(m2) > _MAX_DEGREE:
                    return None
                monomial = tuple(sorted(m1 + m2, key=order)) if m1 and m2 else m1 or m2
                total = terms.get(monomial, 0) + c1 * c2
                if total:
                    terms[monomial] = total
                else:
                    terms.pop(monomial, None)
        return Poly(terms)

    def wrapped(self, dtype: DataType) -> Poly:
        """The same polynomial modulo two to the width of `dtype`, with coefficients nearest to
        zero.
        """
        half, modulus = 1 << (dtype.bits - 1), 1 << dtype.bits
        values = self.terms.values()
        if not values or (-half <= min(values) and max(values) < half):
            return self
        terms = {}
        for monomial, c in self.terms.items():
            reduced = (c + half) % modulus - half
            if reduced:
                terms[monomial] = reduced
        return Poly(terms)

    def split(self, divisor: int) -> tuple[Poly, Poly]:
        """(q, r) with self == divisor * q + r; r has only the terms whose coefficients do not
        divide.
        """
        q, r = {}, {}
        for monomial, c in self.terms.items():
            if not monomial or c % divisor == 0:
                if c // divisor:
                    q[monomial] = c // divisor
                if c % divisor:
                    r[monomial] = c % divisor
            else:
                r[monomial] = c
        return Poly(q), Poly(r)


def product(factors: Iterable[PrimExpr]) -> PrimExpr:
    result: PrimExpr | None = None
    for factor in factors:
        result = factor if result is None else Mul(result, factor)
    assert result is not None
    return result


def build(poly: Poly, dtype: DataType, order: Callable[[PrimExpr], Any]) -> PrimExpr:
    """A wrapped polynomial as an expression: terms in canonical order, what is added before what is
    subtracted.
    """
    half = 1 << (dtype.bits - 1)
    wrap = (2 * half).__rmod__ if dtype.kind == "uint" else int
    terms = dict(poly.terms)
    const = terms.pop((), 0)
    result: PrimExpr | None = None
    ordered = list(terms.items())
    if len(ordered) > 1:
        ordered.sort(key=lambda mc: [mc[1] < 0, *map(order, mc[0])])
    for m, c in ordered:
        if c < 0 and result is None:
            result, const = IntImm(dtype, wrap(const)), 0
        # The most negative coefficient has no positive counterpart.
        size = -c if -half < c < 0 else c
        term = m[0] if len(m) == 1 else product(m)
        if size != 1:
            term = Mul(term, IntImm(dtype, wrap(size)))
        result = term if result is None else (Add if size == c else Sub)(result, term)
    if result is None:
        return IntImm(dtype, wrap(const))
    if -half < const < 0:
        return Sub(result, IntImm(dtype, wrap(-const)))
    return Add(result, IntImm(dtype, wrap(const))) if const else result


def without(monomial: Monomial, factors: Monomial) -> Monomial | None:
    """The monomial divided by some factors, or None."""
    rest = list(monomial)
    for f in factors:
        for i, g in enumerate(rest):
            if g is f:
                del rest[i]
                break
        else:
            return None
    return tuple(rest)
