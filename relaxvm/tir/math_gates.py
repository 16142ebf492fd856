"""Formulas of what x becomes when it is let through in part, as activations are:

    gelu       x Phi(x), Phi being the normal distribution        silu   x sigmoid(x)
    gelu_tanh  x sigmoid(2 sqrt(2/pi) (x + 0.044715 x**3))        mish   x tanh(log(1 + exp(x)))

The part falls below the normal numbers before its product with x does, so that the power of two
that makes it small comes last of all. For x = -infinity all are NaN, as the products are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir import EQ, GT, LT, Add, Div, Mul, PrimExpr, Select, Sub, call_intrinsic
from .math_steps import (
    EXP,
    F32,
    F64,
    I32,
    LN2_HIGH,
    LN2_LOW,
    ROUND,
    Formula,
    exp_double,
    exp_parts,
)

# 2 ln 2 in two parts, as in `exp_parts`.
_STEP_HIGH, _STEP_LOW = 2 * LN2_HIGH, 2 * LN2_LOW
# Powers of two that the polynomial of exp is made smaller by, and its power larger.
_SPARE = 32

# -- gelu ------------------------------------------------------------------------------------------

# Phi(-a) exp(a**2 / 2) for 0 <= a <= 14.4 as a quotient of polynomials of a, within 5.9e-9
_TAIL_ABOVE = (
    0.375,
    0.32856786251068115,
    0.1373126208782196,
    0.03043654002249241,
    0.003081523347645998,
)
_TAIL_BELOW = (
    0.75,
    1.255549430847168,
    0.9014052152633667,
    0.35180267691612244,
    0.07629797607660294,
    0.007724142633378506,
)


def _gelu(f: Formula, x: PrimExpr) -> PrimExpr:
    """max(x, 0) - a Phi(-a), a = |x|."""
    # `a` is -|x| from here on; its upper half is squared exactly. At the bound `power` is 0.
    sign = f.const(-(1 << 31), I32)
    negative = f.let("negative", f.bits(F32, f.bit_or(f.bits(I32, x), sign)))
    a = f.let("a", f.at_least(negative, -14.85))
    upper = f.let("upper", f.bits(F32, f.bit_and(f.bits(I32, a), -(1 << 12))))
    square = f.let("square", Mul(upper, upper))
    to_integer = f.const(ROUND + 127 + _SPARE)
    shifted = f.let("shifted", f.muladd(square, f.const(-0.5 / math.log(2.0)), to_integer))
    whole = f.let("whole", Sub(shifted, to_integer))
    r = f.muladd(whole, f.const(_STEP_LOW), f.muladd(whole, f.const(_STEP_HIGH), square))
    r = f.let("r", f.muladd(Sub(a, upper), Add(a, upper), r))
    # exp(-r / 2) - 1
    terms = [c * (-0.5) ** k for k, c in enumerate((1.0, *EXP), 1)]
    curve = Mul(r, f.polynomial(r, terms))
    power = f.bits(F32, f.left(f.bits(I32, shifted), 23))
    z = f.let("z", Mul(a, a))
    # With these signs a zero keeps its own.
    above = [-c * (-1) ** k for k, c in enumerate(_TAIL_ABOVE)]
    below = [-c * 2.0**_SPARE * (-1) ** k for k, c in enumerate(_TAIL_BELOW)]
    odd = Mul(z, f.polynomial(z, above[1::2]))
    share = f.let("share", f.muladd(a, f.polynomial(z, above[0::2]), odd))
    under = f.muladd(a, f.polynomial(z, below[1::2]), f.polynomial(z, below[0::2]))
    tail = Div(Mul(f.muladd(share, curve, share), power), under)
    made = Add(tail, f.at_least(x, -0.0))
    return Select(EQ(x, f.const(-math.inf)), f.const(math.nan), made)


# -- gelu_tanh, silu, mish -------------------------------------------------------------------------


def _passed(f: Formula, x: PrimExpr, p: PrimExpr, share: PrimExpr, whole_from: float) -> PrimExpr:
    """x share p, `p` being very small; x itself above `whole_from`."""
    return Select(GT(x, f.const(whole_from)), x, Mul(Mul(x, share), p))


def _silu(f: Formula, x: PrimExpr) -> PrimExpr:
    bounded = f.let("bounded", f.at_least(f.at_most(x, 30.0), -110.0))
    p, power = exp_parts(f, bounded, 1, _SPARE, EXP, 2.0**-_SPARE)
    p, power = f.let("p", p), f.let("power", power)
    return _passed(f, x, p, Div(power, f.muladd(p, power, f.const(1.0))), 18.0)


def _mish(f: Formula, x: PrimExpr) -> PrimExpr:
    """x w (w + 2) / (w (w + 2) + 2) with w = exp(x)."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, 20.0), -110.0))
    p, power = exp_parts(f, bounded, 1, _SPARE, EXP, 2.0**-_SPARE)
    p, power = f.let("p", p), f.let("power", power)
    w = f.let("w", Mul(p, power))
    more = f.let("more", Add(w, f.const(2.0)))
    share = Div(Mul(power, more), f.muladd(w, more, f.const(2.0)))
    return _passed(f, x, p, share, 10.0)


