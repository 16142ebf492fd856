"""Shared by the tests of code generation: functions over arrays, edge values, closeness in units
in the last place.
"""

from __future__ import annotations

import math

import numpy as np

from relaxvm import tir
from relaxvm.base import DataType, bfloat16_to_float32, float32_to_bfloat16
from relaxvm.ir import IRModule, Var, const
from relaxvm.runtime import NDArray, array
from relaxvm.target import build
from relaxvm.tir import BufferStore, For, PrimFunc, decl_buffer, interpret, seq

INTS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOATS = ("float16", "bfloat16", "float32", "float64")
DTYPES = (*INTS, *FLOATS, "bool")


def numpy_dtype(dtype):
    return np.dtype("uint16") if dtype == "bfloat16" else np.dtype(dtype)


def edge_values(dtype):
    """Values at which operations go wrong, in storage form (bfloat16 as bits)."""
    kind = DataType(dtype)
    if kind.is_bool:
        return np.array([False, True])
    if kind.is_int:
        lo, hi = int(kind.min_value), int(kind.max_value)
        values = {lo, lo + 1, hi, hi - 1, 0, 1, 2, 3, 7, kind.bits - 1, kind.bits, hi // 2, hi // 3}
        if kind.kind == "int":
            values |= {-1, -2, -3, -7, lo // 2, -kind.bits}
        if kind.bits == 64:
            values |= {
                (1 << 53) + 1,
                (1 << 60) + (1 << 52) + 1,
                (1 << 60) + (1 << 52),
                (1 << 24) + 1,
            }
        return np.array(sorted(v for v in values if lo <= v <= hi), dtype=dtype)
    finite = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        -0.5,
        1.5,
        2.5,
        -2.5,
        3.0,
        7.25,
        -7.25,
        0.1,
        1e-3,
        100.0,
        127.5,
        128.0,
    ]
    finite += [
        255.5,
        256.0,
        32767.0,
        32768.0,
        65504.0,
        -65504.0,
        1e5,
        1e-7,
        6e-8,
        -6e-8,
        2147483648.0,
        4294967296.0,
    ]
    finite += [1e10, 9.3e18, -9.3e18, 1.9e19, 1e-40, 3.3e38]
    if kind.bits == 64:
        finite += [
            1e300,
            -1e300,
            5e-324,
            1.0 + 2**-52,
            65519.999999999,
            65520.0,
            1.0 + 2**-11 + 2**-40,
            1 + 2**-8 + 2**-50,
        ]
    values = np.array([*finite, math.inf, -math.inf, math.nan], dtype="float64")
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            return float32_to_bfloat16(values.astype("float32"))
        return values.astype(dtype)


def as_argument(values, dtype):
    """The array that a kernel takes."""
    if dtype == "bfloat16":
        return array(np.asarray(values), dtype="bfloat16")
    return values


def float_values(values, dtype):
    if dtype == "bfloat16":
        return bfloat16_to_float32(values).astype("float64")
    with np.errstate(all="ignore"):
        return np.asarray(values).astype("float64")


def elementwise(inputs, outputs, *, noalias=True, name="main"):
    """for i: out_k[i] = f_k(a[i], b[i], ...).

    inputs   (name, dtype) pairs       outputs  (dtype, function of the input values) pairs
    """
    n = Var("n", "int64")
    i = Var("i", "int64")
    ins = [decl_buffer((n,), dtype, nm) for nm, dtype in inputs]
    loads = [b[i] for b in ins]
    outs, stores = [], []
    for k, (dtype, f) in enumerate(outputs):
        out = decl_buffer((n,), dtype, f"out{k}")
        outs.append(out)
        stores.append(BufferStore(out, tir.cast(dtype, f(*loads)), (i,)))
    attrs = {"global_symbol": name}
    if noalias:
        attrs["tir.noalias"] = True
    handles = [Var(b.name, "handle") for b in (*ins, *outs)]
    return PrimFunc(
        handles,
        For(i, const(0, "int64"), n, "serial", seq(*stores)),
        None,
        dict(zip(handles, (*ins, *outs))),
        attrs,
    )


def run_both(fn, inputs, output_dtypes, n):
    """Outputs of the interpreter and of machine code for storage arrays `inputs` of (dtype,
    values).
    """
    results = []
    for native in (False, True):
        outs = [np.zeros(n, dtype=numpy_dtype(d)) for d in output_dtypes]
        if native:
            rt = build(IRModule({"main": fn}))
            args = [as_argument(v, d) for d, v in inputs]
            given = [as_argument(o, d) for o, d in zip(outs, output_dtypes)]
            rt["main"](*args, *given)
            outs = [g.array if isinstance(g, NDArray) else g for g in given]
        else:
            interpret(fn, *[v for _, v in inputs], *outs)
        results.append(outs)
    return results


def pairs(a, b):
    """All pairs of two arrays, as two arrays."""
    return np.repeat(a, len(b)), np.tile(b, len(a))


def ulp_distance(a, b, dtype):
    """How many floats lie between (0 for two NaNs; huge for NaN against a number)."""
    bits = DataType(dtype).bits
    kind = {16: np.int16, 32: np.int32, 64: np.int64}[bits]
    x, y = np.ascontiguousarray(a).view(kind), np.ascontiguousarray(b).view(kind)
    order = [
        np.where(v < 0, np.iinfo(kind).min - v, v).astype(object)
        for v in (x.astype(kind), y.astype(kind))
    ]
    fa, fb = float_values(a, dtype), float_values(b, dtype)
    distance = np.array([abs(p - q) for p, q in zip(*order)], dtype=object)
    both_nan, one_nan = np.isnan(fa) & np.isnan(fb), np.isnan(fa) ^ np.isnan(fb)
    distance[both_nan] = 0
    distance[one_nan] = 1 << 62
    return distance


def assert_same(got, want, dtype, ulps=0, where=""):
    """Bit for bit (NaNs alike; zeros of either sign alike), or within `ulps`."""
    if DataType(dtype).is_float:
        distance = ulp_distance(got, want, dtype)
        bad = np.array([d > ulps for d in distance], dtype=bool)
    else:
        bad = got != want
    if bad.any():
        k = int(np.argmax(bad))
        show = (float_values(want, dtype)[k], float_values(got, dtype)[k])
        raise AssertionError(
            f"{where}: {int(bad.sum())} differ; first at {k}: wanted {show[0]!r}, got {show[1]!r}"
        )
