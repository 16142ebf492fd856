"""Quantised operators: against their meanings, ties, saturation, and their mistakes."""

from __future__ import annotations

import numpy as np
import pytest
from onnx_reference import run_onnx, variables
from op_table import FLOATS, Case, T, check, check_errors

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

STORED = ("int8", "uint8", "int16", "uint16", "int32")
BYTES = ("int8", "uint8")


def scale(*shape, dtype="float32"):
    return T(*shape, dtype=dtype, low=0.05, high=0.5)


def zero(*shape, dtype="int8"):
    return T(*shape, dtype=dtype, low=0, high=5)


CASES = [
    Case(R.quantize, T("n", 4), scale(), zero(), dtypes=FLOATS, exact=True),
    Case(R.quantize, T("n", 4), scale("n"), zero("n"), axis=0, dtypes=FLOATS, exact=True),
    Case(
        R.quantize,
        T(2, 4, special=True),
        scale(4),
        zero(),
        dtypes=FLOATS,
        out_dtype="uint8",
        exact=True,
    ),
    Case(
        R.quantize,
        T(2, 4, low=-1e6, high=1e6),
        scale(1),
        zero(1, dtype="int32"),
        dtypes=("float32", "float64"),
        out_dtype="int32",
        exact=True,
    ),
    Case(
        R.quantize,
        T(2, 4, low=-1e9, high=1e9),
        scale(),
        zero(),
        dtypes=("float32", "float64"),
        out_dtype="int32",
        exact=True,
        slow=True,
    ),
    Case(
        R.quantize,
        T(6, low=-1e5, high=1e5),
        scale(),
        zero(dtype="int16"),
        dtypes=("float32", "bfloat16"),
        out_dtype="int16",
    ),
    Case(
        R.quantize,
        T(6),
        scale(dtype="float16"),
        zero(dtype="uint16"),
        dtypes=("float16", "float32"),
        out_dtype="uint16",
        slow=True,
    ),
    Case(R.quantize, T(), scale(), zero(), slow=True),
    Case(R.quantize, T(0, 3), scale(3), zero(3), slow=True),
    Case(R.dequantize, T("n", 4), scale(), zero(), dtypes=STORED),
    Case(R.dequantize, T(3, "n", 2), scale("n"), zero("n", dtype="int32"), axis=1, dtypes=STORED),
    Case(
        R.dequantize,
        T(4),
        scale(dtype="float64"),
        zero(dtype="int32"),
        dtypes=STORED,
        out_dtype="float64",
    ),
    Case(
        R.dequantize,
        T(4),
        scale(dtype="float16"),
        zero(dtype="int32"),
        dtypes=BYTES,
        out_dtype="float16",
    ),
    Case(
        R.dequantize,
        T(2, 4),
        scale(4, dtype="bfloat16"),
        zero(4),
        dtypes=BYTES,
        out_dtype="bfloat16",
    ),
    Case(
        R.dequantize,
        T(3, data=[-(2**31), 2**31 - 1, 0]),
        scale(),
        T(dtype="int32", data=-(2**31)),
        dtypes=("int32",),
    ),
    Case(R.dequantize, T(), scale(), zero(), dtypes=STORED, slow=True),
    Case(R.requantize, T("n", 4, low=0, high=100), scale(), zero(), scale(), zero(), dtypes=STORED),
    Case(
        R.requantize,
        T(2, "n"),
        scale("n"),
        zero("n"),
        scale(),
        zero(),
        axis=1,
        dtypes=STORED,
        out_dtype="uint8",
    ),
    Case(
        R.requantize,
        T(3, 2),
        scale(3),
        zero(),
        scale(3),
        zero(3),
        axis=0,
        dtypes=STORED,
        out_dtype="int16",
        slow=True,
    ),
    Case(
        R.requantize,
        T(4, low=-(2**31), high=2**31 - 1),
        scale(),
        zero(),
        scale(),
        zero(),
        dtypes=("int32",),
        out_dtype="int32",
    ),
    Case(R.matmul_integer, T("n", 4), T(4, 3, dtype="int8"), dtypes=BYTES),
    Case(R.matmul_integer, T("n", 4), T(4, 3, dtype="uint8"), zero(dtype=None), dtypes=BYTES),
    Case(
        R.matmul_integer,
        T("n", 4),
        T(4, "m"),
        zero("n", dtype=None),
        zero("m", dtype=None),
        dtypes=BYTES,
    ),
    Case(
        R.matmul_integer,
        T(2, 1, 3, 4),
        T(5, 4, 2),
        zero(1, dtype=None),
        zero(dtype=None),
        dtypes=BYTES,
    ),
    Case(R.matmul_integer, T(4), T(4), zero(dtype=None), zero(dtype=None), dtypes=BYTES),
    Case(
        R.matmul_nbits,
        T("n", 16),
        T(2, 4, 3, dtype="uint8"),
        T(2, 3),
        dtypes=FLOATS,
    ),
    Case(
        R.matmul_nbits,
        T(2, "n", 12),
        T(3, 1, 5, dtype="uint8"),
        T(3, 5),
        T(3, 5, dtype="uint8"),
        bits=2,
        dtypes=FLOATS,
    ),
    Case(R.matmul_nbits, T(8), T(4, 2, 3, dtype="uint8"), T(4, 3), T(4, 3), bits=8, dtypes=FLOATS),
    Case(R.matmul_integer, T("n", 2, 4), T("one", 4, 2), dtypes=BYTES, slow=True),
    Case(
        R.qlinear_matmul,
        T("n", 4),
        scale(),
        zero(dtype=None),
        T(4, 3),
        scale(),
        zero(dtype=None),
        scale(),
        zero(dtype=None),
        dtypes=BYTES,
    ),
    Case(
        R.qlinear_matmul,
        T(2, "n", 4),
        scale("n"),
        zero("n", dtype=None),
        T(4, 3, dtype="int8"),
        scale(3),
        zero(3, dtype="int8"),
        scale(1),
        zero(1, dtype="uint8"),
        dtypes=BYTES,
    ),
    Case(
        R.qlinear_matmul,
        T(4),
        scale(),
        zero(dtype=None),
        T(4, 3),
        scale(3),
        zero(3, dtype=None),
        scale(),
        zero(dtype="int8"),
        dtypes=BYTES,
        slow=True,
    ),
    Case(
        R.qlinear_matmul,
        T(2, 4),
        scale(2),
        zero(2, dtype=None),
        T(4),
        scale(),
        zero(dtype=None),
        scale(),
        zero(dtype="int8"),
        dtypes=BYTES,
    ),
    Case(R.conv2d_integer, T("n", 2, 4, 5), T(3, 2, 2, 3, dtype="int8"), dtypes=BYTES),
    Case(
        R.conv2d_integer,
        T(1, 2, "n", 5),
        T(3, 2, 2, 3),
        zero(dtype=None),
        zero(3, dtype=None),
        padding=(1, 0, 0, 2),
        strides=(2, 1),
        dtypes=BYTES,
    ),
    Case(
        R.conv2d_integer,
        T(1, 4, 5, 5),
        T(4, 2, 2, 2),
        zero(dtype=None),
        zero(dtype=None),
        groups=2,
        dilation=2,
        padding=1,
        dtypes=BYTES,
    ),
    Case(
        R.conv2d_integer,
        T(1, 4, 4, 3),
        T(3, 3, 1, 3),
        zero(dtype=None),
        groups=3,
        data_layout="NHWC",
        kernel_layout="HWIO",
        padding=(1, 0),
        dtypes=BYTES,
    ),
    Case(R.conv2d_integer, T(0, 2, 3, 3), T(2, 2, 1, 1), dtypes=BYTES, slow=True),
    Case(
        R.qlinear_conv2d,
        T(1, 2, 4, "k"),
        scale(),
        zero(dtype=None),
        T(3, 2, 2, 2),
        scale(3),
        zero(3, dtype=None),
        scale(),
        zero(dtype=None),
        T(3, dtype="int32"),
        padding=1,
        dtypes=BYTES,
    ),
    Case(
        R.qlinear_conv2d,
        T(1, 4, 4, 2),
        scale(1),
        zero(1, dtype=None),
        T(3, 2, 2, 2),
        scale(),
        zero(dtype=None),
        scale(),
        zero(dtype="uint8"),
        data_layout="NHWC",
        dtypes=BYTES,
    ),
]


