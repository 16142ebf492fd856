"""The windows of pools: `Pool`, all of one size, and `Parts`, which divide the data among them.

Both answer the same questions for each spatial axis `k`, of data of `size` and a result of `count`:

    counts      how many windows there are            positions   which places each one has (numpy)
    reach       how many places a window has at most  place       where one of them is
    holders     how many windows a place has at most  holder      which one of them is
    divisor     what the sum of a window is divided by for its average   divisors  the same (numpy)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ....base import StructInfoError, record
from ....ir import EQ, GE, LT, FloorDiv, FloorMod, IntImm, Max, Min, PrimExpr, const, is_const
from .layout import Layout, layout_of
from .window import SPATIAL, padding_of, positive_dim, simple, spread, text_of, window_count


@record
class Pool:
    """Windows of one size; the attributes of a pool in one form."""

    spatial: str
    data: Layout
    out: Layout
    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool
    include_pad: bool

    @property
    def before(self) -> tuple[int, ...]:
        return self.padding[: len(self.spatial)]

    @property
    def after(self) -> tuple[int, ...]:
        return self.padding[len(self.spatial) :]

    def counts(self, sizes: Sequence[Any]) -> list[Any]:
        return [
            window_count(
                size, self.size[k], self.strides[k], self.before[k], self.after[k],
                self.dilation[k], self.ceil,
            )
            for k, size in enumerate(sizes)
        ]  # fmt: skip

    def reach(self, k: int, size: Any, count: Any) -> Any:
        return self.size[k]

    def place(
        self, k: int, window: PrimExpr, tap: PrimExpr, size: PrimExpr, count: PrimExpr
    ) -> tuple[PrimExpr, list[PrimExpr]]:
        i = window * self.strides[k] + tap * self.dilation[k] - self.before[k]
        inside: list[PrimExpr] = []
        if self.before[k]:
            inside.append(GE(i, const(0, i.dtype)))
        if self.after[k] or self.ceil:
            inside.append(LT(i, size))
        return i, inside

    def holders(self, k: int, size: Any, count: Any) -> Any:
        return -(-((self.size[k] - 1) * self.dilation[k] + 1) // self.strides[k])

    def holder(
        self, k: int, place: PrimExpr, nth: PrimExpr, size: PrimExpr, count: PrimExpr
    ) -> tuple[PrimExpr, PrimExpr, list[PrimExpr]]:
        padded = place + self.before[k]
        stride, step = const(self.strides[k], padded.dtype), const(self.dilation[k], padded.dtype)
        window = FloorDiv(padded, stride) - nth
        away = padded - window * stride
        tap = FloorDiv(away, step)
        inside: list[PrimExpr] = [
            GE(window, const(0, padded.dtype)),
            LT(window, count),
            LT(tap, const(self.size[k], padded.dtype)),
        ]
        if self.dilation[k] > 1:
            inside.append(EQ(FloorMod(away, step), const(0, padded.dtype)))
        return window, tap, inside

    def divisor(self, k: int, window: PrimExpr, size: PrimExpr, count: PrimExpr) -> PrimExpr:
        whole = const(self.size[k], window.dtype)
        first, last = (-self.before[k], size + self.after[k]) if self.include_pad else (0, size)
        begins_before = first > -self.before[k]
        if not (begins_before or self.ceil or (self.after[k] and not self.include_pad)):
            return whole
        step, zero = const(self.dilation[k], window.dtype), const(0, window.dtype)
        begin = window * self.strides[k] - self.before[k]
        # Places begin + step * t with first <= place < last: t from `low` to before `high`.
        low = Max(FloorDiv(first - begin + (step - 1), step), zero) if begins_before else zero
        high = Min(FloorDiv(last - begin + (step - 1), step), whole)
        return Max(high - low, zero)

    def positions(self, k: int, size: int, count: int) -> np.ndarray:
        """[windows, taps], -1 for a place in the padding."""
        starts = np.arange(count)[:, None] * self.strides[k] - self.before[k]
        places = starts + np.arange(self.size[k]) * self.dilation[k]
        return np.where((places >= 0) & (places < size), places, -1)

    def divisors(self, k: int, size: int, count: int) -> np.ndarray:
        first, last = (-self.before[k], size + self.after[k]) if self.include_pad else (0, size)
        starts = np.arange(count)[:, None] * self.strides[k] - self.before[k]
        places = starts + np.arange(self.size[k]) * self.dilation[k]
        return np.count_nonzero((places >= first) & (places < last), axis=1)


@record
class Parts:
    """Windows that divide the data: part i of m of an axis of size s is i * s // m to (i + 1) * s /
    m, rounded up.

    many  how many parts each axis has; None: as many as places
    """

    spatial: str
    data: Layout
    out: Layout
    many: tuple[int, ...] | None

    def counts(self, sizes: Sequence[Any]) -> list[Any]:
        if self.many is None:
            return list(sizes)
        return [m if isinstance(s, int) else const(m, s.dtype) for m, s in zip(self.many, sizes)]

    def reach(self, k: int, size: Any, count: Any) -> Any:
        return _longest(size, count)

    def place(
        self, k: int, window: PrimExpr, tap: PrimExpr, size: PrimExpr, count: PrimExpr
    ) -> tuple[PrimExpr, list[PrimExpr]]:
        even = _even(size, count)
        if even is not None:
            return _times(window, even, count) + tap, []
        begin, end = _span(window, size, count)
        return begin + tap, [LT(begin + tap, end)]

    def holders(self, k: int, size: Any, count: Any) -> Any:
        return _longest(count, size)

    def holder(
        self, k: int, place: PrimExpr, nth: PrimExpr, size: PrimExpr, count: PrimExpr
    ) -> tuple[PrimExpr, PrimExpr, list[PrimExpr]]:
        # The parts that hold a place are those that the result's axis has there in turn.
        first, last = _span(place, count, size)
        window = first + nth
        return window, place - _span(window, size, count)[0], [LT(window, last)]

    def divisor(self, k: int, window: PrimExpr, size: PrimExpr, count: PrimExpr) -> PrimExpr:
        even = _even(size, count)
        if even is not None:
            return even
        begin, end = _span(window, size, count)
        return end - begin

    def positions(self, k: int, size: int, count: int) -> np.ndarray:
        """[windows, taps], -1 behind the end of a part that is shorter than another."""
        i = np.arange(count)
        begin, end = i * size // max(count, 1), -(-(i + 1) * size // max(count, 1))
        places = begin[:, None] + np.arange(max((end - begin).max(initial=0), 0))
        return np.where(places < end[:, None], places, -1)

    def divisors(self, k: int, size: int, count: int) -> np.ndarray:
        return np.count_nonzero(self.positions(k, size, count) >= 0, axis=1)


def _span(i: PrimExpr, size: PrimExpr, many: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Where part `i` of `many` of an axis of `size` begins, and where it ends."""
    return FloorDiv(i * size, many), FloorDiv((i + 1) * size + (many - 1), many)


