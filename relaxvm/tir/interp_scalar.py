"""What each operation of the scalar language means on values.

A lane value is
    int        for integer dtypes, always in the range of the dtype
    bool       for bool
    np.float16, np.float32, np.float64    for the floats of these names
    np.float32 for bfloat16 and 8-bit floats, always a value that these have
and a vector value is a list of lane values. `lane_*` functions look an operation up for given
dtypes and return a plain function of lane values. Numpy's warnings must be off while these
functions run.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from ..base import (
    DataType,
    TIRError,
    bfloat16_to_float32,
    bits_to_values,
    to_numpy_dtype,
    values_to_bits,
)
from ..ir import (
    EQ,
    GE,
    GT,
    INT_MEANING,
    LE,
    LT,
    NE,
    Add,
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    Max,
    Min,
    Mod,
    Mul,
    Sub,
    saturate,
    trunc_div,
    trunc_mod,
    wrap_int,
)
from .elementary import ELEMENTARY

Lane = Any
Meaning = Callable[..., Lane]

_pack_f32, _unpack_u32 = struct.Struct("<f").pack, struct.Struct("<I").unpack
_pack_u32, _unpack_f32 = struct.Struct("<I").pack, struct.Struct("<f").unpack
_INF32 = np.float32(np.inf)


# -- bfloat16 and rounding -------------------------------------------------------------------------


def bfloat16_bits(value: np.float32) -> int:
    """The 16 bits of the bfloat16 nearest to `value` (ties to even); NaN stays NaN."""
    (bits,) = _unpack_u32(value.tobytes())
    if bits & 0x7FFFFFFF > 0x7F800000:
        return int(bits >> 16 | 0x40)
    return int((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)


@functools.cache
def bfloat16_values() -> list[np.float32]:
    """The value of every bfloat16, by its bits."""
    return list(bfloat16_to_float32(np.arange(65536, dtype=np.uint16)))


def lane_bits(value: Any, dtype: DataType) -> int:
    """The bits of the nearest bfloat16 or 8-bit float."""
    if dtype.is_bfloat:
        return bfloat16_bits(value)
    number = int(value) if dtype.is_int else float(value)
    return int(values_to_bits(np.asarray(number), dtype).view(np.uint8))


def lane_of_bits(bits: int, dtype: DataType) -> Any:
    """The value of the bits of a type that numpy lacks."""
    if dtype.is_bfloat:
        return bfloat16_values()[bits]
    value = bits_to_values(np.asarray(bits, np.uint8), dtype)
    return int(value) if dtype.is_int else np.float32(value)


def _small_float_of(value: Any, dtype: DataType) -> Any:
    if isinstance(value, int) and abs(value) >> 53 and value & 0xFFF:
        value = (value & ~0xFFF) | 0x1000  # so that a double holds it, and is not rounded to a tie
    return lane_of_bits(lane_bits(value, dtype), dtype)


def _round_bfloat16(value: np.float32) -> np.float32:
    return bfloat16_values()[bfloat16_bits(value)]


def _bfloat16_of(value: Any) -> np.float32:
    """A Python int or a double rounded to bfloat16 once.

    The way by float32 would round twice; rounding to odd there keeps what the second rounding needs
    to know.
    """
    if isinstance(value, (int, float)):
        try:
            single = np.float32(value)
        except OverflowError:
            single = np.float32(math.inf if value > 0 else -math.inf)
        near = float(single)
        if math.isfinite(near) and near != value:
            bits = _unpack_u32(single.tobytes())[0]
            if not bits & 1:
                single = np.nextafter(single, _INF32 if value > near else -_INF32)
        return _round_bfloat16(single)
    return _round_bfloat16(value)


def _int_to_float32(value: int) -> np.float32:
    # numpy's conversions from 64-bit integers round once; by way of a double it would be twice.
    return np.float32(np.int64(value) if value < 1 << 63 else np.uint64(value))


def _is_bfloat(dtype: DataType) -> bool:
    return dtype.is_bfloat


def _numpy_float(dtype: DataType) -> Any:
    return {16: np.float16, 32: np.float32, 64: np.float64}[dtype.bits]


def rounder(dtype: DataType) -> Meaning:
    """The function that rounds a double once to the floating `dtype`."""
    if dtype.is_small_float:
        return lambda v: _small_float_of(v, dtype)
    return (lambda v: _bfloat16_of(float(v))) if _is_bfloat(dtype) else _numpy_float(dtype)


def lane_of_number(value: Any, dtype: DataType) -> Lane:
    """The lane value of a number that `dtype` can hold, or (floats) that is rounded to it."""
    if dtype.is_bool:
        return bool(value)
    if dtype.is_int:
        return int(value)
    if dtype.is_small_float:
        return _small_float_of(value, dtype)
    return _bfloat16_of(float(value)) if _is_bfloat(dtype) else _numpy_float(dtype)(value)


def to_numpy_value(value: Any, dtype: DataType) -> Any:
    """A scalar or vector value as numpy has it: a scalar or 1-D array of the exact dtype (bfloat16:
    float32).
    """
    if dtype.kind in ("handle", "void"):
        return value
    if dtype.is_bits:
        kind = np.dtype(f"{dtype.kind}8" if dtype.is_int else "float32")
    else:
        kind = to_numpy_dtype(dtype.element)
    return np.array(value, dtype=kind) if dtype.lanes > 1 else kind.type(value)


# -- binary operations -----------------------------------------------------------------------------


def _float_min(a: Any, b: Any) -> Any:
    return a if a < b or a != a else b


def _float_max(a: Any, b: Any) -> Any:
    return a if a > b or a != a else b


def _floor_div(a: Any, b: Any) -> Any:
    return np.floor(a / b)


_FLOAT_BINARY: dict[type, Meaning] = {
    Add: operator.add,
    Sub: operator.sub,
    Mul: operator.mul,
    Div: operator.truediv,
    FloorDiv: _floor_div,
    Min: _float_min,
    Max: _float_max,
}
_FLOAT_COMPARE: dict[type, Meaning] = {kind: INT_MEANING[kind] for kind in (EQ, NE, LT, LE, GT, GE)}
_NEVER_WRAPS = (FloorMod, Mod, Min, Max)


@functools.cache
def lane_binary(cls: type, dtype: DataType) -> Meaning:
    """The operation `cls` on two lanes of the element type `dtype`. Raises TIRError if there is
    none.
    """
    if issubclass(cls, CompareExpr):
        return _comparison(cls, dtype)
    if dtype.is_int:
        return _int_operation(cls, dtype)
    if dtype.is_bool and cls in (Min, Max):
        return min if cls is Min else max
    if not dtype.is_float:
        raise TIRError(f"{cls.__name__} of {dtype} has no meaning; cast to an integer type first")
    if cls is FloorMod:
        return _floor_mod(dtype)
    if cls not in _FLOAT_BINARY:
        raise TIRError(f"{cls.__name__} of {dtype} has no meaning; use T.fmod for floats")
    meaning = _FLOAT_BINARY[cls]
    if _is_bfloat(dtype) and cls not in (Min, Max):
        if cls is FloorDiv:
            return lambda a, b: _round_bfloat16(np.floor(_round_bfloat16(a / b)))
        return lambda a, b: _round_bfloat16(meaning(a, b))
    return meaning


def _comparison(cls: type, dtype: DataType) -> Meaning:
    if dtype.is_float:
        meaning = _FLOAT_COMPARE[cls]
        return lambda a, b: bool(meaning(a, b))
    if dtype.kind in ("handle", "void"):
        raise TIRError(f"{cls.__name__} of {dtype}s has no meaning")
    return _FLOAT_COMPARE[cls]


def _int_operation(cls: type, dtype: DataType) -> Meaning:
    meaning: Meaning = INT_MEANING[cls]
    if cls in _NEVER_WRAPS:
        return meaning
    low, high = dtype.min_value, dtype.max_value

    def run(a: int, b: int) -> int:
        value = meaning(a, b)
        return value if low <= value <= high else wrap_int(value, dtype)

    return run


def _floor_mod(dtype: DataType) -> Meaning:
    divide = lane_binary(FloorDiv, dtype)
    multiply, subtract = lane_binary(Mul, dtype), lane_binary(Sub, dtype)
    return lambda a, b: subtract(a, multiply(b, divide(a, b)))


# -- casts -----------------------------------------------------------------------------------------


@functools.cache
def lane_cast(source: DataType, to: DataType) -> Meaning:
    """The conversion of one lane from the element type `source` to `to`."""
    if source is to:
        return lambda v: v
    if to.is_bool:
        return lambda v: bool(v != 0)
    if to.is_int:
        if source.is_float:
            return lambda v: saturate(float(v), to)
        return lambda v: wrap_int(int(v), to)
    if to.is_small_float:
        return lambda v: _small_float_of(v, to)
    if source.is_int or source.is_bool:
        if _is_bfloat(to):
            return lambda v: _bfloat16_of(int(v))
        if to.bits == 32:
            return lambda v: _int_to_float32(int(v))
        if to.bits == 16:
            # Every integer in the range of float16 is exact in a double; larger ones are infinite
            # either way.
            return lambda v: np.float16(float(v))
        return lambda v: np.float64(int(v))
    if _is_bfloat(to):
        if source.bits == 64:
            return lambda v: _bfloat16_of(float(v))
        return lambda v: _round_bfloat16(np.float32(v))
    finish: Meaning = _numpy_float(to)
    return finish


# -- reinterpretation ------------------------------------------------------------------------------


def reinterpret_lanes(lanes: list[Lane], source: DataType, to: DataType) -> list[Lane]:
    """The bits of `lanes` (of element type `source`) read as lanes of the element type `to`."""
    if source.is_bool or to.is_bool:
        if source.is_bool and to.is_bool:
            return lanes
        raise TIRError(f"reinterpret between {source} and {to}: cast instead")
    if source.is_bits:
        raw = np.array([lane_bits(v, source) for v in lanes], dtype=f"uint{max(source.bits, 8)}")
    else:
        raw = np.array(lanes, dtype=to_numpy_dtype(source))
    seen = raw.view(to_numpy_dtype(to))
    if to.is_bits:
        return [lane_of_bits(int(v), to) for v in raw.view(f"uint{max(to.bits, 8)}")]
    return [int(v) for v in seen] if to.is_int else list(seen)


# -- intrinsics ------------------------------------------------------------------------------------

_ROUNDINGS = ("floor", "ceil", "round", "nearbyint", "trunc")
_CLASSIFY: dict[str, Meaning] = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite}


def lane_intrinsic(name: str, dtype: DataType) -> Meaning:
    """The intrinsic `name` on lanes whose first has the element type `dtype`. Raises TIRError if
    there is none.
    """
    meaning = _lane_intrinsic(name, dtype)
    if meaning is None:
        raise TIRError(f"the interpreter has no meaning for tir.{name} of {dtype}")
    return meaning


@functools.cache
def _lane_intrinsic(name: str, dtype: DataType) -> Meaning | None:
    if name in _CLASSIFY:
        if not dtype.is_float:
            return lambda v: name == "isfinite"
        test = _CLASSIFY[name]
        return lambda v: bool(test(v))
    if name in ("likely", "ignore_loop_partition"):
        return lambda v: v
    if dtype.is_int or dtype.is_bool:
        return _int_intrinsic(name, dtype)
    if dtype.is_float:
        return _float_intrinsic(name, dtype)
    return None


def _float_intrinsic(name: str, dtype: DataType) -> Meaning | None:
    finish = rounder(dtype)
    if name in ELEMENTARY:
        meaning = ELEMENTARY[name]
        return lambda *args: finish(meaning(*map(np.float64, args)))
    if name == "fabs":
        return np.abs
    if name == "copysign":
        return np.copysign
    if name == "ldexp":
        return lambda x, e: finish(_ldexp(float(x), int(e)))
    if name == "nextafter":
        return _bfloat16_nextafter if _is_bfloat(dtype) else np.nextafter
    if name == "muladd":
        # Two roundings: the exact product and sum of narrower types fit a double.
        return lambda x, y, z: finish(
            np.float64(finish(np.float64(x) * np.float64(y))) + np.float64(z)
        )
    if name == "fma":
        if dtype.bits == 16:
            return lambda x, y, z: finish(_fma(x, y, z, np.float32))
        return lambda x, y, z: _fma(x, y, z, _numpy_float(dtype))
    return None


def _int_intrinsic(name: str, dtype: DataType) -> Meaning | None:
    width, mask = dtype.bits, (1 << dtype.bits) - 1
    if name in _ROUNDINGS:
        return lambda v: v
    if name == "fabs":
        return lambda v: v if dtype.is_bool else wrap_int(abs(v), dtype)

    def turned(bits: int) -> Lane:
        return bool(bits & 1) if dtype.is_bool else wrap_int(bits, dtype)

    table: dict[str, Meaning] = {
        "bitwise_and": lambda a, b: turned(int(a) & int(b)),
        "bitwise_or": lambda a, b: turned(int(a) | int(b)),
        "bitwise_xor": lambda a, b: turned(int(a) ^ int(b)),
        "bitwise_not": lambda a: turned(~int(a)),
        "popcount": lambda a: turned(bin(int(a) & mask).count("1")),
        "clz": lambda a: width - (int(a) & mask).bit_length(),
        "shift_left": lambda a, b: turned(int(a) << int(b)) if 0 <= b < width else turned(0),
        "shift_right": lambda a, b: turned(int(a) >> (int(b) if 0 <= b < width else width)),
        "truncdiv": lambda a, b: turned(trunc_div(int(a), int(b))),
        "truncmod": lambda a, b: turned(trunc_mod(int(a), int(b))),
    }
    return table.get(name)


def _ldexp(x: float, exponent: int) -> float:
    try:
        return math.ldexp(x, max(-5000, min(5000, exponent)))
    except OverflowError:
        return math.copysign(math.inf, x)


def _bfloat16_nextafter(x: np.float32, y: np.float32) -> np.float32:
    if x != x or y != y:
        return np.float32(np.nan)
    if x == y:
        return y
    bits = bfloat16_bits(x)
    if x == 0:
        return bfloat16_values()[0x0001 if y > 0 else 0x8001]
    away = (y > x) == (x > 0)
    return bfloat16_values()[bits + 1 if away else bits - 1]


def _fma(x: Any, y: Any, z: Any, kind: Any) -> Any:
    """x * y + z rounded once to `kind` (np.float32 or np.float64)."""
    a, b, c = float(x), float(y), float(z)
    if not (math.isfinite(a) and math.isfinite(b) and math.isfinite(c)):
        # A finite product must not overflow on the way to an infinite addend.
        product = np.float64(a) * np.float64(b) if math.isfinite(c) else _sign_product(a, b)
        return kind(product + np.float64(c))
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    if exact == 0:
        # Then a * b is exact in a double, and so is the sum: only the zero's sign is at stake.
        return kind(a * b + c)
    try:
        near = float(exact)
    except OverflowError:
        return kind(math.inf if exact > 0 else -math.inf)
    if kind is np.float64:
        return kind(near)
    if Fraction(near) != exact and not struct.unpack("<Q", struct.pack("<d", near))[0] & 1:
        near = math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)
    return kind(near)


def _sign_product(a: float, b: float) -> np.float64:
    finite = math.isfinite(a) and math.isfinite(b)
    return np.float64(0.0) if finite else np.float64(a) * np.float64(b)
