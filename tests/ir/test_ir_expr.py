"""Scalar expressions: dtype rules, constant folding, operators."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxvm import tir
from relaxvm.base import ParseError, TIRError
from relaxvm.ir import (
    EQ,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    IntImm,
    Max,
    Not,
    Op,
    Ramp,
    Range,
    Select,
    Shuffle,
    StringImm,
    Var,
    cast,
    const,
    structural_equal,
)
from relaxvm.ir.expr import INT_MEANING, binary, saturate, wrap_int
from relaxvm.script import from_source


def test_operands_are_promoted_to_a_common_dtype():
    i, j, f = Var("i"), Var("j", "int64"), Var("f", "float32")
    assert (i + j).dtype == "int64"
    assert (i + f).dtype == "float32"
    assert (f + 1).b is FloatImm("float32", 1.0)
    assert (i + 1).b is IntImm("int32", 1)
    assert (i + 2**40).dtype == "int64"
    assert (i < j).dtype == "bool"


def test_a_constructor_wants_equal_dtypes():
    with pytest.raises(TIRError, match="dtypes differ"):
        FloorDiv(Var("i"), Var("j", "int64"))


def test_dividing_integers_must_say_how_it_rounds():
    with pytest.raises(TIRError, match="truncdiv"):
        Var("i") / 2
    assert isinstance(Var("x", "float32") / 2, Div)


def test_the_truth_of_an_expression_is_refused():
    with pytest.raises(TIRError, match="T.And"):
        bool(Var("i") < 3)
    with pytest.raises(TIRError):
        bool(Var("x"))


def test_equality_builds_an_expression_that_knows_identity():
    i, j = Var("i"), Var("j")
    assert isinstance(i == j, EQ)
    assert not (i == j)
    assert i != j
    assert i in [j, i]
    assert (i == "text") is False


def test_constants_must_fit_their_dtype():
    with pytest.raises(TIRError, match="does not fit int8"):
        IntImm("int8", 128)
    with pytest.raises(TIRError):
        IntImm("float32", 1)
    assert FloatImm("float32", 0.1).value == float(np.float32(0.1))
    assert FloatImm("bfloat16", 1.01).value == 1.0078125
    for dtype, value in [
        ("float16", 1e6),
        ("float16", -65505.0),
        ("float32", 3.402e39),
        ("bfloat16", 3.4e38),
        ("float64", 10**400),
    ]:
        with pytest.raises(TIRError, match=f"does not fit {dtype}"):
            FloatImm(dtype, value)
        with pytest.raises(TIRError, match=f"does not fit {dtype}"):
            const(value, dtype)
    assert FloatImm("float32", 3.4028235e38).value == float(np.finfo("float32").max)
    assert FloatImm("float16", float("-inf")).value == float("-inf")
    assert cast("float16", FloatImm("float32", 1e6)).value == float("inf")
    assert cast("float16", const(100_000)).value == float("inf")


@pytest.mark.parametrize("cls", [c for c in INT_MEANING if c.__name__ not in ("Div", "Mod")])
@given(a=st.integers(-128, 127), b=st.integers(-128, 127))
def test_folding_constants_wraps_as_numpy_does(cls, a, b):
    got = binary(cls, const(a, "int8"), const(b, "int8"))
    with np.errstate(all="ignore"):
        x, y = np.int8(a), np.int8(b)
        name = cls.__name__
        want = {
            "Add": lambda: x + y,
            "Sub": lambda: x - y,
            "Mul": lambda: x * y,
            "FloorDiv": lambda: np.floor_divide(x, y),
            "FloorMod": lambda: np.mod(x, y),
            "Min": lambda: np.minimum(x, y),
            "Max": lambda: np.maximum(x, y),
            "EQ": lambda: x == y,
            "NE": lambda: x != y,
            "LT": lambda: x < y,
            "LE": lambda: x <= y,
            "GT": lambda: x > y,
            "GE": lambda: x >= y,
        }[name]()
    assert got.value == int(want)


def test_casting_constants_wraps_saturates_and_maps_nan_to_zero():
    assert cast("int8", const(300)).value == 44
    assert cast("int8", const(1e9, "float32")).value == 127
    assert cast("uint8", const(-3.7, "float32")).value == 0
    assert cast("int32", const(float("nan"), "float32")).value == 0
    assert cast("float32", const(2**24 + 1)).value == 2.0**24
    assert saturate(float("-inf"), cast("int16", 0).dtype) == -32768
    assert wrap_int(2**63, const(0, "int64").dtype) == -(2**63)


def test_neutral_integers_vanish_and_floats_are_left_alone():
    i, f = Var("i"), Var("f", "float32")
    assert i + 0 is i
    assert 1 * i is i
    assert (i * 0).value == 0
    assert (f + 0.0) is not f


def test_conditions_must_be_bool():
    with pytest.raises(TIRError, match="bool condition"):
        And(Var("i"), True)
    with pytest.raises(TIRError, match="bool condition"):
        Not(Var("i"))
    assert Select(Var("i") < 1, 1, 2.0).dtype == "float32"


def test_intrinsics_check_arity_and_dtype():
    x = Var("x", "float32")
    assert Call("float32", Op.get("tir.exp"), [x]).dtype == "float32"
    with pytest.raises(TIRError, match="takes 1 arguments"):
        Call("float32", "tir.exp", [x, x])
    with pytest.raises(TIRError, match="floating"):
        Call("int32", "tir.exp", [Var("i")])
    with pytest.raises(TIRError, match="gives float32"):
        Call("float64", "tir.exp", [x])
    with pytest.raises(TIRError, match="did you mean tir.exp"):
        Op.get("tir.expp")


def test_vectors_know_their_lanes():
    assert Ramp(Var("i"), 1, 8).dtype == "int32x8"
    assert Broadcast(const(1.0), 4).dtype == "float32x4"
    assert cast("float32x4", const(1)).dtype == "float32x4"
    assert Shuffle([Ramp(Var("i"), 1, 4)], [0, 3]).dtype == "int32x2"
    for bad in (lambda: Ramp(Var("i"), 1, 1), lambda: Broadcast(Ramp(Var("i"), 1, 4), 2)):
        with pytest.raises(TIRError):
            bad()
    with pytest.raises(TIRError, match="index"):
        Shuffle([Ramp(Var("i"), 1, 4)], [4])
    with pytest.raises(TIRError):
        Ramp(Var("i"), 1, 4) + Ramp(Var("i"), 1, 8)


def test_bools_in_arithmetic_are_small_integers():
    assert (Var("b", "bool") + 1).dtype == "int32"


def test_other_forms():
    assert Max(Var("i"), Var("i")).dtype == "int32"
    assert StringImm("a") is StringImm("a")
    assert StringImm("a") == "a"
    for r in (Range(2, 6), Range.from_min_extent(2, 4), Range(min=2, extent=4)):
        assert (r.min.value, r.extent.value) == (2, 4)
    assert Range(4).min.value == 0
    for bad in (lambda: Range(), lambda: Range(1, 2, min=1), lambda: Range(min=1)):
        with pytest.raises(TIRError, match="Range"):
            bad()
    assert Cast("float32", Var("i")).dtype == "float32"
    with pytest.raises(TIRError):
        Cast("float32x4", Var("i"))


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (np.uint8(1), "uint8"),
        (np.int64(1), "int64"),
        (np.float16(1), "float16"),
        (np.float64(1), "float64"),
        (np.bool_(True), "bool"),
        (1, "int32"),
        (2**31, "int64"),
        (1.5, "float32"),
        (3.402e39, "float64"),
        (float("inf"), "float32"),
        (np.finfo("float32").max, "float32"),
    ],
)
def test_a_constant_has_the_dtype_of_its_value(value, dtype):
    assert const(value).dtype == dtype
    assert const(value).value == value


def test_a_number_beside_an_expression_has_its_dtype():
    x = Var("x", "float32")
    assert (x * np.float64(0.5)).dtype == "float32"
    assert (Var("i", "int32") + np.int64(1)).dtype == "int32"


@pytest.mark.parametrize(
    "divide",
    [tir.floordiv, tir.floormod, tir.truncdiv, tir.truncmod, tir.div, tir.ceildiv, tir.indexdiv],
)
def test_dividing_a_constant_by_zero_is_an_error(divide):
    with pytest.raises(TIRError, match="division by zero"):
        divide(5, 0)
    with pytest.raises(TIRError, match="division by zero"):
        const(5) // 0
    assert divide(Var("x"), 0).dtype == "int32"  # that has a meaning: 0


@pytest.mark.parametrize("distance", [-1, 32, 64])
def test_shifts_that_leave_nothing_are_errors(distance):
    x = Var("x", "int32")
    for build in (tir.shift_left, tir.shift_right, lambda a, b: a << b, lambda a, b: a >> b):
        with pytest.raises(TIRError, match="wanted a distance of 0 to 31 for int32"):
            build(x, distance)
        assert build(x, 31).dtype == "int32"
    assert (x.astype("int64") << 32).dtype == "int64"


def test_what_is_refused_when_written_has_a_line_in_script_and_prints_as_its_constructor():
    text = """
@T.prim_func
def f(x: T.int32):
    T.evaluate({})
"""
    for bad in ("5 // 0", "T.floordiv(5, 0)", "x << 32", "T.float16(1e6)"):
        with pytest.raises(ParseError, match=r":4:1\d: "):
            from_source(text.format(bad))
    x = Var("x", "int32")
    kept = [FloorDiv(const(5), const(0)), Call("int32", "tir.shift_left", [x, const(32)])]
    for e in kept:
        fn = tir.PrimFunc([x], tir.Evaluate(e))
        assert structural_equal(from_source(fn.script()), fn)


def test_an_array_of_rank_0_is_a_scalar():
    number = const(np.array(3, "uint16"))
    assert (number.value, str(number.dtype)) == (3, "uint16")
    assert str(Var("x", "int64") + np.array(2, "int64")) == "x + T.int64(2)"
    with pytest.raises(TIRError, match="wanted a number, got ndarray"):
        const(np.array([3]))
