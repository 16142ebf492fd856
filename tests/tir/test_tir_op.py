"""The functions that build expressions: what they build and what they refuse."""

from __future__ import annotations

import math

import pytest
from fuzz.loop_programs import FLOATS, INTS, SCALARS

from relaxvm import tir
from relaxvm.base import TIRError
from relaxvm.ir import PointerType, PrimType, Var, structural_equal
from relaxvm.ir.op import INTRINSICS
from relaxvm.tir import const, evaluate_expr

X, Y = tir.Var("x", "float32"), tir.Var("y", "float32")
I, J = tir.Var("i", "int32"), tir.Var("j", "int32")
P = tir.Var("p", "bool")


def test_every_intrinsic_has_a_function():
    made_by_passes = {"bound_check"}
    names = [name for name in INTRINSICS if name not in made_by_passes]
    assert [name for name in names if not callable(getattr(tir, name, None))] == []


@pytest.mark.parametrize(
    "name", [n for n, op in INTRINSICS.items() if op.result == "float" and op.arity == 1]
)
def test_functions_of_floats_take_integers_as_float32(name):
    f = getattr(tir, name)
    for dtype in FLOATS:
        x = tir.Var("x", dtype)
        assert f(x).dtype is x.dtype
        assert f(x).op is INTRINSICS[name]
    assert f(I) is f(tir.Cast("float32", I))
    assert f(tir.Var("v", "uint8x4")).dtype == "float32x4"
    with pytest.raises(TIRError, match=f"{name} takes floating arguments, got handle"):
        f(tir.Var("h", "handle"))


@pytest.mark.parametrize(
    "name", ["pow", "power", "atan2", "fmod", "copysign", "hypot", "nextafter"]
)
def test_functions_of_two_floats_match_numbers_to_the_dtype(name):
    f = getattr(tir, name)
    call = f(X, 2)
    assert call.args == (X, const(2.0, "float32"))
    with pytest.raises(TIRError, match="floating"):
        f(I, J)


@pytest.mark.parametrize(
    "name", ["bitwise_and", "bitwise_or", "bitwise_xor", "shift_left", "shift_right"]
)
def test_bit_operations_take_integers_only(name):
    f = getattr(tir, name)
    assert f(I, 3).args == (I, const(3))
    with pytest.raises(TIRError, match="takes integer arguments"):
        f(X, Y)


@pytest.mark.parametrize("name", ["floor", "ceil", "round", "trunc", "nearbyint"])
def test_rounding_an_integer_changes_nothing(name):
    assert getattr(tir, name)(I) is I
    assert getattr(tir, name)(X).dtype == "float32"


def test_classifying_integers_is_constant():
    assert tir.isnan(I) is const(False)
    assert tir.isinf(I) is const(False)
    assert tir.isfinite(I) is const(True)
    assert tir.isnan(X).dtype == "bool"


def test_absolute_values():
    assert tir.abs(I).dtype == "int32"
    unsigned = tir.Var("u", "uint8")
    assert tir.abs(unsigned) is unsigned
    assert evaluate_expr(tir.abs(I), {I: -(2**31)}) == -(2**31)
    assert evaluate_expr(tir.abs(X), {X: -1.5}) == 1.5
    with pytest.raises(TIRError, match="takes numbers"):
        tir.abs(P)


@pytest.mark.parametrize(
    ("f", "expected"),
    [
        (tir.floordiv, lambda a, b: math.floor(a / b)),
        (tir.floormod, lambda a, b: a - b * math.floor(a / b)),
        (tir.truncdiv, lambda a, b: math.trunc(a / b)),
        (tir.truncmod, lambda a, b: a - b * math.trunc(a / b)),
        (tir.ceildiv, lambda a, b: math.ceil(a / b)),
        (tir.div, lambda a, b: math.trunc(a / b)),
    ],
)
def test_integer_divisions(f, expected):
    for a in range(-9, 10):
        for b in (-4, -3, -1, 1, 2, 5):
            if f is tir.ceildiv and b < 0:
                continue
            assert evaluate_expr(f(I, J), {I: a, J: b}) == expected(a, b)
            assert evaluate_expr(f(const(a), b)) == expected(a, b)


def test_divisions_of_integers_refuse_floats():
    for f in (tir.truncdiv, tir.truncmod, tir.ceildiv, tir.indexdiv, tir.indexmod):
        with pytest.raises(TIRError, match="integer"):
            f(X, Y)
    assert evaluate_expr(tir.indexdiv(I, 4), {I: 11}) == 2
    assert evaluate_expr(tir.indexmod(I, 4), {I: 11}) == 3


def test_min_and_max_take_any_number_of_values():
    assert evaluate_expr(tir.min(I, J, 3), {I: 5, J: 4}) == 3
    assert evaluate_expr(tir.max(I, J, 3), {I: 5, J: 4}) == 5
    assert tir.max([I, J]) is tir.Max(I, J)
    with pytest.raises(TIRError, match="at least one"):
        tir.min()


def test_all_and_any_of_conditions():
    assert tir.all(P) is P
    assert tir.all() is const(True)
    assert tir.any() is const(False)
    expr = tir.all(I > 0, I < 4, P)
    assert evaluate_expr(expr, {I: 2, P: True})
    assert not evaluate_expr(expr, {I: 9, P: True})
    assert evaluate_expr(tir.any(I > 0, P), {I: 0, P: True})
    assert evaluate_expr(tir.logical_not(P), {P: False})
    with pytest.raises(TIRError, match="bool condition"):
        tir.all(I, P)


