"""`topi.image`: images as formulas."""

from __future__ import annotations

from ..base import submodules
from ..relax import op as ops
from .derive import named, of
from .utils import plain

resize2d = of(
    lambda data, roi, size, layout="NCHW", method="linear", coordinate_transformation_mode="half_pixel", rounding_method="", bicubic_alpha=-0.5, bicubic_exclude=0, extrapolation_value=0.0, out_dtype=None, output_shape=None: (
        ops.image.resize2d(
            data,
            size if output_shape is None else output_shape,
            roi=plain(roi),
            layout=layout,
            method=method,
            coordinate_transformation_mode=coordinate_transformation_mode,
            rounding_method=rounding_method,
            cubic_alpha=bicubic_alpha,
            cubic_exclude=bicubic_exclude,
            extrapolation_value=extrapolation_value,
            out_dtype=out_dtype,
        )
    )
)
grid_sample = of(
    lambda data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True: (
        ops.image.grid_sample(data, grid, method, layout, padding_mode, align_corners)
    )
)

__getattr__ = submodules(__name__)
__all__ = named(globals())
