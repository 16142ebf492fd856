"""Reductions that keep several values: sums side by side, argmax and argmin of both kinds."""

import numpy as np
import pytest
from schedule_helpers import arguments, by_machine, check

from relaxvm.script import from_source
from relaxvm.tir import Schedule, ScheduleError

TEXT = """# from relaxvm.script import tir as T
@T.prim_func
def main(
    A: T.Buffer((4, 12), "{da}"),
    X: T.Buffer((4, 12), "int32"),
    P: T.Buffer((4,), "{dp}"),
    Q: T.Buffer((4,), "{dq}"),
):
    for i, k in T.grid(4, 12):
        with T.block("R"):
            vi, vk = T.axis.remap("SR", [i, k])
            with T.init():
                P[vi] = {p0}
                Q[vi] = {q0}
            {p}
            {q}
            {stores}
"""
STORES = "P[vi] = p\n            Q[vi] = q"
LEAST = 'T.min_value("float32")'


def several(p, q, dq="float32", lets=True):
    kinds = {"sum": ("T.float32(0)", "{o} + {n}"), "max": (LEAST, "T.max({o}, {n})")}
    kinds["count"] = ("0", "{o} + {n}")
    parts = {}
    for name, (kind, value) in (("p", p), ("q", q)):
        start, update = kinds[kind]
        update = update.format(o=f"{name.upper()}[vi]", n=value)
        dtype = dq if name == "q" else "float32"
        line = f"{name}: T.{dtype} = {update}" if lets else f"{name.upper()}[vi] = {update}"
        parts |= {f"{name}0": start, name: line}
    stores = STORES if lets else "T.evaluate(0)"
    text = TEXT.format(da="float32", dp="float32", dq=dq, stores=stores, **parts)
    return from_source(text if lets else text.replace("            T.evaluate(0)\n", ""))


def best(how, ties):
    beats = f"Q[vi] {how} A[vi, vk]"
    keeps = f"{beats} or (Q[vi] == A[vi, vk] and P[vi] < X[vi, vk])" if ties else beats
    worst = LEAST if how in (">", ">=") else 'T.max_value("float32")'
    return from_source(
        TEXT.format(
            da="float32",
            dp="int32",
            dq="float32",
            p0="-1",
            q0=worst,
            p=f"p: T.int32 = T.Select({keeps}, P[vi], X[vi, vk])",
            q=f"q: T.float32 = T.Select({beats}, Q[vi], A[vi, vk])",
            stores=STORES,
        )
    )


FUNCTIONS = {
    "sum_and_squares": lambda: several(("sum", "A[vi, vk]"), ("sum", "A[vi, vk] * A[vi, vk]")),
    "plain_stores": lambda: several(("sum", "A[vi, vk]"), ("max", "A[vi, vk]"), lets=False),
    "max_and_count": lambda: several(("max", "A[vi, vk]"), ("count", "X[vi, vk]"), "int32"),
    "argmax_of_ties": lambda: best(">", True),
    "argmin_of_ties": lambda: best("<", True),
}


@pytest.mark.parametrize("inner", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_rfactor_of_several_values(name, inner):
    fn = FUNCTIONS[name]()
    sch = Schedule(fn)
    _, k = sch.get_loops("R")
    parts = sch.split(k, [None, 4])
    sch.rfactor(parts[inner], int(inner))
    arrays = arguments(fn, np.random.default_rng(0))
    arrays[1] = np.arange(48, dtype="int32").reshape(4, 12)
    check(fn, sch, [arrays])
    check(fn, sch, [arrays], by_machine)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_loops_of_several_values_change_places(name):
    fn = FUNCTIONS[name]()
    sch = Schedule(fn)
    i, k = sch.get_loops("R")
    k0, k1 = sch.split(k, [None, 4])
    sch.reorder(k1, k0, i)
    sch.decompose_reduction("R", k1)
    arrays = arguments(fn, np.random.default_rng(0))
    arrays[1] = np.arange(48, dtype="int32").reshape(4, 12)
    check(fn, sch, [arrays])


def test_the_first_of_equal_values_stays_the_first():
    sch = Schedule(best(">=", False))
    _, k = sch.get_loops("R")
    k0, k1 = sch.split(k, [None, 4])
    with pytest.raises(ScheduleError, match="only the outermost loop"):
        sch.rfactor(k1, 1)
    sch.rfactor(k0, 1)


@pytest.mark.parametrize(
    ("p", "q"),
    [
        (("sum", "A[vi, vk]"), ("sum", "P[vi]")),
        (("sum", "Q[vi]"), ("sum", "A[vi, vk]")),
        (("sum", "A[vi, vk]"), ("sum", "P[3 - vi]")),
    ],
)
@pytest.mark.parametrize("lets", [False, True])
def test_values_that_read_each_other_are_not_factored(p, q, lets):
    sch = Schedule(several(p, q, lets=lets))
    with pytest.raises(ScheduleError, match="none of those that are known|no reduction"):
        sch.rfactor(sch.get_loops("R")[1], 0)
