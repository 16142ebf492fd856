"""Operators that write at indices: scatter, index_put, slice_scatter."""

from __future__ import annotations

import numpy as np
import pytest
from graph_runs import programs, tensor
from op_table import ALL, NUMBERS, Case, Sym, T, check, check_errors, check_gradients

from relaxvm import relax, tir
from relaxvm.base import VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.op.names import ops

ONE = ("float32", "int32")
D = ("float64", *ONE)
# Different ones: several updates of one place have cases of their own.
APART = T("n", 2, dtype="int64", data=[[0, 3], [2, 1], [-1, 0]])


def index(*shape, size, dtype="int64", low=None):
    return T(*shape, dtype=dtype, low=-size if low is None else low, high=size - 1)


CASES = [
    Case(R.scatter_elements, T("n", 4), APART, T("n", 2), axis=1, dtypes=ALL),
    Case(R.scatter_elements, T("n", 4), index(6, 3, size=3, dtype="int32"), T(6, 3), axis=0,
         reduction="add", count=6, dtypes=NUMBERS),
    Case(R.scatter_elements, T("n", 4), index(3, 3, size=3), T(3, 3), axis=-2, reduction="mul",
         grad=False, count=4),
    Case(R.scatter_elements, T("n", 4), index(6, 3, size=3), T(6, 3), reduction="max", grad=False,
         dtypes=NUMBERS),
    Case(R.scatter_elements, T("n", 4), index(6, 3, size=3), T(6, 3), reduction="min", grad=False),
    Case(R.scatter_elements, T("n", 4), index(6, 3, size=3), T(6, 3), reduction="mean", grad=False,
         count=6, dtypes=("float16", *D)),
    Case(R.scatter_elements, T("n", 4), index("k", 4, size=3), T("k", 4), grad=False, dtypes=ONE),
    Case(R.scatter_elements, T("n", 4), index("k", "m", size=3), T("k", 2), grad=False,
         dtypes=ONE),
    Case(R.scatter_elements, T("n", 4), index(0, 4, size=3), T(0, 4), dtypes=ONE),
    Case(R.scatter_elements, T(0, 4), index(0, 4, size=3), T(0, 4), reduction="mean", grad=False,
         dtypes=ONE),
    Case(R.scatter_nd, T("n", 4), T(2, 1, dtype="int64", data=[[2], [0]]), T(2, 4), dtypes=ALL),
    Case(R.scatter_nd, T("n", 4), index("k", 2, size=3), T("k"), reduction="add", count=5,
         dtypes=NUMBERS),
    Case(R.scatter_nd, T("n", 4), index(6, 1, size=3), T(6, 4), reduction="max", grad=False,
         dtypes=D),
    Case(R.scatter_nd, T("n", 4), index(2, 3, 1, size=3), T(2, 3, 4), reduction="mul", grad=False,
         count=4, dtypes=("float32",)),
    Case(R.scatter_nd, T("n", 4), index(6, 1, size=3), T(6, 4), reduction="min", grad=False,
         dtypes=D),
    Case(R.scatter_nd, T("n"), index(2, 0, size=3), T(2, "n"), reduction="add", dtypes=ONE),
    Case(R.scatter_nd, T("n"), index(0, 1, size=3), T(0), dtypes=ONE),
    Case(R.index_put, T("n", 4),
         (T(2, dtype="int32", data=[0, 1]), T(2, dtype="int64", data=[3, -1])), T(2), dtypes=ALL),
    Case(R.index_put, T("n", 4), (index("k", size=3),), T("k", 4), accumulate=True, count=5,
         dtypes=NUMBERS),
    Case(R.index_put, T("n", 4), (index("m", 1, size=3), index(2, size=4)), T(2), accumulate=True,
         count=4, dtypes=D),
    Case(R.index_put, T("n", 4), (index("k", size=3),), T(), grad=False, dtypes=D),
    Case(R.index_put, T("n", 4), (index("m", size=3), index("one", size=4)), T(1), grad=False,
         dtypes=ONE),
    Case(R.index_put, T("n", 4), (index(0, size=3),), T(0, 4), dtypes=ONE),
    Case(R.slice_scatter, T("n", 4), T("n", 2), 1, 3, axis=1, dtypes=ALL),
    Case(R.slice_scatter, T(7, 2), T(3, 2), 1, 99, 2, dtypes=D),
    Case(R.slice_scatter, T(7, 2), T(2, 2), -2, 7, dtypes=D),
    Case(R.slice_scatter, T("k", 2), T("n", 2), Sym("m"), Sym("k"), axis=-2, dtypes=D),
    Case(R.slice_scatter, T("n", 2), T(0, 2), 2, 1, dtypes=ONE),
]  # fmt: skip


