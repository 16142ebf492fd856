"""Pictures at other sizes and places: resize, resize2d, grid_sample; their formulas are in
resizing.py and sampling.py. And from files: decode.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, StructInfoError
from ...ir import EQ, GE, GT, LT, And, IntImm, Max, Min, PrimExpr, Select, cast, const
from ...ir import Var as TirVar
from ...runtime import library_vision as library
from ...te import Tensor, compute
from ..expr import Call, ExternFunc, PrimValue, ShapeExpr, StringImm, TupleGetItem
from ..rules import LowerBuilder, Ops
from ..struct_info import Expr, StructInfo, TensorStructInfo
from .call import call_pure_packed
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
    want_word,
)
from .lower import te_lower
from .nn.layout import Layout, layout_of
from .nn.window import static
from .record import Shape, missing, op
from .resizing import Along, check_words, factor_of, resize_numpy, resize_te
from .sampling import NUMPY, TE, Tap, f64, sample_taps, weighted
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
    return resize_numpy(data, plan, attrs)


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


def _plan(size: Sequence[Any], ndim: int, attrs: Any, factors: Any = None) -> list[Along]:
    axes = axes_of(attrs["axes"], ndim, "axes")
    count = len(axes)
    roi = _numbers(attrs["roi"], 2 * count, "roi", f"{count} begins and {count} ends")
    scales: Any = (None,) * count if factors is None else factors
    if attrs["scales"] is not None:
        scales = _numbers(attrs["scales"], count, "scales", f"{count} numbers")
        if min(scales, default=1.0) <= 0.0:
            raise StructInfoError(f"scales: wanted numbers above 0, got {attrs['scales']}")
    return sorted(map(Along, axes, size, zip(roi[:count], roi[count:]), scales))


def _resize_te(data: Tensor, size: list[PrimExpr], *factors: Tensor, **attrs: Any) -> Tensor:
    scales = [factor_of(f64(f(const(k, "int64"))), TE) for f in factors for k in range(len(size))]
    plan = _plan(size, data.ndim, attrs, scales or None)
    return resize_te(data, plan, DataType(attrs["out_dtype"] or data.dtype), attrs)


def _resize_numpy(
    data: np.ndarray, size: Sequence[int], *factors: np.ndarray, **attrs: Any
) -> np.ndarray:
    scales = [float(factor_of(v, NUMPY)) for f in factors for v in f.astype("float64")]
    return resize_numpy(data, _plan(size, data.ndim, attrs, scales or None), attrs)


def _resize_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    """Along each axis it is a product with a matrix: the matrix is what becomes of the unit one."""
    (data, shape, *factors), attrs = call.args, dict(call.attrs)
    info, dims = tensor_of(data), known_sizes(data)
    g = gy if tensor_of(gy).dtype is info.dtype else ops.astype(gy, info.dtype)
    size = shape_argument(shape, "size").values
    attrs.update(extrapolation_value=0.0, out_dtype=None, axes=(1,))
    own = [ops.strided_slice(f, (0,), (k,), (k + 1,)) for f in factors for k in range(len(size))]
    for way in _plan(size, info.ndim, call.attrs, own or None):
        scale = [way.scale] if own else []
        attrs.update(scales=None if own or way.scale is None else (way.scale,), roi=way.roi)
        unit = ops.eye(dims[way.axis], dtype=info.dtype)
        matrix = ops.permute_dims(ops.image.resize(unit, ShapeExpr([way.out]), *scale, **attrs))
        last = [k for k in range(info.ndim) if k != way.axis] + [way.axis]
        turned = ops.matmul(ops.permute_dims(g, axes=last), matrix)
        g = ops.permute_dims(turned, axes=[last.index(k) for k in range(info.ndim)])
    return g, None, *(None for _ in factors)


@op("image.resize", _resize_numpy, te_lower(_resize_te), _resize_grad)
def resize(
    data: Expr,
    size: Shape,
    factors: Expr | None = None,
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
    factors    float [axes]: scales that the program computes; 1 counts for what is not above 0
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
    count = const(len(axes_of(axes, info.ndim, "axes")), "int64")
    text = "size: wanted {b} dimensions, one for each axis; got {a}"
    want_equal(const(len(wanted), "int64"), count, text)
    if factors is not None:
        each = tensor(factors, "factors", FLOAT, 1).dims[0]
        want_equal(each, count, "factors: wanted {b} numbers, one for each axis; got {a}")
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


def sample_layout(layout: Any) -> tuple[Layout, str]:
    """A layout, and its spatial axes: two, or three if it has D."""
    spatial = "DHW" if isinstance(layout, str) and "D" in layout else "HW"
    lay = layout_of(layout, f"NC{spatial}", "layout")
    if any(a in lay.blocks for a in spatial):
        raise StructInfoError(f"layout: wanted only C or N in blocks, got {layout}")
    return lay, spatial


def _grid_te(data: Tensor, grid: Tensor, **attrs: Any) -> Tensor:
    """What a place of the grid reads is the same for all channels: it stands in tables."""
    lay, spatial = sample_layout(attrs["layout"])
    have = lay.sizes(data.shape)
    wide = "float32" if data.dtype.bits < 64 else "float64"
    some = [GT(have[a], const(0, "int64")) for a in spatial if not isinstance(have[a], IntImm)]
    places = grid.shape[:-1]
    columns = dict(zip(spatial, range(len(spatial))[::-1]))

    def table(value: Any, axis: str) -> Any:
        """``value(tap, axis)`` at each place of the grid, of each tap in turn."""

        def one(*index: PrimExpr) -> PrimExpr:
            g = f64(grid(*index[:-1], const(columns[axis], "int64")))
            first, *rest = (value(t, axis) for t in sample_taps(g, f64(have[axis]), attrs, TE))
            for k, other in enumerate(rest, 1):
                first = Select(EQ(index[-1], const(k, "int64")), other, first)
            return first

        return compute((*places, count), one, f"{value.__name__}_{axis}".lower())

    def within(tap: Tap, axis: str) -> PrimExpr:
        return Max(Min(tap.place, cast("int64", have[axis]) - 1), const(0, "int64"))

    def inside(tap: Tap, axis: str) -> PrimExpr:
        return cast("int8", And(GE(tap.place, const(0, "int64")), LT(tap.place, have[axis])))

    def weight(tap: Tap, axis: str) -> PrimExpr:
        return cast(wide, tap.weight)

    count = {"nearest": 1, "bilinear": 2, "bicubic": 4}[attrs["method"]]
    tables = [
        (table(within, a), table(inside, a), table(weight, a) if count > 1 else None)
        for a in spatial
    ]

    def value(index: dict[str, PrimExpr]) -> PrimExpr:
        spot = index["N"], *(index[a] for a in spatial)

        def read(*taps: tuple[PrimExpr, PrimExpr]) -> PrimExpr:
            pixel = data(*lay.index({**index, **{a: p for a, (p, _) in zip(spatial, taps)}}))
            # A symbolic size may turn out 0: there is no pixel to read then.
            zero = const(0, pixel.dtype)
            pixel = tir.if_then_else(tir.all(*some), pixel, zero) if some else pixel
            return cast(wide, Select(tir.all(*(flag != 0 for _, flag in taps)), pixel, zero))

        axes = [
            [
                Tap((p(*spot, k), flag(*spot, k)), None if w is None else w(*spot, k))
                for k in (const(k, "int64") for k in range(count))
            ]
            for p, flag, w in tables
        ]
        return cast(data.dtype, weighted(axes, read))

    sizes = {**have, **dict(zip(spatial, places[1:]))}
    if any(static(have[a]) == 0 for a in spatial):
        return lay.compute(sizes, lambda index: const(0, data.dtype), "sampled")
    return lay.compute(sizes, value, "sampled")


def _grid_numpy(data: np.ndarray, grid: np.ndarray, **attrs: Any) -> np.ndarray:
    lay, spatial = sample_layout(attrs["layout"])
    x = np.moveaxis(lay.to_plain(data, f"NC{spatial}"), 1, -1)
    sizes = x.shape[1:-1]
    batch = np.arange(len(x)).reshape([-1] + [1] * len(sizes))
    axes = [
        sample_taps(grid[..., -1 - k].astype("float64"), np.float64(n), attrs, NUMPY)
        for k, n in enumerate(sizes)
    ]
    nearest = axes[0][0].weight is None
    if not nearest:
        axes = [[Tap(t.place, t.weight[..., None]) for t in taps] for taps in axes]

    def read(*places: np.ndarray) -> np.ndarray:
        inside = np.all([(p >= 0) & (p < n) for p, n in zip(places, sizes)], axis=0)
        if 0 in sizes:
            return np.zeros((*inside.shape, x.shape[-1]), x.dtype)
        pixels = x[(batch, *(np.clip(p, 0, n - 1) for p, n in zip(places, sizes)))]
        pixels = np.where(inside[..., None], pixels, np.zeros((), x.dtype))
        return pixels if nearest else pixels.astype("float64")

    result = weighted(axes, read).astype(x.dtype)
    return lay.from_plain(np.ascontiguousarray(np.moveaxis(result, -1, 1)), f"NC{spatial}")


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
    in_pixels: bool = False,
) -> StructInfo:
    """Pictures read at the places that `grid` gives.

    data  [n, c, h, w], as `layout` orders it      returns  [n, c, ho, wo], ordered likewise
    grid  [n, ho, wo, 2]: x and y, from -1 (left, top) to 1 (right, bottom). With a layout of three
          axes, such as "NCDHW", it is [n, do, ho, wo, 3]: x, y and z
    method         "bilinear", "nearest" or "bicubic"
    padding_mode   what lies outside: "zeros", "border" (the outermost pixel), "reflection"
    align_corners  -1 and 1 are the centres of the outermost pixels, not their edges
    in_pixels      the grid counts pixels instead, from 0, the centre of the first
    Raises StructInfoError for other words, shapes that do not fit, or a grid that is not float.
    """
    want_word("method", method, _SAMPLING)
    want_word("padding_mode", padding_mode, _PADDING)
    lay, spatial = sample_layout(layout)
    count = len(spatial)
    info, places = tensor(data, "data", FLOAT, lay.ndim), tensor(grid, "grid", FLOAT, count + 2)
    text = "grid: wanted size {b} along the last axis (x, y), got {a}"
    text = text if count == 2 else text.replace("x, y", "x, y, z")
    want_equal(places.dims[-1], const(count, "int64"), text)
    sizes = lay.sizes(info.dims)
    want_equal(places.dims[0], sizes["N"], "grid: wanted {b} samples, as data has; got {a}")
    sizes.update(zip(spatial, places.dims[1:-1]))
    return shaped(info, lay.shape(sizes))


# -- decode ---------------------------------------------------------------------------------------


def _decode_lower(builder: LowerBuilder, call: Call) -> Expr:
    """[height, width, 3 or 1], where height and width are fresh symbols."""
    loose = TensorStructInfo(None, "uint8", ndim=3)
    pixels = StringImm(call.attrs["pixel_format"])
    function = ExternFunc("vm.library.decode_image")
    picture = call_pure_packed(function, *call.args, pixels, sinfo_args=loose)
    sizes = (TirVar("height", "int64"), TirVar("width", "int64"))
    depth = const(1 if call.attrs["pixel_format"] == "Grayscale" else 3, "int64")
    return builder.match_cast(builder.emit(picture), TensorStructInfo((*sizes, depth), "uint8"))


@op(
    "image.decode",
    numpy=lambda data, *, pixel_format: library.decode_values(data, pixel_format),
    lower=_decode_lower,
    grad=missing("bytes of a file are no numbers"),
    layout=missing("it has one axis"),
)
def decode(data: Expr, pixel_format: str = "RGB") -> StructInfo:
    """The picture in the bytes `data` (uint8 [n]) of a BMP, JPEG, JPEG2000, PNG, PNM, TIFF or WEBP
    file: uint8 [height, width, 3], or [height, width, 1]. It takes Pillow, the extra `images`.

    pixel_format  "RGB", "BGR" or "Grayscale"
    What is no picture stops the program. Raises StructInfoError for other words.
    """
    info = tensor(data, "data", frozenset({"uint"}), 1)
    if info.dtype not in ("uint8", "void"):
        raise StructInfoError(f"data: wanted uint8, got {info.dtype}")
    want_word("pixel_format", pixel_format, ("RGB", "BGR", "Grayscale"))
    return TensorStructInfo(None, "uint8", info.vdevice, 3)
