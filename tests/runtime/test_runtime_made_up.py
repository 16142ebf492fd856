"""Values for parameters that nobody gave."""

import numpy as np

from relaxvm.base import DataType
from relaxvm.runtime import PrimInfo, ShapeInfo, TensorInfo, TupleInfo, made_up
from relaxvm.runtime.sinfo import symbols_in


def test_a_scalar_that_is_a_size_is_made_up_as_that_size():
    """It was 0, so that no program with such a parameter could be run on made up values."""
    n = ("$n", 1, "+")
    params = [
        PrimInfo(DataType("int64"), n),
        TupleInfo((TensorInfo(DataType("float32"), 2, (n, 3)), ShapeInfo(1, (("$m",),)))),
    ]
    assert [s for param in params for s in symbols_in(param)] == ["n", "n", "m"]
    rng = np.random.default_rng(0)
    size, (tensor, shape) = (made_up.value("x", p, {"n": 4, "m": 2}, rng) for p in params)
    assert (size, tensor.shape, shape) == (5, (5, 3), (2,))
    assert made_up.value("x", PrimInfo(DataType("int64")), {}, rng) == 0
