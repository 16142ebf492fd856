"""Operators of two operands that broadcast as numpy's do: add, power, less, logical_and,
left_shift, ...
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ... import tir
from ...base import submodules
from ...ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Let,
    Max,
    Min,
    Mul,
    Or,
    PrimExpr,
    Select,
    Sub,
    Var,
    const,
)
from ..rules import Ops
from ..struct_info import Expr
from .broadcast import scalar_of
from .families import broadcast_binary
from .infer import ANY, BITS, ELEMENT, FLOAT, INTEGER
from .lower import in_float32
from .meaning import in_wider
from .record import missing

__getattr__ = submodules(__name__)


# -- arithmetic ------------------------------------------------------------------------------------

add = broadcast_binary(
    "add",
    "x1 + x2; integers wrap.",
    numpy=np.add,
    scalar=Add,
    grad=lambda ops, x1, x2, y, gy: (gy, gy),
)
subtract = broadcast_binary(
    "subtract",
    "x1 - x2; integers wrap.",
    numpy=np.subtract,
    scalar=Sub,
    grad=lambda ops, x1, x2, y, gy: (gy, -gy),
)
multiply = broadcast_binary(
    "multiply",
    "x1 * x2; integers wrap.",
    numpy=np.multiply,
    scalar=Mul,
    grad=lambda ops, x1, x2, y, gy: (gy * x2, gy * x1),
)


def _divide(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    if np.asarray(x1).dtype.kind == "f":
        return np.divide(x1, x2)
    down = np.floor_divide(x1, x2)
    remainder = np.mod(x1, x2)
    up = (remainder != 0) & ((np.asarray(x1) < 0) != (np.asarray(x2) < 0))
    return down + up.astype(down.dtype)


divide = broadcast_binary(
    "divide",
    "x1 / x2. Of integers, the quotient rounded toward zero; 0 where x2 is 0.",
    numpy=_divide,
    scalar=Div,
    grad=lambda ops, x1, x2, y, gy: (gy / x2, -gy * y / x2),
)


def _floor_mod(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if not a.dtype.is_float:
        return FloorMod(a, b)
    zero = const(0.0, a.dtype)
    rest = tir.fmod(a, b)
    other_sign = NE(LT(b, zero), LT(rest, zero))
    nonzero = Select(other_sign, Add(rest, b), rest)
    return Select(EQ(rest, zero), tir.copysign(zero, b), nonzero)


def _floor_divide(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    if not a.dtype.is_float:
        return FloorDiv(a, b)
    # By way of the remainder, so that 1.0 // 0.1 is 9: floor of the rounded quotient would be 10.
    zero, one = const(0.0, a.dtype), const(1.0, a.dtype)
    rest = tir.fmod(a, b)
    whole: PrimExpr = Div(Sub(a, rest), b)
    other_sign = And(NE(rest, zero), NE(LT(b, zero), LT(rest, zero)))
    whole = Select(other_sign, Sub(whole, one), whole)
    down = tir.floor(whole)
    near = Select(GT(Sub(whole, down), const(0.5, a.dtype)), Add(down, one), down)
    near = Select(EQ(whole, zero), tir.copysign(zero, Div(a, b)), near)
    return Select(EQ(b, zero), Div(a, b), near)


floor_divide = broadcast_binary(
    "floor_divide",
    "x1 / x2 rounded down; 0 where an integer x2 is 0.",
    numpy=np.floor_divide,
    scalar=in_float32(_floor_divide),
    grad=lambda ops, x1, x2, y, gy: (None, None),
)
floor_mod = broadcast_binary(
    "floor_mod",
    "The remainder of floor_divide: its sign is that of x2; 0 where an integer x2 is 0.",
    numpy=np.mod,
    scalar=in_float32(_floor_mod),
    grad=lambda ops, x1, x2, y, gy: (gy, -gy * ops.floor_divide(x1, x2)),
)
mod = broadcast_binary(
    "mod",
    "The remainder of a division rounded toward zero, as C's: its sign is that of x1; "
    "0 where an integer x2 is 0.",
    numpy=np.fmod,
    scalar=lambda a, b: tir.fmod(a, b) if a.dtype.is_float else tir.truncmod(a, b),
    grad=lambda ops, x1, x2, y, gy: (gy, -gy * ops.trunc(x1 / x2)),
)


def _integer_power(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    base, left = (np.array(a) for a in np.broadcast_arrays(x1, x2))
    kind = base.dtype.type
    result = np.ones_like(base)
    negative = left < 0
    odd = (left & kind(1)) != 0
    at_ones = np.where(base == 1, kind(1), kind(0))
    if base.dtype.kind == "i":
        at_ones = np.where(base == -1, np.where(odd, kind(-1), kind(1)), at_ones)
    left = np.where(negative, kind(0), left)
    power_of_two = base
    while left.any():
        result = np.where((left & kind(1)) != 0, result * power_of_two, result)
        power_of_two = power_of_two * power_of_two
        left = left >> kind(1)
    return np.where(negative, at_ones, result)


def _power_meaning(x1: np.ndarray, x2: np.ndarray) -> np.ndarray:
    if np.asarray(x1).dtype.kind != "f":
        return _integer_power(x1, x2)
    # numpy makes a square root of an exponent of 0.5 that is the same for all, which has other
    # signs and infinities than a power: the exponents are written out.
    base, exponent = (np.array(a).reshape(-1) for a in np.broadcast_arrays(x1, x2))
    result: np.ndarray = np.power(base, exponent).reshape(
        np.broadcast_shapes(np.shape(x1), np.shape(x2))
    )
    return result


# Exponents for which a product is as right as the function, and much faster.
_SMALL_POWERS: dict[float, Callable[[PrimExpr], PrimExpr]] = {
    -1.0: lambda x: Div(const(1.0, x.dtype), x),
    1.0: lambda x: x,
    2.0: lambda x: Mul(x, x),
    3.0: lambda x: Mul(Mul(x, x), x),
}


def _power(x: PrimExpr, e: PrimExpr) -> PrimExpr:
    if x.dtype.is_float:
        written = _SMALL_POWERS.get(e.value) if isinstance(e, FloatImm) else None
        return tir.pow(x, e) if written is None else in_float32(written)(x)
    dtype = x.dtype
    zero, one = const(0, dtype), const(1, dtype)
    bits = dtype.bits - dtype.is_signed
    if isinstance(e, IntImm):
        bits = max(0, e.value).bit_length()
    # Square and multiply, one bit of the exponent after the other; named, so that nothing is
    # computed twice.
    named: list[tuple[Var, PrimExpr]] = []
    result, square = one, x
    for k in range(bits):
        if k:
            square = _named(named, f"square{k}", Mul(square, square))
        bit = tir.bitwise_and(tir.shift_right(e, const(k, dtype)), one)
        result = _named(named, f"power{k}", Select(NE(bit, zero), Mul(result, square), result))
    if dtype.is_signed:
        minus = const(-1, dtype)
        odd = NE(tir.bitwise_and(e, one), zero)
        inverse = Select(EQ(x, one), one, Select(EQ(x, minus), Select(odd, minus, one), zero))
        result = Select(LT(e, zero), inverse, result)
    for var, value in reversed(named):
        result = Let(var, value, result)
    return result


def _named(named: list[tuple[Var, PrimExpr]], name: str, value: PrimExpr) -> Var:
    var = Var(name, value.dtype)
    named.append((var, value))
    return var


def _power_grad(ops: Ops, x1: Any, x2: Any, y: Expr, gy: Expr) -> tuple[Any, Any]:
    slope = ops.where(ops.equal(x2, 0.0), 0.0, x2 * ops.power(x1, x2 - 1.0))
    g2 = None
    if scalar_of(x2) is None:
        # 0 to the power of anything positive does not move with the exponent.
        g2 = gy * ops.where(ops.equal(x1, 0.0), 0.0, y * ops.log(x1))
    return gy * slope, g2


power = broadcast_binary(
    "power",
    "x1 to the power x2. Of integers, wrapped; with a negative exponent 0, "
    "but for the bases 1 and -1.",
    numpy=_power_meaning,
    scalar=_power,
    grad=_power_grad,
)


def _takes_more(f: Callable[[PrimExpr, PrimExpr], PrimExpr], of_bools: Any) -> Any:
    return lambda a, b: of_bools(a, b) if a.dtype.is_bool else f(a, b)


minimum = broadcast_binary(
    "minimum",
    "The lesser of x1 and x2; NaN if one is.",
    numpy=np.minimum,
    scalar=_takes_more(Min, And),
    takes=ANY,
    grad=lambda ops, x1, x2, y, gy: (
        ops.where(ops.less_equal(x1, x2), gy, 0.0),
        ops.where(ops.less_equal(x1, x2), 0.0, gy),
    ),
)
maximum = broadcast_binary(
    "maximum",
    "The greater of x1 and x2; NaN if one is.",
    numpy=np.maximum,
    scalar=_takes_more(Max, Or),
    takes=ANY,
    grad=lambda ops, x1, x2, y, gy: (
        ops.where(ops.greater_equal(x1, x2), gy, 0.0),
        ops.where(ops.greater_equal(x1, x2), 0.0, gy),
    ),
)


def _logaddexp(a: PrimExpr, b: PrimExpr) -> PrimExpr:
    # Equal operands apart: the difference of two equal infinities is NaN.
    rest = tir.log1p(tir.exp(Sub(const(0.0, a.dtype), tir.abs(Sub(a, b)))))
    return Select(EQ(a, b), Add(a, const(np.log(2.0), a.dtype)), Add(Max(a, b), rest))


logaddexp = broadcast_binary(
    "logaddexp",
    "log(exp(x1) + exp(x2)), without overflow on the way.",
    numpy=in_wider(np.logaddexp),
    scalar=in_float32(_logaddexp),
    takes=FLOAT,
    grad=lambda ops, x1, x2, y, gy: (gy * ops.exp(x1 - y), gy * ops.exp(x2 - y)),
)
# TVM's later name.
log_add_exp = logaddexp

# -- bits ------------------------------------------------------------------------------------------

_INTEGERS = missing("integers have no gradient")


def _of_bits(
    name: str, meaning: str, numpy: Any, scalar: Callable[..., PrimExpr], takes: Any = BITS
) -> Any:
    return broadcast_binary(name, meaning, numpy=numpy, scalar=scalar, takes=takes, grad=_INTEGERS)


left_shift = _of_bits(
    "left_shift",
    "x1 shifted left by x2 bits; 0 if that is negative or the width and more.",
    np.left_shift,
    tir.shift_left,
    INTEGER,
)
right_shift = _of_bits(
    "right_shift",
    "x1 shifted right by x2 bits, keeping its sign.",
    np.right_shift,
    tir.shift_right,
    INTEGER,
)
bitwise_and = _of_bits("bitwise_and", "Bit by bit and.", np.bitwise_and, tir.bitwise_and)
bitwise_or = _of_bits("bitwise_or", "Bit by bit or.", np.bitwise_or, tir.bitwise_or)
bitwise_xor = _of_bits("bitwise_xor", "Bit by bit exclusive or.", np.bitwise_xor, tir.bitwise_xor)

# -- questions -------------------------------------------------------------------------------------

_BOOLS = missing("the result is no float")


def _question(
    name: str,
    meaning: str,
    numpy: Any,
    scalar: Callable[[PrimExpr, PrimExpr], PrimExpr],
    takes: Any = ANY,
) -> Any:
    return broadcast_binary(
        name, meaning, numpy=numpy, scalar=scalar, takes=takes, gives="bool", grad=_BOOLS
    )


equal = _question("equal", "Whether x1 == x2: a bool.", np.equal, EQ, ELEMENT)
not_equal = _question("not_equal", "Whether x1 != x2: a bool.", np.not_equal, NE, ELEMENT)
less = _question("less", "Whether x1 < x2: a bool.", np.less, LT)
less_equal = _question("less_equal", "Whether x1 <= x2: a bool.", np.less_equal, LE)
greater = _question("greater", "Whether x1 > x2: a bool.", np.greater, GT)
greater_equal = _question("greater_equal", "Whether x1 >= x2: a bool.", np.greater_equal, GE)


def _truth(x: PrimExpr) -> PrimExpr:
    return x if x.dtype.is_bool else NE(x, const(0, x.dtype))


logical_and = _question(
    "logical_and",
    "Whether neither x1 nor x2 is zero or false: a bool.",
    np.logical_and,
    lambda a, b: And(_truth(a), _truth(b)),
)
logical_or = _question(
    "logical_or",
    "Whether not both x1 and x2 are zero or false: a bool.",
    np.logical_or,
    lambda a, b: Or(_truth(a), _truth(b)),
)
logical_xor = _question(
    "logical_xor",
    "Whether just one of x1 and x2 is zero or false: a bool.",
    np.logical_xor,
    lambda a, b: NE(_truth(a), _truth(b)),
)
