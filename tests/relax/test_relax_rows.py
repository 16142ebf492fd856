"""Softmax and its kin built with default schedules: every axis, odd widths, other floats, masks,
sizes known only when the program runs; against float64.
"""

from __future__ import annotations

import numpy as np
import pytest

from relaxvm import relax, tir
from relaxvm.relax import op as R
from relaxvm.runtime import VirtualMachine, cpu

TOLERANCE = {"float16": (2e-3, 1e-6), "float32": (3e-6, 1e-7), "float64": (1e-14, 1e-16)}


def built(make, *infos):
    params = [relax.Var(f"x{k}", info) for k, info in enumerate(infos)]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(make(*params))
        builder.emit_func_output(out)
    return VirtualMachine(relax.build(builder.get(), target="llvm"), cpu())["main"]


def tensor(shape, dtype="float32"):
    return relax.TensorStructInfo(shape, dtype)


def values(shape, dtype="float32", seed=0):
    return np.random.default_rng(seed).uniform(-6, 6, shape).astype(dtype)


def softmax_of(x, axis, log=False):
    x = x.astype("float64")
    low = x - x.max(axis, keepdims=True)
    total = np.exp(low).sum(axis, keepdims=True)
    return low - np.log(total) if log else np.exp(low) / total


def assert_close(got, want, dtype):
    relative, absolute = TOLERANCE[dtype]
    np.testing.assert_allclose(got.numpy(), want, rtol=relative, atol=absolute)


WIDTHS = [((4, n), 1) for n in (1, 5, 8, 31, 37, 100, 1000)]
AXES = [((3, 5, 24), 0), ((3, 21, 24), 1), ((2, 16, 7), 1), ((3, 5, 24), 2), ((2, 3, 9, 11), 1)]


@pytest.mark.parametrize("log", [False, True], ids=["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "axis"), WIDTHS + AXES)
def test_every_axis_and_width(shape, axis, log):
    x = values(shape)
    op = R.nn.log_softmax if log else R.nn.softmax
    got = built(lambda v: op(v, axis=axis), tensor(shape))(x)
    relative, absolute = TOLERANCE["float32"]
    want = softmax_of(x, axis, log)
    np.testing.assert_allclose(got.numpy(), want, rtol=relative, atol=3e-6 if log else absolute)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_other_floats(dtype, axis):
    x = values((6, 33, 19), dtype)
    got = built(lambda v: R.nn.softmax(v, axis=axis), tensor(x.shape, dtype))(x)
    assert_close(got, softmax_of(x, axis), dtype)


@pytest.mark.parametrize("scaled", [False, True])
def test_masked(scaled):
    x, mask = values((2, 4, 9, 70)), np.random.default_rng(1).random((2, 1, 9, 70)) < 0.6
    mask[0, 0, 3] = False
    mask[0, 0, 3, 7] = True
    low = relax.const(np.float32(-1e9))

    def make(v, m):
        if scaled:
            v = R.multiply(v, relax.const(np.float32(0.125)))
        return R.nn.softmax(R.where(m, v, low), axis=-1)

    got = built(make, tensor(x.shape), tensor(mask.shape, "bool"))(x, mask)
    want = softmax_of(np.where(mask, x * (0.125 if scaled else 1), -1e9), -1)
    assert_close(got, want, "float32")
    assert not got.numpy()[~np.broadcast_to(mask, x.shape)].any()


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_sizes_known_only_when_it_runs(axis):
    n, m = tir.Var("n", "int64"), tir.Var("m", "int64")
    main = built(lambda v: R.nn.softmax(v, axis=axis), tensor((2, n, m)))
    for shape in ((2, 1, 1), (2, 7, 37), (2, 64, 100)):
        x = values(shape)
        assert_close(main(x), softmax_of(x, axis), "float32")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_rows_with_nan_and_infinity(dtype):
    x = values((6, 50), dtype)
    x[1, 7], x[2, 9], x[3, :20], x[4], x[5, 49] = np.nan, np.inf, -np.inf, -np.inf, np.nan
    got = built(lambda v: R.nn.softmax(v, axis=1), tensor(x.shape, dtype))(x).numpy()
    with np.errstate(invalid="ignore"):
        want = softmax_of(x, 1)
    relative, absolute = TOLERANCE[dtype]
    np.testing.assert_allclose(got, want, rtol=relative, atol=absolute, equal_nan=True)


def test_far_below_the_greatest_is_zero_and_near_underflow_is_exact():
    x = np.array([[0.0, -87.0, -88.5, -103.5, -104.5, -200.0, -1e9, -3e38]], "float32")
    got = built(lambda v: R.nn.softmax(v, axis=1), tensor(x.shape))(x).numpy()
    want = softmax_of(x, 1)
    np.testing.assert_allclose(got, want, rtol=2e-6, atol=1.5e-45)
    assert (got[0, 5:] == 0).all()
