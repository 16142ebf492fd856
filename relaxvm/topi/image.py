"""`topi.image`: images as formulas."""

from __future__ import annotations

from typing import Any

from ..base import submodules
from ..relax import op as ops
from .derive import named, of
from .utils import plain


@of
def resize2d(
    data: Any,
    roi: Any,
    size: Any,
    layout: str = "NCHW",
    method: str = "linear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    extrapolation_value: float = 0.0,
    out_dtype: Any = None,
    output_shape: Any = None,
) -> Any:
    """`relax.op.image.resize2d` of tensors."""
    return ops.image.resize2d(
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


grid_sample = of(
    lambda data, grid, method="bilinear", layout="NCHW", padding_mode="zeros", align_corners=True: (
        ops.image.grid_sample(data, grid, method, layout, padding_mode, align_corners)
    )
)

__getattr__ = submodules(__name__)
__all__ = named(globals())
