"""HoistIfThenElse: what padding becomes, and what it must leave alone."""

from __future__ import annotations

import numpy as np
import pytest
from transform_helpers import check, parse

from relaxvm.ir import IRModule
from relaxvm.tir import interpret
from relaxvm.tir.transform import HoistIfThenElse

HEAD = 'def main(A: T.Buffer(({n},), "float32"), P: T.Buffer(({m},), "float32"), j: T.int32):\n'


def padding(condition, n=8, m=12, first=0, value="A[i - 2]", extra=""):
    return (
        HEAD.format(n=n, m=m)
        + f"    for i in range({first}, {m}):\n"
        + f"        P[i] = T.if_then_else({condition}, {value}, T.float32(1){extra})\n"
    )


def test_padding_becomes_three_loops():
    check(
        HoistIfThenElse(),
        padding("i - 2 >= 0 and i - 2 < 8"),
        HEAD.format(n=8, m=12)
        + """
    for i in range(2):
        P[i] = T.float32(1)
    for i in range(2, 10):
        P[i] = A[i - 2]
    for i in range(10, 12):
        P[i] = T.float32(1)
""",
    )


def test_a_condition_of_an_outer_loop_is_asked_once():
    check(
        HoistIfThenElse(),
        padding("j < 3", value="A[0]"),
        HEAD.format(n=8, m=12)
        + """
    if j < 3:
        for i in range(12):
            P[i] = A[0]
    else:
        for i in range(12):
            P[i] = T.float32(1)
""",
    )


CONDITIONS = {
    "both sides": "i - 2 >= 0 and i - 2 < 8",
    "reversed": "2 <= i and 9 >= i",
    "scaled": "i * 2 - 5 >= 0 and i * 3 < 25",
    "negative": "9 - i >= 0 and 1 - i < 0",
    "of the outside": "j > 0 and j < 3 and i > 1 and i < 10",
    "bounds that depend on the outside": "i >= j and i < j + 4 and i > 1 and i < 10",
    "never": "i > 20 and i > 1 and i < 10",
    "crossing": "i > 8 and i < 5",
    "with another kind": "i % 2 == 0 and i > 1 and i < 10",
    "an order that matters": "i > 1 and i < 10 and A[i - 2] > T.float32(0)",
}


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("name", CONDITIONS)
def test_the_meaning_stays(name, first):
    fn = parse(padding(CONDITIONS[name], first=first))
    made = HoistIfThenElse()(IRModule({"main": fn}))["main"]
    a = np.random.default_rng(0).standard_normal(8).astype("float32")
    for j in (-3, 0, 1, 2, 5, 40):
        want, got = np.zeros(12, "float32"), np.zeros(12, "float32")
        interpret(fn, a, want, j)
        interpret(made, a, got, j)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    "condition",
    [
        "i // T.max(j, 1) < 3",  # not of the form c * i + rest
        "A[0] > T.float32(0)",  # memory may be written meanwhile
        "7 // j < 2",  # may divide by zero where the loop has no iterations
    ],
)
def test_conditions_that_stay(condition):
    before = padding(condition, value="A[0]")
    check(HoistIfThenElse(), before, before)


def test_nested_choices_of_one_other_value_are_one():
    nested = "T.if_then_else(i < 10, A[i - 2], T.float32(1))"
    fn = padding("i > 1", value=nested)
    made = HoistIfThenElse()(IRModule({"main": parse(fn)}))["main"].script()
    assert "if_then_else" not in made


def test_what_is_split_off_is_looked_at_again():
    third = "T.if_then_else(i < 7, A[i - 3], T.if_then_else(i < 9, A[i - 6], A[i - 9]))"
    fn = parse(padding("i < 3", value="A[i]").replace("T.float32(1)", third))
    made = HoistIfThenElse()(IRModule({"main": fn}))["main"]
    text = made.script()
    assert "if" not in text.split("def ")[1]
    assert text.count("for ") == 4
    a, want, got = np.arange(8, dtype="float32"), np.zeros(12, "float32"), np.zeros(12, "float32")
    interpret(fn, a, want, 0)
    interpret(made, a, got, 0)
    np.testing.assert_array_equal(got, want)


def guarded(condition, first=0):
    body = f"        if {condition}:\n            P[i] = A[T.max(T.min(i - 2, 7), 0)]\n"
    return HEAD.format(n=8, m=12) + f"    for i in range({first}, 12):\n" + body


def test_a_store_under_conditions_runs_where_they_hold():
    check(
        HoistIfThenElse(),
        guarded("j * 4 + i < 9"),
        HEAD.format(n=8, m=12)
        + """
    for i in range(T.max(T.min(T.int32(9) - j * 4, 12), 0)):
        P[i] = A[T.max(T.min(i - 2, 7), 0)]
""",
    )


@pytest.mark.parametrize("first", [0, 3])
@pytest.mark.parametrize("name", CONDITIONS)
def test_the_meaning_of_a_store_under_conditions_stays(name, first):
    condition = CONDITIONS[name].replace("A[i - 2]", "A[T.min(T.max(i - 2, 0), 7)]")
    fn = parse(guarded(condition, first))
    made = HoistIfThenElse()(IRModule({"main": fn}))["main"]
    a = np.random.default_rng(0).standard_normal(8).astype("float32")
    for j in (-3, 0, 1, 2, 5, 40):
        want, got = np.zeros(12, "float32"), np.zeros(12, "float32")
        interpret(fn, a, want, j)
        interpret(made, a, got, j)
        np.testing.assert_array_equal(got, want)