_SLOPE, _CUBE = math.sqrt(8 / math.pi), 0.044715


def _gelu_tanh(f: Formula, x: PrimExpr) -> PrimExpr:
    # The exponent is large where the result is small: in float64, to base 2.
    bounded = f.let("bounded", f.at_least(f.at_most(x, 6.0), -10.912))
    wide = f.let("wide", f.to(F64, bounded))
    scale = _SLOPE / math.log(2.0)
    slope = f.muladd(Mul(wide, wide), f.const(_CUBE * scale, F64), f.const(scale, F64))
    y = f.let("y", Mul(wide, slope))
    to_integer = f.const(ROUND + 127 + _SPARE)
    shifted = f.let("shifted", Add(f.to(F32, y), to_integer))
    whole = Sub(shifted, to_integer)
    r = f.let("r", f.to(F32, Sub(y, f.to(F64, whole))))
    terms = [c * math.log(2.0) ** k * 2.0**-_SPARE for k, c in enumerate((1.0, 1.0, *EXP))]
    p = f.let("p", f.polynomial(r, terms))
    power = f.let("power", f.bits(F32, f.left(f.bits(I32, shifted), 23)))
    return _passed(f, x, p, Div(power, f.muladd(p, power, f.const(1.0))), 5.5)


GATES: dict[str, Callable[[Formula, PrimExpr], PrimExpr]] = {
    "gelu": _gelu,
    "gelu_tanh": _gelu_tanh,
    "silu": _silu,
    "mish": _mish,
}
"""Intrinsic -> how its formula is written."""

GATE_BOUNDS: dict[str, float] = dict.fromkeys(GATES, 4.0)
"""Intrinsic -> largest error of its formula, in units in the last place."""

# -- in float64 ------------------------------------------------------------------------------------

# What sqrt(8 / pi), and 0.044715 times it, lack in float64.
_SLOPE_LOW, _CUBE_LOW = -9.96930880911092e-17, -6.175149918155315e-19

# Below -_FAR, exp is taken this far to the right, and its product with x made smaller.
_FAR = 64.0


def _wide(f: Formula, value: float) -> PrimExpr:
    return f.const(value, F64)


