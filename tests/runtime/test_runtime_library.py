"""`vm.library.*`: any bytecode may call these, so they check what they are given."""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm.base import VMTypeError, VMValueError
from relaxvm.runtime import LIBRARY, array, as_ndarray, empty, get_global_func

X = array(np.array([[3, 1, 2], [9, 7, 8]], "float32"))


def call(name, *args):
    return LIBRARY[f"vm.library.{name}"](*args)


def test_library_functions_are_registered_under_their_names():
    assert all(get_global_func(name) is f for name, f in LIBRARY.items())


def test_sort_fills_its_output():
    out = empty((2, 3), "float32")
    call("sort", X, -1, 1, out)
    assert out.numpy().tolist() == [[3, 2, 1], [9, 8, 7]]


def test_bfloat16_is_sorted_by_value():
    x = array(np.array([1.5, -2.0, 0.25], "float32"), dtype="bfloat16")
    out = empty((3,), "bfloat16")
    call("sort", x, 0, 0, out)
    assert out.tolist() == [-2.0, 0.25, 1.5]


@pytest.mark.parametrize(
    ("name", "args", "kind", "message"),
    [
        ("sort", (1, 0, 0, X), VMTypeError, "sort: x: wanted a tensor, got int"),
        ("sort", (X, 2, 0, X), VMValueError, "sort: axis: wanted -2 to 1, got 2"),
        ("sort", (X, "0", 0, X), VMTypeError, "sort: axis: wanted an int, got str"),
        ("sort", (X, 0, 0, empty((3,), "float32")), VMValueError, r"wanted shape \(2, 3\)"),
        ("sort", (X, 0, 0, None), VMTypeError, "out: wanted a tensor"),
        ("topk", (X, 0, 1, 3, empty((1, 3), "float32")), VMTypeError, "do not go with 1"),
        ("topk", (X, 0, 1, 1, empty((3, 3), "float32")), VMValueError, "wanted 3 elements"),
        ("topk", (X, 0, 1, 1, empty((3,), "float32")), VMTypeError, "as many dimensions"),
        ("searchsorted", (X, array(np.zeros(3, "float32")), 0, X), VMValueError, "leading"),
        ("nonzero", ((1, 2),), VMTypeError, "nonzero: x: wanted a tensor, got tuple"),
        ("unique", (X, 5, 0, 0, 0), VMValueError, "unique: axis"),
    ],
)
def test_wrong_arguments_are_refused(name, args, kind, message):
    with pytest.raises(kind, match=message):
        call(name, *args)


def test_a_read_only_output_is_refused():
    frozen = np.zeros((2, 3), "float32")
    frozen.flags.writeable = False
    with pytest.raises(VMValueError, match="read-only"):
        call("sort", X, 0, 0, as_ndarray(frozen))
