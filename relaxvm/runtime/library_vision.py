"""Library functions of object detection: `vm.library.non_max_suppression`, `vm.library.roi_align`.

What they compute is also what the operators of `relax.op.vision` mean.
"""

from __future__ import annotations

import io
import warnings
from typing import Any

import numpy as np

from ..base import VMValueError
from .library import library, numeric, result_of, values_of
from .ndarray import NDArray

# -- non-maximum suppression ----------------------------------------------------------------------


def _corners(boxes: np.ndarray, center: bool) -> np.ndarray:
    """[..., 4] as (low y, low x, high y, high x)."""
    if center:
        x, y, w, h = (boxes[..., k] for k in range(4))
        return np.stack([y - h / 2, x - w / 2, y + h / 2, x + w / 2], -1)
    first, second = boxes[..., :2], boxes[..., 2:]
    return np.concatenate([np.minimum(first, second), np.maximum(first, second)], -1)


def _overlaps(boxes: np.ndarray, others: np.ndarray) -> np.ndarray:
    """[boxes, others]: intersection over union of each with each; 0 if one has no area."""
    tall, wide = (
        np.maximum(
            np.minimum(boxes[:, None, k + 2], others[:, k + 2])
            - np.maximum(boxes[:, None, k], others[:, k]),
            0,
        )
        for k in range(2)
    )
    shared = tall * wide
    area, areas = ((b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) for b in (boxes, others))
    union = area[:, None] + areas - shared
    real = (area > 0)[:, None] & (areas > 0) & (union > 0)
    return np.where(real, shared / np.where(real, union, 1), 0)


_BLOCK = 256


def _kept(boxes: np.ndarray, scores: np.ndarray, most: int, iou: float, least: float) -> list[int]:
    """The boxes that stay, best first; of equal scores the first one.

    A box goes if one that stays overlaps it; they are compared a block at a time.
    """
    # Few of many boxes are good enough: those alone are sorted.
    order = np.flatnonzero(scores > np.float64(least))
    order = order[np.argsort(-scores[order].astype("float64"), kind="stable")]
    kept: list[int] = []
    for start in range(0, len(order), _BLOCK):
        if len(kept) >= most:
            break
        block = order[start : start + _BLOCK]
        stays = np.ones(len(block), bool)
        for earlier in range(0, len(kept), _BLOCK):
            over = _overlaps(boxes[kept[earlier : earlier + _BLOCK]], boxes[block])
            stays &= ~(over > iou).any(0)
        goes = _overlaps(boxes[block], boxes[block]) > iou
        for k in range(len(block)):
            if stays[k] and len(kept) < most:
                kept.append(int(block[k]))
                stays &= ~goes[k]
    return kept


def non_max_suppression_values(
    boxes: np.ndarray, scores: np.ndarray, most: int, iou: float, least: float, center: bool = False
) -> np.ndarray:
    """int64 [count, 3]: batch, class and box of each box that stays.

    boxes  [batch, boxes, 4]     scores  [batch, classes, boxes]
    most   how many stay of each class     iou, least  what overlaps more goes, as what scores less
    """
    with np.errstate(all="ignore"):
        places = _corners(boxes.astype("float64"), center)
        kept = [
            (b, c, k)
            for b in range(scores.shape[0])
            for c in range(scores.shape[1])
            for k in _kept(places[b], scores[b, c], most, iou, least)
        ]
    return np.asarray(kept, "int64").reshape(-1, 3)


def _check(boxes: np.ndarray, scores: np.ndarray) -> None:
    good = boxes.ndim == scores.ndim == 3 and boxes.shape[2] == 4
    if not good or boxes.shape[:2] != (scores.shape[0], scores.shape[2]):
        raise VMValueError(
            "non_max_suppression: wanted boxes [batch, boxes, 4], scores [batch, classes, boxes], "
            f"got {boxes.shape} and {scores.shape}"
        )


