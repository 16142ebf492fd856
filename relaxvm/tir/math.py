"""Elementary functions of float32 as formulas of the scalar language, for scalars and for vectors.

    exp  exp2  expm1  log  log2  log10  log1p  tanh  sigmoid  erf  sin  cos

There are no branches and no tables, so a loop over an array can be vectorised, which calls of the C
library prevent. Largest error over all float32, in units in the last place of the exact result:

    exp     1.1     log    0.51     sigmoid  2.4     sin  0.51
    exp2    1.2     log2   0.51     tanh     1.5     cos  0.51
    expm1   1.2     log10  0.51     erf      1.5
                    log1p  0.51

Subnormal, infinite and NaN arguments and the signs of zeros are as IEEE 754 wants them; subnormal
results are within the same bounds. `tests/tir/test_tir_math.py` samples 10**6 bit patterns of each.
The formulas rely on every operation being rounded to its dtype: no reassociation.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from ..base import DataType, TIRError
from ..ir import (
    EQ,
    GE,
    GT,
    LT,
    NE,
    Add,
    Div,
    Let,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    cast,
    const,
)
from ..ir.expr import call_intrinsic

__all__ = ["BOUNDS", "FORMULAS", "formula"]

_F32 = DataType("float32")
_F64 = DataType("float64")
_I32 = DataType("int32")
_I64 = DataType("int64")
_U32 = DataType("uint32")
_U64 = DataType("uint64")


class _Formula:
    """Writes a formula step by step; each named value is computed once."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self.named: list[tuple[Var, PrimExpr]] = []

    def let(self, name: str, value: PrimExpr) -> PrimExpr:
        """`value` under a name."""
        var = Var(name, value.dtype)
        self.named.append((var, value))
        return var

    def close(self, result: PrimExpr) -> PrimExpr:
        """`result` with all names defined."""
        for var, value in reversed(self.named):
            result = Let(var, value, result)
        return result

    def const(self, value: float, dtype: DataType = _F32) -> PrimExpr:
        """A constant for every lane."""
        return const(value, dtype.with_lanes(self.lanes))

    def like(self, value: float, x: PrimExpr) -> PrimExpr:
        """A constant of the dtype of `x`."""
        return const(value, x.dtype)

    def bits(self, dtype: DataType, x: PrimExpr) -> PrimExpr:
        """The bits of `x` as `dtype`."""
        return call_intrinsic("reinterpret", x, dtype=dtype.with_lanes(self.lanes))

    def to(self, dtype: DataType, x: PrimExpr) -> PrimExpr:
        """`x` converted to `dtype`."""
        return cast(dtype.with_lanes(self.lanes), x)

    def polynomial(self, x: PrimExpr, coefficients: Sequence[float]) -> PrimExpr:
        """The polynomial with these coefficients, the constant one first, by Horner's rule."""
        total = self.like(coefficients[-1], x)
        for c in reversed(coefficients[:-1]):
            total = Add(Mul(total, x), self.like(c, x))
        return total

    def at_most(self, x: PrimExpr, high: float) -> PrimExpr:
        """The lesser of `x` and `high`; NaN stays."""
        limit = self.like(high, x)
        return Select(GT(x, limit), limit, x)

    def at_least(self, x: PrimExpr, low: float) -> PrimExpr:
        """The greater of `x` and `low`; NaN stays."""
        limit = self.like(low, x)
        return Select(LT(x, limit), limit, x)

    def bit_and(self, x: PrimExpr, mask: int) -> PrimExpr:
        return call_intrinsic("bitwise_and", x, self.like(mask, x))

    def bit_or(self, x: PrimExpr, y: PrimExpr) -> PrimExpr:
        return call_intrinsic("bitwise_or", x, y)

    def left(self, x: PrimExpr, count: int) -> PrimExpr:
        return call_intrinsic("shift_left", x, self.like(count, x))

    def right(self, x: PrimExpr, count: int) -> PrimExpr:
        return call_intrinsic("shift_right", x, self.like(count, x))


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


