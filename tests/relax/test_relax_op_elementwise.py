"""Operators of one tensor."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import (
    ALL,
    BITS,
    NUMBERS,
    Case,
    T,
    check,
    check_errors,
    check_gradients,
)

from relaxvm import relax
from relaxvm.relax import op as R

# name -> range in which the function is defined and smooth
DOMAINS = {
    "acos": (-0.9, 0.9),
    "acosh": (1.2, 4.0),
    "asin": (-0.9, 0.9),
    "asinh": (-3, 3),
    "atan": (-3, 3),
    "atanh": (-0.9, 0.9),
    "cos": (-3, 3),
    "cosh": (-3, 3),
    "erf": (-3, 3),
    "exp": (-3, 3),
    "expm1": (-3, 3),
    "log": (0.1, 3),
    "log10": (0.1, 3),
    "log1p": (-0.9, 3),
    "log2": (0.1, 3),
    "rsqrt": (0.1, 3),
    "sigmoid": (-3, 3),
    "sin": (-3, 3),
    "sinh": (-3, 3),
    "sqrt": (0.1, 3),
    "tan": (-1.2, 1.2),
    "tanh": (-3, 3),
}
OF_NUMBERS = ("abs", "ceil", "floor", "negative", "round", "sign", "square", "trunc")
QUESTIONS = ("isfinite", "isinf", "isnan", "logical_not")


def named(name):
    return getattr(R, name)


CASES = [
    *(Case(named(f), T("n", 4, low=low, high=high)) for f, (low, high) in DOMAINS.items()),
    *(Case(named(f), T("n", 4), dtypes=NUMBERS) for f in OF_NUMBERS),
    *(Case(named(f), T("n", 4, special=True), dtypes=ALL) for f in QUESTIONS),
    Case(R.bitwise_not, T("n", 4), dtypes=BITS),
]
# Infinities, NaN, zeros of both signs and values outside of the domain.
SPECIAL = [Case(named(f), T(12, special=True), grad=False) for f in (*DOMAINS, *OF_NUMBERS)]
EXTREME = np.array([88.0, -88.0, 104.0, -104.0, 1e-30, -1e-30, 3e38, -3e38])
STABLE = [
    Case(named(f), T(8, data=EXTREME), dtypes=("float32", "float64"))
    for f in ("sigmoid", "tanh", "exp", "expm1", "log1p", "erf", "sinh", "asinh", "atan", "rsqrt")
]
SHAPES = [
    Case(R.exp, T()),
    Case(R.exp, T(0, 2)),
    Case(R.exp, T("zero", 2)),
    Case(R.abs, T("n", 1, "m", 1), dtypes=("float32", "int8")),
    Case(R.exp, T("n", 4, info=lambda d: relax.TensorStructInfo(None, d, ndim=2))),
    Case(R.isnan, T("n", 4, info=lambda d: relax.TensorStructInfo(None, d, ndim=2))),
]
ENDS = [
    Case(R.abs, T(2, data=[-128, 127]), dtypes=("int8",), grad=False),
    Case(R.negative, T(2, data=[-128, 127]), dtypes=("int8",), grad=False),
    Case(R.negative, T(3, data=[0, 1, 255]), dtypes=("uint8",), grad=False),
    Case(R.square, T(3, data=[-128, 127, 16]), dtypes=("int8",), grad=False),
    Case(R.round, T(6, data=[0.5, 1.5, 2.5, -0.5, -1.5, 2.4]), grad=False),
]


def test_every_function_means_what_numpy_says_in_float32_and_bool_and_int8():
    check(CASES, dtypes=("float32", "bool", "int8"))


def test_special_values():
    check(SPECIAL, dtypes=("float32",))


def test_results_keep_their_digits_at_the_ends_of_the_range():
    check(STABLE, dtypes=("float32",))
    check(ENDS, dtypes=("float32", "int8", "uint8"))


def test_shapes():
    check(SHAPES, dtypes=("float32", "int8"))


@pytest.mark.slow
def test_every_function_on_every_dtype():
    check([*CASES, *SPECIAL, *STABLE, *ENDS, *SHAPES])


def test_gradients():
    check_gradients(
        [*CASES, Case(R.abs, T(5, low=0.5)), Case(R.negative, T(5)), Case(R.square, T(5))]
    )


def test_rounded_values_have_no_gradient():
    for f in (R.floor, R.ceil, R.round, R.trunc, R.sign):
        x = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
        assert f.op.grad(None, f(x), x, x) == (None,)


def test_unknown_rank_and_dtype_pass():
    x = relax.Var("x", relax.TensorStructInfo(None, "void"))
    assert R.exp(x).struct_info is x.struct_info
    assert R.isnan(x).struct_info is relax.TensorStructInfo(None, "bool")
    device = relax.Var("x", relax.TensorStructInfo((2,), "float32"))
    assert R.tanh(device).struct_info is device.struct_info


def test_mistakes():
    def var(dtype, *shape):
        return relax.Var("a", relax.TensorStructInfo(shape, dtype))

    mistakes = [
        (lambda f=f: named(f)(var("int32", 2)), rf"^{f}: x: wanted a floating dtype, got int32")
        for f in DOMAINS
    ]
    mistakes += [
        (lambda f=f: named(f)(var("bool", 2)), rf"^{f}: x: wanted a number's dtype .*got bool")
        for f in OF_NUMBERS
    ]
    mistakes += [
        (lambda: R.bitwise_not(var("float32", 2)), "wanted an integer dtype or bool, got float32"),
        (
            lambda: R.exp(relax.ShapeExpr((1, 2))),
            r"exp: x: wanted a tensor, got R.Shape\(\[1, 2\]\)",
        ),
        (lambda: R.exp(2.0), "exp: x: wanted a tensor, got"),
        (lambda: R.exp(relax.Tuple(())), "wanted a tensor, got R.Tuple"),
        (lambda: R.exp(), "exp: missing a required argument: 'x'"),
        (lambda: R.exp(var("float32"), var("float32")), "too many positional arguments"),
    ]
    check_errors(mistakes)


assert set(DOMAINS) | set(OF_NUMBERS) | set(QUESTIONS) | {"bitwise_not"} == {
    c.op.op.short for c in CASES
}
