"""The analyzer: what is known about variables, and what follows for expressions.

Integers wrap at their width when a program runs, so what holds for mathematical integers only
(cancelling under //, moving terms across a comparison) needs a reason. `Analyzer` has three
readings:

    Analyzer()            TVM's: signed arithmetic of 32 bits and more does not overflow, and no
                          divisor is 0; smaller and unsigned integers wrap
    Analyzer(wrap=True)   what a compiled program does: a rule is used only where bounds show that
                          nothing overflows and no divisor is 0
    Analyzer(wrap=False)  mathematical integers, where x // 0 and x % 0 are 0: shapes, whose sizes
                          are bounded by memory

The first is for users, whose indices stay in their buffers. Nothing in this package uses it: a pass
says `wrap=True` or `wrap=False` (a test reads all calls).
"""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ..base import DataType, TIRError
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
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Or,
    PrimExpr,
    Range,
    Select,
    SizeVar,
    Sub,
    Var,
    as_expr,
    cast,
    substitute,
    walk,
    wrap_int,
)
from . import interval, modular
from .bound import NEG_INF, POS_INF, ConstIntBound, as_bound
from .interval import IntervalSet, IntSet
from .modular import ModularSet
from .normal import Normal
from .patterns import rewritten
from .poly import Poly, build
from .rules import BOUNDS, RULES
from .tree import SWAPPED, conjuncts, is_scalar_int, parts_of, scalar_post_order, summands

_RING = (Add, Sub, Mul)
_EXTREMES = (Min, Max)
_CHOICES = (Select, *_EXTREMES)
# From a OP b follows a - b <= -slack.
_SLACK: dict[type, int] = {LT: 1, LE: 0, EQ: 0}


class ProofStrength(enum.IntEnum):
    """How hard to try, in TVM. Here `Analyzer.can_prove` always does what SYMBOLIC_BOUND asks."""

    DEFAULT = 0
    SYMBOLIC_BOUND = 1


class Extension(enum.Flag):
    """What TVM's simplifier does on request. `Analyzer.enabled_extensions` keeps what is set;
    here all of it is always done, as far as it makes the result shorter.
    """

    NoExtensions = 0
    TransitivelyProveInequalities = 1
    ConvertBooleanToAndOfOrs = 2
    ApplyConstraintsToBooleanBranches = 4
    ComparisonOfProductAndSum = 8


class _Serial(dict[PrimExpr, int]):
    """When each expression was first asked about."""

    def __missing__(self, e: PrimExpr) -> int:
        self[e] = len(self)
        return self[e]


