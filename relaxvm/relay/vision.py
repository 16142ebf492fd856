"""`relay.vision`: boxes and regions."""

from __future__ import annotations

from typing import Any

from ..base import submodules
from ..relax import op as ops
from . import parts
from .spelling import spelled

roi_align = spelled(
    "vision.roi_align",
    lambda data, rois, pooled_size, spatial_scale, sample_ratio=-1, layout="NCHW", mode="avg": (
        ops.vision.roi_align(
            data, rois, pooled_size, spatial_scale, sample_ratio, layout=layout, mode=mode
        )
    ),
)


def _all_class_non_max_suppression(
    boxes: Any,
    scores: Any,
    max_output_boxes_per_class: Any = -1,
    iou_threshold: Any = -1.0,
    score_threshold: Any = -1.0,
    output_format: str = "onnx",
) -> Any:
    return ops.vision.all_class_non_max_suppression(
        boxes,
        scores,
        parts.one(max_output_boxes_per_class),
        parts.one(iou_threshold),
        parts.one(score_threshold),
        output_format,
    )


all_class_non_max_suppression = spelled(
    "vision.all_class_non_max_suppression",
    _all_class_non_max_suppression,
    results=lambda a: 2 if a.output_format == "onnx" else 3,
)

__getattr__ = submodules(__name__)
