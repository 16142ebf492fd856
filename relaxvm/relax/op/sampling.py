"""Pictures between their pixels: the formulas of resizing, grid_sample and its backward pass.

Each is written once, for numpy arrays and for scalar expressions: `NUMPY` and `TE` say what its
words are. Coordinates are computed in float64 in one order of operations, so that "nearest" is the
same pixel in the meaning and in the kernels.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ... import tir
from ...base import NamedTuple
from ...ir import And, Max, Min, PrimExpr, Select, cast, const


def f64(value: Any) -> PrimExpr:
    """A number or scalar expression in float64."""
    return cast("float64", value) if isinstance(value, PrimExpr) else const(value, "float64")


NUMPY = SimpleNamespace(
    floor=np.floor, ceil=np.ceil, round=np.round, where=np.where, maximum=np.maximum,
    minimum=np.minimum, fabs=np.abs, both=np.logical_and,
    integer=lambda v: np.asarray(v).astype("int64"),
)  # fmt: skip
TE = SimpleNamespace(
    floor=tir.floor, ceil=tir.ceil, round=tir.round,
    where=lambda c, a, b: Select(c, f64(a), f64(b)),
    maximum=lambda a, b: Max(a, f64(b)), minimum=lambda a, b: Min(a, f64(b)),
    fabs=tir.fabs, both=And, integer=lambda v: cast("int64", v),
)  # fmt: skip


class Tap(NamedTuple):
    """A place along an axis, and what it counts.

    place   an integer, in a float or (of `sample_taps`) an int64
    weight  None means 1
    slope   by how much the weight grows with the coordinate; None means 0
    """

    place: Any
    weight: Any
    slope: Any = None


def linear_taps(place: Any, f: Any) -> list[Tap]:
    """The two places around `place`."""
    low = f.floor(place)
    part = place - low
    return [Tap(low, 1.0 - part, -1.0), Tap(low + 1.0, part, 1.0)]


def _far(d: Any, a: float) -> Any:
    """The cubic spline of coefficient `a` from 1 to 2."""
    return ((d * a - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a


def _near(d: Any, a: float) -> Any:
    """The cubic spline of coefficient `a` from 0 to 1."""
    return (d * (a + 2.0) - (a + 3.0)) * d * d + 1.0


def cubic_weight(d: Any, a: float, f: Any) -> Any:
    """The cubic spline of coefficient `a` at the distance `d`."""
    return f.where(d <= 1.0, _near(d, a), f.where(d < 2.0, _far(d, a), 0.0))


def cubic_taps(place: Any, a: float, f: Any) -> list[Tap]:
    """The four places around `place`, by the cubic spline of coefficient `a`."""
    low = f.floor(place)
    t = place - low

    def far_slope(d: Any) -> Any:
        return (d * (3.0 * a) - 10.0 * a) * d + 8.0 * a

    def near_slope(d: Any) -> Any:
        return (d * (3.0 * (a + 2.0)) - 2.0 * (a + 3.0)) * d

    weights = [_far(t + 1.0, a), _near(t, a), _near(1.0 - t, a), _far(2.0 - t, a)]
    slopes = [far_slope(t + 1.0), near_slope(t), -near_slope(1.0 - t), -far_slope(2.0 - t)]
    return [Tap(low + float(k - 1), w, s) for k, (w, s) in enumerate(zip(weights, slopes))]


# -- grid_sample ----------------------------------------------------------------------------------

_ALPHA = -0.75


def _reflected(x: Any, size: Any, align: bool, f: Any) -> tuple[Any, Any]:
    """`x` mirrored at the first and the last pixel (`align`: at their centres) until inside, and
    by how much that grows with `x`.
    """
    low, span = (0.0, size - 1.0) if align else (-0.5, size + 0.0)
    way = f.fabs(x - low)
    safe = f.where(span > 0.0, span, 1.0)
    turns = f.floor(way / safe)
    rest = way - turns * safe
    odd = turns - f.floor(turns * 0.5) * 2.0 > 0.5
    inside = f.where(odd, safe - rest, rest) + low
    sign = f.where(x >= low, 1.0, -1.0)
    sign = f.where(odd, -sign, sign)
    return f.where(span > 0.0, inside, 0.0), f.where(span > 0.0, sign, 0.0)


def _clipped(x: Any, size: Any, f: Any) -> tuple[Any, Any]:
    """`x` moved to the first or last pixel if outside (NaN to the first), and by how much that
    grows with `x`.
    """
    clipped = f.where(x > 0.0, f.minimum(x, size - 1.0), 0.0)
    return clipped, f.where(f.both(x > 0.0, x < size - 1.0), 1.0, 0.0)


def _padded(x: Any, size: Any, mode: str, align: bool, f: Any) -> tuple[Any, Any]:
    if mode == "border":
        return _clipped(x, size, f)
    turned, sign = _reflected(x, size, align, f)
    clipped, grows = _clipped(turned, size, f)
    return clipped, grows * sign


def _index(place: Any, size: Any, f: Any) -> Any:
    """A place as an integer: -1 or `size` for all that lie outside, and for NaN."""
    return f.integer(f.where(place >= 0.0, f.minimum(place, size), -1.0))


def sample_taps(g: Any, size: Any, attrs: Any, f: Any) -> list[Tap]:
    """The pixels that grid value `g` means along an axis of `size`; they may lie outside. Slopes
    are those of the weights by `g`.
    """
    align, mode = attrs["align_corners"], attrs["padding_mode"]
    grows: Any
    if attrs["in_pixels"]:
        place, grows = g, 1.0
    elif align:
        place, grows = (g + 1.0) * (size - 1.0) / 2.0, (size - 1.0) / 2.0
    else:
        place, grows = ((g + 1.0) * size - 1.0) / 2.0, size / 2.0
    if attrs["method"] == "bicubic":
        taps = cubic_taps(place, _ALPHA, f)
        if mode != "zeros":
            taps = [t._replace(place=_padded(t.place, size, mode, align, f)[0]) for t in taps]
    else:
        if mode != "zeros":
            place, more = _padded(place, size, mode, align, f)
            grows = grows * more
        if attrs["method"] == "nearest":
            return [Tap(_index(f.round(place), size, f), None)]
        taps = linear_taps(place, f)
    return [Tap(_index(i, size, f), w, grows * s) for i, w, s in taps]


def weighted(axes: Sequence[Sequence[Tap]], read: Any, *places: Any) -> Any:
    """The sum of ``read(*places)`` times the weights, over all taps of each axis."""
    if not axes:
        return read(*places)
    total: Any = None
    for tap in axes[0]:
        term = weighted(axes[1:], read, *places, tap.place)
        term = term if tap.weight is None else term * tap.weight
        total = term if total is None else total + term
    return total
