"""Pictures at other sizes and places: resize, resize2d, grid_sample. Their formulas are in
resizing.py and sampling.py.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, StructInfoError
from ...ir import GE, LT, PrimExpr, cast, const
from ...te import Tensor
from ..expr import Call, PrimValue, ShapeExpr, TupleGetItem
from ..rules import Ops
from ..struct_info import Expr, StructInfo
from .faces import prepared
from .infer import (
    FLOAT,
    NUMBER,
    axes_of,
    dtype_of,
    known_sizes,
    shape_argument,
    shaped,
    tensor,
    tensor_of,
)
from .lower import te_lower
from .nn.layout import Layout, layout_of
from .nn.window import static
from .record import Shape, op
from .resizing import Along, check_words, resize_numpy, resize_te
from .sampling import NUMPY, TE, f64, sample_taps, weighted
from .sizes import want_equal

# -- resize ---------------------------------------------------------------------------------------


def resize_settings(
    values: dict[str, Any],
    method: str = "linear",
    mode: str = "half_pixel",
    rounding: str = "round",
) -> None:
    """Attributes of resize2d checked; `values` is changed to hold them in one form."""
    check_words(method, mode, rounding)
    roi = values["roi"]
    roi = (roi,) * 4 if isinstance(roi, (int, float)) else roi
    values["roi"] = _numbers(roi, 4, "roi", "4 numbers (start_h, start_w, end_h, end_w)")
    size = values.get("size")
    if isinstance(size, (int, PrimExpr, PrimValue)):
        size = (size, size)
    if isinstance(size, tuple):
        size = size * 2 if len(size) == 1 else size
        values["size"] = ShapeExpr(tuple(v.value if isinstance(v, PrimValue) else v for v in size))


def _numbers(value: Any, count: int, name: str, wanted: str) -> tuple[float, ...]:
    """Finite numbers, given as a tuple of `count`; None is zeros."""
    numbers = (0.0,) * count if value is None else value
    good = isinstance(numbers, tuple) and len(numbers) == count
    if not (good and all(type(v) in (int, float) and math.isfinite(v) for v in numbers)):
        raise StructInfoError(f"{name}: wanted {wanted}, got {value!r}")
    return tuple(map(float, numbers))


def resize_layout(layout: Any) -> Layout:
    lay = layout_of(layout, "NCHW", "layout")
    if "H" in lay.blocks or "W" in lay.blocks:
        raise StructInfoError(f"layout: wanted only C or N in blocks, got {layout}")
    return lay


def plan_of(lay: Layout, size: Sequence[Any], attrs: Any) -> list[Along]:
    """How the axes H and W are resized."""
    top, left, bottom, right = attrs["roi"]
    ends = ((top, bottom), (left, right))
    return [Along(lay.position(a), n, e) for a, n, e in zip("HW", size, ends)]


def _resize2d_te(data: Tensor, size: list[PrimExpr], **attrs: Any) -> Tensor:
    plan = plan_of(resize_layout(attrs["layout"]), size, attrs)
    return resize_te(data, plan, DataType(attrs["out_dtype"] or data.dtype), attrs)


def _resize2d_numpy(data: np.ndarray, size: Sequence[int], **attrs: Any) -> np.ndarray:
    plan = plan_of(resize_layout(attrs["layout"]), size, attrs)
    return resize_numpy(data, plan, attrs["out_dtype"], attrs)


def _resize2d_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    data, attrs = call.args[0], dict(call.attrs)
    info: Any = data.struct_info
    del attrs["out_dtype"], attrs["extrapolation_value"]
    g = gy if tensor_of(gy).dtype is info.dtype else ops.astype(gy, info.dtype)
    return ops.grad.resize2d_backward(g, data, **attrs), None


@prepared(resize_settings)
@op("image.resize2d", _resize2d_numpy, te_lower(_resize2d_te), _resize2d_grad)
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


def _plan(size: Sequence[Any], ndim: int, attrs: Any) -> list[Along]:
    axes = axes_of(attrs["axes"], ndim, "axes")
    count = len(axes)
    roi = _numbers(attrs["roi"], 2 * count, "roi", f"{count} begins and {count} ends")
    scales: Any = (None,) * count
    if attrs["scales"] is not None:
        scales = _numbers(attrs["scales"], count, "scales", f"{count} numbers")
        if min(scales, default=1.0) <= 0.0:
            raise StructInfoError(f"scales: wanted numbers above 0, got {attrs['scales']}")
    ways = map(Along, axes, size, zip(roi[:count], roi[count:]), scales)
    return sorted(ways, key=lambda w: w.axis)


def _resize_te(data: Tensor, size: list[PrimExpr], **attrs: Any) -> Tensor:
    plan = _plan(size, data.ndim, attrs)
    return resize_te(data, plan, DataType(attrs["out_dtype"] or data.dtype), attrs)


def _resize_numpy(data: np.ndarray, size: Sequence[int], **attrs: Any) -> np.ndarray:
    return resize_numpy(data, _plan(size, data.ndim, attrs), attrs["out_dtype"], attrs)


def _resize_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    """Along each axis it is a product with a matrix: the matrix is what becomes of the unit one."""
    data, attrs = call.args[0], dict(call.attrs)
    info, dims = tensor_of(data), known_sizes(data)
    g = gy if tensor_of(gy).dtype is info.dtype else ops.astype(gy, info.dtype)
    size = shape_argument(call.args[1], "size").values
    attrs.update(extrapolation_value=0.0, out_dtype=None, axes=(1,))
    for way in _plan(size, info.ndim, call.attrs):
        attrs.update(scales=None if way.scale is None else (way.scale,), roi=way.roi)
        unit = ops.eye(dims[way.axis], dtype=info.dtype)
        matrix = ops.permute_dims(ops.image.resize(unit, ShapeExpr([way.out]), **attrs))
        last = [k for k in range(info.ndim) if k != way.axis] + [way.axis]
        turned = ops.matmul(ops.permute_dims(g, axes=last), matrix)
        g = ops.permute_dims(turned, axes=[last.index(k) for k in range(info.ndim)])
    return g, None


@op("image.resize", _resize_numpy, te_lower(_resize_te), _resize_grad)
def resize(
    data: Expr,
    size: Shape,
    axes: Any = None,
    scales: Any = None,
    roi: Any = None,
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "round",
    cubic_alpha: float = -0.75,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    antialias: bool = False,
    out_dtype: str | DataType | None = None,
) -> StructInfo:
    """A tensor of another size along `axes` (None: all), as ONNX's Resize has it.

    size       of the result along each of the axes
    scales     by how much each is taken to grow, where that is not the quotient of the sizes: what
               `size` is less than size * scale is cut off behind
    roi        of "tf_crop_and_resize": the begins of all axes, then the ends, from 0 to 1
    coordinate_transformation_mode  as `resize2d`'s, or "half_pixel_symmetric", in which what is cut
               off is cut off on both sides
    antialias  where an axis shrinks, "linear" and "cubic" look at all that lies under a pixel of
               the result
    Other attributes are `resize2d`'s. Raises StructInfoError for other words, and for an empty axis
    that is to become one that is not.
    """
    check_words(method, coordinate_transformation_mode, rounding_method)
    info = tensor(data, "data", NUMBER)
    dtype = info.dtype if out_dtype is None else dtype_of(out_dtype, "out_dtype", NUMBER)
    dims, wanted = list(info.dims), shape_argument(size, "size").values
    count = len(axes_of(axes, info.ndim, "axes"))
    if len(wanted) != count:
        raise StructInfoError(f"size: wanted {count} dimensions, one for each axis; got {size}")
    for way in _plan(wanted, info.ndim, {"axes": axes, "roi": roi, "scales": scales}):
        if static(dims[way.axis]) == 0 and static(way.out) != 0:
            raise StructInfoError(
                f"size: wanted 0 along axis {way.axis}, where data is empty; got {way.out}"
            )
        dims[way.axis] = way.out
    return shaped(info, dims, dtype)


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
