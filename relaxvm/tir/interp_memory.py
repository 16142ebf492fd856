"""The interpreter's memory: numpy views of raw bytes for buffers, and the arrays that callers pass.

The memory behind a handle is a 1-D uint8 array, from the address on to the end of what may be
touched.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from ..base import DataType, NamedTuple, VMError, VMTypeError, VMValueError, to_numpy_dtype
from .stmt import Buffer

MAX_BYTES = 1 << 31
"""What one allocation may take."""


class Pointer(NamedTuple):
    """A handle passed from one loop function to another."""

    memory: np.ndarray


class Argument(NamedTuple):
    """An array as a parameter sees it.

    array    what the body works on
    back     the caller's array, to be overwritten with `array` at the end, where `array` is a copy
    """

    array: np.ndarray
    back: np.ndarray | None


def address(array: np.ndarray) -> int:
    """Where the first element lies."""
    return int(array.__array_interface__["data"][0])


def allocate(where: str, name: str, dtype: DataType, shape: tuple[int, ...]) -> np.ndarray:
    """New memory for `shape` elements. Every bit is one: NaN, or -1, so that reading it early
    shows.

    Raises VMValueError for a negative or huge shape.
    """
    if any(extent < 0 for extent in shape):
        raise VMValueError(f"{where}: buffer {name} is allocated with the negative shape {shape}")
    size = math.prod(shape) * dtype.itemsize
    if size > MAX_BYTES:
        raise VMValueError(
            f"{where}: buffer {name} of shape {shape} takes {size} bytes; "
            f"the interpreter allocates at most {MAX_BYTES}"
        )
    try:
        memory = np.empty(size, dtype=np.uint8)
    except MemoryError:
        raise VMError(f"{where}: no memory for buffer {name} of {size} bytes") from None
    memory.fill(1 if dtype.is_bool else 0xFF)
    return memory


def make_view(
    where: str,
    buffer: Buffer,
    memory: np.ndarray,
    shape: tuple[int, ...],
    strides: tuple[int, ...] | None,
    offset: int,
) -> np.ndarray:
    """The elements of `buffer` inside `memory`; a vector dtype adds an axis for the lanes.

    strides, offset  in elements
    Raises VMValueError where the buffer does not fit its memory.
    """
    size = buffer.dtype.itemsize
    lanes = buffer.dtype.lanes
    full = shape if lanes == 1 else (*shape, lanes)
    steps = None if strides is None else tuple(s * size for s in strides)
    if steps is not None and lanes > 1:
        steps = (*steps, size // lanes)
    try:
        return np.ndarray(full, to_numpy_dtype(buffer.dtype), memory, offset * size, steps)
    except (ValueError, TypeError) as error:
        raise VMValueError(
            f"{where}: buffer {buffer.name} of shape {shape}"
            f"{'' if strides is None else f', strides {strides}'}, offset {offset} does not fit "
            f"the {memory.nbytes} bytes behind it: {error}"
        ) from None


def array_of(where: str, name: str, dtype: DataType, value: Any) -> np.ndarray:
    """The caller's array, with the storage dtype of `dtype`. Raises VMTypeError if it is none or
    another dtype.

    Takes numpy arrays and objects with `.numpy()`; bfloat16 comes as its bits in uint16.
    """
    convert = getattr(value, "numpy", None)
    array = convert() if callable(convert) else value
    if not isinstance(array, np.ndarray):
        raise VMTypeError(
            f"{where}: parameter {name}: wanted an array of {dtype}, got {type(value).__name__}"
        )
    wanted = to_numpy_dtype(dtype)
    if dtype.is_bits and array.dtype.name == str(dtype.element):
        array = array.view(wanted)
    if array.dtype != wanted:
        hint = " (the bits of bfloat16)" if dtype.is_bfloat else ""
        raise VMTypeError(
            f"{where}: parameter {name}: wanted an array of {wanted}{hint}, got {array.dtype}"
        )
    return np.asarray(array)


def memory_of(where: str, name: str, array: np.ndarray) -> np.ndarray:
    """The bytes from the first element of `array` to the end of its last, as a 1-D view.

    Raises VMValueError for a negative stride.
    """
    if array.flags.c_contiguous:
        return array.reshape(-1).view(np.uint8)
    if any(s < 0 for s in array.strides) or any(s % array.itemsize for s in array.strides):
        raise VMValueError(
            f"{where}: parameter {name}: strides {array.strides} are no natural number of "
            "elements; pass a copy"
        )
    last = sum((n - 1) * s for n, s in zip(array.shape, array.strides)) // array.itemsize
    flat = np.lib.stride_tricks.as_strided(
        array, (last + 1,), (array.itemsize,), writeable=array.flags.writeable
    )
    return flat.view(np.uint8)
