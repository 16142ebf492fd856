"""Questions about tensors and shapes that programs ask while they run."""

from __future__ import annotations

from collections.abc import Callable

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


def _stride(x: NDArray, axis: int) -> int:
    array = x.array
    return int(array.strides[axis] // max(1, array.itemsize))


_PROPERTIES: dict[str, Callable[[NDArray], int]] = {
    "ndim": lambda x: x.ndim,
    "dtype_code": lambda x: int(x.dtype.type_code),
    "dtype_bits": lambda x: int(x.dtype.bits),
    "dtype_lanes": lambda x: int(x.dtype.lanes),
    # Arrays are views that start at their first element.
    "byte_offset": lambda x: 0,
    "elem_offset": lambda x: 0,
}
_OF_AXIS: dict[str, Callable[[NDArray, int], int]] = {
    "shape": lambda x, axis: int(x.shape[axis]),
    "stride": _stride,
}


def tensor_property(x: object, name: object, axis: object = None) -> int:
    """One number about a tensor: its rank, a dimension or stride (in elements) of `axis`, a part of
    its dtype.
    """
    if not isinstance(x, NDArray):
        raise VMTypeError(f"tensor_{name}: wanted a tensor, got {got(x)}")
    plain = _PROPERTIES.get(name) if isinstance(name, str) else None
    if plain is not None:
        return plain(x)
    of_axis = _OF_AXIS.get(name) if isinstance(name, str) else None
    if of_axis is None:
        raise VMValueError(f"tensor_property: there is no property {name!r}")
    wanted_axis = integer(axis, f"tensor_{name}_i: axis")
    if not 0 <= wanted_axis < x.ndim:
        raise VMValueError(
            f"tensor_{name}_i: wanted an axis of 0 to {x.ndim - 1}, got {wanted_axis}"
            if x.ndim
            else f"tensor_{name}_i: a tensor of no dimensions has no axis {wanted_axis}"
        )
    return of_axis(x, wanted_axis)
