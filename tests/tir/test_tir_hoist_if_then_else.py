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
