"""Object detection: all_class_non_max_suppression, non_max_suppression, roi_align.

How many boxes stay depends on the data: the work is done by `vm.library.*` when the program runs,
and `match_cast` gives the number a symbol.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ... import tir
from ...base import DataType, StructInfoError
from ...ir import GE, GT, LT, Max, Min, Or, PrimExpr, Select, cast, const
from ...ir import Var as TirVar
from ...runtime import library_vision as library
from ...te import Tensor, compute, reduce_axis
from ...te import sum as te_sum
from ..expr import Call, ExternFunc, PrimValue, Tuple
from ..rules import LowerBuilder, Ops
from ..struct_info import (
    Expr,
    PrimStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .call import call_dps_packed, call_pure_packed
from .faces import prepared
from .infer import FLOAT, NUMBER, check_kind, same_dtype, shaped, tensor, tensor_of
from .lower import te_lower
from .names import ops as all_ops
from .nn.layout import Layout, layout_of
from .nn.window import greatest, spread
from .record import Prim, face_of, missing, op
from .sizes import ONE, KnownTensor, want_equal

_NO_GRAD = missing("which boxes stay is piecewise constant")
_NO_LAYOUT = missing("its axes have fixed meanings")


# -- non-maximum suppression ----------------------------------------------------------------------


def _want_boxes(boxes: Expr, scores: Expr) -> tuple[KnownTensor, KnownTensor]:
    b, s = tensor(boxes, "boxes", FLOAT, 3), tensor(scores, "scores", FLOAT, 3)
    same_dtype((b, s), ("boxes", "scores"))
    four = const(4, "int64")
    want_equal(b.dims[2], four, "boxes: wanted [batch, boxes, 4], got {boxes}", boxes=b)
    for axis, wanted in ((0, b.dims[0]), (2, b.dims[1])):
        text = "scores: wanted {b} along axis {axis}, as boxes has, got {a}"
        want_equal(s.dims[axis], wanted, text, axis=axis)
    return b, s


def _want_number(x: Expr, name: str) -> None:
    info = x.struct_info
    if isinstance(info, PrimStructInfo):
        check_kind(info.dtype, name, NUMBER)
        return
    number = tensor(x, name, NUMBER)
    if number.ndim > 1:
        raise StructInfoError(f"{name}: wanted one number, got {number}")
    for size in number.dims:
        want_equal(size, ONE, "{name}: wanted one number, got {info}", name=name, info=number)


def _number(value: Any) -> Any:
    return np.asarray(value).reshape(-1)[0].item()


def _run(builder: LowerBuilder, call: Call, center: int) -> Expr:
    """[count, 3], where `count` is a fresh symbol."""
    loose = TensorStructInfo(None, "int64", ndim=2)
    center_argument = PrimValue(const(center, "int64"))
    rows = call_pure_packed(
        ExternFunc("vm.library.non_max_suppression"), *call.args, center_argument, sinfo_args=loose
    )
    exact = TensorStructInfo((TirVar("kept", "int64"), const(3, "int64")), "int64")
    return builder.match_cast(builder.emit(rows), exact)


def _all_class_numpy(
    boxes: Any, scores: Any, most: Any, iou: Any, least: Any, *, output_format: str
) -> tuple[np.ndarray, ...]:
    numbers = int(_number(most)), _number(iou), _number(least)
    if output_format == "tensorflow":
        return library.combined_values(boxes, scores, *numbers)
    kept = library.non_max_suppression_values(boxes, scores, *numbers)
    return kept, np.asarray([len(kept)], "int64")


def _all_class_lower(builder: LowerBuilder, call: Call) -> Expr:
    if call.attrs["output_format"] == "tensorflow":
        return call_dps_packed(
            ExternFunc("vm.library.combined_non_max_suppression"),
            Tuple(call.args),
            call.struct_info,
        )
    kept = _run(builder, call, 0)
    count = tensor_of(kept).dims[0]
    return Tuple((kept, builder.emit(all_ops.full((1,), PrimValue(count), dtype="int64"))))


@op(
    "vision.all_class_non_max_suppression", _all_class_numpy, _all_class_lower, _NO_GRAD, _NO_LAYOUT
)
def all_class_non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Prim,
    iou_threshold: Prim,
    score_threshold: Prim,
    output_format: str = "onnx",
) -> StructInfo:
    """Of boxes that overlap, the one with the best score, for each class of its own.

    boxes   [batch, boxes, 4], two opposite corners (y, x, y, x)     scores  [batch, classes, boxes]
    returns "onnx": (int64 [count, 3] of batch, class and box, best first, int64 [1] of count);
            "tensorflow": (int64 [batch, n, 2] of class and box, scores [batch, n], int64 [batch] of
            counts), n = classes * boxes, zeros behind the count
    Raises StructInfoError if the shapes do not fit.
    """
    b, s = _want_boxes(boxes, scores)
    _want_number(max_output_boxes_per_class, "max_output_boxes_per_class")
    _want_number(iou_threshold, "iou_threshold")
    _want_number(score_threshold, "score_threshold")
    if output_format == "onnx":
        kept = TensorStructInfo(None, "int64", b.vdevice, 2)
        return TupleStructInfo((kept, TensorStructInfo((1,), "int64", b.vdevice)))
    if output_format != "tensorflow":
        raise StructInfoError(f"output_format: wanted onnx or tensorflow, got {output_format!r}")
    batch, n = s.dims[0], s.dims[1] * s.dims[2]
    index = DataType("int64")
    return TupleStructInfo(
        (
            shaped(b, (batch, n, 2), index),
            shaped(b, (batch, n), s.dtype),
            shaped(b, (batch,), index),
        )
    )


@op(
    "vision.non_max_suppression",
    numpy=lambda boxes, scores, most, iou, least, *, center_point_box: (
        library.non_max_suppression_values(
            boxes, scores, int(_number(most)), _number(iou), _number(least), bool(center_point_box)
        )
    ),
    lower=lambda builder, call: _run(builder, call, call.attrs["center_point_box"]),
    grad=_NO_GRAD,
    layout=_NO_LAYOUT,
)
def _non_max_suppression(
    boxes: Expr,
    scores: Expr,
    max_output_boxes_per_class: Prim,
    iou_threshold: Prim,
    score_threshold: Prim,
    center_point_box: int = 0,
) -> StructInfo:
    """int64 [count, 3]: batch, class and box of what ONNX's NonMaxSuppression keeps.

    boxes   [batch, boxes, 4], two opposite corners (y, x, y, x); with `center_point_box` 1:
            (x, y, width, height), x and y of the centre
    scores  [batch, classes, boxes]
    Raises StructInfoError if the shapes do not fit.
    """
    b, _ = _want_boxes(boxes, scores)
    _want_number(max_output_boxes_per_class, "max_output_boxes_per_class")
    _want_number(iou_threshold, "iou_threshold")
    _want_number(score_threshold, "score_threshold")
    if center_point_box not in (0, 1):
        raise StructInfoError(f"center_point_box: wanted 0 or 1, got {center_point_box}")
    return TensorStructInfo(None, "int64", b.vdevice, 2)


@face_of(_non_max_suppression)
def non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any = 0,
    iou_threshold: Any = 0.0,
    score_threshold: Any = float("-inf"),
    center_point_box: int = 0,
    **more: Any,
) -> Call:
    """ONNX's NonMaxSuppression with its defaults: nothing is kept unless a number is given."""
    return _non_max_suppression(
        boxes, scores, max_output_boxes_per_class, iou_threshold, score_threshold,
        center_point_box, **more,
    )  # fmt: skip


