"""The other process of `c_library.replay`: nothing but ctypes and numpy."""

import ctypes
import pickle
import sys

import numpy as np


class Tensor(ctypes.Structure):
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


def run(library, given, taken):
    lib = ctypes.CDLL(library)
    lib.relaxvm_message.restype = ctypes.c_char_p
    with open(given, "rb") as file:
        calls = pickle.load(file)
    results = []
    for entry, args in calls:
        passed, held = [], []
        for value, kind, code, bits in args:
            if not isinstance(value, np.ndarray):
                passed.append(number(value, kind))
                continue
            # In memory of its own, so that what lies behind it is not ours.
            array = np.array(value)
            shape = (ctypes.c_int64 * max(1, array.ndim))(*array.shape)
            tensor = Tensor(array.ctypes.data, 1, 0, array.ndim, code, bits, 1, shape, None, 0)
            held.append((array, shape, tensor))
            passed.append(ctypes.byref(tensor))
        failed = getattr(lib, entry)(*passed)
        message = lib.relaxvm_message(failed).decode()
        results.append((message, [array for array, _, _ in held]))
    with open(taken, "wb") as file:
        pickle.dump(results, file)


def number(value, kind):
    if kind == "bool":
        return ctypes.c_bool(value)
    if kind.startswith(("int", "uint")):
        return getattr(ctypes, f"c_{kind}")(value)
    return ctypes.c_double(value) if kind == "float64" else ctypes.c_float(value)


if __name__ == "__main__":
    run(*sys.argv[1:])
