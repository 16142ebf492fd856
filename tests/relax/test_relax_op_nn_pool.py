"""Pools, adaptive pools and global pools."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, check_gradients, thinned

from relaxvm import relax, tir
from relaxvm.base import VMError
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

nn = R.nn
INTS = ("int8", "int32", "uint8")


def distinct(rng, shape):
    """No two elements alike, far enough apart for finite differences."""
    size = 1
    for d in shape:
        size *= d
    return (rng.permutation(size) / 4.0 - size / 8).reshape(shape)


CASES = [
    Case(
        nn.max_pool2d_with_indices,
        T("n", 2, 5, 6, data=distinct),
        pool_size=(3, 2),
        strides=2,
        padding=(1, 0, 0, 1),
        dilation=(1, 2),
        ceil_mode=True,
    ),
    Case(nn.max_pool1d_with_indices, T(2, 1, "k", data=distinct), pool_size=2, grad=False),
    Case(nn.max_pool3d_with_indices, T(1, 2, 3, "n", 4, data=distinct), pool_size=2, strides=2),
    Case(
        nn.max_pool2d_with_indices,
        T(1, 4, 3, 4, data=distinct),
        pool_size=2,
        layout="NHWC",
        out_layout="NCHW",
    ),
    Case(nn.max_pool2d_with_indices, T(1, 1, 3, 3, special=True), pool_size=2, grad=False),
    Case(nn.max_pool2d_with_indices, T(1, 2, 4, 4), pool_size=3, padding=1, dtypes=INTS),
    Case(nn.max_pool2d_with_indices, T(1, 1, 2, 2), pool_size=1, strides=3, padding=2, grad=False),
    Case(nn.max_pool2d_with_indices, T("zero", 2, 4, 4), pool_size=3),
    Case(
        nn.max_pool2d, T("n", 2, 5, 6, data=distinct), pool_size=2, strides=2, padding=(1, 0, 0, 1)
    ),
    Case(nn.max_pool2d, T(1, 2, "n", "k", data=distinct), pool_size=(2, 3)),
    Case(
        nn.max_pool2d,
        T(1, 1, 6, 6, data=distinct),
        pool_size=3,
        strides=2,
        padding=1,
        ceil_mode=True,
    ),
    Case(nn.max_pool2d, T(1, 1, 6, 7, data=distinct), pool_size=2, dilation=(2, 3)),
    Case(nn.max_pool2d, T(1, 4, 5, 2, data=distinct), pool_size=2, layout="NHWC"),
    Case(
        nn.max_pool2d,
        T(1, 1, 4, 4, 4),
        pool_size=2,
        strides=2,
        layout="NCHW4c",
        out_layout="NCHW",
        grad=False,
    ),
    Case(nn.max_pool2d, T(1, 1, 3, 3, special=True), pool_size=2, grad=False),
    Case(
        nn.max_pool2d, T(1, 1, 2, 2), pool_size=1, strides=3, padding=2, ceil_mode=True, grad=False
    ),
    Case(nn.max_pool2d, T(1, 2, 4, 4), pool_size=3, padding=1, dtypes=INTS),
    Case(nn.max_pool2d, T("zero", 2, 4, 4), pool_size=3),
    Case(nn.max_pool1d, T("n", 2, 7, data=distinct), pool_size=3, strides=2, padding=1),
    Case(nn.max_pool1d, T(1, 7, 2, data=distinct), pool_size=2, layout="NWC"),
    Case(
        nn.max_pool3d,
        T(1, 2, 3, 4, "n", data=distinct),
        pool_size=(2, 2, 1),
        strides=2,
        padding=(1, 0, 0),
    ),
    Case(
        nn.max_pool3d,
        T(1, 4, 3, 4, 2, data=distinct),
        pool_size=2,
        dilation=(1, 2, 1),
        layout="NDHWC",
        out_layout="NCDHW",
        dtypes=("float32", "float64"),
    ),
    Case(nn.avg_pool2d, T("n", 2, 5, 6), pool_size=2, strides=2, padding=(1, 0, 0, 1), count=4),
    Case(
        nn.avg_pool2d,
        T(1, 2, "n", "k"),
        pool_size=(2, 3),
        padding=1,
        count_include_pad=True,
        count=4,
    ),
    Case(nn.avg_pool2d, T(1, 1, 6, 6), pool_size=3, strides=2, padding=1, ceil_mode=True, count=9),
    Case(
        nn.avg_pool2d,
        T(1, 1, 6, 6),
        pool_size=3,
        strides=2,
        ceil_mode=True,
        count_include_pad=True,
        count=9,
    ),
    Case(
        nn.avg_pool2d,
        T(1, 2, 6, "n"),
        pool_size=(3, 2),
        strides=(1, 3),
        dilation=(2, 3),
        padding=2,
        ceil_mode=True,
        count_include_pad=True,
        count=9,
    ),
    Case(nn.avg_pool2d, T(1, 2, 6, 7), pool_size=2, dilation=(2, 3), padding=2, count=9),
    Case(nn.avg_pool2d, T(1, 4, 5, 2), pool_size=2, layout="NHWC", out_layout="NCHW", count=4),
    Case(
        nn.avg_pool2d,
        T(1, 2, 4, 4, low=-128, high=127),
        pool_size=3,
        padding=1,
        dtypes=("int8", "int32"),
    ),
    Case(nn.avg_pool1d, T("n", 2, 7), pool_size=3, strides=2, padding=(0, 2), count=4),
    Case(
        nn.avg_pool3d,
        T(1, 2, 3, 4, "n"),
        pool_size=(2, 2, 1),
        strides=2,
        padding=(1, 0, 0),
        count=4,
    ),
    Case(nn.adaptive_avg_pool2d, T("n", 2, 5, 7), output_size=(2, 3), count=9),
    Case(nn.adaptive_avg_pool2d, T(1, 2, "n", "k"), output_size=2, count=9),
    Case(nn.adaptive_avg_pool2d, T(1, 2, 2, 2), output_size=3, count=4),
    Case(nn.adaptive_avg_pool2d, T(1, 4, "n", 2), layout="NHWC", count=4),
    Case(nn.adaptive_avg_pool2d, T(1, 2, 4, 3), output_size=2, dtypes=INTS),
    Case(nn.adaptive_avg_pool1d, T(1, 2, 7), output_size=3, count=4),
    Case(nn.adaptive_avg_pool3d, T(1, 2, 3, "n", 4), output_size=(1, 2, 3), count=9),
    Case(nn.adaptive_max_pool2d, T("n", 2, 5, 7, data=distinct), output_size=(2, 3)),
    Case(nn.adaptive_max_pool2d, T(1, 2, 2, 3, data=distinct), output_size=(5, 4)),
    Case(nn.adaptive_max_pool2d, T(1, 2, 2, 3, special=True), output_size=2, grad=False),
    Case(
        nn.adaptive_max_pool2d,
        T(1, 1, "n", 4, 2, data=distinct),
        output_size=2,
        layout="NCHW2c",
        dtypes=("float32", "float64", "uint8"),
    ),
    Case(nn.adaptive_max_pool1d, T(1, 2, "n", data=distinct), output_size=2),
    Case(nn.adaptive_max_pool3d, T(1, 2, 3, 2, 4, data=distinct), output_size=2),
    Case(nn.adaptive_avg_pool1d, T(1, 2, "zero"), output_size=2),
    Case(nn.global_avg_pool2d, T("n", 2, "m", "k"), count=16),
    Case(nn.global_avg_pool2d, T(1, 3, 4, 2), layout="NHWC", count=16),
    Case(nn.global_avg_pool1d, T(2, 2, 5), count=16),
    Case(nn.global_avg_pool3d, T(1, 2, 2, 3, 2), count=16),
    Case(nn.global_max_pool2d, T("n", 2, 3, "k", data=distinct)),
    Case(nn.global_max_pool1d, T(1, 2, "zero")),
    Case(nn.global_max_pool3d, T(1, 2, 2, 3, 2, data=distinct)),
    Case(nn.max_pool2d, T(1, 2, "n", "one"), pool_size=1, strides=3, ceil_mode=True, grad=False),
    Case(
        nn.avg_pool2d,
        T(1, 1, "k", 4),
        pool_size=2,
        strides=3,
        padding=1,
        ceil_mode=True,
        count=4,
    ),
]


def test_pools_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(thinned(CASES, 2), dtypes=("float32", *INTS), in_turn=True)


@pytest.mark.slow
def test_pools_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_pools():
    check_gradients(CASES)


def test_a_window_that_begins_behind_the_data_does_not_count():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 4, 7), "float32"))
    call = nn.max_pool2d(x, (2, 1), strides=(3, 2), padding=(1, 0), ceil_mode=True)
    assert call.struct_info == relax.TensorStructInfo((1, 1, 2, 4), "float32")
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((1, 1, n), "float32"))
    call = nn.avg_pool1d(x, 2, strides=3, padding=1, ceil_mode=True)
    for size, count in ((1, 1), (2, 1), (3, 2), (4, 2), (5, 2), (6, 3)):
        got = tir.evaluate_expr(call.struct_info.dims[2], {n: size})
        assert got == count, size


def test_numbers_of_numpy_are_attributes():
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 4, 4), "float32"))
    call = nn.max_pool2d(x, np.int64(2), strides=(np.int32(2), 1))
    assert (call.attrs["pool_size"], call.attrs["strides"]) == ((2, 2), (2, 1))


def test_attributes_are_written_in_one_form():
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 4, 4), "float32"))
    call = nn.max_pool2d(x, 2, strides=[2], padding=(1, 0))
    assert dict(call.attrs) == {
        "pool_size": (2, 2),
        "strides": (2, 2),
        "padding": (1, 0, 1, 0),
        "dilation": (1, 1),
        "ceil_mode": False,
        "count_include_pad": False,
        "layout": "NCHW",
        "out_layout": "NCHW",
    }
    assert call.struct_info == relax.TensorStructInfo((1, 2, 3, 2), "float32")


def test_a_window_larger_than_the_data_has_no_meaning():
    n = tir.Var("n", "int64")
    x = relax.Var("x", relax.TensorStructInfo((1, 1, n, n), "float32"))
    for op in (nn.max_pool2d, nn.avg_pool2d):
        call = op(x, (2, 3))
        assert evaluate(call, {x: np.ones((1, 1, 2, 2), "float32")}, {n: 2}).shape == (1, 1, 1, 0)
        with pytest.raises(VMError, match=r"a window is larger than the padded data, of \(1, 1\)"):
            evaluate(call, {x: np.ones((1, 1, 1, 1), "float32")}, {n: 1})


def test_a_maximum_says_where_it_is():
    x = relax.Var("x", relax.TensorStructInfo((1, 1, 2, 4), "float32"))
    call = nn.max_pool2d_with_indices(x, 2, 2)
    values, indices = evaluate(call, {x: np.float32([[[[1, 5, 0, 0], [2, 3, 0, 7]]]])})
    assert values.ravel().tolist() == [5.0, 7.0]
    assert indices.ravel().tolist() == [1, 7]


def test_mistakes_are_told():
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 4, 4), "float32"))
    b = relax.Var("b", relax.TensorStructInfo((1, 2, 4, 4), "bool"))
    check_errors(
        [
            (
                lambda: nn.max_pool2d(x, 0),
                "nn.max_pool2d: pool_size: wanted an int or 2 ints, each >= 1",
            ),
            (
                lambda: nn.max_pool2d(x, 10**30),
                "pool_size: wanted an int or 2 ints, each >= 1 and <",
            ),
            (lambda: nn.max_pool2d(x, 2, padding=(1, 2, 3)), "padding: wanted 1 or 2 or 4 ints"),
            (lambda: nn.max_pool2d(x, 2, layout="NCW"), "layout: wanted the axes NCHW"),
            (lambda: nn.max_pool2d(x, 2, layout="NCHWx"), "layout: wanted a layout such as NCHW"),
            (lambda: nn.max_pool2d(b, 2), "data: wanted a number's dtype"),
            (lambda: nn.max_pool1d(x, 2), "data: wanted 3 dimensions, got 4"),
            (
                lambda: nn.avg_pool2d(x, 9),
                "axis H: a window of 9 on data of 4: the result would have size -4",
            ),
            (lambda: nn.adaptive_avg_pool2d(x, 0), "output_size: wanted"),
            (lambda: nn.adaptive_avg_pool2d(x, (1, 2, 3)), "output_size: wanted an int or 2 ints"),
        ]
    )
