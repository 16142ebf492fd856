"""Parameters by name, as bytes or a file: TVM's own layout, so that either reads what the other
wrote. All numbers are little-endian:

    u64 0xF7E58D4F05049CB7, u64 0, u64 count, then for each name: u64 length, its UTF-8 bytes
    u64 count, then for each array: u64 0xDD5E40F096B4A13F, u64 0, i32 1, i32 0 (the CPU), i32 rank,
        u8 type code, u8 bits, u16 lanes, i64 per dimension, i64 size in bytes, its bytes
"""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..base import DataType, DataTypeCode, LoadError, VMTypeError, VMValueError, dtype_of_code
from .files import open_document, write_atomically
from .ndarray import NDArray, as_ndarray, wrap_unchecked
from .storage import aligned_copy, array_dtype, numpy_storage_dtype

_LIST, _ARRAY = 0xF7E58D4F05049CB7, 0xDD5E40F096B4A13F


def save_param_dict(params: Mapping[str, Any]) -> bytes:
    """`params` (names to arrays) as bytes."""
    return b"".join(_parts(params))


def save_param_dict_to_file(params: Mapping[str, Any], path: str | os.PathLike[str]) -> None:
    """Write `params` (names to arrays) into a file."""
    write_atomically(path, list(_parts(params)))


def load_param_dict(param_bytes: Any) -> dict[str, NDArray]:
    """The arrays by name that `save_param_dict` made bytes of. Raises LoadError for others."""
    try:
        data = memoryview(param_bytes).cast("B")
    except TypeError:
        raise VMTypeError(
            f"parameters: wanted the bytes of a file, got {type(param_bytes).__name__}"
        ) from None
    begin, part = 0, "the names"

    def take(size: int) -> memoryview:
        nonlocal begin
        if size > len(data) - begin:
            raise LoadError(
                f"parameters: {part}: {size} bytes wanted at {begin}, {len(data) - begin} are left"
            )
        begin += size
        return data[begin - size : begin]

    def numbers(form: str) -> tuple[int, ...]:
        return struct.unpack("<" + form, take(struct.calcsize("<" + form)))

    if numbers("QQ")[0] != _LIST:
        raise LoadError("these are no parameters: they begin with other bytes")
    try:
        # No more than there are bytes: a number in a file makes nobody count for ever.
        count = min(numbers("Q")[0], len(data))
        names = [str(take(numbers("Q")[0]), "utf-8") for _ in range(count)]
    except UnicodeDecodeError as error:
        raise LoadError(f"parameters: a name is no text: {error}") from None
    (count,) = numbers("Q")
    if count != len(names) or len(set(names)) != count:
        raise LoadError(f"parameters: {count} arrays of {len(names)} names, some perhaps twice")
    params = {}
    for name in names:
        part = name
        magic, _, _, _, rank, code, bits, lanes = numbers("QQiiiBBH")
        if magic != _ARRAY or not 0 <= rank <= 64:
            raise LoadError(f"parameters: {name} is no array")
        shape = numbers(f"{rank}q")
        dtype = _dtype_of(name, code, bits, lanes)
        (size,) = numbers("q")
        if min(shape, default=0) < 0 or size != math.prod(shape) * dtype.itemsize:
            raise LoadError(f"parameters: {name} of shape {shape} and {dtype} has {size} bytes")
        lanes_axis = (dtype.lanes,) if dtype.lanes > 1 else ()
        flat = np.frombuffer(take(size), numpy_storage_dtype(dtype.element))
        if dtype.is_bool:
            flat = flat.view("uint8") != 0
        params[name] = wrap_unchecked(aligned_copy(flat.reshape((*shape, *lanes_axis))), dtype)
    return params


def load_param_dict_from_file(path: str | os.PathLike[str]) -> dict[str, NDArray]:
    """The arrays by name in a file. Raises LoadError if it holds something else."""
    with open_document(path) as file:
        return load_param_dict(file.read())


def _dtype_of(name: str, code: int, bits: int, lanes: int) -> DataType:
    try:
        return array_dtype(dtype_of_code(code, bits, lanes or 1), lanes=True)
    except (ValueError, TypeError):
        raise LoadError(f"parameters: {name}: no dtype {code} of {bits} bits") from None


def _parts(params: Mapping[str, Any]) -> Iterator[bytes]:
    if not isinstance(params, Mapping) or not all(isinstance(name, str) for name in params):
        raise VMTypeError(f"parameters: wanted a dictionary by name, got {type(params).__name__}")
    yield struct.pack("<QQQ", _LIST, 0, len(params))
    for name in params:
        try:
            text = name.encode()
        except UnicodeEncodeError as error:
            raise VMValueError(f"parameters: {name!r} is no name: {error}") from None
        yield struct.pack("<Q", len(text)) + text
    yield struct.pack("<Q", len(params))
    for value in params.values():
        array = as_ndarray(value)
        dtype, shape = array.dtype, array.shape
        # TVM writes bool as an unsigned integer of one bit.
        code = DataTypeCode.UINT if dtype.is_bool else dtype.type_code
        yield struct.pack(
            f"<QQiiiBBH{len(shape)}qq",
            *(_ARRAY, 0, 1, 0, len(shape), code, dtype.bits, dtype.lanes),
            *(*shape, math.prod(shape) * dtype.itemsize),
        )
        yield np.ascontiguousarray(array.array).tobytes()
