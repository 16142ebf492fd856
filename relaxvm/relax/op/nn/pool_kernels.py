"""What pools mean, what they become, and their backward passes: one formula for all windows.

A window that lies wholly in the padding has -inf (of integers, the least one) as its maximum and 0
as its average. Sums of 16-bit floats are kept in float32, those of integers exactly. The gradient
of a maximum goes to the first greatest element of the window.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ....base import DataType, VMValueError
from ....ir import And, FloorDiv, FloorMod, IntImm, Max, Or, PrimExpr, Select, Var, cast, const
from ....te import Tensor, comm_reducer, compute, reduce_axis
from ....te import sum as te_sum
from ....tir import all as all_of
from ....tir import if_then_else, isnan, logical_not, truncdiv
from ..lower import rounded, wide_dtype
from ..statistical import infinite
from .pool_windows import Parts, Pool
from .window import greatest, simple, static

Windows = Pool | Parts
Settings = Callable[[dict[str, Any]], Windows]
"""Makes windows from attributes."""


# -- tensor expressions ---------------------------------------------------------------------------


class _Axes:
    """Windows over data of known sizes: all spatial axes at once.

    have, made  axis -> its size, in the data and in the result
    """

    def __init__(self, windows: Windows, have: dict[str, Any], gives: dict[str, Any]) -> None:
        self.windows, self.have, self.made = windows, have, gives

    def _each(self) -> Iterator[tuple[int, str, Any, Any]]:
        for k, a in enumerate(self.windows.spatial):
            yield k, a, self.have[a], self.made[a]

    def taps(self) -> list[Any]:
        w = self.windows
        return [reduce_axis((0, w.reach(k, n, m)), f"r{a.lower()}") for k, a, n, m in self._each()]

    def place(
        self, index: dict[str, PrimExpr], taps: list[Any]
    ) -> tuple[dict[str, PrimExpr], PrimExpr | None]:
        """Where the element `taps` of the window `index` is, and whether it is (None: always)."""
        source, inside = dict(index), []
        for k, a, n, m in self._each():
            source[a], more = self.windows.place(k, index[a], taps[k].var, n, m)
            inside += more
        return source, all_of(*inside) if inside else None

    def number(self, taps: list[PrimExpr]) -> PrimExpr:
        """The place of an element among all of a window."""
        number: PrimExpr = const(0, "int64")
        for (k, _, n, m), tap in zip(self._each(), taps):
            number = number * self.windows.reach(k, n, m) + tap
        return number

    def divisor(self, index: dict[str, PrimExpr]) -> PrimExpr:
        count: PrimExpr = const(1, "int64")
        for k, a, n, m in self._each():
            count = count * cast("int64", self.windows.divisor(k, index[a], n, m))
        return Max(count, const(1, "int64"))

    def divisors(self) -> Callable[[dict[str, PrimExpr]], PrimExpr]:
        """As `divisor`, with what depends on the place along an axis computed once for each place.
        At least 1 for each axis: where it would be 0, the sum is 0.
        """
        dtype = DataType("int32" if self._most() < 1 << 31 else "int64")
        whole: PrimExpr = const(1, dtype)
        tables: dict[str, Tensor] = {}

        def count(k: int, i: PrimExpr, n: Any, m: Any) -> PrimExpr:
            count_of = self.windows.divisor(k, i, n, m)
            return cast(dtype, Max(count_of, const(1, count_of.dtype)))

        for k, a, n, m in self._each():
            if isinstance(count_of := simple(count(k, Var("i", "int64"), n, m)), IntImm):
                whole = whole * count_of
            else:
                tables[a] = compute((m,), lambda i, k=k, n=n, m=m: count(k, i, n, m), f"count_{a}")

        def divisor(index: dict[str, PrimExpr]) -> PrimExpr:
            count_of = whole
            for a, table in tables.items():
                count_of = count_of * table(index[a])
            return count_of

        return divisor

    def _most(self) -> float:
        """How many elements a window has at most."""
        reach = [self.windows.reach(k, n, m) for k, _, n, m in self._each()]
        known = [static(r) for r in reach]
        return math.prod(math.inf if r is None else r for r in known)

    def sum_dtype(self, dtype: DataType) -> DataType:
        """In which sums are kept: of integers, int32 where that holds the greatest one."""
        if dtype.is_float:
            return wide_dtype(dtype)
        return DataType("int32" if self._most() * 2.0**dtype.bits < 2.0**31 else "int64")


def _average(total: PrimExpr, count: PrimExpr, dtype: DataType) -> PrimExpr:
    """total / count in `dtype`; of integers, rounded toward zero."""
    if dtype.is_float:
        return cast(dtype, total / cast(total.dtype, count))
    return cast(dtype, truncdiv(total, cast(total.dtype, count)))


def _or(inside: PrimExpr | None, value: PrimExpr, padding: PrimExpr) -> PrimExpr:
    """`value` inside of the data, `padding` beside it: a value in both cases, so that loops over
    windows can be reordered and become vectors.
    """
    return value if inside is None else if_then_else(inside, value, padding)


def pool_te(settings: Settings, average: bool) -> Callable[..., Tensor]:
    """The te function (data, **attrs) of a pool."""

    def build(data: Tensor, **attrs: Any) -> Tensor:
        w = settings(attrs)
        have = w.data.sizes(data.shape)
        counts = w.counts([have[a] for a in w.spatial])
        axes = _Axes(w, have, {**have, **dict(zip(w.spatial, map(simple, counts)))})
        taps = axes.taps()

        def best(index: dict[str, PrimExpr]) -> PrimExpr:
            source, inside = axes.place(index, taps)
            value = data(*w.data.index(source))
            return greatest(_or(inside, value, infinite(data.dtype, -1)), axis=taps)

        def total(index: dict[str, PrimExpr]) -> PrimExpr:
            source, inside = axes.place(index, taps)
            value = cast(axes.sum_dtype(data.dtype), data(*w.data.index(source)))
            return te_sum(_or(inside, value, const(0, value.dtype)), axis=taps)

        if not average:
            return w.out.compute(axes.made, best, "max_pool")
        sums, divisor = w.out.compute(axes.made, total, "pool_sum"), axes.divisors()

        def mean(*i: PrimExpr) -> PrimExpr:
            return _average(sums(*i), divisor(w.out.axes(i)), data.dtype)

        return compute(sums.shape, mean, "avg_pool")

    return build


def backward_te(settings: Settings, average: bool) -> Callable[..., Tensor]:
    """The te function (gradient of the result, data, **attrs) of a pool's backward pass."""

    def build(g: Tensor, data: Tensor, **attrs: Any) -> Tensor:
        w = settings(attrs)
        axes = _Axes(w, w.data.sizes(data.shape), w.out.sizes(g.shape))
        wide = wide_dtype(data.dtype)
        winner = None if average else _first_of_each(axes, data)[0]
        over = [
            reduce_axis((0, w.holders(k, n, m)), f"w{a.lower()}") for k, a, n, m in axes._each()
        ]

        def value(index: dict[str, PrimExpr]) -> PrimExpr:
            window, taps, inside = dict(index), [], []
            for k, a, n, m in axes._each():
                window[a], tap, more = w.holder(k, index[a], over[k].var, n, m)
                taps.append(tap)
                inside += more
            grad = cast(wide, g(*w.out.index(window)))
            if winner is None:
                grad = grad / cast(wide, axes.divisor(window))
            else:
                first = winner(*(window[a] for a in f"NC{w.spatial}"))
                grad = Select(first.equal(axes.number(taps)), grad, const(0, wide))
            return te_sum(if_then_else(all_of(*inside), grad, const(0, wide)), axis=over)

        return rounded(w.data.compute(axes.have, value, "pool_backward"), data.dtype)

    return build


