"""`tir.layout` and `tir.bijective_layout`: names of axes, and indices and shapes from one layout to
another, against numpy.
"""

import itertools

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import tir


def test_a_layout_knows_its_axes_and_blocks():
    nchw4c = tir.layout("NCHW4c")
    assert (nchw4c.name, len(nchw4c), nchw4c.ndim) == ("NCHW4c", 5, 5)
    assert list(nchw4c) == ["N", "C", "H", "W", "c"] and nchw4c[-1] == "c"
    assert "c" in nchw4c and "h" not in nchw4c
    assert [nchw4c.index_of(a) for a in "NCHWch"] == [0, 1, 2, 3, 4, -1]
    assert [nchw4c.factor_of(a) for a in "Cc"] == [4, 4] and nchw4c.factor_of("N") == -1
    assert nchw4c == tir.Layout("NCHW4c") != tir.layout("NCHW8c")
    assert tir.layout(nchw4c) is nchw4c


@pytest.mark.parametrize("name", ["NCHWN", "NCHWc", "NCHW4", "NHW4c", "N-C", "NCHW0c", 7])
def test_what_is_no_layout_is_refused(name):
    with pytest.raises(tvm.TVMError, match="layout"):
        tir.layout(name)


PAIRS = [
    ("NCHW", "NHWC", (2, 3, 4, 5)),
    ("NCHW", "NCHW4c", (2, 8, 3, 1)),
    ("NCHW2c", "NHWC4c", (1, 4, 3, 2, 2)),
    ("OIHW", "HWOI2i4o", (4, 2, 1, 3)),
]


@pytest.mark.parametrize(("src", "dst", "shape"), PAIRS)
def test_indices_go_forward_and_back_one_to_one(src, dst, shape):
    both = tir.bijective_layout(src, dst)
    there = [int(d) for d in both.forward_shape(shape)]
    assert [int(d) for d in both.backward_shape(there)] == list(shape)
    seen = np.zeros(there, int)
    for at in itertools.product(*map(range, shape)):
        to = [int(i) for i in both.forward_index(at)]
        seen[tuple(to)] += 1
        assert [int(i) for i in both.backward_index(to)] == list(at)
    assert (seen == 1).all()


def test_indices_may_be_symbolic_and_shapes_are_filled_up_to_whole_blocks():
    both = tir.bijective_layout("NCHW", "NCHW16c")
    n, c, h, w = (tir.Var(name, "int32") for name in "nchw")
    got = both.forward_index([n, c, h, w])
    for mine, wanted in zip(got, [n, c // 16, h, w, c % 16]):
        assert tvm.arith.Analyzer().can_prove_equal(mine, wanted)
    assert [int(d) for d in both.forward_shape([1, 17, 2, 3])] == [1, 2, 2, 3, 16]
    assert [int(d) for d in both.backward_shape([1, 2, 2, 3, 16])] == [1, 32, 2, 3]


def test_layouts_that_do_not_fit_are_refused():
    for attempt in (
        lambda: tir.bijective_layout("NCHW", "OIHW"),
        lambda: tir.bijective_layout("NCHW", "NHWC").forward_index([1, 2, 3]),
        lambda: tir.bijective_layout("NCHW4c", "NCHW").forward_shape([1, 2, 3, 4, 5]),
    ):
        with pytest.raises(tvm.TVMError, match="layout"):
            attempt()
