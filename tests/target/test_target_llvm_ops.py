"""Machine code against the interpreter: every operation, dtype and edge value."""

from __future__ import annotations

import numpy as np
import pytest
from target_helpers import (
    DTYPES,
    FLOATS,
    INTS,
    assert_same,
    edge_values,
    elementwise,
    float_values,
    pairs,
    run_both,
)

from relaxvm import tir
from relaxvm.ir import IRModule, const
from relaxvm.target import compile_prim_funcs

INT_BINARY = {
    "add": tir.Add,
    "sub": tir.Sub,
    "mul": tir.Mul,
    "div": tir.Div,
    "mod": tir.Mod,
    "floordiv": tir.FloorDiv,
    "floormod": tir.FloorMod,
    "min": tir.Min,
    "max": tir.Max,
    "and": tir.bitwise_and,
    "or": tir.bitwise_or,
    "xor": tir.bitwise_xor,
    "shl": tir.shift_left,
    "shr": tir.shift_right,
}
COMPARE = {"eq": tir.EQ, "ne": tir.NE, "lt": tir.LT, "le": tir.LE, "gt": tir.GT, "ge": tir.GE}
FLOAT_BINARY = {
    "add": tir.Add,
    "sub": tir.Sub,
    "mul": tir.Mul,
    "div": tir.Div,
    "floordiv": tir.FloorDiv,
    "floormod": tir.FloorMod,
    "min": tir.Min,
    "max": tir.Max,
    "copysign": tir.copysign,
    "nextafter": tir.nextafter,
}
EXACT_UNARY = {
    "fabs": tir.fabs,
    "floor": tir.floor,
    "ceil": tir.ceil,
    "round": tir.round,
    "trunc": tir.trunc,
    "nearbyint": tir.nearbyint,
    "sqrt": tir.sqrt,
}
# Functions and how far machine code may be from the rounded exact value, in units in the last
# place of float32 and float64 (the interpreter's own float64 functions are only good to a few
# units).
CLOSE_UNARY = {
    "exp": 2,
    "exp2": 2,
    "exp10": 2,
    "expm1": 2,
    "log": 2,
    "log2": 2,
    "log10": 2,
    "log1p": 2,
    "rsqrt": 2,
    "tanh": 3,
    "sigmoid": 3,
    "erf": 4,
    "erfc": 3,
    "gelu": 4,
    "gelu_tanh": 4,
    "silu": 4,
    "mish": 4,
    "sin": 2,
    "cos": 2,
    "tan": 3,
    "asin": 2,
    "acos": 2,
    "atan": 2,
    "sinh": 3,
    "cosh": 2,
    "asinh": 3,
    "acosh": 3,
    "atanh": 3,
}
CLOSE_BINARY = {"pow": 2, "atan2": 2, "hypot": 2, "fmod": 0}


def check(inputs, outputs, ulps=None):
    """Compare all outputs: {name: (dtype, function)} over inputs {name: (dtype, values)}."""
    fn = elementwise([(k, d) for k, (d, _) in inputs.items()], list(outputs.values()))
    n = len(next(iter(inputs.values()))[1])
    dtypes = [d for d, _ in outputs.values()]
    want, got = run_both(fn, list(inputs.values()), dtypes, n)
    for k, (name, dtype) in enumerate(zip(outputs, dtypes)):
        assert_same(got[k], want[k], dtype, (ulps or {}).get(name, 0), name)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_operations_on_all_pairs_of_edge_values(dtype):
    a, b = pairs(edge_values(dtype), edge_values(dtype))
    outputs = {name: (dtype, f) for name, f in INT_BINARY.items()}
    outputs |= {name: ("bool", f) for name, f in COMPARE.items()}
    check({"a": (dtype, a), "b": (dtype, b)}, outputs)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_division_by_constants(dtype):
    a = edge_values(dtype)
    divisors = [
        d for d in (1, 2, 3, 7, 64, -1, -2, -3, -64, 0) if d >= 0 or dtype.startswith("int")
    ]
    outputs = {}
    for d in divisors:
        for name in ("div", "mod", "floordiv", "floormod"):
            outputs[f"{name}{d}"] = (
                dtype,
                lambda x, f=INT_BINARY[name], d=d: f(x, const(d, dtype)),
            )
    check({"a": (dtype, a)}, outputs)


