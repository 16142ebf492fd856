"""Pictures at other sizes and places: resize2d, grid_sample.

Coordinates are computed in float64 in one order of operations, in the meaning and in the kernels,
so that "nearest" is the same pixel in both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, StructInfoError
from ...ir.expr import GE, GT, LT, And, IntImm, Max, Min, PrimExpr, Select, cast, const
from ...te import Tensor
from ..derive import prove_dims
from ..expr import Call, PrimValue, ShapeExpr
from ..expr import const as constant
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .infer import FLOAT, NUMBER, shape_dims, tensor
from .lower import te_lower
from .meaning import value_dtype
from .nn.layout import Layout, layout_of
from .nn.window import attribute_layout, normalised, simple, static
from .record import Shape, missing, op

__all__ = ["grid_sample", "resize2d"]

# -- what the formulas are written with -----------------------------------------------------------


def _np_index(v: Any, size: Any) -> np.ndarray:
    return np.nan_to_num(np.clip(v, -1, size), nan=0.0).astype("int64")


_NUMPY = SimpleNamespace(
    floor=np.floor, ceil=np.ceil, round=np.round, where=np.where, maximum=np.maximum,
    minimum=np.minimum, fabs=np.abs, both=np.logical_and, index=_np_index,
)  # fmt: skip
_TE = SimpleNamespace(
    floor=tir.floor, ceil=tir.ceil, round=tir.round, where=Select, maximum=Max, minimum=Min,
    fabs=tir.fabs, both=And,
    index=lambda v, size: cast("int64", Min(Max(v, _f64(-1)), size)),
)  # fmt: skip


def _f64(value: Any) -> PrimExpr:
    return cast("float64", value) if isinstance(value, PrimExpr) else const(value, "float64")


_Tap = tuple[Any, Any]
"""A place along an axis (an integer in a float), and its weight; the weight None means 1."""


def _linear_taps(at: Any, f: Any) -> list[_Tap]:
    low = f.floor(at)
    part = at - low
    return [(low, 1.0 - part), (low + 1.0, part)]


def _cubic_taps(at: Any, a: float, f: Any) -> list[_Tap]:
    low = f.floor(at)
    t = at - low

    def far(d: Any) -> Any:
        return ((d * a - 5.0 * a) * d + 8.0 * a) * d - 4.0 * a

    def near(d: Any) -> Any:
        return (d * (a + 2.0) - (a + 3.0)) * d * d + 1.0

    weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)]
    return [(low + float(k - 1), w) for k, w in enumerate(weights)]


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
    "round": lambda x, f: f.round(x),
    "": lambda x, f: f.round(x),
    "round_prefer_floor": lambda x, f: f.ceil(x - 0.5),
    "round_prefer_ceil": lambda x, f: f.floor(x + 0.5),
    "floor": lambda x, f: f.floor(x),
    "ceil": lambda x, f: f.ceil(x),
}


def _coordinate(x: Any, size: Any, out: Any, mode: str, roi: tuple[float, float], f: Any) -> Any:
    """Where output place `x` of `out` lies among `size` input places; all are float64."""
    several = out > 1.0
    gaps = f.where(several, out - 1.0, out * 0.0 + 1.0)
    if mode == "asymmetric":
        return x * size / out
    if mode == "align_corners":
        return f.where(several, x * (size - 1.0) / gaps, x * 0.0)
    if mode == "tf_crop_and_resize":
        begin, end = roi
        inside = x * ((size - 1.0) * (end - begin)) / gaps + (size - 1.0) * begin
        return f.where(several, inside, x * 0.0 + (size - 1.0) * (0.5 * (begin + end)))
    centre = (x * 2.0 + 1.0) * size / (out * 2.0)
    if mode == "tf_half_pixel_for_nn":
        return centre
    if mode == "pytorch_half_pixel":
        return f.where(several, centre - 0.5, x * 0.0)
    return centre - 0.5


def _axis_taps(
    x: Any, size: Any, out: Any, roi: tuple[float, float], attrs: dict[str, Any], f: Any
) -> tuple[list[_Tap], Any]:
    """The input places that output place `x` is made of, and whether it is inside (None: it is)."""
    mode = attrs["coordinate_transformation_mode"]
    at = _coordinate(x, size, out, mode, roi, f)
    inside = None
    if mode == "tf_crop_and_resize":
        inside = f.both(at >= 0.0, at <= size - 1.0)
    if attrs["method"] == "nearest_neighbor":
        taps: list[_Tap] = [(_ROUNDINGS[attrs["rounding_method"]](at, f), None)]
    elif attrs["method"] == "linear":
        taps = _linear_taps(at, f)
    else:
        taps = _cubic_taps(at, attrs["cubic_alpha"], f)
        if attrs["cubic_exclude"]:
            kept = [f.where(f.both(i >= 0.0, i <= size - 1.0), w, w * 0.0) for i, w in taps]
            total = kept[0] + kept[1] + kept[2] + kept[3]
            taps = [(i, w / total) for (i, _), w in zip(taps, kept)]
    zero = x * 0.0
    return [(f.minimum(f.maximum(i, zero), size - 1.0 + zero), w) for i, w in taps], inside


def _resize_settings(values: dict[str, Any]) -> None:
    roi = values["roi"]
    if roi is None:
        roi = (0.0, 0.0, 0.0, 0.0)
    roi = (roi,) * 4 if isinstance(roi, (int, float)) else roi
    if not (isinstance(roi, tuple) and len(roi) == 4 and all(type(v) in (int, float) for v in roi)):
        raise StructInfoError(
            f"roi: wanted 4 numbers (start_h, start_w, end_h, end_w), got {values['roi']!r}"
        )
    values["roi"] = tuple(map(float, roi))
    if values["out_dtype"] == "":
        values["out_dtype"] = None
    size = values.get("size")
    if isinstance(size, (int, PrimExpr, PrimValue)):
        size = (size, size)
    if isinstance(size, tuple):
        size = size * 2 if len(size) == 1 else size
        values["size"] = ShapeExpr(tuple(v.value if isinstance(v, PrimValue) else v for v in size))


def _resize_layout(layout: Any) -> Layout:
    made = layout_of(layout, "NCHW", "layout")
    if "H" in made.blocks or "W" in made.blocks:
        raise StructInfoError(f"layout: wanted only C or N in blocks, got {layout}")
    return made


def _resize_te(data: Tensor, size: list[PrimExpr], **attrs: Any) -> Tensor:
    lay = _resize_layout(attrs["layout"])
    have = lay.sizes(data.shape)
    sizes = {**have, "H": size[0], "W": size[1]}
    dtype = DataType(attrs["out_dtype"] or data.dtype)
    wide = "float32" if data.dtype.is_float and data.dtype.bits < 64 else "float64"
    top, left, bottom, right = attrs["roi"]
    some = [GT(have[a], const(0, "int64")) for a in "HW" if not isinstance(have[a], IntImm)]

    def value(at: dict[str, PrimExpr]) -> PrimExpr:
        rows, in_y = _axis_taps(
            _f64(at["H"]), _f64(have["H"]), _f64(size[0]), (top, bottom), attrs, _TE
        )
        columns, in_x = _axis_taps(
            _f64(at["W"]), _f64(have["W"]), _f64(size[1]), (left, right), attrs, _TE
        )

        def pixel(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            place = {**at, "H": cast("int64", y), "W": cast("int64", x)}
            read = data(*lay.index(place))
            # A symbolic size may turn out 0: there is no pixel to read then.
            return tir.if_then_else(tir.all(*some), read, const(0, read.dtype)) if some else read

        if rows[0][1] is None:
            made = cast(dtype, pixel(rows[0][0], columns[0][0]))
        else:
            made = cast(dtype, _weighted(rows, columns, pixel, wide))
        if in_y is None:
            return made
        return Select(And(in_y, in_x), made, _fill(attrs["extrapolation_value"], dtype))

    return lay.compute(sizes, value, "resize")


def _fill(value: float, dtype: DataType) -> PrimExpr:
    return cast(dtype, const(value, "float64"))


def _weighted(rows: Any, columns: Any, pixel: Any, wide: str) -> PrimExpr:
    total: Any = None
    for y, wy in rows:
        row: Any = None
        for x, wx in columns:
            term = cast(wide, pixel(y, x)) * cast(wide, wx)
            row = term if row is None else row + term
        row = row * cast(wide, wy)
        total = row if total is None else total + row
    return total


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
    lay = _resize_layout(attrs["layout"])
    x = lay.to_plain(data, "NCHW")
    given = attrs["out_dtype"]
    kind = x.dtype if given is None else value_dtype(given)
    top, left, bottom, right = attrs["roi"]
    ends = ((top, bottom), (left, right))
    taps, inside = [], []
    for k in range(2):
        places = np.arange(size[k], dtype="float64")
        made = _axis_taps(
            places, np.float64(x.shape[2 + k]), np.float64(size[k]), ends[k], attrs, _NUMPY
        )
        taps.append([(i.astype("int64"), w) for i, w in made[0]])
        inside.append(made[1])
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
        out = np.where(known, out, _as_dtype(np.float64(attrs["extrapolation_value"]), kind))
    return lay.from_plain(out, "NCHW")


def _resize_grad(ops: Any, call: Call, y: Any, gy: Any) -> tuple[Any, None]:
    """Along each axis, resizing is a product with a matrix; so is its gradient."""
    data, size = call.args
    attrs = dict(call.attrs)
    lay = _resize_layout(attrs["layout"])
    info: Any = data.struct_info
    sizes = lay.sizes(info.dims) if info.dims is not None else {}
    have = [static(sizes.get(a)) for a in "HW"]
    want = [static(d) for d in size.struct_info.values or (None, None)]  # type: ignore[attr-defined]
    if None in have or None in want:
        raise StructInfoError(
            "image.resize2d: the gradient needs heights and widths that are numbers"
        )
    top, left, bottom, right = attrs["roi"]
    g = lay.plain_expr(ops, gy, "NCHW")
    if g.struct_info.dtype is not info.dtype:
        g = ops.astype(g, info.dtype)
    matrices = []
    for n, m, roi in zip(have, want, ((top, bottom), (left, right))):
        places = np.arange(m, dtype="float64")
        taps, inside = _axis_taps(places, np.float64(n), np.float64(m), roi, attrs, _NUMPY)
        matrix = np.zeros((m or 0, n or 0))
        for i, w in taps:
            share = np.ones(len(places)) if w is None else w
            share = share if inside is None else np.where(inside, share, 0)
            np.add.at(matrix, (np.arange(len(places)), i.astype("int64")), share)
        matrices.append(matrix)
    gx = ops.matmul(
        constant(matrices[0].T, info.dtype), ops.matmul(g, constant(matrices[1], info.dtype))
    )
    return lay.from_plain_expr(ops, gx, "NCHW"), None


@(lambda build: normalised(build, _resize_settings))
@op(
    "image.resize2d",
    numpy=_resize_numpy,
    lower=te_lower(_resize_te),
    grad=_resize_grad,
    layout=attribute_layout("layout"),
)
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
    rounding_method  which pixel is nearest: "round" (ties to even), "round_prefer_floor",
            "round_prefer_ceil", "floor" or "ceil"
    cubic_alpha, cubic_exclude  the spline's coefficient; whether pixels outside have no weight
    Integers are interpolated in float64 and rounded toward zero. Raises StructInfoError for other
    words, and for an empty picture that is to become one that is not.
    """
    values: dict[str, Any] = {"roi": roi, "out_dtype": out_dtype}
    _resize_settings(values)
    lay = _resize_layout(layout)
    for name, value, known in (
        ("method", method, _METHODS),
        ("coordinate_transformation_mode", coordinate_transformation_mode, _MODES),
        ("rounding_method", rounding_method, tuple(_ROUNDINGS)),
    ):
        if value not in known:
            raise StructInfoError(
                f"{name}: wanted one of {', '.join(filter(None, known))}, got {value!r}"
            )
    info = tensor(data, "data", NUMBER, lay.ndim)
    dtype = info.dtype if values["out_dtype"] is None else DataType(values["out_dtype"])
    if dtype.kind not in NUMBER and dtype.kind != "void":
        raise StructInfoError(f"out_dtype: wanted a number's dtype, got {dtype}")
    dims, count = shape_dims(size, "size")
    if count not in (-1, 2):
        raise StructInfoError(f"size: wanted (height, width), got {count} dimensions")
    if info.dims is None or dims is None:
        return TensorStructInfo(None, dtype, info.vdevice, lay.ndim)
    sizes = lay.sizes(info.dims)
    for axis, wanted in zip("HW", dims):
        if static(sizes[axis]) == 0 and static(wanted) != 0:
            raise StructInfoError(f"size: wanted 0 along {axis}, where data is empty; got {wanted}")
        sizes[axis] = wanted
    return TensorStructInfo([simple(d) for d in lay.shape(sizes)], dtype, info.vdevice)


