"""Operators that order elements or find distinct ones."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import ALL, FLOATS, NUMBERS, Case, T, check, check_errors, check_gradients

from relaxvm import relax, tir
from relaxvm.base import VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.runtime import VirtualMachine, cpu

ONE = ("float32", "int32")
D = ("float64", *ONE)


def rank(ndim):
    return lambda d: relax.TensorStructInfo(None, d, ndim=ndim)


def repeating(rng, shape):
    return rng.integers(0, 3, shape)


def ascending(rng, shape):
    return np.sort(rng.integers(0, 9, shape), axis=-1)


CASES = [
    Case(R.sort, T("n", 4), dtypes=ALL),
    Case(R.sort, T(7, "m", special=True), axis=0, descending=True, dtypes=FLOATS, grad=False),
    Case(R.sort, T(6, "m"), axis=-2, descending=True, dtypes=D),
    Case(R.sort, T(7, special=True), grad=False, dtypes=FLOATS),
    Case(R.sort, T(0, 4), axis=0, dtypes=ONE),
    Case(R.sort, T("n", 0), dtypes=ONE),
    Case(R.sort, T("n", 4, info=rank(2)), dtypes=ONE),
    Case(R.argsort, T("n", 6, data=repeating), dtypes=ALL),
    Case(R.argsort, T(6, "n", data=repeating), axis=0, descending=True, dtype="int64", dtypes=D),
    Case(R.argsort, T(7, special=True), descending=True, dtype="uint8"),
    Case(R.argsort, T(0), dtypes=ONE),
    Case(R.topk, T("n", 6), k=2, dtypes=ALL),
    Case(R.topk, T(6, "m"), k=3, axis=0, ret_type="values", largest=False, dtypes=D),
    Case(R.topk, T("n", 6, data=repeating), k=4, ret_type="indices", dtype="int64", dtypes=D),
    Case(R.topk, T("n", 2), k=5, axis=0, dtypes=ONE),
    Case(R.topk, T("n", 2), k=-1, axis=0, dtypes=ONE),
    Case(R.topk, T(7, special=True), k=7, grad=False),
    Case(R.topk, T("n", 0), k=2, dtypes=ONE),
    Case(R.searchsorted, T(6, data=ascending), T("n", 4, low=0, high=9), dtypes=NUMBERS),
    Case(R.searchsorted, T("n", 6, data=ascending), T("n", 4, data=repeating), right=True,
         dtype="int64", dtypes=D),
    Case(R.searchsorted, T("n", 6, data=ascending), T("m", 4, data=repeating), dtypes=ONE,
         sizes={"n": 2}),
    Case(R.searchsorted, T(0), T("n"), dtypes=ONE),
    Case(R.searchsorted, T(6, data=ascending), T(), dtypes=ONE),
    Case(R.bucketize, T("n", 4, low=0, high=9), T("k", data=ascending), dtypes=NUMBERS),
    Case(R.bucketize, T("n", data=repeating), T(3, data=[0, 1, 2]), out_int32=True, right=True,
         dtypes=D),
    Case(R.bucketize, T(0), T(3, data=[0, 1, 2]), dtypes=ONE),
    Case(R.nonzero, T("n", 4, data=repeating), dtypes=ALL),
    Case(R.nonzero, T(0, 4), dtypes=ONE),
    Case(R.nonzero, T(), dtypes=ONE),
    Case(R.nonzero, T("n", 2, 2, info=rank(3)), dtypes=ONE),
    Case(R.unique, T("n", 4, data=repeating), dtypes=ALL),
    Case(R.unique, T("n", 4, data=repeating), sorted=False, return_index=True, return_inverse=True,
         return_counts=True, dtypes=D),
    Case(R.unique, T(9, "m", data=lambda rng, shape: rng.integers(0, 2, shape)), axis=0,
         return_inverse=True, return_counts=True, dtypes=D),
    Case(R.unique, T(2, 9, data=lambda rng, shape: rng.integers(0, 2, shape)), axis=-1,
         sorted=False, return_index=True, dtypes=ONE),
    Case(R.unique, T(5, special=True), return_counts=True),
    Case(R.unique, T(0), return_index=True, return_inverse=True, dtypes=ONE),
    Case(R.unique, T(3, 0), axis=0, return_counts=True, return_inverse=True, dtypes=ONE),
    Case(R.unique, T(0, 3), axis=0, dtypes=ONE),
]  # fmt: skip


def test_orders_agree_with_numpy():
    check(CASES, dtypes=("float32", "bfloat16", "bool", "int32"), in_turn=True)


@pytest.mark.slow
def test_orders_agree_with_numpy_on_all_dtypes():
    check(CASES, slow=True)


def test_gradients_agree_with_finite_differences():
    check_gradients(CASES)


def build(params, call):
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(call)
        builder.emit_func_output(out)
    return VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]


def tensor(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def test_descending_order_keeps_equal_elements_in_place_and_puts_nan_first():
    x = tensor("x", 6)
    main = build([x], R.argsort(x, descending=True))
    got = main(np.array([1, 2, np.nan, 2, 1, np.nan], "float32")).numpy()
    assert got.tolist() == [2, 5, 1, 3, 0, 4]


def test_topk_takes_the_first_of_equal_elements():
    x = tensor("x", 5)
    main = build([x], R.topk(x, 3, largest=False, dtype="int64"))
    values, indices = main(np.array([2, 1, 1, 2, 1], "float32"))
    assert indices.numpy().tolist() == [1, 2, 4]
    assert values.numpy().tolist() == [1, 1, 1]


def test_a_fresh_symbol_stands_for_the_number_of_nonzeros_in_what_follows():
    n = tir.Var("n", "int64")
    x = tensor("x", n)
    main = build([x], R.add(R.nonzero(x), R.nonzero(x)))
    assert main(np.array([0, 3, 0, 4], "float32")).numpy().tolist() == [[2, 6]]
    assert main(np.zeros(3, "float32")).numpy().shape == (1, 0)


def test_unique_agrees_with_numpys():
    rng = np.random.default_rng(5)
    for shape, axis in [((40,), None), ((6, 7), None), ((40, 2), 0), ((2, 40), 1)]:
        a = rng.integers(0, 3, shape)
        x = tensor("x", *shape, dtype="int64")
        call = R.unique(x, True, True, True, True, axis)
        got = evaluate(call, {x: a})
        want = np.unique(a, True, True, True, axis=axis)
        for g, w in zip(got, want):
            assert np.array_equal(g.reshape(-1), np.reshape(w, -1))


def test_the_library_is_there_whatever_is_granted():
    x = tensor("x", 3)
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        builder.emit_func_output(builder.emit(R.sort(x)))
    executable = relax.build(builder.get(), target="llvm")
    vm = VirtualMachine(executable, cpu(), functions={})
    assert vm["main"](np.array([3, 1, 2], "float32")).numpy().tolist() == [1, 2, 3]


def test_mistakes_are_named():
    x, scalar = tensor("x", 2, 3), tensor("s")
    ints, long = tensor("i", 3, dtype="int32"), tensor("l", 129)
    check_errors(
        [
            (lambda: R.sort(x, axis=2), "sort: axis: wanted -2 to 1 for 2 dimensions, got 2"),
            (lambda: R.sort(scalar), "wanted a tensor of at least one dimension"),
            (lambda: R.argsort(x, dtype="float32"), "argsort: dtype: wanted an integer dtype"),
            (lambda: R.topk(x, 1, ret_type="all"), "ret_type: wanted both, values or indices"),
            (lambda: R.searchsorted(ints, x), "the dtypes differ: sorted_sequence is int32"),
            (lambda: R.searchsorted(x, tensor("v", 4, 3)), "dimension 0: wanted 2 .* got 4"),
            (lambda: R.searchsorted(x, tensor("v", 3)), "values: wanted 2 dimensions"),
            (lambda: R.bucketize(x, x), "boundaries: wanted 1 dimensions, got 2"),
            (lambda: R.unique(x, axis=2), "unique: axis: wanted -2 to 1"),
            (lambda: R.argsort(long, dtype="int8"), "int8 does not hold the indices .* of 129"),
            (lambda: R.topk(long, 2, dtype="int8"), "int8 does not hold the indices .* of 129"),
            (lambda: R.searchsorted(tensor("v", 128), x, dtype="int8"), "int8 does not hold"),
            (lambda: R.nonzero(relax.PrimValue(1)), "nonzero: x: wanted a tensor"),
        ]
    )


def test_an_axis_that_the_dtype_of_the_indices_cannot_number_stops_the_program():
    n = tir.Var("n", "int64")
    x = tensor("x", n)
    for call in (R.argsort(x, dtype="int8"), R.topk(x, 1, ret_type="indices", dtype="int8")):
        main = build([x], call)
        assert main(np.zeros(128, "float32")).dtype == "int8"
        with pytest.raises(VMError):
            main(np.zeros(129, "float32"))


def test_a_row_of_another_length_stops_the_program():
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    keys, values = tensor("keys", n, 4), tensor("values", m, 4)
    main = build([keys, values], R.searchsorted(keys, values))
    with pytest.raises(VMError):
        main(np.zeros((2, 4), "float32"), np.zeros((3, 4), "float32"))