def test_writes_agree_with_numpy():
    check(CASES, dtypes=("float32", "bfloat16", "bool", "int32"), in_turn=True)


@pytest.mark.slow
def test_writes_agree_with_numpy_on_all_dtypes():
    check(CASES, slow=True)


def test_gradients_agree_with_finite_differences():
    check_gradients(CASES)


MEETING = np.array([[0, 1, 1, 0], [0, 1, 0, 0], [2, 1, 1, 0]])
ROWS = [[0], [1], [1], [0], [1]]
SOME_ZEROS = np.array([[0, 2, 0, 1.0], [0, 0, 3, 1], [1, 2, 3, 4]])
MEETINGS = [
    *(
        Case(R.scatter_elements, T("n", 4), T(3, 4, dtype="int64", data=MEETING), T(3, 4),
             reduction=reduction, dtypes=("float64",))
        for reduction in ("update", "add", "mul", "mean", "max", "min")
    ),
    *(
        Case(R.scatter_nd, T("n", 4), T(5, 1, dtype="int64", data=ROWS), T(5, 4),
             reduction=reduction, dtypes=("float64",))
        for reduction in ("update", "add", "mul", "max", "min")
    ),
    *(
        Case(R.index_put, T("n", 4), (T(4, dtype="int64", data=[0, 1, 1, 0]),), values,
             accumulate=accumulate, dtypes=("float64",))
        for values in (T(4, 4), T(4), T(1))
        for accumulate in (False, True)
    ),
    Case(R.scatter_elements, T(3, 4, data=SOME_ZEROS), T(3, 4, dtype="int64", data=MEETING),
         T(3, 4, data=SOME_ZEROS[::-1]), reduction="mul", dtypes=("float64",)),
]  # fmt: skip


def test_gradients_are_exact_where_several_updates_meet():
    check(MEETINGS)
    check_gradients(MEETINGS)


def test_equal_extreme_updates_share_the_gradient():
    x, i, u = tensor("x", 2), tensor("i", 3, dtype="int64"), tensor("u", 3)
    call = R.scatter_elements(x, i, u, 0, "max")
    y, gy = tensor("y", 2), tensor("gy", 2)
    made = R.scatter_elements.op.grad(ops, call, y, gy)
    env = {x: np.array([5.0, 0.0]), i: np.zeros(3, "int64"), u: np.array([5.0, 1.0, 5.0]),
           y: np.array([5.0, 0.0]), gy: np.array([3.0, 7.0])}  # fmt: skip
    env = {k: v.astype("float32") if k is not i else v for k, v in env.items()}
    assert evaluate(made[0], env).tolist() == [1.0, 7.0]
    assert evaluate(made[2], env).tolist() == [1.0, 0.0, 1.0]


def test_the_last_of_several_updates_wins():
    x, i, u = tensor("x", 3), tensor("i", 3, dtype="int64"), tensor("u", 3)
    for call in (R.scatter_elements(x, i, u), R.index_put(x, (i,), u)):
        for run in programs([x, i, u], call):
            got = run(np.zeros(3, "float32"), np.array([1, 1, -2]), np.arange(3, dtype="float32"))
            assert got.numpy().tolist() == [0, 2, 0]


def test_mean_counts_the_element_itself():
    x, i, u = tensor("x", 2), tensor("i", 3, dtype="int64"), tensor("u", 3)
    for run in programs([x, i, u], R.scatter_elements(x, i, u, 0, "mean")):
        got = run(np.array([1, 5], "float32"), np.zeros(3, "int64"), np.array([2, 3, 6], "float32"))
        assert got.numpy().tolist() == [3, 5]


