"""nn.conv1d/2d/3d and their transposes."""

from __future__ import annotations

import numpy as np
import pytest

from op_table import FLOATS, Case, Sym, T, check, check_errors, check_gradients
from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

nn = R.nn
INTS = ("int8", "int32", "uint8")


def ranked(ndim: int):
    return lambda d: relax.TensorStructInfo(None, d, ndim=ndim)


CASES = [
    Case(nn.conv1d, T("n", 3, 7), T(4, 3, 3), strides=2, padding=(1, 0), count=9),
    Case(nn.conv1d, T(1, 7, 2), T(2, 2, 4), data_layout="NWC", kernel_layout="WIO", count=4),
    Case(nn.conv2d, T("n", 3, 5, 6), T(2, 3, 3, 3), padding=1, count=27),
    Case(nn.conv2d, T(2, 2, "n", "k"), T(3, 2, 2, 2), padding=(1, 0, 2, 1), count=8),
    Case(nn.conv2d, T(1, 2, 7, 8), T(2, 2, 3, 2), strides=(2, 3), dilation=(2, 1), count=12),
    Case(nn.conv2d, T(1, 4, 4, 4), T(6, 2, 3, 3), groups=2, padding=(1, 1), count=18),
    Case(nn.conv2d, T("n", 4, 5, 5), T(8, 1, 3, 3), groups=4, strides=2, count=9),
    Case(nn.conv2d, T(1, 4, 5, 2), T(3, 3, 2, 2), data_layout="NHWC", kernel_layout="HWIO", count=18),
    Case(nn.conv2d, T(1, 2, 4, 4, 4), T(2, 2, 3, 3, 4, 3), data_layout="NCHW4c",
         kernel_layout="OIHW4i3o", out_layout="NCHW2c", padding=1, count=72),
    Case(nn.conv2d, T(1, 2, 4, 4), T(2, 2, 1, 1), out_layout="NHWC", count=2),
    Case(nn.conv2d, T(0, 2, 4, 4), T(2, 2, 1, 1)),
    Case(nn.conv2d, T(1, 2, 0, 4), T(2, 2, 1, 1)),
    Case(nn.conv2d, T(1, "zero", 3, 3), T(2, "zero", 2, 2)),
    Case(nn.conv2d, T(1, 2, 4, 4), T(0, 2, 3, 3)),
    Case(nn.conv2d, T("one", 2, 4, 4, info=ranked(4)), T(2, 2, 3, 3), count=18, grad=False),
    Case(nn.conv2d, T(1, 2, 4, 4), T(2, 2, 3, 3), out_dtype="float32",
         dtypes=("float16", "bfloat16", "float32"), count=18),
    Case(nn.conv2d, T(1, 2, 4, 4), T(2, 2, 3, 3), dtypes=INTS),
    Case(nn.conv2d, T(1, 2, 4, 4, dtype="uint8", high=255), T(2, 2, 3, 3, dtype="int8"),
         out_dtype="int32", dtypes=("int32",), padding=1),
    Case(nn.conv3d, T(1, 2, 3, "n", 4), T(2, 2, 2, 2, 2), padding=(1, 0, 0, 0, 1, 1), count=16),
    Case(nn.conv3d, T(1, 3, 3, 3, 2), T(2, 2, 2, 2, 4), strides=(1, 2, 1),
         data_layout="NDHWC", kernel_layout="DHWIO", count=16),
    Case(nn.conv1d_transpose, T("n", 3, 4), T(3, 2, 3), strides=2, padding=1, output_padding=1, count=9),
    Case(nn.conv2d_transpose, T(1, 2, 3, "n"), T(2, 3, 3, 2), strides=(2, 1), padding=(1, 0), count=12),
    Case(nn.conv2d_transpose, T(1, 4, 3, 3), T(4, 2, 3, 3), groups=2, dilation=2, count=18),
    Case(nn.conv2d_transpose, T(2, 3, 3, 4), T(4, 1, 2, 2), groups=4, strides=3,
         output_padding=(2, 0), data_layout="NHWC", count=4),
    Case(nn.conv2d_transpose, T(1, 1, 2, 2, 2), T(2, 3, 2, 2), data_layout="NCHW2c", out_layout="NCHW", count=8),
    Case(nn.conv3d_transpose, T(1, 2, 2, 2, 2), T(2, 1, 2, 2, 2), strides=(2, 1, 1), count=16),
]  # fmt: skip


def test_convolutions_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES, dtypes=("float32", *INTS))


@pytest.mark.slow
def test_convolutions_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_convolutions():
    check_gradients(CASES)