def test_if_then_else_folds_a_constant_condition_and_matches_dtypes():
    assert tir.if_then_else(True, I, J) is I
    assert tir.if_then_else(False, I, 3) is const(3)
    assert tir.if_then_else(P, X, 0).args[2] is const(0.0, "float32")
    with pytest.raises(TIRError, match="scalar condition"):
        tir.if_then_else(tir.Broadcast(P, 4), I, J)


@pytest.mark.parametrize("dtype", list(SCALARS))
def test_limits_of_dtypes(dtype):
    assert tir.max_value(dtype).value == dtype.max_value
    assert tir.min_value(dtype).value == dtype.min_value
    if dtype.is_float:
        assert tir.infinity(dtype).value == math.inf
    else:
        with pytest.raises(TIRError, match="max_value"):
            tir.infinity(dtype)


def test_limits_of_handles_are_refused():
    with pytest.raises(TIRError, match="number's dtype"):
        tir.max_value("handle")


def test_reinterpret_wants_as_many_bits():
    assert tir.reinterpret("float32", X) is X
    assert tir.reinterpret("int32", X).dtype == "int32"
    with pytest.raises(TIRError, match="float32 has 32 bits, int64 has 64"):
        tir.reinterpret("int64", X)


def test_fma_and_ldexp():
    assert evaluate_expr(tir.muladd(X, 2, Y), {X: 3, Y: 4}) == 10
    with pytest.raises(TIRError, match="muladd"):
        tir.muladd(I, J, I)
    assert evaluate_expr(tir.fma(X, 2, Y), {X: 3, Y: 4}) == 10
    assert tir.fma(X, Y, tir.Var("z", "float64")).dtype == "float64"
    with pytest.raises(TIRError, match="floating"):
        tir.fma(I, J, I)
    with pytest.raises(TIRError, match="exponent"):
        tir.ldexp(X, Y)


@pytest.mark.parametrize("dtype", list(INTS))
def test_counting_bits(dtype):
    x = tir.Var("x", dtype)
    assert evaluate_expr(tir.popcount(x), {x: 7}) == 3
    assert evaluate_expr(tir.clz(x), {x: 1}) == dtype.bits - 1
    with pytest.raises(TIRError, match="integer"):
        tir.popcount(X)


def test_calls_by_name():
    assert tir.call_intrin("float32", "tir.exp", X) is tir.exp(X)
    assert tir.call_intrin("float32", "exp", X) is tir.exp(X)
    with pytest.raises(TIRError, match="gives float32"):
        tir.call_intrin("float64", "tir.exp", X)
    with pytest.raises(TIRError, match="did you mean"):
        tir.call_intrin("float32", "tir.sigmoyd", X)
    call = tir.call_extern("int32", "puts", "text")
    assert call.args == (tir.StringImm("puts"), tir.StringImm("text"))
    assert call.op is INTRINSICS["call_extern"]
    assert tir.call_pure_extern("float32", "expf", X).op is INTRINSICS["call_pure_extern"]
    assert tir.call_llvm_intrin("float32", "llvm.sqrt", X).op is INTRINSICS["call_llvm_intrin"]
    with pytest.raises(TIRError, match="function's name"):
        tir.call_extern("int32", None)


def test_addresses():
    a = tir.decl_buffer((4, 4), "float32", "A")
    assert tir.address_of(a).args[0] is a[const(0), const(0)]
    assert tir.address_of(a[1, 2]).dtype == "handle"
    with pytest.raises(TIRError, match="buffer element"):
        tir.address_of(X)
    assert tir.tvm_access_ptr("float32", a.data, 0, 4, "r" == "r").dtype == "handle"


def test_hints_and_returns():
    assert tir.likely(True) is const(True)
    assert tir.likely(P).op is INTRINSICS["likely"]
    assert tir.ignore_loop_partition(False) is const(False)
    assert tir.ignore_loop_partition(P).op is INTRINSICS["ignore_loop_partition"]
    assert tir.ret(X).dtype == "float32"
    assert tir.assume(P).op is INTRINSICS["assume"]
    assert evaluate_expr(tir.undef("int8")).dtype == "int8"


def test_vectors_are_halved_and_joined():
    v = tir.Var("v", "int32x4")
    assert tir.vectorlow("int32x2", v).dtype == "int32x2"
    with pytest.raises(TIRError, match="half of int32x4"):
        tir.vectorhigh("int32x4", v)
    with pytest.raises(TIRError, match="make int32x8"):
        tir.vectorcombine("int32x4", v, v)
    assert tir.broadcast(X, 4) is tir.Broadcast(X, 4)


def test_every_function_has_a_docstring():
    assert [n for n in tir.op.__all__ if not getattr(tir.op, n).__doc__] == []


def test_a_type_annotation_stands_for_its_dtype():
    assert tir.type_annotation("float16").dtype == "float16"
    pointer = Var("p", PointerType(PrimType("float16"), "global"))
    by_name = tir.tvm_access_ptr("float16", pointer, 4, 8, 1)
    noted = tir.tvm_access_ptr(tir.type_annotation("float16"), pointer, 4, 8, 1)
    assert structural_equal(by_name, noted)
