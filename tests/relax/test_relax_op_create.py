"""Operators that make tensors."""

from __future__ import annotations

import pytest
from op_table import (
    ALL,
    FLOATS,
    NUMBERS,
    Case,
    Dtype,
    Sh,
    Sym,
    T,
    check,
    check_errors,
    check_gradients,
)

from relaxvm import relax
from relaxvm.ir import Var
from relaxvm.relax import op as R

n, m = Var("n", "int64"), Var("m", "int64")
PRIM = relax.PrimValue

CASES = [
    Case(R.full, Sh("n", 4), T(), dtypes=ALL),
    Case(R.full, Sh("n", 4), T(dtype="float32"), dtype=Dtype, dtypes=ALL),
    Case(R.full, Sh(2, 3), 7, dtype=Dtype, dtypes=(*NUMBERS, "bool")),
    Case(R.full, Sh(2), 1.5, dtypes=("float32",)),
    Case(R.full, Sh(), 127, dtype="int8", dtypes=("int8",)),
    Case(R.full, Sh("n"), Sym("n", PRIM), dtypes=("int64",)),
    Case(R.full_like, T("n", 4), T(), dtypes=ALL),
    Case(R.full_like, T("n", 4), 2.5, dtypes=FLOATS),
    Case(R.full_like, T("n", 0), 2, dtype="int16", dtypes=("float32",)),
    Case(R.full_like, T("n", 4, info=lambda d: relax.TensorStructInfo(None, d, ndim=2)), 1),
    *(Case(f, Sh("n", 4), dtype=Dtype, dtypes=ALL) for f in (R.zeros, R.ones)),
    *(Case(f, Sh("zero", 4), dtype=Dtype, dtypes=("float32",)) for f in (R.zeros, R.ones)),
    *(Case(f, T("n", 4), dtypes=ALL) for f in (R.zeros_like, R.ones_like)),
    *(Case(f, T("n"), dtype="int8", dtypes=("float32",)) for f in (R.zeros_like, R.ones_like)),
    Case(R.arange, 5, dtype=Dtype, dtypes=NUMBERS),
    Case(R.arange, 1, 10, 3, dtypes=("int64",)),
    Case(R.arange, 10, 1, -4, dtypes=("int64",)),
    Case(R.arange, 5, 1, dtypes=("int64",)),
    Case(R.arange, 0.0, 1.0, 0.1, dtypes=("float32",)),
    Case(R.arange, 2.5, -1, -0.5, dtype=Dtype, dtypes=("float32", "float64", "bfloat16")),
    Case(R.arange, Sym("n"), dtypes=("int64",)),
    Case(R.arange, Sym("n"), dtype=Dtype, dtypes=("float32", "int8")),
    Case(R.arange, 1, Sym("n", lambda n: n * 2), Sym("m"), dtypes=("int64",)),
    Case(R.arange, Sym("k"), Sym("n"), dtypes=("int64",)),
    Case(R.arange, Sym("k"), Sym("n"), -1, dtypes=("int64",)),
    Case(R.arange, Sym("k"), Sym("n"), Sym("one", lambda o: 0 - o), dtypes=("int64",)),
    Case(R.eye, 3, dtype=Dtype, dtypes=ALL),
    Case(R.eye, 3, 5, 1, dtypes=("float32",)),
    Case(R.eye, Sym("n"), Sym("k"), -1, dtypes=("float32",)),
    Case(R.eye, 0, 4, dtypes=("float32",)),
    Case(R.eye, 3, 3, Sym("m"), dtypes=("float32",)),
    Case(R.eye_like, T("n", 5), dtypes=ALL),
    Case(R.eye_like, T("n", 5), 2, dtype="int8", dtypes=("float32",)),
    *(Case(f, T("n", 5), dtypes=ALL) for f in (R.tril, R.triu)),
    *(Case(f, T(2, "n", "n", special=True), 1, grad=False) for f in (R.tril, R.triu)),
    *(Case(f, T(4, 3), k=-1, dtypes=("float32", "float64")) for f in (R.tril, R.triu)),
    *(Case(f, T(4, 3), Sym("m"), dtypes=("float32",)) for f in (R.tril, R.triu)),
    *(Case(f, T(0, 3), dtypes=("float32",)) for f in (R.tril, R.triu)),
    Case(R.hamming_window, 10, True, 0.54, 0.46, dtype=Dtype),
    Case(R.hamming_window, 7, False, dtypes=("float32",)),
    Case(R.hamming_window, 1, False, dtypes=("float32",)),
    Case(R.hamming_window, 1, dtypes=("float32",)),
    Case(R.hamming_window, Sym("n"), False, 0.5, 0.5, dtypes=("float32",)),
]


def test_every_function_means_what_numpy_says():
    check(CASES, dtypes=("float32", "int8", "int64", "bool"))