# -- roi_align ------------------------------------------------------------------------------------


def roi_layout(layout: Any) -> Layout:
    lay = layout_of(layout, "NCHW", "layout")
    if lay.blocks:
        raise StructInfoError(f"layout: wanted NCHW or NHWC, got {layout!r}")
    return lay


def _roi_numpy(data: np.ndarray, rois: np.ndarray, **attrs: Any) -> np.ndarray:
    lay = roi_layout(attrs["layout"])
    means = library.roi_align_values(
        lay.to_plain(data, "NCHW"), rois, attrs["pooled_size"], attrs["spatial_scale"],
        attrs["sample_ratio"], attrs["aligned"], attrs["mode"],
    )  # fmt: skip
    return lay.from_plain(means.astype(data.dtype), "NCHW")


def _f64(value: Any) -> PrimExpr:
    return cast("float64", value) if isinstance(value, PrimExpr) else const(value, "float64")


def _roi_te(data: Tensor, rois: Tensor, **attrs: Any) -> Tensor:
    """With as many samples in each part as `sample_ratio` says."""
    lay = roi_layout(attrs["layout"])
    have, ratio = lay.sizes(data.shape), attrs["sample_ratio"]
    tall, across = attrs["pooled_size"]
    index = data.shape[0].dtype
    sizes = {"N": rois.shape[0], "C": have["C"], "H": const(tall, index), "W": const(across, index)}
    wide = "float32" if data.dtype.bits < 64 else "float64"
    shift = _f64(0.5 if attrs["aligned"] else 0.0)
    zero, one = _f64(0.0), _f64(1.0)
    corners = compute(
        rois.shape, lambda r, k: _f64(rois(r, k)) * _f64(attrs["spatial_scale"]) - shift, "corners"
    )

    def samples(r: PrimExpr, part: PrimExpr, k: PrimExpr, low: int, parts: int) -> PrimExpr:
        begin = corners(r, const(low, "int64"))
        length = corners(r, const(low + 2, "int64")) - begin
        each = (length if attrs["aligned"] else Max(length, one)) / _f64(parts)
        return begin + _f64(part) * each + (_f64(k) + 0.5) * each / _f64(ratio)

    def around(place: PrimExpr, size: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
        """The pixel before `place`, the share of the one behind, and whether it is far outside."""
        outside = Or(LT(place, _f64(-1.0)), GT(place, _f64(size)))
        inside = Min(Max(place, zero), _f64(size) - one)
        low = tir.floor(inside)
        return cast("int64", low), inside - low, outside

    def sample(outer: dict[str, PrimExpr], i: PrimExpr, j: PrimExpr) -> PrimExpr:
        r = outer["N"]
        y, fy, out_y = around(samples(r, outer["H"], i, 2, tall), have["H"])
        x, fx, out_x = around(samples(r, outer["W"], j, 1, across), have["W"])
        batch = cast(
            "int64",
            Min(Max(tir.trunc(_f64(rois(r, const(0, "int64")))), _f64(-1)), _f64(have["N"])),
        )

        def pixel(y: PrimExpr, x: PrimExpr) -> PrimExpr:
            zero = const(0, "int64")
            inside = [
                condition
                for v, a in ((batch, "N"), (y, "H"), (x, "W"))
                for condition in (GE(v, zero), LT(v, cast("int64", have[a])))
            ]
            read = data(*lay.index({"N": batch, "C": outer["C"], "H": y, "W": x}))
            return cast(wide, tir.if_then_else(tir.all(*inside), read, const(0, read.dtype)))

        last_y = cast("int64", have["H"]) - 1
        last_x = cast("int64", have["W"]) - 1
        down, right = Min(y + 1, last_y), Min(x + 1, last_x)
        gy, gx = cast(wide, fy), cast(wide, fx)
        above = pixel(y, x) * (1.0 - gx), pixel(y, right) * gx
        below = pixel(down, x) * (1.0 - gx), pixel(down, right) * gx
        if attrs["mode"] == "max_corner":
            result: PrimExpr = Max(Max(*above) * (1.0 - gy), Max(*below) * gy)
        else:
            result = (above[0] + above[1]) * (1.0 - gy) + (below[0] + below[1]) * gy
        return Select(Or(out_y, out_x), const(0, wide), result)

    i, j = reduce_axis((0, ratio), "i"), reduce_axis((0, ratio), "j")

    def value(outer: dict[str, PrimExpr]) -> PrimExpr:
        result = sample(outer, i.var, j.var)
        reducer = te_sum if attrs["mode"] == "avg" else greatest
        return reducer(result, axis=[i, j])

    sums = lay.compute(sizes, value, "samples")
    count = float(ratio * ratio) if attrs["mode"] == "avg" else 1.0

    def finish(*index: PrimExpr) -> PrimExpr:
        r = lay.axes(index)["N"]
        first = _f64(rois(r, const(0, "int64")))
        there = tir.all(GE(tir.trunc(first), zero), LT(tir.trunc(first), _f64(have["N"])))
        for k in range(1, 5):
            there = tir.all(there, tir.isfinite(corners(r, const(k, "int64"))))
        result = sums(*index) / const(count, wide)
        return cast(data.dtype, Select(there, result, const(float("nan"), wide)))

    return compute(sums.shape, finish, "roi_align")


_roi_te_lower = te_lower(_roi_te)


def _roi_lower(builder: LowerBuilder, call: Call) -> Expr | None:
    attrs = call.attrs
    if attrs["sample_ratio"] > 0:
        return _roi_te_lower(builder, call)
    data, rois = call.args
    lay = roi_layout(attrs["layout"])
    x = lay.plain_expr(all_ops, data, "NCHW")
    if x is not data:
        x = builder.emit(x)
    info: Any = call.struct_info
    sizes = lay.sizes(info.dims)
    plain = TensorStructInfo([sizes[a] for a in "NCHW"], info.dtype, info.vdevice)
    height, width = attrs["pooled_size"]
    numbers = [height, width, attrs["spatial_scale"], attrs["sample_ratio"]]
    numbers += [int(attrs["aligned"]), library.ROI_MODES.index(attrs["mode"])]
    values = [PrimValue(const(v, "float64" if isinstance(v, float) else "int64")) for v in numbers]
    means = call_dps_packed(ExternFunc("vm.library.roi_align"), Tuple((x, rois, *values)), plain)
    return lay.from_plain_expr(all_ops, builder.emit(means), "NCHW")


def _roi_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, None]:
    return ops.grad.roi_align_backward(gy, *call.args, **dict(call.attrs)), None


