"""How the arrays of constants are saved, compared and hashed: bit for bit."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from ..base import to_numpy_dtype
from ..ir import LeafCodec
from ..runtime import NDArray
from ..runtime import array as as_array


def _array_bytes(data: NDArray) -> bytes:
    values = np.ascontiguousarray(data.numpy())
    return values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()


def _array_to_plain(data: NDArray) -> tuple[Any, ...]:
    return str(data.dtype), tuple(int(d) for d in data.shape), _array_bytes(data)


def _array_from_plain(plain: Any) -> NDArray:
    dtype, shape, content = plain
    storage = to_numpy_dtype(dtype)
    values = np.frombuffer(content, storage.newbyteorder("<")).astype(storage, copy=False)
    return as_array(values.reshape(shape), dtype=dtype)


def _array_equal(a: NDArray, b: NDArray) -> bool:
    """Bit for bit, so that NaN equals itself and 0.0 differs from -0.0."""
    return a is b or (
        a.dtype is b.dtype and a.shape == b.shape and _array_bytes(a) == _array_bytes(b)
    )


def _array_digest(data: NDArray) -> bytes:
    head = f"{data.dtype}{tuple(data.shape)}".encode()
    return hashlib.sha256(head + _array_bytes(data)).digest()


ARRAY_CODEC = LeafCodec("array", _array_to_plain, _array_from_plain, _array_equal, _array_digest)
