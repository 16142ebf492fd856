"""The numpy side of arrays: which numpy type stores which element, aligned memory, shapes, buffers.

bfloat16 and floats of 8 bits, which numpy lacks, are stored as their bits in uint16 and raw bytes.
"""

from __future__ import annotations

import ctypes
import functools
import math
import mmap
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..base import DataType, VMTypeError, VMValueError, to_numpy_dtype

ALIGNMENT_BYTES = 64
# A transposed array of at least so many bytes is copied in blocks of so many rows and columns.
_BLOCKED_BYTES, _BLOCK = 1 << 18, 64
_FAR = 1 << 62
_SHORT_RUN_BYTES = 256
# Four times as fast as `.ctypes.data`; works on any writeable buffer of at least one byte.
_address_of: Any = ctypes.addressof
_byte_at: Any = ctypes.c_char.from_buffer

# numpy's one-letter codes -> our type and the canonical numpy type ("q" and "l" may both be int64).
_BY_CHAR: dict[str, tuple[DataType, np.dtype]] = {}
for _char in "?bBhHiIlLqQefd":
    _name = np.dtype(_char).name
    _BY_CHAR[_char] = (DataType(_name), np.dtype(_name))
# The canonical numpy dtypes themselves. Two C types may be equal to numpy: compare by `is`.
PLAIN_DTYPES = {canonical: (dtype, canonical) for dtype, canonical in _BY_CHAR.values()}

# How the names of ml_dtypes' types begin.
_EXTENSIONS = ("bfloat16", "float8_", "float4_", "int4", "int2", "uint4", "uint2")


class Pages(mmap.mmap):
    """Memory that is filled by the system for an array of ours, and of no file that others see."""


class ShapeTuple(tuple[int, ...]):
    """A shape as a value of a program: a tuple of ints."""

    __slots__ = ()

    def __new__(cls, values: Sequence[int] = ()) -> ShapeTuple:
        return tuple.__new__(cls, map(_index, values))

    def __repr__(self) -> str:
        return f"ShapeTuple([{', '.join(map(str, self))}])"

    def __getnewargs__(self) -> tuple[tuple[int, ...]]:
        return (tuple(self),)


def _index(value: Any) -> int:
    try:
        return operator.index(value)
    except TypeError:
        raise VMTypeError(f"shape: wanted ints, got {type(value).__name__}: {value!r}") from None


def numpy_storage_dtype(dtype: object) -> np.dtype:
    """The numpy dtype that stores elements of `dtype`. Raises VMTypeError if there is none."""
    return to_numpy_dtype(array_dtype(dtype))


def array_dtype(dtype: object, lanes: bool = False) -> DataType:
    """`dtype` as the element type of an array. Raises VMTypeError for what arrays cannot hold.

    lanes  allow vectors, of which an array has one more axis in memory
    """
    if isinstance(dtype, np.dtype) and element_type(dtype) is None:
        raise VMTypeError(f"dtype: arrays cannot hold numpy's {dtype}")
    try:
        wanted = DataType(dtype)
    except (TypeError, ValueError) as error:
        raise VMTypeError(f"dtype: {error}") from None
    if wanted.kind in ("handle", "void") or (wanted.lanes != 1 and not lanes):
        raise VMTypeError(f"dtype: arrays hold numbers, not {wanted}")
    return wanted


@functools.cache
def extension_dtype(dtype: DataType) -> np.dtype | None:
    """ml_dtypes' dtype for what numpy lacks, if that package is installed."""
    try:
        import ml_dtypes
    except ImportError:
        return None
    extension: np.dtype = np.dtype(getattr(ml_dtypes, str(dtype.element)))
    return extension


def checked_shape(shape: Any) -> tuple[int, ...]:
    if isinstance(shape, (int, np.integer)):
        shape = (shape,)
    try:
        extents = tuple(map(_index, shape))
    except TypeError:
        raise VMTypeError(
            f"shape: wanted a sequence of ints, got {type(shape).__name__}: {shape!r}"
        ) from None
    if any(extent < 0 for extent in extents):
        raise VMValueError(f"shape: wanted sizes of at least 0, got {extents}")
    return extents


def aligned_empty(
    shape: tuple[int, ...], storage: np.dtype, memory: np.ndarray | None = None
) -> np.ndarray:
    """An uninitialised C-contiguous numpy array whose first element is aligned to 64 bytes; strings
    are empty.

    memory  what such an array of as many bytes filled, to be used again
    """
    if storage.hasobject:
        return np.full(shape, "", object)
    size_bytes = math.prod(shape) * storage.itemsize
    try:
        raw = np.empty(size_bytes + ALIGNMENT_BYTES, np.uint8) if memory is None else memory
        start = -_address_of(_byte_at(raw)) % ALIGNMENT_BYTES
        return np.ndarray(shape, storage, raw, start)
    except (MemoryError, ValueError, OverflowError) as error:
        raise VMValueError(
            f"cannot allocate {size_bytes} bytes for shape {shape} of {storage}: {error}"
        ) from None


