"""Pictures at other sizes and places: resize2d, grid_sample. The formulas are in sampling.py."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, StructInfoError
from ...ir import GE, GT, LT, And, IntImm, PrimExpr, Select, cast, const
from ...te import Tensor
from ..expr import Call, PrimValue, ShapeExpr, TupleGetItem
from ..rules import Ops
from ..struct_info import Expr, StructInfo
from .faces import prepared
from .infer import FLOAT, NUMBER, dtype_of, shape_argument, shaped, tensor, tensor_of
from .lower import te_lower
from .meaning import value_dtype
from .nn.layout import Layout, layout_of
from .nn.window import static
from .record import Shape, op
from .sampling import NUMPY, TE, Tap, cubic_taps, f64, linear_taps, sample_taps, weighted
from .sizes import want_equal

# -- resize2d -------------------------------------------------------------------------------------

_METHODS = ("nearest_neighbor", "linear", "cubic")
_MODES = (
    "half_pixel",
    "align_corners",
    "asymmetric",
    "pytorch_half_pixel",
    "tf_half_pixel_for_nn",
    "tf_crop_and_resize",
)
_ROUNDINGS: dict[str, Callable[[Any, Any], Any]] = {
    "round": lambda x, f: f.ceil(x - 0.5),
    "round_prefer_floor": lambda x, f: f.ceil(x - 0.5),
    "round_prefer_ceil": lambda x, f: f.floor(x + 0.5),
    "floor": lambda x, f: f.floor(x),
    "ceil": lambda x, f: f.ceil(x),
}


def _coordinate(x: Any, size: Any, out: Any, mode: str, roi: tuple[float, float], f: Any) -> Any:
    """Where output place `x` of `out` lies among `size` input places; all are float64."""
    several = out > 1.0
    gaps = f.where(several, out - 1.0, 1.0)
    if mode == "asymmetric":
        return x * size / out
    if mode == "align_corners":
        return f.where(several, x * (size - 1.0) / gaps, 0.0)
    if mode == "tf_crop_and_resize":
        begin, end = roi
        inside = x * ((size - 1.0) * (end - begin)) / gaps + (size - 1.0) * begin
        return f.where(several, inside, (size - 1.0) * (0.5 * (begin + end)))
    centre = (x * 2.0 + 1.0) * size / (out * 2.0)
    if mode == "tf_half_pixel_for_nn":
        return centre
    if mode == "pytorch_half_pixel":
        return f.where(several, centre - 0.5, 0.0)
    return centre - 0.5


def axis_taps(
    x: Any, size: Any, out: Any, roi: tuple[float, float], attrs: dict[str, Any], f: Any
) -> tuple[list[Tap], Any]:
    """The input places that output place `x` is made of, and whether it is inside (None: it is)."""
    mode = attrs["coordinate_transformation_mode"]
    place = _coordinate(x, size, out, mode, roi, f)
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
    return [Tap(f.minimum(f.maximum(i, 0.0), size - 1.0), w) for i, w, _ in taps], inside


def resize_settings(
    values: dict[str, Any],
    method: str = "linear",
    mode: str = "half_pixel",
    rounding: str = "round",
) -> None:
    """Attributes of resize2d checked; `values` is changed to hold them in one form."""
    for name, value, known in (
        ("method", method, _METHODS),
        ("coordinate_transformation_mode", mode, _MODES),
        ("rounding_method", rounding, ("", *_ROUNDINGS)),
    ):
        if value not in known:
            raise StructInfoError(
                f"{name}: wanted one of {', '.join(filter(None, known))}, got {value!r}"
            )
    roi = values["roi"]
    if roi is None:
        roi = (0.0, 0.0, 0.0, 0.0)
    roi = (roi,) * 4 if isinstance(roi, (int, float)) else roi
    good = isinstance(roi, tuple) and len(roi) == 4 and all(type(v) in (int, float) for v in roi)
    if not (good and all(map(math.isfinite, roi))):
        raise StructInfoError(
            f"roi: wanted 4 numbers (start_h, start_w, end_h, end_w), got {values['roi']!r}"
        )
    values["roi"] = tuple(map(float, roi))
    size = values.get("size")
    if isinstance(size, (int, PrimExpr, PrimValue)):
        size = (size, size)
    if isinstance(size, tuple):
        size = size * 2 if len(size) == 1 else size
        values["size"] = ShapeExpr(tuple(v.value if isinstance(v, PrimValue) else v for v in size))


def resize_layout(layout: Any) -> Layout:
    lay = layout_of(layout, "NCHW", "layout")
    if "H" in lay.blocks or "W" in lay.blocks:
        raise StructInfoError(f"layout: wanted only C or N in blocks, got {layout}")
    return lay


def _resize_te(data: Tensor, size: list[PrimExpr], **attrs: Any) -> Tensor:
    lay = resize_layout(attrs["layout"])
    have = lay.sizes(data.shape)
    sizes = {**have, "H": size[0], "W": size[1]}
    dtype = DataType(attrs["out_dtype"] or data.dtype)
    wide = "float32" if data.dtype.is_float and data.dtype.bits < 64 else "float64"
    top, left, bottom, right = attrs["roi"]
    some = [GT(have[a], const(0, "int64")) for a in "HW" if not isinstance(have[a], IntImm)]

    def value(i: dict[str, PrimExpr]) -> PrimExpr:
        rows, in_y = axis_taps(f64(i["H"]), f64(have["H"]), f64(size[0]), (top, bottom), attrs, TE)
        columns, in_x = axis_taps(
            f64(i["W"]), f64(have["W"]), f64(size[1]), (left, right), attrs, TE
        )

        def pixel(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            place = {**i, "H": cast("int64", y), "W": cast("int64", x)}
            read = data(*lay.index(place))
            # A symbolic size may turn out 0: there is no pixel to read then.
            return tir.if_then_else(tir.all(*some), read, const(0, read.dtype)) if some else read

        if rows[0][1] is None:
            value_of = cast(dtype, pixel(rows[0][0], columns[0][0]))
        else:
            value_of = cast(dtype, weighted(rows, columns, pixel, wide))
        if in_y is None:
            return value_of
        return Select(And(in_y, in_x), value_of, _fill(attrs["extrapolation_value"], dtype))

    return lay.compute(sizes, value, "resize")


def _fill(value: float, dtype: DataType) -> PrimExpr:
    return cast(dtype, const(value, "float64"))


def _as_dtype(x: np.ndarray, kind: np.dtype) -> np.ndarray:
    """Floats as `kind`; as integers toward zero, the nearest there is for what does not fit."""
    if kind.kind == "f":
        return x.astype(kind)
    limits = np.iinfo(kind)
    if kind.itemsize == 8:
        return np.clip(np.trunc(x), float(limits.min), np.nextafter(float(limits.max), 0)).astype(
            kind
        )
    return np.clip(np.trunc(x), limits.min, limits.max).astype(kind)


def _resize_numpy(data: np.ndarray, size: Sequence[int], **attrs: Any) -> np.ndarray:
    lay = resize_layout(attrs["layout"])
    x = lay.to_plain(data, "NCHW")
    out_dtype = attrs["out_dtype"]
    kind = x.dtype if out_dtype is None else value_dtype(out_dtype)
    top, left, bottom, right = attrs["roi"]
    ends = ((top, bottom), (left, right))
    taps, inside = [], []
    for k in range(2):
        places = np.arange(size[k], dtype="float64")
        pair = axis_taps(
            places, np.float64(x.shape[2 + k]), np.float64(size[k]), ends[k], attrs, NUMPY
        )
        taps.append([(np.broadcast_to(i, places.shape).astype("int64"), w) for i, w, _ in pair[0]])
        inside.append(pair[1])
    (rows, columns), shape = taps, (*x.shape[:2], *size)
    if 0 in x.shape[2:] or 0 in size:
        out = np.zeros(shape, kind)
    elif rows[0][1] is None:
        out = x[:, :, rows[0][0]][:, :, :, columns[0][0]]
        whole = x.dtype == kind or (x.dtype.kind in "iu" and kind.kind in "iu")
        out = out.astype(kind) if whole else _as_dtype(out, kind)
    else:
        total: Any = None
        for y, wy in rows:
            row: Any = None
            for c, wx in columns:
                term = x[:, :, y][:, :, :, c].astype("float64") * wx
                row = term if row is None else row + term
            row = row * wy[:, None]
            total = row if total is None else total + row
        out = _as_dtype(total, kind)
    if inside[0] is not None:
        known = inside[0][:, None] & inside[1][None, :]
        out = np.where(
            known, out, _as_dtype(np.asarray(attrs["extrapolation_value"], "float64"), kind)
        )
    return lay.from_plain(out, "NCHW")


def _resize_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    data, attrs = call.args[0], dict(call.attrs)
    info: Any = data.struct_info
    del attrs["out_dtype"], attrs["extrapolation_value"]
    g = gy if tensor_of(gy).dtype is info.dtype else ops.astype(gy, info.dtype)
    return ops.grad.resize2d_backward(g, data, **attrs), None


@prepared(resize_settings)
@op("image.resize2d", _resize_numpy, te_lower(_resize_te), _resize_grad)
def resize2d(
    data: Expr,
    size: Shape,
    roi: Any = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: str | DataType | None = None,
) -> StructInfo:
    """Pictures of another height and width.

    data    [n, c, h, w], as `layout` orders it      size  (height, width) of the result
    method  "nearest_neighbor", "linear" or "cubic"
    coordinate_transformation_mode  "half_pixel", "align_corners", "asymmetric",
            "pytorch_half_pixel", "tf_half_pixel_for_nn" or "tf_crop_and_resize" (of `roi`:
            start_h, start_w, end_h, end_w from 0 to 1; beyond data is `extrapolation_value`)
    rounding_method  which pixel is nearest: "round" or "round_prefer_floor" (of two as near the
            one before, ONNX's default), "round_prefer_ceil", "floor" or "ceil"; "" is "round" with
            "align_corners", else "floor". torch's "nearest" is "asymmetric" with "floor", its
            "nearest-exact" "half_pixel" with "round_prefer_ceil".
    cubic_alpha, cubic_exclude  the spline's coefficient; whether pixels outside have no weight
    Integers are interpolated in float64 and rounded toward zero. Raises StructInfoError for other
    words, and for an empty picture that is to become one that is not.
    """
    values: dict[str, Any] = {"roi": roi, "out_dtype": out_dtype}
    resize_settings(values, method, coordinate_transformation_mode, rounding_method)
    lay = resize_layout(layout)
    info = tensor(data, "data", NUMBER, lay.ndim)
    stated = values["out_dtype"]
    dtype = info.dtype if stated is None else dtype_of(stated, "out_dtype", NUMBER)
    dims = shape_argument(size, "size").values
    if len(dims) != 2:
        raise StructInfoError(f"size: wanted (height, width), got {len(dims)} dimensions")
    sizes = lay.sizes(info.dims)
    for axis, wanted in zip("HW", dims):
        if static(sizes[axis]) == 0 and static(wanted) != 0:
            raise StructInfoError(f"size: wanted 0 along {axis}, where data is empty; got {wanted}")
        sizes[axis] = wanted
    return shaped(info, lay.shape(sizes), dtype)


# -- grid_sample ----------------------------------------------------------------------------------

_SAMPLING = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")


def _grid_te(data: Tensor, grid: Tensor, **attrs: Any) -> Tensor:
    lay = layout_of(attrs["layout"], "NCHW", "layout")
    have = lay.sizes(data.shape)
    sizes = {**have, "H": grid.shape[1], "W": grid.shape[2]}
    wide = "float32" if data.dtype.bits < 64 else "float64"

    def value(index: dict[str, PrimExpr]) -> PrimExpr:
        place = (index["N"], index["H"], index["W"])
        column = f64(grid(*place, const(0, "int64")))
        row = f64(grid(*place, const(1, "int64")))
        rows = sample_taps(row, f64(have["H"]), attrs, TE)
        columns = sample_taps(column, f64(have["W"]), attrs, TE)

        def pixel(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            zero = const(0, "int64")
            inside = [GE(y, zero), LT(y, have["H"]), GE(x, zero), LT(x, have["W"])]
            read = data(*lay.index({**index, "H": y, "W": x}))
            return tir.if_then_else(tir.all(*inside), read, const(0, read.dtype))

        if rows[0][1] is None:
            return pixel(rows[0][0], columns[0][0])
        return cast(data.dtype, weighted(rows, columns, pixel, wide))

    return lay.compute(sizes, value, "sampled")


def _grid_numpy(data: np.ndarray, grid: np.ndarray, **attrs: Any) -> np.ndarray:
    lay = layout_of(attrs["layout"], "NCHW", "layout")
    x = lay.to_plain(data, "NCHW")
    h, w = x.shape[2:]
    rows = sample_taps(grid[..., 1].astype("float64"), np.float64(h), attrs, NUMPY)
    columns = sample_taps(grid[..., 0].astype("float64"), np.float64(w), attrs, NUMPY)
    batch = np.arange(x.shape[0])[:, None, None]
    spread = np.moveaxis(x, 1, -1)

    def pixel(y: np.ndarray, c: np.ndarray) -> np.ndarray:
        inside = (y >= 0) & (y < h) & (c >= 0) & (c < w)
        if h == 0 or w == 0:
            return np.zeros((*inside.shape, x.shape[1]), x.dtype)
        read = spread[batch, np.clip(y, 0, h - 1), np.clip(c, 0, w - 1)]
        return np.where(inside[..., None], read, np.zeros((), x.dtype))

    if rows[0][1] is None:
        result = pixel(rows[0][0], columns[0][0])
    else:
        total: Any = 0.0
        for y, wy, _ in rows:
            row: Any = 0.0
            for c, wx, _ in columns:
                row = row + pixel(y, c).astype("float64") * wx[..., None]
            total = total + row * wy[..., None]
        result = total.astype(x.dtype)
    return lay.from_plain(np.ascontiguousarray(np.moveaxis(result, -1, 1)), "NCHW")


def _grid_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, Any]:
    grads = ops.grad.grid_sample_backward(gy, *call.args, **dict(call.attrs))
    return TupleGetItem(grads, 0), TupleGetItem(grads, 1)


@op("image.grid_sample", _grid_numpy, te_lower(_grid_te), _grid_grad)
def grid_sample(
    data: Expr,
    grid: Expr,
    method: str = "bilinear",
    layout: str = "NCHW",
    padding_mode: str = "zeros",
    align_corners: bool = False,
) -> StructInfo:
    """Pictures read at the places that `grid` gives.

    data  [n, c, h, w], as `layout` orders it      returns  [n, c, ho, wo], ordered likewise
    grid  [n, ho, wo, 2]: x and y, from -1 (left, top) to 1 (right, bottom)
    method         "bilinear", "nearest" or "bicubic"
    padding_mode   what lies outside: "zeros", "border" (the outermost pixel), "reflection"
    align_corners  -1 and 1 are the centres of the outermost pixels, not their edges
    Raises StructInfoError for other words, shapes that do not fit, or a grid that is not float.
    """
    for name, value, known in (
        ("method", method, _SAMPLING),
        ("padding_mode", padding_mode, _PADDING),
    ):
        if value not in known:
            raise StructInfoError(f"{name}: wanted one of {', '.join(known)}, got {value!r}")
    lay = resize_layout(layout)
    info, places = tensor(data, "data", FLOAT, lay.ndim), tensor(grid, "grid", FLOAT, 4)
    two = const(2, "int64")
    want_equal(places.dims[3], two, "grid: wanted size 2 along the last axis (x, y), got {a}")
    sizes = lay.sizes(info.dims)
    want_equal(places.dims[0], sizes["N"], "grid: wanted {b} samples, as data has; got {a}")
    sizes["H"], sizes["W"] = places.dims[1:3]
    return shaped(info, lay.shape(sizes))
