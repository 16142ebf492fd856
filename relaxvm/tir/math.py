"""Elementary functions of float32 (and exp of float64) as formulas of the scalar language, for
scalars and for vectors.

    exp  exp2  expm1  log  log2  log10  log1p  tanh  sigmoid  erf  sin  cos
    and those of `tir/math_arcs.py`: tan  asin  acos  atan  sinh  cosh  asinh  acosh  atanh
    and of `tir/math_gates.py`: gelu  gelu_tanh  silu  mish

There are no branches and no tables, so a loop over an array can be vectorised, which calls of the C
library prevent. Largest error over all float32, in units in the last place of the exact result:

    exp     1.8     log    0.51     sigmoid  2.4     sin  0.51
    exp2    1.2     log2   0.51     tanh     3.0     cos  0.51
    expm1   1.2     log10  0.51     erf      3.4
                    log1p  0.51    math_arcs.py 0.51    math_gates.py 4.0 (mish 4.3)

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
    LT,
    NE,
    Add,
    Broadcast,
    Div,
    FloatImm,
    Min,
    Mul,
    PrimExpr,
    Select,
    Sub,
    call_intrinsic,
)
from .math_arcs import ARC_BOUNDS, ARCS
from .math_gates import GATE_BOUNDS, GATES, GATES_DOUBLE
from .math_steps import (
    COS,
    EXP,
    F32,
    F64,
    I32,
    I64,
    LN2_HIGH,
    LN2_LOW,
    ROUND,
    SIN,
    U32,
    Formula,
    exp_double,
    exp_parts,
    natural,
    quadrant,
    split_power,
)

# -- exponentials ----------------------------------------------------------------------------------

_ROUND_BITS = 0x4B400000
# (exp(r) - 1 - r) / r**2 for |r| <= ln(2), within 1.5e-8
_EXP_WIDE = (
    0.5000003576278687,
    0.166666179895401,
    0.041661228984594345,
    0.008335934951901436,
    0.0014104777947068214,
    0.00019629749294836074,
)
# How many powers of two below the normal ones there are subnormal numbers for, and one.
_SPARE = 24
# The largest argument, rounded down, whose power leaves room for them.
_LOW = 71.0
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
    shifted = f.let("shifted", Add(x, f.const(ROUND)))
    whole = f.let("whole", Sub(shifted, f.const(ROUND)))
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
    high = f.let("high", Sub(x, Mul(whole, f.const(LN2_HIGH))))
    low = f.let("low", Mul(whole, f.const(LN2_LOW)))
    r = f.let("r", Sub(high, low))
    return n, r, f.let("r_rest", Sub(Sub(high, r), low))


def _exp_of(f: Formula, x: PrimExpr) -> PrimExpr:
    """exp(x); `x` is a name."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, 89.0), -104.0))
    # 2**(2 n) may not be a normal number; its root is.
    p, power = exp_parts(f, bounded, 2, 0, _EXP_WIDE, 1.0)
    power = f.let("power", power)
    return f.let("exp", Mul(Mul(p, power), power))


def _exp_low(f: Formula, x: PrimExpr) -> PrimExpr:
    """exp(x) of a name `x` that is at most `_LOW` (or NaN): in fewer steps."""
    bounded = f.let("bounded", f.at_least(x, -104.7))
    # The power is so much too large that it is normal, or 0, where the result is not; the
    # polynomial is as much too small.
    p, power = exp_parts(f, bounded, 1, _SPARE, EXP, 2.0**-_SPARE)
    return f.let("exp", Mul(p, power))


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
    curve = f.let("curve", Add(Mul(Mul(r, r), f.polynomial(r, EXP)), rest))
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
    # From 17 on the nearest number is 1. Below 0 the quotient has all digits of exp.
    e = _exp_low(f, f.let("most", f.at_most(x, 30.0)))
    return Div(e, Add(e, f.const(1.0)))


# (exp(2 r) - 1 - 2 r) / r**2 for |r| <= ln(2) / 4, within 1.4e-8 of exp(2 r) - 1
_TANH = (
    1.9999998807907104,
    1.3333237171173096,
    0.6666789650917053,
    0.26772037148475647,
    0.08877220749855042,
)


def _tanh(f: Formula, x: PrimExpr) -> PrimExpr:
    """h / (h + 1) with h = (exp(2 x) - 1) / 2, which never passes 1."""
    bounded = f.let("bounded", f.at_least(f.at_most(x, 20.0), -20.0))
    # x = n ln(2) / 2 + r. Where n is not 0, 1 is far from exp(2 x), or exp(2 x) is large: r need
    # not be exact.
    to_integer = f.const(ROUND + 126)
    shifted = f.let("shifted", f.muladd(bounded, f.const(2.0 / math.log(2.0)), to_integer))
    whole = Sub(shifted, to_integer)
    r = f.let("r", f.muladd(whole, f.const(-math.log(2.0) / 2), bounded))
    curve = Mul(r, f.polynomial(r, (2.0, *_TANH)))
    half = f.let("half", f.bits(F32, f.left(f.bits(I32, shifted), 23)))
    # 2**n / 2 (exp(2 r) - 1) - (1 - 2**n) / 2: with these signs a zero keeps its own.
    lack = Mul(Sub(f.const(0.5), half), f.const(-1.0))
    h = f.let("h", f.muladd(half, curve, lack))
    return Div(h, Add(h, f.const(1.0)))


