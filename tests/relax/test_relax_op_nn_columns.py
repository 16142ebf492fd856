"""nn.col2im and nn.deformable_conv2d."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, Sh, T, check, check_errors, check_gradients

from relaxvm import relax
from relaxvm.base import StructInfoError
from relaxvm.relax import op as R
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import Gradient

nn = R.nn

CASES = [
    Case(nn.col2im, T("n", 12, 25), Sh(5, 6), block_shape=(2, 3), padding=(0, 1, 1, 0), count=6),
    Case(
        nn.col2im,
        T(2, 8, 6),
        Sh(6, 7),
        block_shape=(2, 2),
        strides=(2, 3),
        dilation=(3, 1),
        padding=(0, 0, 0, 1),
        count=4,
    ),
    Case(nn.col2im, T(1, 6, 4), Sh("k"), block_shape=2, count=2),
    Case(nn.col2im, T(1, 8, 6), Sh(2, 3, 4), block_shape=(2, 2, 2), count=8),
    Case(nn.col2im, T(1, 16, 1), Sh(2, 2, 2, 2), block_shape=(2, 2, 2, 2), count=16, grad=False),
    Case(nn.col2im, T("zero", 4, 4), Sh(3, 3), block_shape=(2, 2)),
    Case(nn.col2im, T(1, 4, 4), Sh(3, 3), block_shape=(2, 2), dtypes=("int32", "uint8")),
]


def test_columns_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES)


def test_gradients_of_columns():
    check_gradients(CASES)


def test_columns_that_touch_are_laid_side_by_side():
    x = relax.Var("x", relax.TensorStructInfo((1, 2, 3), "float32"))
    got = evaluate(nn.col2im(x, (6,), 2, 2), {x: np.float32([[[0, 2, 4], [1, 3, 5]]])})
    np.testing.assert_array_equal(got, [[[0, 1, 2, 3, 4, 5]]])


# -- deformable convolution ------------------------------------------------------------------------


def variables(*shapes, dtype="float32"):
    return [relax.Var(f"x{k}", relax.TensorStructInfo(s, dtype)) for k, s in enumerate(shapes)]


def deformed(x, offset, weight, mask, strides, padding, dilation, dg, groups):
    """One number after the other."""
    n, c, h, w = x.shape
    o, each, kh, kw = weight.shape
    ho, wo = offset.shape[2:]
    offset = offset.reshape(n, dg, kh, kw, 2, ho, wo)
    mask = mask.reshape(n, dg, kh, kw, ho, wo)
    result = np.zeros((n, o, ho, wo))

    def read(picture, y, z):
        total, low, left = 0.0, int(np.floor(y)), int(np.floor(z))
        for i in (low, low + 1):
            for j in (left, left + 1):
                if 0 <= i < h and 0 <= j < w:
                    total += picture[i, j] * (1 - abs(y - i)) * (1 - abs(z - j))
        return total

    for b, k, i, j in np.ndindex(n, o, ho, wo):
        for channel, r, s in np.ndindex(each, kh, kw):
            at = k // (o // groups) * each + channel
            d = at // (c // dg)
            y = i * strides[0] - padding[0] + r * dilation[0] + offset[b, d, r, s, 0, i, j]
            z = j * strides[1] - padding[1] + s * dilation[1] + offset[b, d, r, s, 1, i, j]
            result[b, k, i, j] += (
                read(x[b, at], y, z) * mask[b, d, r, s, i, j] * weight[k, channel, r, s]
            )
    return result


@pytest.mark.parametrize(("dg", "groups"), [(1, 1), (2, 1), (1, 2), (2, 4)])
def test_a_deformable_convolution_reads_where_the_offset_says(dg, groups):
    rng = np.random.default_rng(dg * 10 + groups)
    shapes = (2, 4, 5, 6), (2, dg * 12, 3, 5), (4, 4 // groups, 3, 2), (2, dg * 6, 3, 5)
    data = [rng.standard_normal(s) * 2 for s in shapes]
    args = variables(*shapes, dtype="float64")
    settings = (2, 1), (1, 0), (1, 1), dg, groups
    call = nn.deformable_conv2d(*args, *settings[:1], (1, 0, 1, 0), *settings[2:])
    want = deformed(*data, *settings)
    assert call.struct_info.shape is not None
    np.testing.assert_allclose(evaluate(call, dict(zip(args, data))), want, atol=1e-12)


def test_offsets_learn():
    shapes = (1, 1, 4, 4), (1, 8, 3, 3), (1, 1, 2, 2)
    rng = np.random.default_rng(0)
    data = [rng.standard_normal(s) for s in shapes]
    args = variables(*shapes, dtype="float64")
    bb = relax.BlockBuilder()
    with bb.function("main", args):
        with bb.dataflow():
            y = bb.emit(nn.deformable_conv2d(*args))
            loss = bb.emit_output(R.sum(y))
        bb.emit_func_output(loss)
    run = Evaluator(Gradient("main")(bb.get()))
    _, grads = run("main_adjoint", *data)
    for k in range(3):
        at = tuple(rng.integers(0, n) for n in shapes[k])
        moved = [d.copy() for d in data]
        moved[k][at] += 1e-6
        slope = (run("main", *moved) - run("main", *data)) / 1e-6
        np.testing.assert_allclose(grads[k][at], slope, atol=1e-4)


def test_mistakes_are_told():
    (x,) = variables((1, 6, 4))
    data, offset, weight = variables((1, 4, 5, 5), (1, 8, 4, 4), (2, 4, 2, 2))
    check_errors(
        [
            (lambda: nn.col2im(x, (3, 3), 2), "image_shape: wanted 1 sizes, as block_shape has"),
            (lambda: nn.col2im(x, (3, 3), (2, 2)), "data has 6 rows; wanted a multiple of 4"),
            (lambda: nn.col2im(x, (6,), 2), "data has 4 windows; the image has 5"),
        ]
    )
    for settings, text in (
        ({"padding": 1}, "offset: wanted 6 rows, got 4"),
        ({"deformable_groups": 3}, "wanted 24 numbers"),
        ({"groups": 3}, "data has 4 channels; wanted a multiple of 3"),
    ):
        with pytest.raises(StructInfoError, match=text):
            nn.deformable_conv2d(data, offset, weight, **settings)
