"""The meaning of scalar operations, against an independent evaluator: Python integers and exact
fractions.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

import numpy as np
import pytest
from fuzz.loop_programs import FLOATS, INTS, SCALARS, array_from, edge_values

from relaxvm import tir
from relaxvm.base import DataType, bfloat16_to_float32, float32_to_bfloat16
from relaxvm.tir.interp_scalar import (
    bfloat16_bits,
    bfloat16_values,
    lane_binary,
    lane_cast,
    lane_intrinsic,
    lane_of_number,
)

INT8 = range(-128, 128)
UINT8 = range(256)


# -- an evaluator that shares nothing with the interpreter -----------------------------------------


def wrap8(value, signed):
    return (value + 128) % 256 - 128 if signed else value % 256


def c_div(a, b):
    if b == 0:
        return 0
    return int(Fraction(a, b))


INDEPENDENT = {
    tir.Add: lambda a, b: a + b,
    tir.Sub: lambda a, b: a - b,
    tir.Mul: lambda a, b: a * b,
    tir.Div: c_div,
    tir.Mod: lambda a, b: a - b * c_div(a, b) if b else 0,
    tir.FloorDiv: lambda a, b: math.floor(Fraction(a, b)) if b else 0,
    tir.FloorMod: lambda a, b: a - b * math.floor(Fraction(a, b)) if b else 0,
    tir.Min: lambda a, b: a if a < b else b,
    tir.Max: lambda a, b: a if a > b else b,
}
COMPARE = {
    tir.EQ: lambda a, b: a == b,
    tir.NE: lambda a, b: a != b,
    tir.LT: lambda a, b: a < b,
    tir.LE: lambda a, b: a <= b,
    tir.GT: lambda a, b: a > b,
    tir.GE: lambda a, b: a >= b,
}


def bits8(value):
    return [(value >> k) & 1 for k in range(8)]


def from_bits8(bits, signed):
    return wrap8(sum(b << k for k, b in enumerate(bits)), signed)


def shift_left8(a, b, signed):
    return from_bits8([0] * b + bits8(a)[: 8 - b], signed) if 0 <= b < 8 else 0


def shift_right8(a, b, signed):
    fill = bits8(a)[7] if signed else 0
    count = b if 0 <= b < 8 else 8
    return from_bits8(bits8(a)[count:] + [fill] * count, signed)


@pytest.mark.parametrize("cls", list(INDEPENDENT))
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_arithmetic_of_all_pairs_of_8_bit_integers(cls, dtype):
    values, signed = (INT8, True) if dtype == "int8" else (UINT8, False)
    run, expected = lane_binary(cls, DataType(dtype)), INDEPENDENT[cls]
    for a in values:
        assert [run(a, b) for b in values] == [wrap8(expected(a, b), signed) for b in values]


@pytest.mark.parametrize("cls", list(COMPARE))
def test_comparison_of_all_pairs_of_8_bit_integers(cls):
    run, expected = lane_binary(cls, DataType("int8")), COMPARE[cls]
    for a in INT8:
        assert [run(a, b) for b in INT8] == [expected(a, b) for b in INT8]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_bit_operations_of_all_pairs_of_8_bit_integers(dtype):
    values, signed = (INT8, True) if dtype == "int8" else (UINT8, False)
    table = {
        "bitwise_and": lambda a, b: from_bits8([x & y for x, y in zip(bits8(a), bits8(b))], signed),
        "bitwise_or": lambda a, b: from_bits8([x | y for x, y in zip(bits8(a), bits8(b))], signed),
        "bitwise_xor": lambda a, b: from_bits8([x ^ y for x, y in zip(bits8(a), bits8(b))], signed),
        "shift_left": lambda a, b: shift_left8(a, b, signed),
        "shift_right": lambda a, b: shift_right8(a, b, signed),
        "truncdiv": lambda a, b: wrap8(c_div(a, b), signed),
        "truncmod": lambda a, b: a - b * c_div(a, b) if b else 0,
    }
    for name, expected in table.items():
        run = lane_intrinsic(name, DataType(dtype))
        for a in values:
            assert [run(a, b) for b in values] == [expected(a, b) for b in values], name


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_unary_bit_operations_of_all_8_bit_integers(dtype):
    values, signed = (INT8, True) if dtype == "int8" else (UINT8, False)
    kind = DataType(dtype)
    for v in values:
        bits = bits8(v)
        assert lane_intrinsic("popcount", kind)(v) == sum(bits)
        leading = next((k for k, b in enumerate(reversed(bits)) if b), 8)
        assert lane_intrinsic("clz", kind)(v) == leading
        assert lane_intrinsic("bitwise_not", kind)(v) == from_bits8([1 - b for b in bits], signed)
        assert lane_intrinsic("fabs", kind)(v) == wrap8(abs(v), signed)


def test_edges_of_64_bit_integers():
    low, high = -(2**63), 2**63 - 1
    int64, uint64 = DataType("int64"), DataType("uint64")
    assert lane_binary(tir.Add, int64)(high, 1) == low
    assert lane_binary(tir.FloorDiv, int64)(low, -1) == low
    assert lane_binary(tir.Div, int64)(low, -1) == low
    assert lane_binary(tir.FloorMod, int64)(low, -1) == 0
    assert lane_binary(tir.Sub, uint64)(0, 1) == 2**64 - 1
    assert lane_binary(tir.Mul, uint64)(2**63, 2) == 0
    assert lane_intrinsic("fabs", int64)(low) == low
    assert lane_intrinsic("shift_right", int64)(-5, 64) == -1
    assert lane_intrinsic("shift_left", int64)(1, -1) == 0


def test_operations_of_bools():
    both = [(a, b) for a in (False, True) for b in (False, True)]
    for name, expected in {
        "bitwise_and": lambda a, b: a and b,
        "bitwise_or": lambda a, b: a or b,
        "bitwise_xor": lambda a, b: a != b,
    }.items():
        run = lane_intrinsic(name, DataType("bool"))
        assert [run(a, b) for a, b in both] == [expected(a, b) for a, b in both]
    assert lane_intrinsic("bitwise_not", DataType("bool"))(True) is False
    with pytest.raises(tir.op.TIRError, match="cast to an integer"):
        lane_binary(tir.Add, DataType("bool"))


# -- 16-bit floats: all bit patterns ---------------------------------------------------------------


def float_of_bits(bits, exponent_bits, mantissa_bits):
    """The number with these bits, from the definition of IEEE 754."""
    sign = -1 if bits >> (exponent_bits + mantissa_bits) else 1
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    mantissa = bits & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent == (1 << exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return math.copysign(float(mantissa * Fraction(2) ** (1 - bias - mantissa_bits)), sign)
    return sign * float(
        (mantissa + (1 << mantissa_bits)) * Fraction(2) ** (exponent - bias - mantissa_bits)
    )


def same(a, b):
    a, b = float(a), float(b)
    return (math.isnan(a) and math.isnan(b)) or (
        a == b and math.copysign(1, a) == math.copysign(1, b)
    )


def test_every_bfloat16_is_read_and_written_exactly():
    for bits in range(65536):
        value = bfloat16_values()[bits]
        assert same(value, float_of_bits(bits, 8, 7)), hex(bits)
        if not math.isnan(value):
            assert bfloat16_bits(value) == bits
        else:
            assert math.isnan(bfloat16_values()[bfloat16_bits(value)])


def test_every_float16_casts_exactly_to_wider_types_and_back():
    half = np.arange(65536, dtype=np.uint16).view(np.float16)
    for to in ("float32", "float64"):
        widen, narrow = (
            lane_cast(DataType("float16"), DataType(to)),
            lane_cast(DataType(to), DataType("float16")),
        )
        with np.errstate(all="ignore"):
            for bits in range(65536):
                wide = widen(half[bits])
                assert same(wide, float_of_bits(bits, 5, 10))
                assert same(narrow(wide), half[bits])


def neighbours(dtype):
    """All finite values of a 16-bit float from 0 up, as fractions, in order."""
    mantissa, exponent = (7, 8) if dtype == "bfloat16" else (10, 5)
    top = ((1 << exponent) - 1) << mantissa
    return [Fraction(float_of_bits(b, exponent, mantissa)) for b in range(top)], mantissa, exponent


def round_exactly(value, table):
    """`value` >= 0 rounded to the nearest of `table`, ties to the even position; None: infinity."""
    import bisect

    k = bisect.bisect_left(table, value)
    if k == len(table):
        limit = table[-1] + (table[-1] - table[-2]) / 2
        return None if value >= limit else len(table) - 1
    if table[k] == value or k == 0:
        return k
    below, above = value - table[k - 1], table[k] - value
    if below == above:
        return k if k % 2 == 0 else k - 1
    return k if above < below else k - 1


@pytest.mark.parametrize("to", ["bfloat16", "float16"])
def test_casts_to_16_bit_floats_round_once_to_nearest_even(to):
    table, _, _ = neighbours(to)
    rng = np.random.default_rng(7)
    points = [int(k) for k in rng.integers(1, len(table) - 1, 300)] + [0, 1, 2, len(table) - 2]
    finish = lane_cast(DataType("float64"), DataType(to))
    from_single = lane_cast(DataType("float32"), DataType(to))
    with np.errstate(all="ignore"):
        for k in points:
            middle = (table[k] + table[k + 1]) / 2
            gap = table[k + 1] - table[k]
            for value in (middle, middle + gap / 2**40, middle - gap / 2**40, table[k] + gap / 3):
                double = float(value)
                got = finish(np.float64(double))
                want = round_exactly(Fraction(double), table)
                assert want is not None
                assert Fraction(float(got)) == table[want]
                single = np.float32(double)
                want = round_exactly(Fraction(float(single)), table)
                assert Fraction(float(from_single(single))) == table[want]
        assert finish(np.float64(1e300)) == math.inf
        assert finish(np.float64(-1e300)) == -math.inf


@pytest.mark.parametrize("source", ["int64", "uint64", "int32"])
@pytest.mark.parametrize("to", list(FLOATS))
def test_integers_round_once_to_floats(source, to):
    kind = DataType(source)
    mantissa = {"float16": 11, "bfloat16": 8, "float32": 24, "float64": 53}[to]
    top = 2 ** min(kind.bits - 2, 62)
    cases = [
        top + top // 2**mantissa,
        top + top // 2**mantissa + 1,
        top + 3 * top // 2**mantissa - 1,
        2049,
        257,
        259,
    ]
    with np.errstate(all="ignore"):
        for value in cases:
            got = float(lane_cast(kind, DataType(to))(value))
            if to == "float16" and value > 65519:
                assert got == math.inf
                continue
            step = 2 ** max(value.bit_length() - mantissa, 0)
            low = value // step * step
            rest = value - low
            up = 2 * rest > step or (2 * rest == step and low // step % 2 == 1)
            assert got == low + (step if up else 0)
            folded = tir.cast(to, tir.const(value, source))
            assert folded.value == got


@pytest.mark.parametrize("dtype", list(FLOATS))
def test_floats_saturate_as_integers(dtype):
    with np.errstate(all="ignore"):
        for to in INTS:
            run = lane_cast(dtype, to)
            for number in edge_values(dtype):
                value = lane_of_number(number, dtype)
                exact = float(value)
                if math.isnan(exact):
                    want = 0
                elif math.isinf(exact):
                    want = to.max_value if exact > 0 else to.min_value
                else:
                    want = max(to.min_value, min(to.max_value, math.trunc(exact)))
                assert run(value) == want


@pytest.mark.parametrize("source", list(SCALARS))
@pytest.mark.parametrize("to", list(SCALARS))
def test_casts_of_constants_and_of_values_agree(source, to):
    for number in edge_values(source):
        x = tir.Var("x", source)
        at_run_time = tir.evaluate_expr(tir.Cast(to, x), {x: number})
        folded = tir.cast(to, tir.const(number, source))
        np.testing.assert_array_equal(at_run_time, tir.evaluate_expr(folded))
        if to.is_float:
            assert np.signbit(at_run_time) == np.signbit(tir.evaluate_expr(folded)) or np.isnan(
                at_run_time
            )


# -- float arithmetic ------------------------------------------------------------------------------


FLOAT_OPERATIONS = {
    tir.Add: lambda a, b: a + b,
    tir.Sub: lambda a, b: a - b,
    tir.Mul: lambda a, b: a * b,
    tir.Div: lambda a, b: a / b,
}


@pytest.mark.parametrize("cls", list(FLOAT_OPERATIONS))
@pytest.mark.parametrize("dtype", list(FLOATS))
def test_float_arithmetic_is_numpys_rounded_to_the_dtype(cls, dtype):
    numbers = array_from(edge_values(dtype) + [1.1, -3.3, 1e3, 1e-3], dtype, (20,))
    run = lane_binary(cls, dtype)
    with np.errstate(all="ignore"):
        if dtype == "bfloat16":
            wide = bfloat16_to_float32(numbers)
            lanes = list(wide)
            # An independent rounding: add half a unit and the even bit, through struct.
            for a in lanes:
                for b in lanes:
                    exact = np.float32(FLOAT_OPERATIONS[cls](a, b))
                    want = bfloat16_to_float32(float32_to_bfloat16(exact.reshape(1)))[0]
                    assert same(run(a, b), want)
            return
        for a in numbers:
            for b in numbers:
                assert same(run(a, b), FLOAT_OPERATIONS[cls](a, b))
                assert run(a, b).dtype == numbers.dtype


@pytest.mark.parametrize("dtype", list(FLOATS))
def test_min_and_max_of_floats_give_nan_if_either_is(dtype):
    nan, one = lane_of_number(math.nan, dtype), lane_of_number(1.0, dtype)
    for cls in (tir.Min, tir.Max):
        run = lane_binary(cls, dtype)
        assert math.isnan(run(nan, one))
        assert math.isnan(run(one, nan))
    assert lane_binary(tir.Min, dtype)(one, lane_of_number(-2.0, dtype)) == -2
    assert lane_binary(tir.Max, dtype)(one, lane_of_number(-2.0, dtype)) == 1


def test_comparisons_with_nan_are_false_but_for_not_equal():
    nan, one = np.float32(math.nan), np.float32(1)
    for cls in COMPARE:
        assert lane_binary(cls, DataType("float32"))(nan, one) is (cls is tir.NE)


def test_floor_division_of_floats():
    run = lane_binary(tir.FloorDiv, DataType("float32"))
    modulo = lane_binary(tir.FloorMod, DataType("float32"))
    assert run(np.float32(-7), np.float32(2)) == -4
    assert modulo(np.float32(-7), np.float32(2)) == 1
    with np.errstate(all="ignore"):
        assert run(np.float32(1), np.float32(0)) == math.inf
        assert math.isnan(modulo(np.float32(1), np.float32(0)))


@pytest.mark.parametrize(
    ("name", "reference"),
    [
        ("exp", math.exp),
        ("exp2", lambda x: 2.0**x),
        ("exp10", lambda x: 10.0**x),
        ("log1p", math.log1p),
        ("expm1", math.expm1),
        ("tanh", math.tanh),
        ("erf", math.erf),
        ("sin", math.sin),
        ("cos", math.cos),
        ("tan", math.tan),
        ("atan", math.atan),
        ("asinh", math.asinh),
        ("sinh", math.sinh),
        ("cosh", math.cosh),
        ("sqrt", math.sqrt),
        ("rsqrt", lambda x: 1 / math.sqrt(x)),
        ("log", math.log),
        ("log2", math.log2),
        ("log10", math.log10),
        ("sigmoid", lambda x: 1 / (1 + math.exp(-x))),
    ],
)
@pytest.mark.parametrize("dtype", list(FLOATS))
def test_functions_are_those_of_a_double_rounded_once(name, reference, dtype):
    tolerance = {"float64": 4e-16, "float32": 6e-8, "float16": 5e-4, "bfloat16": 4e-3}[dtype]
    for number in (0.125, 0.75, 1.5, 3.0):
        x = lane_of_number(number, dtype)
        got = lane_intrinsic(name, dtype)(x)
        assert float(got) == pytest.approx(reference(number), rel=tolerance)


def test_rounding_functions_and_signs():
    for number, want in {-2.5: -2, -0.5: -0.0, 0.5: 0, 1.5: 2, 2.5: 2}.items():
        assert same(lane_intrinsic("round", DataType("float32"))(np.float32(number)), want)
        assert same(lane_intrinsic("nearbyint", DataType("float16"))(np.float16(number)), want)
    assert lane_intrinsic("floor", DataType("float64"))(np.float64(-1.5)) == -2
    assert lane_intrinsic("ceil", DataType("float64"))(np.float64(-1.5)) == -1
    assert lane_intrinsic("trunc", DataType("bfloat16"))(np.float32(-1.5)) == -1
    assert same(
        lane_intrinsic("copysign", DataType("float32"))(np.float32(1), np.float32(-0.0)), -1
    )
    assert same(lane_intrinsic("fabs", DataType("bfloat16"))(np.float32(-0.0)), 0.0)
    assert lane_intrinsic("fmod", DataType("float32"))(np.float32(-7), np.float32(2)) == -1


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_fma_rounds_once(dtype):
    kind = np.float32 if dtype == "float32" else np.float64
    eps = kind(np.finfo(kind).eps)
    run = lane_intrinsic("fma", DataType(dtype))
    one = kind(1)
    # (1 + eps)(1 - eps) - 1 is -eps**2, which two roundings lose.
    assert run(one + eps, one - eps, -one) == -(eps * eps)
    with np.errstate(all="ignore"):
        assert math.isnan(run(kind(math.inf), kind(0), one))
        big = kind(np.finfo(kind).max)
        assert run(big, big, kind(-math.inf)) == -math.inf
        assert run(kind(np.finfo(kind).max), kind(2), one) == math.inf
    assert same(run(kind(0), kind(-1), kind(-0.0)), -0.0)
    assert same(run(kind(2), kind(3), kind(-6)), 0.0)


def test_fma_of_float32_against_exact_fractions():
    rng = np.random.default_rng(3)
    run = lane_intrinsic("fma", DataType("float32"))
    for _ in range(300):
        a, b = (np.float32(v) for v in rng.standard_normal(2))
        c = np.float32(-a * b * np.float32(rng.choice([1, 1.0000001, 0.5])))
        exact = Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))
        got = Fraction(float(run(a, b, c)))
        up = Fraction(float(np.nextafter(np.float32(float(got)), np.float32(math.inf))))
        down = Fraction(float(np.nextafter(np.float32(float(got)), np.float32(-math.inf))))
        assert abs(got - exact) <= min(abs(up - exact), abs(down - exact))


def test_nextafter_of_bfloat16_steps_by_one_bit():
    run = lane_intrinsic("nextafter", DataType("bfloat16"))
    values = bfloat16_values()
    for bits in (0x0001, 0x3F80, 0x7F7F, 0x00FF):
        assert same(run(values[bits], np.float32(math.inf)), values[bits + 1])
        assert same(run(values[bits], np.float32(-math.inf)), values[bits - 1])
        assert same(run(values[bits | 0x8000], np.float32(-math.inf)), values[(bits + 1) | 0x8000])
    assert same(run(np.float32(0), np.float32(1)), values[1])
    assert same(run(np.float32(0), np.float32(-1)), values[0x8001])


def test_ldexp_scales_by_powers_of_two():
    x, e = tir.Var("x", "float32"), tir.Var("e", "int32")
    expr = tir.ldexp(x, e)
    assert tir.evaluate_expr(expr, {x: 1.5, e: 4}) == 24
    assert tir.evaluate_expr(expr, {x: 1.5, e: 4000}) == math.inf
    assert tir.evaluate_expr(expr, {x: -1.5, e: -4000}) == 0


@pytest.mark.parametrize(
    ("source", "to", "value", "want"),
    [
        ("float32", "int32", 1.0, 0x3F800000),
        ("int32", "float32", 0x40490FDB, struct.unpack("<f", struct.pack("<I", 0x40490FDB))[0]),
        ("bfloat16", "uint16", -2.0, 0xC000),
        ("uint16", "bfloat16", 0x3FC0, 1.5),
        ("float16", "int16", 1.0, 0x3C00),
        ("float64", "uint64", -0.0, 1 << 63),
        ("int8", "uint8", -1, 255),
    ],
)
def test_reinterpret_keeps_the_bits(source, to, value, want):
    x = tir.Var("x", source)
    assert tir.evaluate_expr(tir.reinterpret(to, x), {x: value}) == want