def roi_settings(values: dict[str, Any]) -> None:
    values["pooled_size"] = spread(values["pooled_size"], 2, "pooled_size")


@prepared(roi_settings)
@op("vision.roi_align", _roi_numpy, _roi_lower, _roi_grad)
def roi_align(
    data: Expr,
    rois: Expr,
    pooled_size: Any,
    spatial_scale: float,
    sample_ratio: int = -1,
    aligned: bool = False,
    layout: str = "NCHW",
    mode: str = "avg",
) -> StructInfo:
    """Each region of `rois` as a picture of `pooled_size`, averaged from samples between pixels.

    data   [n, c, h, w], as `layout` orders it      returns  [regions, c, *pooled_size], likewise
    rois   [regions, 5]: batch, x1, y1, x2, y2; a batch that is not there gives NaN
    spatial_scale  pixels of data for a unit of rois
    sample_ratio   samples along each side of a part; 0 or less: as many as it has pixels
    aligned        pixels' centres, not corners, have whole coordinates; else a side is 1 at least
    mode           "avg" or "max" of the samples, or "max_corner": the greatest of the four pixels
                   around samples, each times its share (what ONNX calls max)
    Raises StructInfoError if shapes or dtypes do not fit.
    """
    if mode not in library.ROI_MODES:
        raise StructInfoError(f"mode: wanted avg, max or max_corner, got {mode!r}")
    values = {"pooled_size": pooled_size}
    roi_settings(values)
    lay = roi_layout(layout)
    info, regions = tensor(data, "data", FLOAT, 4), tensor(rois, "rois", FLOAT, 2)
    same_dtype((info, regions), ("data", "rois"))
    five = const(5, "int64")
    want_equal(regions.dims[1], five, "rois: wanted [regions, 5], got {rois}", rois=regions)
    sizes = lay.sizes(info.dims)
    sizes["N"] = regions.dims[0]
    sizes.update(zip("HW", (const(v, "int64") for v in values["pooled_size"])))
    return shaped(info, lay.shape(sizes))