@numeric("non_max_suppression")
def _non_max_suppression(
    boxes: np.ndarray, scores: np.ndarray, max_output_boxes_per_class: float, iou_threshold: float,
    score_threshold: float, center_point_box: bool,
) -> np.ndarray:  # fmt: skip
    _check(boxes, scores)
    most = int(max_output_boxes_per_class)
    return non_max_suppression_values(
        boxes, scores, most, iou_threshold, score_threshold, center_point_box
    )


def combined_values(
    boxes: np.ndarray, scores: np.ndarray, most: int, iou: float, least: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What stays, by batch: (class, box) int64 [batch, n, 2], scores [batch, n], counts [batch].

    n = classes * boxes; rows behind the count are 0.
    """
    batch, classes, count = scores.shape
    rows = np.zeros((batch, classes * count, 2), "int64")
    values = np.zeros((batch, classes * count), scores.dtype)
    kept = non_max_suppression_values(boxes, scores, most, iou, least)
    counts = np.bincount(kept[:, 0], minlength=batch).astype("int64")
    for b in range(batch):
        mine = kept[kept[:, 0] == b]
        rows[b, : len(mine)] = mine[:, 1:]
        values[b, : len(mine)] = scores[b, mine[:, 1], mine[:, 2]]
    return rows, values, counts


@numeric("combined_non_max_suppression", outs=3)
def _combined_non_max_suppression(
    boxes: np.ndarray, scores: np.ndarray, max_output_boxes_per_class: float, iou_threshold: float,
    score_threshold: float,
) -> tuple[np.ndarray, ...]:  # fmt: skip
    _check(boxes, scores)
    most = int(max_output_boxes_per_class)
    return combined_values(boxes, scores, most, iou_threshold, score_threshold)


# -- files ----------------------------------------------------------------------------------------

# What ONNX's ImageDecoder names.
_FORMATS = ("BMP", "JPEG", "JPEG2000", "PNG", "PPM", "TIFF", "WEBP")
_PIXELS = {"RGB": "RGB", "BGR": "RGB", "Grayscale": "L"}


def decode_values(data: np.ndarray, pixels: str) -> np.ndarray:
    """uint8 [height, width, 3 or 1]: the picture that the bytes of a file hold.

    Raises VMValueError for what is no picture, or if Pillow is not installed.
    """
    try:
        from PIL import Image
    except ImportError:
        raise VMValueError(
            "image.decode: reading pictures needs Pillow: pip install relaxvm[images]"
        ) from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            with Image.open(io.BytesIO(data.tobytes()), formats=_FORMATS) as picture:
                values = np.asarray(picture.convert(_PIXELS[pixels]))
    except MemoryError:
        raise
    except Exception as error:  # decoders raise whatever they like
        raise VMValueError(f"image.decode: {type(error).__name__}: {error}") from error
    values = values.reshape(*values.shape[:2], -1)
    return np.ascontiguousarray(values[:, :, ::-1] if pixels == "BGR" else values)


@library("decode_image")
def decode_image(data: Any, pixels: Any) -> NDArray:
    """`decode_values` of a vector of bytes."""
    values = values_of(data, "image.decode: data")
    if values.ndim != 1 or values.dtype != np.uint8 or pixels not in _PIXELS:
        raise VMValueError(
            f"image.decode: wanted a vector of uint8 and one of {', '.join(_PIXELS)}, got "
            f"{values.shape} of {values.dtype} and {pixels!r}"
        )
    return result_of(decode_values(values, pixels))


# -- regions --------------------------------------------------------------------------------------

_MOST_SAMPLES = 1 << 24

ROI_MODES = ("avg", "max", "max_corner")
"""What becomes of the samples of a part; `roi_align` takes the number of one."""


def roi_align_values(
    data: np.ndarray, rois: np.ndarray, size: tuple[int, int], scale: float, ratio: int,
    aligned: bool, mode: str,
) -> np.ndarray:  # fmt: skip
    """[regions, c, *size] in float64: averages (or maxima) of samples between the pixels of `data`.

    data   [n, c, h, w]     rois  [regions, 5]: batch, x1, y1, x2, y2, times `scale` pixels
    ratio  samples along each side of a part; 0 or less: as many as it has pixels, rounded up
    A region of a batch that is not there gives NaN.
    """
    x = data.astype("float64")
    regions = np.empty((len(rois), data.shape[1], *size))
    for k, roi in enumerate(rois.astype("float64")):
        batch = int(np.nan_to_num(np.clip(roi[0], -1, len(x)), nan=-1.0))
        if not (0 <= batch < len(x) and np.isfinite(roi).all()):
            regions[k] = np.nan
            continue
        left, top, right, bottom = roi[1:] * scale - (0.5 if aligned else 0.0)
        wide, high = right - left, bottom - top
        if not aligned:
            wide, high = max(wide, 1.0), max(high, 1.0)
        rows = _samples(top, high, size[0], ratio)
        columns = _samples(left, wide, size[1], ratio)
        if rows.size * columns.size > _MOST_SAMPLES:
            raise VMValueError(
                f"roi_align: region {k} needs {rows.size} x {columns.size} samples; "
                "give a sample_ratio, or smaller regions"
            )
        values = _between(x[batch], rows.reshape(-1), columns.reshape(-1), mode == "max_corner")
        values = values.reshape(len(x[batch]), *rows.shape, *columns.shape)
        if not (rows.shape[1] and columns.shape[1]):
            regions[k] = 0.0
        elif mode == "avg":
            regions[k] = values.sum((2, 4)) / float(rows.shape[1] * columns.shape[1])
        else:
            regions[k] = values.max((2, 4))
    return regions


def _samples(begin: float, length: float, parts: int, ratio: int) -> np.ndarray:
    """[parts, samples]: where the samples of each part lie."""
    each = length / parts
    count = ratio if ratio > 0 else max(int(np.ceil(each)), 0)
    if count * parts > _MOST_SAMPLES:
        raise VMValueError(f"roi_align: a region needs {count} samples; give a sample_ratio")
    offsets = (np.arange(count) + 0.5) * each / max(count, 1)
    return begin + np.arange(parts)[:, None] * each + offsets


def _between(
    x: np.ndarray, rows: np.ndarray, columns: np.ndarray, corner: bool = False
) -> np.ndarray:
    """[c, rows, columns]: `x` [c, h, w] between its pixels; 0 more than a pixel outside.

    corner  the greatest of the four pixels times its share, instead of their sum
    """
    join = np.maximum if corner else np.add
    if 0 in x.shape[1:]:
        return np.zeros((x.shape[0], len(rows), len(columns)))
    parts = []
    for coordinates, size in ((rows, x.shape[1]), (columns, x.shape[2])):
        outside = (coordinates < -1.0) | (coordinates > size)
        coordinates = np.minimum(np.maximum(coordinates, 0.0), size - 1.0)
        low = np.floor(coordinates)
        part = coordinates - low
        first = low.astype("int64")
        second = np.minimum(first + 1, size - 1)
        near, far = np.where(outside, 0, 1 - part), np.where(outside, 0, part)
        parts.append((first, second, near, far))
    (y0, y1, fy0, fy1), (x0, x1, fx0, fx1) = parts
    above = join(x[:, y0] * fy0[:, None], x[:, y1] * fy1[:, None])
    return join(above[:, :, x0] * fx0, above[:, :, x1] * fx1)


@numeric("roi_align", outs=1)
def _roi_align(
    data: np.ndarray, rois: np.ndarray, height: int, width: int, scale: float, ratio: int,
    aligned: bool, mode: int,
) -> np.ndarray:  # fmt: skip
    if data.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5 or min(height, width) < 1:
        raise VMValueError(
            "roi_align: wanted data [n, c, h, w], rois [regions, 5] and a size of 1 or more, "
            f"got {data.shape}, {rois.shape} and {height, width}"
        )
    if not 0 <= mode < len(ROI_MODES):
        raise VMValueError(f"roi_align: mode: wanted 0 to {len(ROI_MODES) - 1}, got {mode}")
    with np.errstate(all="ignore"):
        return roi_align_values(data, rois, (height, width), scale, ratio, aligned, ROI_MODES[mode])
