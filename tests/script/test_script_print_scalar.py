"""Scalar expressions as text."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from relaxvm.ir import (
    EQ,
    LT,
    NE,
    Add,
    And,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    GlobalVar,
    IntImm,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    Ramp,
    Range,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    const,
)
from relaxvm.script import print_script
from relaxvm.script import tir as T

X, Y, N = Var("x"), Var("y"), Var("n", "int64")
F, G = Var("f", "float32"), Var("g", "float32")
P, Q = Var("p", "bool"), Var("q", "bool")
ONE, TWO = const(1), const(2)

GOLDEN = [
    (X + Y * 2, "x + y * 2"),
    ((X + Y) * 2, "(x + y) * 2"),
    (X - (Y - 1), "x - (y - 1)"),
    (X - Y - 1, "x - y - 1"),
    (Mul(X, FloorDiv(Y, const(3))), "x * (y // 3)"),
    (X // 3 * Y % 7, "x // 3 * y % 7"),
    (X - const(-1), "x - -1"),
    (const(0) - X, "0 - x"),
    (N + 1, "n + T.int64(1)"),
    (F / G, "f / g"),
    (F * 0.1, "f * T.float32(0.1)"),
    (Div(X, Y), "T.truncdiv(x, y)"),
    (Mod(X, Y), "T.truncmod(x, y)"),
    (Min(X, const(4)), "T.min(x, 4)"),
    (Max(F, G), "T.max(f, g)"),
    # What Python's operators would fold, drop or turn round keeps its constructor.
    (Add(ONE, TWO), "T.Add(1, 2)"),
    (Add(X, const(0)), "T.Add(x, 0)"),
    (Mul(X, ONE), "T.Mul(x, 1)"),
    (FloorDiv(X, ONE), "T.FloorDiv(x, 1)"),
    (LT(ONE, X), "T.LT(1, x)"),
    (LT(X, SizeVar("s")), "T.LT(x, s)"),
    (Min(ONE, TWO), "T.Min(1, 2)"),
    (Add(P, Q), "T.Add(p, q)"),
    (X < 3, "x < 3"),
    (EQ(X < 3, P), "(x < 3) == p"),
    (NE(X, Y), "x != y"),
    (And(X < 1, And(P, Q)), "x < 1 and (p and q)"),
    (And(And(X < 1, P), Q), "x < 1 and p and q"),
    (Or(And(P, Q), Not(P)), "p and q or not p"),
    (And(Or(P, Q), Not(Or(P, Q))), "(p or q) and not (p or q)"),
    (And(P, const(True)), "T.And(p, T.bool(True))"),
    (Not(EQ(X, Y)), "not x == y"),
    (Cast("int64", X + 1), 'T.Cast("int64", x + 1)'),
    (Select(P, X, ONE), "T.Select(p, x, 1)"),
    (Ramp(X, 1, 4), "T.Ramp(x, 1, 4)"),
    (Broadcast(F, 8), "T.Broadcast(f, 8)"),
    (Shuffle([Broadcast(F, 2), G], [0, 2]), "T.Shuffle([T.Broadcast(f, 2), g], [0, 2])"),
    (Let(Y, X + 1, Y * Y), "T.Let(y * y, where={y: x + 1})"),
    (Call("float32", "tir.exp", (F,)), "T.exp(f)"),
    (Call("int32", "tir.if_then_else", (P, X, ONE)), "T.if_then_else(p, x, 1)"),
    (Call("int32", "tir.shift_left", (X, TWO)), "T.shift_left(x, 2)"),
    (Call("int32", "tir.shift_left", (X, N)), 'T.Call("int32", "tir.shift_left", [x, n])'),
    (Call("int32", "tir.reinterpret", (F,)), 'T.reinterpret("int32", f)'),
    (Call("float32", "tir.undef", ()), "T.undef()"),
    (Call("int32", "tir.call_extern", ("f", X)), 'T.call_extern("int32", "f", x)'),
    (Call("int32", GlobalVar("g"), (X,)), "cls.g(x)"),
    (StringImm('a "b"'), "'a \"b\"'"),
    (StringImm("it's"), '"it\'s"'),
    (const(True), "T.bool(True)"),
    (IntImm("uint8", 255), "T.uint8(255)"),
    (Range.from_min_extent(X, 4), "I.Range(x, x + 4)"),
]


@pytest.mark.parametrize(("expr", "text"), GOLDEN, ids=[text for _, text in GOLDEN])
def test_scalar_expression_prints_as(expr, text):
    assert print_script(expr) == text


def test_str_of_an_expression_is_its_script():
    assert str(X + 1) == f"{X + 1}" == (X + 1).script() == "x + 1"


def test_two_variables_of_one_name_are_told_apart():
    assert print_script(Var("x") - Var("x")) == "x - x_1"


@pytest.mark.parametrize("name", ["for", "a b", "1", "", "T", "metadata", "a.b", "ä"])
def test_a_name_that_is_no_identifier_is_made_one(name):
    text = print_script(Var(name))
    assert text.isidentifier()
    assert text not in ("for", "T", "metadata")


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, "float32", "T.float32(1)"),
        (0.1, "float16", "T.float16(0.1)"),
        (0.1, "bfloat16", "T.bfloat16(0.1)"),
        # No shorter number that rounds to it is within its range.
        (-3.3895313892515355e38, "bfloat16", "T.bfloat16(-3.3895e+38)"),
        (0.1, "float64", "T.float64(0.1)"),
        (-0.0, "float32", "T.float32(-0.0)"),
        (1e-45, "float32", "T.float32(1e-45)"),
        (math.inf, "float32", 'T.float32("inf")'),
        (-math.inf, "float16", 'T.float16("-inf")'),
        (math.nan, "float64", 'T.float64("nan")'),
        (16777216.0, "float32", "T.float32(16777216)"),
    ],
)
def test_float_constant_prints_as(value, dtype, text):
    assert print_script(FloatImm(dtype, value)) == text


@settings(deadline=None, max_examples=200)
@given(bits=st.integers(0, 2**32 - 1), dtype=st.sampled_from(["float32", "float16", "bfloat16"]))
def test_a_float_constant_restores_its_bits(bits, dtype):
    if dtype == "float16":
        value = float(np.uint16(bits & 0xFFFF).view(np.float16))
    else:
        mask = 0xFFFF0000 if dtype == "bfloat16" else 0xFFFFFFFF
        value = float(np.uint32(bits & mask).view(np.float32))
    node = FloatImm(dtype, value)
    inner = print_script(node).removeprefix(f"T.{dtype}(").removesuffix(")").strip('"')
    again = FloatImm(dtype, float(inner))
    if math.isnan(value):
        assert math.isnan(again.value)
    else:
        assert struct.pack("<d", again.value) == struct.pack("<d", node.value)


# Python evaluates the text with the real functions: what it gives must be the very same node.


def _expressions(leaves, classes):
    return st.recursive(
        leaves,
        lambda inner: st.builds(lambda c, a, b: c(a, b), st.sampled_from(classes), inner, inner),
        max_leaves=12,
    )


@settings(deadline=None, max_examples=200)
@given(
    _expressions(
        st.sampled_from([X, Y, const(0), const(1), const(-1), const(7)]),
        [Add, Sub, Mul, FloorDiv, FloorMod, Div, Mod],
    )
)
def test_python_reads_integer_arithmetic_back_as_the_same_node(expr):
    assert eval(print_script(expr), {"T": T, "x": X, "y": Y}) is expr or isinstance(expr, IntImm)


@settings(deadline=None, max_examples=100)
@given(
    _expressions(
        st.sampled_from([F, G, FloatImm("float32", 0.0), FloatImm("float32", 1.5)]),
        [Add, Sub, Mul, Div],
    )
)
def test_python_reads_float_arithmetic_back_as_the_same_node(expr):
    assert eval(print_script(expr), {"T": T, "f": F, "g": G}) is expr


@pytest.mark.parametrize("terms", [5_000])
def test_a_sum_of_many_terms_prints_without_recursion(terms):
    left, right = X, X
    for _ in range(terms - 1):
        left = Add(left, Y)
        right = Sub(Y, right)
    assert print_script(left).count("+") == terms - 1
    assert print_script(right).count("(") == terms - 2


def test_the_prefix_can_be_chosen():
    assert print_script(N + 1, tir_prefix="tir") == "n + tir.int64(1)"
