"""Where CPython and numpy keep things: the offsets that native code reads, the addresses it calls,
and how native code becomes a function.

One place for all of it. `fast_path_problem` and `compiled_problem` compare every offset with live
objects before native code uses it.
"""

from __future__ import annotations

import ctypes
import functools
import struct
import sys
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np

from ..base import DataType
from .device import cpu
from .dlpack import capsule_pointer
from .ndarray import NDArray, wrap_unchecked
from .storage import c_function

# Offsets on 64-bit machines, in bytes.
OB_REFCNT = 0
OB_TYPE = 8
TP_FLAGS = 168
BYTES_DATA = 32
TUPLE_SIZE, TUPLE_ITEMS = 16, 24
BYTES_SIZE = 16
LIST_ITEMS = 24
FIRST_SLOT = 16
SLOT_ARRAY, SLOT_DEVICE, SLOT_DTYPE = FIRST_SLOT, 24, 32
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


def never_let_go(*values: object) -> None:
    """Keep objects until the process ends: code of theirs may run longer than anything else."""
    for value in values:
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))


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


# What has to be as native code takes it, what it is here, and what it must be.
_Fact = tuple[str, object, object]


@functools.lru_cache(maxsize=1)
def fast_path_problem() -> str | None:
    """Why the native entry of kernels cannot be used here, or None.

    Compares every offset with live objects.
    """
    if sys.implementation.name != "cpython":
        return f"the interpreter is {sys.implementation.name}, not CPython"
    if ctypes.sizeof(ctypes.c_void_p) != 8:
        return "pointers are not 64 bits wide"
    if not getattr(sys, "_is_gil_enabled", lambda: True)() or hasattr(sys, "getobjects"):
        return "the interpreter is a free-threaded or reference-tracing build"
    return _first_wrong(_facts_of_entries())


@functools.lru_cache(maxsize=1)
def compiled_problem() -> str | None:
    """Why compiled functions cannot be used here although the native entry can, or None."""
    return _first_wrong(_facts_of_functions())


def _first_wrong(facts: Iterator[_Fact]) -> str | None:
    # One after the other: what is behind a wrong address is not to be looked at.
    return next((f"{what} as expected" for what, here, truth in facts if here != truth), None)


def _word(value: object, offset: int, kind: Any = ctypes.c_int64) -> Any:
    return peek(id(value) + offset, kind)


def _facts_of_entries() -> Iterator[_Fact]:
    record = bytes(range(48))
    yield (
        "the layout of bytes objects is not",
        ctypes.string_at(id(record) + BYTES_DATA, 48),
        record,
    )
    listed = [object(), 7]
    first = peek(_word(listed, LIST_ITEMS), ctypes.c_int64)
    yield "the layout of lists is not", first, id(listed[0])
    for kind in (int, float, bool, np.ndarray, NDArray):
        flags = _word(kind, TP_FLAGS, ctypes.c_ulong)
        yield "the layout of type objects is not", flags, kind.__flags__
    are_ints = [bool(kind.__flags__ & LONG_SUBCLASS) for kind in (int, float)]
    yield "the flags of type objects are not", are_ints, [True, False]
    for array in _sample_arrays():
        yield from _facts_of_array(array)


def _sample_arrays() -> list[np.ndarray]:
    base = np.arange(60, dtype=np.int16).reshape(3, 4, 5)
    frozen = np.ones((2, 7), np.float64)
    frozen.flags.writeable = False
    swapped = np.zeros(3, np.dtype(np.float32).newbyteorder())
    views = [base, base[::-1, :, ::2], base.T]
    others = [np.zeros((0, 3), np.uint8), np.zeros(2, np.bool_), np.zeros(5, np.uint64)]
    return [np.array(1.5), *views, *others, frozen, swapped]


def _facts_of_array(array: np.ndarray) -> Iterator[_Fact]:
    yield "the layout of objects is not", _word(array, OB_TYPE), id(np.ndarray)
    descr, flags = array.dtype, _word(array, ND_FLAGS, ctypes.c_int32)
    header = _word(array, ND_DATA), _word(array, ND_NDIM, ctypes.c_int32), _word(array, ND_DESCR)
    arrays = "the layout of numpy arrays is not"
    yield arrays, (*header, flags), (array.ctypes.data, array.ndim, id(descr), array.flags.num)
    for offset, truth in ((ND_DIMS, array.shape), (ND_STRIDES, array.strides)):
        if truth:
            sizes = (ctypes.c_int64 * len(truth)).from_address(_word(array, offset))
            yield arrays, tuple(sizes), truth
    here = (
        _word(descr, DESCR_TYPE_NUM, ctypes.c_int32),
        _word(descr, DESCR_BYTEORDER, ctypes.c_char),
    )
    yield "the layout of numpy dtypes is not", here, (descr.num, descr.byteorder.encode())
    ours = wrap_unchecked(array, DataType("bfloat16"))
    slots = [_word(ours, k) for k in (OB_TYPE, SLOT_ARRAY, SLOT_DTYPE, SLOT_DEVICE)]
    truths = [id(each) for each in (NDArray, array, ours.dtype, cpu())]
    yield "the layout of NDArray is not", slots, truths


def _facts_of_functions() -> Iterator[_Fact]:
    sample = (object(), 7)
    words = [_word(sample, offset) for offset in (TUPLE_SIZE, TUPLE_ITEMS)]
    yield "the layout of tuples is not", words, [2, id(sample[0])]
    held = [object()]
    before = _word(held[0], OB_REFCNT, ctypes.c_int32)
    held.append(held[0])
    counted = _word(held[0], OB_REFCNT, ctypes.c_int32)
    yield "the layout of objects is not", counted, before + 1
    base = np.arange(6, dtype=np.int16)
    view = base[1:]
    arrays = "the layout of numpy arrays is not"
    yield arrays, _word(view, ND_BASE), id(base)
    yield "the layout of bytes is not", _word(b"four", BYTES_SIZE), 4
    yield arrays, _word(view, ND_WEAKREFS), 0
    watcher = weakref.ref(view)
    yield arrays, _word(view, ND_WEAKREFS), id(watcher)
    ours = C_CONTIGUOUS | ALIGNED | WRITEABLE
    flags = _word(base, ND_FLAGS, ctypes.c_int32) & ours
    yield "the flags of numpy arrays are not", flags, ours
    window = array_over(base.ctypes.data + 2, (1, 2), base.dtype, base)
    filled = window.tolist(), window.base is base, window.flags.carray
    yield "numpy's C functions are not", filled, ([[1, 2]], True, True)
