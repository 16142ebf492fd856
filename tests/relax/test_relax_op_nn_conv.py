"""nn.conv1d/2d/3d and their transposes."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, check_gradients

from relaxvm import relax, tir
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
    Case(
        nn.conv2d, T(1, 4, 5, 2), T(3, 3, 2, 2), data_layout="NHWC", kernel_layout="HWIO", count=18
    ),
    Case(
        nn.conv2d,
        T(1, 2, 4, 4, 4),
        T(2, 2, 3, 3, 4, 3),
        data_layout="NCHW4c",
        kernel_layout="OIHW4i3o",
        out_layout="NCHW2c",
        padding=1,
        count=72,
    ),
    Case(nn.conv2d, T(1, 2, 4, 4), T(2, 2, 1, 1), out_layout="NHWC", count=2),
    Case(nn.conv2d, T(0, 2, 4, 4), T(2, 2, 1, 1)),
    Case(nn.conv2d, T(1, 2, 0, 4), T(2, 2, 1, 1)),
    Case(nn.conv2d, T(1, "zero", 3, 3), T(2, "zero", 2, 2)),
    Case(nn.conv2d, T(1, 2, 4, 4), T(0, 2, 3, 3)),
    Case(nn.conv2d, T("one", 2, 4, 4, info=ranked(4)), T(2, 2, 3, 3), count=18, grad=False),
    Case(
        nn.conv2d,
        T(1, 2, 4, 4),
        T(2, 2, 3, 3),
        out_dtype="float32",
        dtypes=("float16", "bfloat16", "float32"),
        count=18,
    ),
    Case(nn.conv2d, T(1, 2, 4, 4), T(2, 2, 3, 3), dtypes=INTS),
    Case(
        nn.conv2d,
        T(1, 2, 4, 4, dtype="uint8", high=255),
        T(2, 2, 3, 3, dtype="int8"),
        out_dtype="int32",
        dtypes=("int32",),
        padding=1,
    ),
    Case(nn.conv3d, T(1, 2, 3, "n", 4), T(2, 2, 2, 2, 2), padding=(1, 0, 0, 0, 1, 1), count=16),
    Case(
        nn.conv3d,
        T(1, 3, 3, 3, 2),
        T(2, 2, 2, 2, 4),
        strides=(1, 2, 1),
        data_layout="NDHWC",
        kernel_layout="DHWIO",
        count=16,
    ),
    Case(
        nn.conv1d_transpose,
        T("n", 3, 4),
        T(3, 2, 3),
        strides=2,
        padding=1,
        output_padding=1,
        count=9,
    ),
    Case(
        nn.conv2d_transpose,
        T(1, 2, 3, "n"),
        T(2, 3, 3, 2),
        strides=(2, 1),
        padding=(1, 0),
        count=12,
    ),
    Case(nn.conv2d_transpose, T(1, 4, 3, 3), T(4, 2, 3, 3), groups=2, dilation=2, count=18),
    Case(
        nn.conv2d_transpose,
        T(2, 3, 3, 4),
        T(4, 1, 2, 2),
        groups=4,
        strides=3,
        output_padding=(2, 0),
        data_layout="NHWC",
        count=4,
    ),
    Case(
        nn.conv2d_transpose,
        T(1, 1, 2, 2, 2),
        T(2, 3, 2, 2),
        data_layout="NCHW2c",
        out_layout="NCHW",
        count=8,
    ),
    Case(nn.conv3d_transpose, T(1, 2, 2, 2, 2), T(2, 1, 2, 2, 2), strides=(2, 1, 1), count=16),
    Case(nn.conv2d_transpose, T("n", 3, 4, 3), T(3, 2, "k", 2), strides=2, count=9),
    Case(
        nn.conv2d_transpose,
        T(1, 4, 3, 2),
        T(4, 3, 4, 3),
        groups=2,
        strides=2,
        padding=1,
        count=24,
    ),
    Case(
        nn.conv2d_transpose,
        T(1, 2, 3, "k"),
        T(2, 2, 2, 1),
        strides=(2, 3),
        output_padding=(1, 2),
        count=2,
    ),
    Case(
        nn.conv2d_transpose,
        T(1, 1, 2, 3, 2),
        T(2, 4, 3, 3),
        strides=2,
        data_layout="NCHW2c",
        out_layout="NHWC",
        count=18,
    ),
    Case(nn.conv2d_transpose, T(0, 2, 2, 2), T(2, 2, 2, 2), strides=2),
    Case(nn.conv2d_transpose, T(2, 3, 3, 4), T(3, 5, 2, 2), strides=2, count=3),
    Case(nn.conv2d_transpose, T("n", 3, 3, 4), T(3, 6, 3, 2), strides=2, padding=1, count=6),
    Case(nn.conv2d_transpose, T(1, 4, 3, 4), T(4, 2, 2, 3), strides=(2, 3), groups=2, count=2),
    Case(
        nn.conv2d_transpose,
        T(1, 3, 2, 4),
        T(4, 6, 2, 2),
        strides=2,
        output_padding=1,
        data_layout="NHWC",
        count=4,
    ),
]


def test_convolutions_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES, dtypes=("float32", *INTS))


def test_windows_side_by_side_are_put_in_their_places_with_what_follows():
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s, "float32") for s in ((1, 3, 4, 5), (3, 4, 2, 2)))
    builder = relax.BlockBuilder()
    infos = [relax.TensorStructInfo(a.shape, "float32") for a in (x, w)]
    params = [relax.Var(name, info) for name, info in zip("xw", infos)]
    with builder.function("main", params):
        with builder.dataflow():
            y = builder.emit(nn.conv2d_transpose(*params, strides=2))
            z = builder.emit_output(nn.relu(y))
        builder.emit_func_output(z)
    executable = relax.build(builder.finalize(), "llvm")
    assert [info.name for info in executable.kernels.infos] == ["fused_conv2d_transpose_relu"]
    want = np.einsum("nchw,cops->nohpws", x, w).reshape(1, 4, 8, 10).clip(0)
    got = relax.VirtualMachine(executable)["main"](x, w).numpy()
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_convolutions_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_convolutions():
    check_gradients(CASES)


def var(name: str, *shape: object, kind: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorStructInfo(shape, kind))


def test_mistakes_are_told():
    x, w = var("x", 1, 4, 5, 5), var("w", 6, 4, 3, 3)
    check_errors(
        [
            (
                lambda: nn.conv2d(x, var("w", 6, 3, 3, 3)),
                "nn.conv2d: data has .*4.* channels; wanted .*3",
            ),
            (
                lambda: nn.conv2d(x, var("w", 5, 2, 3, 3), groups=2),
                "weight has 5 output channels; wanted a multiple",
            ),
            (lambda: nn.conv2d(x, w, groups=2), "data has .*4.* channels; wanted .*8"),
            (
                lambda: nn.conv2d(x, w, strides=0),
                "strides: wanted an int or 2 ints, each >= 1 and <",
            ),
            (lambda: nn.conv2d(x, w, strides=(1, 2, 3)), "strides: wanted an int or 2 ints"),
            (lambda: nn.conv2d(x, w, padding=(1, 2, 3)), "padding: wanted 1 or 2 or 4 ints"),
            (lambda: nn.conv2d(x, w, padding=-1), "padding: wanted"),
            (lambda: nn.conv2d(x, w, groups=10**20), "groups: wanted an int >= 1 and < 2"),
            (lambda: nn.conv2d(x, w, out_dtype="x"), "nn.conv2d: out_dtype: unknown dtype 'x'"),
            (lambda: nn.conv2d(x, w, out_dtype="float32x4"), "out_dtype: wanted the dtype of an"),
            (lambda: nn.conv2d(x, w, groups=0), "groups: wanted an int >= 1"),
            (lambda: nn.conv2d(x, w, data_layout="NCDHW"), "data_layout: wanted the axes NCHW"),
            (lambda: nn.conv2d(x, w, data_layout="NHWC"), "data has .*5.* channels"),
            (lambda: nn.conv2d(x, w, kernel_layout="OIHWx"), "kernel_layout: wanted a layout"),
            (lambda: nn.conv2d(x, w, out_layout="NCHW4c"), "axis C of size 6 is no multiple of 4"),
            (lambda: nn.conv2d(x, var("w", 6, 4, 3)), "weight: wanted 4 dimensions, got 3"),
            (lambda: nn.conv2d(var("x", 4, 5, 5), w), "data: wanted 4 dimensions, got 3"),
            (
                lambda: nn.conv2d(x, var("w", 6, 4, 8, 8)),
                "a window of 8 on data of 5: the result would have size -2",
            ),
            (
                lambda: nn.conv2d(x, var("w", 6, 4, 3, 3, kind="float16")),
                "the dtypes differ: data is float32",
            ),
            (lambda: nn.conv2d(x, w, out_dtype="int32"), "out_dtype: int32 for data of float32"),
            (
                lambda: nn.conv2d(var("x", 1, 4, 5, 5, kind="bool"), w),
                "data: wanted a number's dtype",
            ),
            (
                lambda: nn.conv2d(x, w, stride=2),
                "nn.conv2d: .*unexpected keyword argument 'stride'",
            ),
            (
                lambda: nn.conv2d_transpose(x, var("w", 4, 2, 3, 3), output_padding=1),
                "output_padding: wanted less than the stride",
            ),
            (
                lambda: nn.conv2d_transpose(x, var("w", 3, 2, 3, 3)),
                "data has .*4.* channels; wanted .*3",
            ),
            (
                lambda: nn.conv2d_transpose(x, var("w", 4, 2, 3, 3), groups=3),
                "weight has 4 input channels",
            ),
        ]
    )


def test_attributes_are_written_in_one_form():
    x, w = var("x", 1, 4, 5, 5), var("w", 6, 4, 3, 3)
    call = nn.conv2d(x, w, strides=[2], padding=(1, 0))
    assert dict(call.attrs) == {
        "strides": (2, 2),
        "padding": (1, 0, 1, 0),
        "dilation": (1, 1),
        "groups": 1,
        "data_layout": "NCHW",
        "kernel_layout": "OIHW",
        "out_layout": "NCHW",
        "out_dtype": None,
    }
    assert call.struct_info == relax.TensorStructInfo((1, 6, 3, 2), "float32")


def test_the_size_of_a_convolution_that_keeps_it_is_the_symbol_itself():
    n = tir.Var("n", "int64")
    call = nn.conv2d(var("x", 1, 4, n, n), var("w", 6, 4, 3, 3), padding=1)
    assert call.struct_info == relax.TensorStructInfo((1, 6, n, n), "float32")


def test_what_is_unknown_of_data_stays_unknown():
    loose = relax.Var("x", relax.TensorStructInfo(None, "float32"))
    info = nn.conv2d(loose, var("w", 6, 4, 3, 3)).struct_info
    assert info == relax.TensorStructInfo(None, "float32", ndim=4)


def test_a_convolution_of_another_layout_gives_the_same_numbers():
    rng = np.random.default_rng(0)
    data = rng.normal(size=(1, 8, 5, 6)).astype("float32")
    weight = rng.normal(size=(4, 8, 3, 3)).astype("float32")
    x, w = var("x", *data.shape), var("w", *weight.shape)
    want = evaluate(nn.conv2d(x, w), {x: data, w: weight})
    blocked = data.reshape(1, 2, 4, 5, 6).transpose(0, 1, 3, 4, 2)
    xb = var("xb", *blocked.shape)
    got = evaluate(
        nn.conv2d(xb, w, data_layout="NCHW4c", out_layout="NHWC"), {xb: blocked, w: weight}
    )
    np.testing.assert_allclose(got.transpose(0, 3, 1, 2), want, rtol=1e-6)
