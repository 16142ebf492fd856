"""Where CPython and numpy keep things: the offsets that native code reads, the addresses it calls,
and how native code becomes a function.

One place for all of it. `trampoline.fast_path_problem` and `compiled_problem` compare every offset
with live objects before native code uses it.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import weakref
from typing import Any

import numpy as np

from ..base import DataType
from .device import cpu
from .dlpack import capsule_pointer
from .ndarray import wrap_unchecked
from .storage import c_function

# Offsets on 64-bit machines, in bytes.
OB_REFCNT = 0
OB_TYPE = 8
TP_FLAGS = 168
BYTES_DATA = 32
TUPLE_SIZE, TUPLE_ITEMS = 16, 24
BYTES_SIZE = 16
LIST_ITEMS = 24
SLOT_ARRAY, SLOT_DEVICE, SLOT_DTYPE = 16, 24, 32
FIRST_SLOT = 16
ND_DATA, ND_NDIM, ND_DIMS, ND_STRIDES, ND_BASE, ND_DESCR, ND_FLAGS = 16, 24, 32, 40, 48, 56, 64
ND_WEAKREFS = 72
DESCR_BYTEORDER, DESCR_TYPE_NUM = 26, 28
LONG_SUBCLASS = 1 << 24

# numpy's flags of an array.
C_CONTIGUOUS, ALIGNED, WRITEABLE = 0x1, 0x100, 0x400

METH_FASTCALL, METH_KEYWORDS = 0x0080, 0x0002

# Numbers of functions in numpy's C-API table; they have not changed since 1.7.
_NUMPY_FUNCTIONS = {"PyArray_NewFromDescr": 94, "PyArray_SetBaseObject": 282}


def function_address(name: str) -> int:
    """The address of a function of Python's C API."""
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def peek(address: int, kind: Any) -> Any:
    """The value of a ctypes type at an address."""
    return kind.from_address(address).value


def address_of_data(array: Any) -> int:
    """Where the elements of a numpy array lie."""
    return int(peek(id(array) + ND_DATA, ctypes.c_int64))


def reference_count(address: int) -> int:
    """The reference count of the object at an address."""
    return int(peek(address + OB_REFCNT, ctypes.c_int32))


def method_definition(name: int, function: int, flags: int, doc: int = 0) -> bytes:
    """A `PyMethodDef`: addresses of two texts that end with a zero byte and of a C function."""
    return struct.pack("=qqiiq", name, function, flags, 0, doc)


def new_builtin(definition: int, bound: object, owner: object) -> Any:
    """A builtin function object around the method definition at an address, which has to outlive
    it.

    bound   its `self`, which the native code gets; Python lets go of it last of all
    owner   kept alive: the place is meant for a module, but takes any object
    """
    return _new_builtin(definition, bound, owner)


_new_builtin = c_function(
    "PyCFunction_NewEx", ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object
)


@functools.lru_cache(maxsize=1)
def _numpy_table() -> int:
    core: Any = getattr(np, "_core", None) or np.core
    capsule = core._multiarray_umath._ARRAY_API
    return int(capsule_pointer(capsule, None))


def numpy_address(name: str) -> int:
    """The address of a function of numpy's C API."""
    entry = _numpy_table() + 8 * _NUMPY_FUNCTIONS[name]
    return int(ctypes.c_void_p.from_address(entry).value or 0)


@functools.lru_cache(maxsize=1)
def _new_from_descr() -> Any:
    return ctypes.PYFUNCTYPE(
        ctypes.py_object,
        ctypes.py_object,
        ctypes.py_object,
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int,
        ctypes.c_void_p,
    )(numpy_address("PyArray_NewFromDescr"))


def array_over(address: int, shape: tuple[int, ...], dtype: np.dtype, holder: object) -> np.ndarray:
    """A writeable C-contiguous array over memory that `holder` keeps alive. Unchecked."""
    dims = (ctypes.c_int64 * max(1, len(shape)))(*shape)
    # Both are stolen by the calls.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(dtype))
    array: np.ndarray = _new_from_descr()(
        np.ndarray,
        dtype,
        len(shape),
        ctypes.addressof(dims),
        None,
        address,
        WRITEABLE | ALIGNED | C_CONTIGUOUS,
        None,
    )
    set_base = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.py_object)(
        numpy_address("PyArray_SetBaseObject")
    )
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(holder))
    set_base(array, holder)
    return array


@functools.lru_cache(maxsize=1)
def compiled_problem() -> str | None:
    """Why compiled functions cannot be used here although the native entry can, or None."""
    sample = (object(), 7)
    words = [peek(id(sample) + offset, ctypes.c_int64) for offset in (TUPLE_SIZE, TUPLE_ITEMS)]
    if words != [2, id(sample[0])]:
        return "the layout of tuples is not as expected"
    held = [object()]
    before = peek(id(held[0]) + OB_REFCNT, ctypes.c_int32)
    held.append(held[0])
    if peek(id(held[0]) + OB_REFCNT, ctypes.c_int32) != before + 1:
        return "the layout of objects is not as expected"
    base = np.arange(6, dtype=np.int16)
    view = base[1:]
    if peek(id(view) + ND_BASE, ctypes.c_int64) != id(base):
        return "the layout of numpy arrays is not as expected"
    if peek(id(b"four") + BYTES_SIZE, ctypes.c_int64) != 4:
        return "the layout of bytes is not as expected"
    watched = peek(id(view) + ND_WEAKREFS, ctypes.c_int64)
    watcher = weakref.ref(view)
    if watched or peek(id(view) + ND_WEAKREFS, ctypes.c_int64) != id(watcher):
        return "the layout of numpy arrays is not as expected"
    flags = peek(id(base) + ND_FLAGS, ctypes.c_int32)
    if flags & (C_CONTIGUOUS | ALIGNED | WRITEABLE) != C_CONTIGUOUS | ALIGNED | WRITEABLE:
        return "the flags of numpy arrays are not as expected"
    ours = wrap_unchecked(base, DataType("int16"), cpu())
    if peek(id(ours) + SLOT_DEVICE, ctypes.c_int64) != id(cpu()):
        return "the layout of NDArray is not as expected"
    window = array_over(base.ctypes.data + 2, (1, 2), base.dtype, base)
    if window.tolist() != [[1, 2]] or window.base is not base or not window.flags.carray:
        return "numpy's C functions are not as expected"
    return None