def _better(x: Any, y: Any) -> tuple[PrimExpr, PrimExpr]:
    """Of two (number, value): the greater value, or the NaN; of equal ones that of less number."""
    (i, a), (j, b) = x, y
    first = Or(b > a, And(isnan(b), logical_not(isnan(a))))
    equal = Or(b.equal(a), And(isnan(a), isnan(b)))
    zero = const(0, i.dtype)
    takes = And(j >= zero, Or(Or(i < zero, first), And(equal, j < i)))
    return Select(takes, j, i), Select(takes, b, a)


_first_greatest = comm_reducer(_better, lambda i, d: (const(-1, i), infinite(d, -1)), "arg")
"""A te reducer of (number, value): the first greatest value or the first NaN; -1 of nothing."""


def _first_of_each(axes: _Axes, data: Tensor) -> list[Tensor]:
    """Which element of each window is the first greatest: its number, -1 if there is none; and its
    value.
    """
    w, taps = axes.windows, axes.taps()
    order = f"NC{w.spatial}"

    def winner(*index: PrimExpr) -> Any:
        source, inside = axes.place(dict(zip(order, index)), taps)
        element = data(*w.data.index(source))
        if inside is not None:
            element = if_then_else(inside, element, const(0, data.dtype))
        number = axes.number([t.var for t in taps])
        return _first_greatest((cast("int64", number), element), axis=taps, where=inside)

    first: list[Tensor] = compute(tuple(axes.made[a] for a in order), winner, "winner")
    return first