@pytest.mark.parametrize("dtype", INTS)
def test_integer_unary_operations(dtype):
    outputs = {
        name: (dtype, f)
        for name, f in {
            "not": tir.bitwise_not,
            "popcount": tir.popcount,
            "abs": tir.abs,
        }.items()
    }
    outputs["clz"] = ("int32", tir.clz)
    check({"a": (dtype, edge_values(dtype))}, outputs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_operations_on_all_pairs_of_edge_values(dtype):
    a, b = pairs(edge_values(dtype), edge_values(dtype))
    outputs = {name: (dtype, f) for name, f in FLOAT_BINARY.items()}
    outputs |= {name: ("bool", f) for name, f in COMPARE.items()}
    check({"a": (dtype, a), "b": (dtype, b)}, outputs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_exact_float_functions(dtype):
    outputs = {name: (dtype, f) for name, f in EXACT_UNARY.items()}
    outputs |= {name: ("bool", getattr(tir, name)) for name in ("isnan", "isinf", "isfinite")}
    check({"a": (dtype, edge_values(dtype))}, outputs)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_functions_are_within_their_stated_error(dtype):
    rng = np.random.default_rng(5)
    values = edge_values(dtype)
    if dtype == "bfloat16":
        more = rng.integers(0, 1 << 16, 400).astype("uint16")
    else:
        more = (rng.standard_normal(400) * 3).astype(dtype)
    values = np.concatenate([values, more])
    names = {k: v for k, v in CLOSE_UNARY.items()}
    small = np.abs(float_values(values, dtype)) < 1e5
    values = values[small | ~np.isfinite(float_values(values, dtype))]
    # 16-bit functions are computed in float32: at most one unit away.
    ulps = {
        k: (1 if dtype in ("float16", "bfloat16") else v + (4 if dtype == "float64" else 0))
        for k, v in names.items()
    }
    check({"a": (dtype, values)}, {name: (dtype, getattr(tir, name)) for name in names}, ulps)


@pytest.mark.parametrize("dtype", FLOATS)
def test_float_functions_of_two_arguments(dtype):
    a, b = pairs(edge_values(dtype), edge_values(dtype))
    extra = 4 if dtype == "float64" else 0
    ulps = {
        k: (1 if dtype in ("float16", "bfloat16") else v + extra) for k, v in CLOSE_BINARY.items()
    }
    check(
        {"a": (dtype, a), "b": (dtype, b)},
        {name: (dtype, getattr(tir, name)) for name in CLOSE_BINARY},
        ulps,
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_fma_and_ldexp(dtype):
    a, b = pairs(edge_values(dtype), edge_values(dtype))
    check({"a": (dtype, a), "b": (dtype, b)}, {"fma": (dtype, lambda x, y: tir.fma(x, y, x))})
    # Small whole numbers: one rounding or two give the same.
    whole = np.full_like(a, 3), np.full_like(b, 5)
    check(
        {"a": (dtype, whole[0]), "b": (dtype, whole[1])},
        {"muladd": (dtype, lambda x, y: tir.muladd(x, y, x))},
    )
    x, e = pairs(edge_values(dtype), edge_values("int32"))
    check({"a": (dtype, x), "e": ("int32", e)}, {"ldexp": (dtype, tir.ldexp)})
    x, e = pairs(edge_values(dtype), np.arange(-160, 160, 7).astype("int8"))
    check({"a": (dtype, x), "e": ("int8", e)}, {"ldexp": (dtype, tir.ldexp)})


@pytest.mark.parametrize("source", DTYPES)
def test_casts_of_every_edge_value_to_every_dtype(source):
    check(
        {"a": (source, edge_values(source))},
        {f"to_{to}": (to, lambda x, to=to: tir.Cast(to, x)) for to in DTYPES},
    )


def test_every_16_bit_float_survives_a_round_trip():
    for dtype in ("float16", "bfloat16"):
        bits = np.arange(1 << 16, dtype="uint16")
        values = bits if dtype == "bfloat16" else bits.view("float16")
        check(
            {"a": (dtype, values)},
            {
                "up": ("float32", lambda x: tir.Cast("float32", x)),
                "around": (dtype, lambda x, d=dtype: tir.Cast(d, tir.Cast("float64", x))),
                "same": (dtype, lambda x: x),
            },
        )


@pytest.mark.parametrize("to", ["float16", "bfloat16"])
def test_rounding_to_16_bits_is_to_nearest_even_once(to):
    rng = np.random.default_rng(7)
    singles = rng.integers(0, 1 << 32, 3000, dtype="uint64").astype("uint32").view("float32")
    check({"a": ("float32", singles)}, {"r": (to, lambda x: tir.Cast(to, x))})
    # Halfway cases and their neighbours, seen from double precision.
    with np.errstate(all="ignore"):
        base = rng.integers(0, 1 << 15, 500).astype("uint16").view("float16").astype("float64")
    base = base[np.isfinite(base)]
    step = np.abs(base) * 2.0**-11
    halfway = np.concatenate(
        [base + step, base + step * (1 + 2**-30), base + step * (1 - 2**-30), base * (1 + 2.0**-9)]
    )
    check({"a": ("float64", halfway)}, {"r": (to, lambda x: tir.Cast(to, x))})
    ints = rng.integers(-(1 << 63), 1 << 63, 1000)
    check({"a": ("int64", ints)}, {"r": (to, lambda x: tir.Cast(to, x))})


def test_bool_operations():
    a, b = pairs(edge_values("bool"), edge_values("bool"))
    outputs = {
        "and": tir.And,
        "or": tir.Or,
        "min": tir.Min,
        "max": tir.Max,
        "eq": tir.EQ,
        "lt": tir.LT,
        "xor": tir.bitwise_xor,
        "shl": tir.shift_left,
        "shr": tir.shift_right,
    }
    check(
        {"a": ("bool", a), "b": ("bool", b)},
        {k: ("bool", f) for k, f in outputs.items()}
        | {
            "not": ("bool", lambda x, y: tir.Not(x)),
            "select": ("bool", lambda x, y: tir.Select(x, y, tir.Not(y))),
        },
    )


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("float32", "int32"),
        ("int32", "float32"),
        ("float64", "uint64"),
        ("float16", "uint16"),
        ("bfloat16", "int16"),
        ("int16", "float16"),
        ("uint16", "bfloat16"),
        ("int8", "uint8"),
    ],
)
def test_reinterpret_keeps_the_bits(source, to):
    values = edge_values(source)
    if source in FLOATS:
        values = values[~np.isnan(float_values(values, source))]
    check({"a": (source, values)}, {"r": (to, lambda x: tir.reinterpret(to, x))})


@pytest.mark.parametrize(
    "target",
    ["llvm -mtriple=aarch64-linux-gnu", "llvm -mtriple=riscv64-linux-gnu", "llvm -mcpu=x86-64"],
)
def test_every_operation_has_code_on_other_machines(target):
    functions = {}
    for dtype in INTS:
        names = (*INT_BINARY.values(), *COMPARE.values())
        outputs = [(dtype if f in INT_BINARY.values() else "bool", f) for f in names]
        functions[f"{dtype}_2"] = elementwise([("a", dtype), ("b", dtype)], outputs)
    for dtype in FLOATS:
        outputs = [(dtype, f) for f in FLOAT_BINARY.values()]
        outputs += [(dtype, getattr(tir, name)) for name in CLOSE_BINARY]
        functions[f"{dtype}_2"] = elementwise([("a", dtype), ("b", dtype)], outputs)
        outputs = [(dtype, f) for f in EXACT_UNARY.values()]
        outputs += [(dtype, getattr(tir, name)) for name in CLOSE_UNARY]
        functions[f"{dtype}_1"] = elementwise([("a", dtype)], outputs)
    for dtype in DTYPES:
        outputs = [(to, lambda x, to=to: tir.Cast(to, x)) for to in DTYPES]
        functions[f"{dtype}_cast"] = elementwise([("a", dtype)], outputs)
    for name, fn in functions.items():
        section = compile_prim_funcs(IRModule({name: fn}), f"{target} -opt-level=1")
        assert section.native[0].object[:4] == b"\x7fELF"
