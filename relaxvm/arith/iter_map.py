"""Iteration maps: expressions as sums of pieces of loop variables, in mixed radix.

    i0 * 4 + i1                    i0 and i1 whole, scales 4 and 1
    (f * 16 + g) // 8              the digit of weight 8 of the mark (f, g)

A *mark* is a variable, or several that were joined as the digits of one number. A *split* is a
digit of a mark: ``mark // lower % extent``. A *sum* is a base plus splits times scales. In this
form one can read off whether different iterations give different values (`determined`), and
whether every value of a range is reached (`IterSum.dense_extent`).
Numbers are Python ints where they are constant, else expressions.
"""

from __future__ import annotations

import itertools
from abc import ABC
from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

from ..base import NamedTuple, made_of_tuples
from ..ir import (
    GE,
    GT,
    LE,
    LT,
    Add,
    Cast,
    FloorDiv,
    FloorMod,
    IntImm,
    Mul,
    PrimExpr,
    Range,
    Sub,
    Var,
    as_expr,
    binary,
    cast,
    const,
    walk,
)
from .affine import Number as Number
from .affine import Numbers, as_number
from .affine import number_of as number_of
from .analyzer import Analyzer
from .tree import conjuncts, scalar_post_order


class IterMark:
    """A number that iterates over ``0 .. extent``: a variable less its minimum, a sum, or any
    other expression (from `detect_iter_map` never).
    """

    __slots__ = ("extent", "min", "source")

    def __init__(self, source: Var | IterSumExpr | PrimExpr, extent: Any, min: Number = 0) -> None:
        self.source = source
        if type(extent) is not int and not (isinstance(extent, PrimExpr) and extent.dtype.is_bool):
            extent = number_of(extent)
        self.extent: Number = extent
        self.min = min

    def __repr__(self) -> str:
        name = str(self.source) if isinstance(self.source, PrimExpr) else repr(self.source)
        return f"IterMark({name}, {self.extent})"


class IterSplitExpr(NamedTuple):
    """``source // lower_factor % extent``, times `scale`."""

    source: IterMark
    lower_factor: Number
    extent: Number
    scale: Number


class IterSumExpr(NamedTuple):
    """``base + sum(args)``."""

    args: tuple[IterSplitExpr, ...]
    base: Number


class IterMapExpr(ABC):  # noqa: B024
    """TVM's name for `IterSplitExpr` and `IterSumExpr`, to ask `isinstance`."""


_split, _sum = made_of_tuples(IterSplitExpr), made_of_tuples(IterSumExpr)

IterMapExpr.register(IterSplitExpr)
IterMapExpr.register(IterSumExpr)


