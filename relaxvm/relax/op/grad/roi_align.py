"""The backward pass of vision.roi_align."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from .... import tir
from ....base import VMValueError
from ....ir import EQ, GE, GT, LE, LT, And, Max, Min, Or, PrimExpr, Select, cast, const
from ....tir import Buffer, IfThenElse, Stmt, seq
from ...expr import Call
from ...rules import LowerBuilder
from ...struct_info import Expr
from ..faces import prepared
from ..infer import tensor
from ..loops import Names, assert_that, call_sums, for_each, load, store
from ..lower import wide_dtype
from ..nn.layout import Layout
from ..record import missing, op
from ..sampling import f64
from ..vision import roi_align, roi_layout, roi_settings
from .shapes import backward_of

ZERO = const(0, "int64")
_MOST = 1 << 24
_TOO_MANY = "roi_align_backward: a region needs too many samples; give a sample_ratio"


# -- meaning --------------------------------------------------------------------------------------


def _numpy(output_grad: Any, data: Any, rois: Any, **attrs: Any) -> np.ndarray:
    lay = roi_layout(attrs["layout"])
    x = lay.to_plain(np.asarray(data), "NCHW").astype("float64")
    g = lay.to_plain(np.asarray(output_grad), "NCHW").astype("float64")
    grad = np.zeros(x.shape)
    for roi, of_roi in zip(np.asarray(rois).astype("float64"), g):
        if not (np.isfinite(roi).all() and 0 <= int(roi[0]) < len(x)) or 0 in x.shape[2:]:
            continue
        picture, grown = x[int(roi[0])], grad[int(roi[0])]
        for (p, rows), (q, columns) in _parts(roi, attrs):
            _spread(picture, grown, of_roi[:, p, q], rows, columns, attrs["mode"])
    return lay.from_plain(grad, "NCHW").astype(np.asarray(data).dtype)


def _parts(roi: np.ndarray, attrs: Any) -> Iterator[Any]:
    """Each part of a region: its place and where its samples lie, along both axes."""
    sides = []
    for axis, parts in enumerate(attrs["pooled_size"]):
        low, high = roi[2 - axis] * attrs["spatial_scale"], roi[4 - axis] * attrs["spatial_scale"]
        begin = low - (0.5 if attrs["aligned"] else 0.0)
        each = (high - low if attrs["aligned"] else max(high - low, 1.0)) / parts
        ratio = attrs["sample_ratio"]
        count = ratio if ratio > 0 else max(int(np.ceil(each)), 0)
        if count > _MOST:
            raise VMValueError(_TOO_MANY)
        offsets = (np.arange(count) + 0.5) * each / max(count, 1)
        sides.append([(p, begin + p * each + offsets) for p in range(parts)])
    for row in sides[0]:
        for column in sides[1]:
            yield row, column


def _around(place: float, size: int) -> list[tuple[int, float]]:
    """The two pixels around a sample and their shares; none more than a pixel outside."""
    if place < -1.0 or place > size:
        return []
    inside = min(max(place, 0.0), size - 1.0)
    low = int(np.floor(inside))
    return [(low, 1.0 - (inside - low)), (min(low + 1, size - 1), inside - low)]


def _spread(
    x: np.ndarray, grad: np.ndarray, g: np.ndarray, rows: Any, columns: Any, mode: str
) -> None:
    samples = [
        [(y, z, wy * wz) for y, wy in _around(i, x.shape[1]) for z, wz in _around(j, x.shape[2])]
        for i in rows
        for j in columns
    ]
    if not samples:
        return
    if mode == "max_corner":
        samples = [part for taps in samples for part in ([[t] for t in taps] or [taps])]
    if mode == "avg":
        for taps in samples:
            for y, z, w in taps:
                grad[:, y, z] += g * w / len(samples)
        return
    values = np.stack(
        [sum((x[:, y, z] * w for y, z, w in taps), np.zeros(len(x))) for taps in samples]
    )
    for channel, best in enumerate(np.argmax(values, axis=0)):
        for y, z, w in samples[best]:
            grad[channel, y, z] += g[channel] * w


# -- legalisation ---------------------------------------------------------------------------------


class _Side:
    """The samples of one part of a region along one axis, in named expressions."""

    def __init__(
        self, names: Names, roi: Any, axis: int, part: PrimExpr, size: PrimExpr, attrs: Any
    ) -> None:
        scale, aligned = f64(attrs["spatial_scale"]), attrs["aligned"]
        low, high = (names.of(roi(k - axis) * scale) for k in (2, 4))
        parts = f64(attrs["pooled_size"][axis])
        length = high - low if aligned else Max(high - low, f64(1.0))
        each = names.of(length / parts)
        self.size = size
        self.known = And(tir.isfinite(low), tir.isfinite(high))
        self.begin = names.of(low - f64(0.5 if aligned else 0.0) + f64(part) * each)
        self.each, ratio = each, attrs["sample_ratio"]
        many = Max(Min(tir.ceil(each), f64(2.0 * _MOST)), f64(0.0))
        # Of NaN, too, there are none: a region that is not finite is left out.
        count = const(ratio, "int64") if ratio > 0 else cast("int64", many)
        self.count = names.of(Select(self.known, count, ZERO))

    def around(self, names: Names, k: PrimExpr) -> tuple[list[tuple[PrimExpr, PrimExpr]], PrimExpr]:
        """The two pixels around sample `k` with their shares, and whether it counts."""
        place = names.of(self.begin + (f64(k) + 0.5) * self.each / f64(self.count))
        size = f64(self.size)
        inside = names.of(Min(Max(place, f64(0.0)), size - 1.0))
        low = names.of(tir.floor(inside))
        share = names.of(inside - low)
        first = names.of(cast("int64", low))
        second = names.of(Min(first + 1, cast("int64", self.size) - 1))
        counts = And(And(GE(place, f64(-1.0)), LE(place, size)), GT(self.size, ZERO))
        return [(first, 1.0 - share), (second, share)], counts


def _lower(builder: LowerBuilder, call: Call) -> Expr:
    g, data, rois = call.args
    attrs = dict(call.attrs)
    lay, wide = roi_layout(attrs["layout"]), wide_dtype(tensor(data, "data").dtype)
    best = [((const(1, "int64"),), wide), ((const(3, "int64"),), "int64")]

    def add(g: Buffer, x: Buffer, rois: Buffer, *, out: list[Buffer], scratch: Any = ()) -> Stmt:
        sizes = lay.sizes(g.shape)
        region = _Region(lay, g, x, rois, out[0], attrs, scratch)
        return for_each([sizes["N"], sizes["H"], sizes["W"]], region.part, "p")

    scratch = [] if attrs["mode"] == "avg" else best
    return call_sums(builder, call, add, g, data, rois, scratch=scratch)


_Share = tuple[PrimExpr, PrimExpr]


def _one_of(second: PrimExpr, a: _Share, b: _Share) -> list[_Share]:
    """The first of two pixels, or the second."""
    return [(Select(second, b[0], a[0]), Select(second, b[1], a[1]))]


class _Region:
    """What the parts of regions add to the gradient."""

    def __init__(
        self, lay: Layout, g: Buffer, x: Buffer, rois: Buffer, total: Buffer, attrs: Any,
        best: list[Buffer],
    ) -> None:  # fmt: skip
        self.lay, self.g, self.x, self.rois, self.total = lay, g, x, rois, total
        self.attrs, self.best, self.corner = attrs, best, attrs["mode"] == "max_corner"
        self.sizes = lay.sizes(x.shape)

    def part(self, r: PrimExpr, p: PrimExpr, q: PrimExpr) -> Stmt:
        names = Names()

        def roi(k: int) -> PrimExpr:
            return f64(load(self.rois, r, const(k, "int64")))

        rows = _Side(names, roi, 0, p, self.sizes["H"], self.attrs)
        columns = _Side(names, roi, 1, q, self.sizes["W"], self.attrs)
        batch = roi(0)
        there = And(And(rows.known, columns.known), tir.isfinite(batch))
        there = And(there, And(GE(tir.trunc(batch), f64(0)), LT(batch, f64(self.sizes["N"]))))
        few = And(LE(rows.count, const(_MOST, "int64")), LE(columns.count, const(_MOST, "int64")))
        n = names.of(Select(there, cast("int64", Select(there, batch, f64(0))), ZERO))
        own = {"N": n, "C": ZERO, "H": ZERO, "W": ZERO}
        place = {"N": r, "H": p, "W": q}

        def channel(c: PrimExpr) -> Stmt:
            g = cast(self.total.dtype, load(self.g, *self.lay.index({**place, "C": c})))
            body = self._greatest if self.best else self._average
            return body({**own, "C": c}, g, rows, columns)

        body = seq(assert_that(few, _TOO_MANY), for_each([self.sizes["C"]], channel, "c"))
        return names.within(IfThenElse(there, body))

    def _add(self, place: Any, g: PrimExpr, rows: Any, columns: Any, inside: PrimExpr) -> Stmt:
        steps = []
        for y, wy in rows:
            for z, wz in columns:
                to = self.lay.index({**place, "H": y, "W": z})
                share = g * cast(self.total.dtype, wy * wz)
                steps.append(store(self.total, load(self.total, *to) + share, *to))
        return IfThenElse(inside, seq(*steps))

    def _average(self, place: Any, g: PrimExpr, rows: _Side, columns: _Side) -> Stmt:
        def sample(i: PrimExpr, j: PrimExpr) -> Stmt:
            names = Names("u")
            (above, in_y), (left, in_x) = rows.around(names, i), columns.around(names, j)
            share = g / cast(self.total.dtype, rows.count * columns.count)
            return names.within(self._add(place, share, above, left, And(in_y, in_x)))

        return for_each([rows.count, columns.count], sample, "s")

    def _greatest(self, place: Any, g: PrimExpr, rows: _Side, columns: _Side) -> Stmt:
        top, where = self.best
        one, two, wide = const(1, "int64"), const(2, "int64"), self.total.dtype

        def look(i: PrimExpr, j: PrimExpr) -> Stmt:
            names = Names("u")
            (above, in_y), (left, in_x) = rows.around(names, i), columns.around(names, j)
            values: list[PrimExpr] = []
            for y, wy in above:
                for z, wz in left:
                    pixel = load(self.x, *self.lay.index({**place, "H": y, "W": z}))
                    read = tir.if_then_else(And(in_y, in_x), pixel, const(0, pixel.dtype))
                    values.append(cast(wide, read) * cast(wide, wy * wz))
            if not self.corner:
                values = [const(0, wide) + values[0] + values[1] + values[2] + values[3]]
            steps = []
            for k, value in enumerate(map(names.of, values)):
                better = Or(LT(load(where, ZERO), ZERO), GT(value, load(top, ZERO)))
                numbers = zip((i, j, const(k, "int64")), (ZERO, one, two))
                taken = seq(
                    store(top, value, ZERO), *(store(where, v, slot) for v, slot in numbers)
                )
                steps.append(IfThenElse(better, taken))
            return names.within(seq(*steps))

        names = Names("b")
        i, j = names.of(load(where, ZERO)), names.of(load(where, one))
        (above, in_y), (left, in_x) = rows.around(names, i), columns.around(names, j)
        there = And(And(in_y, in_x), GE(i, ZERO))
        if self.corner:
            corner = names.of(load(where, two))
            above, left = _one_of(GE(corner, two), *above), _one_of(EQ(corner % 2, one), *left)
        return seq(
            store(where, const(-1, "int64"), ZERO),
            for_each([rows.count, columns.count], look, "s"),
            names.within(self._add(place, g, above, left, there)),
        )


_operator = op(
    "grad.roi_align_backward", _numpy, _lower, missing("second derivatives are not taken")
)
roi_align_backward = prepared(roi_settings)(
    _operator(
        backward_of(
            __name__,
            roi_align,
            """The gradient of vision.roi_align with respect to `data`, given that of its result.
            Attributes are as there.

            The greatest sample of several alike is the first; a region of a batch that is not there
            gives nothing.
            """,
        )
    )
)
