"""Expressions rewritten by way of iteration maps: simplified, inverted, divided into two spaces."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..base import TIRError
from ..ir import (
    And,
    CompareExpr,
    FloorDiv,
    FloorMod,
    IntImm,
    PrimExpr,
    Range,
    Var,
    as_expr,
    binary,
    cast,
    const,
    walk,
)
from .affine import as_number
from .analyzer import Analyzer
from .iter_map import IterMapper, IterMark, IterSplitExpr, IterSumExpr, detect_iter_map, ranges_of
from .poly import Poly
from .tree import conjuncts


def _with_ranges(input_iters: Mapping[Var, Any], analyzer: Analyzer | None) -> Analyzer:
    known = Analyzer() if analyzer is None else analyzer
    for v, (low, extent) in ranges_of(input_iters).items():
        known.bind(v, Range.from_min_extent(low, extent), allow_override=True)
    return known


def normalize_iter_map_to_expr(expr: Any) -> PrimExpr:
    """An `IterSumExpr`, `IterSplitExpr` or `IterMark` as an expression, its digits written with //
    and %.
    """
    if isinstance(expr, PrimExpr):
        return expr
    if isinstance(expr, IterMark):
        expr = IterSplitExpr(expr, 1, expr.extent, 1)
    if isinstance(expr, IterSplitExpr):
        expr = IterSumExpr((expr,), 0)
    if not isinstance(expr, IterSumExpr):
        raise TIRError(f"normalize_iter_map_to_expr: wanted an IterMapExpr, got {expr!r}")
    known = Analyzer()
    return known.simplify(IterMapper({}, known).to_expr(expr, _dtype_of(expr)))


def _dtype_of(total: IterSumExpr) -> Any:
    marks = [t.source for t in total.args]
    while marks:
        source = marks.pop().source
        if isinstance(source, PrimExpr):
            return source.dtype
        marks += [t.source for t in source.args]
    return total.base.dtype if isinstance(total.base, PrimExpr) else "int32"


def iter_map_simplify(
    indices: Sequence[Any],
    input_iters: Mapping[Var, Any],
    predicate: Any = True,
    check_level: str = "surjective",
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[PrimExpr]:
    """The indices, each read as a sum of digits and written again where that is shorter.

    check_level, simplify_trivial_iterators  accepted as in TVM; an index needs no other to be
                                             rewritten here
    """
    known = _with_ranges(input_iters, analyzer)
    mapper = IterMapper(ranges_of(input_iters), known)
    mapper.constrain(predicate)
    return [_shortest(mapper, known, as_expr(e)) for e in indices]


def _shortest(mapper: IterMapper, known: Analyzer, e: PrimExpr) -> PrimExpr:
    forms = [known.simplify(e)]
    total = mapper.sum_of(e) or mapper.sum_of(forms[0])
    if total is not None:
        forms.append(known.simplify(mapper.to_expr(total, e.dtype)))
    return min(forms, key=lambda f: sum(1 for _ in walk(f)))


def normalize_to_iter_sum(
    index: Any, input_iters: Mapping[Var, Any], analyzer: Analyzer | None = None
) -> IterSumExpr:
    """`index` as a sum of iterators times scales, the greatest scale first. What is no digit of an
    iterator goes to the base.
    """
    known = _with_ranges(input_iters, analyzer)
    mapper = IterMapper(ranges_of(input_iters), known)
    index = known.canonical_simplify(index)
    total = IterSumExpr((), 0)
    for monomial, c in known._poly(index).terms.items():
        term = known._from_poly(Poly({monomial: c}), index)
        part = mapper.sum_of(term)
        if part is None:
            part = IterSumExpr((), term)
        total = mapper.plus(total, part)
    joined = mapper.digits(total)
    args = joined[::-1] if joined is not None else sorted(total.args, key=_weight, reverse=True)
    return IterSumExpr(tuple(args), total.base)


def _weight(t: IterSplitExpr) -> tuple[int, int]:
    """Symbolic scales before constants, products of more variables first."""
    poly_size = 0 if isinstance(t.scale, int) else sum(isinstance(n, Var) for n in walk(t.scale))
    constants = (
        [1]
        if isinstance(t.scale, int)
        else [n.value for n in walk(t.scale) if isinstance(n, IntImm)]
    )
    return poly_size, abs(t.scale) if isinstance(t.scale, int) else max(constants, default=1)


def inverse_affine_iter_map(
    iter_map: Sequence[IterSumExpr], outputs: Sequence[Any]
) -> dict[Var, PrimExpr]:
    """The iterators as expressions of the values of a bijective map.

    ``[l // 16, l % 16]`` with the outputs ``a`` and ``b`` gives ``{l: a * 16 + b}``. Raises
    TIRError where the digits of an output do not follow from its value.
    """
    if len(iter_map) != len(outputs):
        raise TIRError(f"inverse_affine_iter_map: {len(iter_map)} sums, but {len(outputs)} outputs")
    known = Analyzer()
    mapper = IterMapper({}, known)
    uses: dict[IterMark, int] = {}
    work = [t.source for total in iter_map for t in total.args]
    while work:
        mark = work.pop()
        uses[mark] = uses.get(mark, 0) + 1
        if uses[mark] == 1 and isinstance(mark.source, IterSumExpr):
            work += [t.source for t in mark.source.args]
    values: dict[IterMark, PrimExpr] = {}
    ready: list[tuple[IterSumExpr, PrimExpr]] = []
    for total, output in zip(iter_map, outputs):
        ready.append((total, as_expr(output)))
    inverse: dict[Var, PrimExpr] = {}
    while ready:
        total, value = ready.pop()
        for t, digit in _digits_of(mapper, total, value):
            part = digit * as_number(t.lower_factor, digit.dtype)
            old = values.get(t.source)
            values[t.source] = part if old is None else old + part
            uses[t.source] -= 1
            if uses[t.source]:
                continue
            whole, source = values[t.source], t.source.source
            if isinstance(source, Var):
                shifted = whole + as_number(t.source.min, whole.dtype)
                inverse[source] = known.simplify(cast(source.dtype, shifted))
            elif isinstance(source, IterSumExpr):
                ready.append((source, known.simplify(whole)))
    return inverse


def _digits_of(
    mapper: IterMapper, total: IterSumExpr, value: PrimExpr
) -> list[tuple[IterSplitExpr, PrimExpr]]:
    """Each term of a sum, with its digit as an expression of the sum's value."""
    if not total.args:
        return []
    # The sum's own terms: neighbours of one mark are not joined, so that all get a value.
    if all(isinstance(t.scale, int) for t in total.args):
        terms = sorted(total.args, key=lambda t: t.scale)
    else:
        chain = mapper._chain(list(total.args))
        if chain is None:
            raise TIRError(f"inverse_affine_iter_map: the order of the digits of {total} is open")
        terms = chain
    rest = value - as_number(total.base, value.dtype)
    digits = []
    for low, high in zip(terms, [*terms[1:], None]):
        step = binary(FloorDiv, rest, as_number(low.scale, rest.dtype))
        if high is not None:
            whole = mapper.multiple(high.scale, low.scale)
            if whole is None or not mapper.at_most(low.extent, whole):
                raise TIRError(f"inverse_affine_iter_map: the digits of {total} overlap")
            step = binary(FloorMod, step, as_number(whole, rest.dtype))
        digits.append((low, mapper.analyzer.simplify(step)))
    return digits


def subspace_divide(
    bindings: Sequence[Any],
    input_iters: Mapping[Var, Any],
    sub_iters: Sequence[Var],
    predicate: Any = True,
    check_level: str = "surjective",
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> list[list[IterMark]]:
    """Each binding as ``outer * extent + inner``, with `inner` over `sub_iters` alone (and what is
    constant), `outer` over the other iterators, and `extent` that of `inner`.

    Returns one pair [outer, inner] of `IterMark` for each binding, then a pair whose extents are
    the conditions of `predicate` on the outer and on the inner iterators. Empty if a binding, or a
    condition, mixes them, or if the bindings do not determine the iterators.
    """
    known = Analyzer() if analyzer is None else analyzer
    ranges = ranges_of(input_iters)
    mapper = IterMapper(ranges, known)
    mapper.constrain(predicate)
    inside = set(sub_iters)
    level = "injective" if str(check_level).lower() != "nocheck" else "noCheck"
    if not detect_iter_map(bindings, input_iters, predicate, level, analyzer=known).indices:
        return []
    pairs: list[list[IterMark]] = []
    for e in bindings:
        pair = _divided(mapper, mapper.sum_of(e), inside)
        if pair is None:
            return []
        pairs.append(pair)
    conditions: list[PrimExpr] = [const(True), const(True)]
    for fact in conjuncts(as_expr(predicate)):
        fact, used = _condition(mapper, known, fact)
        if used & inside and used - inside:
            return []
        side = 1 if used & inside else 0
        old = conditions[side]
        conditions[side] = fact if isinstance(old, IntImm) else And(old, fact)
    nothing = IterSumExpr((), 0)
    return [*pairs, [IterMark(nothing, c) for c in conditions]]


def _condition(
    mapper: IterMapper, known: Analyzer, fact: PrimExpr
) -> tuple[PrimExpr, set[PrimExpr]]:
    """A condition with its sides as sums, and the iterators that it depends on."""
    if isinstance(fact, CompareExpr) and fact.a.dtype.is_int:
        free = IterMapper(mapper.iters, known)  # a condition does not shorten itself
        sums = [free.sum_of(e) for e in (fact.a, fact.b)]
        if sums[0] is not None and sums[1] is not None:
            sides = [known.simplify(free.to_expr(t, fact.a.dtype)) for t in sums if t is not None]
            used: set[PrimExpr] = {v for t in sums if t is not None for v in free.variables(t)}
            return type(fact)(*sides), used
    return fact, {n for n in walk(fact) if isinstance(n, Var) and n in mapper.iters}


def _divided(mapper: IterMapper, total: Any, inside: set[Var]) -> list[IterMark] | None:
    inner: list[IterSplitExpr] = []
    outer: list[IterSplitExpr] = []
    for t in mapper.digits(total) or ():
        variables = mapper.mark_variables(t.source)
        if variables <= inside:
            inner.append(t)
            if outer:
                return None
        elif variables & inside:
            return None
        else:
            outer.append(t)
    low = IterSumExpr(tuple(inner[::-1]), 0)
    extent = mapper.dense_extent(low)
    if extent is None:
        return None
    high: list[IterSplitExpr] = []
    for t in outer[::-1]:
        scale = mapper.multiple(t.scale, extent)
        if scale is None:
            return None
        high.append(t._replace(scale=scale))
    upper = IterSumExpr(tuple(high), 0)
    count = mapper.dense_extent(upper)
    inner_sum = IterSumExpr(low.args, total.base)
    return [IterMark(upper, 1 if count is None else count), IterMark(inner_sum, extent)]
