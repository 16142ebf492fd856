"""Formulas of float32 for tan, the inverses of sin, cos and tan, the hyperbolic functions
and their inverses: computed in float64 and rounded once, within 0.51 units in the last place.

    asin(a) = pi/2 - 2 asin(sqrt((1 - a) / 2))        for a > 1/2
    atan(a) = pi/4 + atan((a - 1) / (a + 1))          in the middle, pi/2 + atan(-1 / a) above
    sinh(a) = (exp(a) - exp(-a)) / 2                  for a > 1
    asinh(a) = log(1 + (a + a**2 / (1 + sqrt(1 + a**2))))

A polynomial does the rest. Beside the steps stands what they are accurate to, relatively.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir import EQ, GT, LE, LT, NE, Add, Div, Mul, PrimExpr, Select, Sub, call_intrinsic
from .math_steps import COS, F32, F64, I64, SIN, U32, Formula, natural, quadrant, split_power


def _wide(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """`x` and its absolute value in float64."""
    wide = f.let("wide", f.to(F64, x))
    return wide, f.let("size", call_intrinsic("fabs", wide))


def _signed(f: Formula, size: PrimExpr, x: PrimExpr) -> PrimExpr:
    """`size`, a float64 that is not negative, as float32 with the sign of `x`."""
    return call_intrinsic("copysign", f.to(F32, size), x)


# -- tan -------------------------------------------------------------------------------------------


def _tan(f: Formula, x: PrimExpr) -> PrimExpr:
    size = f.let("size", call_intrinsic("fabs", x))
    q, r = quadrant(f, size)
    z = f.let("z", Mul(r, r))
    sine = f.let("sine", f.muladd(r, Mul(z, f.polynomial(z, SIN)), r))
    cosine = f.let("cosine", f.muladd(z, f.polynomial(z, COS), f.const(1.0, F64)))
    odd = f.let("odd", NE(f.bit_and(q, 1), f.const(0, U32)))
    above = Select(odd, Sub(f.const(0.0, F64), cosine), sine)
    value = f.to(F32, Div(above, Select(odd, sine, cosine)))
    # The tangent of -x is -tan(x).
    sign = f.bit_and(f.bits(U32, x), 1 << 31)
    signed = f.bits(F32, call_intrinsic("bitwise_xor", f.bits(U32, value), sign))
    return Select(LT(size, f.const(math.inf)), signed, f.const(math.nan))


# -- asin, acos, atan ------------------------------------------------------------------------------

# asin(s) / s by s**2 for 0 <= s <= 1/2, within 2.8e-10
_ASIN = (
    1.0000000002307783,
    0.16666657639579247,
    0.07500571380866386,
    0.044508709526699955,
    0.031857188667665556,
    0.014295256884245785,
    0.03767713715218053,
)
# atan(t) / t by t**2 for |t| <= tan(pi/8), within 2.2e-11
_ATAN = (
    0.9999999999783986,
    -0.3333333209761231,
    0.19999883856733552,
    -0.1428158877648349,
    0.11040489261334921,
    -0.08456193013570917,
    0.047073482831167274,
)


def _small_asin(f: Formula, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """Whether `size`, from 0 to 1, is above 1/2; and asin of it, or of what is left of it."""
    large = f.let("large", GT(size, f.const(0.5, F64)))
    left = call_intrinsic("sqrt", Mul(Sub(f.const(1.0, F64), size), f.const(0.5, F64)))
    s = f.let("s", Select(large, left, size))
    z = f.let("z", Mul(s, s))
    return large, f.let("small", Mul(s, f.polynomial(z, _ASIN)))


def _asin(f: Formula, x: PrimExpr) -> PrimExpr:
    _, size = _wide(f, x)
    large, small = _small_asin(f, size)
    rest = Sub(f.const(math.pi / 2, F64), Mul(small, f.const(2.0, F64)))
    return _signed(f, Select(large, rest, small), x)


def _acos(f: Formula, x: PrimExpr) -> PrimExpr:
    wide, size = _wide(f, x)
    large, small = _small_asin(f, size)
    below = f.let("below", LT(wide, f.const(0.0, F64)))
    twice = f.let("twice", Mul(small, f.const(2.0, F64)))
    of_large = Select(below, Sub(f.const(math.pi, F64), twice), twice)
    signed = Select(below, Sub(f.const(0.0, F64), small), small)
    return f.to(F32, Select(large, of_large, Sub(f.const(math.pi / 2, F64), signed)))


def _atan(f: Formula, x: PrimExpr) -> PrimExpr:
    _, size = _wide(f, x)
    one, zero = f.const(1.0, F64), f.const(0.0, F64)
    middle = f.let("middle", GT(size, f.const(math.tan(math.pi / 8), F64)))
    far = f.let("far", GT(size, f.const(math.tan(3 * math.pi / 8), F64)))
    near = Select(middle, Div(Sub(size, one), Add(size, one)), size)
    t = f.let("t", Select(far, Div(f.const(-1.0, F64), size), near))
    base = Select(middle, f.const(math.pi / 4, F64), zero)
    base = Select(far, f.const(math.pi / 2, F64), base)
    z = f.let("z", Mul(t, t))
    return _signed(f, f.muladd(t, f.polynomial(z, _ATAN), base), x)


# -- sinh, cosh ------------------------------------------------------------------------------------

# exp(r) for |r| <= ln(2) / 2, within 5.6e-11
_EXP = (
    0.9999999999595367,
    0.9999999999955107,
    0.500000010777872,
    0.16666666786340567,
    0.0416662181821096,
    0.008333283526494293,
    0.0013948587454814425,
    0.0001990757832409217,
)
# sinh(x) / x by x**2 for |x| <= 1, within 5e-11
_SINH = (
    1.00000000004972,
    0.16666666418098092,
    0.00833335320550027,
    0.00019835713877998018,
    2.8190187812664586e-06,
)
# Adding it rounds a small float64 to an integer, which then stands in the low bits.
_ROUND = 6755399441055744.0
_ROUND_BITS = 0x4338000000000000


def _exp_wide(f: Formula, size: PrimExpr) -> PrimExpr:
    """exp of a float64 from 0 to 100, within 6e-11; beyond it, exp(100)."""
    bounded = f.let("bounded", f.at_most(size, 100.0))
    shifted = f.let("shifted", f.muladd(bounded, f.const(1 / math.log(2), F64), _round(f)))
    whole = Sub(shifted, _round(f))
    n = Sub(f.bits(I64, shifted), f.const(_ROUND_BITS, I64))
    r = f.let("r", f.muladd(whole, f.const(-math.log(2), F64), bounded))
    power = f.bits(F64, f.left(Add(n, f.const(1023, I64)), 52))
    return f.let("exp", Mul(f.polynomial(r, _EXP), power))


def _round(f: Formula) -> PrimExpr:
    return f.const(_ROUND, F64)


def _sinh(f: Formula, x: PrimExpr) -> PrimExpr:
    _, size = _wide(f, x)
    e = _exp_wide(f, size)
    large = Mul(Sub(e, Div(f.const(1.0, F64), e)), f.const(0.5, F64))
    near = f.let("near", f.at_most(size, 1.0))
    small = Mul(near, f.polynomial(f.let("z", Mul(near, near)), _SINH))
    return _signed(f, Select(GT(size, f.const(1.0, F64)), large, small), x)


def _cosh(f: Formula, x: PrimExpr) -> PrimExpr:
    _, size = _wide(f, x)
    e = _exp_wide(f, size)
    return f.to(F32, Mul(Add(e, Div(f.const(1.0, F64), e)), f.const(0.5, F64)))


# -- their inverses --------------------------------------------------------------------------------


def _log_of_more(f: Formula, v: PrimExpr) -> PrimExpr:
    """log(1 + v) of a float64 that is not negative, with the digits of `v` kept near 0."""
    k, part = split_power(f, f.let("more", Add(v, f.const(1.0, F64))))
    near = f.let("near", Select(EQ(k, f.const(0, I64)), v, part))
    exponent = f.to(F64, k)
    return f.let("log", f.muladd(exponent, f.const(math.log(2.0), F64), natural(f, near)))


def _asinh(f: Formula, x: PrimExpr) -> PrimExpr:
    _, size = _wide(f, x)
    one = f.const(1.0, F64)
    square = f.let("square", Mul(size, size))
    root = call_intrinsic("sqrt", Add(one, square))
    v = f.let("v", Add(size, Div(square, Add(one, root))))
    value = Select(LT(size, f.const(math.inf, F64)), _log_of_more(f, v), size)
    return _signed(f, value, x)


def _acosh(f: Formula, x: PrimExpr) -> PrimExpr:
    wide, _ = _wide(f, x)
    t = f.let("t", Sub(wide, f.const(1.0, F64)))
    root = call_intrinsic("sqrt", f.muladd(t, t, Add(t, t)))
    value = f.to(F32, _log_of_more(f, f.let("v", Add(t, root))))
    value = Select(LT(x, f.const(math.inf)), value, x)
    return Select(LT(x, f.const(1.0)), f.const(math.nan), value)


def _atanh(f: Formula, x: PrimExpr) -> PrimExpr:
    _, size = _wide(f, x)
    one = f.const(1.0, F64)
    v = f.let("v", Div(Add(size, size), Sub(one, size)))
    value: PrimExpr = Mul(_log_of_more(f, v), f.const(0.5, F64))
    value = Select(EQ(size, one), f.const(math.inf, F64), value)
    value = Select(LE(size, one), value, f.const(math.nan, F64))
    return _signed(f, value, x)


ARCS: dict[str, Callable[[Formula, PrimExpr], PrimExpr]] = {
    "tan": _tan,
    "asin": _asin,
    "acos": _acos,
    "atan": _atan,
    "sinh": _sinh,
    "cosh": _cosh,
    "asinh": _asinh,
    "acosh": _acosh,
    "atanh": _atanh,
}
"""Intrinsic -> how its formula is written."""

ARC_BOUNDS: dict[str, float] = dict.fromkeys(ARCS, 0.51)
"""Intrinsic -> largest error of its formula, in units in the last place."""
