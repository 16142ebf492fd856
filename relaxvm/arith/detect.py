"""Forms that other passes look for: linear sums, clips, bounds of one variable, repeated parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    Add,
    CompareExpr,
    FloorDiv,
    IntImm,
    Max,
    Min,
    Mul,
    PrimExpr,
    Sub,
    Var,
    as_expr,
    const,
    post_order,
    walk,
)
from .analyzer import Analyzer
from .interval import IntervalSet, IntSet, int_set, neg_inf, pos_inf
from .poly import Poly
from .tree import SWAPPED, conjuncts


def detect_linear_equation(expr: Any, var_list: Sequence[Var]) -> list[PrimExpr]:
    """The coefficients of the variables in ``sum(var * coefficient) + base``, then the base; an
    empty list if `expr` is not of that form.
    """
    expr = as_expr(expr)
    known = Analyzer()
    parts = linear_parts(known, known._poly(known.canonical_simplify(expr)), var_list)
    return [] if parts is None else [known.simplify(known._from_poly(p, expr)) for p in parts]


def linear_parts(known: Analyzer, poly: Poly, var_list: Sequence[Var]) -> list[Poly] | None:
    """A polynomial as coefficients of variables and the rest, none of which mention them."""
    place: dict[Any, int] = {v: k for k, v in enumerate(var_list)}
    parts = [Poly() for _ in range(len(var_list) + 1)]
    for monomial, c in poly.terms.items():
        mine = [f for f in monomial if f in place]
        others = tuple(f for f in monomial if f not in place)
        if len(mine) > 1 or any(n in place for f in others for n in walk(f)):
            return None
        parts[place[mine[0]] if mine else -1] += Poly({others: c})
    return parts


def detect_clip_bound(expr: Any, var_list: Sequence[Var]) -> list[PrimExpr | None]:
    """The least and the greatest value that a conjunction of comparisons allows each variable, in
    the order of the variables; None where it says nothing. An empty list if one of the comparisons
    is not about exactly one of the variables.
    """
    known = Analyzer()
    ends: dict[Var, list[PrimExpr | None]] = {v: [None, None] for v in var_list}
    # What is asked is simplified one condition at a time: together they would imply each other.
    work = [known.canonical_simplify(c) for c in conjuncts(as_expr(expr))]
    while work:
        e = work.pop()
        if not isinstance(e, CompareExpr):
            return []
        split = _split_extremum(e)
        if split is not None:
            work += split
            continue
        bound = _clip(known, e, var_list)
        if bound is None:
            return []
        var, low, high = bound
        for k, kind, end in ((0, Max, low), (1, Min, high)):
            if end is not None:
                old = ends[var][k]
                ends[var][k] = known.simplify(end if old is None else kind(old, end))
    return [end for v in var_list for end in ends[v]]


def _split_extremum(e: Any) -> list[PrimExpr] | None:
    for one, other, kind in ((e.a, e.b, type(e)), (e.b, e.a, SWAPPED[type(e)])):
        if (isinstance(one, Min) and kind in (GT, GE)) or (
            isinstance(one, Max) and kind in (LT, LE)
        ):
            return [kind(one.a, other), kind(one.b, other)]
    return None


def _clip(known: Analyzer, e: CompareExpr, var_list: Sequence[Var]) -> Any:
    """(variable, least, greatest) of one comparison."""
    parts = linear_parts(known, known._poly(e.a) - known._poly(e.b), var_list)
    if parts is None:
        return None
    used = [(v, p) for v, p in zip(var_list, parts) if p.terms]
    if len(used) != 1 or not used[0][1].is_const or not isinstance(e, (EQ, LT, LE, GT, GE)):
        return None
    var, c = used[0][0], used[0][1].const
    kind: Any = type(e) if c > 0 else SWAPPED[type(e)]
    # |c| * var OP limit
    limit = known._from_poly(parts[-1].scale(-1 if c > 0 else 1), var)
    by = const(abs(c), var.dtype)
    up, down = (limit + by - 1) // by, limit // by
    strictly = {LT: (None, (limit - 1) // by), GT: ((limit + by) // by, None)}
    low, high = strictly.get(kind) or {LE: (None, down), GE: (up, None), EQ: (up, down)}[kind]
    return var, low, high


def deduce_bound(
    var: Var,
    cond: Any,
    hint_map: Mapping[Var, IntSet] | None = None,
    relax_map: Mapping[Var, IntSet] | None = None,
) -> IntervalSet:
    """For which values of `var` a comparison holds, whatever the variables in `relax_map` are in
    their sets.

    hint_map  sets that decide the signs of factors; their variables stay in the result
    Returns the empty set where that cannot be said: `var` does not occur exactly once, or under
    something else than +, -, * and // by what is not 0.
    """
    cond = as_expr(cond)
    if not isinstance(cond, (EQ, LT, LE, GT, GE)):
        return IntSet.nothing()
    sides = [sum(n is var for n in _tree_leaves(e)) for e in (cond.a, cond.b)]
    if sum(sides) != 1:
        return IntSet.nothing()
    e, rest = (cond.a, cond.b) if sides[0] else (cond.b, cond.a)
    kind = type(cond) if sides[0] else SWAPPED[type(cond)]
    if kind in (LT, GT):
        rest, kind = (rest - 1, LE) if kind is LT else (rest + 1, GE)
    known = Analyzer()
    for v, s in {**(hint_map or {}), **(relax_map or {})}.items():
        known.update(v, s)
    return _Deduction(known, relax_map or {}).solve(var, e, kind, rest)


class _Deduction:
    def __init__(self, known: Analyzer, relax: Mapping[Var, IntSet]) -> None:
        self.known, self.relax = known, relax

    def solve(self, var: Var, e: Any, kind: Any, rest: PrimExpr) -> IntervalSet:
        """e OP rest, e the side with the variable."""
        while e is not var:
            step = _INVERSES.get(type(e))
            if step is None:
                return IntSet.nothing()
            in_a = any(n is var for n in walk(e.a))
            solved = step(self, e, in_a, kind, rest)
            if solved is None:
                return IntSet.nothing()
            kind, rest = solved
            e = e.a if in_a else e.b
        return self._set(kind, rest)

    def _set(self, kind: Any, rest: PrimExpr) -> IntervalSet:
        ends = int_set(self.known, self.known.simplify(rest), self.relax)
        if kind is EQ:
            return ends if ends.is_single_point() else IntSet.nothing()
        if kind is LE:
            return IntervalSet(neg_inf(), ends.min_value)
        return IntervalSet(ends.max_value, pos_inf())

    def sign(self, e: PrimExpr) -> int:
        low, high = self.known.const_int_bound(e)
        return 1 if low > 0 else -1 if high < 0 else 0

    def relaxed(self, kind: Any, rest: PrimExpr) -> PrimExpr | None:
        """The right side at its worst, before it is divided."""
        if not any(n in self.relax for n in walk(rest)):
            return rest
        ends = int_set(self.known, self.known.simplify(rest), self.relax)
        worst = ends.min_value if kind is LE else ends.max_value
        return None if kind is EQ or worst in (neg_inf(), pos_inf()) else worst

    def undo_sum(self, e: Any, in_a: bool, kind: Any, rest: PrimExpr) -> Any:
        if isinstance(e, Add):
            return kind, rest - (e.b if in_a else e.a)
        return (kind, rest + e.b) if in_a else (SWAPPED[kind], e.a - rest)

    def undo_product(self, e: Any, in_a: bool, kind: Any, rest: PrimExpr) -> Any:
        factor = e.b if in_a else e.a
        sign = self.sign(factor)
        worst = self.relaxed(kind, rest)
        if not sign or worst is None or any(n in self.relax for n in walk(factor)):
            return None
        if kind is EQ:
            if not self.known.can_prove_equal(worst % factor, const(0, factor.dtype)):
                return None
            return EQ, worst // factor
        # v * f <= r is v <= r / f; a quotient that bounds from below is rounded up.
        kind = kind if sign > 0 else SWAPPED[kind]
        up = worst + factor - 1 if sign > 0 else worst + factor + 1
        return kind, (worst if kind is LE else up) // factor

    def undo_quotient(self, e: Any, in_a: bool, kind: Any, rest: PrimExpr) -> Any:
        by = e.b
        sign = self.sign(by)
        if not in_a or not sign or kind is EQ:
            return None
        # v // c <= r is v // c < r + 1
        if kind is LE:
            edge = (rest + 1) * by
            return (LE, edge - 1) if sign > 0 else (GE, edge + 1)
        return (GE, rest * by) if sign > 0 else (LE, rest * by)


_INVERSES: dict[type, Callable[..., Any]] = {
    Add: _Deduction.undo_sum,
    Sub: _Deduction.undo_sum,
    Mul: _Deduction.undo_product,
    FloorDiv: _Deduction.undo_quotient,
}


def _tree_leaves(e: PrimExpr) -> list[PrimExpr]:
    """The leaves of an expression, as often as they are written."""
    counts = occurrences(e)
    return [n for n, count in counts.items() for _ in range(min(count, 2)) if isinstance(n, Var)]


def occurrences(expr: PrimExpr) -> dict[PrimExpr, int]:
    """How often each part of an expression is written in it; equal parts are one object."""
    counts: dict[Any, int] = {}
    order = [n for n in post_order(expr) if isinstance(n, PrimExpr)]
    counts[expr] = 1
    for n in reversed(order):
        for child in n._children_:
            if isinstance(child, PrimExpr):
                counts[child] = counts.get(child, 0) + counts[n]
    return counts


def detect_common_subexpr(expr: Any, threshold: int) -> dict[PrimExpr, int]:
    """The operations that `expr` contains at least `threshold` times, and how often."""
    counts = occurrences(as_expr(expr))
    return {
        e: n
        for e, n in counts.items()
        if n >= threshold and e._children_ and not isinstance(e, IntImm)
    }
