"""where, ewise_fma, clip, astype, reinterpret, wrap_param."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from op_table import (
    ALL,
    FLOATS,
    INTS,
    NUMBERS,
    SIGNED,
    Case,
    Sym,
    T,
    check,
    check_errors,
    check_gradients,
)

from relaxvm import relax
from relaxvm.relax import op as R

CASES = [
    Case(R.where, T("n", 4, dtype="bool"), T("n", 4), T(4), dtypes=ALL),
    Case(R.where, T(4, dtype="bool"), T("n", 1), T(), dtypes=("float32", "int8")),
    Case(R.where, T("n", dtype="bool"), T("k"), T("one"), dtypes=("float32",), sizes={"k": 3}),
    Case(R.where, T("n", dtype="bool"), T("n", special=True), 0.0, dtypes=FLOATS, grad=False),
    Case(R.where, T(3, dtype="bool"), 1, T(3), dtypes=("int8", "float32")),
    Case(R.ewise_fma, T("n", 4), T("n", 4), T("n", 4), dtypes=NUMBERS),
    Case(R.clip, T("n", 4), -1, 2, dtypes=(*FLOATS, *SIGNED)),
    Case(R.clip, T("n", 4, high=200), -1, 100, dtypes=("uint8", "uint64")),
    Case(R.clip, T("n", 4), -1000, 5, dtypes=("int8",)),
    Case(R.clip, T("n", 4, special=True), 0.5, float("inf"), grad=False),
    Case(R.clip, T("n", 4), float("-inf"), 3, dtypes=("int8", "int64")),
    Case(
        R.clip,
        T("n", 4),
        relax.PrimValue(0),
        Sym("n", relax.PrimValue),
        dtypes=("int8", "uint8", "float32"),
    ),
    Case(R.clip, T("n", 4), 2, 1, dtypes=("float32", "int8")),
    Case(R.wrap_param, T("n", 4), dtype="float32", dtypes=("float16", "float32")),
    Case(R.astype, T("n", 4), dtype="float64", dtypes=ALL),
    Case(R.reinterpret, T("n", 4), dtype="int32", dtypes=("float32", "uint32")),
    Case(R.reinterpret, T("n", 4), dtype="float64", dtypes=("int64",)),
    Case(R.reinterpret, T("n", 4), dtype="uint8", dtypes=("int8",)),
    Case(R.reinterpret, T("n", 4), dtype="bfloat16", dtypes=("uint16", "float16")),
    Case(R.reinterpret, T("n", 4), dtype="uint16", dtypes=("bfloat16",)),
]
# Where conversions go wrong: ends of ranges, halves, infinities and NaN.
EDGES = np.array(
    [
        0.0,
        -0.0,
        0.5,
        -0.5,
        1.9,
        -1.9,
        127.5,
        128.0,
        -129.0,
        255.9,
        256.0,
        65504.0,
        2**31,
        -(2**31) - 1.0,
        2.0**63,
        -(2.0**63),
        2.0**64,
        1e38,
        np.inf,
        -np.inf,
        np.nan,
    ]
)
WHOLE = {
    d: np.array([np.iinfo(d).min, np.iinfo(d).max, 0, 1, np.iinfo(d).max // 2 + 1, 100, 77])
    for d in INTS
}
WHOLE["int64"] = np.append(
    WHOLE["int64"], [2**53 + 1, 2**24 + 1, 0x0101_0000_0000_0001, -0x0101_8000_0000_0001]
)


def conversions(sources, targets):
    for source, to in itertools.product(sources, targets):
        data = EDGES if source in FLOATS else WHOLE.get(source, np.array([True, False]))
        yield Case(
            R.astype, T(len(data), data=data), dtype=to, dtypes=(source,), grad=False, exact=True
        )


def test_every_function_means_what_numpy_says():
    check(CASES, dtypes=("float32", "int8", "uint8", "bool"))


def test_conversions():
    check(
        [
            *conversions(
                ("float32",), ("int8", "uint8", "int64", "uint64", "bool", "bfloat16", "float16")
            ),
            *conversions(("int64",), ("float32", "bfloat16", "int8")),
            *conversions(("float64", "bool", "bfloat16"), ("bfloat16", "int32")),
        ]
    )


@pytest.mark.slow
def test_every_function_on_every_dtype():
    check(CASES)


@pytest.mark.slow
def test_every_conversion():
    check(list(conversions(ALL, ALL)), batch=200)


def test_gradients():
    check_gradients([c for c in CASES if c.op is not R.wrap_param and "float64" in c.dtypes])


def test_the_bounds_of_clip_take_the_dtype_of_the_tensor():
    x = relax.Var("x", relax.TensorStructInfo((2,), "uint8"))
    call = R.clip(x, -5, 999)
    assert [a.value.dtype for a in call.args[1:]] == ["uint8", "uint8"]
    assert [a.value.value for a in call.args[1:]] == [0, 255]
    double = relax.Var("x", relax.TensorStructInfo((2,), "float64"))
    assert R.clip(double, 0.1, 1).args[1].value.value == 0.1


def test_mistakes():
    def var(dtype, *shape):
        return relax.Var("a", relax.TensorStructInfo(shape, dtype))

    f32, i8, b = var("float32", 2, 3), var("int8", 2, 3), var("bool", 2, 3)
    mistakes = [
        (lambda: R.where(f32, f32, f32), "condition: wanted bool, got float32; compare it"),
        (lambda: R.where(b, f32, i8), "the dtypes differ: x1 is float32, x2 is int8"),
        (lambda: R.where(var("bool", 4), f32, f32), "dimension -1 is 4 in condition and 3 in x1"),
        (
            lambda: R.where(relax.PrimValue(True), relax.PrimValue(1), relax.PrimValue(2)),
            "wanted a tensor",
        ),
        (lambda: R.reinterpret(f32, "int64"), "wanted 32 bits, which the elements of x have"),
        (lambda: R.reinterpret(b, "int8"), "wanted 1 bits"),
        (lambda: R.reinterpret(f32, "int32", "int32"), "of: wanted float32"),
        (lambda: R.ewise_fma(f32, f32, i8), "x1 is float32, x3 is int8"),
        (lambda: R.ewise_fma(b, b, b), "wanted a number's dtype"),
        (lambda: R.clip(b, 0, 1), "x: wanted a number's dtype"),
        (lambda: R.clip(i8, 0.5, 1), "min: wanted a whole number beside int8, got 0.5"),
        (lambda: R.clip(i8, relax.PrimValue(0.5), 1), "min: wanted a whole number, got float32"),
        (lambda: R.clip(f32, f32, 1), "min: wanted a scalar value such as R.prim_value"),
        (lambda: R.clip(f32, True, 1), "min: wanted a number, got bool"),
        (lambda: R.astype(f32, "float33"), "astype: attribute dtype: unknown dtype 'float33'"),
        (
            lambda: R.astype(f32, "float32x4"),
            "dtype: wanted the dtype of an array, got 'float32x4'",
        ),
        (lambda: R.astype(f32, "handle"), "dtype: wanted the dtype of an array, got 'handle'"),
        (lambda: R.astype(f32, 3), "astype: attribute dtype: wanted DataType, got int: 3"),
        (lambda: R.astype(relax.Tuple((f32,)), "int8"), "x: wanted a tensor"),
    ]
    check_errors(mistakes)