def aligned_copy(
    source: np.ndarray, storage: np.dtype | None = None, copy: np.ndarray | None = None
) -> np.ndarray:
    """`source` in C order, aligned to 64 bytes; in `copy`, if that is there for it.

    A transposed array is copied in blocks that the cache holds: numpy's order reads a line of it
    for each element. Rows that are some 4096 bytes apart lie in the same few places of a cache, so
    blocks of these are brought together first. Short runs, as of panels of weights, are copied as
    one element each: half the time.
    """
    if copy is None:
        copy = aligned_empty(source.shape, source.dtype if storage is None else storage)
    last = source.ndim - 1
    strides = [abs(s) if n > 1 else _FAR for s, n in zip(source.strides, source.shape)]
    dense = strides.index(min(strides)) if strides else last
    if dense == last or source.nbytes < _BLOCKED_BYTES:
        run = source.itemsize * source.shape[-1] if strides else 0
        is_run = strides and source.strides[-1] == source.itemsize and copy.dtype == source.dtype
        if is_run and run <= _SHORT_RUN_BYTES and source.size and not source.dtype.hasobject:
            whole = np.dtype((np.void, run))
            copy.view(whole)[...] = source.view(whole)
        else:
            copy[...] = source
        return copy
    if sorted(strides)[1] % 4096 == 0:
        to, of = np.moveaxis(copy, dense, -1), np.moveaxis(source, dense, -1)
        for i in range(0, of.shape[-1], _BLOCK):
            to[..., i : i + _BLOCK] = of[..., i : i + _BLOCK].copy()
        return copy
    to, of = np.moveaxis(copy, dense, 0), np.moveaxis(source, dense, 0)
    for i in range(0, of.shape[0], _BLOCK):
        for k in range(0, of.shape[-1], _BLOCK):
            to[i : i + _BLOCK, ..., k : k + _BLOCK] = of[i : i + _BLOCK, ..., k : k + _BLOCK]
    return copy


def memory_filled_by(array: np.ndarray) -> np.ndarray | None:
    """The memory from `aligned_empty`, or of `Pages`, that `array` fills, in any order; None if it
    does not.
    """
    memory: Any = array.base
    owner: Any = getattr(memory, "base", None)
    stride = array.itemsize
    for step, extent in sorted(zip(array.strides, array.shape)):
        if extent > 1 and step != stride:
            return None
        stride *= extent
    if type(memory) is not np.ndarray or memory.dtype != np.uint8 or not memory.flags.writeable:
        return None
    rest = 0 if type(owner) is Pages else ALIGNMENT_BYTES if memory.flags.owndata else -1
    start = -memory.ctypes.data % ALIGNMENT_BYTES
    is_whole = memory.size - array.nbytes == rest
    return memory if is_whole and array.ctypes.data - memory.ctypes.data == start else None


def describe_dtype(dtype: np.dtype) -> str:
    kinds = {
        "O": "Python objects",
        "U": "text",
        "S": "bytes",
        "V": "raw memory",
        "c": "complex numbers",
    }
    meaning = kinds.get(dtype.kind)
    return f"dtype {dtype}" + (f" ({meaning})" if meaning else "")


def c_function(name: str, result: Any, *args: Any) -> Any:
    """A function of Python's C API, by the ctypes types of its result and its arguments."""
    return ctypes.PYFUNCTYPE(result, *args)((name, ctypes.pythonapi))


_has_buffer = c_function("PyObject_CheckBuffer", ctypes.c_int, ctypes.py_object)


def has_buffer(x: object) -> bool:
    return bool(_has_buffer(x))


def view_of_buffer(x: Any) -> np.ndarray:
    try:
        view = memoryview(x)
        return np.asarray(view)
    except (BufferError, ValueError, TypeError, NotImplementedError) as error:
        raise VMTypeError(f"wanted a buffer of numbers, got {type(x).__name__}: {error}") from None


def memory_overlaps(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two arrays share an element; also True where that is too hard to tell."""
    try:
        return bool(np.shares_memory(a, b, max_work=10_000))  # type: ignore[arg-type]
    except RuntimeError:
        # numpy's TooHardError, which has moved between versions: too tangled to tell.
        return True


def element_type(dtype: np.dtype) -> tuple[DataType, np.dtype] | None:
    """Our type for a numpy dtype and the canonical dtype that stores it, or None for no number."""
    # The types of ml_dtypes have letters that mean something else to numpy: go by their names.
    if dtype.kind == "V" or dtype.char not in _BY_CHAR:
        name = dtype.name
        if dtype.fields is not None or not name.startswith(_EXTENSIONS):
            return None
        try:
            known = DataType(name)
        except ValueError:
            return None
        return (known, to_numpy_dtype(known)) if known.is_bits else None
    return _BY_CHAR[dtype.char]
