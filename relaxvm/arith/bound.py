"""Intervals of integers with constant ends: how large can this expression be?"""

from __future__ import annotations

import functools

from ..base import DataType, NamedTuple, made_of_tuples

# Larger than any 64-bit product: behaves as infinity in the interval arithmetic below.
POS_INF = 1 << 400
NEG_INF = -POS_INF


_NEAR_INF = POS_INF >> 1  # infinity and something is infinity


def _clamp(value: int) -> int:
    return NEG_INF if value <= -_NEAR_INF else POS_INF if value >= _NEAR_INF else value


class ConstIntBound(NamedTuple):
    """min_value <= x <= max_value; `NEG_INF` and `POS_INF` where nothing is known."""

    min_value: int
    max_value: int

    # ConstIntBound.NEG_INF and POS_INF are set below: a name in a NamedTuple would be a field.

    @staticmethod
    def of(low: int, high: int) -> ConstIntBound:
        """The interval, with ends beyond infinity pulled back to it."""
        if -_NEAR_INF < low < _NEAR_INF and -_NEAR_INF < high < _NEAR_INF:
            return as_bound((low, high))
        return ConstIntBound(_clamp(low), _clamp(high))

    @staticmethod
    def everything() -> ConstIntBound:
        """All integers."""
        return ConstIntBound(NEG_INF, POS_INF)

    @staticmethod
    @functools.cache
    def of_dtype(dtype: DataType) -> ConstIntBound:
        """All values of an integer type."""
        return ConstIntBound(int(dtype.element.min_value), int(dtype.element.max_value))

    @property
    def is_const(self) -> bool:
        """Whether there is only one value."""
        return self.min_value == self.max_value

    def within(self, other: ConstIntBound) -> bool:
        """Whether every value is also in `other`."""
        return other.min_value <= self.min_value and self.max_value <= other.max_value

    def union(self, other: ConstIntBound) -> ConstIntBound:
        """The least interval that covers both."""
        return ConstIntBound(
            min(self.min_value, other.min_value), max(self.max_value, other.max_value)
        )

    def intersect(self, other: ConstIntBound) -> ConstIntBound:
        """What both allow; `self` if they contradict each other."""
        low, high = max(self.min_value, other.min_value), min(self.max_value, other.max_value)
        return ConstIntBound(low, high) if low <= high else self

    def add(self, other: ConstIntBound) -> ConstIntBound:
        return ConstIntBound.of(self.min_value + other.min_value, self.max_value + other.max_value)

    def scale(self, factor: int) -> ConstIntBound:
        a, b = self.min_value * factor, self.max_value * factor
        return ConstIntBound.of(min(a, b), max(a, b))

    def mul(self, other: ConstIntBound) -> ConstIntBound:
        corners = [x * y for x in self for y in other]
        return ConstIntBound.of(min(corners), max(corners))

    def floordiv(self, other: ConstIntBound) -> ConstIntBound:
        """x // y; where y may be 0 the result may be 0 as well."""
        corners: list[int] = []
        for y in _divisors(other):
            corners.extend(x * y if abs(y) == 1 else x // y for x in self)
            if abs(y) >= POS_INF:
                corners.extend((0, -1))
        if other.min_value <= 0 <= other.max_value:
            corners.append(0)
        return ConstIntBound.of(min(corners), max(corners))

    def floormod(self, other: ConstIntBound) -> ConstIntBound:
        """x % y, with the sign of y; 0 where y is 0."""
        if other.min_value > 0 and 0 <= self.min_value and self.max_value < other.min_value:
            return self
        low = min(0, other.min_value + 1) if other.min_value < 0 else 0
        high = max(0, other.max_value - 1) if other.max_value > 0 else 0
        if self.min_value >= 0 and other.min_value >= 0:
            high = min(high, self.max_value)
        return ConstIntBound.of(low, high)

    def truncdiv(self, other: ConstIntBound) -> ConstIntBound:
        largest = max(abs(self.min_value), abs(self.max_value))
        if self.min_value >= 0 and other.min_value > 0:
            return self.floordiv(other)
        return ConstIntBound.of(-largest, largest)

    def truncmod(self, other: ConstIntBound) -> ConstIntBound:
        if self.min_value >= 0 and other.min_value > 0:
            return self.floormod(other)
        largest = max(0, max(abs(other.min_value), abs(other.max_value)) - 1)
        low = max(-largest, min(self.min_value, 0))
        return ConstIntBound.of(low, min(largest, max(self.max_value, 0)))

    def lesser(self, other: ConstIntBound) -> ConstIntBound:
        return ConstIntBound(
            min(self.min_value, other.min_value), min(self.max_value, other.max_value)
        )

    def greater(self, other: ConstIntBound) -> ConstIntBound:
        return ConstIntBound(
            max(self.min_value, other.min_value), max(self.max_value, other.max_value)
        )


as_bound = made_of_tuples(ConstIntBound)

ConstIntBound.NEG_INF, ConstIntBound.POS_INF = NEG_INF, POS_INF  # type: ignore[attr-defined]


def _divisors(bound: ConstIntBound) -> list[int]:
    """The nonzero divisors at which a quotient is extreme."""
    low, high = bound
    candidates = [low, high]
    if low <= -1 <= high:
        candidates.append(-1)
    if low <= 1 <= high:
        candidates.append(1)
    return [y for y in candidates if y != 0] or [1]