def _even(size: PrimExpr, many: PrimExpr) -> PrimExpr | None:
    """The length of all parts of an axis of `size` if they are known to be of one length."""
    if size is many:
        return const(1, size.dtype)
    if not isinstance(many, IntImm) or many.value == 0:
        return None
    if many.value == 1:
        return size
    if isinstance(size, IntImm) and size.value % many.value == 0:
        return const(size.value // many.value, size.dtype)
    return None


def _times(i: PrimExpr, length: PrimExpr, many: PrimExpr) -> PrimExpr:
    """Where part `i` of `many` of one length begins."""
    if is_const(many, 1):
        return const(0, i.dtype)
    return i if is_const(length, 1) else i * length


def _longest(size: PrimExpr, many: PrimExpr) -> PrimExpr:
    """The length of the longest of the parts that an axis of `size` is divided into."""
    even = _even(size, many)
    if even is not None:
        return even
    if isinstance(size, IntImm) and isinstance(many, IntImm):
        n, m = size.value, many.value
        if m == 0:
            return const(0, size.dtype)
        # Part i begins at i * n / m rounded down: what is lost repeats after m / gcd parts.
        period = m // math.gcd(n, m)
        ends = (((i + 1) * n + m - 1) // m - i * n // m for i in range(min(period, 4096)))
        return const(max(ends) if period <= 4096 else n // m + 2, size.dtype)
    return simple(FloorDiv(size + (many - 1), many) + 1)


# -- from attributes ------------------------------------------------------------------------------


def layouts(ndim: int, attrs: dict[str, Any]) -> tuple[str, Layout, Layout]:
    """The letters of the spatial axes, the layout of the data and that of the result."""
    spatial = SPATIAL[ndim]
    if attrs["out_layout"] is None:
        attrs["out_layout"] = attrs["layout"]
    data = layout_of(attrs["layout"], f"NC{spatial}", "layout")
    out = layout_of(attrs["out_layout"], f"NC{spatial}", "out_layout")
    for lay, name in ((data, "layout"), (out, "out_layout")):
        if any(a in lay.blocks for a in spatial):
            raise StructInfoError(f"{name}: wanted only C or N in blocks, got {lay.name}")
    return spatial, data, out


def pool(ndim: int, attrs: dict[str, Any]) -> Pool:
    """The attributes checked; `attrs` is changed to hold them in one form, as calls keep them."""
    for name in ("pool_size", "strides", "dilation"):
        attrs[name] = spread(attrs[name], ndim, name)
    attrs["padding"] = padding_of(attrs["padding"], ndim)
    return Pool(
        *layouts(ndim, attrs),
        attrs["pool_size"],
        attrs["strides"],
        attrs["padding"],
        attrs["dilation"],
        attrs["ceil_mode"],
        attrs.get("count_include_pad", False),
    )


def parts(ndim: int, attrs: dict[str, Any]) -> Parts:
    """As `pool`, of the attributes of an adaptive pool."""
    if attrs["output_size"] is not None:
        attrs["output_size"] = spread(attrs["output_size"], ndim, "output_size")
    return Parts(*layouts(ndim, attrs), attrs["output_size"])


def result_dims(windows: Pool | Parts, dims: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The dimensions of a pool's result, for data of dimensions `dims`."""
    sizes = windows.data.sizes(dims)
    counts = windows.counts([sizes[a] for a in windows.spatial])
    for k, (axis, count) in enumerate(zip(windows.spatial, counts)):
        size = sizes[axis]
        why = f"a window of {windows.size[k]}" if isinstance(windows, Pool) else "a part"
        sizes[axis] = positive_dim(count, f"axis {axis}: {why} on data of {text_of(size)}")
    return [simple(d) for d in windows.out.shape(sizes, "out_layout")]
