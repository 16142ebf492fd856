"""pad, pixel_shuffle, depth_to_space, space_to_depth."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import ALL, Case, T, check, check_errors, check_gradients

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate

nn = R.nn

CASES = [
    Case(nn.pad, T("n", 3), pad_width=[1, 0, 2, 1], dtypes=ALL, exact=True),
    Case(nn.pad, T(2, "n"), pad_width=((0, 0), (3, 2)), pad_value=1, dtypes=ALL, exact=True),
    Case(nn.pad, T(2, 3), pad_width=[0, 1, 0, 0], pad_value=-2.5, exact=True),
    *(
        case
        for mode in ("reflect", "replicate", "circular")
        for case in (
            Case(
                nn.pad,
                T("n", 4),
                pad_width=[1, 2, 3, 0],
                pad_mode=mode,
                dtypes=ALL,
                exact=True,
            ),
            Case(nn.pad, T(1, 3), pad_width=[2, 1, 7, 8], pad_mode=mode, exact=True),
            Case(
                nn.pad, T("zero", 2), pad_width=[1, 1, 0, 1], pad_mode=mode, exact=True, grad=False
            ),
            Case(nn.pad, T(0, 2), pad_width=[0, 0, 1, 1], pad_mode=mode, exact=True),
        )
    ),
    Case(nn.pad, T(2, 2), pad_width=[1, 1, 0, 0], pad_mode="edge", exact=True),
    Case(nn.pad, T(2, 2), pad_width=[0, 0, 0, 0], pad_mode="reflect", exact=True),
    Case(nn.pad, T(), pad_width=[], exact=True),
    Case(nn.pixel_shuffle, T("n", 8, 2, 3), upscale_factor=2, dtypes=ALL, exact=True),
    Case(nn.pixel_shuffle, T(9, "n", 1), upscale_factor=3, exact=True),
    Case(nn.pixel_shuffle, T(2, 4, 0, 1), upscale_factor=2, exact=True),
    Case(nn.depth_to_space, T("n", 8, 2, 3), block_size=2, dtypes=ALL, exact=True),
    Case(nn.depth_to_space, T("n", 8, 2, 3), block_size=2, mode="CRD", exact=True),
    Case(nn.depth_to_space, T(1, 2, "n", 8), block_size=2, layout="NHWC", mode="CRD", exact=True),
    Case(nn.depth_to_space, T(1, 4, 2, 2, 4), block_size=2, layout="NCHW4c", exact=True),
    Case(nn.space_to_depth, T("n", 2, 4, 6), block_size=2, dtypes=ALL, exact=True),
    Case(nn.space_to_depth, T(1, 2, 4, "n"), block_size=2, mode="CRD", sizes={"n": 6}, exact=True),
    Case(nn.space_to_depth, T(1, 6, 3, 2), block_size=3, layout="NHWC", exact=True),
]


def test_pads_and_shuffles_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES, dtypes=("float32", "bool"), in_turn=True)


@pytest.mark.slow
def test_pads_and_shuffles_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_pads_and_shuffles():
    check_gradients(CASES)


def test_depth_to_space_and_back_is_the_same():
    x = relax.Var("x", relax.TensorStructInfo((2, 8, 3, 5), "float32"))
    data = np.random.default_rng(0).normal(size=(2, 8, 3, 5)).astype("float32")
    call = nn.space_to_depth(nn.depth_to_space(x, 2), 2)
    np.testing.assert_array_equal(evaluate(call, {x: data}), data)


def test_depth_to_space_in_crd_mode_is_pixel_shuffle():
    x = relax.Var("x", relax.TensorStructInfo((2, 8, 3, 5), "float32"))
    data = np.random.default_rng(0).normal(size=(2, 8, 3, 5)).astype("float32")
    a, b = nn.depth_to_space(x, 2, mode="CRD"), nn.pixel_shuffle(x, 2)
    np.testing.assert_array_equal(evaluate(a, {x: data}), evaluate(b, {x: data}))


def test_the_order_that_value_and_mode_once_had_is_understood():
    x = relax.Var("x", relax.TensorStructInfo((3,), "float32"))
    a, b = nn.pad(x, [1, 0], 2.5), nn.pad(x, [1, 0], 2, "edge")
    assert (a.attrs["pad_mode"], a.attrs["pad_value"]) == ("constant", 2.5)
    assert (b.attrs["pad_mode"], b.attrs["pad_value"]) == ("replicate", 2.0)


def test_mistakes_are_told():
    x = relax.Var("x", relax.TensorStructInfo((2, 6, 4, 4), "float32"))
    u = relax.Var("u", relax.TensorStructInfo((2, 0), "uint8"))
    check_errors(
        [
            (lambda: nn.pad(x, [1, 1]), "pad_width: wanted 8 ints, two for each dimension; got 2"),
            (lambda: nn.pad(x, [1, 1, 1]), "pad_width: wanted \\(before, after\\)"),
            (lambda: nn.pad(x, [-1, 0] * 4), "pad_width: wanted ints >= 0"),
            (
                lambda: nn.pad(x, [0] * 8, pad_mode="mirror"),
                "pad_mode: wanted one of constant, reflect",
            ),
            (lambda: nn.pad(x, [0] * 8, pad_mode=[1]), "attribute pad_mode: wanted str"),
            (lambda: nn.pad(x, [2**40] * 8), "pad_width: wanted ints >= 0 and < 2"),
            (lambda: nn.pad(u, [0, 0, 1, 0], pad_mode="reflect"), "axis 1 of data is empty"),
            (lambda: nn.pad(u, [0, 0, 1, 0], pad_value=300), "300 does not fit uint8"),
            (lambda: nn.pixel_shuffle(x, 2), "data has 6 channels; wanted a multiple of 4"),
            (lambda: nn.pixel_shuffle(x, 0), "upscale_factor: wanted an int >= 1"),
            (lambda: nn.depth_to_space(x, 2), "data has 6 channels; wanted a multiple of 4"),
            (lambda: nn.depth_to_space(x, 1, mode="RCD"), "mode: wanted DCR or CRD"),
            (lambda: nn.space_to_depth(x, 2, mode="C"), "mode: wanted DCR or CRD, got 'C'"),
            (lambda: nn.space_to_depth(x, 3), "data has 4 rows; wanted a multiple of 3"),
            (lambda: nn.space_to_depth(x, 2, layout="NCW"), "layout: wanted the axes NCHW"),
        ]
    )
