"""The analyzer: what is known about variables, and what follows for expressions.

Integers wrap at their width, so a rule that holds only for mathematical integers (cancelling under
//, moving terms across a
comparison) is used only where bounds show that nothing overflows. With ``Analyzer(wrap=False)``
expressions are mathematical
integers: right for shapes, whose sizes are bounded by memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import gcd
from typing import Any

from ..base import TIRError
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
    Node,
    Not,
    Or,
    PrimExpr,
    Ramp,
    Range,
    Select,
    SizeVar,
    Sub,
    Var,
    as_expr,
    cast,
    const,
    substitute,
)
from ..ir.expr import INT_MEANING, CompareExpr, fold_int
from ..ir.op import Op
from .bound import NEG_INF, POS_INF, ConstIntBound
from .poly import Poly

__all__ = ["Analyzer", "can_prove", "prove_equal", "simplify"]

_TRUE, _FALSE = const(True), const(False)
_IF = Op.get("tir.if_then_else")
_LIKELY = Op.get("tir.likely")
_AND_BITS = Op.get("tir.bitwise_and")
_SHIFT_RIGHT = Op.get("tir.shift_right")
_TRUNCDIV = Op.get("tir.truncdiv")
_TRUNCMOD = Op.get("tir.truncmod")
_NEGATED: dict[type, type] = {EQ: NE, NE: EQ, LT: GE, GE: LT, LE: GT, GT: LE}
_SWAPPED: dict[type, type] = {EQ: EQ, NE: NE, LT: GT, GT: LT, LE: GE, GE: LE}
_RING = (Add, Sub, Mul)


def _is_scalar_int(e: PrimExpr) -> bool:
    return e.dtype.is_int and e.dtype.lanes == 1


class Analyzer:
    """Simplifies and proves, knowing the ranges of variables.

    wrap  whether integers wrap at their width (see above)
    """

    def __init__(self, wrap: bool = True) -> None:
        self.wrap = wrap
        self._ranges: dict[Var, tuple[PrimExpr, PrimExpr]] = {}  # var -> (least, greatest)
        self._bounds: dict[Var, ConstIntBound] = {}
        self._values: dict[Var, PrimExpr] = {}
        self._facts: list[PrimExpr] = []
        self._serial: dict[int, tuple[int, PrimExpr]] = {}
        self._memo: dict[int, tuple[PrimExpr, PrimExpr]] = {}
        self._polys: dict[int, tuple[PrimExpr, Poly]] = {}
        self._bound_memo: dict[int, tuple[PrimExpr, ConstIntBound]] = {}

    # -- knowledge ---------------------------------------------------------------------------------

    def bind(self, var: Var, value: Any, allow_override: bool = False) -> None:
        """Let `var` range over a `Range`, or stand for an expression.

        Raises TIRError if it is bound to something else already, unless `allow_override`.
        """
        if not isinstance(var, Var):
            raise TIRError(f"bind: wanted a Var, got {type(var).__name__}")
        if not allow_override and (var in self._ranges or var in self._values):
            raise TIRError(f"bind: {var.name} is bound already; pass allow_override=True")
        self._forget()
        if isinstance(value, Range):
            low = self.simplify(cast(var.dtype, value.min))
            high = self.simplify(low + cast(var.dtype, value.extent) - 1)
            self._ranges[var] = (low, high)
            least, most = self.const_int_bound(low), self._range_top(low, value.extent, high)
            if least.min_value <= most:
                self._bounds[var] = ConstIntBound(least.min_value, most).intersect(
                    ConstIntBound.of_dtype(var.dtype)
                )
        else:
            self._values[var] = self.simplify(as_expr(value))
        self._forget()

    def _range_top(self, low: PrimExpr, extent: PrimExpr, high: PrimExpr) -> int:
        by_sum = self.const_int_bound(high).max_value
        parts = self.const_int_bound(low).max_value + self.const_int_bound(extent).max_value - 1
        return min(by_sum, parts)

    def bind_size(self, var: Var) -> None:
        """Let `var` be a size: not negative, and small enough that index arithmetic on it does not
        overflow.
        """
        top = min(int(var.dtype.max_value), 1 << 40)
        self._forget()
        self._bounds[var] = self._bounds.get(var, ConstIntBound(0, top)).intersect(
            ConstIntBound(0, top)
        )

    def update(self, var: Var, bound: ConstIntBound, override: bool = False) -> None:
        """Set what is known about the constant bounds of `var`."""
        self._forget()
        known = self._bounds.get(var)
        bound = ConstIntBound(*bound)
        self._bounds[var] = bound if known is None or override else known.intersect(bound)

    @contextmanager
    def constraint_scope(self, condition: PrimExpr) -> Iterator[None]:
        """Take `condition` for true inside the `with`."""
        saved = (dict(self._bounds), list(self._facts))
        self._forget()
        for fact in _conjuncts(self.simplify(condition)):
            self._assume(fact)
        self._forget()
        try:
            yield
        finally:
            self._bounds, self._facts = saved
            self._forget()

    def _assume(self, fact: PrimExpr) -> None:
        self._facts.append(fact)
        if isinstance(fact, CompareExpr):
            self._assume_bound(type(fact), fact.a, fact.b)
            self._assume_bound(_SWAPPED[type(fact)], fact.b, fact.a)

    def _assume_bound(self, relation: type, left: PrimExpr, right: PrimExpr) -> None:
        if not isinstance(left, Var) or not _is_scalar_int(left):
            return
        low, high = self.const_int_bound(right)
        if relation is LT:
            low, high = NEG_INF, high - 1
        elif relation is LE:
            low = NEG_INF
        elif relation is GT:
            low, high = low + 1, POS_INF
        elif relation is GE:
            high = POS_INF
        elif relation is not EQ:
            return
        known = self.const_int_bound(left)
        self._bounds[left] = known.intersect(ConstIntBound.of(low, high))

    def _forget(self) -> None:
        self._memo.clear()
        self._polys.clear()
        self._bound_memo.clear()

    def _order(self, e: PrimExpr) -> int:
        found = self._serial.get(id(e))
        if found is None:
            found = self._serial[id(e)] = (len(self._serial), e)
        return found[0]

    # -- bounds ------------------------------------------------------------------------------------

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """The least and greatest value of an integer expression, as far as known."""
        expr = as_expr(expr)
        for n in _post_order(expr, self._bound_memo):
            self._bound_memo[id(n)] = (n, self._one_bound(n))
        return self._bound_memo[id(expr)][1]

    def _one_bound(self, e: PrimExpr) -> ConstIntBound:
        if e.dtype.is_bool:
            return ConstIntBound(e.value, e.value) if isinstance(e, IntImm) else ConstIntBound(0, 1)
        if not e.dtype.is_int:
            return ConstIntBound.everything()
        whole = ConstIntBound.of_dtype(e.dtype)
        if isinstance(e, IntImm):
            return ConstIntBound(e.value, e.value)
        if isinstance(e, Var):
            return self._var_bound(e)
        rule = _BOUNDS.get(type(e))
        found = rule(self, e) if rule is not None else whole
        if found.within(whole):
            return found
        return whole if self.wrap else found

    def _var_bound(self, var: Var) -> ConstIntBound:
        found = self._bounds.get(var)
        if found is None and var in self._values:
            found = self.const_int_bound(self._values[var])
        if found is None:
            found = ConstIntBound.of_dtype(var.dtype) if self.wrap else ConstIntBound.everything()
        if isinstance(var, SizeVar):
            found = found.intersect(ConstIntBound(0, POS_INF))
        return found

    def _bound_of(self, e: PrimExpr) -> ConstIntBound:
        memo = self._bound_memo.get(id(e))
        return memo[1] if memo is not None else self.const_int_bound(e)

    def _poly_bound(self, poly: Poly) -> ConstIntBound:
        """The bound of a polynomial over mathematical integers."""
        total = ConstIntBound(0, 0)
        for monomial, c in poly.terms.items():
            if not monomial:
                total = total.add(ConstIntBound(c, c))
                continue
            part = self._bound_of(monomial[0])
            for previous, factor in zip(monomial, monomial[1:]):
                square = factor is previous and len(monomial) == 2
                part = part.mul(self._bound_of(factor))
                if square:
                    part = part.intersect(ConstIntBound(0, POS_INF))
            total = total.add(part.scale(c))
        return total

    def _exact(self, poly: Poly, expr: PrimExpr) -> bool:
        """Whether `poly`, over mathematical integers, is what `expr` is worth (nothing wraps)."""
        return not self.wrap or self._poly_bound(poly).within(ConstIntBound.of_dtype(expr.dtype))

    # -- simplification ----------------------------------------------------------------------------

    def simplify(self, expr: Any, steps: int = 2) -> PrimExpr:
        """An equal expression in canonical form: constants folded, like terms collected, decided
        comparisons replaced.

        steps  accepted as in TVM; one pass reaches the canonical form here
        """
        expr = as_expr(expr)
        if self._values:
            expr = substitute(expr, self._values)
        stack: list[tuple[PrimExpr, bool]] = [(expr, False)]
        memo = self._memo
        while stack:
            e, ready = stack.pop()
            if id(e) in memo:
                continue
            parts = _parts(e)
            if not ready and parts:
                stack.append((e, True))
                stack.extend((p, False) for p in parts if id(p) not in memo)
                continue
            memo[id(e)] = (e, self._simplify_one(e))
        return memo[id(expr)][1]

    canonical_simplify = simplify
    rewrite_simplify = simplify

    def __call__(self, expr: Any) -> PrimExpr:
        return self.simplify(expr)

    def _done(self, e: Node) -> Any:
        return self._memo[id(e)][1]

    def _simplify_one(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, _RING) and _is_scalar_int(e):
            return self._from_poly(self._ring(e), e)
        rebuilt = e._map_children_(lambda c: self._done(c) if isinstance(c, PrimExpr) else c)
        if not isinstance(rebuilt, type(e)):
            return rebuilt
        rule = _RULES.get(type(rebuilt))
        if rule is None:
            return rebuilt
        changed = rule(self, rebuilt)
        return rebuilt if changed is None else changed

    def _ring(self, e: PrimExpr) -> Poly:
        """The polynomial of an Add/Sub tree or a Mul whose parts are simplified already."""
        if isinstance(e, Mul):
            a, b = self._poly(self._done(e.a)), self._poly(self._done(e.b))
            expanded = a.times(b, self._order)
            if expanded is not None:
                return self._collect(expanded)
            return Poly.atom(Mul(self._done(e.a), self._done(e.b)))
        terms: dict[Any, int] = {}
        for leaf, sign in _summands(e):
            self._poly(self._done(leaf)).add_to(terms, sign)
        return self._collect(Poly(terms))

    def _poly(self, e: PrimExpr) -> Poly:
        """The polynomial of a simplified expression."""
        found = self._polys.get(id(e))
        if found is not None:
            return found[1]
        if isinstance(e, IntImm):
            poly = Poly.constant(e.value)
        elif isinstance(e, (Add, Sub)) and _is_scalar_int(e):
            terms: dict[Any, int] = {}
            for leaf, sign in _summands(e):
                self._poly(leaf).add_to(terms, sign)
            poly = Poly(terms)
        elif isinstance(e, Mul) and _is_scalar_int(e):
            poly = self._poly(e.a).times(self._poly(e.b), self._order) or Poly.atom(e)
        else:
            poly = Poly.atom(e)
        self._polys[id(e)] = (e, poly)
        return poly

    def _from_poly(self, poly: Poly, like: PrimExpr) -> PrimExpr:
        poly = poly.wrapped(like.dtype)
        made = poly.to_expr(like.dtype, self._order)
        self._polys[id(made)] = (made, poly)
        return made

    def _collect(self, poly: Poly) -> Poly:
        """Join ``k*c*(x // c) + k*(x % c)`` into ``k*x``; exact for every divisor but 0."""
        mods = [m[0] for m in poly.terms if len(m) == 1 and isinstance(m[0], FloorMod)]
        for mod in mods:
            if not isinstance(mod.b, IntImm) or mod.b.value == 0 or (mod,) not in poly.terms:
                continue
            k = poly.terms[(mod,)]
            quotient = self._find_quotient(poly, mod, k * mod.b.value)
            if quotient is None:
                continue
            terms = dict(poly.terms)
            del terms[(mod,)], terms[(quotient,)]
            self._poly(mod.a).add_to(terms, k)
            poly = Poly(terms)
        return poly

    def _find_quotient(self, poly: Poly, mod: FloorMod, coefficient: int) -> PrimExpr | None:
        for monomial, c in poly.terms.items():
            if c == coefficient and len(monomial) == 1 and isinstance(monomial[0], FloorDiv):
                q = monomial[0]
                if q.b is mod.b and q.a is mod.a:
                    return q
                # (x // a) // c is kept as x // (a * c), and (x // a) % c as a remainder of x // a.
                if (
                    isinstance(mod.a, FloorDiv)
                    and isinstance(mod.a.b, IntImm)
                    and isinstance(mod.b, IntImm)
                    and isinstance(q.b, IntImm)
                    and q.a is mod.a.a
                    and q.b.value == mod.a.b.value * mod.b.value
                    and mod.a.b.value > 0
                    and mod.b.value > 0
                ):
                    return q
        return None

    # -- proofs ------------------------------------------------------------------------------------

    def can_prove(self, condition: Any, strength: Any = None) -> bool:
        """Whether the bool expression always holds, as far as this analyzer can see."""
        simple = self.simplify(condition)
        if isinstance(simple, IntImm):
            return simple.value == 1
        if isinstance(simple, And):
            return all(self.can_prove(part) for part in _conjuncts(simple))
        if isinstance(simple, Or):
            return self.can_prove(simple.a) or self.can_prove(simple.b)
        if any(fact is simple for fact in self._facts):
            return True
        if isinstance(simple, CompareExpr) and _is_scalar_int(simple.a):
            return self._prove_comparison(simple)
        return False

    def can_prove_equal(self, a: Any, b: Any) -> bool:
        """Whether two expressions are always worth the same."""
        a, b = as_expr(a), as_expr(b)
        if a is b:
            return True
        if a.dtype is not b.dtype:
            if not (a.dtype.is_int and b.dtype.is_int):
                return False
            wide = a.dtype if a.dtype.bits >= b.dtype.bits else b.dtype
            a, b = cast(wide, a), cast(wide, b)
        if a.dtype.is_int and a.dtype.lanes == 1:
            difference = self.simplify(Sub(a, b))
            return isinstance(difference, IntImm) and difference.value == 0
        return self.simplify(a) is self.simplify(b)

    def can_prove_less(self, a: Any, b: Any) -> bool:
        """Whether a < b always."""
        return self.can_prove(as_expr(a) < b)

    def can_prove_greater_equal(self, a: Any, lower: int) -> bool:
        """Whether a >= lower always."""
        return self.can_prove(as_expr(a) >= lower)

    def _prove_comparison(self, e: CompareExpr) -> bool:
        a, b = self._poly(e.a), self._poly(e.b)
        if not (self._exact(a, e.a) and self._exact(b, e.b)):
            # With symbolic ranges the sums may still be exact; only equality holds modulo a power
            # of two.
            return False
        difference = a - b
        kind = type(e)
        if kind in (GT, GE):
            difference = b - a
            kind = _SWAPPED[kind]
        if kind is LT:
            return self._upper(difference) < 0
        if kind is LE:
            return self._upper(difference) <= 0
        if kind is EQ:
            return not difference.terms
        return self._upper(difference) < 0 or self._upper(difference.scale(-1)) < 0

    def _upper(self, poly: Poly) -> int:
        """A number that `poly` never exceeds. Variables with symbolic ranges are pushed to their
        ends first.
        """
        best = self._poly_bound(poly).max_value
        for _ in range(16):
            step = self._eliminate(poly)
            if step is None:
                break
            poly = step
            best = min(best, self._poly_bound(poly).max_value)
        best = min(best, self._upper_by_facts(poly))
        return best

    def _eliminate(self, poly: Poly) -> Poly | None:
        """Replace one variable that stands alone in its terms by the end of its range that makes
        `poly` greatest.
        """
        for monomial, c in poly.terms.items():
            if len(monomial) != 1 or not isinstance(monomial[0], Var):
                continue
            var = monomial[0]
            ends = self._ranges.get(var)
            if ends is None or any(var in m for m in poly.terms if len(m) > 1):
                continue
            end = ends[1] if c > 0 else ends[0]
            if isinstance(end, IntImm):
                continue
            terms = dict(poly.terms)
            del terms[monomial]
            self._poly(self.simplify(end)).add_to(terms, c)
            return Poly(terms)
        return None

    def _upper_by_facts(self, poly: Poly) -> int:
        """Use an assumed inequality ``p < q`` whose difference is `poly` up to a constant."""
        best = POS_INF
        for fact in self._facts:
            if not isinstance(fact, CompareExpr) or not _is_scalar_int(fact.a):
                continue
            a, b = self._poly(fact.a), self._poly(fact.b)
            if not (self._exact(a, fact.a) and self._exact(b, fact.b)):
                continue
            for relation, low, high in ((type(fact), a, b), (_SWAPPED[type(fact)], b, a)):
                slack = {LT: 1, LE: 0, EQ: 0}.get(relation)
                if slack is None:
                    continue
                rest = poly - (low - high)
                if rest.is_const:
                    best = min(best, rest.const - slack)
        return best


def _summands(e: PrimExpr) -> Iterator[tuple[PrimExpr, int]]:
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


def _parts(e: PrimExpr) -> list[PrimExpr]:
    """What must be simplified before `e`: its children, or the leaves of the sum that it is."""
    if isinstance(e, (Add, Sub)) and _is_scalar_int(e):
        return [leaf for leaf, _ in _summands(e)]
    return [c for c in e._children_() if isinstance(c, PrimExpr)]


def _post_order(root: PrimExpr, done: dict[int, Any]) -> Iterator[PrimExpr]:
    stack: list[tuple[PrimExpr, bool]] = [(root, False)]
    while stack:
        n, ready = stack.pop()
        if id(n) in done:
            continue
        if ready:
            yield n
        else:
            stack.append((n, True))
            stack.extend((c, False) for c in n._children_() if isinstance(c, PrimExpr))


def _conjuncts(e: PrimExpr) -> list[PrimExpr]:
    out, stack = [], [e]
    while stack:
        n = stack.pop()
        if isinstance(n, And):
            stack.extend((n.b, n.a))
        else:
            out.append(n)
    return out


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
        return inner if inner.within(whole) or not self.wrap else whole
    return whole


def _bound_select(self: Analyzer, e: Select) -> ConstIntBound:
    return self._bound_of(e.true_value).union(self._bound_of(e.false_value))


def _bound_call(self: Analyzer, e: Call) -> ConstIntBound:
    whole = ConstIntBound.of_dtype(e.dtype)
    if e.op is _IF:
        return self._bound_of(e.args[1]).union(self._bound_of(e.args[2]))
    if e.op is _LIKELY:
        return self._bound_of(e.args[0])
    if e.op is _AND_BITS:
        tops = [b.max_value for b in map(self._bound_of, e.args) if b.min_value >= 0]
        return ConstIntBound(0, min(tops)) if tops else whole
    if (
        e.op is _SHIFT_RIGHT
        and isinstance(e.args[1], IntImm)
        and 0 <= e.args[1].value < e.dtype.bits
    ):
        low, high = self._bound_of(e.args[0])
        return ConstIntBound(low >> e.args[1].value, high >> e.args[1].value)
    if e.op in (_TRUNCDIV, _TRUNCMOD):
        a, b = map(self._bound_of, e.args)
        return a.truncdiv(b) if e.op is _TRUNCDIV else a.truncmod(b)
    return whole


def _bound_lane(self: Analyzer, e: Broadcast) -> ConstIntBound:
    return self._bound_of(e.value)


def _bound_ramp(self: Analyzer, e: Ramp) -> ConstIntBound:
    last = self._bound_of(e.stride).scale(e.lanes - 1)
    return self._bound_of(e.base).add(last.union(ConstIntBound(0, 0)))


_BOUNDS: dict[type, Callable[[Analyzer, Any], ConstIntBound]] = {
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
    if not _is_scalar_int(e):
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
                return self._again(FloorDiv(e.a.a, const(whole, e.dtype)))
            return None
        if isinstance(e.a, FloorMod) and isinstance(e.a.b, IntImm) and e.a.b.value > 0:
            # (x % (c * k)) // c == (x // c) % k
            if e.a.b.value % c == 0:
                inner = self._again(FloorDiv(e.a.a, e.b))
                return self._again(FloorMod(inner, const(e.a.b.value // c, e.dtype)))
        return self._divide(e, a, c)
    # A symbolic divisor that divides every term.
    return self._divide_symbolic(e, a)


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
        reduced = FloorDiv(self._from_poly(y, e), const(c // g, e.dtype))
        return self._from_poly(q + self._poly(self._again(reduced)), e)
    if q.terms:
        made = FloorDiv(self._from_poly(r, e), e.b)
        return self._from_poly(q + self._poly(self._again(made)), e)
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
    if not _is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if e.a is e.b:
        return const(0, e.dtype)
    a = self._poly(e.a)
    if not isinstance(e.b, IntImm):
        quotient = self._divide_symbolic(FloorDiv(e.a, e.b), a)
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
            return self._again(FloorMod(e.a.a, e.b))
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
    for monomial, k in reduced.terms.items():
        g = gcd(g, k)
    if g > 1:
        # (g*y) % (g*d) == g * (y % d)
        inner = FloorMod(
            self._from_poly(Poly({m: k // g for m, k in reduced.terms.items()}), e),
            const(c // g, e.dtype),
        )
        return self._from_poly(self._poly(self._again(inner)).scale(g), e)
    if reduced.terms != a.terms and self._exact(reduced, e):
        return FloorMod(self._from_poly(reduced, e), e.b)
    return None


def _again(self: Analyzer, e: PrimExpr) -> PrimExpr:
    """Simplify an expression whose children are simplified."""
    found = self._memo.get(id(e))
    if found is None:
        rule = _RULES.get(type(e))
        changed = rule(self, e) if rule is not None else None
        found = self._memo[id(e)] = (e, e if changed is None else changed)
    return found[1]


Analyzer._divide = _divide  # type: ignore[attr-defined]
Analyzer._divide_symbolic = _divide_symbolic  # type: ignore[attr-defined]
Analyzer._again = _again  # type: ignore[attr-defined]


def _rule_trunc(self: Analyzer, e: Any) -> PrimExpr | None:
    if not _is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if self._bound_of(e.a).min_value >= 0 and self._bound_of(e.b).min_value >= 0:
        made = FloorDiv(e.a, e.b) if isinstance(e, Div) else FloorMod(e.a, e.b)
        return self._again(made)  # type: ignore[attr-defined, no-any-return]
    return None


def _rule_extremum(self: Analyzer, e: Any) -> PrimExpr | None:
    if not _is_scalar_int(e):
        return None
    folded = _fold(e)
    if folded is not None:
        return folded
    if e.a is e.b:
        return e.a
    is_min = isinstance(e, Min)
    if self._prove_comparison(LE(e.a, e.b)):
        return e.a if is_min else e.b
    if self._prove_comparison(LE(e.b, e.a)):
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
        return _TRUE
    if self._prove_comparison(_NEGATED[type(e)](e.a, e.b)):
        return _FALSE
    a, b = self._poly(e.a), self._poly(e.b)
    difference = a - b
    if isinstance(e, (EQ, NE)):
        reduced = difference.wrapped(e.a.dtype)
        if reduced.is_const:
            return const((reduced.const == 0) == isinstance(e, EQ))
    if isinstance(e.a, IntImm) and not isinstance(e.b, IntImm):
        return _SWAPPED[type(e)](e.b, e.a)
    if self._exact(a, e.a) and self._exact(b, e.b):
        return self._cancel(e, difference)  # type: ignore[attr-defined, no-any-return]
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
            return _FALSE
        if kind is NE:
            return _TRUE
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
        left, right, kind = right, Poly.constant(-constant), _SWAPPED[kind]
    like = e.a
    if not (self._exact(left, like) and self._exact(right, like)):
        return None
    made = kind(self._from_poly(left, like), self._from_poly(right, like))
    return made if made is not e else None


Analyzer._cancel = _cancel  # type: ignore[attr-defined]


def _rule_and(self: Analyzer, e: And) -> PrimExpr | None:
    if isinstance(e.a, IntImm):
        return e.b if e.a.value else e.a
    if isinstance(e.b, IntImm):
        return e.a if e.b.value else e.b
    if e.a is e.b:
        return e.a
    if _are_opposite(e.a, e.b):
        return _FALSE
    return None


def _rule_or(self: Analyzer, e: Or) -> PrimExpr | None:
    if isinstance(e.a, IntImm):
        return e.a if e.a.value else e.b
    if isinstance(e.b, IntImm):
        return e.b if e.b.value else e.a
    if e.a is e.b:
        return e.a
    if _are_opposite(e.a, e.b):
        return _TRUE
    return None


def _are_opposite(a: PrimExpr, b: PrimExpr) -> bool:
    if a.dtype.lanes != 1:
        return False
    if (isinstance(a, Not) and a.a is b) or (isinstance(b, Not) and b.a is a):
        return True
    return (
        isinstance(a, CompareExpr)
        and isinstance(b, CompareExpr)
        and _NEGATED[type(a)] is type(b)
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
        return self._again(_NEGATED[type(inner)](inner.a, inner.b))  # type: ignore[attr-defined, no-any-return]
    return None


def _rule_select(self: Analyzer, e: Select) -> PrimExpr | None:
    if isinstance(e.condition, IntImm):
        return e.true_value if e.condition.value else e.false_value
    return e.true_value if e.true_value is e.false_value else None


def _rule_call(self: Analyzer, e: Call) -> PrimExpr | None:
    if e.op is _IF:
        condition, yes, no = e.args
        if isinstance(condition, IntImm):
            return yes if condition.value else no
        return yes if yes is no else None
    if e.op is _LIKELY and isinstance(e.args[0], IntImm):
        return e.args[0]
    if e.op in (_TRUNCDIV, _TRUNCMOD) and _is_scalar_int(e):
        made: Any = Div(*e.args) if e.op is _TRUNCDIV else Mod(*e.args)
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


_RULES: dict[type, Callable[[Analyzer, Any], PrimExpr | None]] = {
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


# -- without an analyzer ---------------------------------------------------------------------------


def simplify(expr: Any) -> PrimExpr:
    """`expr` in canonical form, knowing nothing about its variables; integers wrap."""
    return Analyzer().simplify(expr)


def prove_equal(a: Any, b: Any) -> bool:
    """Whether two shape expressions are always equal, as mathematical integers: ``n + 1`` and ``1
    + n``.
    """
    return Analyzer(wrap=False).can_prove_equal(a, b)


def can_prove(condition: Any) -> bool:
    """Whether a condition on shapes always holds, as mathematical integers."""
    return Analyzer(wrap=False).can_prove(condition)
