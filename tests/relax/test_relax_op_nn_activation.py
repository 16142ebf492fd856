"""Activations, softmax, log_softmax, prelu and dropout."""

from __future__ import annotations

import numpy as np
import pytest
from op_table import NUMBERS, Case, T, check, check_errors, check_gradients, thinned

from relaxvm import relax
from relaxvm.relax import op as R
from relaxvm.relax.interp import Evaluator
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import DecomposeOpsForInference, DecomposeOpsForTraining
from relaxvm.runtime import VirtualMachine, cpu

nn = R.nn
SMOOTH = [nn.gelu, nn.gelu_tanh, nn.silu, nn.softplus, nn.mish, nn.elu, nn.selu, nn.celu]
BENT = [nn.leakyrelu, nn.hardswish, nn.hardsigmoid]


def ranked(d: str):
    return relax.TensorStructInfo(None, d, ndim=2)


CASES = [
    *(Case(f, T("n", 4)) for f in (*SMOOTH, *BENT)),
    *(Case(f, T(3, 5, low=-60.0, high=60.0), grad=False, rtol=2e-5) for f in (*SMOOTH, *BENT)),
    Case(nn.relu, T("n", 4), dtypes=NUMBERS, exact=True),
    Case(nn.relu, T(3, 4, special=True), exact=True, grad=False),
    Case(nn.relu, T(0, 2)),
    Case(nn.relu, T()),
    Case(nn.relu6, T("n", 4, low=-9, high=9), dtypes=NUMBERS, exact=True),
    Case(nn.leakyrelu, T(5), alpha=0.3),
    Case(nn.elu, T(5), alpha=0.5),
    Case(nn.celu, T(5), alpha=2.0),
    Case(nn.softplus, T("n", 2), beta=2.0, threshold=3.0),
    Case(nn.hardsigmoid, T(4), alpha=0.2, beta=0.4),
    Case(nn.silu, T("n", 2, info=ranked)),
    Case(nn.prelu, T("n", 3, 2), T(3)),
    Case(nn.prelu, T(2, "m"), T("m"), axis=-1),
    Case(nn.prelu, T(2, 3), T(1)),
    Case(nn.prelu, T("zero", 3), T(3)),
    Case(nn.softmax, T("n", 4), count=4),
    Case(nn.softmax, T(2, "n", 3), axis=1, count=3),
    Case(nn.softmax, T(3, 5, low=-2e4, high=2e4), count=5, grad=False),
    Case(nn.softmax, T(2, 3, data=[[-np.inf, 1.0, 0.0], [-np.inf, -np.inf, -np.inf]]), grad=False),
    Case(nn.softmax, T(2, 3, data=[[np.inf, 1.0, 0.0], [np.nan, 1.0, 0.0]]), grad=False),
    Case(nn.softmax, T("zero", 4)),
    Case(nn.softmax, T(3, 0)),
    Case(nn.softmax, T(3, "one"), axis=-1),
    Case(nn.log_softmax, T("n", 4), count=4),
    Case(nn.log_softmax, T(2, "n", 3), axis=0, count=3),
    Case(nn.log_softmax, T(3, 5, low=-2e4, high=2e4), count=5, grad=False),
    Case(nn.dropout, T("n", 4), rate=0.3),
    Case(nn.dropout_seeded, T("n", 4), 7, rate=0.3),
    Case(nn.dropout_seeded, T(2, "k"), T(dtype="int32", data=-5), rate=0.75),
    Case(nn.dropout_seeded, T(0, 3), 1, rate=0.0),
    Case(nn.dropout_seeded, T(5, 5, special=True), 3, grad=False),
]


def test_activations_mean_the_same_to_numpy_the_interpreter_and_llvm():
    check(thinned(CASES, 2), dtypes=("float32", "float16", "int32"), in_turn=True)


@pytest.mark.slow
def test_activations_of_every_dtype():
    check(CASES, slow=True)


def test_gradients_of_activations():
    check_gradients(CASES)