def test_quantised_operators_agree_with_their_meanings():
    check(CASES, dtypes=("float32", "int8", "int32"), in_turn=True)


@pytest.mark.parametrize("dtype", [*FLOATS, *STORED])
@pytest.mark.slow
def test_quantised_operators_agree_on_every_dtype(dtype):
    check(CASES, dtypes=(dtype,), slow=True)


def variable(name, *shape, dtype="float32"):
    return relax.Var(name, relax.TensorStructInfo(shape, dtype))


def test_quantize_rounds_ties_to_even_and_saturates():
    x = variable("x", 8)
    values = np.array([0.5, 1.5, 2.5, -0.5, -1.5, 1000, -1000, np.nan], "float32")
    call = R.quantize(x, relax.const(1.0), relax.const(0, "int8"))
    assert evaluate(call, {x: values}).tolist() == [0, 2, 2, 0, -2, 127, -128, 0]
    shifted = R.quantize(x, relax.const(1.0), relax.const(128, "uint8"), out_dtype="uint8")
    assert evaluate(shifted, {x: values})[:7].tolist() == [128, 130, 130, 128, 126, 255, 0]


def test_dequantize_inverts_quantize_on_stored_values():
    x = variable("x", 256, dtype="int8")
    step, middle = relax.const(0.1, "float32"), relax.const(3, "int8")
    values = np.arange(-128, 128).astype("int8")
    call = R.quantize(R.dequantize(x, step, middle), step, middle)
    assert np.array_equal(evaluate(call, {x: values}), values)


