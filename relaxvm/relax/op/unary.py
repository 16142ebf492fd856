"""Operators of one tensor, element by element: abs, exp, sin, round, isnan, ..."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tir
from ...base import submodules
from ...ir import EQ, GT, LT, Mul, Not, PrimExpr, Select, Sub, const
from ..expr import Call
from ..rules import Ops
from ..struct_info import Expr
from .families import unary
from .infer import ANY, BITS, NUMBER
from .meaning import elementary
from .record import missing

__getattr__ = submodules(__name__)


_Scalar = Callable[[PrimExpr], PrimExpr]


def _nothing(ops: Ops, x: Any, y: Expr, gy: Expr) -> None:
    """The gradient of what is constant but for jumps: nothing flows back."""


def _function(scalar: _Scalar, meaning: str, grad: Callable[..., Any]) -> Callable[..., Call]:
    """The operator of floats that the intrinsic `scalar` is for one."""
    name = scalar.__name__
    return unary(name, meaning, numpy=elementary(name), scalar=scalar, grad=grad)


# -- exponentials and logarithms -------------------------------------------------------------------

_LN2, _LN10 = math.log(2.0), math.log(10.0)

exp = _function(tir.exp, "e to the power x.", lambda ops, x, y, gy: gy * y)
expm1 = _function(tir.expm1, "exp(x) - 1, precise near 0.", lambda ops, x, y, gy: gy * (y + 1.0))
log = _function(tir.log, "The natural logarithm; NaN below 0.", lambda ops, x, y, gy: gy / x)
log2 = _function(tir.log2, "The logarithm to base 2.", lambda ops, x, y, gy: gy / (x * _LN2))
log10 = _function(tir.log10, "The logarithm to base 10.", lambda ops, x, y, gy: gy / (x * _LN10))
log1p = _function(tir.log1p, "log(1 + x), precise near 0.", lambda ops, x, y, gy: gy / (x + 1.0))


sigmoid = _function(
    tir.sigmoid,
    "1 / (1 + exp(-x)), without overflow on the way.",
    lambda ops, x, y, gy: gy * (y * (1.0 - y)),
)


erf = _function(
    tir.erf,
    "The error function.",
    lambda ops, x, y, gy: gy * (ops.exp(-(x * x)) * (2.0 / math.sqrt(math.pi))),
)

# -- roots and powers ------------------------------------------------------------------------------

sqrt = unary(
    "sqrt",
    "The square root; NaN below 0.",
    numpy=np.sqrt,
    scalar=tir.sqrt,
    grad=lambda ops, x, y, gy: gy * 0.5 / y,
)
rsqrt = _function(tir.rsqrt, "1 / sqrt(x).", lambda ops, x, y, gy: gy * -0.5 * (y * y * y))
square = unary(
    "square",
    "x * x; integers wrap.",
    numpy=np.square,
    scalar=lambda x: Mul(x, x),
    takes=NUMBER,
    grad=lambda ops, x, y, gy: gy * 2.0 * x,
)

# -- trigonometry ----------------------------------------------------------------------------------

sin = _function(tir.sin, "The sine.", lambda ops, x, y, gy: gy * ops.cos(x))
cos = _function(tir.cos, "The cosine.", lambda ops, x, y, gy: -gy * ops.sin(x))
tan = _function(tir.tan, "The tangent.", lambda ops, x, y, gy: gy * (y * y + 1.0))
asin = _function(
    tir.asin,
    "The arc sine; NaN outside -1 to 1.",
    lambda ops, x, y, gy: gy * ops.rsqrt(1.0 - x * x),
)
acos = _function(
    tir.acos,
    "The arc cosine; NaN outside -1 to 1.",
    lambda ops, x, y, gy: -gy * ops.rsqrt(1.0 - x * x),
)
atan = _function(tir.atan, "The arc tangent.", lambda ops, x, y, gy: gy / (x * x + 1.0))
sinh = _function(tir.sinh, "The hyperbolic sine.", lambda ops, x, y, gy: gy * ops.cosh(x))
cosh = _function(tir.cosh, "The hyperbolic cosine.", lambda ops, x, y, gy: gy * ops.sinh(x))
tanh = _function(tir.tanh, "The hyperbolic tangent.", lambda ops, x, y, gy: gy * (1.0 - y * y))
asinh = _function(
    tir.asinh, "The inverse hyperbolic sine.", lambda ops, x, y, gy: gy * ops.rsqrt(x * x + 1.0)
)
acosh = _function(
    tir.acosh,
    "The inverse hyperbolic cosine; NaN below 1.",
    lambda ops, x, y, gy: gy * ops.rsqrt(x * x - 1.0),
)
atanh = _function(
    tir.atanh,
    "The inverse hyperbolic tangent; NaN outside -1 to 1.",
    lambda ops, x, y, gy: gy / (1.0 - x * x),
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


def _rounding(scalar: _Scalar, meaning: str, numpy: Any) -> Callable[..., Call]:
    """Integers are whole already."""

    def of_floats(x: Any) -> Any:
        return numpy(x) if np.asarray(x).dtype.kind == "f" else np.array(x)

    name = scalar.__name__
    return unary(name, meaning, numpy=of_floats, scalar=scalar, takes=NUMBER, grad=_nothing)


floor = _rounding(tir.floor, "The greatest whole number <= x, in x's dtype.", np.floor)
ceil = _rounding(tir.ceil, "The least whole number >= x, in x's dtype.", np.ceil)
trunc = _rounding(tir.trunc, "The whole number next to x toward zero, in x's dtype.", np.trunc)
round = _rounding(
    tir.round, "The whole number nearest to x, halves to the even one, in x's dtype.", np.rint
)

# -- questions and bits ----------------------------------------------------------------------------

_BOOLS = missing("the result is no float")


def _question(scalar: _Scalar, meaning: str, numpy: Any, otherwise: bool) -> Callable[..., Call]:
    """`otherwise` is the answer for what is no float."""

    def by_kind(x: Any) -> Any:
        x = np.asarray(x)
        return numpy(x) if x.dtype.kind == "f" else np.full(x.shape, otherwise)

    rules: dict[str, Any] = {"numpy": by_kind, "scalar": scalar, "grad": _BOOLS}
    return unary(scalar.__name__, meaning, takes=ANY, gives="bool", **rules)


isnan = _question(tir.isnan, "Whether x is NaN: a bool.", np.isnan, False)
isinf = _question(tir.isinf, "Whether x is plus or minus infinity: a bool.", np.isinf, False)
isfinite = _question(
    tir.isfinite, "Whether x is neither infinite nor NaN: a bool.", np.isfinite, True
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
