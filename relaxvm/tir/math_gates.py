"""Formulas of what x becomes when it is let through in part, as activations are:

    gelu       x Phi(x), Phi being the normal distribution        silu   x sigmoid(x)
    gelu_tanh  x sigmoid(2 sqrt(2/pi) (x + 0.044715 x**3))        mish   x tanh(log(1 + exp(x)))

The part falls below the normal numbers before its product with x does, so that the power of two
that makes it small comes last of all. For x = -infinity all are NaN, as the products are.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..ir import GT, LT, Add, Div, Mul, PrimExpr, Select, Sub, call_intrinsic
from .math_steps import (
    EXP,
    F32,
    F64,
    I32,
    ROUND,
    Formula,
    exp_double,
    exp_parts,
)

# Powers of two that the polynomial of exp is made smaller by, and its power larger.
_SPARE = 32


def _fma(x: PrimExpr, y: PrimExpr, z: PrimExpr) -> PrimExpr:
    return call_intrinsic("fma", x, y, z)


# -- gelu ------------------------------------------------------------------------------------------

# With a = -2 b, for 0 <= a <= 14.7 and step = _STEP:
#     Phi(-a) 2**(b**2 / step) = -2 D(b) / (N(b) - b D(b) / _TAIL_SCALE)
# within 2.7e-8 below a = 1, 8e-8 above, and 5.6e-7 where the result is subnormal. Fitted in float64
# by least squares, reweighted until the errors are level. What rounding loses in D does not count
# for a large a, as D is above and below; constants are scaled for the least error. The step is near
# ln(2) / 2 and has 16 bits, so that its multiples are exact: what it lacks is in the quotient.
_STEP = 0.3465728759765625
_TAIL_SCALE = 0.4009369909763336
_TAIL_ABOVE = (
    0.8495559096336365,
    -1.1032580137252808,
    0.6914125084877014,
    -0.18708965182304382,
    0.007252676412463188,
)
_TAIL_BELOW = (
    0.8495559096336365,
    -0.34002503752708435,
    0.16456103324890137,
    -0.005575951654464006,
    0.00340453302487731,
)
# (2**(r / step) - 1) / r for |r| <= step / 2, within 2.2e-9
_TAIL_POWER = (
    2.000004291534424,
    2.0000081062316895,
    1.3333220481872559,
    0.6666944026947021,
    0.26800164580345154,
    0.088594451546669,
)


def _gelu(f: Formula, x: PrimExpr) -> PrimExpr:
    """max(x, 0) - a Phi(-a), a = |x|."""
    half = f.let("half", Mul(x, f.const(0.5)))
    sign = f.const(-(1 << 31), I32)
    below = f.let("below", f.bits(F32, f.bit_or(f.bits(I32, half), sign)))
    b = f.let("b", f.at_least(below, -7.425))
    # -b**2 = n step + r with an exact r; where products are rounded, of the upper half of b.
    part = b if f.fused else f.bits(F32, f.bit_and(f.bits(I32, b), -(1 << 12)))
    part = f.let("part", part)
    square = f.let("square", Mul(part, part))
    to_integer = f.const(ROUND)
    shifted = f.let("shifted", f.muladd(square, f.const(-1 / _STEP), to_integer))
    if f.fused:
        steps = _fma(shifted, f.const(-_STEP), f.const(ROUND * _STEP))
        r = f.let("r", _fma(Mul(b, f.const(-1.0)), b, steps))
    else:
        steps = Mul(Sub(to_integer, shifted), f.const(_STEP))
        r = f.let("r", f.muladd(Sub(part, b), Add(b, part), Sub(steps, square)))
    # The divisor is made larger by a power of two so that the dividend, which is multiplied by 2**n
    # in its exponent, stays a normal number: the quotient alone is rounded to a subnormal.
    over = f.let("over", Mul(b, f.polynomial(b, [c * 2.0**40 for c in _TAIL_ABOVE])))
    under = f.polynomial(b, [c * 2.0**40 for c in _TAIL_BELOW])
    curve = Mul(r, f.polynomial(r, _TAIL_POWER))
    if f.fused:
        dividend = f.muladd(over, curve, over)
        divisor = f.muladd(over, f.const(-1 / _TAIL_SCALE), under)
    else:
        # Rounded twice at each step, these would lose too much.
        wide = f.let("wide", f.to(F64, over))
        dividend = f.to(F32, f.muladd(wide, f.to(F64, curve), wide))
        scaled = Mul(wide, f.const(-1 / _TAIL_SCALE, F64))
        divisor = f.to(F32, Add(scaled, f.to(F64, under)))
    dividend = Add(f.bits(I32, dividend), f.left(f.bits(I32, shifted), 23))
    tail = Div(f.bits(F32, dividend), divisor)
    # Less min(-x, 0), or NaN for x = -infinity; with these signs a zero keeps its own.
    return Sub(tail, Sub(below, half))


# -- gelu_tanh, silu, mish -------------------------------------------------------------------------


def _passed(f: Formula, x: PrimExpr, p: PrimExpr, share: PrimExpr, whole_from: float) -> PrimExpr:
    """x share p, `p` being very small; x itself above `whole_from`, whatever `share` and `p` are
    there.
    """
    return Select(GT(x, f.const(whole_from)), x, Mul(Mul(x, share), p))


def _silu(f: Formula, x: PrimExpr) -> PrimExpr:
    bounded = f.let("bounded", f.at_least(x, -110.0))
    p, power = exp_parts(f, bounded, 1, _SPARE, EXP, 2.0**-_SPARE)
    p, power = f.let("p", p), f.let("power", power)
    return _passed(f, x, p, Div(power, f.muladd(p, power, f.const(1.0))), 18.0)


def _mish(f: Formula, x: PrimExpr) -> PrimExpr:
    """x w (w + 2) / (w (w + 2) + 2) with w = exp(x)."""
    bounded = f.let("bounded", f.at_least(x, -110.0))
    p, power = exp_parts(f, bounded, 1, _SPARE, EXP, 2.0**-_SPARE)
    p, power = f.let("p", p), f.let("power", power)
    w = f.let("w", Mul(p, power))
    more = f.let("more", Add(w, f.const(2.0)))
    share = Div(Mul(power, more), f.muladd(w, more, f.const(2.0)))
    return _passed(f, x, p, share, 10.0)


_SLOPE, _CUBE = math.sqrt(8 / math.pi), 0.044715
# v = _SLOPE x (1 + _CUBE x**2) is log(2) / _BENT_STEP x (_BENT_SLOPE + _BENT_CUBE x**2), within
# 2e-8: of all steps of 16 bits the one for which 21 and 24 bits of the others come nearest.
_BENT_STEP, _BENT_SLOPE, _BENT_CUBE = 0.539764404296875, 1.242650032043457, 0.05556509643793106


def _bent(f: Formula, x: PrimExpr, to_integer: PrimExpr) -> tuple[PrimExpr, PrimExpr, float]:
    """n + to_integer, r and step with v = log(2) (n + r / step): where the result is small, v is
    large, and needs more digits than float32 has.
    """
    if not f.fused:
        wide = f.let("wide", f.to(F64, x))
        scale = _SLOPE / math.log(2.0)
        slope = f.muladd(Mul(wide, wide), f.const(_CUBE * scale, F64), f.const(scale, F64))
        y = f.let("y", Mul(wide, slope))
        shifted = f.let("shifted", Add(f.to(F32, y), to_integer))
        return shifted, f.to(F32, Sub(y, f.to(F64, Sub(shifted, to_integer)))), 1.0
    slope, cube = f.const(_BENT_SLOPE), f.const(_BENT_CUBE)
    square = f.let("square", Mul(x, x))
    lost = _fma(x, x, Mul(square, f.const(-1.0)))
    bent = f.let("bent", _fma(square, cube, slope))
    # The difference is exact: `slope` has no more bits after the point than `bent`.
    lost = f.let("lost", f.muladd(lost, cube, _fma(square, cube, Sub(slope, bent))))
    shifted = f.let("shifted", f.muladd(Mul(x, bent), f.const(1 / _BENT_STEP), to_integer))
    steps = Mul(Sub(shifted, to_integer), f.const(-_BENT_STEP))
    return shifted, f.muladd(x, lost, _fma(x, bent, steps)), _BENT_STEP


def _gelu_tanh(f: Formula, x: PrimExpr) -> PrimExpr:
    bounded = f.let("bounded", f.at_least(x, -10.912))
    shifted, r, step = _bent(f, bounded, f.const(ROUND + 127 + _SPARE))
    r, rate = f.let("r", r), math.log(2.0) / step
    terms = [c * rate**k * 2.0**-_SPARE for k, c in enumerate((1.0, 1.0, *EXP))]
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

GATE_BOUNDS: dict[str, float] = {**dict.fromkeys(GATES, 4.0), "mish": 4.3}
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
