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
    INT_MEANING,
    LE,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    CompareExpr,
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
    Op,
    Or,
    PrimExpr,
    Ramp,
    Select,
    Sub,
    Var,
    cast,
    const,
    first_nodes,
    fold_int,
    substitute,
    wrap_int,
)
from .bound import NEG_INF, POS_INF, ConstIntBound
from .poly import Poly, without
from .tree import NEGATED, SWAPPED, conjuncts, is_scalar_int

if TYPE_CHECKING:
    from .analyzer import Analyzer


TRUE, FALSE = const(True), const(False)
IF = Op.get("tir.if_then_else")
LIKELY = Op.get("tir.likely")
BOUND_CHECK = Op.get("tir.bound_check")
AND_BITS = Op.get("tir.bitwise_and")
_MAX_BRANCH = 40  # nodes in the branches of a choice that are simplified once more
_MAX_SCOPES = 3  # choices within choices whose conditions are used
SHIFT_RIGHT = Op.get("tir.shift_right")
TRUNCDIV = Op.get("tir.truncdiv")
TRUNCMOD = Op.get("tir.truncmod")

# -- bounds by class -------------------------------------------------------------------------------


def _bound_binary(method: str) -> Callable[[Analyzer, Any], ConstIntBound]:
    def rule(self: Analyzer, e: Any) -> ConstIntBound:
        bound: ConstIntBound = getattr(self._bound_of(e.a), method)(self._bound_of(e.b))
        return bound

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


_Rule = Callable[["Analyzer", Any], PrimExpr | None]


def _of_ints(rule: _Rule) -> _Rule:
    """A rule for scalar integers, of an operation on two: vectors are taken apart, constants
    folded.
    """

    def whole(self: Analyzer, e: Any) -> PrimExpr | None:
        if e.a.dtype.lanes != 1:
            return _rule_vector(self, e)
        if not (e.a.dtype.is_int or (e.a.dtype.is_bool and isinstance(e, CompareExpr))):
            return None
        if isinstance(e.a, IntImm) and isinstance(e.b, IntImm) and type(e) in INT_MEANING:
            return fold_int(type(e), e.a, e.b)
        return rule(self, e)

    return whole