class IterMapper(Numbers):
    """Reads expressions as sums over the iterators `iters`.

    iters     variable -> (minimum, extent); other variables count as constants
    analyzer  what is known about those constants
    """

    def __init__(
        self, iters: Mapping[Var, tuple[Any, Any]], analyzer: Analyzer | None = None
    ) -> None:
        self.iters = {
            v: (
                first.value if isinstance(first, IntImm) else number_of(first),
                extent.value if isinstance(extent, IntImm) else number_of(extent),
            )
            for v, (first, extent) in iters.items()
        }
        super().__init__(analyzer)
        self._marks: dict[Any, IterMark] = {}
        self._memo: dict[int, tuple[PrimExpr, IterSumExpr | None]] = {}
        self._digits: dict[int, tuple[IterSumExpr, list[IterSplitExpr] | None]] = {}
        self._limits: dict[Any, Number] = {}

    # -- reading expressions -----------------------------------------------------------------------

    def constrain(self, predicate: Any) -> None:
        """Use the conditions ``sum < bound`` in `predicate`: the sum's extent becomes the bound."""
        for fact in conjuncts(as_expr(predicate)):
            upper = self.upper_bound(fact)
            if upper is None:
                continue
            total, bound = upper
            joined = self.join(total)
            if joined is None:
                continue
            split, scale, base = joined
            if not isinstance(split.source.source, IterSumExpr) or split.lower_factor != 1:
                continue
            if not (self.equal(scale, 1) and self.equal(split.extent, split.source.extent)):
                continue
            limit = self.sub(bound, base)
            if not self.at_most(split.extent, limit):
                self._limits[_key(split.source.source.args)] = limit
        self._memo.clear()
        self._digits.clear()

    def upper_bound(self, fact: PrimExpr) -> tuple[IterSumExpr, Number] | None:
        """A comparison as (sum, bound): sum < bound."""
        if isinstance(fact, (LT, LE)):
            small, large, closed = fact.a, fact.b, isinstance(fact, LE)
        elif isinstance(fact, (GT, GE)):
            small, large, closed = fact.b, fact.a, isinstance(fact, GE)
        else:
            return None
        total, bound = self.sum_of(small), self.sum_of(large)
        if total is None or bound is None or bound.args or not total.args:
            return None
        return total, self.add(bound.base, 1) if closed else bound.base

    def sum_of(self, expr: Any) -> IterSumExpr | None:
        """`expr` as a sum, or None if it is not of that form."""
        if not isinstance(expr, PrimExpr):
            expr = as_expr(expr)
        memo = self._memo
        if id(expr) not in memo:
            plain = type(expr) is Var or type(expr) is IntImm
            for e in (expr,) if plain else scalar_post_order(expr, memo):
                memo[id(e)] = (e, self._read(e))
        return memo[id(expr)][1]

    def _read(self, e: PrimExpr) -> IterSumExpr | None:
        if isinstance(e, IntImm):
            return _sum(((), e.value))
        if isinstance(e, Var):
            return self._variable(e)
        parts = []
        for c in e._operands_:
            parts.append(self._memo[id(c)][1])
        if None in parts:
            return None
        if not any(map(_ARGS, parts)):
            return _sum(((), self._fixed(e)))
        if isinstance(e, Cast):
            return parts[0] if e.dtype.is_int and e.value.dtype.is_int else None
        if len(parts) != 2:
            return None
        a, b = parts
        assert a is not None
        assert b is not None
        if isinstance(e, Add):
            return self._plus(a, b, 1)
        if isinstance(e, Sub):
            return self._plus(a, b, -1)
        if isinstance(e, Mul):
            return self._times(a, b)
        if isinstance(e, (FloorDiv, FloorMod)) and not b.args:
            return self._digit(a, b.base, isinstance(e, FloorMod))
        return None

    def _fixed(self, e: PrimExpr) -> Number:
        """An expression in which no iterator moves: those of one iteration are put in."""

        def base(c: Any) -> Any:
            if type(c) is IntImm or not isinstance(c, PrimExpr):
                return c
            form = self._memo[id(c)][1]
            return c if form is None or form.base is c else as_number(form.base, c.dtype)

        rebuilt = e._map_children_(base)
        return e if rebuilt is e else number_of(self.analyzer.simplify(rebuilt))

    def _variable(self, v: Var) -> IterSumExpr:
        domain = self.iters.get(v)
        if domain is None:
            return _sum(((), v))
        low, extent = domain
        if extent == 1:
            return _sum(((), low))
        mark = self._marks.get(v)
        if mark is None:
            mark = self._marks[v] = IterMark(v, extent, low)
        return _sum(((_split((mark, 1, extent, 1)),), low))

    def plus(self, a: IterSumExpr, b: IterSumExpr) -> IterSumExpr:
        """The sum a + b."""
        return self._plus(a, b, 1)

    def _plus(self, a: IterSumExpr, b: IterSumExpr, sign: int) -> IterSumExpr:
        base = self.add(a.base, b.base) if sign == 1 else self.sub(a.base, b.base)
        if not b.args:
            return _sum((a.args, base))
        terms: list[IterSplitExpr] = list(a.args)
        for t in b.args:
            scale = t.scale if sign == 1 else self.mul(t.scale, -1)
            for k, other in enumerate(terms):
                if other.source is t.source and self._same_digit(other, t):
                    total = self.add(other.scale, scale)
                    if type(total) is int and total == 0:
                        del terms[k]
                    else:
                        terms[k] = _split((*other[:3], total))
                    break
            else:
                terms.append(t if sign == 1 else _split((*t[:3], scale)))
        return _sum((tuple(terms), base))

    def _same_digit(self, a: IterSplitExpr, b: IterSplitExpr) -> bool:
        return self.equal(a.lower_factor, b.lower_factor) and self.equal(a.extent, b.extent)

    def _times(self, a: IterSumExpr, b: IterSumExpr) -> IterSumExpr | None:
        if a.args and b.args:
            return None
        if b.args:
            a, b = b, a
        factor = b.base
        return self.times(a, factor)

    def _digit(self, a: IterSumExpr, divisor: Number, modulo: bool) -> IterSumExpr | None:
        """``a // divisor`` or ``a % divisor``."""
        if isinstance(divisor, int) and divisor <= 0:
            return None
        whole, rest, base = self._split_multiples(a, divisor)
        if whole is None:
            return None
        if rest.args:
            joined = self.join(rest._replace(base=0))
            if joined is None or base != 0:
                return None
            split, scale, _ = joined
            cut = self.multiple(divisor, scale)
            if cut is None:
                return None
            if not self._divides(split, cut):
                # The pieces of a digit that is cut with a rest are digits of it, not of its mark:
                # f % 7 // 3 is not f // 3 % 3.
                mark = self._joined_mark((_split((*split[:3], 1)),))
                split = _split((mark, 1, mark.extent, 1))
            if modulo:
                # The split's own lower part, whole if it is shorter than the divisor.
                digit = split if self.at_most(split.extent, cut) else split._replace(extent=cut)
                return IterSumExpr((_split((*digit[:3], scale)),), 0)
            if not self.at_most(split.extent, cut):
                upper = IterSplitExpr(
                    split.source,
                    self.mul(split.lower_factor, cut),
                    self._pieces(split.extent, cut),
                    1,
                )
                whole = self._plus(whole, IterSumExpr((upper,), 0), 1)
            return whole
        if modulo:
            return _sum(((), base))
        return whole

    def _divides(self, split: IterSplitExpr, cut: Number) -> bool:
        """Whether a digit can be cut into pieces of `cut` as pieces of its mark."""
        if self.at_most(split.extent, cut) or self.multiple(split.extent, cut) is not None:
            return True
        return self.at_most(split.source.extent, self.mul(split.lower_factor, split.extent))

    def _split_multiples(
        self, a: IterSumExpr, divisor: Number
    ) -> tuple[IterSumExpr | None, IterSumExpr, Number]:
        """`a` as ``divisor * whole + rest + base``, with 0 <= base < divisor."""
        whole: list[IterSplitExpr] = []
        rest: list[IterSplitExpr] = []
        for t in a.args:
            q = self.multiple(t.scale, divisor)
            if q is None:
                rest.append(t)
            else:
                whole.append(_split((*t[:3], q)))
        if isinstance(a.base, int) and isinstance(divisor, int):
            outer, base = divmod(a.base, divisor)
            return _sum((tuple(whole), outer)), _sum((tuple(rest), 0)), base
        exact = self.multiple(a.base, divisor)
        if exact is None:
            return None, _sum(((), 0)), 0
        return _sum((tuple(whole), exact)), _sum((tuple(rest), 0)), 0

    # -- joining digits ----------------------------------------------------------------------------

    def join(self, total: IterSumExpr) -> tuple[IterSplitExpr, Number, Number] | None:
        """A sum as one split: (split, scale, base), or None if its terms are not the digits of one
        number.
        """
        digits = self.digits(total)
        if not digits:
            return None
        first = digits[0]
        if len(digits) == 1:
            return _split((*first[:3], 1)), first.scale, total.base
        for low, high in itertools.pairwise(digits):
            if not self.equal(high.scale, self.mul(low.scale, low.extent)):
                return None
        unit: list[IterSplitExpr] = []
        for d in digits:
            q = self.multiple(d.scale, first.scale)
            if q is None:
                return None
            unit.append(_split((*d[:3], q)))
        mark = self._joined_mark(tuple(unit))
        return _split((mark, 1, mark.extent, 1)), first.scale, total.base

    def _joined_mark(self, unit: tuple[IterSplitExpr, ...]) -> IterMark:
        key = _key(unit)
        mark = self._marks.get(key)
        if mark is None:
            extent: Number = self.mul(unit[-1].scale, unit[-1].extent)
            mark = self._marks[key] = IterMark(IterSumExpr(unit, 0), extent)
        return mark

    def digits(self, total: IterSumExpr) -> list[IterSplitExpr] | None:
        """The terms from the least scale up, neighbours of one mark joined; None if a scale is
        negative or the order of the scales cannot be told.
        """
        known = self._digits.get(id(total))
        if known is None:
            known = self._digits[id(total)] = (total, self._in_order(total))
        return known[1]

    def _in_order(self, total: IterSumExpr) -> list[IterSplitExpr] | None:
        left = list(total.args)
        if len(left) == 1 and type(left[0].scale) is int and left[0].scale > 0:
            return left
        scales = [t.scale for t in left if isinstance(t.scale, int)]
        if len(scales) == len(left):
            if scales and min(scales) <= 0:
                return None
            left.sort(key=_SCALE)
        else:
            ordered = self._chain(left)
            if ordered is None:
                return None
            left = ordered
        out: list[IterSplitExpr] = []
        for t in left:
            if out and self._continues(out[-1], t):
                out[-1] = out[-1]._replace(extent=self._joined_extent(out[-1], t))
            else:
                out.append(t)
            if self._limits:
                out = self._limited(out)
        return out

    def _chain(self, terms: list[IterSplitExpr]) -> list[IterSplitExpr] | None:
        """Symbolic scales in order: each the product of scale and extent before it."""
        for start in terms:
            out, left = [start], [t for t in terms if t is not start]
            while left:
                step = self.mul(out[-1].scale, out[-1].extent)
                following = next((t for t in left if self.equal(t.scale, step)), None)
                if following is None:
                    break
                out.append(following)
                left.remove(following)
            if not left:
                return out
        return None

    def _continues(self, low: IterSplitExpr, high: IterSplitExpr) -> bool:
        return (
            low.source is high.source
            and self.equal(high.lower_factor, self.mul(low.lower_factor, low.extent))
            and self.equal(high.scale, self.mul(low.scale, low.extent))
        )

    def _joined_extent(self, low: IterSplitExpr, high: IterSplitExpr) -> Number:
        """The extent of two neighbouring digits as one: all that the mark has left, if the upper
        one is its last.
        """
        product = self.mul(low.extent, high.extent)
        if self.equal(low.lower_factor, 1) and self.at_most(low.source.extent, product):
            return low.source.extent
        return product

    def _limited(self, digits: list[IterSplitExpr]) -> list[IterSplitExpr]:
        """Digits that a condition bounds from above, as one digit of the bounded extent."""
        if len(digits) < 2:
            return digits
        first = digits[0]
        unit: list[IterSplitExpr] = []
        for d in digits:
            q = self.multiple(d.scale, first.scale)
            if q is None:
                return digits
            unit.append(_split((*d[:3], q)))
        limit = self._limits.get(_key(tuple(unit)))
        if limit is None:
            return digits
        key = ("limited", _key(tuple(unit)))
        mark = self._marks.get(key)
        if mark is None:
            mark = self._marks[key] = IterMark(_sum((tuple(unit), 0)), limit)
        return [IterSplitExpr(mark, 1, limit, first.scale)]

    # -- questions ---------------------------------------------------------------------------------

    def distinct(self, total: IterSumExpr) -> bool:
        """Whether the value of the sum determines each of its terms (gaps are allowed)."""
        digits = self.digits(total)
        if digits is None:
            return False
        return all(
            self.at_most(self.mul(low.scale, low.extent), high.scale)
            for low, high in itertools.pairwise(digits)
        )

    def dense_extent(self, total: IterSumExpr, width: Number = 1) -> Number | None:
        """How many consecutive values from `base` up the sum takes; None if it leaves gaps (or may
        do so). Of an iterator without iterations nothing is said.

        width  how many values from each of the sum's on count
        """
        digits = self.digits(total)
        if digits is None or not self._move_freely(digits):
            return None
        reach = width
        for d in digits:
            if not self.at_most(d.scale, reach):
                return None
            reach = self.add(reach, self.mul(d.scale, self.sub(d.extent, 1)))
        return reach

    def ends(self, total: IterSumExpr) -> tuple[Number, Number] | None:
        """The least and greatest value of a sum, as if its terms moved on their own; None if it is
        not known whether one of them rises or falls.
        """
        low = high = total.base
        for t in total.args:
            reach = self.mul(t.scale, self.sub(t.extent, 1))
            if isinstance(t.scale, int) and t.scale < 0:
                low = self.add(low, reach)
            elif self.at_most(0, t.scale):
                high = self.add(high, reach)
            else:
                return None
        return low, high

    def rising(self, total: IterSumExpr) -> IterSumExpr:
        """A sum of the same values whose constant scales are positive: those terms run the other
        way, as digits of other marks.
        """
        base, terms = total.base, []
        for t in total.args:
            if isinstance(t.scale, int) and t.scale < 0:
                base = self.add(base, self.mul(t.scale, self.sub(t.extent, 1)))
                unit = (_split((*t[:3], 1)),)
                mark = self._marks.setdefault(
                    ("falling", _key(unit)), IterMark(IterSumExpr(unit, 0), t.extent)
                )
                t = IterSplitExpr(mark, 1, t.extent, -t.scale)
            terms.append(t)
        return _sum((tuple(terms), base))

    def span(self, total: IterSumExpr, width: Number = 1) -> tuple[Number, Number] | None:
        """(first, how many) of a range around the values of a sum, and around the `width` values
        from each of them on; None if none is known.
        """
        rising = self.rising(total)
        digits = self.digits(rising)
        if digits is None:
            return None
        reach = width
        for d in digits:
            if not self.at_most(0, d.scale):
                return None
            reach = self.add(reach, self.mul(d.scale, self.sub(d.extent, 1)))
        return rising.base, reach

    def independent(self, totals: Sequence[IterSumExpr]) -> bool:
        """Whether the sums take all combinations of their values, and the digits in them too."""
        return self._move_freely([d for t in totals for d in self.digits(t) or t.args])

    def _move_freely(self, digits: Sequence[IterSplitExpr]) -> bool:
        """Whether the digits take all combinations of their values for certain."""
        if len(digits) < 2:
            return True
        by_mark: dict[IterMark, list[IterSplitExpr]] = {}
        for d in digits:
            by_mark.setdefault(d.source, []).append(d)
        if not all(self._are_free(mark, of) for mark, of in by_mark.items() if len(of) > 1):
            return False
        # A variable met on its own and inside a joined mark would move both.
        variables = [v for mark in by_mark for v in self.mark_variables(mark)]
        return len(variables) == len(set(variables))

    def _are_free(self, mark: IterMark, digits: list[IterSplitExpr]) -> bool:
        """Whether digits of one mark take all combinations: each begins where those below it end,
        or a multiple of that further up, and the mark is large enough for all at their greatest.
        """
        left = list(digits)
        if not [d for d in left if not isinstance(d.lower_factor, int)]:
            left.sort(key=_LOWER)
        reach: Number = 1
        greatest: Number = 0
        while left:
            following = next(
                (d for d in left if self.multiple(d.lower_factor, reach) is not None), None
            )
            if following is None:
                return False
            left.remove(following)
            reach = self.mul(following.lower_factor, following.extent)
            last = self.mul(following.lower_factor, self.sub(following.extent, 1))
            greatest = self.add(greatest, last)
        return self.at_most(reach, mark.extent) or self.at_most(self.add(greatest, 1), mark.extent)

    def minus(self, a: IterSumExpr, b: IterSumExpr) -> IterSumExpr:
        """The sum a - b."""
        return self._plus(a, b, -1)

    def times(self, a: IterSumExpr, factor: Number) -> IterSumExpr:
        """The sum a * factor."""
        scaled = tuple([_split((*t[:3], self.mul(t.scale, factor))) for t in a.args])
        return _sum((scaled if factor != 0 else (), self.mul(a.base, factor)))

    def variables(self, total: IterSumExpr) -> set[Var]:
        """The iterators that a sum depends on."""
        variables: set[Var] = set()
        for t in total.args:
            variables |= self.mark_variables(t.source)
        return variables

    @staticmethod
    def mark_variables(mark: IterMark) -> set[Var]:
        """The iterators that a mark is made of."""
        variables: set[Var] = set()
        work = [mark]
        while work:
            mark = work.pop()
            if isinstance(mark.source, Var):
                variables.add(mark.source)
            elif isinstance(mark.source, IterSumExpr):
                work.extend(t.source for t in mark.source.args)
            else:
                variables |= {n for n in walk(mark.source) if isinstance(n, Var)}
        return variables

    def to_expr(self, total: IterSumExpr, dtype: Any) -> PrimExpr:
        """A sum as an expression of `dtype` again, digits written with // and %."""
        digits = self.digits(total)
        terms = total.args if digits is None else digits[::-1]
        return self._sum_expr(IterSumExpr(tuple(terms), total.base), dtype)

    def _sum_expr(self, total: IterSumExpr, dtype: Any) -> PrimExpr:
        result: PrimExpr = const(0, dtype)
        for t in total.args:
            result = binary(
                Add, result, binary(Mul, self._split_expr(t, dtype), as_number(t.scale, dtype))
            )
        return binary(Add, result, as_number(total.base, dtype))

    def _split_expr(self, t: IterSplitExpr, dtype: Any) -> PrimExpr:
        mark = t.source
        whole: PrimExpr
        if isinstance(mark.source, PrimExpr):
            whole = binary(Sub, cast(dtype, mark.source), as_number(mark.min, dtype))
        else:
            # As deep as marks are joined of marks: the number of splits, not of loops.
            source = mark.source
            whole = self._sum_expr(source._replace(args=source.args[::-1]), dtype)
        if not self.equal(t.lower_factor, 1):
            whole = binary(FloorDiv, whole, as_number(t.lower_factor, dtype))
        if not self.at_most(mark.extent, self.mul(t.lower_factor, t.extent)):
            whole = binary(FloorMod, whole, as_number(t.extent, dtype))
        return whole

    def determined(self, exprs: Iterable[Any]) -> set[Var]:
        """The iterators whose values follow from the values of `exprs`."""
        known: dict[IterMark, list[IterSplitExpr]] = {}
        variables = {v for v, (_, extent) in self.iters.items() if extent == 1}
        for e in exprs:
            if e in self.iters:
                variables.add(e)
                continue
            total = self.sum_of(e)
            if total is None or not self.distinct(total):
                continue
            for d in self.digits(total) or ():
                known.setdefault(d.source, []).append(d)
        done: set[IterMark] = set()
        work = list(known)
        while work:
            mark = work.pop()
            if mark in done or not self._whole(mark, known[mark]):
                continue
            done.add(mark)
            if isinstance(mark.source, Var):
                variables.add(mark.source)
                continue
            if isinstance(mark.source, PrimExpr):
                continue
            for d in mark.source.args:
                known.setdefault(d.source, []).append(d)
                work.append(d.source)
        return variables

    def _whole(self, mark: IterMark, digits: list[IterSplitExpr]) -> bool:
        """Whether the digits give the mark's whole value."""
        reach: Number = 1
        left = list(digits)
        if len(left) == 1 and left[0].lower_factor == 1 and left[0].extent is mark.extent:
            return True
        while left:
            following = next((d for d in left if self.at_most(d.lower_factor, reach)), None)
            if following is None:
                break
            left.remove(following)
            end = self.mul(following.lower_factor, following.extent)
            if not self.at_most(end, reach):
                reach = end
        return self.at_most(mark.extent, reach)


