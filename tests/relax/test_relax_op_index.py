"""Operators that read at indices: take, slices, gather, index_tensor."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from graph_runs import programs, tensor
from op_table import ALL, Case, Sym, T, check, check_errors, check_gradients

from relaxvm import relax, tir
from relaxvm.base import VMError, VMValueError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.op.names import ops

F = ("float64", "float16", "float32", "bool", "int8", "uint64")
ONE = ("float32", "int32")
D = ("float64", *ONE)


def index(*shape, size, dtype="int64", low=None):
    return T(*shape, dtype=dtype, low=-size if low is None else low, high=size - 1)


def rank(ndim):
    return lambda d: relax.TensorStructInfo(None, d, ndim=ndim)


CASES = [
    Case(R.take, T(5, 4), index("n", size=5), axis=0, dtypes=ALL),
    Case(R.take, T("n", 4), index(2, 2, size=4, dtype="int32"), axis=-1, dtypes=D),
    Case(R.take, T("n", "m", 2), index("k", size=2), axis=1, dtypes=D),
    Case(R.take, T(5), index("n", size=5), dtypes=D),
    Case(R.take, T("n", 4), index(2, size=12), dtypes=D),
    Case(R.take, T(5, 4), index(0, size=5), axis=0, dtypes=ONE),
    Case(R.take, T("zero", 4), index(0, size=1), axis=0, dtypes=ONE),
    Case(R.take, T(5, 4), index(size=4, dtype="uint8", low=0), axis=1, dtypes=ONE),
    Case(R.take, T("n", 4), relax.PrimValue(-2), axis=1, dtypes=ONE),
    Case(R.take, T("n", 4), Sym("n", lambda n: n - 1), axis=0, dtypes=ONE),
    Case(R.take, T(5, 4), index(6, size=20), axis=0, mode="clip", grad=False, dtypes=ONE),
    Case(R.take, T("n", 4), index(6, size=20), axis=0, mode="wrap", grad=False, dtypes=ONE),
    Case(R.take, T(5, 4), index(6, size=20), axis=0, mode="nan", grad=False),
    Case(R.take, T(5, 4, info=rank(2)), index(2, size=5), axis=0, dtypes=ONE),
    Case(R.strided_slice, T("n", 8), (1,), (1,), (7,), (2,), dtypes=ALL),
    Case(R.strided_slice, T("n", 8), axes=(0, -1), begin=(1, -3), end=(99, 8), dtypes=D),
    Case(R.strided_slice, T("n", 8), axes=(1, 0), begin=(6, -1), end=(0, -99), strides=(-2, -1),
         dtypes=D),
    Case(R.strided_slice, T("n", 8), axes=(1,), begin=(5,), end=(2,), dtypes=D),
    Case(R.strided_slice, T(0, 8), axes=(0,), begin=(0,), end=(3,), dtypes=ONE),
    Case(R.strided_slice, T("k", 2), (0,), (1,), (Sym("n"),), dtypes=D),
    Case(R.strided_slice, T("k", 2), (0,), (Sym("m"),), (Sym("n"),), (Sym("one"),), dtypes=ONE),
    Case(R.strided_slice, T("k", 2), (0,), (Sym("n"),), (Sym("zero"),),
         (Sym("one", lambda n: 0 - n),), dtypes=ONE),
    Case(R.strided_slice, T("k", 2), (0,), (Sym("m", lambda m: 0 - m),), (99,), dtypes=ONE),
    Case(R.strided_slice, T("k", 2), (0,), (Sym("m"),), (Sym("n"),), assume_inbound=True,
         dtypes=D),
    Case(R.strided_slice, T(9), (0,), (1,), (8,), (3,), assume_inbound=True, dtypes=ONE),
    Case(R.strided_slice, T("n", 8, info=rank(2)), (1,), (1,), (7,), (2,), dtypes=ONE),
    Case(R.dynamic_strided_slice, T("n", 8), T(2, dtype="int64", data=[-2, 1]),
         T(2, dtype="int64", data=[9, 7]), T(2, dtype="int64", data=[1, 3]), dtypes=F),
    Case(R.dynamic_strided_slice, T(4, "n"), T(2, dtype="int64", data=[3, 0]),
         T(2, dtype="int64", data=[0, 0]), T(2, dtype="int64", data=[-1, 1]), dtypes=ONE),
    Case(R.index_tensor, T("n", 4, 2), (index(2, size=3), index(2, size=4)), dtypes=F),
    Case(R.index_tensor, T("n", 4), (index("m", 1, size=3), index(5, size=4, dtype="int32")),
         dtypes=D),
    Case(R.index_tensor, T("n", 4), (index("m", size=3),), dtypes=D),
    Case(R.index_tensor, T("n", 4), (index("m", size=3), index("one", size=4)), dtypes=ONE),
    Case(R.index_tensor, T("n", 4), (index(0, size=3),), dtypes=ONE),
    Case(R.gather_elements, T("n", 4), index(2, 4, size=3), axis=0, dtypes=F),
    Case(R.gather_elements, T("n", 4), index("n", 2, size=4, dtype="int32"), axis=-1, dtypes=D),
    Case(R.gather_elements, T("n", 4), index("m", 2, size=3), dtypes=ONE),
    Case(R.gather_elements, T("n", 4), index(0, 2, size=3), dtypes=ONE),
    Case(R.gather_nd, T("n", 4, 2), index("m", 2, size=3), dtypes=F),
    Case(R.gather_nd, T("n", 4, 2), index("n", 4, 1, size=2), batch_dims=2, dtypes=D),
    Case(R.gather_nd, T("n", 4, 2), index("n", 5, 1, size=4), batch_dims=1, dtypes=D),
    Case(R.gather_nd, T("n", 4), index(2, 0, size=4), dtypes=ONE),
    Case(R.gather_nd, T("n", 4), index(0, 1, size=3), dtypes=ONE),
]  # fmt: skip


def test_reads_agree_with_numpy():
    check(CASES, dtypes=("float32", "bfloat16", "bool", "int32"), in_turn=True)


@pytest.mark.slow
def test_reads_agree_with_numpy_on_all_dtypes():
    check(CASES, slow=True)


FAR = np.array([0, 3, -1, 2, 2])
MODES = [
    *(
        Case(R.take, T("n", 4, 2), T(5, dtype="int64", data=FAR), axis=axis, mode=mode,
             dtypes=("float64",))
        for mode in ("clip", "wrap")
        for axis in (0, -2, None)
    ),
    Case(R.take, T("n", 4, 2), relax.PrimValue(1), axis=1, dtypes=("float64",)),
    Case(R.take, T("n", 4), relax.PrimValue(-1), dtypes=("float64",)),
    Case(R.take, T("n", 4), relax.PrimValue(9), axis=0, mode="clip", dtypes=("float64",)),
]  # fmt: skip


def test_gradients_agree_with_finite_differences():
    check_gradients(CASES)
    check_gradients(MODES)


def test_what_take_reads_nowhere_has_no_gradient():
    x, i, gy = tensor("x", 3), tensor("i", 4, dtype="int64"), tensor("g", 4)
    call = R.take(x, i, axis=0, mode="nan")
    (made, _) = R.take.op.grad(ops, call, call, gy)
    env = {i: np.array([0, 3, -1, 0]), gy: np.array([1, 2, 4, 8], "float32")}
    assert evaluate(made, {**env, x: np.zeros(3, "float32")}).tolist() == [9, 0, 0]


def test_a_dynamic_slice_takes_any_stride():
    x = tensor("x", 4)
    place = [tensor(name, 1, dtype="int64") for name in "bes"]
    ends = (-(2**63), -5, -1, 0, 3, 4, 9, 2**63 - 1)
    for run in programs([x, *place], R.dynamic_strided_slice(x, *place)):
        for begin, end, step in itertools.product(ends, ends, (-(2**63), -2, 1, 2**63 - 1)):
            have = run(np.arange(4, dtype="float32"), *(np.array([v]) for v in (begin, end, step)))
            assert have.numpy().tolist() == list(range(4))[begin:end:step]


def test_an_index_out_of_bounds_stops_the_program():
    n = tir.Var("n", "int64")
    x, i = tensor("x", n, 3), tensor("i", 2, dtype="int32")
    pair = tensor("p", 1, 2, dtype="int64")
    data = np.zeros((2, 3), "float32")
    calls = [
        (R.take(x, i, 0), i, [[1, -2]], [[0, 2], [-3, 0]]),
        (R.take(x, i), i, [[5, -6]], [[0, 6]]),
        (R.index_tensor(x, (i,)), i, [[1, -2]], [[0, 2], [-3, 0]]),
        (R.gather_nd(x, pair), pair, [[[1, -3]]], [[[0, 3]], [[2, 0]]]),
        (R.gather_elements(x, pair, 0), pair, [[[1, -2]]], [[[0, 2]]]),
    ]
    for call, index, good, bad in calls:
        for run in programs([x, index], call):
            for values in good:
                run(data, np.array(values, index.struct_info.dtype))
            for values in bad:
                with pytest.raises(VMError, match="an index is out of bounds"):
                    run(data, np.array(values, index.struct_info.dtype))
        for values in bad:
            given = {x: data, index: np.array(values, index.struct_info.dtype)}
            with pytest.raises(VMValueError, match="an index is out of bounds"):
                evaluate(call, given, {n: 2})


def test_an_empty_axis_has_nothing_to_take():
    n = tir.Var("n", "int64")
    x, i = tensor("x", n, 3), tensor("i", 2, dtype="int32")
    for run in programs([x, i], R.take(x, i, 0, "clip")):
        run(np.zeros((1, 3), "float32"), np.array([0, 9], "int32"))
        with pytest.raises(VMError, match="the axis is empty"):
            run(np.zeros((0, 3), "float32"), np.array([0, 9], "int32"))


def test_a_symbolic_index_out_of_bounds_stops_the_program():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x, y = tensor("x", n), tensor("y", m)
    for run in programs([x, y], R.take(x, relax.PrimValue(m), 0)):
        assert run(np.arange(3, dtype="float32"), np.zeros(2, "float32")).numpy() == 2
        with pytest.raises(VMError):
            run(np.arange(3, dtype="float32"), np.zeros(3, "float32"))


def test_what_assume_inbound_promises_is_checked():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    x, y = tensor("x", n), tensor("y", m)
    call = R.strided_slice(x, (0,), (1,), (m,), assume_inbound=True)
    for run in programs([x, y], call):
        got = run(np.arange(4, dtype="float32"), np.zeros(4, "float32"))
        assert got.numpy().tolist() == [1, 2, 3]
        with pytest.raises(VMError):
            run(np.arange(4, dtype="float32"), np.zeros(5, "float32"))


def test_a_stride_of_zero_stops_the_program():
    x = tensor("x", 4)
    place = [tensor(name, 1, dtype="int64") for name in "bes"]
    for run in programs([x, *place], R.dynamic_strided_slice(x, *place)):
        b, e = np.array([0]), np.array([4])
        assert run(np.zeros(4, "float32"), b, e, np.array([3])).shape == (2,)
        with pytest.raises(VMError):
            run(np.zeros(4, "float32"), b, e, np.array([0]))


def test_sizes_of_slices_of_symbols_are_simple_where_they_can_be():
    n = tir.Var("n", "int64")
    x = tensor("x", n, 8)
    whole = R.strided_slice(x, (0,), (0,), (n,)).struct_info
    assert whole.dims[0] is n
    but_one = R.strided_slice(x, (0,), (1,), (n,), assume_inbound=True).struct_info
    assert str(but_one.dims[0]) == "n - T.int64(1)"
    assert R.strided_slice(x, (1,), (-3,), (99,)).struct_info.dims[1].value == 3


def test_slices_agree_with_pythons_for_every_begin_end_and_stride():
    a = np.arange(5, dtype="float32")
    x = tensor("x", 5)
    for begin in range(-7, 8):
        for end in range(-7, 8):
            for step in (-3, -2, -1, 1, 2, 3):
                call = R.strided_slice(x, (0,), (begin,), (end,), (step,))
                assert call.struct_info.dims[0].value == len(a[begin:end:step]), (begin, end, step)


def test_mistakes_are_named():
    x, i = tensor("x", 2, 3), tensor("i", 2, dtype="int32")
    pairs = tensor("p", 4, 3, dtype="int64")
    n = tir.Var("n", "int64")
    check_errors(
        [
            (lambda: R.take(x, x, 0), "take: indices: wanted an integer dtype, got float32"),
            (lambda: R.take(x, i, 2), "take: axis: wanted -2 to 1"),
            (lambda: R.take(x, i, 0, "near"), "mode: wanted one of fast, wrap, clip, nan"),
            (lambda: R.take(i, i, 0, "nan"), '"nan" is for floats, x is int32'),
            (lambda: R.take(x, relax.PrimValue(3), 1), "indices: 3 is out of bounds for size 3"),
            (lambda: R.strided_slice(x, (2,), (0,), (1,)), "axes: wanted -2 to 1"),
            (lambda: R.strided_slice(x, (0, 0), (0, 0), (1, 1)), "axes: an axis stands twice"),
            (lambda: R.strided_slice(x, (0,), (0, 0), (1,)), "begin: wanted 1 values"),
            (lambda: R.strided_slice(x, (0,), (0,), (1,), (0,)), "strides: a stride is 0"),
            (lambda: R.strided_slice(x, (0,), (0.5,), (1,)), "begin: field 0: wanted an integer"),
            (lambda: R.strided_slice(x, (n,), (0,), (1,)), "axes: wanted constant integers, got n"),
            (
                lambda: R.strided_slice(x, (0,), (0,), (3,), assume_inbound=True),
                "end: 3 is out of bounds for size 2, but assume_inbound is set",
            ),
            (lambda: R.dynamic_strided_slice(x, i, i, i), "begin: wanted int64, got int32"),
            (lambda: R.index_tensor(x, (i, i, i)), "indices: 3 of them for 2 dimensions"),
            (lambda: R.index_tensor(x, ()), "indices: wanted at least one tensor"),
            (lambda: R.index_tensor(x, (x,)), "indices: field 0: wanted an integer dtype"),
            (
                lambda: R.index_tensor(x, (i, tensor("j", 3, dtype="int32"))),
                "the shapes do not broadcast",
            ),
            (lambda: R.gather_elements(x, i), "indices has 1 dimensions, data has 2"),
            (lambda: R.gather_elements(x, pairs, 1), "indices has 4, more than the 2 of data"),
            (lambda: R.gather_nd(x, pairs), "0 batch dimensions and 3 indices for 2 dimensions"),
            (lambda: R.gather_nd(x, pairs, 2), "batch_dims: 2 of the 2 dimensions of indices"),
            (
                lambda: R.gather_nd(x, tensor("q", 2, n, dtype="int64")),
                "the last dimension must be constant, got n",
            ),
        ]
    )