@_of_ints
def _rule_floordiv(self: Analyzer, e: FloorDiv) -> PrimExpr | None:
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
    g = gcd(c, r.content)
    if g > 1:
        # (g*y + k) // (g*d) == (y + k // g) // d
        y, _ = r.split(g)
        if not self._exact(y, e):
            return None
        reduced = FloorDiv(self._from_poly(y, e), const(c // g, e.dtype))
        return self._from_poly(q + self._poly(_again(self, reduced)), e)
    # The rest alone may wrap where the whole does not: 4 - x of an unsigned x.
    if q.terms and self._exact(r, e):
        quotient = FloorDiv(self._from_poly(r, e), e.b)
        return self._from_poly(q + self._poly(_again(self, quotient)), e)
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
        rest = without(monomial, factors)
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


@_of_ints
def _rule_floormod(self: Analyzer, e: FloorMod) -> PrimExpr | None:
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
        return self.canonical_simplify(Sub(e.a, Mul(quotient, e.b)))
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
    if self._modular:
        residue = self.modular_set(e.a)
        if residue.coeff % c == 0:
            return const(residue.base % c, e.dtype)
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
    g = gcd(c, *reduced.terms.values())
    if g > 1:
        # (g*y) % (g*d) == g * (y % d)
        parts = reduced.over(g)
        if not self._exact(parts, e):
            return None
        inner = FloorMod(self._from_poly(parts, e), const(c // g, e.dtype))
        return self._from_poly(self._poly(_again(self, inner)).scale(g), e)
    if reduced.terms != a.terms and self._exact(reduced, e):
        return FloorMod(self._from_poly(reduced, e), e.b)
    return None


def _again(self: Analyzer, e: PrimExpr) -> PrimExpr:
    """Simplify an expression whose children are simplified."""
    entry = self._memo.get(id(e))
    if entry is None:
        rule = RULES.get(type(e))
        changed = rule(self, e) if rule is not None else None
        entry = self._memo[id(e)] = (e, e if changed is None else changed)
    return entry[1]


@_of_ints
def _rule_trunc(self: Analyzer, e: Any) -> PrimExpr | None:
    if self._bound_of(e.a).min_value >= 0 and self._bound_of(e.b).min_value >= 0:
        floored = FloorDiv(e.a, e.b) if isinstance(e, Div) else FloorMod(e.a, e.b)
        return _again(self, floored)
    if isinstance(e.b, IntImm) and e.b.value > 0:
        a = self._poly(e.a)
        quotient, rest = a.split(e.b.value)
        if not rest.terms and self._exact(a, e):
            return self._from_poly(quotient, e) if isinstance(e, Div) else const(0, e.dtype)
    return None


@_of_ints
def _rule_extremum(self: Analyzer, e: Any) -> PrimExpr | None:
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


@_of_ints
def _rule_compare(self: Analyzer, e: Any) -> PrimExpr | None:
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
    for x, y, kind in ((e.a, e.b, type(e)), (e.b, e.a, SWAPPED[type(e)])):
        if isinstance(x, (Min, Max)) and kind not in (EQ, NE):
            decided = _compare_members(self, x, y, kind)
            if decided is not None:
                return decided
    if self._exact(a, e.a) and self._exact(b, e.b):
        return _cancel(self, e, difference)
    return None


def _compare_members(self: Analyzer, x: Any, y: PrimExpr, kind: Any) -> PrimExpr | None:
    """min(a, b) < y is a < y or b < y: useful where one of these is decided."""
    any_of = isinstance(x, Min) == (kind in (LT, LE))
    for one, other in ((x.a, x.b), (x.b, x.a)):
        first = self.canonical_simplify(kind(one, y))
        if isinstance(first, IntImm):
            if bool(first.value) == any_of:
                return const(any_of)
            return self.canonical_simplify(kind(other, y))
    return None


def _cancel(self: Analyzer, e: Any, difference: Poly) -> PrimExpr | None:
    """Move terms of a comparison so that common ones vanish and a common factor is divided out."""
    left, right = difference.sides()
    constant = -difference.const
    kind = type(e)
    g = difference.content
    if g > 1 and constant % g != 0:
        if kind is EQ:
            return FALSE
        if kind is NE:
            return TRUE
    if g > 1:
        left, right = left.over(g), right.over(g)
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
    comparison = kind(self._from_poly(left, like), self._from_poly(right, like))
    return comparison if comparison is not e else None


def _rule_logical(self: Analyzer, e: Any) -> PrimExpr | None:
    conjunction = isinstance(e, And)
    if isinstance(e.a, Broadcast) and isinstance(e.b, Broadcast):
        return _rule_vector(self, e)
    for x, y in ((e.a, e.b), (e.b, e.a)):
        value = _truth(x)
        if value is not None:
            return y if value == conjunction else x
    if e.a is e.b:
        return e.a
    if _are_opposite(e.a, e.b):
        return const(not conjunction)
    if e.dtype.lanes != 1 or not isinstance(e.b, CompareExpr) or not e.b.a.dtype.is_int:
        return None
    parts = [e.a] if isinstance(e.a, CompareExpr) else conjuncts(e.a, type(e))
    for part in parts if len(parts) <= 8 else ():
        if isinstance(part, CompareExpr) and part.a.dtype.is_int:
            joined = _pair(self, part, e.b, conjunction)
            if isinstance(joined, IntImm):
                return joined
            if joined is part:
                return e.a
            if joined is not None and e.a is part:
                return joined
    return None


def _truth(e: PrimExpr) -> bool | None:
    if isinstance(e, Broadcast):
        e = e.value
    return bool(e.value) if isinstance(e, IntImm) else None


def _pair(self: Analyzer, x: Any, y: Any, conjunction: bool) -> PrimExpr | None:
    """What two comparisons of the same sum come to: one of them, a constant, or None."""
    if conjunction and isinstance(x.b, IntImm) and isinstance(y.b, IntImm):
        for p, q in ((x, y), (y, x)):
            if isinstance(q.a, FloorMod):
                decided = _digits(self, p, q)
                if decided is not None:
                    return decided
    p, q = (self._poly(c.a) - self._poly(c.b) for c in (x, y))
    sign = next((1 if q.terms.get(m) == c else -1 for m, c in p.terms.items() if m), 0)
    shift = p - q.scale(sign)
    if not sign or not shift.is_const:
        return None
    if not all(self._exact(self._poly(e), e) for e in (x.a, x.b, y.a, y.b)):
        return None
    # Both say in which ranges one sum lies.
    first = _ranges(type(x), p.const)
    second = _ranges(type(y) if sign > 0 else SWAPPED[type(y)], q.const * sign)
    if conjunction:
        both = [(max(a, c), min(b, d)) for a, b in first for c, d in second]
        both = [(a, b) for a, b in both if a <= b]
        if not both:
            return FALSE
        return x if both == first else y if both == second else None
    joined: list[tuple[int, int]] = []
    for low, high in sorted(first + second):
        if joined and low <= joined[-1][1] + 1:
            joined[-1] = (joined[-1][0], max(high, joined[-1][1]))
        else:
            joined.append((low, high))
    if joined == [(NEG_INF, POS_INF)]:
        return TRUE
    return x if joined == first else y if joined == second else None


def _ranges(kind: type, k: int) -> list[tuple[int, int]]:
    """Where a sum s lies if ``s + k`` is in the relation `kind` to 0."""
    ranges: dict[Any, list[tuple[int, int]]] = {
        LT: [(NEG_INF, -k - 1)],
        LE: [(NEG_INF, -k)],
        GT: [(1 - k, POS_INF)],
        GE: [(-k, POS_INF)],
        EQ: [(-k, -k)],
        NE: [(NEG_INF, -k - 1), (1 - k, POS_INF)],
    }
    return ranges[kind]


def _digits(self: Analyzer, x: Any, y: Any) -> PrimExpr | None:
    """Conditions on a quotient or a remainder, used in one another."""
    if not (isinstance(x.b, IntImm) and isinstance(y.b, IntImm) and isinstance(y.a, FloorMod)):
        return None
    u, c = y.a.a, y.a.b
    if not isinstance(c, IntImm) or c.value <= 0 or not self._exact(self._poly(u), u):
        return None
    if isinstance(x, EQ) and isinstance(x.a, FloorDiv) and x.a.a is u and x.a.b is c:
        # u // c == k makes u % c the difference u - c*k.
        shift = c.value * x.b.value + y.b.value
        if not ConstIntBound(shift, shift).within(ConstIntBound.of_dtype(c.dtype)):
            return None
        narrow = type(y)(u, const(shift, c.dtype))
        if isinstance(y, EQ) and 0 <= y.b.value < c.value:
            return narrow
        return And(x, narrow)
    if x.a is u and isinstance(x, (LT, LE)) and isinstance(y, (LT, LE)):
        # The last u below the limit whose remainder is small enough.
        limit = x.b.value - isinstance(x, LT)
        room = y.b.value - isinstance(y, LT)
        last = limit - max(0, limit % c.value - room)
        if last < limit and room >= 0 and last > int(c.dtype.min_value):
            return And(LT(u, const(last + 1, c.dtype)), y)
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
    if isinstance(inner, (And, Or)) and not isinstance(inner.a, (And, Or)):
        return self.canonical_simplify(
            (Or if isinstance(inner, And) else And)(Not(inner.a), Not(inner.b))
        )
    if isinstance(inner, CompareExpr) and (inner.a.dtype.is_int or isinstance(inner, (EQ, NE))):
        return _again(self, NEGATED[type(inner)](inner.a, inner.b))
    return None


def _rule_select(self: Analyzer, e: Select) -> PrimExpr | None:
    value = _truth(e.condition)
    if value is not None:
        return e.true_value if value else e.false_value
    if e.true_value is e.false_value:
        return e.true_value
    branches = _branches(self, e.condition, e.true_value, e.false_value)
    return None if branches is None else self.canonical_simplify(Select(e.condition, *branches))


def _branches(self: Analyzer, condition: PrimExpr, *branches: PrimExpr) -> Any:
    """The branches of a choice, each simplified under its condition; None for no change. Only
    where TVM's assumptions hold: passes ask about conditions themselves.
    """
    if self.wrap is not None or condition.dtype.lanes != 1 or self.depth >= _MAX_SCOPES:
        return None
    if not any(b._children_ for b in branches):
        return None
    if sum(len(first_nodes(b, _MAX_BRANCH)) for b in branches) >= _MAX_BRANCH:
        return None
    simplified = []
    for branch, holds in zip(branches, (condition, Not(condition))):
        with self.constraint_scope(holds):
            simplified.append(self.canonical_simplify(branch))
    return None if all(f is b for f, b in zip(simplified, branches)) else simplified


def _rule_call(self: Analyzer, e: Call) -> PrimExpr | None:
    if e.op is IF:
        condition, yes, no = e.args
        if isinstance(condition, IntImm):
            return yes if condition.value else no
        if yes is no:
            return yes
        branches = _branches(self, condition, yes, no)
        if branches is None:
            return None
        return self.canonical_simplify(Call(e.dtype, e.op, (condition, *branches)))
    folded = _folded_bits(e)
    if folded is not None:
        return folded
    if e.op is LIKELY and isinstance(e.args[0], IntImm):
        return e.args[0]
    if e.op in (TRUNCDIV, TRUNCMOD):
        x, y = e.args
        return _rule_trunc(self, Div(x, y) if e.op is TRUNCDIV else Mod(x, y))
    return None


def _folded_bits(e: Call) -> PrimExpr | None:
    meaning = _BITS.get(e.op)
    if meaning is None or not all(isinstance(a, IntImm) for a in e.args):
        return None
    bits, *values = e.args[0].dtype.bits, *(a.value for a in e.args)  # type: ignore[attr-defined]
    return const(wrap_int(meaning(bits, *values), e.dtype), e.dtype)


_BITS: dict[Any, Callable[..., int]] = {
    AND_BITS: lambda bits, a, b: a & b,
    Op.get("tir.bitwise_or"): lambda bits, a, b: a | b,
    Op.get("tir.bitwise_xor"): lambda bits, a, b: a ^ b,
    Op.get("tir.bitwise_not"): lambda bits, a: ~a,
    Op.get("tir.clz"): lambda bits, a: bits - (a % (1 << bits)).bit_length(),
    Op.get("tir.popcount"): lambda bits, a: (a % (1 << bits)).bit_count(),
    Op.get("tir.shift_left"): lambda bits, a, b: a << b if 0 <= b < bits else 0,
}


def _rule_let(self: Analyzer, e: Let) -> PrimExpr | None:
    if isinstance(e.value, (IntImm, Var)):
        return self.canonical_simplify(substitute(e.body, {e.var: e.value}))
    return None


def _rule_cast(self: Analyzer, e: Cast) -> PrimExpr | None:
    folded = cast(e.dtype, e.value)
    if not isinstance(folded, Cast):
        return folded
    inner = e.value
    if e.dtype.is_bool and is_scalar_int(inner):
        return _again(self, NE(inner, const(0, inner.dtype)))
    if isinstance(inner, Cast) and inner.value.dtype is e.dtype and e.dtype.is_int:
        # There and back through a type that holds every value it can have.
        if inner.dtype.is_int and self._bound_of(inner.value).within(
            ConstIntBound.of_dtype(inner.dtype)
        ):
            return inner.value
    return None


def _rule_vector(self: Analyzer, e: Any) -> PrimExpr | None:
    """Arithmetic of ramps and broadcasts is done on their scalars."""
    a, b, lanes = e.a, e.b, e.dtype.lanes
    if isinstance(a, Broadcast) and isinstance(b, Broadcast):
        return Broadcast(self.canonical_simplify(type(e)(a.value, b.value)), lanes)
    if isinstance(e, (Min, Max)) and isinstance(a, type(e)) and isinstance(b, Broadcast):
        for x, y in ((a.a, a.b), (a.b, a.a)):
            if isinstance(y, Broadcast):
                return type(e)(
                    x, Broadcast(self.canonical_simplify(type(e)(y.value, b.value)), lanes)
                )
    if isinstance(e, Add) and not a.dtype.is_int:
        # Adding 0 keeps what a cast integer is, which is never -0.0.
        for x, y in ((a, b), (b, a)):
            zero = isinstance(y, Broadcast) and isinstance(y.value, FloatImm) and not y.value.value
            if zero and isinstance(x, Cast) and x.value.dtype.is_int:
                return x
        return None
    if not a.dtype.is_int or a.dtype.is_bool:
        return None
    ramps = isinstance(a, (Ramp, Broadcast)) and isinstance(b, (Ramp, Broadcast))
    if isinstance(e, (Add, Sub)) and ramps:
        base_a, step_a = _ramp_parts(a)
        base_b, step_b = _ramp_parts(b)
        return _ramp(
            self.canonical_simplify(type(e)(base_a, base_b)),
            self.canonical_simplify(type(e)(step_a, step_b)),
            lanes,
        )
    if isinstance(e, CompareExpr) and ramps:
        # A comparison that holds at both ends holds between them.
        ends = [_at_ends(x, lanes) for x in (a, b)]
        if not all(
            self._exact(self._poly(self.canonical_simplify(x)), x) for pair in ends for x in pair
        ):
            return None
        kind: Any = type(e)
        decisions = [self.canonical_simplify(kind(x, y)) for x, y in zip(*ends)]
        decided = decisions[0] is decisions[1] and isinstance(decisions[0], IntImm)
        if (
            decided
            and (bool(decisions[0]) or not isinstance(e, EQ))
            and not (bool(decisions[0]) and isinstance(e, NE))
        ):
            return Broadcast(decisions[0], lanes)
        return None
    if isinstance(e, Mul) and isinstance(a, Broadcast):
        a, b = b, a
    if isinstance(a, Ramp) and isinstance(b, Broadcast) and isinstance(e, _ON_RAMPS):
        if isinstance(e, Mul):
            return _ramp(
                self.canonical_simplify(a.base * b.value),
                self.canonical_simplify(a.stride * b.value),
                lanes,
            )
        return _divide_ramp(self, type(e), a, b.value)
    return None


_ON_RAMPS = (Mul, FloorDiv, FloorMod, Div, Mod)


def _ramp(base: PrimExpr, step: PrimExpr, lanes: int) -> PrimExpr:
    if isinstance(step, IntImm) and step.value == 0:
        return Broadcast(base, lanes)
    return Ramp(base, step, lanes)


def _at_ends(e: Any, lanes: int) -> tuple[PrimExpr, PrimExpr]:
    base, step = _ramp_parts(e)
    return base, base + step * (lanes - 1)


def _divide_ramp(self: Analyzer, kind: Any, a: Ramp, by: PrimExpr) -> PrimExpr | None:
    """A ramp divided by one number: a ramp again if the stride is a multiple, all the same if the
    first and the last lane have one quotient.
    """
    first, last = _at_ends(a, a.lanes)
    if not isinstance(by, IntImm) or by.value <= 0:
        return None
    if not all(self._exact(self._poly(self.canonical_simplify(x)), x) for x in (first, last)):
        return None
    down = kind in (FloorDiv, FloorMod)
    step = self.canonical_simplify(a.stride)
    low = min(self.const_int_bound(x).min_value for x in (first, last))
    divide, modulo = (FloorDiv, FloorMod) if down or low >= 0 else (Div, Mod)
    base = self.canonical_simplify(modulo(a.base, by))
    whole = isinstance(step, IntImm) and step.value % by.value == 0
    if whole and (down or low >= 0 or (isinstance(base, IntImm) and base.value == 0)):
        if kind in (FloorMod, Mod):
            return Broadcast(base, a.lanes)
        return _ramp(
            self.canonical_simplify(divide(a.base, by)),
            self.canonical_simplify(divide(step, by)),
            a.lanes,
        )
    quotients = [self.canonical_simplify(divide(x, by)) for x in (first, last)]
    if quotients[0] is quotients[1] and (down or low >= 0):
        if kind in (FloorMod, Mod):
            return _ramp(base, step, a.lanes)
        return Broadcast(quotients[0], a.lanes)
    if kind in (FloorMod, Mod) and base is not a.base and (down or low >= 0):
        rest = self._poly(self.canonical_simplify(a.base)).split(by.value)[1]
        if self._exact(rest, a.base) and (down or self._poly_bound(rest).min_value >= 0):
            start = self._from_poly(rest, a.base)
            if start is not a.base and isinstance(start, IntImm):
                return kind(Ramp(start, step, a.lanes), Broadcast(by, a.lanes))
    return None


def _rule_wide(self: Analyzer, e: Any) -> PrimExpr | None:
    return _rule_vector(self, e) if e.dtype.lanes != 1 else None


def _ramp_parts(e: Any) -> tuple[PrimExpr, PrimExpr]:
    if isinstance(e, Ramp):
        return e.base, e.stride
    return e.value, const(0, e.value.dtype)


RULES: dict[type, Callable[[Analyzer, Any], PrimExpr | None]] = {
    Add: _rule_wide,
    Sub: _rule_wide,
    Mul: _rule_wide,
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
    And: _rule_logical,
    Or: _rule_logical,
    Not: _rule_not,
    Select: _rule_select,
    Call: _rule_call,
    Let: _rule_let,
    Cast: _rule_cast,
}