def test_padding_of_an_integer_convolution_stands_for_zero():
    x, w, z = (
        variable("x", 1, 1, 1, 1, dtype="uint8"),
        variable("w", 1, 1, 3, 3, dtype="int8"),
        variable("z", dtype="uint8"),
    )
    call = R.conv2d_integer(x, w, z, padding=1)
    env = {x: np.full((1, 1, 1, 1), 7, "uint8"), w: np.ones((1, 1, 3, 3), "int8"), z: np.uint8(5)}
    assert evaluate(call, env).reshape(()) == 2


RNG = np.random.default_rng(7)


def u8(*shape):
    return RNG.integers(0, 256, shape).astype("uint8")


def i8(*shape):
    return RNG.integers(-128, 128, shape).astype("int8")


def weight(*shape):
    """Seven bits: onnxruntime multiplies u8 by i8 with vpmaddubsw where the CPU has no VNNI, which
    saturates the sum of two products at 16 bits; with seven bits none is so great, and its results
    are exact on every CPU.
    """
    return RNG.integers(-64, 64, shape).astype("int8")


def f32(*shape):
    return RNG.uniform(0.01, 0.1, shape).astype("float32")


A_SCALE, Y_SCALE, NINE = np.float32(0.03), np.float32(0.7), np.array(9, "uint8")
CONV = dict(strides=[2, 1], pads=[1, 0, 0, 1])

ONNX = [
    (
        "QuantizeLinear",
        R.quantize,
        [RNG.uniform(-9, 9, (4, 5)).astype("float32"), f32(5), u8(5)],
        dict(axis=1),
        dict(axis=1, out_dtype="uint8"),
    ),
    (
        "QuantizeLinear",
        R.quantize,
        [RNG.uniform(-99, 99, 50).astype("float32"), f32(), np.array(-3, "int8")],
        {},
        {},
    ),
    ("DequantizeLinear", R.dequantize, [i8(4, 5), f32(4), i8(4)], dict(axis=0), dict(axis=0)),
    ("MatMulInteger", R.matmul_integer, [u8(3, 8), weight(8, 4), NINE, i8(4)], {}, {}),
    ("MatMulInteger", R.matmul_integer, [u8(2, 3, 8), u8(8, 4)], {}, {}),
    (
        "QLinearMatMul",
        R.qlinear_matmul,
        [u8(3, 8), A_SCALE, NINE, weight(8, 4), f32(4), np.zeros(4, "int8"), Y_SCALE, NINE],
        {},
        {},
    ),
    (
        "QLinearMatMul",
        R.qlinear_matmul,
        [u8(3, 8), A_SCALE, NINE, u8(8, 4), f32(), NINE, Y_SCALE, NINE],
        {},
        {},
    ),
    (
        "ConvInteger",
        R.conv2d_integer,
        [u8(1, 2, 5, 6), u8(3, 2, 2, 3), NINE, NINE],
        CONV,
        dict(strides=(2, 1), padding=(1, 0, 0, 1)),
    ),
    (
        "QLinearConv",
        R.qlinear_conv2d,
        [
            u8(1, 4, 5, 6),
            A_SCALE,
            NINE,
            weight(6, 2, 2, 3),
            f32(6),
            np.zeros(6, "int8"),
            Y_SCALE,
            NINE,
            RNG.integers(-999, 999, 6).astype("int32"),
        ],
        dict(group=2, **CONV),
        dict(groups=2, strides=(2, 1), padding=(1, 0, 0, 1)),
    ),
]


@pytest.mark.parametrize(("name", "op", "inputs", "onnx_attrs", "attrs"), ONNX)
def test_meanings_are_those_of_onnx(name, op, inputs, onnx_attrs, attrs):
    inputs = [np.asarray(a) for a in inputs]
    want = run_onnx(name, inputs, **onnx_attrs)
    params = variables(inputs)
    got = evaluate(op(*params, **attrs), dict(zip(params, inputs)))
    assert got.dtype == want.dtype
    assert np.array_equal(got, want)


