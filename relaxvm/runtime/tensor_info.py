"""Questions about tensors and shapes that programs ask while they run."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import VMTypeError, VMValueError
from .check import got, shape_text
from .constants import integer
from .ndarray import NDArray, ShapeTuple


def broadcast_shape(*shapes: object) -> ShapeTuple:
    """numpy's broadcast of several shapes. Raises VMValueError, before any kernel runs, if there is
    none; a text among the arguments says whose shapes they are.
    """
    result: list[int] = []
    for shape in shapes:
        if type(shape) is str:
            continue
        if not isinstance(shape, tuple) or not all(type(extent) is int for extent in shape):
            raise VMTypeError(f"broadcast_shape: wanted a shape, got {got(shape)}")
        result[:0] = [1] * (len(shape) - len(result))
        start = len(result) - len(shape)
        for k, extent in enumerate(shape):
            have = result[start + k]
            if have != extent and have != 1 and extent != 1:
                listed = " and ".join(shape_text(s) for s in shapes if isinstance(s, tuple))
                what = "".join(f"{text}: " for text in shapes if isinstance(text, str))
                raise VMValueError(
                    f"{what}the shapes {listed} do not broadcast: dimension "
                    f"{start + k - len(result)} is {have} and {extent}; wanted equal ones, or 1"
                )
            if have == 1:
                result[start + k] = extent
    return tuple.__new__(ShapeTuple, result)


# What they are called, whether they are of an axis, and what they are.
_PROPERTIES: dict[str, tuple[bool, Callable[[NDArray, int], Any]]] = {
    "ndim": (False, lambda x, _: x.ndim),
    "dtype_code": (False, lambda x, _: x.dtype.type_code),
    "dtype_bits": (False, lambda x, _: x.dtype.bits),
    "dtype_lanes": (False, lambda x, _: x.dtype.lanes),
    # Arrays are views that start at their first element.
    "byte_offset": (False, lambda x, _: 0),
    "elem_offset": (False, lambda x, _: 0),
    "shape": (True, lambda x, axis: x.shape[axis]),
    "stride": (True, lambda x, axis: x.array.strides[axis] // max(1, x.array.itemsize)),
}


def tensor_property(x: object, name: object, axis: object = None) -> int:
    """One number about a tensor: its rank, a dimension or stride (in elements) of `axis`, a part of
    its dtype.
    """
    if not isinstance(x, NDArray):
        raise VMTypeError(f"tensor_{name}: wanted a tensor, got {got(x)}")
    of_axis, property_of = _PROPERTIES.get(name if isinstance(name, str) else "", (False, None))
    if property_of is None:
        raise VMValueError(f"tensor_property: there is no property {name!r}")
    what = f"tensor_{name}_i"
    wanted = integer(axis, f"{what}: axis") if of_axis else 0
    if of_axis and not 0 <= wanted < x.ndim:
        raise VMValueError(
            f"{what}: wanted an axis of 0 to {x.ndim - 1}, got {wanted}"
            if x.ndim
            else f"{what}: a tensor of no dimensions has no axis {wanted}"
        )
    return int(property_of(x, wanted))