# erf(x) / x - 1/4 as a quotient of polynomials of x**2 for |x| <= 3.94, within 2e-8 of erf(x) / x
_ERF_ABOVE = (
    0.7027032971382141,
    0.05238264426589012,
    0.019384467974305153,
    2.9820110285072587e-05,
    -5.794635853817454e-06,
    -5.95629762756289e-06,
)
_ERF_BELOW = (
    0.800000011920929,
    0.4021989405155182,
    0.09152624756097794,
    0.012020858004689217,
    0.000934351235628128,
    3.0333612812682986e-05,
)


def _erf(f: Formula, x: PrimExpr) -> PrimExpr:
    # From 3.92 on the nearest number is 1. Near it, x / 4 is nearly all there is, and exact: what
    # the quotient loses does not count, and the sum never passes 1.
    bounded = f.let("bounded", f.at_least(f.at_most(x, 3.94), -3.94))
    square = f.let("square", Mul(bounded, bounded))
    above = Mul(bounded, f.polynomial(square, _ERF_ABOVE))
    return f.muladd(bounded, f.const(0.25), Div(above, f.polynomial(square, _ERF_BELOW)))


# -- logarithms: in float64, where the arguments and their logarithms are normal numbers -----------


def _log_of(f: Formula, k: PrimExpr, part: PrimExpr, base: float) -> PrimExpr:
    """The logarithm of 2**k (1 + part) to `base`, in float32."""
    near = natural(f, part)
    exponent = f.to(F64, f.to(I32, k))
    scale = 1.0 / math.log(base)
    if base == math.e:
        total = Add(Mul(exponent, f.const(math.log(2.0), F64)), near)
    else:
        whole = Mul(exponent, f.const(math.log(2.0) * scale, F64))
        total = Add(whole, Mul(near, f.const(scale, F64)))
    return f.to(F32, total)


def _log_edges(f: Formula, value: PrimExpr, x: PrimExpr, zero_at: float) -> PrimExpr:
    """`value` but for infinity and NaN, the pole at `zero_at`, and what lies below it."""
    infinity = f.const(math.inf)
    pole = f.const(zero_at)
    value = Select(LT(x, infinity), value, x)
    value = Select(EQ(x, pole), f.const(-math.inf), value)
    return Select(LT(x, pole), f.const(math.nan), value)


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
    value = f.let("log", _log_of(f, k, part, math.e))
    return Select(EQ(x, f.const(0.0)), x, _log_edges(f, value, x, -1.0))


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
    **GATES,
}
"""Intrinsic -> how its formula is written."""


DOUBLES: dict[str, Callable[[Formula, PrimExpr], PrimExpr]] = {"exp": exp_double, **GATES_DOUBLE}
"""Those of float64: within 1.5 units in the last place. The C library does the others."""


BOUNDS: dict[str, float] = {
    "exp": 1.8,
    "exp2": 1.2,
    "expm1": 1.2,
    "log": 0.51,
    "log2": 0.51,
    "log10": 0.51,
    "log1p": 0.51,
    "sigmoid": 2.4,
    "tanh": 3.0,
    "erf": 3.4,
    "sin": 0.51,
    "cos": 0.51,
    **ARC_BOUNDS,
    **GATE_BOUNDS,
}
"""Intrinsic -> largest error of its formula, in units in the last place."""


def formula(name: str, x: PrimExpr, fused: bool = False) -> PrimExpr:
    """The formula of the function `name` (see `FORMULAS`) of the float32 expression `x`, a scalar
    or vector; or of a float64 one, for those in `DOUBLES`.

    fused  whether the machine has `fma` as one operation: gelu and gelu_tanh are shorter then

    exp of ``min(x, c)`` with a constant c of at most 71 is shorter than that of any x.

    Raises TIRError for another function or dtype.
    """
    write = FORMULAS.get(name)
    if write is None:
        raise TIRError(f"there is no formula for {name}; there are {', '.join(FORMULAS)}")
    if x.dtype.element is F64 and name in DOUBLES:
        f = Formula(x.dtype.lanes, fused)
        return f.close(DOUBLES[name](f, f.let("x", x)))
    if x.dtype.element is not F32:
        raise TIRError(f"the formula of {name} is of float32, got {x.dtype}; cast first")
    f = Formula(x.dtype.lanes, fused)
    if name == "exp" and isinstance(x, Min):
        limit = x.b.value if isinstance(x.b, Broadcast) else x.b
        if isinstance(limit, FloatImm) and limit.value <= _LOW:
            most = f.let("most", f.at_most(f.let("x", x.a), limit.value))
            return f.close(_exp_low(f, most))
    return f.close(write(f, f.let("x", x)))
