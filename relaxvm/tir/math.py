"""Elementary functions of float32 as formulas of the scalar language, for scalars and for vectors.

    exp  exp2  expm1  log  log2  log10  log1p  tanh  sigmoid  erf  sin  cos
    and those of `tir/math_arcs.py`: tan  asin  acos  atan  sinh  cosh  asinh  acosh  atanh

There are no branches and no tables, so a loop over an array can be vectorised, which calls of the C
library prevent. Largest error over all float32, in units in the last place of the exact result:

    exp     1.1     log    0.51     sigmoid  2.4     sin  0.51
    exp2    1.2     log2   0.51     tanh     5.7     cos  0.51
    expm1   1.2     log10  0.51     erf      7.0
                    log1p  0.51    those of math_arcs.py  0.51

Subnormal, infinite and NaN arguments and the signs of zeros are as IEEE 754 wants them; subnormal
results are within the same bounds. `tests/tir/test_tir_math.py` samples 10**6 bit patterns of each.
The formulas rely on every operation being rounded to its dtype: no reassociation. Where a product
and a sum may be rounded together as well, they say `muladd`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from ..base import TIRError
from ..ir import (
    EQ,
    GE,
    LT,
    NE,
    Add,
    Div,
    Mul,
    PrimExpr,
    Select,
    Sub,
)
from ..ir.expr import call_intrinsic
from .math_arcs import ARC_BOUNDS, ARCS
from .math_steps import COS, F32, F64, I32, I64, SIN, U32, Formula, natural, quadrant, split_power

__all__ = ["BOUNDS", "FORMULAS", "formula"]

# -- exponentials ----------------------------------------------------------------------------------

# Adding it rounds a small float32 to an integer, which then stands in the low bits.
_ROUND = 12582912.0
_ROUND_BITS = 0x4B400000
# ln 2 in two parts; the first has few bits, so that its product with an integer below 2**9 is
# exact.
_LN2_HIGH, _LN2_LOW = 0.693359375, -2.12194440054690583e-4
# (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, within 3.2e-9 of exp(r)
_EXP = (
    0.5000000095827056,
    0.16666518167109967,
    0.041666203739555104,
    0.008368970137228624,
    0.0013950628765601928,
)
# (2**r - 1 - r * ln 2) / r**2 for |r| <= 1/2, within 3.2e-9 of 2**r
_EXP2 = (
    0.24022651152926328,
    0.05550361655428475,
    0.009618022772801074,
    0.0013390437666334063,
    0.00015471834744753827,
)


def _nearest(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The integer nearest to `x`, as float32 and as int32."""
    shifted = f.let("shifted", Add(x, f.const(_ROUND)))
    whole = f.let("whole", Sub(shifted, f.const(_ROUND)))
    return whole, f.let("n", Sub(f.bits(I32, shifted), f.const(_ROUND_BITS, I32)))