_SCALE, _LOWER, _ARGS = attrgetter("scale"), attrgetter("lower_factor"), attrgetter("args")


def _key(unit: Sequence[IterSplitExpr]) -> Any:
    """Which digits these are. (Nodes are compared by identity.)"""
    return tuple([(id(d.source), *d[1:]) for d in unit])


class IterMapResult(NamedTuple):
    """indices  one sum per expression (empty if the map is not of the wanted kind); errors  why."""

    indices: tuple[IterSumExpr, ...]
    errors: tuple[str, ...]


def ranges_of(input_iters: Mapping[Var, Any]) -> dict[Var, tuple[Any, Any]]:
    """variable -> (minimum, extent), from `Range`s or such pairs."""
    return {
        v: (r.min, r.extent) if isinstance(r, Range) else (r[0], r[1])
        for v, r in input_iters.items()
    }


def detect_iter_map(
    indices: Sequence[Any],
    input_iters: Mapping[Var, Any],
    predicate: Any = True,
    check_level: str = "surjective",
    simplify_trivial_iterators: bool = True,
    analyzer: Analyzer | None = None,
) -> IterMapResult:
    """`indices` as sums over the iterators, if different iterations give different indices.

    input_iters  variable -> Range
    predicate    a condition that holds for the iterations that count
    check_level  "noCheck"; "injective": distinct; "surjective" or "bijective": distinct, and no
                 value between the least and the greatest is left out
    simplify_trivial_iterators  accepted as in TVM; iterators of one iteration are always put in
    analyzer     what is known about other variables
    """
    ranges = ranges_of(input_iters)
    mapper = IterMapper(ranges, analyzer)
    mapper.constrain(predicate)
    sums: list[IterSumExpr] = []
    for e in indices:
        total = mapper.sum_of(e)
        if total is None:
            return IterMapResult((), (f"{e} is no sum of digits of the iterators",))
        sums.append(total)
    level = str(check_level).lower()
    if level != "nocheck":
        missing = set(ranges) - mapper.determined(indices)
        if missing:
            names = ", ".join(sorted(v.name for v in missing))
            return IterMapResult((), (f"the indices do not determine {names}",))
        if level != "injective" and any(mapper.dense_extent(s) is None for s in sums):
            return IterMapResult((), ("the indices leave out values",))
    return IterMapResult(tuple(sums), ())
