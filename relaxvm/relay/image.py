"""`relay.image`: images."""

from __future__ import annotations

from typing import Any

from ..base import StructInfoError, submodules
from ..relax import op as ops
from . import parts
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
        parts.ints(size),
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


def _by_images(layout: str) -> Any:
    """Resizing of rows or volumes, by that of images."""

    def build(
        data: Any,
        size: Any,
        roi: Any = None,
        layout: str = layout,
        method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel",
        rounding_method: str = "",
        cubic_alpha: float = -0.5,
        cubic_exclude: int = 0,
        extrapolation_value: float = 0.0,
        out_dtype: Any = None,
    ) -> Any:
        if coordinate_transformation_mode == "tf_crop_and_resize":
            raise StructInfoError("image: wanted a mode without a region, got tf_crop_and_resize")
        rest = (coordinate_transformation_mode, rounding_method, cubic_alpha, cubic_exclude)

        def resized(images: Any, size: Any) -> Any:
            args = (*rest, extrapolation_value, out_dtype)
            return ops.image.resize2d(images, size, None, "NCHW", method, *args)

        return parts.of_image(data, layout, [size] if isinstance(size, int) else size, resized)

    return build


resize1d = spelled("image.resize1d", _by_images("NCW"))
resize2d = spelled("image.resize2d", _resize2d)
resize3d = spelled("image.resize3d", _by_images("NCDHW"))
affine_grid = spelled("image.affine_grid", parts.affine_grid)
grid_sample = spelled(
    "image.grid_sample",
    lambda data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True: (
        ops.image.grid_sample(data, grid, method, layout, padding_mode, align_corners)
    ),
)

__getattr__ = submodules(__name__)