# -- grid_sample ----------------------------------------------------------------------------------

_SAMPLING = ("bilinear", "nearest", "bicubic")
_PADDING = ("zeros", "border", "reflection")
_ALPHA = -0.75


def _reflected(x: Any, size: Any, align: bool, f: Any) -> Any:
    """`x` mirrored at the first and the last pixel (`align`: at their centres) until inside."""
    low, span = (x * 0.0, size - 1.0) if align else (x * 0.0 - 0.5, size + 0.0)
    way = f.fabs(x - low)
    safe = f.where(span > 0.0, span, span * 0.0 + 1.0)
    turns = f.floor(way / safe)
    rest = way - turns * safe
    odd = turns - f.floor(turns * 0.5) * 2.0
    inside = f.where(odd > 0.5, safe - rest, rest) + low
    return f.where(span > 0.0 + x * 0.0, inside, x * 0.0)


def _padded(x: Any, size: Any, mode: str, align: bool, f: Any) -> Any:
    if mode == "zeros":
        return x
    if mode == "reflection":
        x = _reflected(x, size, align, f)
    zero = x * 0.0
    return f.minimum(f.maximum(x, zero), size - 1.0 + zero)


def _sample_taps(g: Any, size: Any, attrs: dict[str, Any], f: Any) -> list[_Tap]:
    """The pixels that grid value `g` (from -1 to 1) means along an axis; they may lie outside."""
    align, mode = attrs["align_corners"], attrs["padding_mode"]
    at = (g + 1.0) * (size - 1.0) / 2.0 if align else ((g + 1.0) * size - 1.0) / 2.0
    if attrs["method"] == "bicubic":
        taps = _cubic_taps(at, _ALPHA, f)
        return [(f.index(_padded(i, size, mode, align, f), size), w) for i, w in taps]
    at = _padded(at, size, mode, align, f)
    if attrs["method"] == "nearest":
        return [(f.index(f.round(at), size), None)]
    return [(f.index(i, size), w) for i, w in _linear_taps(at, f)]