def _nearest(f: _Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """The integer nearest to `x`, as float32 and as int32."""
    shifted = f.let("shifted", Add(x, f.const(_ROUND)))
    whole = f.let("whole", Sub(shifted, f.const(_ROUND)))
    return whole, f.let("n", Sub(f.bits(_I32, shifted), f.const(_ROUND_BITS, _I32)))


def _powers_of_two(f: _Formula, n: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """Two powers whose product is 2**n, which itself may not be a normal number; and 1 / the
    second.
    """

    def power(e: PrimExpr) -> PrimExpr:
        return f.bits(_F32, f.left(Add(e, f.const(127, _I32)), 23))

    half = f.let("half", f.right(n, 1))
    rest = f.let("rest", Sub(n, half))
    zero = f.const(0, _I32)
    return f.let("first", power(half)), f.let("second", power(rest)), power(Sub(zero, rest))


def _reduced(f: _Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr, PrimExpr]:
    """n and r with x = n ln 2 + r, and what r lacks of the exact remainder."""
    whole, n = _nearest(f, Mul(x, f.const(1.0 / math.log(2.0))))
    high = f.let("high", Sub(x, Mul(whole, f.const(_LN2_HIGH))))
    low = f.let("low", Mul(whole, f.const(_LN2_LOW)))
    r = f.let("r", Sub(high, low))
    return n, r, f.let("r_rest", Sub(Sub(high, r), low))


def _exp_of(f: _Formula, x: PrimExpr) -> PrimExpr:
    """exp(x); `x` is a name."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, 89.0), -104.0))
    n, r, _ = _reduced(f, bounded)
    curve = Mul(Mul(r, r), f.polynomial(r, _EXP))
    p = Add(Add(curve, r), f.const(1.0))
    first, second, _ = _powers_of_two(f, n)
    return f.let("exp", Mul(Mul(p, first), second))


def _exp(f: _Formula, x: PrimExpr) -> PrimExpr:
    return _exp_of(f, x)


def _exp2(f: _Formula, x: PrimExpr) -> PrimExpr:
    bounded = f.let("bounded", f.at_least(f.at_most(x, 129.0), -151.0))
    whole, n = _nearest(f, bounded)
    r = f.let("r", Sub(bounded, whole))
    curve = Mul(Mul(r, r), f.polynomial(r, _EXP2))
    p = Add(Add(curve, Mul(r, f.const(math.log(2.0)))), f.const(1.0))
    first, second, _ = _powers_of_two(f, n)
    return Mul(Mul(p, first), second)


def _expm1_of(f: _Formula, x: PrimExpr) -> PrimExpr:
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


def _expm1(f: _Formula, x: PrimExpr) -> PrimExpr:
    return _expm1_of(f, x)


def _sigmoid(f: _Formula, x: PrimExpr) -> PrimExpr:
    # exp of a number that is not positive cannot overflow, so small results keep their digits.
    size = f.let("size", Sub(f.const(0.0), call_intrinsic("fabs", x)))
    e = _exp_of(f, size)
    one = f.const(1.0)
    return Div(Select(GE(x, f.const(0.0)), one, e), Add(one, e))


# (tanh(x) - x) / x**3 by x**2 for |x| <= 0.63, within 1.8e-10
_TANH = (
    -0.33333330571260844,
    0.13333195908280332,
    -0.05394537805787977,
    0.021692605368875423,
    -0.008156276642897219,
    0.0021227426060367134,
)


def _tanh(f: _Formula, x: PrimExpr) -> PrimExpr:
    size = f.let("size", call_intrinsic("fabs", x))
    square = f.let("square", Mul(size, size))
    small = Add(size, Mul(size, Mul(square, f.polynomial(square, _TANH))))
    e = _exp_of(f, f.let("twice", f.at_most(Add(size, size), 20.0)))
    one, two = f.const(1.0), f.const(2.0)
    large = Sub(one, Div(two, Add(e, one)))
    return call_intrinsic("copysign", Select(GT(size, f.const(0.625)), large, small), x)


# (erf(x) - x) / x by x**2 for |x| <= 1, within 3.3e-11
_ERF = (
    0.12837916706315808,
    -0.3761263848380894,
    0.11283782747201024,
    -0.026865445821485045,
    0.005221074878461463,
    -0.0008484711456102548,
    0.00011270544551652051,
    -9.680136600392172e-06,
)
# -ln(erfc(x)) for 1 <= x <= 4, within 2.2e-11 of erf(x)
_ERFC = (
    -0.00018847017568512838,
    1.1295803227398917,
    0.6332163742738958,
    0.10842212414014438,
    -0.025210355412631336,
    0.00420529059878412,
    -0.0004414738336803512,
    2.1697714038781077e-05,
)


def _erf(f: _Formula, x: PrimExpr) -> PrimExpr:
    size = f.let("size", f.at_most(call_intrinsic("fabs", x), 4.0))
    square = f.let("square", Mul(size, size))
    small = Add(x, Mul(x, f.polynomial(square, _ERF)))
    minus = f.let("minus", Sub(f.const(0.0), f.polynomial(size, _ERFC)))
    large = call_intrinsic("copysign", Sub(f.const(1.0), _exp_of(f, minus)), x)
    return Select(GT(size, f.const(1.0)), large, small)


# -- logarithms: in float64, where the arguments and their logarithms are normal numbers -----------

# (log((1 + s) / (1 - s)) / s - 2) / s**2 by s**2 for |s| <= 0.172, within 4.9e-12 of the logarithm
_LOG = (0.6666666562226001, 0.4000034090620333, 0.2853691923296881, 0.23589992355416273)
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD
_ONE_BITS = 0x3FF0000000000000


def _split(f: _Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """k and f of a positive float64 x = 2**k (1 + f), where 1 + f lies between the roots of 1/2 and
    of 2.
    """
    moved = f.let("moved", Sub(f.bits(_I64, x), f.const(_SQRT_HALF_BITS, _I64)))
    k = f.let("k", f.right(moved, 52))
    scaled = Sub(f.bits(_I64, x), f.left(k, 52))
    return k, f.let("part", Sub(f.bits(_F64, scaled), f.const(1.0, _F64)))


def _log_of(f: _Formula, k: PrimExpr, part: PrimExpr, base: float) -> PrimExpr:
    """The logarithm of 2**k (1 + part) to `base`, in float32."""
    s = f.let("s", Div(part, Add(part, f.const(2.0, _F64))))
    z = f.let("z", Mul(s, s))
    natural = Mul(s, Add(f.const(2.0, _F64), Mul(z, f.polynomial(z, _LOG))))
    exponent = f.to(_F64, f.to(_I32, k))
    scale = 1.0 / math.log(base)
    if base == math.e:
        made = Add(Mul(exponent, f.const(math.log(2.0), _F64)), natural)
    else:
        whole = Mul(exponent, f.const(math.log(2.0) * scale, _F64))
        made = Add(whole, Mul(natural, f.const(scale, _F64)))
    return f.to(_F32, made)


def _log_edges(f: _Formula, made: PrimExpr, x: PrimExpr, zero_at: float) -> PrimExpr:
    """`made` but for infinity and NaN, the pole at `zero_at`, and what lies below it."""
    infinity = f.const(math.inf)
    pole = f.const(zero_at)
    made = Select(LT(x, infinity), made, x)
    made = Select(EQ(x, pole), f.const(-math.inf), made)
    return Select(LT(x, pole), f.const(math.nan), made)


def _logarithm(base: float) -> Callable[[_Formula, PrimExpr], PrimExpr]:
    def write(f: _Formula, x: PrimExpr) -> PrimExpr:
        wide = f.let("wide", f.to(_F64, x))
        k, part = _split(f, wide)
        return _log_edges(f, f.let("log", _log_of(f, k, part, base)), x, 0.0)

    return write


def _log1p(f: _Formula, x: PrimExpr) -> PrimExpr:
    wide = f.let("wide", f.to(_F64, x))
    k, part = _split(f, f.let("more", Add(wide, f.const(1.0, _F64))))
    # Near 0 the sum has lost digits that x still has.
    part = f.let("near", Select(EQ(k, f.const(0, _I64)), wide, part))
    made = f.let("log", _log_of(f, k, part, math.e))
    return Select(EQ(x, f.const(0.0)), x, _log_edges(f, made, x, -1.0))


# -- sine and cosine: the argument is reduced exactly in integers ----------------------------------

# (sin(x) - x) / x**3 and (cos(x) - 1) / x**2 by x**2 for |x| <= pi/4, within 5e-12 and 7e-14
_SIN = (
    -0.16666666641601013,
    0.008333329382894158,
    -0.00019839333861673691,
    2.7183021133060807e-06,
)
_COS = (
    -0.4999999999954449,
    0.04166666656196995,
    -0.0013888881072747442,
    2.479903974701979e-05,
    -2.718000543706926e-07,
)
# The bits of 2/pi after the point, with 32 zeros in front.
_TWO_OVER_PI = (
    0x00000000,
    0xA2F9836E,
    0x4E441529,
    0xFC2757D1,
    0xF534DDC0,
    0xDB629599,
    0x3C439041,
    0xFE5163AB,
)


def _quadrant(f: _Formula, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """q (mod 4) and r with size = q pi/2 + r, |r| <= pi/4: uint32 and float64. `size` is not
    negative.

    Only those 96 bits of 2/pi are multiplied that reach into the last two bits of the quotient
    before the point and the 62 after it.
    """
    bits = f.let("bits", f.bits(_U32, size))
    exponent = f.let("exponent", f.right(bits, 23))
    mantissa = f.let(
        "mantissa", f.to(_U64, f.bit_or(f.bit_and(bits, 0x7FFFFF), f.const(1 << 23, _U32)))
    )
    start = f.let(
        "start",
        Sub(
            f.let(
                "bounded", Select(LT(exponent, f.const(126, _U32)), f.const(126, _U32), exponent)
            ),
            f.const(120, _U32),
        ),
    )
    word = f.let("word", f.right(start, 5))
    shift = f.let("shift", f.to(_U64, f.bit_and(start, 31)))
    words = []
    for k in range(4):
        chosen = f.const(_TWO_OVER_PI[k + 4], _U32)
        for w in (3, 2, 1, 0):
            chosen = Select(EQ(word, f.const(w, _U32)), f.const(_TWO_OVER_PI[k + w], _U32), chosen)
        words.append(f.let(f"word{k}", f.to(_U64, chosen)))
    shifted = []
    for k in range(3):
        pair = f.bit_or(f.left(words[k], 32), words[k + 1])
        shifted.append(f.let(f"part{k}", f.right(call_intrinsic("shift_left", pair, shift), 32)))
    product = Add(
        Add(f.left(Mul(mantissa, shifted[0]), 32), Mul(mantissa, shifted[1])),
        f.right(Mul(mantissa, shifted[2]), 32),
    )
    product = f.let("product", product)
    q = f.let("q", f.right(Add(product, f.const(1 << 61, _U64)), 62))
    rest = f.bits(_I64, Sub(product, f.left(q, 62)))
    r = Mul(f.to(_F64, rest), f.const(math.pi / 2 * 2.0**-62, _F64))
    small = LT(size, f.const(0.785))
    r = f.let("r", Select(small, f.to(_F64, size), r))
    return f.let("quadrant", Select(small, f.const(0, _U32), f.to(_U32, q))), r


def _wave(f: _Formula, x: PrimExpr, turn: int) -> PrimExpr:
    """sin(x + turn pi/2)."""
    size = f.let("size", call_intrinsic("fabs", x))
    q, r = _quadrant(f, size)
    if turn:
        q = f.let("turned", Add(q, f.const(turn, _U32)))
    z = f.let("z", Mul(r, r))
    sine = Add(r, Mul(r, Mul(z, f.polynomial(z, _SIN))))
    cosine = Add(f.const(1.0, _F64), Mul(z, f.polynomial(z, _COS)))
    odd = NE(f.bit_and(q, 1), f.const(0, _U32))
    value = f.to(_F32, Select(odd, cosine, sine))
    sign = f.left(f.bit_and(q, 2), 30)
    if not turn:
        # The sine of -x is -sin(x).
        sign = call_intrinsic("bitwise_xor", sign, f.bit_and(f.bits(_U32, x), 1 << 31))
    signed = f.bits(_F32, call_intrinsic("bitwise_xor", f.bits(_U32, value), sign))
    return Select(LT(size, f.const(math.inf)), signed, f.const(math.nan))


FORMULAS: dict[str, Callable[[_Formula, PrimExpr], PrimExpr]] = {
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
    "tanh": 1.5,
    "erf": 1.5,
    "sin": 0.51,
    "cos": 0.51,
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
    if x.dtype.element is not _F32:
        raise TIRError(f"the formula of {name} is of float32, got {x.dtype}; cast first")
    f = _Formula(x.dtype.lanes)
    return f.close(write(f, f.let("x", x)))
