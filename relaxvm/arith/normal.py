"""One form for all expressions that are worth the same, as far as that can be: for proofs.

Over mathematical integers everything is a polynomial whose atoms are variables, values of buffers,
quotients and least values:

    x % c           x - c * (x // c)
    (c*q + r) // c  q + r // c, with coefficients of r in 0 .. c - 1, and no common factor with c
    (x // a) // b   x // (a * b)
    max(a, b)       a + b - min(a, b)
    min(a, b)       b + g * min((a - b) / g, 0), the sign of the difference chosen
    select(c, a, b) b + [c] * (a - b), where [c] is 0 or 1, and [a and b] is [a] * [b]

Two expressions are equal if their difference is no term at all. The form is longer than what a
reader wants to see, so that `simplify` does not use it. A step that is right only if nothing
overflows is taken where that is proved (or assumed: see `Analyzer`); elsewhere there is no form.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

from ..base import DataType, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Cast,
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Op,
    Or,
    PrimExpr,
    Select,
    Sub,
    cast,
    const,
    walk,
)
from .bound import POS_INF, ConstIntBound
from .poly import Monomial, Poly, build, without
from .tree import NEGATED, scalar_post_order

if TYPE_CHECKING:
    from .analyzer import Analyzer


_INT64 = as_dtype("int64")
_ZERO, _ONE = const(0, "int64"), const(1, "int64")
_MAX_NODES = 300  # of one expression; beyond it a proof costs more than it is worth
_MAX_TERMS = 64
_MAX_DEPTH = 12  # of quotients within quotients
_MAX_MEMBERS = 6  # of one least value


class NoForm(Exception):
    """Something may overflow, or the expression is too large."""


class Normal:
    """Normal forms, under what one analyzer knows. Forms are remembered until it learns more."""

    def __init__(self, analyzer: Analyzer) -> None:
        self.known = analyzer
        self._forms: dict[int, tuple[PrimExpr, Poly | None]] = {}
        self._signs: dict[int, Any] = {}  # indicator -> (itself, is ==, terms, constant)
        self._depth = 0

    def of(self, expr: PrimExpr) -> Poly | None:
        """The form of a simplified scalar integer or bool expression, or None."""
        forms = self._forms
        entry = forms.get(id(expr))
        if entry is None:
            for count, e in enumerate(scalar_post_order(expr, forms)):
                form = None
                if count < _MAX_NODES and e.dtype.lanes == 1:
                    try:
                        form = self._form(e)
                    except (NoForm, TIRError):  # a constant beyond its dtype is none either
                        form = None
                forms[id(e)] = (e, form)
            entry = forms[id(expr)]
        return entry[1]

    def difference(self, a: PrimExpr, b: PrimExpr) -> Poly | None:
        """The form of a - b over mathematical integers."""
        x, y = self.of(a), self.of(b)
        return None if x is None or y is None else x - y

    # -- one node ----------------------------------------------------------------------------------

    def _form(self, e: PrimExpr) -> Poly | None:
        if isinstance(e, IntImm):
            return Poly.constant(e.value)
        if not (e.dtype.is_int or e.dtype.is_bool):
            return None
        rule = _FORMS.get(type(e))
        if rule is None or (isinstance(e, Call) and e.op not in _CALLS):
            return Poly.atom(e)
        form = rule(self, e)
        if form is None or len(form.terms) > _MAX_TERMS:
            raise NoForm
        return form

    def part(self, e: PrimExpr) -> Poly:
        """The form of an operand, which must be worth the same as the operand."""
        entry = self._forms.get(id(e))
        form = self.of(e) if entry is None else entry[1]
        if form is None:
            raise NoForm
        if e.dtype.is_int and not self.known._exact(form, e):
            raise NoForm
        return form

    def times(self, a: Poly, b: Poly) -> Poly:
        product = a.times(b, self.known._order)
        if product is None:
            raise NoForm
        if all(len(m) < 2 for m in product.terms) or not self._signs:
            return product
        terms: dict[Monomial, int] = {}
        for m, k in product.terms.items():
            both = self._joined(m)
            if both is not None:
                Poly({both: k}).add_to(terms)
        return Poly(terms)

    def _joined(self, m: Monomial) -> Monomial | None:
        """A product with indicators of one sum joined: the stricter counts. None: it is 0."""
        kept: list[PrimExpr] = []
        for f in m:
            if not isinstance(f, Select):
                kept.append(f)
                continue
            joined: Any = f
            for g in [g for g in kept if isinstance(g, Select)]:
                stricter = self._stricter(joined, g)
                if stricter is False:
                    return None
                if stricter is not None:
                    kept = [h for h in kept if h is not g]
                    joined = stricter
            kept.append(joined)
        return tuple(sorted(kept, key=self.known._order))

    def _stricter(self, f: Any, g: Any) -> Any:
        """The one of two indicators that implies the other; False if they exclude each other."""
        if f is g:
            return f
        a, b = self._signs.get(id(f)), self._signs.get(id(g))
        if a is None or b is None or a[2] != b[2]:
            return None
        if a[1] and b[1]:
            return False
        if a[1] or b[1]:
            point, limit = (a, b) if a[1] else (b, a)
            return point[0] if limit[3] <= point[3] else False
        return f if a[3] > b[3] else g

    def write(self, poly: Poly) -> PrimExpr:
        """A polynomial as an expression of int64, whatever its atoms are."""
        terms: dict[Monomial, int] = {}
        for monomial, c in poly.terms.items():
            if abs(c) >= 1 << 62:
                raise NoForm
            terms[tuple(self._wide(f) for f in monomial)] = c
        expr = build(Poly(terms), _INT64, self.known._order)
        if not self.known._exact(poly, expr):
            raise NoForm
        self._forms.setdefault(id(expr), (expr, poly))
        return expr

    def _wide(self, atom: PrimExpr) -> PrimExpr:
        if atom.dtype is _INT64:
            return atom
        if not self.known._bound_of(atom).within(ConstIntBound.of_dtype(_INT64)):
            if atom.dtype.bits >= 64 and self.known.wraps(atom.dtype):
                raise NoForm
        wide = cast("int64", atom)
        self._forms.setdefault(id(wide), (wide, Poly.atom(atom)))
        return wide

    def lead(self, poly: Poly) -> int:
        """The coefficient of the first term that is no constant; 0 if there is none."""
        order = self.known._order
        best: Any = None
        for monomial, c in poly.terms.items():
            if monomial:
                key = (-len(monomial), [order(f) for f in monomial])
                if best is None or key < best[0]:
                    best = (key, c)
        return 0 if best is None else best[1]

    # -- quotients ---------------------------------------------------------------------------------

    def floordiv(self, a: Poly, b: Poly) -> Poly:
        """a // b over mathematical integers, for a b that is not 0."""
        if b.is_const:
            c = b.const
            return self._by_constant(a, c) if c > 0 else self._by_constant(a.scale(-1), -c)
        quotient, rest = self._divide(a, b)
        rest, b = self._cancel(rest, b)
        if not rest.terms:
            return quotient
        if b.is_const:
            return quotient + self.floordiv(rest, b)
        if self.lead(b) < 0:
            rest, b = rest.scale(-1), b.scale(-1)
        known = self.known
        if known._poly_bound(b).min_value > 0:
            below = known._upper(rest - b) < 0
            if below and known._upper(rest.scale(-1)) <= 0:
                return quotient
        return quotient + Poly.atom(FloorDiv(self.write(rest), self.write(b)))

    def _by_constant(self, a: Poly, c: int) -> Poly:
        self._depth += 1
        try:
            if self._depth > _MAX_DEPTH:
                raise NoForm
            return self._by_positive(a, c)
        finally:
            self._depth -= 1

    def _by_positive(self, a: Poly, c: int) -> Poly:
        quotient = Poly()
        while True:
            rest = {m: r for m, k in a.terms.items() if (r := _residue(m, k, c))}
            quotient += Poly({m: q for m, k in a.terms.items() if (q := (k - rest.get(m, 0)) // c)})
            a = Poly(rest)
            if not a.terms:
                return quotient
            whole = self._one_quotient(a, c)
            if whole is not None:
                return quotient + whole
            inner = next((m for m, k in a.terms.items() if k == 1 and _by_const(m)), None)
            if inner is not None:
                # (x // p + s) // c is (x + p*s) // (p*c)
                p = inner[0].b.value  # type: ignore[attr-defined]
                x = self.part(inner[0].a)  # type: ignore[attr-defined]
                a, c = x + (a - Poly.atom(inner[0])).scale(p), c * p
                continue
            shorter = self._without_low(a, c)
            if shorter is None:
                break
            a, c = shorter
        least = next((m for m, k in a.terms.items() if _is_least(m) and abs(k) == 1), None)
        if least is not None:
            # Division keeps the order: the least of the quotients, or the greatest.
            sign = a.terms[least]
            others = a - Poly.atom(least[0]).scale(sign)
            ends = [others + self.part(x).scale(sign) for x in _members(least[0])]
            parts = [self._by_constant(x, c).scale(sign) for x in ends]
            return quotient + self._least(parts).scale(sign)
        if c == 2 and a.const == 1:
            # Rounded up is what is left of the whole.
            a = a - Poly.constant(1)
            return quotient + a - self._by_constant(a, 2)
        return quotient + Poly.atom(FloorDiv(self.write(a), const(c, "int64")))

    def _one_quotient(self, a: Poly, c: int) -> Poly | None:
        """The quotient where all values of `a` have the same one. Coefficients near c count as
        negative ones, in the second try.
        """
        near = Poly({m: k - c if 2 * k > c else k for m, k in a.terms.items()})
        for each in (a, near):
            low, high = self.known._poly_bound(each)
            if abs(low) < POS_INF and low // c == high // c:
                return (a - each).over(c) + Poly.constant(low // c)
        return None

    def _without_low(self, a: Poly, c: int) -> tuple[Poly, int] | None:
        """(g*h + low) // (g*d) is h // d, if 0 <= low < g."""
        divisors = sorted({gcd(k, c) for m, k in a.terms.items() if m} - {1}, reverse=True)
        for g in divisors:
            high = Poly({m: k for m, k in a.terms.items() if not m or k % g == 0}).over(g)
            low = a - high.scale(g)
            bound = self.known._poly_bound(low)
            if 0 <= bound.min_value and bound.max_value < g:
                return high, c // g
        return None

    def _divide(self, a: Poly, b: Poly) -> tuple[Poly, Poly]:
        """(q, r) with a == b * q + r, by the first term of b."""
        order = self.known._order
        first = min(
            (m for m in b.terms if m), key=lambda m: (-len(m), [order(f) for f in m]), default=()
        )
        scale = b.terms[first]
        quotient, rest, left = Poly(), Poly(), a
        for _ in range(_MAX_TERMS):
            step = next(
                (
                    (m, over)
                    for m, k in left.terms.items()
                    if k % scale == 0 and (over := without(m, first)) is not None
                ),
                None,
            )
            if step is None:
                return quotient, left + rest
            m, over = step
            q = Poly({over: left.terms[m] // scale})
            if len(b.terms) > 1 and self._divides_worse(left, b, q):
                rest += Poly({m: left.terms[m]})
                left = left - Poly({m: left.terms[m]})
                continue
            quotient, left = quotient + q, left - self.times(q, b)
        return Poly(), a

    def _divides_worse(self, left: Poly, b: Poly, q: Poly) -> bool:
        return len((left - self.times(q, b)).terms) > len(left.terms)

    def _cancel(self, a: Poly, b: Poly) -> tuple[Poly, Poly]:
        """a and b without their common factor, which is not 0 where b is not."""
        terms = [*a.terms.items(), *b.terms.items()]
        if not a.terms:
            return a, b
        g = 0
        common = list(terms[0][0])
        for m, k in terms:
            g = gcd(g, k)
            common = [f for i, f in enumerate(common) if common[: i + 1].count(f) <= m.count(f)]
        if g == 1 and not common:
            return a, b
        shared = tuple(common)

        def reduced(p: Poly) -> Poly:
            return Poly({without(m, shared) or (): k // g for m, k in p.terms.items()})

        return reduced(a), reduced(b)

    def truncdiv(self, a: Poly, b: Poly) -> Poly:
        """C's a / b over mathematical integers, for a b that is not 0."""
        known, sign = self.known, 1
        a, b = self._cancel(a, b)
        if (self.lead(b) or b.const) < 0:
            b, sign = b.scale(-1), -sign
        quotient, rest = self._divide(a, b)
        if not rest.terms:
            return quotient.scale(sign)
        bound = known._poly_bound(self.folded(a))
        if bound.max_value <= 0 or (bound.min_value < 0 and self.lead(a) < 0):
            a, sign = a.scale(-1), -sign
            bound = bound.scale(-1)
        if known._poly_bound(b).min_value > 0:
            if bound.min_value >= 0:
                return self.floordiv(a, b).scale(sign)
            if b.is_const and max(-bound.min_value, bound.max_value) < b.const:
                return Poly()
        remainder = self._remainder(a, b.const) if b.is_const else None
        if remainder is not None:
            # The dividend and its remainder have one sign, so that the parts divide alone.
            x, by, whole = remainder
            inner = Poly.constant(by)
            if whole == 0:
                return self.truncdiv(x, inner).scale(sign)
            k, parts = Poly.constant(whole), self.truncdiv(x, inner)
            if whole % by == 0:
                return (parts - self.truncdiv(x, k).scale(whole // by)).scale(sign)
            a, b = x - self.truncdiv(x, k).scale(whole), inner
        return Poly.atom(Div(self.write(a), self.write(b))).scale(sign)

    def _remainder(self, a: Poly, c: int) -> tuple[Poly, int, int] | None:
        """(x, p * c, m) if `a` is x / p, or C's remainder of x by m divided by p; m is 0, or no
        remainder.
        """
        divs = [(m[0], k) for m, k in a.terms.items() if len(m) == 1 and isinstance(m[0], Div)]
        for div, k in divs:
            if not _constant(div.b):
                continue
            x, p = self.part(div.a), div.b.value  # type: ignore[attr-defined]
            if k == 1 and len(a.terms) == 1:
                return x, p * c, 0
            if k == -p and p % c == 0 and not (a + Poly.atom(div).scale(p) - x).terms:
                return x, c, p
            for whole, factor in divs if k == 1 and len(a.terms) == 2 else ():
                m = whole.b.value if _constant(whole.b) else 0  # type: ignore[attr-defined]
                if whole.a is div.a and m and factor * p == -m:
                    return x, p * c, m
        return None

    # -- least values ------------------------------------------------------------------------------

    def _least(self, members: list[Poly]) -> Poly:
        """The least of some polynomials."""
        flat: list[Poly] = []
        work = list(members)
        while work:
            p = work.pop()
            nested = next((m for m, k in p.terms.items() if k == 1 and _is_least(m)), None)
            if nested is None:
                flat.append(p)
                continue
            rest = p - Poly.atom(nested[0])
            work += [rest + self.part(x) for x in _members(nested[0])]
        kept = self._undominated(flat)
        if len(kept) > _MAX_MEMBERS:
            raise NoForm
        if len(kept) == 1:
            return kept[0]
        if len(kept) == 2:
            return self._lesser(*kept)
        base, others = min(
            ((p, self._sorted([q - p for q in kept if q is not p])) for p in kept),
            key=lambda choice: [self._key(q) for q in choice[1]],
        )
        result: PrimExpr = _ZERO
        for q in others:
            result = Min(self.write(q), result)
        return base + Poly.atom(result)

    def _undominated(self, members: list[Poly]) -> list[Poly]:
        kept: list[Poly] = []
        for p in members:
            bounds = [self.known._poly_bound(p - q) for q in kept]
            if any(b.min_value >= 0 for b in bounds):
                continue
            kept = [q for q, b in zip(kept, bounds) if b.max_value > 0]
            kept.append(p)
        return kept

    def _lesser(self, a: Poly, b: Poly) -> Poly:
        difference = a - b
        g = gcd(*difference.terms.values())
        difference = difference.over(g)
        if self.lead(difference) > 0:
            return b + Poly.atom(Min(self.write(difference), _ZERO)).scale(g)
        other = difference.scale(-1)  # min(-d, 0) is min(d, 0) - d
        return b + (Poly.atom(Min(self.write(other), _ZERO)) - other).scale(g)

    def _key(self, p: Poly) -> list[Any]:
        order = self.known._order
        return sorted(([order(f) for f in m], k) for m, k in p.terms.items())

    def _sorted(self, polys: list[Poly]) -> list[Poly]:
        return sorted(polys, key=self._key)

    # -- reading back ------------------------------------------------------------------------------

    def shorter(self, expr: PrimExpr) -> PrimExpr:
        """`expr` read back from its form, if that has fewer operations; else itself. Right where
        nothing overflows.
        """
        if not isinstance(expr, _READ_BACK) or expr.dtype.lanes != 1:
            return expr
        form = self.of(expr)
        if form is None:
            return expr
        try:
            readback = (
                self._condition(form, expr) if expr.dtype.is_bool else self.read(form, expr.dtype)
            )
        except (NoForm, TIRError):
            return expr
        return readback if _operations(readback) < _operations(expr) else expr

    def read(self, poly: Poly, dtype: DataType) -> PrimExpr:
        """A form as a short expression of `dtype`."""
        poly = self.folded(poly)
        least = next((m for m, k in poly.terms.items() if _is_least(m)), None)
        if least is not None:
            return self._read_least(poly, least, dtype)
        factor = self._common_factor(poly)
        if factor is not None:
            inner = {without(m, (factor,)): k for m, k in poly.terms.items() if _has(m, factor)}
            rest = {m: k for m, k in poly.terms.items() if not _has(m, factor)}
            product = self._atom(factor, dtype) * self.read(Poly(inner), dtype)  # type: ignore[arg-type]
            if not rest:
                return product
            left = self.read(Poly(rest), dtype)
            return left + product if isinstance(left, IntImm) else product + left
        g = gcd(*poly.terms.values())
        if g > 1 and len(poly.terms) > 1:
            return self.read(poly.over(g), dtype) * const(g, dtype)
        terms: dict[Monomial, int] = {}
        for m, k in poly.terms.items():
            terms[tuple(self._atom(f, dtype) for f in m)] = k
        return build(Poly(terms), dtype, self.known._order)

    def _common_factor(self, poly: Poly) -> PrimExpr | None:
        """What is worth writing once: a factor of several terms, one of them a product."""
        counts: dict[int, list[Any]] = {}
        for m in poly.terms:
            for f in {id(f): f for f in m}.values():
                entry = counts.setdefault(id(f), [0, False, f])
                entry[0] += 1
                entry[1] |= len(m) > 1
        shared = [e for e in counts.values() if e[0] > 1 and e[1]]
        return max(shared, key=lambda e: e[0])[2] if shared else None

    def _read_least(self, poly: Poly, least: Monomial, dtype: DataType) -> PrimExpr:
        """Terms move inside the least value where they cancel there."""
        k = poly.terms[least]
        scale = abs(k)
        kind: Any = Min if k > 0 else Max
        members = [self.part(x).scale(k // scale) for x in _members(least[0])]
        outside = poly - Poly.atom(least[0]).scale(k)
        for m, c in list(outside.terms.items()):
            if c % scale == 0 and any(x.terms.get(m, 0) * c < 0 for x in members):
                moved = Poly({m: c})
                outside = outside - moved
                members = [x + Poly({m: c // scale}) for x in members]
        result = self.read(members[0], dtype)
        for x in members[1:]:
            result = kind(result, self.read(x, dtype))
        if scale > 1:
            result = result * const(scale, dtype)
        if not outside.terms:
            return result
        rest = self.read(outside, dtype)
        return rest - result if k < 0 and kind is Min else result + rest

    def _atom(self, f: Any, dtype: DataType) -> PrimExpr:
        if isinstance(f, (FloorDiv, FloorMod, Div, Mod)):
            a, b = self.read(self.part(f.a), dtype), self.read(self.part(f.b), dtype)
            return type(f)(a, b)
        if isinstance(f, Min):
            return self.read(Poly.atom(f), dtype)
        if isinstance(f, Select):
            raise NoForm
        if isinstance(f, Cast) and f.dtype is _INT64 and f.value.dtype.is_int:
            f = f.value  # widened here
        return cast(dtype, f)

    def _condition(self, form: Poly, like: Any) -> PrimExpr:
        """An indicator, or 1 less an indicator, as a comparison."""
        if form.is_const:
            return const(bool(form.const))
        (monomial, *more) = (m for m in form.terms if m)
        sign = self._signs.get(id(monomial[0]))
        if more or len(monomial) > 1 or sign is None or not isinstance(like, CompareExpr):
            raise NoForm
        atom, equal, _, _ = sign
        d = self.folded(self.part(atom.condition.a))
        holds = form.const == 0
        left, right = d.sides()
        kind: Any = (EQ if holds else NE) if equal else (LE if holds else LT)
        limit = Poly.constant(-d.const)
        if left.terms and (right.terms or d.const <= 0 or not right.terms):
            right = right + limit
        else:
            left, right = left - limit, right
        dtype = like.a.dtype
        a, b = self.read(left, dtype), self.read(right, dtype)
        return kind(a, b) if holds or equal else kind(b, a)

    # -- conditions --------------------------------------------------------------------------------

    def indicator(self, c: PrimExpr) -> Poly:
        """1 where the condition holds, else 0."""
        if isinstance(c, IntImm):
            return Poly.constant(c.value)
        if isinstance(c, Not):
            return Poly.constant(1) - self.part(c.a)
        if isinstance(c, And):
            return self.times(self.part(c.a), self.part(c.b))
        if isinstance(c, Or):
            a, b = self.part(c.a), self.part(c.b)
            return a + b - self.times(a, b)
        if isinstance(c, (NE, GE, GT)) and c.a.dtype.is_int and c.a.dtype.lanes == 1:
            return Poly.constant(1) - self.indicator(NEGATED[type(c)](c.a, c.b))
        if isinstance(c, (EQ, LE, LT)) and c.a.dtype.is_int and c.a.dtype.lanes == 1:
            return self._sign(c)
        return Poly.atom(Select(c, _ONE, _ZERO))

    def _sign(self, c: Any) -> Poly:
        """The indicator of d == 0 or d <= 0, without common factors, in one of two directions."""
        d = self.part(c.a) - self.part(c.b)
        return (
            self._is_zero(d)
            if isinstance(c, EQ)
            else self._at_most(d + Poly.constant(1) if isinstance(c, LT) else d)
        )

    def _is_zero(self, d: Poly) -> Poly:
        low, high = self.known._poly_bound(self.folded(d))
        if low > 0 or high < 0:
            return Poly()
        if low == 0:
            return self._at_most(d)
        if high == 0:
            return self._at_most(d.scale(-1))
        g = d.content
        if d.const % g:
            return Poly()
        d = d.over(g)
        if len(d.terms) == 1:
            ((factors, _),) = d.terms.items()
            if len(factors) > 1:
                return self._any([self._is_zero(Poly.atom(f)) for f in factors])
        if any(map(_is_least, d.terms)):
            return self.times(self._at_most(d), self._at_most(d.scale(-1)))
        for m, k in d.terms.items():
            if abs(k) == 1 and _by_const(m):
                # x // c == r is c*r <= x <= c*r + c - 1
                f, by = m[0], m[0].b.value  # type: ignore[attr-defined]
                rest = (d - Poly.atom(f).scale(k)).scale(-k * by)
                over = self.part(f.a) - rest  # type: ignore[attr-defined]
                upper = self._at_most(over - Poly.constant(by - 1))
                return upper - self._at_most(over + Poly.constant(1))
        return self._signed(EQ, d if self.lead(d) > 0 else d.scale(-1))

    def _at_most(self, d: Poly) -> Poly:
        """The indicator of d <= 0."""
        low, high = self.known._poly_bound(self.folded(d))
        if high <= 0 or low > 0:
            return Poly.constant(int(high <= 0))
        g = d.content
        least = next((m for m in d.terms if _is_least(m)), None)
        if least is not None:
            k = d.terms[least]
            rest = d - Poly.atom(least[0]).scale(k)
            cases = [rest + self.part(x).scale(k) for x in _members(least[0])]
            if k > 0:
                return self._any([self._at_most(x) for x in cases])
            result = Poly.constant(1)
            for x in cases:
                result = self.times(result, self._at_most(x))
            return result
        d = self._without_quotient(self._without_low_part(d.over_up(g)))
        if self.lead(d) > 0:
            return self._signed(LE, d)
        # d <= 0 unless -d <= -1
        return Poly.constant(1) - self._signed(LE, d.scale(-1) + Poly.constant(1))

    def _any(self, indicators: list[Poly]) -> Poly:
        """1 where one of them is 1."""
        none = Poly.constant(1)
        for p in indicators:
            none = self.times(none, Poly.constant(1) - p)
        return Poly.constant(1) - none

    def _signed(self, relation: Any, d: Poly) -> Poly:
        atom = Select(relation(self.write(d), _ZERO), _ONE, _ZERO)
        sums = frozenset((m, k) for m, k in d.terms.items() if m)
        self._signs[id(atom)] = (atom, relation is EQ, sums, d.const)
        return Poly.atom(atom)

    def folded(self, poly: Poly) -> Poly:
        """A form with remainders again, whose bounds are narrower: x - c * (x // c) as x % c."""
        for m, k in list(poly.terms.items()):
            f = m[0] if len(m) == 1 else None
            if not isinstance(f, (FloorDiv, Div)) or not _constant(f.b) or k % f.b.value:  # type: ignore[attr-defined]
                continue
            by = k // f.b.value  # type: ignore[attr-defined]
            shorter = poly - Poly.atom(f).scale(k) + self.part(f.a).scale(by)
            if len(shorter.terms) < len(poly.terms) or len(self.part(f.a).terms) == 1:
                kind = FloorMod if isinstance(f, FloorDiv) else Mod
                if len(shorter.terms) >= len(poly.terms):
                    continue
                poly = shorter - Poly.atom(kind(f.a, f.b)).scale(by)
        return poly

    def _without_low_part(self, d: Poly) -> Poly:
        """g*h + low + k <= 0 is h + k / g <= 0 with the constant rounded, if 0 <= low < g."""
        for g in sorted({abs(k) for m, k in d.terms.items() if m} - {1}, reverse=True):
            high = Poly({m: k for m, k in d.terms.items() if m and k % g == 0})
            low = Poly({m: k for m, k in d.terms.items() if m and k % g})
            if not low.terms:
                continue
            bound = self.known._poly_bound(self.folded(low))
            first, last = bound.min_value + d.const, bound.max_value + d.const
            if abs(first) < POS_INF and -(-first // g) == -(-last // g):
                return high.over(g) + Poly.constant(-(-first // g))
        return d

    def _without_quotient(self, d: Poly) -> Poly:
        """x // c + k <= 0 is x + c*k - c + 1 <= 0; its opposite likewise."""
        while True:
            ((m, k), *more) = ((m, k) for m, k in d.terms.items() if m)
            if more or abs(k) != 1 or len(m) != 1 or not isinstance(m[0], (FloorDiv, Div)):
                return d
            q = m[0]
            if not isinstance(q.b, IntImm) or q.b.value <= 0:
                return d
            c, x, n = q.b.value, self.part(q.a), d.const
            if isinstance(q, Div):
                # C's quotient is -n at most, or n at least: the negative side rounds the other way
                limit = -n if k == 1 else n
                up = (limit >= 0) if k == 1 else (limit > 0)
                if k == 1:
                    d = x - Poly.constant(c * limit + (c - 1 if up else 0))
                else:
                    d = Poly.constant(c * limit - (0 if up else c - 1)) - x
            elif k == 1:
                d = x + Poly.constant(c * n - c + 1)
            else:
                d = Poly.constant(c * n) - x
            if not any(m for m in d.terms):
                return d


# -- by class --------------------------------------------------------------------------------------


def _division(divide: str, cls: Any, remainder: bool) -> Callable[[Normal, Any], Poly]:
    def form(self: Normal, e: Any) -> Poly:
        x, y = e.args if isinstance(e, Call) else (e.a, e.b)
        a, b = self.part(x), self.part(y)
        if not b.terms:
            return b
        if not self.known.never_zero(y):
            return Poly.atom(cls(self.write(a), self.write(b)))
        quotient: Poly = getattr(self, divide)(a, b)
        return a - self.times(b, quotient) if remainder else quotient

    return form


def _form_sum(self: Normal, e: Any) -> Poly:
    # An overflow of the whole is for whoever uses it to judge.
    a, b = self.of(e.a), self.of(e.b)
    if a is None or b is None:
        raise NoForm
    return a + b if isinstance(e, Add) else a - b


def _form_product(self: Normal, e: Mul) -> Poly:
    a, b = self.of(e.a), self.of(e.b)
    if a is None or b is None:
        raise NoForm
    return self.times(a, b)


def _form_min(self: Normal, e: Min) -> Poly:
    return self._least([self.part(e.a), self.part(e.b)])


def _form_max(self: Normal, e: Max) -> Poly:
    a, b = self.part(e.a), self.part(e.b)
    return self._least([a.scale(-1), b.scale(-1)]).scale(-1)


def _form_cast(self: Normal, e: Cast) -> Poly | None:
    value = e.value
    if value.dtype.is_bool and e.dtype.is_int:
        return self.part(value)
    if not value.dtype.is_int:
        return Poly.atom(e)
    form = self.part(value)
    return form if self.known._exact(form, e) else Poly.atom(e)


def _form_choice(self: Normal, e: Any) -> Poly:
    condition, yes, no = (
        e.args if isinstance(e, Call) else (e.condition, e.true_value, e.false_value)
    )
    if not e.dtype.is_int:
        return Poly.atom(e)
    a, b = self.part(yes), self.part(no)
    return b + self.times(self.part(condition), a - b)


def _form_condition(self: Normal, e: PrimExpr) -> Poly:
    return self.indicator(e)


def _form_shift(self: Normal, e: Call) -> Poly:
    a, by = e.args
    if not isinstance(by, IntImm) or not 0 <= by.value < e.dtype.bits:
        return Poly.atom(e)
    power = Poly.constant(1 << by.value)
    if e.op is _SHIFT_LEFT:
        return self.times(self.part(a), power)
    return self.floordiv(self.part(a), power)


def _form_mask(self: Normal, e: Call) -> Poly:
    mask = e.args[1].value + 1 if isinstance(e.args[1], IntImm) else 0
    if mask <= 0 or mask & (mask - 1):
        return Poly.atom(e)
    a, b = self.part(e.args[0]), Poly.constant(mask)
    return a - self.floordiv(a, b).scale(mask)


def _form_call(self: Normal, e: Call) -> Poly | None:
    return _CALLS[e.op](self, e)


_READ_BACK = (Add, Sub, Mul, FloorDiv, FloorMod, Div, Mod, Min, Max, Call, CompareExpr)
_TRUNCDIV = _division("truncdiv", Div, False)
_TRUNCMOD = _division("truncdiv", Mod, True)
_SHIFT_LEFT = Op.get("tir.shift_left")
_CALLS: dict[Any, Callable[[Normal, Any], Poly | None]] = {
    Op.get("tir.if_then_else"): _form_choice,
    Op.get("tir.truncdiv"): _TRUNCDIV,
    Op.get("tir.truncmod"): _TRUNCMOD,
    Op.get("tir.likely"): lambda self, e: self.part(e.args[0]),
    _SHIFT_LEFT: _form_shift,
    Op.get("tir.shift_right"): _form_shift,
    Op.get("tir.bitwise_and"): _form_mask,
}
_FORMS: dict[type, Callable[[Normal, Any], Poly | None]] = {
    Add: _form_sum,
    Sub: _form_sum,
    Mul: _form_product,
    FloorDiv: _division("floordiv", FloorDiv, False),
    FloorMod: _division("floordiv", FloorMod, True),
    Div: _TRUNCDIV,
    Mod: _TRUNCMOD,
    Min: _form_min,
    Max: _form_max,
    Cast: _form_cast,
    Select: _form_choice,
    Call: _form_call,
    **dict.fromkeys((EQ, NE, LT, LE, GT, GE, And, Or, Not), _form_condition),
}


def _has(m: Monomial, factor: PrimExpr) -> bool:
    return any(f is factor for f in m)


def _operations(e: PrimExpr) -> int:
    return sum(bool(n._children_) for n in walk(e))


def _residue(m: Monomial, k: int, c: int) -> int:
    """k modulo c; a least value once subtracted stays so."""
    return -1 if k % c == c - 1 and k < 0 and _is_least(m) else k % c


def _constant(e: PrimExpr) -> bool:
    return isinstance(e, IntImm) and e.value > 0


def _by_const(m: Monomial) -> bool:
    return len(m) == 1 and isinstance(m[0], FloorDiv) and _constant(m[0].b)


def _is_least(m: Monomial) -> bool:
    return len(m) == 1 and isinstance(m[0], Min) and _members(m[0])[-1] is _ZERO


def _members(e: PrimExpr) -> list[PrimExpr]:
    """The operands of a least value as `Normal` writes it."""
    out = []
    while isinstance(e, Min):
        out.append(e.a)
        e = e.b
    return [*out, e]
