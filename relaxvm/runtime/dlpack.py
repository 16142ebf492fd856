"""DLPack capsules in and out, read by ctypes.

numpy itself refuses bfloat16, and older versions make every borrowed array read-only.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ..base import DataType, VMTypeError, VMValueError, dtype_of_code, to_numpy_dtype
from .storage import c_function

_HOST_DEVICES = (1, 3, 11)
"""DLPack's numbers for memory that the CPU can read: cpu, pinned CUDA host, pinned ROCm host."""

_FLAG_READ_ONLY = 1
_MAX_NDIM = 64


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Managed(ctypes.Structure):
    _fields_ = [("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p)]


class _ManagedVersioned(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


class _Borrowed:
    """Memory of another library, described for numpy; it keeps the capsule that owns the memory.

    The capsule is never renamed to "used", so its producer stays responsible for calling the
    deleter.
    """

    __slots__ = ("__array_interface__", "_capsule", "_producer")

    def __init__(self, interface: dict[str, Any], capsule: object, producer: object) -> None:
        self.__array_interface__ = interface
        self._capsule = capsule
        self._producer = producer


_object, _text, _pointer = ctypes.py_object, ctypes.c_char_p, ctypes.c_void_p
_capsule_is_valid = c_function("PyCapsule_IsValid", ctypes.c_int, _object, _text)
capsule_pointer = c_function("PyCapsule_GetPointer", _pointer, _object, _text)
_Capsule = type(c_function("PyCapsule_New", _object, _pointer, _text, _pointer)(1, b"x", None))


def is_capsule(value: object) -> bool:
    """Whether `value` is a PyCapsule."""
    return type(value) is _Capsule


def _tensor_in(capsule: object) -> tuple[_Tensor, bool]:
    """The tensor description inside a capsule, and whether it is read-only."""
    if _capsule_is_valid(capsule, b"dltensor_versioned"):
        address = capsule_pointer(capsule, b"dltensor_versioned")
        managed = _ManagedVersioned.from_address(address)
        if managed.major > 1:
            raise VMTypeError(f"DLPack: wanted version 1, got {managed.major}.{managed.minor}")
        return managed.tensor, bool(managed.flags & _FLAG_READ_ONLY)
    if _capsule_is_valid(capsule, b"dltensor"):
        return _Managed.from_address(capsule_pointer(capsule, b"dltensor")).tensor, False
    raise VMTypeError(
        "DLPack: wanted an unused capsule named 'dltensor', got another or a used one"
    )


def _capsule_of(producer: Any) -> object:
    kind = type(producer).__name__
    try:
        device_type = 1
        if hasattr(producer, "__dlpack_device__"):
            device_type = int(producer.__dlpack_device__()[0])
    except (BufferError, RuntimeError, TypeError, ValueError, LookupError) as error:
        raise VMTypeError(f"DLPack: {kind} does not say where its memory is: {error}") from error
    if device_type not in _HOST_DEVICES:
        raise VMTypeError(
            f"DLPack: wanted memory of the CPU, got {kind} on DLPack device kind {device_type}; "
            "move it to the CPU first"
        )
    # torch lends the memory of a view that it negates when reading, without the sign.
    negated = getattr(producer, "is_neg", None)
    try:
        if callable(negated) and negated():
            raise VMTypeError(
                f"DLPack: the numbers of the {kind} are negated when it is read; give its "
                "resolve_neg()"
            )
        try:
            return producer.__dlpack__(max_version=(1, 0))
        except TypeError:
            # A producer older than the versioned protocol does not know the keyword.
            return producer.__dlpack__()
    except VMTypeError:
        raise
    except (BufferError, RuntimeError, TypeError, ValueError) as error:
        raise VMTypeError(f"DLPack: {kind} refused to lend its memory: {error}") from error


def view_of_dlpack(source: object) -> tuple[np.ndarray, DataType]:
    """A numpy view of the memory of a DLPack producer (or capsule), and its element type.

    Any strides; bfloat16 as its bits. Raises VMTypeError for another device or an element type
    unknown here.
    """
    capsule = source if is_capsule(source) else _capsule_of(source)
    if not is_capsule(capsule):
        raise VMTypeError(
            f"DLPack: wanted a capsule from {type(source).__name__}.__dlpack__, got "
            f"{type(capsule).__name__}"
        )
    tensor, read_only = _tensor_in(capsule)
    if tensor.device_type not in _HOST_DEVICES:
        raise VMTypeError(
            f"DLPack: wanted memory of the CPU, got DLPack device kind {tensor.device_type}"
        )
    dtype = _element_type(tensor)
    storage = to_numpy_dtype(dtype)
    if not 0 <= tensor.ndim <= _MAX_NDIM:
        raise VMValueError(f"DLPack: wanted at most {_MAX_NDIM} dimensions, got {tensor.ndim}")
    shape = tuple(tensor.shape[i] for i in range(tensor.ndim))
    if any(extent < 0 for extent in shape):
        raise VMValueError(f"DLPack: wanted sizes of at least 0, got {shape}")
    if 0 in shape:
        return np.empty(shape, storage), dtype
    interface: dict[str, Any] = {
        "version": 3,
        "shape": shape,
        "typestr": storage.str,
        "data": ((tensor.data or 0) + tensor.byte_offset, read_only),
    }
    if tensor.strides:
        interface["strides"] = tuple(
            tensor.strides[i] * storage.itemsize for i in range(tensor.ndim)
        )
    try:
        return np.asarray(_Borrowed(interface, capsule, source)), dtype
    except ValueError as error:
        raise VMValueError(f"DLPack: {error}") from None


def _element_type(tensor: _Tensor) -> DataType:
    code, bits, lanes = tensor.code, tensor.bits, tensor.lanes
    try:
        # Elements of less than 8 bits are packed there, and here they are not.
        if lanes == 1 and bits >= 8:
            return dtype_of_code(code, bits)
    except ValueError:
        pass
    raise VMTypeError(f"DLPack: no element type here for code {code}, {bits} bits, {lanes} lanes")


def mark_capsule(capsule: object, dtype: DataType) -> object:
    """Make a capsule, which nobody has consumed yet, say `dtype` (of the same size as it says)."""
    tensor, _ = _tensor_in(capsule)
    tensor.code = dtype.type_code
    return capsule