def indexed_te(settings: Settings) -> Callable[..., list[Tensor]]:
    """The te function (data, **attrs) of a maximum and where it is; -1: nowhere."""

    def build(data: Tensor, **attrs: Any) -> list[Tensor]:
        w = settings(attrs)
        have = w.data.sizes(data.shape)
        counts = w.counts([have[a] for a in w.spatial])
        axes = _Axes(w, have, {**have, **dict(zip(w.spatial, map(simple, counts)))})
        numbers, values = _first_of_each(axes, data)

        def index(own: dict[str, PrimExpr]) -> PrimExpr:
            number = numbers(*(own[a] for a in f"NC{w.spatial}"))
            left, flat, step = number, const(0, "int64"), const(1, "int64")
            for k, a, n, m in reversed([*axes._each()]):
                reach = cast("int64", w.reach(k, n, m))
                place = w.place(k, own[a], FloorMod(left, reach), n, m)[0]
                left = FloorDiv(left, reach)
                flat, step = flat + cast("int64", place) * step, step * cast("int64", n)
            return Select(number < const(0, "int64"), number, flat)

        def value(own: dict[str, PrimExpr]) -> PrimExpr:
            return values(*(own[a] for a in f"NC{w.spatial}"))

        plain = w.out.name == f"NC{w.spatial}"
        return [
            values if plain else w.out.compute(axes.made, value, "max_pool"),
            w.out.compute(axes.made, index, "indices"),
        ]

    return build


# -- meaning --------------------------------------------------------------------------------------


def _taps(positions: list[np.ndarray]) -> Iterator[tuple[tuple[np.ndarray, ...], np.ndarray]]:
    """For each element that windows have: an index of where it is in every window, and whether it
    is.
    """
    for tap in itertools.product(*(range(p.shape[1]) for p in positions)):
        places = [p[:, t] for p, t in zip(positions, tap)]
        yield np.ix_(*(np.maximum(p, 0) for p in places)), _outer([p >= 0 for p in places])


def _read(x: np.ndarray, place: tuple[np.ndarray, ...], shape: tuple[int, ...]) -> np.ndarray:
    """One element of every window; an axis without places has none."""
    index: Any = (..., *place)
    return x[index] if 0 not in x.shape[2:] else np.zeros(shape, x.dtype)


def _outer(flags: list[np.ndarray]) -> np.ndarray:
    result = np.ones((1,) * len(flags), bool)
    for k, flag in enumerate(flags):
        result = result & flag.reshape([-1 if j == k else 1 for j in range(len(flags))])
    return result


def _positions(w: Windows, sizes: tuple[int, ...]) -> list[np.ndarray]:
    counts = w.counts([int(s) for s in sizes])
    if any(m < 0 for m in counts):
        raise VMValueError(f"a window is larger than the padded data, of {tuple(sizes)}")
    return [w.positions(k, n, m) for k, (n, m) in enumerate(zip(sizes, counts))]


def _divisor(w: Windows, sizes: tuple[int, ...]) -> np.ndarray:
    result = np.ones((1,) * len(sizes), "int64")
    for k, (n, m) in enumerate(zip(sizes, w.counts([int(s) for s in sizes]))):
        shape = [-1 if j == k else 1 for j in range(len(sizes))]
        result = result * w.divisors(k, n, m).reshape(shape)
    return np.maximum(result, 1)