def _grid_te(data: Tensor, grid: Tensor, **attrs: Any) -> Tensor:
    lay = layout_of(attrs["layout"], "NCHW", "layout")
    have = lay.sizes(data.shape)
    sizes = {**have, "H": grid.shape[1], "W": grid.shape[2]}
    wide = "float32" if data.dtype.bits < 64 else "float64"

    def value(at: dict[str, PrimExpr]) -> PrimExpr:
        place = (at["N"], at["H"], at["W"])
        column = _f64(grid(*place, const(0, "int64")))
        row = _f64(grid(*place, const(1, "int64")))
        rows = _sample_taps(row, _f64(have["H"]), attrs, _TE)
        columns = _sample_taps(column, _f64(have["W"]), attrs, _TE)

        def pixel(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            zero = const(0, "int64")
            inside = [GE(y, zero), LT(y, have["H"]), GE(x, zero), LT(x, have["W"])]
            read = data(*lay.index({**at, "H": y, "W": x}))
            return tir.if_then_else(tir.all(*inside), read, const(0, read.dtype))

        if rows[0][1] is None:
            return pixel(rows[0][0], columns[0][0])
        return cast(data.dtype, _weighted(rows, columns, pixel, wide))

    return lay.compute(sizes, value, "sampled")


def _grid_numpy(data: np.ndarray, grid: np.ndarray, **attrs: Any) -> np.ndarray:
    lay = layout_of(attrs["layout"], "NCHW", "layout")
    x = lay.to_plain(data, "NCHW")
    h, w = x.shape[2:]
    rows = _sample_taps(grid[..., 1].astype("float64"), np.float64(h), attrs, _NUMPY)
    columns = _sample_taps(grid[..., 0].astype("float64"), np.float64(w), attrs, _NUMPY)
    batch = np.arange(x.shape[0])[:, None, None]
    spread = np.moveaxis(x, 1, -1)

    def pixel(y: np.ndarray, c: np.ndarray) -> np.ndarray:
        inside = (y >= 0) & (y < h) & (c >= 0) & (c < w)
        if h == 0 or w == 0:
            return np.zeros((*inside.shape, x.shape[1]), x.dtype)
        read = spread[batch, np.clip(y, 0, h - 1), np.clip(c, 0, w - 1)]
        return np.where(inside[..., None], read, np.zeros((), x.dtype))

    if rows[0][1] is None:
        made = pixel(rows[0][0], columns[0][0])
    else:
        total: Any = 0.0
        for y, wy in rows:
            row: Any = 0.0
            for c, wx in columns:
                row = row + pixel(y, c).astype("float64") * wx[..., None]
            total = total + row * wy[..., None]
        made = total.astype(x.dtype)
    return lay.from_plain(np.ascontiguousarray(np.moveaxis(made, -1, 1)), "NCHW")


@op(
    "image.grid_sample",
    numpy=_grid_numpy,
    lower=te_lower(_grid_te),
    grad=missing("there is no operator that scatters to places given by floats"),
    layout=missing("the grid's order of axes would have to follow"),
)
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
    lay = _resize_layout(layout)
    info, places = tensor(data, "data", FLOAT, lay.ndim), tensor(grid, "grid", FLOAT, 4)
    if places.dims is not None and static(places.dims[3]) not in (None, 2):
        raise StructInfoError(
            f"grid: wanted size 2 along the last axis (x, y), got {places.dims[3]}"
        )
    if info.dims is None or places.dims is None:
        return TensorStructInfo(None, info.dtype, info.vdevice, lay.ndim)
    sizes = lay.sizes(info.dims)
    if prove_dims(sizes["N"], places.dims[0]) is False:
        raise StructInfoError(
            f"grid: wanted {sizes['N']} samples, as data has; got {places.dims[0]}"
        )
    sizes["H"], sizes["W"] = places.dims[1:3]
    return TensorStructInfo([simple(d) for d in lay.shape(sizes)], info.dtype, info.vdevice)
