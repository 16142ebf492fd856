"""layer_norm, rms_norm, group_norm, instance_norm, batch_norm."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import Case, T, check, check_errors, check_gradients
from relax_vm_helpers import build_interpreted

from relaxvm import relax, tir
from relaxvm.base import VMError
from relaxvm.ir import PassContext
from relaxvm.ir.transform import Sequential
from relaxvm.relax import op as R
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining
from relaxvm.runtime import VirtualMachine, array, cpu

nn = R.nn


def of_rank(ndim: int):
    return lambda d: relax.TensorStructInfo(None, d, ndim=ndim)


def channels(c: object) -> list[T]:
    """gamma, beta, moving mean, moving variance."""
    return [T(c), T(c), T(c), T(c, low=0.5, high=2.0)]


# Far from zero: what one pass would lose.
FAR = T(3, 64, data=lambda rng, shape: rng.uniform(1000, 1001, shape))

CASES = [
    Case(nn.layer_norm, T("n", 4), T(4), T(4), axes=-1, count=16),
    Case(nn.layer_norm, T(2, 3, "n"), T(3, "n"), T(3, "n"), axes=[1, 2], count=16),
    Case(nn.layer_norm, T(2, 3, 4), T(4, 2), T(4, 2), axes=[2, 0], center=False, count=16),
    Case(nn.layer_norm, T(3, 4), T(4), T(4), axes=[1], scale=False, epsilon=1e-3, count=16),
    Case(
        nn.layer_norm,
        FAR,
        T(64),
        T(64),
        axes=-1,
        dtypes=("float32", "float64"),
        count=64,
        rtol=2e-3,
        atol=2e-3,
        grad=False,
    ),
    Case(nn.layer_norm, T("zero", 4), T(4), T(4), axes=-1),
    Case(nn.layer_norm, T(3, "one"), T("one"), T("one"), axes=-1, grad=False),
    Case(nn.layer_norm, T(3, 4, info=of_rank(2)), T(4), T(4), axes=-1, count=16, grad=False),
    Case(nn.rms_norm, T("n", 4), T(4), axes=-1, count=4),
    Case(nn.rms_norm, T(2, 3, 2), T(3, 2), axes=[-2, -1], epsilon=1e-6, count=6),
    Case(nn.rms_norm, T(2, 64, low=100.0, high=200.0), T(64), count=64, grad=False),
    Case(
        nn.group_norm,
        T("n", 4, 3, 2),
        T(4),
        T(4),
        num_groups=2,
        channel_axis=1,
        axes=[2, 3],
        count=64,
    ),
    Case(
        nn.group_norm,
        T(2, 3, 6),
        T(6),
        T(6),
        num_groups=3,
        channel_axis=-1,
        axes=[1],
        scale=False,
        count=64,
    ),
    Case(nn.group_norm, T(2, 4), T(4), T(4), num_groups=1, channel_axis=1, axes=[], count=64),
    Case(nn.instance_norm, T(2, 3, "n", 2), T(3), T(3), channel_axis=1, axes=[2, 3], count=64),
    Case(
        nn.instance_norm, T(2, 4, 3), T(3), T(3), channel_axis=2, axes=[1], center=False, count=64
    ),
    Case(nn.batch_norm, T("n", 3, 2), *channels(3), axis=1, count=16),
    Case(nn.batch_norm, T(4, 2, 3), *channels(3), axis=-1, momentum=0.3, scale=False, count=16),
    Case(nn.batch_norm, T(5, 2), *channels(2), axis=1, center=False, count=16),
    Case(nn.batch_norm, T("n", 3, 2), *channels(3), axis=1, training=False, count=4),
    Case(nn.batch_norm, T(0, 3, 2), *channels(3), axis=1, training=False),
    Case(
        nn.batch_norm,
        T("n", "m"),
        *channels("m"),
        axis=1,
        training=False,
        scale=False,
        center=False,
        count=4,
    ),
]


def test_norms_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(CASES, dtypes=("float32",))


@pytest.mark.slow
def test_norms_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_norms():
    check_gradients(CASES)


def var(name: str, *shape: int, kind: str = "float32") -> relax.Var:
    return relax.Var(name, relax.TensorStructInfo(shape, kind))


def test_mistakes_are_told():
    x, four, three, half = var("x", 2, 4), var("g", 4), var("b", 3), var("h", 4, kind="float16")
    image = var("image", 2, 4, 3)
    check_errors(
        [
            (
                lambda: nn.layer_norm(x, three, four, axes=-1),
                "gamma: wanted size .*4.*as axis 1 of data",
            ),
            (lambda: nn.layer_norm(x, four, four, axes=[0, 1]), "gamma: wanted 2 dimensions"),
            (lambda: nn.layer_norm(x, half, four, axes=-1), "the dtypes differ: data is float32"),
            (lambda: nn.layer_norm(x, four, four, axes=2), "axes: wanted -2 to 1 for 2 dimensions"),
            (lambda: nn.rms_norm(x, three), "weight: wanted size"),
            (lambda: nn.rms_norm(x, four, axes=1.5), "nn.rms_norm: axes: wanted an int, got float"),
            (lambda: nn.layer_norm(x, four, four, axes={}), "axes: wanted an int, got Map"),
            (
                lambda: nn.instance_norm(image, four, four, 1, None),
                "nn.instance_norm: axes: wanted an int or several, got None",
            ),
            (
                lambda: nn.group_norm(image, four, four, num_groups=3, channel_axis=1, axes=[2]),
                "num_groups: wanted a divisor of the 4 channels, got 3",
            ),
            (
                lambda: nn.group_norm(image, four, four, num_groups=2, channel_axis=1, axes=[1, 2]),
                "axes: the channel axis 1 is among them",
            ),
            (
                lambda: nn.instance_norm(image, three, four, channel_axis=1, axes=[2]),
                "gamma: wanted size",
            ),
            (lambda: nn.batch_norm(x, four, four, four, three, axis=1), "moving_var: wanted size"),
            (lambda: nn.batch_norm(x, four, four, four, four, axis=5), "wanted -2 to 1"),
            (lambda: nn.batch_norm(x, four), "missing a required argument|missing"),
        ]
    )


def module(training: bool) -> relax.BlockBuilder:
    builder = relax.BlockBuilder()
    params = [var("x", 3, 4, 2), *(var(n, 4) for n in ("g", "b", "m", "v"))]
    with builder.function("main", params):
        with builder.dataflow():
            out = builder.emit_output(nn.batch_norm(*params, axis=1, training=training))
        builder.emit_func_output(out)
    return builder.get()


@pytest.mark.parametrize("training", [False, True])
def test_decomposed_batch_norm_computes_the_same(training):
    rng = np.random.default_rng(0)
    mod = module(training)
    passes = DecomposeOpsForTraining() if training else DecomposeOpsForInference()
    simpler = passes(mod)
    assert "batch_norm" not in simpler.script()
    arrays = [rng.uniform(0.5, 2, (3, 4, 2)).astype("float32")]
    arrays += [rng.uniform(0.5, 2, 4).astype("float32") for _ in range(4)]
    params = mod["main"].params
    want = evaluate(nn.batch_norm(*params, axis=1, training=training), dict(zip(params, arrays)))
    vm = VirtualMachine(relax.build(simpler, target="llvm"), cpu())
    for got, w in zip(vm["main"](*map(array, arrays)), want):
        np.testing.assert_allclose(got.numpy(), w, rtol=1e-5, atol=1e-6)


def test_decomposing_rounds_otherwise_and_is_left_out_where_numerics_are_exact():
    mod = module(False)
    with PassContext(config={"numerics": "exact"}):
        assert Sequential([DecomposeOpsForInference()])(mod) is mod


def test_a_decomposed_norm_takes_no_vector_of_one_element_for_all_channels():
    builder = relax.BlockBuilder()
    x, *vectors = var("x", 2, tir.Var("c", "int64")), *(var(n, 4) for n in "gbmv")
    with builder.function("main", [x, *vectors]):
        with builder.dataflow():
            out = builder.emit_output(nn.batch_norm(x, *vectors, axis=1, training=False))
        builder.emit_func_output(out)
    vm = build_interpreted(DecomposeOpsForInference()(builder.get()))
    ones = [np.ones(4, "float32") for _ in range(4)]
    assert vm["main"](np.ones((2, 4), "float32"), *ones)[0].shape == (2, 4)
    with pytest.raises(VMError, match="wanted"):
        vm["main"](np.ones((2, 1), "float32"), *ones)


def test_layer_norm_is_decomposed_for_training_only():
    builder = relax.BlockBuilder()
    x, g, b = var("x", 2, 4), var("g", 4), var("b", 4)
    with builder.function("main", [x, g, b]):
        with builder.dataflow():
            out = builder.emit_output(nn.layer_norm(x, g, b, axes=-1))
        builder.emit_func_output(out)
    mod = builder.get()
    assert DecomposeOpsForInference()(mod) is mod
    assert "layer_norm" not in DecomposeOpsForTraining()(mod).script()


def test_fixed_statistics_stay_fixed_in_training():
    x, *vectors = var("x", 2, 4), *(var(n, 4) for n in "gbmv")
    builder = relax.BlockBuilder()
    with builder.function("main", [x, *vectors]):
        with builder.dataflow():
            out = builder.emit_output(nn.batch_norm(x, *vectors, axis=1, training=False))
        builder.emit_func_output(out)
    simpler = DecomposeOpsForTraining()(builder.get())
    assert "batch_norm" not in simpler.script()
    assert "R.mean" not in simpler.script()
    assert nn.rms_norm(x, vectors[0], axes=np.int64(-1)).attrs["axes"] == -1
