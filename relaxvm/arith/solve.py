"""Systems of linear equations and inequalities over the integers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import gcd
from typing import Any

from ..base import NamedTuple, TIRError
from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    CompareExpr,
    IntImm,
    Max,
    Min,
    PrimExpr,
    Range,
    Var,
    as_expr,
    const,
    substitute,
    walk,
)
from .analyzer import Analyzer
from .bound import POS_INF
from .detect import linear_parts
from .poly import Poly
from .tree import conjuncts


class IntConstraints(NamedTuple):
    """Conditions on variables: their ranges, and relations between them."""

    variables: tuple[Var, ...] = ()
    ranges: Mapping[Var, Range] = {}
    relations: tuple[PrimExpr, ...] = ()


class IntConstraintsTransform(NamedTuple):
    """The same conditions in other variables, and how the variables follow from each other."""

    src: IntConstraints
    dst: IntConstraints
    src_to_dst: Mapping[Var, PrimExpr]
    dst_to_src: Mapping[Var, PrimExpr]


def _given(equations: Any, variables: Any, ranges: Any) -> IntConstraints:
    if isinstance(equations, IntConstraints):
        if variables is not None or ranges is not None:
            raise TIRError("give an IntConstraints alone, or equations, variables and ranges")
        return equations
    return IntConstraints(tuple(variables or ()), dict(ranges or {}), tuple(equations))


_UNSOLVABLE = IntConstraints((), {}, (const(False),))


def solve_linear_equations(
    equations: Sequence[PrimExpr] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
) -> IntConstraintsTransform:
    """All integer solutions of linear equations, in as few new variables as needed.

    Relations that are no equations, or not linear, are kept with the solution put in. The new
    variables get ranges where those of the old ones give them; what the ranges say beyond that is
    in ``dst.relations``. Without a solution ``dst.relations`` is (False,).
    Source: Hermite normal form by column operations.
    """
    src = _given(equations, variables, ranges)
    known = Analyzer()
    variables = src.variables
    if not variables:
        return IntConstraintsTransform(src, src, {}, {})
    dtype = variables[0].dtype
    rows: list[tuple[list[int], Poly]] = []
    kept: list[PrimExpr] = []
    for e in src.relations:
        row = _row(known, e, variables) if isinstance(e, EQ) else None
        if row is None:
            kept.append(e)
        else:
            rows.append(row)
    # x = moves * y turns the equations into a triangular system in y.
    count = len(variables)
    moves = [[int(i == j) for j in range(count)] for i in range(count)]
    matrix = [list(row) for row, _ in rows]
    solved: list[Poly] = []  # y[k] for the first pivots
    for i, (_, rest) in enumerate(rows):
        pivot = len(solved)
        _reduce_row(matrix, moves, i, pivot)
        # row . y + rest == 0
        for k, y in enumerate(solved):
            rest = rest + y.scale(matrix[i][k])
        head = matrix[i][pivot] if pivot < count else 0
        if head == 0:
            if not rest.terms:
                continue
            if rest.is_const:
                return IntConstraintsTransform(src, _UNSOLVABLE, {}, {})
            kept.append(EQ(known._from_poly(rest, variables[0]), const(0, dtype)))
            continue
        quotient = rest.scale(-1 if head > 0 else 1)
        by, wrong = abs(head), None
        q = Poly({m: c // by for m, c in quotient.terms.items()})
        left = quotient - q.scale(by)
        if left.terms:
            if left.is_const:
                return IntConstraintsTransform(src, _UNSOLVABLE, {}, {})
            whole = known._from_poly(quotient, variables[0])
            wrong = EQ(whole % const(by, dtype), const(0, dtype))
            q = known._poly(known.canonical_simplify(whole // const(by, dtype)))
        if wrong is not None:
            kept.append(wrong)
        solved.append(q)
    free = [Var(f"n{k}", dtype) for k in range(count - len(solved))]
    ys = [*solved, *(Poly.atom(v) for v in free)]
    forward: dict[Var, PrimExpr] = {}
    values: dict[Var, Poly] = {}
    for i, v in enumerate(variables):
        total = Poly()
        for k, y in enumerate(ys):
            total = total + y.scale(moves[i][k])
        values[v] = total
        forward[v] = known.simplify(known._from_poly(total, v))
    inverse = _inverse(moves)
    back = {
        v: known.simplify(
            known._from_poly(
                Poly(
                    {
                        (x,): inverse[len(solved) + k][i]
                        for i, x in enumerate(variables)
                        if inverse[len(solved) + k][i]
                    }
                ),
                v,
            )
        )
        for k, v in enumerate(free)
    }
    relations = [known.simplify(substitute(e, forward)) for e in kept]
    new_ranges, more = _new_ranges(known, src.ranges, values, free)
    relations = [e for e in (*more, *relations) if not (isinstance(e, IntImm) and e.value)]
    if any(isinstance(e, IntImm) for e in relations):
        return IntConstraintsTransform(src, _UNSOLVABLE, {}, {})
    dst = IntConstraints(tuple(free), new_ranges, tuple(relations))
    return IntConstraintsTransform(src, dst, forward, back)


def _row(known: Analyzer, e: Any, variables: Sequence[Var]) -> tuple[list[int], Poly] | None:
    """a - b as coefficients and a rest without the variables; None if it is not linear."""
    a, b = known.canonical_simplify(e.a), known.canonical_simplify(e.b)
    parts = linear_parts(known, known._poly(a) - known._poly(b), variables)
    if parts is None or not all(p.is_const for p in parts[:-1]):
        return None
    return [p.const for p in parts[:-1]], parts[-1]


def _reduce_row(matrix: list[list[int]], moves: list[list[int]], i: int, pivot: int) -> None:
    """Column operations after which row i has at most one number from `pivot` on."""
    both = [*matrix[i:], *moves]
    row = matrix[i]
    while True:
        nonzero = [k for k in range(pivot, len(row)) if row[k]]
        if not nonzero:
            return
        least = min(nonzero, key=lambda k: abs(row[k]))
        if least != pivot:
            for r in both:
                r[least], r[pivot] = r[pivot], r[least]
        if len(nonzero) == 1:
            return
        for k in range(pivot + 1, len(row)):
            factor = row[k] // row[pivot]
            if factor:
                for r in both:
                    r[k] -= factor * r[pivot]


def _inverse(moves: list[list[int]]) -> list[list[int]]:
    """The inverse of a matrix of whole column operations, itself whole."""
    n = len(moves)
    work = [list(row) + [int(i == j) for j in range(n)] for i, row in enumerate(moves)]
    for k in range(n):
        while True:
            nonzero = [i for i in range(k, n) if work[i][k]]
            least = min(nonzero, key=lambda i: abs(work[i][k]))
            work[k], work[least] = work[least], work[k]
            if len(nonzero) == 1:
                break
            for i in range(k + 1, n):
                factor = work[i][k] // work[k][k]
                work[i] = [x - factor * y for x, y in zip(work[i], work[k])]
        if work[k][k] < 0:
            work[k] = [-x for x in work[k]]
        for i in range(k):
            factor = work[i][k]
            work[i] = [x - factor * y for x, y in zip(work[i], work[k])]
    return [row[n:] for row in work]


def _new_ranges(
    known: Analyzer,
    ranges: Mapping[Var, Range],
    values: Mapping[Var, Poly],
    free: Sequence[Var],
) -> tuple[dict[Var, Range], list[PrimExpr]]:
    """Ranges of the new variables from the old ones, and what those say beyond that."""
    lower: dict[Var, list[PrimExpr]] = {v: [] for v in free}
    upper: dict[Var, list[PrimExpr]] = {v: [] for v in free}
    more: list[PrimExpr] = []
    for v, r in ranges.items():
        if v not in values:
            continue
        first, last = known.simplify(r.min), known.simplify(r.min + r.extent - 1)
        parts = linear_parts(known, values[v], free)
        used = [(x, p.const) for x, p in zip(free, parts or ()) if p.terms and p.is_const]
        value = known._from_poly(values[v], v)
        if parts is None or len(used) != 1 or sum(bool(p.terms) for p in parts[:-1]) != 1:
            more += [known.simplify(first <= value), known.simplify(value <= last)]
            continue
        x, c = used[0]
        rest = known._from_poly(parts[-1], v)
        low, high = first - rest, last - rest
        if c < 0:
            low, high, c = rest - last, rest - first, -c
        by = const(c, x.dtype)
        lower[x].append(known.simplify((low + by - 1) // by))
        upper[x].append(known.simplify(high // by))
    new_ranges: dict[Var, Range] = {}
    for x in free:
        if not lower[x]:
            continue
        low = _best(known, lower[x], Max)
        high = _best(known, upper[x], Min)
        new_ranges[x] = Range.from_min_extent(low, known.simplify(high - low + 1))
    return new_ranges, more


def _best(known: Analyzer, ends: list[PrimExpr], kind: Any) -> PrimExpr:
    total = ends[0]
    for e in ends[1:]:
        total = kind(total, e)
    return known.simplify(total)


def solve_linear_inequalities(
    equations: Sequence[PrimExpr] | IntConstraints,
    variables: Sequence[Var] | None = None,
    ranges: Mapping[Var, Range] | None = None,
    deskew_range: bool = False,
) -> IntConstraints | IntConstraintsTransform:
    """A range for each variable that linear comparisons bound from both sides, in terms of the
    variables after it.

    What is no such bound stays in `relations`, so that ranges and relations together allow what
    the comparisons and the given ranges allow; (False,) if that is nothing. `deskew_range` gives
    new variables that start at 0, as an `IntConstraintsTransform`.
    Source: Fourier-Motzkin elimination.
    """
    src = _given(equations, variables, ranges)
    known = Analyzer()
    rows, relations = _inequalities(known, src)
    bounds: list[tuple[Var, list[tuple[int, Poly]], list[tuple[int, Poly]]]] = []
    for v in src.variables:
        lower = [(c, p) for p in rows if (c := p.terms.get((v,), 0)) < 0]
        upper = [(c, p) for p in rows if (c := p.terms.get((v,), 0)) > 0]
        bounds.append((v, lower, upper))
        rows = [p for p in rows if (v,) not in p.terms]
        for c1, low in lower:
            for c2, high in upper:
                g = gcd(c1, c2)
                rows.append(_tight(low.scale(c2 // g) + high.scale(-c1 // g)))
        rows = _distinct(rows)
    if any(p.is_const for p in rows):
        empty = IntConstraints((), {}, (const(False),))
        return IntConstraintsTransform(src, empty, {}, {}) if deskew_range else empty
    if src.variables:
        zero = const(0, src.variables[0].dtype)
        relations += [LE(known._from_poly(p, zero), zero) for p in rows]
    solved: dict[Var, Range] = {}
    for v, lower, upper in reversed(bounds):  # an end mentions only variables after its own
        r = _range_of(known, v, lower, upper) if lower and upper else None
        if r is not None:
            solved[v] = r
            one = isinstance(r.extent, IntImm) and r.extent.value == 1
            known.bind(v, r.min if one else r, allow_override=True)
    for v, lower, upper in bounds:
        relations += [_relation(known, v, c, p) for c, p in (*lower, *upper)]
    left = [e for e in dict.fromkeys(relations) if not known.can_prove(e)]
    solution = IntConstraints(src.variables, solved, tuple(left))
    return _deskewed(src, solution) if deskew_range else solution


def _inequalities(known: Analyzer, src: IntConstraints) -> tuple[list[Poly], list[PrimExpr]]:
    """What is asked as polynomials that are at most 0, and what is not linear."""
    facts = [part for e in src.relations for part in conjuncts(as_expr(e))]
    for v, r in src.ranges.items():
        if v in src.variables:
            facts += [v >= r.min, v < r.min + r.extent]
    rows: list[Poly] = []
    other: list[PrimExpr] = []
    for e in facts:
        parts = None
        if isinstance(e, (EQ, LT, LE, GT, GE)):
            a, b = known.canonical_simplify(e.a), known.canonical_simplify(e.b)
            difference = known._poly(a) - known._poly(b)
            parts = linear_parts(known, difference, src.variables)
        if parts is None or not all(p.is_const for p in parts[:-1]):
            other.append(e)
            continue
        assert isinstance(e, CompareExpr)
        if isinstance(e, (LT, LE, EQ)):
            rows.append(difference + Poly.constant(int(isinstance(e, LT))))
        if isinstance(e, (GT, GE, EQ)):
            rows.append(difference.scale(-1) + Poly.constant(int(isinstance(e, GT))))
    return _distinct([_tight(p) for p in rows]), other


def _tight(p: Poly) -> Poly:
    """The same inequality without a common factor, its constant rounded."""
    return p if p.content < 2 else p.over_up(p.content)


def _distinct(rows: list[Poly]) -> list[Poly]:
    """Each sum once, with its strictest constant."""
    best: dict[Any, Poly] = {}
    for p in rows:
        key = frozenset((m, c) for m, c in p.terms.items() if m)
        if key not in best or best[key].const < p.const:
            best[key] = p
    return [p for p in best.values() if not p.is_const or p.const > 0]


def _end(known: Analyzer, v: Var, c: int, p: Poly) -> PrimExpr:
    """The end of v that c * v + rest <= 0 gives: rounded up from below, down from above."""
    rest = p - Poly({(v,): c})
    by = const(abs(c), v.dtype)
    if c > 0:
        return known.simplify(known._from_poly(rest.scale(-1), v) // by)
    return known.simplify((known._from_poly(rest, v) + by - 1) // by)


def _range_of(known: Analyzer, v: Var, lower: Any, upper: Any) -> Range | None:
    lows = [_end(known, v, c, p) for c, p in lower]
    highs = [_end(known, v, c, p) for c, p in upper]
    low, high = _best(known, lows, Max), _best(known, highs, Min)
    extent = known.simplify(high - low + 1)
    if any(isinstance(n, Var) for n in walk(extent)):
        top = known.const_int_bound(extent).max_value
        if abs(top) < POS_INF:
            extent = const(max(top, 0), v.dtype)
    return Range.from_min_extent(low, extent)


def _relation(known: Analyzer, v: Var, c: int, p: Poly) -> PrimExpr:
    end = _end(known, v, c, p)
    return v <= end if c > 0 else v >= end


def _deskewed(src: IntConstraints, solution: IntConstraints) -> IntConstraintsTransform:
    """New variables from 0 for those with a range."""
    known = Analyzer()
    forward: dict[Var, PrimExpr] = {}
    back: dict[Var, PrimExpr] = {}
    ranges: dict[Var, Range] = {}
    new: list[Var] = []
    for v in reversed(solution.variables):
        r = solution.ranges.get(v)
        if r is None:
            forward[v] = v
            back[v] = v
            new.append(v)
            continue
        start = known.simplify(substitute(r.min, forward))
        if isinstance(r.extent, IntImm) and r.extent.value == 1:
            forward[v] = start
            continue
        shifted = Var(f"{v.name}.shifted", v.dtype)
        ranges[shifted] = Range.from_min_extent(
            const(0, v.dtype), known.simplify(substitute(r.extent, forward))
        )
        forward[v] = known.simplify(shifted + start)
        back[shifted] = known.simplify(v - r.min)
        new.append(shifted)
    for v, r in ranges.items():
        known.bind(v, r)
    relations = [known.simplify(substitute(e, forward)) for e in solution.relations]
    left = [e for e in relations if not known.can_prove(e)]
    dst = IntConstraints(tuple(new[::-1]), ranges, tuple(left))
    return IntConstraintsTransform(src, dst, forward, back)