def _powers_of_two(f: Formula, n: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Two powers whose product is 2**n, which itself may not be a normal number; and 1 / the
    second.
    """

    def power(e: PrimExpr) -> PrimExpr:
        return f.bits(F32, f.left(Add(e, f.const(127, I32)), 23))

    half = f.let("half", f.right(n, 1))
    rest = f.let("rest", Sub(n, half))
    zero = f.const(0, I32)
    return f.let("first", power(half)), f.let("second", power(rest)), power(Sub(zero, rest))


def _reduced(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """n and r with x = n ln 2 + r, and what r lacks of the exact remainder."""
    whole, n = _nearest(f, Mul(x, f.const(1.0 / math.log(2.0))))
    high = f.let("high", Sub(x, Mul(whole, f.const(_LN2_HIGH))))
    low = f.let("low", Mul(whole, f.const(_LN2_LOW)))
    r = f.let("r", Sub(high, low))
    return n, r, f.let("r_rest", Sub(Sub(high, r), low))


def _exp_of(f: Formula, x: PrimExpr) -> PrimExpr:
    """exp(x); `x` is a name."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, 89.0), -104.0))
    # One step rounds x / ln 2 to an integer n: how it rounds halves does not matter.
    log2_e, to_integer = f.const(1.0 / math.log(2.0)), f.const(_ROUND)
    shifted = f.let("shifted", f.muladd(bounded, log2_e, to_integer))
    whole = f.let("whole", Sub(shifted, to_integer))
    high = f.muladd(whole, f.const(-_LN2_HIGH), bounded)
    r = f.let("r", f.muladd(whole, f.const(-_LN2_LOW), high))
    # Not by Horner's rule: what depends on each other in one vector decides how many are in flight.
    c = [f.const(each) for each in _EXP]
    square = f.let("square", Mul(r, r))
    upper = f.muladd(square, c[4], f.muladd(r, c[3], c[2]))
    curve = f.muladd(square, upper, f.muladd(r, c[1], c[0]))
    p = Add(f.muladd(square, curve, r), f.const(1.0))
    # 2**n may not be a normal number: it is the product of 2**(n // 2) and of the rest. The low
    # bits of `shifted` are those of n, which shifts move to the place of exponents.
    bits = f.let("bits", f.bits(I32, shifted))
    one = f.const(127 << 23, I32)
    half = f.let("half", f.left(f.right(bits, 1), 23))
    first, second = Add(half, one), Add(Sub(f.left(bits, 23), half), one)
    return f.let("exp", Mul(Mul(p, f.bits(F32, first)), f.bits(F32, second)))


def _exp(f: Formula, x: PrimExpr) -> PrimExpr:
    return _exp_of(f, x)


def _exp2(f: Formula, x: PrimExpr) -> PrimExpr:
    bounded = f.let("bounded", f.at_least(f.at_most(x, 129.0), -151.0))
    whole, n = _nearest(f, bounded)
    r = f.let("r", Sub(bounded, whole))
    curve = Mul(Mul(r, r), f.polynomial(r, _EXP2))
    p = Add(f.muladd(r, f.const(math.log(2.0)), curve), f.const(1.0))
    first, second, _ = _powers_of_two(f, n)
    return Mul(Mul(p, first), second)


def _expm1_of(f: Formula, x: PrimExpr) -> PrimExpr:
    """exp(x) - 1; `x` is a name."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, 89.0), -18.0))
    n, r, rest = _reduced(f, bounded)
    first, second, inverse = _powers_of_two(f, n)
    curve = f.let("curve", Add(Mul(Mul(r, r), f.polynomial(r, _EXP)), rest))
    # 2**n (1 + r + curve) - 1, the large parts first.
    large = f.let("large", Sub(first, inverse))
    sum_of = f.let("sum", Add(large, Mul(first, r)))
    lost = Sub(Mul(first, r), Sub(sum_of, large))
    scaled = Add(sum_of, Add(lost, Mul(first, curve)))
    main = Select(EQ(large, f.const(0.0)), Add(r, curve), scaled)
    return f.let("expm1", Select(EQ(x, f.const(0.0)), x, Mul(main, second)))


def _expm1(f: Formula, x: PrimExpr) -> PrimExpr:
    return _expm1_of(f, x)


def _sigmoid(f: Formula, x: PrimExpr) -> PrimExpr:
    # exp of a number that is not positive cannot overflow, so small results keep their digits.
    size = f.let("size", Sub(f.const(0.0), call_intrinsic("fabs", x)))
    e = _exp_of(f, size)
    one = f.const(1.0)
    return Div(Select(GE(x, f.const(0.0)), one, e), Add(one, e))


# tanh(x) / x as a quotient of polynomials of x**2 for |x| <= 9.02, within 1.4e-9 of itself
_TANH_ABOVE = (
    0.9999999987040078,
    0.13679895623882196,
    0.00386830309829226,
    2.8006947378532447e-05,
    3.058374977483762e-08,
    -1.2202496173403409e-11,
)
_TANH_BELOW = (
    1.0,
    0.4701322769039705,
    0.027245749310127753,
    0.00039385871183450906,
    1.2873302390953692e-06,
)
# erf(x) / x as a quotient of polynomials of x**2 for |x| <= 3.95, within 2e-9 of itself
_ERF_ABOVE = (
    1.1283791692333245,
    0.18517012272837477,
    0.05427458023204542,
    0.0038433700011667204,
    0.0003779232247037335,
    4.640052371554232e-06,
    -1.2965182491452259e-08,
)
_ERF_BELOW = (
    1.0,
    0.49743615770560684,
    0.11391114978836174,
    0.015443671603133792,
    0.0013040439108273668,
    6.26888602414604e-05,
)


def _odd_quotient(
    f: Formula, x: PrimExpr, end: float, above: tuple[float, ...], below: tuple[float, ...]
) -> PrimExpr:
    """x above(x**2) / below(x**2) up to |x| = end, and 1 with the sign of x from there on."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, end), -end))
    square = f.let("square", Mul(bounded, bounded))
    product = Mul(bounded, f.polynomial(square, above))
    quotient = f.let("quotient", Div(product, f.polynomial(square, below)))
    # At the end the nearest number is 1. The quotient may miss it, or pass it, by its last bits.
    far = GE(call_intrinsic("fabs", x), f.const(end))
    within = f.at_least(f.at_most(quotient, 1.0), -1.0)
    return Select(far, call_intrinsic("copysign", f.const(1.0), x), within)


def _tanh(f: Formula, x: PrimExpr) -> PrimExpr:
    return _odd_quotient(f, x, 9.02, _TANH_ABOVE, _TANH_BELOW)


def _erf(f: Formula, x: PrimExpr) -> PrimExpr:
    return _odd_quotient(f, x, 3.95, _ERF_ABOVE, _ERF_BELOW)


# -- logarithms: in float64, where the arguments and their logarithms are normal numbers -----------


def _log_of(f: Formula, k: PrimExpr, part: PrimExpr, base: float) -> PrimExpr:
    """The logarithm of 2**k (1 + part) to `base`, in float32."""
    near = natural(f, part)
    exponent = f.to(F64, f.to(I32, k))
    scale = 1.0 / math.log(base)
    if base == math.e:
        made = Add(Mul(exponent, f.const(math.log(2.0), F64)), near)
    else:
        whole = Mul(exponent, f.const(math.log(2.0) * scale, F64))
        made = Add(whole, Mul(near, f.const(scale, F64)))
    return f.to(F32, made)


def _log_edges(f: Formula, made: PrimExpr, x: PrimExpr, zero_at: float) -> PrimExpr:
    """`made` but for infinity and NaN, the pole at `zero_at`, and what lies below it."""
    infinity = f.const(math.inf)
    pole = f.const(zero_at)
    made = Select(LT(x, infinity), made, x)
    made = Select(EQ(x, pole), f.const(-math.inf), made)
    return Select(LT(x, pole), f.const(math.nan), made)


def _logarithm(base: float) -> Callable[[Formula, PrimExpr], PrimExpr]:
    def write(f: Formula, x: PrimExpr) -> PrimExpr:
        wide = f.let("wide", f.to(F64, x))
        k, part = split_power(f, wide)
        return _log_edges(f, f.let("log", _log_of(f, k, part, base)), x, 0.0)

    return write


def _log1p(f: Formula, x: PrimExpr) -> PrimExpr:
    wide = f.let("wide", f.to(F64, x))
    k, part = split_power(f, f.let("more", Add(wide, f.const(1.0, F64))))
    # Near 0 the sum has lost digits that x still has.
    part = f.let("near", Select(EQ(k, f.const(0, I64)), wide, part))
    made = f.let("log", _log_of(f, k, part, math.e))
    return Select(EQ(x, f.const(0.0)), x, _log_edges(f, made, x, -1.0))


# -- sine and cosine: the argument is reduced exactly in integers ----------------------------------


def _wave(f: Formula, x: PrimExpr, turn: int) -> PrimExpr:
    """sin(x + turn pi/2)."""
    size = f.let("size", call_intrinsic("fabs", x))
    q, r = quadrant(f, size)
    if turn:
        q = f.let("turned", Add(q, f.const(turn, U32)))
    z = f.let("z", Mul(r, r))
    sine = f.muladd(r, Mul(z, f.polynomial(z, SIN)), r)
    cosine = f.muladd(z, f.polynomial(z, COS), f.const(1.0, F64))
    odd = NE(f.bit_and(q, 1), f.const(0, U32))
    value = f.to(F32, Select(odd, cosine, sine))
    sign = f.left(f.bit_and(q, 2), 30)
    if not turn:
        # The sine of -x is -sin(x).
        sign = call_intrinsic("bitwise_xor", sign, f.bit_and(f.bits(U32, x), 1 << 31))
    signed = f.bits(F32, call_intrinsic("bitwise_xor", f.bits(U32, value), sign))
    return Select(LT(size, f.const(math.inf)), signed, f.const(math.nan))


FORMULAS: dict[str, Callable[[Formula, PrimExpr], PrimExpr]] = {
    "exp": _exp,
    "exp2": _exp2,
    "expm1": _expm1,
    "log": _logarithm(math.e),
    "log2": _logarithm(2.0),
    "log10": _logarithm(10.0),
    "log1p": _log1p,
    "sigmoid": _sigmoid,
    "tanh": _tanh,
    "erf": _erf,
    "sin": lambda f, x: _wave(f, x, 0),
    "cos": lambda f, x: _wave(f, x, 1),
    **ARCS,
}
"""Intrinsic -> how its formula is written."""


BOUNDS: dict[str, float] = {
    "exp": 1.1,
    "exp2": 1.2,
    "expm1": 1.2,
    "log": 0.51,
    "log2": 0.51,
    "log10": 0.51,
    "log1p": 0.51,
    "sigmoid": 2.4,
    "tanh": 5.7,
    "erf": 7.0,
    "sin": 0.51,
    "cos": 0.51,
    **ARC_BOUNDS,
}
"""Intrinsic -> largest error of its formula, in units in the last place."""


def formula(name: str, x: PrimExpr) -> PrimExpr:
    """The formula of the function `name` (see `FORMULAS`) of the float32 expression `x`, a scalar
    or vector.

    Raises TIRError for another function or dtype.
    """
    write = FORMULAS.get(name)
    if write is None:
        raise TIRError(f"there is no formula for {name}; there are {', '.join(FORMULAS)}")
    if x.dtype.element is not F32:
        raise TIRError(f"the formula of {name} is of float32, got {x.dtype}; cast first")
    f = Formula(x.dtype.lanes)
    return f.close(write(f, f.let("x", x)))
