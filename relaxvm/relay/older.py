"""Operators that Relay has replaced by others with other arguments, made of those."""

from __future__ import annotations

from typing import Any

from ..base import StructInfoError
from .image import resize2d
from .tensor import scatter_elements


def scatter_add(data: Any, indices: Any, updates: Any, axis: int) -> Any:
    """`scatter_elements` that adds."""
    return scatter_elements(data, indices, updates, axis, "add")


_METHODS = {"nearest_neighbor": "nearest_neighbor", "bilinear": "linear", "bicubic": "cubic"}


def resize(
    data: Any,
    size: Any,
    layout: str = "NCHW",
    method: str = "bilinear",
    coordinate_transformation_mode: str = "half_pixel",
    rounding_method: str = "",
    bicubic_alpha: float = -0.5,
    bicubic_exclude: int = 0,
    out_dtype: Any = None,
) -> Any:
    """`image.resize2d` by its older names of methods, in capitals or not."""
    present = _METHODS.get(str(method).lower())
    if present is None:
        raise StructInfoError(f"image.resize: method: wanted one of {[*_METHODS]}, got {method!r}")
    mode, rest = coordinate_transformation_mode, (bicubic_alpha, bicubic_exclude, 0.0, out_dtype)
    return resize2d(data, size, None, layout, present, mode, rounding_method, *rest)
