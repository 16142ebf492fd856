"""Reductions over an axis that has no values: the start value, not what memory held."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import te
from relaxvm.tir.interp import interpret


@pytest.mark.parametrize("rows", [0, 3])
def test_a_sum_over_a_symbolic_axis_that_is_empty_is_zero(rows):
    n = te.var("n", "int64")
    a = te.placeholder((n, 2), "float32", "a")
    k = te.reduce_axis((0, n), "k")
    b = te.compute((2,), lambda j: te.sum(a[k.var, j], axis=k), "b")
    data, out = np.ones((rows, 2), "float32"), np.full(2, np.nan, "float32")
    interpret(te.create_prim_func([a, b]), data, out)
    assert out.tolist() == [rows, rows]


def test_a_maximum_over_no_values_is_the_least_there_is():
    a = te.placeholder((2, 0), "int32", "a")
    k = te.reduce_axis((0, 0), "k")
    b = te.compute((2,), lambda i: te.max(a[i, k.var], axis=k), "b")
    out = np.full(2, 7, "int32")
    interpret(te.create_prim_func([a, b]), np.zeros((2, 0), "int32"), out)
    assert out.tolist() == [-(2**31)] * 2


def test_an_axis_that_has_values_needs_no_block_for_none():
    a = te.placeholder((4, 2), "float32", "a")
    k = te.reduce_axis((0, 2), "k")
    b = te.compute((4,), lambda i: te.sum(a[i, k.var], axis=k), "b")
    assert "empty" not in te.create_prim_func([a, b]).script()