def _numpy_average(total: np.ndarray, count: np.ndarray, kind: np.dtype) -> np.ndarray:
    if kind.kind == "f":
        return (total / count.astype(total.dtype)).astype(kind)
    return (np.abs(total) // count * np.sign(total)).astype(kind)


def _lowest(kind: np.dtype) -> Any:
    return -np.inf if kind.kind == "f" else np.iinfo(kind).min


def pool_numpy(settings: Settings, average: bool) -> Callable[..., np.ndarray]:
    """What a pool means: (data, **attrs) -> array."""

    def meaning(data: np.ndarray, **attrs: Any) -> np.ndarray:
        w = settings(attrs)
        order = f"NC{w.spatial}"
        x = w.data.to_plain(data, order)
        kind = x.dtype
        positions = _positions(w, x.shape[2:])
        shape = (*x.shape[:2], *(len(p) for p in positions))
        # One width up, as sums of 16-bit floats and integers are kept.
        wide = {"float16": "float32", "float32": "float64"}.get(kind.name)
        wide = wide or ("int64" if kind.kind in "iu" else kind.name)
        result = np.zeros(shape, wide) if average else np.full(shape, _lowest(kind), kind)
        for place, there in _taps(positions):
            value = _read(x, place, shape)
            if average:
                result = result + np.where(there, value.astype(wide), 0)
            else:
                result = np.maximum(result, np.where(there, value, np.asarray(_lowest(kind), kind)))
        if average:
            result = _numpy_average(result, _divisor(w, x.shape[2:]), kind)
        return w.out.from_plain(result, order)

    return meaning


def indexed_numpy(settings: Settings) -> Callable[..., tuple[np.ndarray, np.ndarray]]:
    """What a maximum with its place means: (data, **attrs) -> (values, indices)."""

    def meaning(data: np.ndarray, **attrs: Any) -> tuple[np.ndarray, np.ndarray]:
        w = settings(attrs)
        order = f"NC{w.spatial}"
        x = w.data.to_plain(data, order)
        positions = _positions(w, x.shape[2:])
        shape = (*x.shape[:2], *(len(p) for p in positions))
        first, values = _numpy_winners(x, shape, positions)
        indices = np.full(shape, -1)
        for number, (place, there) in enumerate(_taps(positions)):
            flat: Any = 0
            for along, size in zip(place, x.shape[2:]):
                flat = flat * size + along
            indices = np.where(there & (first == number), flat, indices)
        return w.out.from_plain(values, order), w.out.from_plain(indices, order)

    return meaning


def backward_numpy(settings: Settings, average: bool) -> Callable[..., np.ndarray]:
    """What a pool's backward pass means: (gradient of the result, data, **attrs) -> array."""

    def meaning(output_grad: Any, data: Any, **attrs: Any) -> np.ndarray:
        w = settings(attrs)
        order = f"NC{w.spatial}"
        x = w.data.to_plain(np.asarray(data), order)
        wide = np.float32 if x.dtype == np.float16 else np.float64
        g = w.out.to_plain(np.asarray(output_grad), order).astype(wide)
        positions = _positions(w, x.shape[2:])
        result = np.zeros(x.shape, wide)
        if average:
            g = g / _divisor(w, x.shape[2:])
        first = None if average else _numpy_winners(x, g.shape, positions)[0]
        for number, (place, there) in enumerate(_taps(positions) if result.size else ()):
            mine = there if first is None else there & (first == number)
            index: Any = (slice(None), slice(None), *place)
            np.add.at(result, index, np.where(mine, g, 0))
        return w.data.from_plain(result, order).astype(x.dtype)

    return meaning


def _numpy_winners(
    x: np.ndarray, shape: tuple[int, ...], positions: list[np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Which element of each window is the first greatest, or the first NaN; -1 if there is none;
    and its value.
    """
    first, best = np.full(shape, -1), np.full(shape, _lowest(x.dtype), x.dtype)
    for number, (place, there) in enumerate(_taps(positions)):
        value = _read(x, place, shape)
        # Of integers none is not equal to itself, either.
        better = (value > best) | ((value != value) & (best == best)) | (first < 0)
        takes = there & better
        first, best = np.where(takes, number, first), np.where(takes, value, best)
    return first, best