@pytest.mark.slow
def test_every_function_on_every_dtype():
    check(CASES)


def test_gradients():
    check_gradients([c for c in CASES if c.op in (R.tril, R.triu)])


def test_dtypes_follow_the_arguments():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float16"))
    assert R.full((2,), 1).struct_info is relax.TensorStructInfo((2,), "int32")
    assert R.full((2,), 1.0).struct_info is relax.TensorStructInfo((2,), "float32")
    assert R.full((2,), relax.const(1, "int8")).struct_info is relax.TensorStructInfo((2,), "int8")
    assert R.full_like(x, 1).struct_info is x.struct_info
    assert R.arange(3).struct_info is relax.TensorStructInfo((3,), "int64")
    assert R.arange(3.0).struct_info is relax.TensorStructInfo((3,), "float32")
    assert R.arange(n).struct_info is relax.TensorStructInfo((n,), "int64")
    assert R.arange(0, 10, 3).struct_info is relax.TensorStructInfo((4,), "int64")
    assert R.eye(n, m).struct_info is relax.TensorStructInfo((n, m), "float32")
    assert R.zeros_like(x, "int8").struct_info is relax.TensorStructInfo((2, 3), "int8")


def test_unknown_parts_pass():
    shape = relax.Var("s", relax.ShapeStructInfo(ndim=2))
    some = relax.Var("v", relax.PrimStructInfo("int64"))
    x = relax.Var("x", relax.TensorStructInfo(None, "float32"))
    assert R.zeros(shape, "int8").struct_info is relax.TensorStructInfo(shape, "int8")
    assert R.arange(some).struct_info is relax.TensorStructInfo(None, "int64", ndim=1)
    assert R.eye(some).struct_info is relax.TensorStructInfo(None, "float32", ndim=2)
    assert R.tril(x).struct_info is x.struct_info
    assert R.ones_like(x).struct_info is x.struct_info


def test_mistakes():
    x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    mistakes = [
        (lambda: R.full((2, -1), 1), "a dimension is not negative, got -1"),
        (lambda: R.full((2, 1.5), 1), "shape: wanted a shape|a dimension is an integer"),
        (lambda: R.full(x, 1), "shape: wanted a shape, got R.Tensor"),
        (lambda: R.full((2,), x), "fill_value: wanted 0 dimensions, got 1"),
        (lambda: R.full((2,), 2**70, "int64"), "fill_value: .* does not fit int64"),
        (lambda: R.full((2,), 2**70, "float64"), "does not fit 64 bits"),
        (lambda: R.full((2,), 300, "int8"), "full: fill_value: 300 does not fit int8"),
        (lambda: R.full_like(x, -1, "uint8"), "full_like: fill_value: -1 does not fit uint8"),
        (lambda: R.arange(0, 300, dtype="int8"), "arange: dtype: 299 does not fit int8"),
        (lambda: R.arange(-(2**63), 2**63 - 1), "arange: wanted a length of int64"),
        (lambda: R.arange(1e300), "arange: wanted a length of int64"),
        (lambda: R.full((2,), 1, "int7"), "full: attribute dtype: unknown dtype 'int7'"),
        (lambda: R.zeros((2,), "void"), "dtype: wanted the dtype of an array"),
        (lambda: R.zeros((2,)), "missing a required argument: 'dtype'"),
        (lambda: R.ones_like(relax.ShapeExpr((2,))), "x: wanted a tensor"),
        (lambda: R.arange(1, 2, 0), "step: wanted a number that is not 0, got 0"),
        (lambda: R.arange(x), "end: wanted a scalar value such as R.prim_value"),
        (lambda: R.arange(0.0, float("inf")), "wanted finite bounds"),
        (lambda: R.arange(n.astype("float32")), "wanted constants as floating start"),
        (lambda: R.arange(3, dtype="bool"), "dtype: wanted a number's dtype"),
        (lambda: R.eye(-1), "n: wanted a size, got -1"),
        (lambda: R.eye(2.0), "n: wanted an integer dtype, got float32"),
        (lambda: R.eye_like(x), "x: wanted 2 dimensions, got 1"),
        (lambda: R.tril(x), "x: wanted at least 2 dimensions, got 1"),
        (
            lambda: R.triu(relax.Var("x", relax.TensorStructInfo((2, 2), "float32")), 1.5),
            "k: wanted an integer dtype",
        ),
        (
            lambda: R.tril(relax.Var("x", relax.TensorStructInfo((2, 2), "float32")), 10**20),
            "tril: argument k: 1000.* does not fit int64",
        ),
        (lambda: R.hamming_window(0), "window_size: wanted at least 1, got 0"),
        (lambda: R.hamming_window(5, dtype="int8"), "dtype: wanted a floating dtype, got int8"),
    ]
    check_errors(mistakes)
