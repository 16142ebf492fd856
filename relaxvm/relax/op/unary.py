"""Operators of one tensor, element by element: abs, exp, sin, round, isnan, ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tir
from ...base import submodules
from ...ir import EQ, GT, LT, Mul, Not, PrimExpr, Select, Sub, const
from ..rules import Ops
from ..struct_info import Expr
from .families import unary
from .infer import ANY, BITS, NUMBER
from .meaning import elementary
from .record import missing

__getattr__ = submodules(__name__)


def _nothing(ops: Ops, x: Any, y: Expr, gy: Expr) -> None:
    """The gradient of what is constant but for jumps: nothing flows back."""


# -- exponentials and logarithms -------------------------------------------------------------------

_LN2, _LN10 = math.log(2.0), math.log(10.0)

exp = unary(
    "exp",
    "e to the power x.",
    numpy=elementary("exp"),
    scalar=tir.exp,
    grad=lambda ops, x, y, gy: gy * y,
)
expm1 = unary(
    "expm1",
    "exp(x) - 1, precise near 0.",
    numpy=elementary("expm1"),
    scalar=tir.expm1,
    grad=lambda ops, x, y, gy: gy * (y + 1.0),
)
log = unary(
    "log",
    "The natural logarithm; NaN below 0.",
    numpy=elementary("log"),
    scalar=tir.log,
    grad=lambda ops, x, y, gy: gy / x,
)
log2 = unary(
    "log2",
    "The logarithm to base 2.",
    numpy=elementary("log2"),
    scalar=tir.log2,
    grad=lambda ops, x, y, gy: gy / (x * _LN2),
)
log10 = unary(
    "log10",
    "The logarithm to base 10.",
    numpy=elementary("log10"),
    scalar=tir.log10,
    grad=lambda ops, x, y, gy: gy / (x * _LN10),
)
log1p = unary(
    "log1p",
    "log(1 + x), precise near 0.",
    numpy=elementary("log1p"),
    scalar=tir.log1p,
    grad=lambda ops, x, y, gy: gy / (x + 1.0),
)


sigmoid = unary(
    "sigmoid",
    "1 / (1 + exp(-x)), without overflow on the way.",
    numpy=elementary("sigmoid"),
    scalar=tir.sigmoid,
    grad=lambda ops, x, y, gy: gy * (y * (1.0 - y)),
)


erf = unary(
    "erf",
    "The error function.",
    numpy=elementary("erf"),
    scalar=tir.erf,
    grad=lambda ops, x, y, gy: gy * (ops.exp(-(x * x)) * (2.0 / math.sqrt(math.pi))),
)

# -- roots and powers ------------------------------------------------------------------------------

sqrt = unary(
    "sqrt",
    "The square root; NaN below 0.",
    numpy=np.sqrt,
    scalar=tir.sqrt,
    grad=lambda ops, x, y, gy: gy * 0.5 / y,
)
rsqrt = unary(
    "rsqrt",
    "1 / sqrt(x).",
    numpy=elementary("rsqrt"),
    scalar=tir.rsqrt,
    grad=lambda ops, x, y, gy: gy * -0.5 * (y * y * y),
)
square = unary(
    "square",
    "x * x; integers wrap.",
    numpy=np.square,
    scalar=lambda x: Mul(x, x),
    takes=NUMBER,
    grad=lambda ops, x, y, gy: gy * 2.0 * x,
)

# -- trigonometry ----------------------------------------------------------------------------------

sin = unary(
    "sin",
    "The sine.",
    numpy=elementary("sin"),
    scalar=tir.sin,
    grad=lambda ops, x, y, gy: gy * ops.cos(x),
)
cos = unary(
    "cos",
    "The cosine.",
    numpy=elementary("cos"),
    scalar=tir.cos,
    grad=lambda ops, x, y, gy: -gy * ops.sin(x),
)
tan = unary(
    "tan",
    "The tangent.",
    numpy=elementary("tan"),
    scalar=tir.tan,
    grad=lambda ops, x, y, gy: gy * (y * y + 1.0),
)
asin = unary(
    "asin",
    "The arc sine; NaN outside -1 to 1.",
    numpy=elementary("asin"),
    scalar=tir.asin,
    grad=lambda ops, x, y, gy: gy * ops.rsqrt(1.0 - x * x),
)
acos = unary(
    "acos",
    "The arc cosine; NaN outside -1 to 1.",
    numpy=elementary("acos"),
    scalar=tir.acos,
    grad=lambda ops, x, y, gy: -gy * ops.rsqrt(1.0 - x * x),
)
atan = unary(
    "atan",
    "The arc tangent.",
    numpy=elementary("atan"),
    scalar=tir.atan,
    grad=lambda ops, x, y, gy: gy / (x * x + 1.0),
)
sinh = unary(
    "sinh",
    "The hyperbolic sine.",
    numpy=elementary("sinh"),
    scalar=tir.sinh,
    grad=lambda ops, x, y, gy: gy * ops.cosh(x),
)
cosh = unary(
    "cosh",
    "The hyperbolic cosine.",
    numpy=elementary("cosh"),
    scalar=tir.cosh,
    grad=lambda ops, x, y, gy: gy * ops.sinh(x),
)
tanh = unary(
    "tanh",
    "The hyperbolic tangent.",
    numpy=elementary("tanh"),
    scalar=tir.tanh,
    grad=lambda ops, x, y, gy: gy * (1.0 - y * y),
)
asinh = unary(
    "asinh",
    "The inverse hyperbolic sine.",
    numpy=elementary("asinh"),
    scalar=tir.asinh,
    grad=lambda ops, x, y, gy: gy * ops.rsqrt(x * x + 1.0),
)
acosh = unary(
    "acosh",
    "The inverse hyperbolic cosine; NaN below 1.",
    numpy=elementary("acosh"),
    scalar=tir.acosh,
    grad=lambda ops, x, y, gy: gy * ops.rsqrt(x * x - 1.0),
)
atanh = unary(
    "atanh",
    "The inverse hyperbolic tangent; NaN outside -1 to 1.",
    numpy=elementary("atanh"),
    scalar=tir.atanh,
    grad=lambda ops, x, y, gy: gy / (1.0 - x * x),
)

# -- signs and rounding ----------------------------------------------------------------------------

abs = unary(
    "abs",
    "The absolute value; the least signed integer is its own.",
    numpy=np.abs,
    scalar=tir.abs,
    takes=NUMBER,
    grad=lambda ops, x, y, gy: gy * ops.sign(x),
)


def _negative(x: PrimExpr) -> PrimExpr:
    # 0 - x has the wrong sign for a floating zero.
    return Mul(x, const(-1.0, x.dtype)) if x.dtype.is_float else Sub(const(0, x.dtype), x)


negative = unary(
    "negative",
    "-x; integers wrap.",
    numpy=np.negative,
    scalar=_negative,
    takes=NUMBER,
    grad=lambda ops, x, y, gy: -gy,
)


def _sign(x: PrimExpr) -> PrimExpr:
    zero, one = const(0, x.dtype), const(1, x.dtype)
    if x.dtype.kind == "uint":
        return Select(GT(x, zero), one, zero)
    # What is neither above nor below is 0 or NaN, and its own sign.
    return Select(GT(x, zero), one, Select(LT(x, zero), const(-1, x.dtype), x))


sign = unary(
    "sign",
    "-1, 0 or 1 as x is below, at or above 0; NaN for NaN.",
    numpy=np.sign,
    scalar=_sign,
    takes=NUMBER,
    grad=_nothing,
)


def _of_floats(f: Callable[[Any], Any]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda x: f(x) if np.asarray(x).dtype.kind == "f" else np.array(x)


floor = unary(
    "floor",
    "The greatest whole number <= x, in x's dtype.",
    numpy=_of_floats(np.floor),
    scalar=tir.floor,
    takes=NUMBER,
    grad=_nothing,
)
ceil = unary(
    "ceil",
    "The least whole number >= x, in x's dtype.",
    numpy=_of_floats(np.ceil),
    scalar=tir.ceil,
    takes=NUMBER,
    grad=_nothing,
)
trunc = unary(
    "trunc",
    "The whole number next to x toward zero, in x's dtype.",
    numpy=_of_floats(np.trunc),
    scalar=tir.trunc,
    takes=NUMBER,
    grad=_nothing,
)
round = unary(
    "round",
    "The whole number nearest to x, halves to the even one, in x's dtype.",
    numpy=_of_floats(np.rint),
    scalar=tir.round,
    takes=NUMBER,
    grad=_nothing,
)

# -- questions and bits ----------------------------------------------------------------------------

_BOOLS = missing("the result is no float")


def _by_kind(f: Callable[[Any], Any], otherwise: bool) -> Callable[[np.ndarray], np.ndarray]:
    def run(x: np.ndarray) -> np.ndarray:
        x = np.asarray(x)
        return f(x) if x.dtype.kind == "f" else np.full(x.shape, otherwise)

    return run


isnan = unary(
    "isnan",
    "Whether x is NaN: a bool.",
    numpy=_by_kind(np.isnan, False),
    scalar=tir.isnan,
    takes=ANY,
    gives="bool",
    grad=_BOOLS,
)
isinf = unary(
    "isinf",
    "Whether x is plus or minus infinity: a bool.",
    numpy=_by_kind(np.isinf, False),
    scalar=tir.isinf,
    takes=ANY,
    gives="bool",
    grad=_BOOLS,
)
isfinite = unary(
    "isfinite",
    "Whether x is neither infinite nor NaN: a bool.",
    numpy=_by_kind(np.isfinite, True),
    scalar=tir.isfinite,
    takes=ANY,
    gives="bool",
    grad=_BOOLS,
)
logical_not = unary(
    "logical_not",
    "Whether x is zero or false: a bool.",
    numpy=np.logical_not,
    scalar=lambda x: Not(x) if x.dtype.is_bool else EQ(x, const(0, x.dtype)),
    takes=ANY,
    gives="bool",
    grad=_BOOLS,
)
bitwise_not = unary(
    "bitwise_not",
    "Every bit of x turned over.",
    numpy=np.invert,
    scalar=tir.bitwise_not,
    takes=BITS,
    grad=_BOOLS,
)