def test_an_index_out_of_bounds_stops_the_program():
    x, i, u = tensor("x", 3), tensor("i", 2, dtype="int64"), tensor("u", 2)
    column = R.reshape(i, (2, 1))
    calls = [R.scatter_elements(x, i, u), R.index_put(x, (i,), u), R.scatter_nd(x, column, u)]
    for call in calls:
        for run in programs([x, i, u], call):
            for bad in ([0, 3], [-4, 0]):
                with pytest.raises(VMError, match="an index is out of bounds"):
                    run(np.zeros(3, "float32"), np.array(bad), np.zeros(2, "float32"))


def test_updates_of_another_size_stop_the_program():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x, i, u = tensor("x", 3), tensor("i", n, dtype="int64"), tensor("u", m)
    size = tensor("size", n, 2)
    calls = [
        ([x, i, u], R.scatter_elements(x, i, u)),
        ([x, i, u], R.index_put(x, (i,), u)),
        ([x, i, u], R.scatter_nd(x, R.expand_dims(i, 1), u)),
    ]
    for params, call in calls:
        for run in programs(params, call):
            run(np.zeros(3, "float32"), np.zeros(2, "int64"), np.zeros(2, "float32"))
            with pytest.raises(VMError):
                run(np.zeros(3, "float32"), np.zeros(2, "int64"), np.zeros(3, "float32"))
    for run in programs([size, u], R.slice_scatter(u, R.flatten(size), 0, n * 2)):
        run(np.zeros((1, 2), "float32"), np.zeros(2, "float32"))
        with pytest.raises(VMError):
            run(np.zeros((2, 2), "float32"), np.zeros(2, "float32"))


def test_the_meaning_of_slice_scatter_does_not_broadcast():
    with pytest.raises(VMError, match=r"src: wanted shape \(0, 2\), got \(1, 2\)"):
        R.slice_scatter.op.numpy(np.zeros((3, 2)), np.zeros((1, 2)), 1, 1)


def test_mistakes_are_named():
    x, y, i = tensor("x", 2, 3), tensor("y", 2, 4), tensor("i", 2, 3, dtype="int32")
    flag = tensor("b", 2, 3, dtype="bool")
    n = relax.PrimValue(tir.Var("n", "int64"))
    check_errors(
        [
            (lambda: R.scatter_elements(x, x, x), "indices: wanted an integer dtype"),
            (lambda: R.scatter_elements(x, i, y), "dimension 1: updates has 4, indices has 3"),
            (lambda: R.scatter_elements(x, i, i), "the dtypes differ: data is float32"),
            (lambda: R.scatter_elements(x, i, x, 0, "sub"), "reduction: wanted one of update, add"),
            (lambda: R.scatter_elements(flag, i, flag, 0, "add"), "wanted a number's dtype"),
            (lambda: R.scatter_elements(x, i, x, 2), "axis: wanted -2 to 1"),
            (lambda: R.scatter_nd(x, i, x), "indices: 3 indices for 2 dimensions of data"),
            (
                lambda: R.scatter_nd(x, tensor("j", 4, 1, dtype="int64"), x),
                "updates: dimension 0: wanted .*4.*, got .*2",
            ),
            (lambda: R.scatter_nd(x, i, x, "mean"), "reduction: wanted one of"),
            (lambda: R.index_put(x, (), x), "indices: wanted at least one tensor"),
            (lambda: R.index_put(x, (i, i), y), "values: dimension -1: 4 does not broadcast to 3"),
            (lambda: R.index_put(flag, (i,), flag, True), "wanted a number's dtype"),
            (lambda: R.slice_scatter(x, y, 0, 2), "src: dimension 1: wanted 3, got 4"),
            (lambda: R.slice_scatter(x, x, 0, 1), "src: dimension 0: wanted 1, got 2"),
            (lambda: R.slice_scatter(x, x, 0, 2, 0), "step: wanted a positive constant"),
            (lambda: R.slice_scatter(x, x, 0, 2, n), "step: wanted a positive constant"),
            (lambda: R.slice_scatter(x, x, 0.5, 2), "start: wanted an integer"),
        ]
    )
