"""`relay.image`: images."""

from __future__ import annotations

from typing import Any

from ..base import submodules
from ..relax import op as ops
from .spelling import spelled


def _resize2d(
    data: Any,
    size: Any,
    roi: Any = None,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    cubic_alpha: float = -0.5,
    cubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Any = None,
) -> Any:
    return ops.image.resize2d(
        data,
        size,
        roi,
        layout,
        method,
        coordinate_transformation_mode,
        rounding_method,
        cubic_alpha,
        cubic_exclude,
        extrapolation_value,
        out_dtype,
    )


resize2d = spelled("image.resize2d", _resize2d)
grid_sample = spelled(
    "image.grid_sample",
    lambda data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True: (
        ops.image.grid_sample(data, grid, method, layout, padding_mode, align_corners)
    ),
)

__getattr__ = submodules(__name__)
