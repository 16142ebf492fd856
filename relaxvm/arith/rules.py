"""What each class of expression is bounded by, and what it simplifies to, given simplified parts.

A rule gets the analyzer and an expression whose children are simplified; it returns an equal
expression, or None for no change.
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd
from typing import TYPE_CHECKING, Any

from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
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
    Not,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    cast,
    const,
)
from ..ir.expr import INT_MEANING, CompareExpr, fold_int
from ..ir.op import Op
from .bound import POS_INF, ConstIntBound
from .poly import Poly
from .tree import NEGATED, SWAPPED, is_scalar_int

if TYPE_CHECKING:
    from .analyzer import Analyzer

__all__ = ["BOUNDS", "RULES"]

TRUE, FALSE = const(True), const(False)
IF = Op.get("tir.if_then_else")
LIKELY = Op.get("tir.likely")
BOUND_CHECK = Op.get("tir.bound_check")
AND_BITS = Op.get("tir.bitwise_and")
SHIFT_RIGHT = Op.get("tir.shift_right")
TRUNCDIV = Op.get("tir.truncdiv")
TRUNCMOD = Op.get("tir.truncmod")

# -- bounds by class -------------------------------------------------------------------------------


def _bound_binary(method: str) -> Callable[[Analyzer, Any], ConstIntBound]:
    def rule(self: Analyzer, e: Any) -> ConstIntBound:
        found: ConstIntBound = getattr(self._bound_of(e.a), method)(self._bound_of(e.b))
        return found

    return rule


def _bound_add(self: Analyzer, e: Add) -> ConstIntBound:
    return self._bound_of(e.a).add(self._bound_of(e.b))


def _bound_sub(self: Analyzer, e: Sub) -> ConstIntBound:
    return self._bound_of(e.a).add(self._bound_of(e.b).scale(-1))


def _bound_cast(self: Analyzer, e: Cast) -> ConstIntBound:
    whole = ConstIntBound.of_dtype(e.dtype)
    if e.value.dtype.is_int or e.value.dtype.is_bool:
        inner = self._bound_of(e.value)
        return inner if inner.within(whole) or self.wrap is False else whole
    return whole


def _bound_select(self: Analyzer, e: Select) -> ConstIntBound:
    return self._bound_of(e.true_value).union(self._bound_of(e.false_value))


def _bound_call(self: Analyzer, e: Call) -> ConstIntBound:
    whole = ConstIntBound.of_dtype(e.dtype)
    if e.op is IF:
        return self._bound_of(e.args[1]).union(self._bound_of(e.args[2]))
    if e.op is LIKELY:
        return self._bound_of(e.args[0])
    if e.op is BOUND_CHECK:
        return ConstIntBound(0, max(self._bound_of(e.args[1]).max_value - 1, 0))
    if e.op is AND_BITS:
        tops = [b.max_value for b in map(self._bound_of, e.args) if b.min_value >= 0]
        return ConstIntBound(0, min(tops)) if tops else whole
    if (
        e.op is SHIFT_RIGHT
        and isinstance(e.args[1], IntImm)
        and 0 <= e.args[1].value < e.dtype.bits
    ):
        low, high = self._bound_of(e.args[0])
        return ConstIntBound(low >> e.args[1].value, high >> e.args[1].value)
    if e.op in (TRUNCDIV, TRUNCMOD):
        a, b = map(self._bound_of, e.args)
        return a.truncdiv(b) if e.op is TRUNCDIV else a.truncmod(b)
    return whole


def _bound_lane(self: Analyzer, e: Broadcast) -> ConstIntBound:
    return self._bound_of(e.value)


def _bound_ramp(self: Analyzer, e: Ramp) -> ConstIntBound:
    last = self._bound_of(e.stride).scale(e.lanes - 1)
    return self._bound_of(e.base).add(last.union(ConstIntBound(0, 0)))


BOUNDS: dict[type, Callable[[Analyzer, Any], ConstIntBound]] = {
    Add: _bound_add,
    Sub: _bound_sub,
    Mul: _bound_binary("mul"),
    FloorDiv: _bound_binary("floordiv"),
    FloorMod: _bound_binary("floormod"),
    Div: _bound_binary("truncdiv"),
    Mod: _bound_binary("truncmod"),
    Min: _bound_binary("lesser"),
    Max: _bound_binary("greater"),
    Cast: _bound_cast,
    Select: _bound_select,
    Call: _bound_call,
    Broadcast: _bound_lane,
    Ramp: _bound_ramp,
}

# -- rules by class --------------------------------------------------------------------------------


def _fold(e: Any) -> PrimExpr | None:
    if isinstance(e.a, IntImm) and isinstance(e.b, IntImm) and type(e) in INT_MEANING:
        return fold_int(type(e), e.a, e.b)
    return None


def _rule_floordiv(self: Analyzer, e: FloorDiv) -> PrimExpr | None:
    if not is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    a = self._poly(e.a)
    if isinstance(e.b, IntImm):
        c = e.b.value
        if c == 0:
            return const(0, e.dtype)
        if c == 1:
            return e.a
        if c < 0:
            return None
        bound = self._bound_of(e.a)
        if bound.min_value // c == bound.max_value // c and abs(bound.min_value) < POS_INF:
            return const(bound.min_value // c, e.dtype)
        if isinstance(e.a, FloorDiv) and isinstance(e.a.b, IntImm) and e.a.b.value > 0:
            whole = e.a.b.value * c
            if whole <= int(e.dtype.max_value):
                return _again(self, FloorDiv(e.a.a, const(whole, e.dtype)))
            return None
        if isinstance(e.a, FloorMod) and isinstance(e.a.b, IntImm) and e.a.b.value > 0:
            # (x % (c * k)) // c == (x // c) % k
            if e.a.b.value % c == 0:
                inner = _again(self, FloorDiv(e.a.a, e.b))
                return _again(self, FloorMod(inner, const(e.a.b.value // c, e.dtype)))
        return _divide(self, e, a, c)
    # A symbolic divisor that divides every term.
    return _divide_symbolic(self, e, a)


def _divide(self: Analyzer, e: FloorDiv, a: Poly, c: int) -> PrimExpr | None:
    if not self._exact(a, e):
        return None
    q, r = a.split(c)
    bound = self._poly_bound(r)
    if abs(bound.min_value) < POS_INF and bound.min_value // c == bound.max_value // c:
        return self._from_poly(q + Poly.constant(bound.min_value // c), e)
    g = c
    for monomial, coefficient in r.terms.items():
        if monomial:
            g = gcd(g, coefficient)
    if g > 1:
        # (g*y + k) // (g*d) == (y + k // g) // d
        y, _ = r.split(g)
        if not self._exact(y, e):
            return None
        reduced = FloorDiv(self._from_poly(y, e), const(c // g, e.dtype))
        return self._from_poly(q + self._poly(_again(self, reduced)), e)
    # The rest alone may wrap where the whole does not: 4 - x of an unsigned x.
    if q.terms and self._exact(r, e):
        made = FloorDiv(self._from_poly(r, e), e.b)
        return self._from_poly(q + self._poly(_again(self, made)), e)
    return None


def _divide_symbolic(self: Analyzer, e: FloorDiv, a: Poly) -> PrimExpr | None:
    if isinstance(e.b, (Add, Sub)) or not self._exact(a, e):
        return None
    divisor = self._poly(e.b)
    if len(divisor.terms) != 1:
        return None
    ((factors, scale),) = divisor.terms.items()
    if self._bound_of(e.b).min_value <= 0 or scale <= 0:
        return None
    q, r = {}, {}
    for monomial, c in a.terms.items():
        rest = _remove(monomial, factors)
        if rest is not None and c % scale == 0:
            q[rest] = c // scale
        else:
            r[monomial] = c
    if not q:
        return None
    rest_poly = Poly(r)
    if r:
        if self._upper(rest_poly.scale(-1)) > 0 or self._upper(rest_poly - divisor) >= 0:
            return None
    return self._from_poly(Poly(q), e)


def _remove(monomial: tuple[PrimExpr, ...], factors: tuple[PrimExpr, ...]) -> Any:
    rest = list(monomial)
    for f in factors:
        for i, g in enumerate(rest):
            if g is f:
                del rest[i]
                break
        else:
            return None
    return tuple(rest)


def _rule_floormod(self: Analyzer, e: FloorMod) -> PrimExpr | None:
    if not is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if e.a is e.b:
        return const(0, e.dtype)
    a = self._poly(e.a)
    if not isinstance(e.b, IntImm):
        quotient = _divide_symbolic(self, FloorDiv(e.a, e.b), a)
        if quotient is None:
            bound_b = self._bound_of(e.b)
            if bound_b.min_value > 0 and self._exact(a, e):
                if self._upper(a.scale(-1)) <= 0 and self._upper(a - self._poly(e.b)) < 0:
                    return e.a
            return None
        return self.simplify(Sub(e.a, Mul(quotient, e.b)))
    c = e.b.value
    if c in (0, 1, -1):
        return const(0, e.dtype)
    if c < 0:
        return None
    bound = self._bound_of(e.a)
    if 0 <= bound.min_value and bound.max_value < c:
        return e.a
    if isinstance(e.a, FloorMod) and isinstance(e.a.b, IntImm) and e.a.b.value > 0:
        if e.a.b.value % c == 0:
            return _again(self, FloorMod(e.a.a, e.b))
    if not self._exact(a, e):
        return None
    reduced = Poly({m: k % c for m, k in a.terms.items() if k % c})
    signed = Poly({m: k if k * 2 <= c else k - c for m, k in reduced.terms.items()})
    for candidate in (a.split(c)[1], reduced, signed):
        rest = self._poly_bound(candidate)
        if 0 <= rest.min_value and rest.max_value < c:
            return self._from_poly(candidate, e)
        if abs(rest.min_value) < POS_INF and rest.min_value // c == rest.max_value // c:
            shift = rest.min_value // c * c
            return self._from_poly(candidate - Poly.constant(shift), e)
    g = c
    for _monomial, k in reduced.terms.items():
        g = gcd(g, k)
    if g > 1:
        # (g*y) % (g*d) == g * (y % d)
        parts = Poly({m: k // g for m, k in reduced.terms.items()})
        if not self._exact(parts, e):
            return None
        inner = FloorMod(self._from_poly(parts, e), const(c // g, e.dtype))
        return self._from_poly(self._poly(_again(self, inner)).scale(g), e)
    if reduced.terms != a.terms and self._exact(reduced, e):
        return FloorMod(self._from_poly(reduced, e), e.b)
    return None


def _again(self: Analyzer, e: PrimExpr) -> PrimExpr:
    """Simplify an expression whose children are simplified."""
    found = self._memo.get(id(e))
    if found is None:
        rule = RULES.get(type(e))
        changed = rule(self, e) if rule is not None else None
        found = self._memo[id(e)] = (e, e if changed is None else changed)
    return found[1]


def _rule_trunc(self: Analyzer, e: Any) -> PrimExpr | None:
    if not is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if self._bound_of(e.a).min_value >= 0 and self._bound_of(e.b).min_value >= 0:
        made = FloorDiv(e.a, e.b) if isinstance(e, Div) else FloorMod(e.a, e.b)
        return _again(self, made)
    return None


def _rule_extremum(self: Analyzer, e: Any) -> PrimExpr | None:
    if not is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if e.a is e.b:
        return e.a
    is_min = isinstance(e, Min)
    left, right = _dividends(e.a, e.b)
    if self._prove_comparison(LE(left, right)):
        return e.a if is_min else e.b
    if self._prove_comparison(LE(right, left)):
        return e.b if is_min else e.a
    for x, y in ((e.a, e.b), (e.b, e.a)):
        if isinstance(x, type(e)):
            if x.a is y or x.b is y:
                return x
            if isinstance(y, IntImm) and isinstance(x.b, IntImm):
                return type(e)(x.a, fold_int(type(e), x.b, y))
    if isinstance(e.a, IntImm) or (
        not isinstance(e.b, IntImm) and self._order(e.b) < self._order(e.a)
    ):
        return type(e)(e.b, e.a)
    return None


def _dividends(a: PrimExpr, b: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """What is divided, if both are quotients by the same positive number: those are in the same
    order or equal.
    """
    while (
        isinstance(a, (FloorDiv, Div))
        and isinstance(b, type(a))
        and isinstance(a.b, IntImm)
        and a.b is b.b
        and a.b.value > 0
    ):
        a, b = a.a, b.a
    return a, b


def _rule_compare(self: Analyzer, e: Any) -> PrimExpr | None:
    if e.a.dtype.lanes != 1 or not (e.a.dtype.is_int or e.a.dtype.is_bool):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if e.a is e.b:
        return const(isinstance(e, (EQ, LE, GE)))
    if e.a.dtype.is_bool:
        return None
    if self._prove_comparison(e):
        return TRUE
    if self._prove_comparison(NEGATED[type(e)](e.a, e.b)):
        return FALSE
    a, b = self._poly(e.a), self._poly(e.b)
    difference = a - b
    if isinstance(e, (EQ, NE)):
        reduced = difference.wrapped(e.a.dtype)
        if reduced.is_const:
            return const((reduced.const == 0) == isinstance(e, EQ))
    if isinstance(e.a, IntImm) and not isinstance(e.b, IntImm):
        return SWAPPED[type(e)](e.b, e.a)
    if self._exact(a, e.a) and self._exact(b, e.b):
        return _cancel(self, e, difference)
    return None


def _cancel(self: Analyzer, e: Any, difference: Poly) -> PrimExpr | None:
    """Move terms of a comparison so that common ones vanish and a common factor is divided out."""
    left = Poly({m: c for m, c in difference.terms.items() if m and c > 0})
    right = Poly({m: -c for m, c in difference.terms.items() if m and c < 0})
    constant = -difference.const
    kind = type(e)
    g = 0
    for m, c in difference.terms.items():
        if m:
            g = gcd(g, c)
    if g > 1 and constant % g != 0:
        if kind is EQ:
            return FALSE
        if kind is NE:
            return TRUE
    if g > 1:
        left = Poly({m: c // g for m, c in left.terms.items()})
        right = Poly({m: c // g for m, c in right.terms.items()})
        # left - right OP constant / g: round so that integers decide the same
        if kind in (LT, GE):
            constant = -(-constant // g)
        else:
            constant = constant // g
    if left.terms:
        right = right + Poly.constant(constant)
    else:
        left, right, kind = right, Poly.constant(-constant), SWAPPED[kind]
    like = e.a
    if not (self._exact(left, like) and self._exact(right, like)):
        return None
    made = kind(self._from_poly(left, like), self._from_poly(right, like))
    return made if made is not e else None


def _rule_and(self: Analyzer, e: And) -> PrimExpr | None:
    if isinstance(e.a, IntImm):
        return e.b if e.a.value else e.a
    if isinstance(e.b, IntImm):
        return e.a if e.b.value else e.b
    if e.a is e.b:
        return e.a
    if _are_opposite(e.a, e.b):
        return FALSE
    return None


def _rule_or(self: Analyzer, e: Or) -> PrimExpr | None:
    if isinstance(e.a, IntImm):
        return e.a if e.a.value else e.b
    if isinstance(e.b, IntImm):
        return e.b if e.b.value else e.a
    if e.a is e.b:
        return e.a
    if _are_opposite(e.a, e.b):
        return TRUE
    return None


def _are_opposite(a: PrimExpr, b: PrimExpr) -> bool:
    if a.dtype.lanes != 1:
        return False
    if (isinstance(a, Not) and a.a is b) or (isinstance(b, Not) and b.a is a):
        return True
    return (
        isinstance(a, CompareExpr)
        and isinstance(b, CompareExpr)
        and NEGATED[type(a)] is type(b)
        and a.a.dtype.is_int
        and a.a is b.a
        and a.b is b.b
    )


def _rule_not(self: Analyzer, e: Not) -> PrimExpr | None:
    inner = e.a
    if isinstance(inner, IntImm):
        return const(not inner.value)
    if isinstance(inner, Not):
        return inner.a
    if isinstance(inner, CompareExpr) and (inner.a.dtype.is_int or isinstance(inner, (EQ, NE))):
        return _again(self, NEGATED[type(inner)](inner.a, inner.b))
    return None


def _rule_select(self: Analyzer, e: Select) -> PrimExpr | None:
    if isinstance(e.condition, IntImm):
        return e.true_value if e.condition.value else e.false_value
    return e.true_value if e.true_value is e.false_value else None


def _rule_call(self: Analyzer, e: Call) -> PrimExpr | None:
    if e.op is IF:
        condition, yes, no = e.args
        if isinstance(condition, IntImm):
            return yes if condition.value else no
        return yes if yes is no else None
    if e.op is LIKELY and isinstance(e.args[0], IntImm):
        return e.args[0]
    if e.op in (TRUNCDIV, TRUNCMOD) and is_scalar_int(e):
        x, y = e.args
        made: Any = Div(x, y) if e.op is TRUNCDIV else Mod(x, y)
        return _rule_trunc(self, made)
    return None


def _rule_cast(self: Analyzer, e: Cast) -> PrimExpr | None:
    folded = cast(e.dtype, e.value)
    if not isinstance(folded, Cast):
        return folded
    inner = e.value
    if isinstance(inner, Cast) and inner.value.dtype is e.dtype and e.dtype.is_int:
        # There and back through a type that holds every value it can have.
        if inner.dtype.is_int and self._bound_of(inner.value).within(
            ConstIntBound.of_dtype(inner.dtype)
        ):
            return inner.value
    return None


def _rule_vector(self: Analyzer, e: Any) -> PrimExpr | None:
    """Arithmetic of ramps and broadcasts is done on their scalars."""
    if e.dtype.lanes == 1:
        return None
    a, b, lanes = e.a, e.b, e.dtype.lanes
    if isinstance(a, Broadcast) and isinstance(b, Broadcast):
        return Broadcast(self.simplify(type(e)(a.value, b.value)), lanes)
    if not e.dtype.is_int:
        return None
    if isinstance(e, Mul):
        if isinstance(a, Broadcast):
            a, b = b, a
        if isinstance(a, Ramp) and isinstance(b, Broadcast):
            return Ramp(self.simplify(a.base * b.value), self.simplify(a.stride * b.value), lanes)
        return None
    if (
        isinstance(e, (Add, Sub))
        and isinstance(a, (Ramp, Broadcast))
        and isinstance(b, (Ramp, Broadcast))
    ):
        base_a, step_a = _ramp_parts(a)
        base_b, step_b = _ramp_parts(b)
        base = self.simplify(type(e)(base_a, base_b))
        step = self.simplify(type(e)(step_a, step_b))
        if isinstance(step, IntImm) and step.value == 0:
            return Broadcast(base, lanes)
        return Ramp(base, step, lanes)
    return None


def _ramp_parts(e: Any) -> tuple[PrimExpr, PrimExpr]:
    if isinstance(e, Ramp):
        return e.base, e.stride
    return e.value, const(0, e.value.dtype)


RULES: dict[type, Callable[[Analyzer, Any], PrimExpr | None]] = {
    Add: _rule_vector,
    Sub: _rule_vector,
    Mul: _rule_vector,
    FloorDiv: _rule_floordiv,
    FloorMod: _rule_floormod,
    Div: _rule_trunc,
    Mod: _rule_trunc,
    Min: _rule_extremum,
    Max: _rule_extremum,
    EQ: _rule_compare,
    NE: _rule_compare,
    LT: _rule_compare,
    LE: _rule_compare,
    GT: _rule_compare,
    GE: _rule_compare,
    And: _rule_and,
    Or: _rule_or,
    Not: _rule_not,
    Select: _rule_select,
    Call: _rule_call,
    Cast: _rule_cast,
}