def test_mistakes_are_told():
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    i = relax.Var("i", relax.TensorStructInfo((2, 3), "int32"))
    b = relax.Var("b", relax.TensorStructInfo((2, 3), "bool"))
    four = relax.Var("a", relax.TensorStructInfo((4,), "float32"))
    check_errors(
        [
            (lambda: nn.gelu(i), "nn.gelu: data: wanted a floating dtype, got int32"),
            (lambda: nn.relu(b), "nn.relu: data: wanted a number's dtype"),
            (
                lambda: nn.softmax(x, axis=2),
                "nn.softmax: axis: wanted -2 to 1 for 2 dimensions, got 2",
            ),
            (
                lambda: nn.prelu(x, four),
                "alpha: wanted 3 slopes",
            ),
            (lambda: nn.prelu(x, x), "alpha: wanted 1 dimensions, got 2"),
            (lambda: nn.dropout(x, 0.5, 1.5), "seed: wanted an integer dtype, got float"),
            (lambda: nn.dropout(x, 0.5, x), "nn.dropout_seeded: seed: wanted an integer dtype"),
            (lambda: nn.dropout(x, 1.0, 3), r"rate: wanted a number in \[0, 1\), got 1.0"),
            (lambda: nn.dropout(x, rate=1.5), r"rate: wanted a number in \[0, 1\), got 1.5"),
            (lambda: nn.leakyrelu(x, alpha="a"), "attribute alpha: wanted float"),
            (lambda: nn.celu(x, alpha=0.0), "alpha: wanted a number other than 0"),
            (lambda: nn.softplus(x, beta=0.0), "beta: wanted a number other than 0"),
            (lambda: nn.log_softmax((x, x)), "data: wanted a tensor"),
        ]
    )


def test_far_negative_elu_and_far_positive_softplus_do_not_overflow():
    data = np.array([-1e30, -200.0, 200.0, 1e30], "float32")
    x = relax.Var("x", relax.TensorStructInfo((4,), "float32"))
    assert evaluate(nn.elu(x), {x: data}).tolist() == [-1.0, -1.0, 200.0, np.float32(1e30)]
    assert evaluate(nn.softplus(x), {x: data}).tolist() == [0.0, 0.0, 200.0, np.float32(1e30)]


def test_dropout_of_inference_is_its_argument():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(nn.dropout(x, rate=0.5))
        builder.emit_func_output(out)
    text = DecomposeOpsForInference()(builder.get()).script()
    assert "dropout" not in text
    assert "ones_like" in text


def run_dropout(transform, seed):
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((100, 100), "float32"))
    s = relax.Var("s", relax.TensorStructInfo((), "int64"))
    with builder.function("main", [x, s]):
        with builder.dataflow():
            out = builder.emit_output(nn.dropout(x, 0.25, s))
        builder.emit_func_output(out)
    mod = transform(builder.get())
    vm = VirtualMachine(relax.build(mod, target="llvm"), cpu())
    return [a.numpy() for a in vm["main"](np.full((100, 100), 3.0, "float32"), np.int64(seed))]


def test_dropout_with_a_seed_drops_the_same_elements_again():
    out, mask = run_dropout(DecomposeOpsForTraining(), 11)
    again = run_dropout(lambda mod: mod, 11)
    assert np.array_equal(out, again[0])
    assert np.array_equal(mask, again[1])
    assert set(np.unique(mask)) == {0.0, 1.0}
    np.testing.assert_allclose(out, mask * 4.0, rtol=1e-6)
    assert abs(mask.mean() - 0.75) < 0.02
    other = run_dropout(lambda mod: mod, 12)[1]
    assert 0.3 < np.mean(other != mask) < 0.45  # 2 * 0.25 * 0.75


def test_dropout_with_a_seed_is_identity_for_inference():
    out, mask = run_dropout(DecomposeOpsForInference(), 11)
    assert np.all(out == 3.0)
    assert np.all(mask == 1.0)


def test_dropout_without_a_seed_is_told_of_in_training():
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorStructInfo((2, 3), "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            out = builder.emit_output(nn.dropout(x, rate=0.5))
        builder.emit_func_output(out)
    mod = builder.get()
    with pytest.warns(
        UserWarning, match=r"drops nothing at training either.*dropout\(x, rate, seed"
    ):
        assert DecomposeOpsForTraining()(mod) is mod


@pytest.mark.parametrize("beta", [0.1, 0.7, 3.0, -1.3])
def test_softplus_by_any_beta_is_right_to_the_last_places(beta):
    data = np.linspace(-100 / abs(beta), 100 / abs(beta), 20_001).astype("float32")
    x = relax.Var("x", relax.TensorStructInfo(data.shape, "float32"))
    scaled = data.astype("longdouble") * np.longdouble(beta)
    right = (np.maximum(scaled, 0) + np.log1p(np.exp(-np.abs(scaled)))) / np.longdouble(beta)
    off = evaluate(nn.softplus(x, beta, 1000.0), {x: data}) - right
    assert np.max(np.abs(off) / np.spacing(np.abs(right).astype("float32"))) < 1


def test_relu6_means_what_clip_means_of_negative_zeros_too():
    zeros = relax.const(np.array([-0.0, 0.0], "float32"))
    for call in (nn.relu6(zeros), R.clip(zeros, 0, 6)):
        module = relax.BlockBuilder()
        with module.function("main", []):
            module.emit_func_output(module.emit(call))
        assert not np.signbit(Evaluator(module.get())("main")).any()
