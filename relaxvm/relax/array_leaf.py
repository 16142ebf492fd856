"""How the arrays of constants are saved, compared and hashed: bit for bit; when they are compared,
all NaNs are one.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import numpy as np

from ..base import bits_to_floats, to_numpy_dtype
from ..ir import LeafCodec
from ..runtime import NDArray
from ..runtime import array as as_array


def _array_bytes(data: NDArray) -> bytes:
    if data.dtype.is_string:
        return json.dumps(data.numpy().reshape(-1).tolist()).encode()
    values = np.ascontiguousarray(data.numpy())
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _array_to_plain(data: NDArray) -> tuple[Any, ...]:
    return str(data.dtype), tuple(int(d) for d in data.shape), _array_bytes(data)


def _array_from_plain(plain: Any) -> NDArray:
    dtype, shape, content = plain
    storage = to_numpy_dtype(dtype)
    if storage.hasobject:
        return as_array(np.array(json.loads(content), object).reshape(shape), dtype=dtype)
    values = np.frombuffer(content, storage.newbyteorder("<")).astype(storage, copy=False)
    return as_array(values.reshape(shape), dtype=dtype)


def _compared_bytes(data: NDArray) -> bytes:
    """What equal arrays have alike: 0.0 differs from -0.0, but no NaN from another."""
    if not data.dtype.is_float:
        return _array_bytes(data)
    values = np.ascontiguousarray(data.numpy())
    element = data.dtype.element
    nan = np.isnan(bits_to_floats(values, element) if element.is_bits else values)
    if not nan.any():
        return _array_bytes(data)
    bits = values.view(f"u{values.itemsize}")
    numbers = np.where(nan, bits.dtype.type(0), bits)
    little = bits.dtype.newbyteorder("<")
    return numbers.astype(little, copy=False).tobytes() + np.packbits(nan).tobytes()


def _array_equal(a: NDArray, b: NDArray) -> bool:
    return a is b or (
        a.dtype is b.dtype and a.shape == b.shape and _compared_bytes(a) == _compared_bytes(b)
    )


def _array_digest(data: NDArray) -> bytes:
    head = f"{data.dtype}{tuple(data.shape)}".encode()
    return hashlib.sha256(head + _compared_bytes(data)).digest()


ARRAY_CODEC = LeafCodec("array", _array_to_plain, _array_from_plain, _array_equal, _array_digest)
