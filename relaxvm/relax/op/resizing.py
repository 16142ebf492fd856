"""What resizing means along any axes, and what it becomes: one axis after the other, the last one
first.

Which places a place of the result is made of, and with which weights, is the same for all lines
along an axis: loops compute it once, in tables, so that the loops over the data only read and add.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, NamedTuple
from ...ir import GT, IntImm, PrimExpr, Select, cast, const
from ...te import Tensor, compute, reduce_axis
from ...te import sum as te_sum
from .infer import want_word
from .meaning import value_dtype
from .nn.window import static
from .sampling import NUMPY, TE, Tap, cubic_taps, cubic_weight, f64, linear_taps
from .sizes import simplified

_METHODS = ("nearest_neighbor", "linear", "cubic")
_MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
    "half_pixel_symmetric",
)
_ROUNDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "round": lambda x, f: f.ceil(x - 0.5),
    "round_prefer_floor": lambda x, f: f.ceil(x - 0.5),
    "round_prefer_ceil": lambda x, f: f.floor(x + 0.5),
    "floor": lambda x, f: f.floor(x),
    "ceil": lambda x, f: f.ceil(x),
}


class Along(NamedTuple):
    """How one axis is resized.

    out    its size in the result
    roi    what tf_crop_and_resize makes all of the result: its begin and end, from 0 to 1
    scale  how much longer it becomes, as a number or an expression; None: the quotient of sizes
    """

    axis: int
    out: Any
    roi: tuple[float, float]
    scale: Any = None


def factor_of(value: Any, f: Any) -> Any:
    """A scale that the program computed; 1 for what would give no places (NaN is not greater)."""
    return f.where(value > 1e-100, value, 1.0)


def check_words(method: str, mode: str, rounding: str) -> None:
    """Raises StructInfoError for a word that resizing does not know."""
    want_word("method", method, _METHODS)
    want_word("coordinate_transformation_mode", mode, _MODES)
    want_word("rounding_method", rounding, ("", *_ROUNDINGS))


# -- places and weights ---------------------------------------------------------------------------


def _coordinate(x: Any, size: Any, out: Any, way: Along, mode: str, f: Any) -> Any:
    """Where output place `x` of `out` lies among `size` input places; all are float64."""
    scale = way.scale
    length = out if scale is None else size * scale
    several = length > 1.0
    gaps = f.where(several, length - 1.0, 1.0)
    if mode == "asymmetric":
        return x * size / out if scale is None else x / scale
    if mode == "align_corners":
        return f.where(several, x * (size - 1.0) / gaps, 0.0)
    if mode == "tf_crop_and_resize":
        begin, end = way.roi
        inside = x * ((size - 1.0) * (end - begin)) / gaps + (size - 1.0) * begin
        return f.where(several, inside, (size - 1.0) * (0.5 * (begin + end)))
    centre = (x * 2.0 + 1.0) * size / (out * 2.0) if scale is None else (x + 0.5) / scale
    if mode == "tf_half_pixel_for_nn":
        return centre
    if mode == "pytorch_half_pixel":
        return f.where(several, centre - 0.5, 0.0)
    if mode == "half_pixel_symmetric" and scale is not None:
        # The middle of the result is the middle of the data.
        return size * 0.5 * (1.0 - out / length) + (centre - 0.5)
    return centre - 0.5


def axis_taps(
    x: Any, size: Any, out: Any, way: Along, attrs: dict[str, Any], f: Any
) -> tuple[list[Tap], Any]:
    """The input places that output place `x` is made of, and whether it is inside (None: it is)."""
    mode = attrs["coordinate_transformation_mode"]
    place = _coordinate(x, size, out, way, mode, f)
    inside = None
    if mode == "tf_crop_and_resize":
        inside = f.both(place >= 0.0, place <= size - 1.0)
    if attrs["method"] == "nearest_neighbor":
        usual = "round" if mode == "align_corners" else "floor"
        taps = [Tap(_ROUNDINGS[attrs["rounding_method"] or usual](place, f), None)]
    elif attrs["method"] == "linear":
        taps = linear_taps(place, f)
    else:
        taps = cubic_taps(place, attrs["cubic_alpha"], f)
        if attrs["cubic_exclude"]:
            kept = [f.where(f.both(i >= 0.0, i <= size - 1.0), w, 0.0) for i, w, _ in taps]
            total = kept[0] + kept[1] + kept[2] + kept[3]
            taps = [Tap(tap.place, w / total) for tap, w in zip(taps, kept)]
    return [Tap(_within(i, size, f), w) for i, w, _ in taps], inside


def _within(place: Any, size: Any, f: Any) -> Any:
    return f.minimum(f.maximum(place, 0.0), size - 1.0)


# Where the weights of antialiasing end, in pixels of the smaller picture.
_SUPPORT = {"linear": 1, "cubic": 2}


def _is_spread(way: Along, size: Any, attrs: dict[str, Any]) -> bool:
    """Whether more places count than without antialias: where the axis does not grow."""
    if not attrs.get("antialias") or attrs["method"] == "nearest_neighbor":
        return False
    if isinstance(way.scale, float):
        return way.scale < 1.0
    have, out = static(size), static(way.out)
    return way.scale is not None or have is None or out is None or out < have


def _reach(way: Along, size: Any, attrs: dict[str, Any]) -> Any:
    """How many input places have a weight in a place of the result, at most."""
    support = _SUPPORT[attrs["method"]]
    if isinstance(way.scale, float):
        return 2 * math.ceil(support / way.scale)
    # A scale that is not known may be less than the quotient: the size is rounded, up from a half.
    size, out = (size, way.out) if way.scale is None else (size * 2, way.out * 2 - 1)
    out = tir.max(out, 1)
    return simplified(tir.max((size * support + (out - 1)) // out, support) * 2)


def _first(x: Any, size: Any, out: Any, way: Along, reach: Any, attrs: Any, f: Any) -> Any:
    """The first of the `reach` places around output place `x`."""
    place = _coordinate(x, size, out, way, attrs["coordinate_transformation_mode"], f)
    return f.floor(place) - reach * 0.5 + 1.0


def _spread_weight(
    x: Any, tap: Any, size: Any, out: Any, way: Along, attrs: dict[str, Any], f: Any
) -> Any:
    """What input place `tap` counts in output place `x`; the sum is not 1 yet."""
    place = _coordinate(x, size, out, way, attrs["coordinate_transformation_mode"], f)
    scale = f.minimum(out / size if way.scale is None else way.scale, 1.0)
    away = f.fabs(tap - place) * scale
    if attrs["method"] == "linear":
        weight = f.maximum(1.0 - away, 0.0)
    else:
        weight = cubic_weight(away, attrs["cubic_alpha"], f)
    if attrs["cubic_exclude"]:
        weight = f.where(f.both(tap >= 0.0, tap <= size - 1.0), weight, 0.0)
    return weight


# -- tensor expressions ---------------------------------------------------------------------------


def resize_te(x: Tensor, ways: Sequence[Along], dtype: DataType, attrs: dict[str, Any]) -> Tensor:
    """`x` resized along the axes of `ways`, in `dtype`."""
    wide = DataType("float32" if x.dtype.is_float and x.dtype.bits < 64 else "float64")
    sizes = [x.shape[w.axis] for w in ways]
    some = [GT(n, const(0, "int64")) for n in sizes if not isinstance(n, IntImm)]
    data = x

    def read(*index: PrimExpr) -> PrimExpr:
        # A symbolic size may turn out 0: there is no pixel to read then.
        value = data(*index)
        return tir.if_then_else(tir.all(*some), value, const(0, value.dtype)) if some else value

    nearest = attrs["method"] == "nearest_neighbor"
    outside = _inside_tables(x, ways, attrs)
    if nearest:
        y = _picked(x, ways, attrs, read, dtype)
    else:
        y = x
        for way in reversed(ways):
            y = _mixed(y, way, attrs, read if y is data else y, wide)
    if y.dtype is dtype and not outside:
        return y
    fill = cast(dtype, const(attrs["extrapolation_value"], "float64"))

    def finished(*index: PrimExpr) -> PrimExpr:
        value = cast(dtype, y(*index))
        if not outside:
            return value
        known = tir.all(*(t(index[axis]) != 0 for axis, t in outside.items()))
        return Select(known, value, fill)

    return compute(y.shape, finished, "resize")


def _table(way: Along, value: Callable[..., PrimExpr], name: str, *more: Any) -> Tensor:
    """``value(i, way, *more)`` for each place `i` of the result along the axis."""
    return compute((way.out,), lambda i: value(i, way, *more), name)


def _inside_tables(x: Tensor, ways: Sequence[Along], attrs: dict[str, Any]) -> dict[int, Tensor]:
    """axis -> whether its places are inside (as 1); nothing where all are."""
    if attrs["coordinate_transformation_mode"] != "tf_crop_and_resize":
        return {}

    def inside(i: PrimExpr, way: Along) -> PrimExpr:
        known = axis_taps(f64(i), f64(x.shape[way.axis]), f64(way.out), way, attrs, TE)[1]
        return cast("int8", known)

    return {w.axis: _table(w, inside, "inside") for w in ways}


def _picked(
    x: Tensor, ways: Sequence[Along], attrs: dict[str, Any], read: Any, dtype: DataType
) -> Tensor:
    """The nearest elements, along all axes at once."""

    def place(i: PrimExpr, way: Along) -> PrimExpr:
        size = f64(x.shape[way.axis])
        return cast("int64", axis_taps(f64(i), size, f64(way.out), way, attrs, TE)[0][0].place)

    tables = {w.axis: _table(w, place, "place") for w in ways}
    shape = list(x.shape)
    for way in ways:
        shape[way.axis] = way.out

    def value(*index: PrimExpr) -> PrimExpr:
        own = [tables[k](i) if k in tables else i for k, i in enumerate(index)]
        return cast(dtype, read(*own))

    return compute(tuple(shape), value, "nearest")


def _mixed(x: Tensor, way: Along, attrs: dict[str, Any], read: Any, wide: DataType) -> Tensor:
    """Sums of neighbours along one axis, in `wide`."""
    axis, size, out = way.axis, f64(x.shape[way.axis]), f64(way.out)
    shape = (*x.shape[:axis], way.out, *x.shape[axis + 1 :])

    def neighbour(index: Sequence[PrimExpr], place: PrimExpr) -> PrimExpr:
        return cast(wide, read(*index[:axis], place, *index[axis + 1 :]))

    if not _is_spread(way, x.shape[axis], attrs):
        count = len(axis_taps(f64(0.0), size, out, way, attrs, TE)[0])

        def part(i: PrimExpr, way: Along, k: int, weight: bool) -> PrimExpr:
            tap = axis_taps(f64(i), size, out, way, attrs, TE)[0][k]
            return cast(wide, tap.weight) if weight else cast("int64", tap.place)

        places, weights = (
            [_table(way, part, f"{name}{k}", k, w) for k in range(count)]
            for name, w in (("place", False), ("weight", True))
        )

        def value(*index: PrimExpr) -> PrimExpr:
            i = index[axis]
            terms = [neighbour(index, p(i)) * w(i) for p, w in zip(places, weights)]
            total = terms[0]
            for term in terms[1:]:
                total = total + term
            return total

        return compute(shape, value, "resized")

    reach = _reach(way, x.shape[axis], attrs)
    first = compute(
        (way.out,), lambda i: _first(f64(i), size, out, way, f64(reach), attrs, TE), "first"
    )
    raw = compute(
        (way.out, reach),
        lambda i, k: _spread_weight(f64(i), first(i) + f64(k), size, out, way, attrs, TE),
        "raw",
    )
    k = reduce_axis((0, reach), "k")
    total = compute((way.out,), lambda i: te_sum(raw(i, k.var), axis=k), "total")
    weight = compute(raw.shape, lambda i, k: cast(wide, raw(i, k) / total(i)), "weight")
    tap = reduce_axis((0, reach), "tap")

    def spread(*index: PrimExpr) -> PrimExpr:
        i = index[axis]
        place = cast("int64", _within(first(i) + f64(tap.var), size, TE))
        return te_sum(neighbour(index, place) * weight(i, tap.var), axis=tap)

    return compute(shape, spread, "resized")


# -- meaning --------------------------------------------------------------------------------------


def resize_numpy(x: np.ndarray, ways: Sequence[Along], attrs: dict[str, Any]) -> np.ndarray:
    """`x` resized along the axes of `ways`; in float64 on the way, rounded once."""
    kind = x.dtype if attrs["out_dtype"] is None else value_dtype(attrs["out_dtype"])
    nearest = attrs["method"] == "nearest_neighbor"
    y, shape, flags = x, list(x.shape), np.ones((1,) * x.ndim, bool)
    for way in ways:
        shape[way.axis] = way.out
        places = np.arange(way.out, dtype="float64")
        sizes = np.float64(x.shape[way.axis]), np.float64(way.out)
        inside = axis_taps(places, *sizes, way, attrs, NUMPY)[1]
        if inside is not None:
            flags = flags & _in_axis(inside, way.axis, x.ndim)
    if 0 in shape or 0 in x.shape:
        y = np.zeros(shape, kind)
    else:
        for way in reversed(ways):
            y = _numpy_along(y, way, attrs)
    if nearest and (x.dtype == kind or (x.dtype.kind in "iu" and kind.kind in "iu")):
        y = y.astype(kind)
    else:
        y = as_dtype(y, kind)
    fill = as_dtype(np.asarray(attrs["extrapolation_value"], "float64"), kind)
    return np.where(flags, y, fill)


def _in_axis(values: np.ndarray, axis: int, ndim: int) -> np.ndarray:
    return values.reshape([-1 if k == axis else 1 for k in range(ndim)])


def _numpy_along(x: np.ndarray, way: Along, attrs: dict[str, Any]) -> np.ndarray:
    size, out = np.float64(x.shape[way.axis]), np.float64(way.out)
    places = np.arange(way.out, dtype="float64")
    if _is_spread(way, x.shape[way.axis], attrs):
        reach: Any = static(_reach(way, x.shape[way.axis], attrs))
        first = _first(places, size, out, way, float(reach), attrs, NUMPY)
        near = first[:, None] + np.arange(reach)
        weights = _spread_weight(places[:, None], near, size, out, way, attrs, NUMPY)
        weights = weights / weights.sum(1, keepdims=True)
        taps = [Tap(_within(near[:, k], size, NUMPY), weights[:, k]) for k in range(reach)]
    else:
        taps = axis_taps(places, size, out, way, attrs, NUMPY)[0]
    total: Any = None
    for place, weight, _ in taps:
        index = np.broadcast_to(place, places.shape).astype("int64")
        term = np.take(x, index, way.axis)
        if weight is None:
            return term
        term = term.astype("float64") * _in_axis(weight, way.axis, x.ndim)
        total = term if total is None else total + term
    return total


def as_dtype(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Floats as `kind`; as integers toward zero, the nearest there is for what does not fit."""
    if kind.kind == "f":
        return x.astype(kind)
    limits = np.iinfo(kind)
    most = np.nextafter(float(limits.max), 0) if kind.itemsize == 8 else limits.max
    return np.clip(np.trunc(x), float(limits.min), most).astype(kind)
