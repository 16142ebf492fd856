"""What the formulas of elementary functions are written with: `Formula`, and the steps that several
of them share. See `tir/math.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from ..base import DataType
from ..ir import (
    EQ,
    GT,
    LT,
    Add,
    Div,
    Let,
    Mul,
    PrimExpr,
    Select,
    Sub,
    Var,
    call_intrinsic,
    cast,
    const,
)

F32 = DataType("float32")
F64 = DataType("float64")
I32 = DataType("int32")
I64 = DataType("int64")
U32 = DataType("uint32")
U64 = DataType("uint64")


class Formula:
    """Writes a formula step by step; each named value is computed once.

    fused  whether the machine has `fma` as one operation: formulas may be shorter then
    """

    def __init__(self, lanes: int, fused: bool = False) -> None:
        self.lanes = lanes
        self.fused = fused
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

    def const(self, value: float, dtype: DataType = F32) -> PrimExpr:
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
            total = self.muladd(total, x, self.like(c, x))
        return total

    def muladd(self, x: PrimExpr, y: PrimExpr, z: PrimExpr) -> PrimExpr:
        """x * y + z, rounded once or twice: both are within the bounds above."""
        return call_intrinsic("muladd", x, y, z)

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
ROUND = 12582912.0
# ln 2 in two parts; the first has few bits, so that its product with an integer below 2**9 is
# exact.
LN2_HIGH, LN2_LOW = 0.693359375, -2.12194440054690583e-4
# (exp(r) - 1 - r) / r**2 for |r| <= ln(2) / 2, within 3.2e-9 of exp(r)
EXP = (
    0.4999999403953552,
    0.1666652113199234,
    0.04166826605796814,
    0.008368677459657192,
    0.0013820735039189458,
)


def exp_parts(
    f: Formula, x: PrimExpr, times: int, bias: int, coefficients: tuple[float, ...], scale: float
) -> tuple[PrimExpr, PrimExpr]:
    """exp(r) scale and 2**(n + bias), where x = times n ln 2 + r and |r| is least."""
    # One step rounds x / ln 2 to an integer: how it rounds halves does not matter. Its low bits
    # are those of n with the bias of exponents, so that a shift makes the power.
    log2_e, to_integer = f.const(1.0 / (times * math.log(2.0))), f.const(ROUND + 127 + bias)
    shifted = f.let("shifted", f.muladd(x, log2_e, to_integer))
    whole = f.let("whole", Sub(shifted, to_integer))
    high = f.muladd(whole, f.const(-LN2_HIGH * times), x)
    r = f.let("r", f.muladd(whole, f.const(-LN2_LOW * times), high))
    p = f.polynomial(r, [c * scale for c in (1.0, 1.0, *coefficients)])
    return p, f.bits(F32, f.left(f.bits(I32, shifted), 23))


# The same constants for float64: exp(r) within 6e-18.
_ROUND_DOUBLE = 6755399441055744.0
_LN2_HIGH_DOUBLE, _LN2_LOW_DOUBLE = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_EXP_DOUBLE = (
    0.5,
    0.16666666666666663,
    0.041666666666666664,
    0.008333333333335087,
    0.0013888888888889984,
    0.00019841269838352223,
    2.4801587299764907e-05,
    2.7557321304589246e-06,
    2.755732052360801e-07,
    2.505138731608888e-08,
    2.0876306553967653e-09,
    1.6178923071634547e-10,
    1.1545640683213653e-11,
)


def exp_double(f: Formula, x: PrimExpr) -> PrimExpr:
    """exp(x) of a float64, within 1.5 units in the last place."""

    def c(value: float) -> PrimExpr:
        return f.const(value, F64)

    bounded = f.let("bounded", f.at_least(f.at_most(x, 710.0), -746.0))
    to_integer = c(_ROUND_DOUBLE + 1023)
    shifted = f.let("shifted", f.muladd(bounded, c(0.5 / math.log(2.0)), to_integer))
    whole = f.let("whole", Sub(shifted, to_integer))
    high = f.muladd(whole, c(-2 * _LN2_HIGH_DOUBLE), bounded)
    r = f.let("r", f.muladd(whole, c(-2 * _LN2_LOW_DOUBLE), high))
    p = f.polynomial(r, (1.0, 1.0, *_EXP_DOUBLE))
    power = f.let("power", f.bits(F64, f.left(f.bits(I64, shifted), 52)))
    return f.let("exp", Mul(Mul(p, power), power))


# -- logarithms: in float64, where the arguments and their logarithms are normal numbers -----------

# (log((1 + s) / (1 - s)) / s - 2) / s**2 by s**2 for |s| <= 0.172, within 4.9e-12 of the logarithm
_LOG = (0.6666666562226001, 0.4000034090620333, 0.2853691923296881, 0.23589992355416273)
_SQRT_HALF_BITS = 0x3FE6A09E667F3BCD


def split_power(f: Formula, x: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """k and f of a positive float64 x = 2**k (1 + f), where 1 + f lies between the roots of 1/2 and
    of 2.
    """
    moved = f.let("moved", Sub(f.bits(I64, x), f.const(_SQRT_HALF_BITS, I64)))
    k = f.let("k", f.right(moved, 52))
    scaled = Sub(f.bits(I64, x), f.left(k, 52))
    return k, f.let("part", Sub(f.bits(F64, scaled), f.const(1.0, F64)))


def natural(f: Formula, part: PrimExpr) -> PrimExpr:
    """The natural logarithm of 1 + part, a float64 between the roots of 1/2 and of 2."""
    s = f.let("s", Div(part, Add(part, f.const(2.0, F64))))
    z = f.let("z", Mul(s, s))
    return Mul(s, Add(f.const(2.0, F64), Mul(z, f.polynomial(z, _LOG))))


# -- angles: the argument is reduced exactly in integers -------------------------------------------

# (sin(x) - x) / x**3 and (cos(x) - 1) / x**2 by x**2 for |x| <= pi/4, within 5e-12 and 7e-14
SIN = (
    -0.16666666641601013,
    0.008333329382894158,
    -0.00019839333861673691,
    2.7183021133060807e-06,
)
COS = (
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


def quadrant(f: Formula, size: PrimExpr) -> tuple[PrimExpr, PrimExpr]:
    """q (mod 4) and r with size = q pi/2 + r, |r| <= pi/4: uint32 and float64. `size` is not
    negative.

    Only those 96 bits of 2/pi are multiplied that reach into the last two bits of the quotient
    before the point and the 62 after it.
    """
    bits = f.let("bits", f.bits(U32, size))
    exponent = f.let("exponent", f.right(bits, 23))
    mantissa = f.let(
        "mantissa", f.to(U64, f.bit_or(f.bit_and(bits, 0x7FFFFF), f.const(1 << 23, U32)))
    )
    start = f.let(
        "start",
        Sub(
            f.let("bounded", Select(LT(exponent, f.const(126, U32)), f.const(126, U32), exponent)),
            f.const(120, U32),
        ),
    )
    word = f.let("word", f.right(start, 5))
    shift = f.let("shift", f.to(U64, f.bit_and(start, 31)))
    words = []
    for k in range(4):
        chosen = f.const(_TWO_OVER_PI[k + 4], U32)
        for w in (3, 2, 1, 0):
            chosen = Select(EQ(word, f.const(w, U32)), f.const(_TWO_OVER_PI[k + w], U32), chosen)
        words.append(f.let(f"word{k}", f.to(U64, chosen)))
    shifted = []
    for k in range(3):
        pair = f.bit_or(f.left(words[k], 32), words[k + 1])
        shifted.append(f.let(f"part{k}", f.right(call_intrinsic("shift_left", pair, shift), 32)))
    product: PrimExpr = Add(
        Add(f.left(Mul(mantissa, shifted[0]), 32), Mul(mantissa, shifted[1])),
        f.right(Mul(mantissa, shifted[2]), 32),
    )
    product = f.let("product", product)
    q = f.let("q", f.right(Add(product, f.const(1 << 61, U64)), 62))
    rest = f.bits(I64, Sub(product, f.left(q, 62)))
    r: PrimExpr = Mul(f.to(F64, rest), f.const(math.pi / 2 * 2.0**-62, F64))
    small = LT(size, f.const(0.785))
    r = f.let("r", Select(small, f.to(F64, size), r))
    return f.let("quadrant", Select(small, f.const(0, U32), f.to(U32, q))), r