class Analyzer:
    """Simplifies and proves, knowing the ranges of variables.

    wrap  which integers these are: None, as TVM assumes; True, as compiled; False, mathematical
          ones (see the top of this file)
    """

    enabled_extensions = Extension.NoExtensions

    def __init__(self, wrap: bool | None = None) -> None:
        self.wrap = wrap
        self._normal: Normal | None = None
        # var -> (least, greatest)
        self._ranges: dict[Var, tuple[PrimExpr | int, PrimExpr | int]] = {}
        self._bounds: dict[PrimExpr, ConstIntBound] = {}
        self._modular: dict[PrimExpr, ModularSet] = {}
        self._values: dict[Var, PrimExpr] = {}
        self._facts: list[PrimExpr] = []
        self._fact_polys: list[Poly] | None = None
        self._bounded_exprs = False  # whether anything but variables is in _bounds
        self.depth = 0  # of constraint scopes
        self._bound_inside: list[tuple[Var, Any]] = []
        self._order = _Serial().__getitem__
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
        if isinstance(value, Range) and type(value.min) is type(value.extent) is IntImm:
            first, last = value.min.value, value.min.value + value.extent.value - 1
            least, most = ConstIntBound.of_dtype(var.dtype)
            if least <= first <= last <= most:
                self.let_range(var, first, last)
                return
        self._forget_about(var)
        if self.depth and self.wrap is None:
            self._bound_inside.append((var, value))
        if isinstance(value, Range):
            low = self.canonical_simplify(cast(var.dtype, value.min))
            high = self.canonical_simplify(low + cast(var.dtype, value.extent) - 1)
            self._ranges[var] = (low, high)
            least, most = self.const_int_bound(low)[0], self._range_top(low, value.extent, high)
            if least <= most:
                self._bounds[var] = ConstIntBound(least, most).intersect(
                    ConstIntBound.of_dtype(var.dtype)
                )
        else:
            self._values[var] = self.canonical_simplify(as_expr(value))
        self._forget_about(var)

    def let_range(self, var: Var, first: int, last: int) -> None:
        """Let `var`, whatever it was before, range over the numbers from `first` to `last`."""
        key = id(var)
        if key in self._bound_memo or key in self._memo or key in self._polys:
            self._forget()  # as `_forget_about`, which most passes would enter for each loop
        if self.depth and self.wrap is None:
            self._bound_inside.append((var, Range.from_min_extent(first, last - first + 1)))
        self._ranges[var] = (first, last)
        self._bounds[var] = as_bound((first, last))

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

    def modular_set(self, expr: Any) -> ModularSet:
        """``coeff * k + base``: all values that `expr` can have are of that form."""
        return modular.modular_set(self, as_expr(expr))

    def int_set(self, expr: Any, dom_map: Mapping[Var, IntSet] | None = None) -> IntervalSet:
        """An interval that covers `expr` while the variables in `dom_map` take all values of their
        sets; without it, while those with a range do.
        """
        return interval.int_set(self, expr, dom_map)

    def const_int_bound_is_bound(self, var: Var) -> bool:
        """Whether something is known of `var` beyond its dtype."""
        return var in self._bounds or var in self._values

    def update(self, var: Var, bound: Any, override: bool = False) -> None:
        """Set what is known about `var`: a `ConstIntBound`, a `ModularSet` or an `IntSet`. Without
        `override` it is added to what is known already.
        """
        self._forget()
        if isinstance(bound, ModularSet):
            old = self._modular.get(var)
            self._modular[var] = bound if override or old is None else old.intersect(bound)
            return
        if not isinstance(bound, ConstIntBound) and hasattr(bound, "min_value"):
            ends = self.const_int_bound(bound.min_value), self.const_int_bound(bound.max_value)
            bound = ConstIntBound(ends[0].min_value, ends[1].max_value)
        known = self._bounds.get(var)
        bound = ConstIntBound(*bound)
        self._bounds[var] = bound if known is None or override else known.intersect(bound)

    @contextmanager
    def constraint_scope(self, condition: PrimExpr) -> Iterator[None]:
        """Take `condition` for true inside the `with`."""
        condition = self.canonical_simplify(condition)
        if isinstance(condition, IntImm) and condition.value:
            yield  # nothing new
            return
        known = (dict(self._bounds), list(self._facts), dict(self._modular))
        remembered = (self._memo, self._polys, self._bound_memo, self._normal, self._fact_polys)
        binds = len(self._bound_inside)
        self._forget(new=True)
        self.depth += 1
        for fact in conjuncts(condition):
            self._assume(fact)
        self._forget()
        try:
            yield
        finally:
            self.depth -= 1
            self._bounds, self._facts, self._modular = known
            self._memo, self._polys, self._bound_memo, self._normal, self._fact_polys = remembered
            if len(self._bound_inside) > binds:
                # What was bound inside stays bound, as in TVM, to what it is without the condition.
                # (A pass binds the loops of a branch there, whose variables end with it.)
                self._forget()
                inside = self._bound_inside[binds:]
                del self._bound_inside[binds:]
                for var, value in inside:
                    self.bind(var, value, allow_override=True)

    def _assume(self, fact: PrimExpr) -> None:
        self._facts.append(fact)
        if isinstance(fact, CompareExpr):
            self._assume_bound(type(fact), fact.a, fact.b)
            self._assume_bound(SWAPPED[type(fact)], fact.b, fact.a)
            if type(fact) is EQ and is_scalar_int(fact.a):
                modular.assume(self, fact.a, fact.b)

    def _assume_bound(self, relation: type, left: PrimExpr, right: PrimExpr) -> None:
        if isinstance(left, IntImm) or not is_scalar_int(left):
            return
        low, high = self.const_int_bound(right)
        self._bound_memo.clear()
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
        self._bound_memo.clear()
        self._bounds[left] = known.intersect(ConstIntBound.of(low, high))
        self._bounded_exprs |= not isinstance(left, Var)

    @property
    def normal(self) -> Normal:
        """The forms of expressions in which proofs are made, under what is known now."""
        if self._normal is None:
            self._normal = Normal(self)
        return self._normal

    def wraps(self, dtype: DataType) -> bool:
        """Whether integers of `dtype` wrap."""
        if self.wrap is None:
            return dtype.kind != "int" or dtype.bits < 32
        return self.wrap

    def never_zero(self, divisor: PrimExpr) -> bool:
        """Whether a divisor is known not to be 0, or taken to be so."""
        low, high = self._bound_of(divisor)
        return low > 0 or high < 0 or (self.wrap is None and not low == high == 0)

    def _forget(self, new: bool = False) -> None:
        """Forget what followed from what was known.

        new  keep the old memory as it is, for whoever holds it
        """
        self._normal = None
        self._fact_polys = None
        if new:
            self._memo, self._polys, self._bound_memo = {}, {}, {}
            return
        self._memo.clear()
        self._polys.clear()
        self._bound_memo.clear()

    def _forget_about(self, var: Var) -> None:
        """Something else is known about `var` from here on. What is remembered of expressions
        stays where none of them mentions it: whatever looks at an expression has looked at its
        variables.
        """
        key = id(var)
        if key in self._memo or key in self._bound_memo or key in self._polys:
            self._forget()

    # -- bounds ------------------------------------------------------------------------------------

    def const_int_bound(self, expr: Any) -> ConstIntBound:
        """The least and greatest value of an integer expression, as far as known."""
        if not isinstance(expr, PrimExpr):
            expr = as_expr(expr)
        if type(expr) is IntImm:
            return as_bound((expr.value, expr.value))
        memo = self._bound_memo
        entry = memo.get(id(expr))
        if entry is None:
            for n in scalar_post_order(expr, memo):
                memo[id(n)] = (n, self._one_bound(n))
            entry = memo[id(expr)]
        return entry[1]

    def _one_bound(self, e: PrimExpr) -> ConstIntBound:
        if type(e) is IntImm:
            return as_bound((e.value, e.value))
        if e.dtype.is_bool:
            return ConstIntBound(0, 1)
        if not e.dtype.is_int:
            return ConstIntBound.everything()
        if isinstance(e, Var):
            return self._var_bound(e)
        whole = ConstIntBound.of_dtype(e.dtype)
        rule = BOUNDS.get(type(e))
        bound = rule(self, e) if rule is not None else whole
        if self._bounded_exprs and e in self._bounds:
            bound = bound.intersect(self._bounds[e])
        if whole[0] <= bound[0] and bound[1] <= whole[1]:
            return bound
        return whole if self.wraps(e.dtype) else bound

    def _var_bound(self, var: Var) -> ConstIntBound:
        bound = self._bounds.get(var)
        if bound is None and var in self._values:
            bound = self.const_int_bound(self._values[var])
        if bound is None:
            bound = self._values_of(var.dtype)
        if isinstance(var, SizeVar):
            bound = bound.intersect(ConstIntBound(0, POS_INF))
        return bound

    def _values_of(self, dtype: DataType) -> ConstIntBound:
        if self.wrap is False or (self.wrap is None and dtype.bits >= 64 and dtype.kind == "int"):
            return ConstIntBound.everything()
        return ConstIntBound.of_dtype(dtype)

    def _bound_of(self, e: PrimExpr) -> ConstIntBound:
        memo = self._bound_memo.get(id(e))
        return memo[1] if memo is not None else self.const_int_bound(e)

    def _poly_bound(self, poly: Poly) -> ConstIntBound:
        """The bound of a polynomial over mathematical integers."""
        low = high = 0
        for monomial, c in poly.terms.items():
            if not monomial:
                low, high = low + c, high + c
                continue
            known = self._bound_memo.get(id(monomial[0]))
            part = self.const_int_bound(monomial[0]) if known is None else known[1]
            for previous, factor in itertools.pairwise(monomial):
                square = factor is previous and len(monomial) == 2
                part = part.mul(self._bound_of(factor))
                if square:
                    part = part.intersect(ConstIntBound(0, POS_INF))
            least, most = part if c > 0 else part[::-1]
            low, high = low + c * least, high + c * most
        total = ConstIntBound.of(low, high)
        if len(poly.terms) > 2 and any(len(m) > 1 for m in poly.terms):
            return total.intersect(self._corner_bound(poly, 3))
        return total

    def _corner_bound(self, poly: Poly, variables: int) -> ConstIntBound:
        """The bound of a polynomial with products: it is extreme where a factor that occurs only
        once in each product is at one of its ends.
        """
        factors = {f for m in poly.terms if len(m) > 1 for f in m}
        shared = [f for f in factors if all(sum(g is f for g in m) < 2 for m in poly.terms)]
        # One factor of each product is enough to make the rest linear.
        shared = [f for f in shared if sum(f in m for m in poly.terms) > 1][:1]
        if not shared or not variables:
            return self._poly_bound(poly) if not factors else ConstIntBound.everything()
        factor = shared[0]
        slope: dict[Any, int] = {}
        rest: dict[Any, int] = {}
        for m, c in poly.terms.items():
            if factor in m:
                slope[tuple(f for f in m if f is not factor)] = c
            else:
                rest[m] = c
        low, high = self._bound_of(factor)
        results = []
        rising = self._poly_bound(Poly(slope))
        for end, other in ((low, high), (high, low)):
            if abs(end) < POS_INF:
                at_end = Poly(dict(rest))
                at_end = at_end + Poly(slope).scale(end)
                results.append(self._poly_bound(at_end))
            elif abs(other) >= POS_INF:
                return ConstIntBound.everything()
        if len(results) == 2:
            return results[0].union(results[1])
        (one,) = results
        up = rising.min_value >= 0 if high >= POS_INF else rising.max_value <= 0
        down = rising.max_value <= 0 if high >= POS_INF else rising.min_value >= 0
        return ConstIntBound(one.min_value if up else NEG_INF, one.max_value if down else POS_INF)

    def _exact(self, poly: Poly, expr: PrimExpr) -> bool:
        """Whether `poly`, over mathematical integers, is what `expr` is worth (nothing wraps)."""
        wraps = self.wraps(expr.dtype) if self.wrap is None else self.wrap
        return not wraps or self._poly_bound(poly).within(ConstIntBound.of_dtype(expr.dtype))

    # -- simplification ----------------------------------------------------------------------------

    def simplify(self, expr: Any, steps: int = 2) -> PrimExpr:
        """An equal expression: constants folded, like terms collected, decided comparisons
        replaced. Under TVM's assumptions (no `wrap`) the shorter of the canonical form and what is
        read back from the form for proofs.

        steps  accepted as in TVM; one pass reaches the end here
        """
        simple = self.canonical_simplify(expr)
        return simple if self.wrap is not None else self.normal.shorter(simple)

    rewrite_simplify = simplify

    def canonical_simplify(self, expr: Any) -> PrimExpr:
        """An equal expression in canonical form: sums of products in one order."""
        if type(expr) is IntImm:
            return expr
        if not isinstance(expr, PrimExpr):
            expr = as_expr(expr)
        known = None if self._values else self._memo.get(id(expr))
        if known is not None:
            return known[1]
        if self._values:
            bound = {n.var for n in walk(expr) if isinstance(n, Let)}
            expr = substitute(expr, {v: x for v, x in self._values.items() if v not in bound})
        stack: list[tuple[PrimExpr, bool]] = [(expr, False)]
        memo = self._memo
        while stack:
            e, ready = stack.pop()
            if id(e) in memo:
                continue
            if type(e) is Var or type(e) is IntImm:
                memo[id(e)] = (e, e)
                continue
            if type(e) is Add and type(e.b) is IntImm and type(e.a) not in _CHOICES:
                # Of unrolled loops there are many sums that differ by their last constants.
                if id(e.a) not in memo:
                    stack += [(e, False), (e.a, False)]
                    continue
                moved = self._plus(memo[id(e.a)][1], e.b.value)
                if moved is not None:
                    memo[id(e)] = (e, moved)
                    memo.setdefault(id(moved), (moved, moved))
                    continue
            if not ready and (parts := parts_of(e)):
                stack.append((e, True))
                for p in parts:
                    if id(p) not in memo:
                        stack.append((p, False))
                continue
            simple = self._simplify_one(e)
            memo[id(e)] = (e, simple)
            memo.setdefault(id(simple), (simple, simple))
        return memo[id(expr)][1]

    def __call__(self, expr: Any) -> PrimExpr:
        return self.simplify(expr)

    def _plus(self, e: PrimExpr, constant: int) -> PrimExpr | None:
        """A simplified expression and a constant, simplified; None where that takes more than
        another last constant.
        """
        terms, dtype = self._poly(e).terms, e.dtype
        old = terms.get((), 0)
        if dtype.kind != "int" or not any(c > 0 and m for m, c in terms.items()):
            return None
        new, bare = wrap_int(old + constant, dtype), e
        if old:
            if not isinstance(e, (Add, Sub)) or type(e.b) is not IntImm:
                return None
            bare = e.a
        if new < 0 and new != dtype.min_value:
            return Sub(bare, IntImm(dtype, -new))
        return Add(bare, IntImm(dtype, new)) if new else bare

    def _simplify_one(self, e: PrimExpr) -> PrimExpr:
        if isinstance(e, _RING) and e.dtype.is_int and e.dtype.lanes == 1:
            if type(e.a) in _CHOICES and (type(e.b) is not Add and type(e.b) is not Sub):
                a, b = self._memo[id(e.a)][1], self._memo[id(e.b)][1]
                changed = rewritten(type(e)(a, b))
                if changed is not None:
                    return self.canonical_simplify(changed)
            return self._from_poly(self._ring(e), e)
        memo, binds = self._memo, e.var if isinstance(e, Let) else None
        rebuilt = e._map_children_(
            lambda c: memo[id(c)][1] if isinstance(c, PrimExpr) and c is not binds else c
        )
        if not isinstance(rebuilt, type(e)):
            return rebuilt
        changed = rewritten(rebuilt)
        if changed is not None:
            return self.canonical_simplify(changed)
        rule = RULES.get(type(rebuilt))
        if rule is None:
            return rebuilt
        changed = rule(self, rebuilt)
        return rebuilt if changed is None else changed

    def _ring(self, e: PrimExpr) -> Poly:
        """The polynomial of an Add/Sub tree or a Mul whose parts are simplified already."""
        memo = self._memo
        if isinstance(e, Mul):
            x, y = memo[id(e.a)][1], memo[id(e.b)][1]
            expanded = self._poly(x).times(self._poly(y), self._order)
            poly = Poly.atom(Mul(x, y)) if expanded is None else expanded
            return self._collect(poly) if len(poly.terms) > 1 else poly
        terms: dict[Any, int] = {}
        for leaf, sign in summands(e):
            simple = memo[id(leaf)][1]
            if type(simple) is IntImm:
                terms[()] = terms.get((), 0) + sign * simple.value
            else:
                self._poly(simple).add_to(terms, sign)
        if terms.get(()) == 0:
            del terms[()]
        return self._collect(Poly(terms)) if len(terms) > 1 else Poly(terms)

    def _poly(self, e: PrimExpr) -> Poly:
        """The polynomial of a simplified expression."""
        entry = self._polys.get(id(e))
        if entry is not None:
            return entry[1]
        if isinstance(e, IntImm):
            poly = Poly({(): e.value} if e.value else {})
        elif isinstance(e, (Add, Sub)) and is_scalar_int(e):
            terms: dict[Any, int] = {}
            for leaf, sign in summands(e):
                self._poly(leaf).add_to(terms, sign)
            poly = Poly(terms)
        elif isinstance(e, Mul) and is_scalar_int(e):
            poly = self._poly(e.a).times(self._poly(e.b), self._order) or Poly.atom(e)
        else:
            poly = Poly({(e,): 1})
        self._polys[id(e)] = (e, poly)
        return poly

    def _from_poly(self, poly: Poly, like: PrimExpr) -> PrimExpr:
        poly = poly.wrapped(like.dtype)
        expr = build(poly, like.dtype, self._order)
        self._polys[id(expr)] = (expr, poly)
        return expr

    def _collect(self, poly: Poly) -> Poly:
        """Join ``k*c*(x // c) + k*(x % c)`` into ``k*x``; exact for every divisor but 0. In the
        remainder multiples of c may be missing: ``7*((13*i + j) // 7) + (6*i + j) % 7``.
        """
        for monomial in tuple(poly.terms):
            mod = monomial[0] if len(monomial) == 1 else None
            if not isinstance(mod, FloorMod) or monomial not in poly.terms:
                continue
            if not isinstance(mod.b, IntImm) or mod.b.value == 0:
                continue
            k = poly.terms[(mod,)]
            joined = self._find_quotient(poly, mod, k * mod.b.value)
            if joined is None:
                continue
            quotient, whole = joined
            terms = dict(poly.terms)
            del terms[(mod,)], terms[(quotient,)]
            self._poly(whole).add_to(terms, k)
            poly = Poly(terms)
        return poly

    def _find_quotient(
        self, poly: Poly, mod: FloorMod, coefficient: int
    ) -> tuple[PrimExpr, PrimExpr] | None:
        """(the quotient among the terms that belongs to `mod`, what both are of)"""
        for monomial, c in poly.terms.items():
            if c == coefficient and len(monomial) == 1 and isinstance(monomial[0], FloorDiv):
                q = monomial[0]
                if q.b is mod.b and (q.a is mod.a or self._same_remainder(q.a, mod.a, mod.b)):
                    return q, q.a
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
                    return q, mod.a
        return None

    def _same_remainder(self, a: PrimExpr, b: PrimExpr, divisor: Any) -> bool:
        """Whether two sums differ by multiples of `divisor` in some terms, and neither wraps."""
        x, y = self._poly(a), self._poly(b)
        gap = (x - y).terms
        return (
            all(c % divisor.value == 0 for c in gap.values())
            and self._exact(x, a)
            and self._exact(y, b)
        )

    # -- proofs ------------------------------------------------------------------------------------

    def can_prove(self, condition: Any, strength: Any = None) -> bool:
        """Whether the bool expression always holds, as far as this analyzer can see.

        strength  accepted as in TVM (a `ProofStrength`); symbolic bounds are always used here
        """
        if not isinstance(condition, PrimExpr):
            return bool(condition)
        simple = self.canonical_simplify(condition)
        if isinstance(simple, IntImm):
            return simple.value == 1
        if isinstance(simple, And):
            return all(self.can_prove(part) for part in conjuncts(simple))
        if isinstance(simple, Or):
            return self.can_prove(simple.a) or self.can_prove(simple.b)
        if any(fact is simple for fact in self._facts):
            return True
        if isinstance(simple, CompareExpr) and is_scalar_int(simple.a):
            if self._prove_comparison(simple):
                return True
        if not simple.dtype.is_bool or simple.dtype.lanes != 1 or self._is_linear(simple):
            return False
        form = self.normal.of(simple)
        return form is not None and form.is_const and form.const == 1

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
        if a.dtype.lanes == 1 and (a.dtype.is_int or a.dtype.is_bool):
            if a.dtype.is_int:
                difference = self.canonical_simplify(Sub(a, b))
                if isinstance(difference, IntImm):
                    return difference.value == 0
                if self._is_linear(difference):
                    return False
            x, y = self.canonical_simplify(a), self.canonical_simplify(b)
            if x is y:
                return True
            form = self.normal.difference(x, y)
            return form is not None and not form.wrapped(a.dtype).terms
        a, b = self.canonical_simplify(a), self.canonical_simplify(b)
        if isinstance(a, Broadcast) and isinstance(b, Broadcast):
            return self.can_prove_equal(a.value, b.value)
        return a is b

    def _is_linear(self, e: PrimExpr) -> bool:
        """Whether a simplified comparison or sum is one of plain variables: another form of it
        says nothing new.
        """
        sides = (e.a, e.b) if isinstance(e, CompareExpr) else (e,)
        return all(
            is_scalar_int(side)
            and all(len(m) < 2 and (not m or isinstance(m[0], Var)) for m in self._poly(side).terms)
            for side in sides
        )

    def can_prove_less(self, a: Any, b: Any) -> bool:
        """Whether a < b always."""
        return self.can_prove(as_expr(a) < b)

    def can_prove_less_equal(self, a: Any, b: Any) -> bool:
        """Whether a <= b always."""
        return self.can_prove(as_expr(a) <= b)

    def can_prove_greater(self, a: Any, b: Any) -> bool:
        """Whether a > b always."""
        return self.can_prove(as_expr(a) > b)

    def can_prove_greater_equal(self, a: Any, b: Any) -> bool:
        """Whether a >= b always."""
        return self.can_prove(as_expr(a) >= b)

    def _prove_comparison(self, e: CompareExpr, depth: int = 1) -> bool:
        if depth and (type(e.a) in _EXTREMES or type(e.b) in _EXTREMES):
            for one, other, kind in ((e.a, e.b, type(e)), (e.b, e.a, SWAPPED[type(e)])):
                if isinstance(one, _EXTREMES) and kind not in (EQ, NE):
                    # max(a, b) < c is a < c and b < c; min(a, b) < c follows from either.
                    every = isinstance(one, Max) == (kind in (LT, LE))
                    parts = (
                        self._prove_comparison(kind(p, other), depth - 1) for p in (one.a, one.b)
                    )
                    if all(parts) if every else any(parts):
                        return True
        a, b = self._poly(e.a), self._poly(e.b)
        if not (self._exact(a, e.a) and self._exact(b, e.b)):
            # With symbolic ranges the sums may still be exact; only equality holds modulo a power
            # of two.
            return False
        difference = a - b
        kind = type(e)
        if kind in (GT, GE):
            difference = b - a
            kind = SWAPPED[kind]
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
            step = self._eliminate(poly) or self._eliminate_quotient(poly)
            step = step or self._eliminate_quotients(poly)
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
            if isinstance(end, (int, IntImm)):
                continue
            terms = dict(poly.terms)
            del terms[monomial]
            self._poly(self.canonical_simplify(end)).add_to(terms, c)
            return Poly(terms)
        return None

    def _eliminate_quotient(self, poly: Poly) -> Poly | None:
        """Replace ``k * (x // c)``, k a multiple of c > 0, by what bounds it:
        ``x - c + 1 <= c * (x // c) <= x``; C's quotient may be c - 1 above, too.
        """
        for monomial, k in poly.terms.items():
            q = monomial[0] if len(monomial) == 1 else None
            if not isinstance(q, (FloorDiv, Div)) or not isinstance(q.b, IntImm):
                continue
            c = q.b.value
            if c <= 0 or k % c or any(q in m for m in poly.terms if len(m) > 1):
                continue
            x = self._poly(q.a)
            if not self._exact(x, q.a):
                continue
            terms = dict(poly.terms)
            del terms[monomial]
            x.add_to(terms, k // c)
            if k < 0 or isinstance(q, Div):
                Poly.constant(c - 1).add_to(terms, abs(k) // c)
            return Poly(terms)
        return None

    def _eliminate_quotients(self, poly: Poly) -> Poly | None:
        """Replace ``k * (x // c - y // c)``, k and c > 0, by what bounds it where ``x - y <= d``:
        ``x // c - y // c <= ceil(d / c)``.
        """
        ups: dict[tuple[int, int], Any] = {}
        for sign in (1, -1):
            for monomial, k in poly.terms.items():
                q = monomial[0] if len(monomial) == 1 else None
                if not isinstance(q, FloorDiv) or not isinstance(q.b, IntImm) or k * sign <= 0:
                    continue
                c, times = q.b.value, abs(k)
                if c <= 0 or any(q in m for m in poly.terms if len(m) > 1):
                    continue
                if sign > 0:
                    ups[c, times] = q
                    continue
                up = ups.get((c, times))
                if up is None:
                    continue
                x, y = self._poly(up.a), self._poly(q.a)
                if not (self._exact(x, up.a) and self._exact(y, q.a)):
                    continue
                most = self._upper(x - y)
                if most >= POS_INF:
                    continue
                terms = {m: n for m, n in poly.terms.items() if m not in ((up,), (q,))}
                Poly.constant(-(-most // c) * times).add_to(terms, 1)
                return Poly(terms)
        return None

    def _upper_by_facts(self, poly: Poly, depth: int = 3) -> int:
        """Add assumed inequalities ``p <= 0``, each of which makes `poly` greater, until nothing
        but a constant or something bounded is left.
        """
        best = POS_INF
        for fact in self._known_inequalities() if depth else ():
            rest = poly - fact
            if sum(map(bool, rest.terms)) > sum(map(bool, poly.terms)):
                continue
            best = min(best, self._poly_bound(rest).max_value)
            if not rest.is_const:
                best = min(best, self._upper_by_facts(rest, depth - 1))
        return best

    def _known_inequalities(self) -> list[Poly]:
        """What is assumed, as polynomials that are at most 0."""
        if self._fact_polys is None:
            self._fact_polys = []
            for fact in self._facts:
                if not isinstance(fact, CompareExpr) or not is_scalar_int(fact.a):
                    continue
                a, b = self._poly(fact.a), self._poly(fact.b)
                if not (self._exact(a, fact.a) and self._exact(b, fact.b)):
                    continue
                for relation, low, high in ((type(fact), a, b), (SWAPPED[type(fact)], b, a)):
                    slack = _SLACK.get(relation)
                    if slack is not None:
                        self._fact_polys.append(low - high + Poly.constant(slack))
        return self._fact_polys


# -- without an analyzer ---------------------------------------------------------------------------


def simplify(expr: Any) -> PrimExpr:
    """`expr` in canonical form, knowing nothing about its variables; integers wrap."""
    return Analyzer(wrap=True).simplify(expr)


def prove_equal(a: Any, b: Any) -> bool:
    """Whether two shape expressions are always equal, as mathematical integers: ``n + 1`` and ``1
    + n``.
    """
    return Analyzer(wrap=False).can_prove_equal(a, b)


def can_prove(condition: Any) -> bool:
    """Whether a condition on shapes always holds, as mathematical integers."""
    return Analyzer(wrap=False).can_prove(condition)