def _gate_double(
    f: Formula, x: PrimExpr, v: PrimExpr, rest: PrimExpr | None, mish: bool = False
) -> PrimExpr:
    """x sigmoid(v + rest), `rest` being what v lacks; or x tanh(log(1 + exp(v)))."""
    far = f.let("far", LT(v, _wide(f, -_FAR)))
    above = f.let("above", GT(v, _wide(f, 0.0)))
    side = Select(above, Mul(v, _wide(f, -1.0)), v)
    e = exp_double(f, f.let("moved", Select(far, Add(v, _wide(f, _FAR)), side)))
    if rest is not None:
        turned = Select(above, Mul(rest, _wide(f, -1.0)), rest)
        e = f.let("corrected", f.muladd(e, turned, e))
    one, two = _wide(f, 1.0), _wide(f, 2.0)
    under: PrimExpr
    near = f.let("near", Select(far, _wide(f, 0.0), e))
    if mish:
        # With w = exp(v), w (w + 2) / (w (w + 2) + 2); above 0, both divided by w**2.
        more = f.let("more", Add(near, two))
        over = f.let("over", Select(above, Add(one, Mul(near, two)), Mul(e, more)))
        under = Select(above, f.muladd(Mul(near, near), two, over), f.muladd(near, more, two))
    else:
        over, under = Select(above, one, e), Add(one, near)
    scale = Select(far, _wide(f, math.exp(-_FAR)), one)
    return Mul(Mul(x, Div(over, under)), scale)


def _silu_double(f: Formula, x: PrimExpr) -> PrimExpr:
    return _gate_double(f, x, x, None)


def _mish_double(f: Formula, x: PrimExpr) -> PrimExpr:
    return _gate_double(f, x, x, None, mish=True)


def _fma(x: PrimExpr, y: PrimExpr, z: PrimExpr) -> PrimExpr:
    return call_intrinsic("fma", x, y, z)


def _gelu_tanh_double(f: Formula, x: PrimExpr) -> PrimExpr:
    # v = x (slope + cube x**2), and what it lacks.
    slope, cube = _SLOPE, _CUBE * _SLOPE
    x1 = f.let("bounded", f.at_least(f.at_most(x, 10.0), -30.0))
    square = f.let("square", Mul(x1, x1))
    lost = f.let("lost", _fma(x1, x1, Mul(square, _wide(f, -1.0))))
    bent = f.let("bent", Mul(square, _wide(f, cube)))
    lost = Add(_fma(square, _wide(f, cube), Mul(bent, _wide(f, -1.0))), Mul(lost, _wide(f, cube)))
    lost = f.let("bent_lost", Add(lost, Mul(square, _wide(f, _CUBE_LOW))))
    total = f.let("total", Add(bent, _wide(f, slope)))
    part = f.let("total_part", Sub(total, bent))
    rounded = Add(Sub(bent, Sub(total, part)), Sub(_wide(f, slope), part))
    sum_lost = f.let("total_lost", Add(Add(rounded, lost), _wide(f, _SLOPE_LOW)))
    v = f.let("v", Mul(x1, total))
    rest = Add(_fma(x1, total, Mul(v, _wide(f, -1.0))), Mul(x1, sum_lost))
    return _gate_double(f, x, v, f.let("rest", rest))


_ROOT, _ROOT_LOW = math.sqrt(0.5), -4.833646656726457e-17


def _gelu_double(f: Formula, x: PrimExpr) -> PrimExpr:
    """x / 2 erfc(-x / sqrt(2)), with what the quotient lacks."""
    y = f.let("bounded", f.at_most(x, 40.0))
    z = f.let("z", Mul(y, _wide(f, -_ROOT)))
    lost = f.muladd(y, _wide(f, -_ROOT_LOW), _fma(y, _wide(f, -_ROOT), Mul(z, _wide(f, -1.0))))
    lost = f.let("lost", Mul(lost, _wide(f, 2 / math.sqrt(math.pi))))
    density = exp_double(f, f.let("exponent", Mul(Mul(z, z), _wide(f, -1.0))))
    tail = Sub(call_intrinsic("erfc", z), Mul(lost, density))
    return Mul(Mul(x, _wide(f, 0.5)), tail)


GATES_DOUBLE: dict[str, Callable[[Formula, PrimExpr], PrimExpr]] = {
    "gelu": _gelu_double,
    "gelu_tanh": _gelu_tanh_double,
    "silu": _silu_double,
    "mish": _mish_double,
}
"""The same of float64."""