def test_mistakes_in_quantised_operators_are_explained():
    x, i = variable("x", 2, 3), variable("i", 2, 3, dtype="int8")
    s, z = variable("s"), variable("z", dtype="int8")
    s2, u = variable("s2", 2), variable("u", dtype="uint8")
    k, b = variable("k", 3, 4, dtype="int8"), variable("b", 2, 4, 3, dtype="uint8")
    image, kernel = (
        variable("image", 1, 4, 3, 3, dtype="int8"),
        variable("kernel", 4, 2, 2, 2, dtype="int8"),
    )
    check_errors(
        [
            (lambda: R.quantize(i, s, z), "quantize: data: wanted a floating dtype, got int8"),
            (
                lambda: R.quantize(x, s2, z),
                "quantize: scale: wanted a scalar or a vector of 3, the size of axis -1; got 2",
            ),
            (
                lambda: R.quantize(x, x, z),
                "quantize: scale: wanted a scalar or a vector, got 2 dimensions",
            ),
            (
                lambda: R.quantize(x, s, s),
                "quantize: zero_point: wanted an integer dtype, got float32",
            ),
            (
                lambda: R.quantize(x, s, z, axis=2),
                "quantize: axis: wanted -2 to 1 for 2 dimensions, got 2",
            ),
            (
                lambda: R.quantize(x, s, z, out_dtype="float32"),
                "quantize: out_dtype: wanted int8.*got float32",
            ),
            (
                lambda: R.dequantize(x, s, z),
                "dequantize: data: wanted an integer dtype, got float32",
            ),
            (
                lambda: R.dequantize(variable("l", 2, dtype="int64"), s, z),
                "dequantize: data: wanted int8.*got int64",
            ),
            (
                lambda: R.dequantize(i, s, z, out_dtype="int8"),
                "dequantize: out_dtype: wanted float16",
            ),
            (
                lambda: R.requantize(i, s2, z, s, z),
                "requantize: input_scale: wanted a scalar or a vector of 3",
            ),
            (
                lambda: R.matmul_integer(i, i),
                "matmul_integer: inner dimensions differ: the last one of a is 3",
            ),
            (
                lambda: R.matmul_integer(x, k),
                "matmul_integer: a: wanted an integer dtype, got float32",
            ),
            (
                lambda: R.matmul_integer(i, k, u),
                "matmul_integer: a_zero_point: wanted int8, the dtype of a; got uint8",
            ),
            (
                lambda: R.matmul_integer(i, k, None, z),
                "matmul_integer: b_zero_point is given but a_zero_point",
            ),
            (
                lambda: R.matmul_integer(i, k, variable("zs", 3, dtype="int8")),
                "a_zero_point: wanted a scalar or a vector of 2, the size of the rows of a",
            ),
            (
                lambda: R.matmul_nbits(x, b, s2),
                "matmul_nbits: scale: wanted 2 dimensions, got 1",
            ),
            (
                lambda: R.matmul_nbits(x, b, variable("s22", 2, 2)),
                "matmul_nbits: scale: dimension 1 is 2, and that of the weights 3",
            ),
            (
                lambda: R.matmul_nbits(x, b, variable("s23", 2, 3)),
                "matmul_nbits: data: its last dimension is 3, and the weights have 16 rows",
            ),
            (
                lambda: R.matmul_nbits(x, b, variable("s23", 2, 3), bits=3),
                "matmul_nbits: bits: wanted 2, 4 or 8, got 3",
            ),
            (
                lambda: R.qlinear_matmul(i, s, z, k, s, z, s2, z),
                "qlinear_matmul: y_scale: wanted a scalar, got a vector of 2",
            ),
            (
                lambda: R.conv2d_integer(image, kernel),
                "conv2d_integer: data has 4 channels, weight takes 2 in each of 1 groups",
            ),
            (
                lambda: R.conv2d_integer(image, kernel, groups=2, strides=0),
                "conv2d_integer: strides: wanted an int or 2 ints, each >= 1",
            ),
            (
                lambda: R.conv2d_integer(image, kernel, groups=2, dilation=3),
                "conv2d_integer: the window of 4 does not fit the padded data, of 3",
            ),
            (
                lambda: R.conv2d_integer(image, kernel, groups=2, data_layout="NCWX"),
                "conv2d_integer: data_layout: wanted the letters of NCHW",
            ),
            (
                lambda: R.conv2d_integer(image, kernel, groups=2, padding=(1, 1, 1)),
                "conv2d_integer: padding: wanted 1 or 2 or 4 ints",
            ),
            (
                lambda: R.conv2d_integer(i, kernel),
                "conv2d_integer: data: wanted 4 dimensions, got 2",
            ),
            (
                lambda: R.qlinear_conv2d(
                    image, s, z, kernel, s, z, s, z, variable("b", 3, dtype="int32"), groups=2
                ),
                "qlinear_conv2d: bias: wanted 4 elements, got 3",
            ),
            (
                lambda: R.qlinear_conv2d(
                    image, s, z, kernel, s, z, s, variable("y", dtype="int32"), groups=2
                ),
                "qlinear_conv2d: y_zero_point: wanted int8, uint8, got int32",
            ),
        ]
    )
