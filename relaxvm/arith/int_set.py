"""Sets of integers as users know them, and the regions that loops reach."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..ir import EQ, GE, GT, LE, LT, IntImm, Max, Min, PrimExpr, Range, Var, as_expr, walk
from .affine import as_number, number_of
from .analyzer import Analyzer
from .interval import Ends, ends_of, int_set, is_finite, set_of
from .interval import IntervalSet as IntervalSet
from .interval import IntSet as IntSet
from .interval import neg_inf as neg_inf
from .interval import pos_inf as pos_inf
from .iter_map import IterMapper
from .tree import SWAPPED, conjuncts


def union_lower_bound(sets: Sequence[IntSet]) -> IntervalSet:
    """An interval inside the union of `sets`: what they cover from the first on, as far as each is
    known to overlap or touch the one before. Sets that do not are left out.
    """
    known = Analyzer()
    ops = Ends(known, known.simplify)
    union: IntervalSet = IntSet.nothing()
    left = [s for s in sets if not s.is_nothing()]
    while left:
        joined = next((s for s in left if union.is_nothing() or _touch(ops, union, s)), None)
        if joined is None:
            break
        left.remove(joined)
        one = joined if union.is_nothing() else union
        union = set_of(ops.union(ends_of(one), ends_of(joined)))
    return union


def _touch(ops: Ends, a: IntSet, b: IntSet) -> bool:
    return _reaches(ops, a.max_value, b.min_value) and _reaches(ops, b.max_value, a.min_value)


def _reaches(ops: Ends, high: PrimExpr, low: PrimExpr) -> bool:
    if not (is_finite(high) and is_finite(low)):
        return high is pos_inf() or low is neg_inf()
    return ops.known.can_prove(low <= high + 1)


# -- regions ---------------------------------------------------------------------------------------


def estimate_region_upper_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: Any = True,
    analyzer: Analyzer | None = None,
) -> list[IntervalSet]:
    """What covers each dimension of a region while the variables take the values of their ranges
    for which `predicate` holds. Values that are not reached may be covered too.
    """
    known = analyzer or Analyzer()
    domains = {v: IntSet.from_range(r) for v, r in var_dom.items()}
    hulls = []
    for r in region:
        exact = _reached([r], var_dom, predicate, known, hull=True)
        if exact is None:
            low = int_set(known, known.simplify(r.min), domains)
            high = int_set(known, known.simplify(r.min + r.extent - 1), domains)
            exact = [IntervalSet(low.min_value, high.max_value)]
        hulls += exact
    return hulls


def estimate_region_strict_bound(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: Any = True,
    analyzer: Analyzer | None = None,
) -> list[IntervalSet] | None:
    """Exactly what a region covers, dimension by dimension, or None if that is no box for certain:
    the dimensions must depend on different variables, or different digits of one, without gaps,
    and each condition in `predicate` on one dimension.
    """
    return _reached(region, var_dom, predicate, analyzer or Analyzer(), hull=False)


# What is covered exactly is the best that is certainly covered.
estimate_region_lower_bound = estimate_region_strict_bound


def _reached(
    region: Sequence[Range],
    var_dom: Mapping[Var, Range],
    predicate: Any,
    known: Analyzer,
    hull: bool,
) -> list[IntervalSet] | None:
    """The least interval around each dimension; unless `hull` is enough, only where it is what is
    covered.
    """
    mapper = IterMapper({v: (r.min, r.extent) for v, r in var_dom.items()}, known)
    facts = [f for f in conjuncts(known.canonical_simplify(predicate)) if not isinstance(f, IntImm)]
    totals = []
    intervals = []
    for r in region:
        first, width = known.canonical_simplify(r.min), number_of(known.simplify(r.extent))
        total = mapper.sum_of(first)
        if total is None or any(n in var_dom for n in walk(as_expr(width))):
            return None
        around = mapper.ends(total)
        if around is None:
            return None
        low, high = around
        if not hull and mapper.dense_extent(mapper.rising(total), width) is None:
            return None
        ends = IntervalSet(as_number(low, first.dtype), as_number(high, first.dtype))
        for fact in list(facts):
            limit = _limit(mapper, fact, total)
            if limit is not None:
                facts.remove(fact)
                ends = _clipped(known, ends, total, *limit)
        totals.append(total)
        top = known.simplify(ends.max_value + as_number(width, first.dtype) - 1)
        intervals.append(IntervalSet(known.simplify(ends.min_value), top))
    if hull or not (facts or (len(region) > 1 and not mapper.independent(totals))):
        return intervals
    return None


def _limit(mapper: IterMapper, fact: PrimExpr, total: Any) -> tuple[Any, Any, int] | None:
    """A comparison as (least, greatest, factor) of the terms of a sum, without its base and
    divided by the factor; None ends are open.
    """
    if not isinstance(fact, (EQ, LT, LE, GT, GE)):
        return None
    a, b = mapper.sum_of(fact.a), mapper.sum_of(fact.b)
    if a is None or b is None or not total.args:
        return None
    both = mapper.minus(a, b)
    if len(both.args) != len(total.args):
        return None
    for sign in (1, -1):
        factor = mapper.multiple(total.args[0].scale, mapper.mul(both.args[0].scale, sign))
        if not isinstance(factor, int) or factor <= 0:
            continue
        scaled = mapper.times(both, sign * factor)
        if mapper.minus(scaled, total).args:
            continue
        # sign * terms + base OP 0
        kind: Any = type(fact) if sign > 0 else SWAPPED[type(fact)]
        point = mapper.mul(both.base, -sign)
        low = {GE: point, GT: mapper.add(point, 1), EQ: point}.get(kind)
        high = {LE: point, LT: mapper.sub(point, 1), EQ: point}.get(kind)
        return low, high, factor
    return None


def _clipped(
    known: Analyzer, ends: IntervalSet, total: Any, low: Any, high: Any, factor: int
) -> IntervalSet:
    ops, dtype = Ends(known, known.simplify), ends.min_value.dtype
    base = as_number(total.base, dtype)
    first, last = ends.min_value, ends.max_value
    if low is not None:
        first = ops.extreme(Max, first, as_number(low, dtype) * factor + base)
    if high is not None:
        last = ops.extreme(Min, last, as_number(high, dtype) * factor + base)
    return IntervalSet(first, last)
