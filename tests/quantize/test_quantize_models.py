"""Whole models in 8 bits: against floats, by every option, and what is refused."""

import dataclasses
import itertools
import json
import sys

import numpy as np
import pytest

from relaxvm import quantize as Q
from relaxvm import relax
from relaxvm.base import PassError, collected
from relaxvm.ir import assert_structural_equal
from relaxvm.relax import op as R
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import cpu
from relaxvm.script import ir as I
from relaxvm.script import relax as S
from relaxvm.tir import Var as Symbol

RNG = np.random.default_rng(0)
MODES = ["min_max", "percentile", "kl_divergence", "global_scale"]


def normal(*shape, scale=1.0):
    return (RNG.standard_normal(shape) * scale).astype("float32")


def module(f, **shapes):
    """A function of float32 variables, whose bindings `f(builder, *variables)` emits."""
    given = [relax.Var(n, relax.TensorStructInfo(s, "float32")) for n, s in shapes.items()]
    bb = relax.BlockBuilder()
    with bb.function("main", given):
        with bb.dataflow():
            out = bb.emit_output(f(bb, *given))
        bb.emit_func_output(out)
    return bb.get()


def mlp(n, sizes=(16, 32, 8)):
    weights = [normal(a, b, scale=a**-0.5) for a, b in itertools.pairwise(sizes)]

    def layers(bb, x):
        for w in weights:
            x = bb.emit(R.matmul(x, relax.const(w)), "product")
            x = bb.emit(R.nn.relu(bb.emit(R.add(x, relax.const(normal(w.shape[1]))))))
        return x

    return module(layers, x=(n, sizes[0]))


def images(layers):
    return module(layers, x=(2, 4, 10, 10))


def run(mod, *args):
    """What a module means: nothing is built."""
    return Evaluator(mod)("main", *args)


def error(mod, quantised, x):
    wanted = run(mod, x)
    return np.linalg.norm(run(quantised, x) - wanted) / max(np.linalg.norm(wanted), 1e-30)


def count(mod, word):
    return mod.script().count(word)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("symmetric", [False, True])
def test_a_model_in_8_bits_is_near_that_of_floats(mode, symmetric, dtype):
    per_channel = symmetric == (dtype == "int8")
    mod, samples = mlp(Symbol("n", "int64")), [normal(64, 16) for _ in range(3)]
    with Q.qconfig(
        calibrate_mode=mode, symmetric=symmetric, dtype_input=dtype, per_channel=per_channel
    ):
        quantised = Q.quantize(mod, dataset=samples)
    assert_well_formed(quantised)
    assert count(quantised, "R.qnn.dense(") == 2
    assert error(mod, quantised, samples[0]) < 0.06
    built = relax.VirtualMachine(relax.build(quantised), cpu())["main"](samples[0]).numpy()
    np.testing.assert_array_equal(built, run(quantised, samples[0]))


def test_the_dtype_of_weights_is_that_asked_for():
    mod, x = mlp(4), normal(4, 16)
    with Q.qconfig(dtype_weight="uint8", dtype_input="uint8"):
        quantised = Q.quantize(mod, dataset=[x])
    assert error(mod, quantised, x) < 0.03


@pytest.mark.parametrize("batch", [0, 1, 7])
def test_a_symbolic_batch_runs_at_any_size(batch):
    mod = mlp(Symbol("n", "int64"))
    quantised = Q.quantize(mod, dataset=[normal(50, 16), normal(0, 16), normal(30, 16)])
    x = normal(batch, 16)
    assert run(quantised, x).shape == (batch, 8)
    assert error(mod, quantised, x) < 0.1


def test_samples_are_dicts_tuples_or_the_only_input():
    mod, samples = mlp(4), [normal(4, 16) for _ in range(3)]
    forms = [samples, [(x,) for x in samples], [{"x": x} for x in samples], iter(samples)]
    first, *others = (Q.quantize(mod, dataset=f) for f in forms)
    for other in others:
        assert_structural_equal(first, other)


def test_parameters_are_bound_by_name_and_the_module_stays():
    mod = module(lambda bb, x, w: R.matmul(x, w), x=(4, 16), w=(16, 8))
    before, w, x = mod.script(), normal(16, 8), normal(4, 16)
    quantised = Q.quantize(mod, {"w": w}, [x])
    assert [p.name_hint for p in quantised["main"].params] == ["x"]
    np.testing.assert_allclose(run(quantised, x), x @ w, atol=0.1)
    assert mod.script() == before


def test_products_of_two_inputs_are_computed_in_integers():
    mod = module(lambda bb, x, y: R.matmul(x, y), x=(2, 5, 16), y=(2, 16, 7))
    x, y = normal(2, 5, 16), normal(2, 16, 7)
    quantised = Q.quantize(mod, dataset=[(x, y)])
    assert count(quantised, "R.qnn.batch_matmul(") == 1
    np.testing.assert_allclose(run(quantised, x, y), x @ y, atol=0.15)


# -- convolutions and what lies between ------------------------------------------------------------


def residual(bb, x):
    w = [relax.const(normal(4, 4, 3, 3, scale=0.2)) for _ in range(3)]
    bias = relax.const(normal(1, 4, 1, 1))
    y = bb.emit(R.nn.relu(bb.emit(R.add(bb.emit(R.nn.conv2d(x, w[0], padding=1)), bias))))
    z = bb.emit(R.add(bb.emit(R.nn.conv2d(y, w[1], padding=1)), bias))
    z = bb.emit(R.nn.relu(bb.emit(R.add(y, z))))
    z = bb.emit(R.nn.max_pool2d(z, pool_size=2, strides=2))
    z = bb.emit(R.nn.conv2d(z, w[2], padding=1))
    z = bb.emit(R.mean(bb.emit(R.nn.relu(z)), axis=[2, 3]))
    return R.matmul(z, relax.const(normal(4, 10)))


def test_between_layers_everything_is_integers():
    mod, x = images(residual), normal(2, 4, 10, 10)
    quantised = Q.quantize(mod, dataset=[x])
    assert error(mod, quantised, x) < 0.05
    text = quantised.script()
    assert (text.count("R.qnn.conv2d("), text.count("R.qnn.dense(")) == (3, 1)
    # One at the entry, one at the end.
    assert (text.count("R.quantize("), text.count("R.dequantize(")) == (1, 1)


@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize(
    "layer",
    [
        lambda x, g: R.nn.conv2d(x, relax.const(normal(8, 4 // g, 3, 3)), groups=g),
        lambda x, g: R.nn.conv2d_transpose(x, relax.const(normal(4, 2, 2, 2)), groups=g),
        lambda x, g: R.nn.conv1d(
            R.reshape(x, (2, 4, 100)), relax.const(normal(4, 4 // g, 3)), groups=g
        ),
        lambda x, g: R.nn.conv3d(
            R.reshape(x, (2, 4, 10, 5, 2)), relax.const(normal(4, 4 // g, 2, 2, 2)), groups=g
        ),
    ],
    ids=["conv2d", "transposed", "conv1d", "conv3d"],
)
def test_every_kind_of_convolution_is_quantised(layer, groups):
    mod, x = images(lambda bb, x: bb.normalize(layer(x, groups))), normal(2, 4, 10, 10)
    quantised = Q.quantize(mod, dataset=[x])
    assert count(quantised, "R.qnn.conv") == 1
    assert error(mod, quantised, x) < 0.03


def test_what_is_added_to_small_products_fits_the_integers():
    """A bias that is huge beside the products, in one channel and in all."""
    for weights in (np.full((4, 4, 1, 1), 1e-9), np.geomspace(1e-9, 1, 4).reshape(4, 1, 1, 1)):
        w = np.broadcast_to(weights, (4, 4, 1, 1)).astype("float32")

        def layers(bb, x, w=w):
            y = bb.emit(R.nn.conv2d(x, relax.const(w)))
            y = bb.emit(R.nn.relu(bb.emit(R.add(y, relax.const(np.full((1, 4, 1, 1), 5.0, "f4"))))))
            return R.nn.conv2d(y, relax.const(np.eye(4, dtype="f4").reshape(4, 4, 1, 1)))

        mod, x = images(layers), normal(2, 4, 10, 10)
        assert error(mod, Q.quantize(mod, dataset=[x]), x) < 0.02


# -- what stays in floats --------------------------------------------------------------------------


def test_layers_are_skipped_by_name_place_and_kind():
    mod, x = images(residual), normal(2, 4, 10, 10)
    names = [layer.name for layer in Q.Layers(Q.prepared(mod)["main"]).every]
    assert len(names) == 4

    def integers(**options):
        with Q.qconfig(**options):
            quantised = Q.quantize(mod, dataset=[x])
        assert error(mod, quantised, x) < 0.05
        return count(quantised, "R.qnn.conv2d("), count(quantised, "R.qnn.dense(")

    assert integers(skip_first=True) == (2, 1)
    assert integers(skip_last=True) == (3, 0)
    assert integers(skip_dense_layer=True) == (3, 0)
    assert integers(skip_conv_layers=[0, 2, 9]) == (1, 1)
    assert integers(skip_layers=[names[1], names[3]]) == (2, 0)
    assert integers(skip_layers=names) == (0, 0)
    with pytest.raises(PassError, match=f"no layer is called 'conv'; there are {names[0]}"):
        integers(skip_layers=["conv"])


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (lambda x: R.matmul(x, relax.const(np.full((16, 2), np.inf, "f4"))), "not finite"),
        (lambda x: R.matmul(x, relax.const(normal(16))), "a vector"),
        (lambda x: R.astype(R.matmul(R.astype(x, "float16"), R.astype(relax.const(normal(16, 2)),
                                                                    "float16")), "float32"),
         "not of float32"),
        (lambda x: R.matmul(R.broadcast_to(R.sum(x), (1, 66_000)),
                            relax.const(np.ones((66_000, 2), "f4"))), "sums of 66000 products"),
    ],
    ids=["inf", "vector", "float16", "long"],
)  # fmt: skip
def test_what_integers_cannot_hold_stays_in_floats_and_says_why(layer, reason):
    mod, x = module(lambda bb, x: bb.normalize(layer(x)), x=(3, 16)), normal(3, 16)
    with collected() as report:
        quantised = Q.quantize(mod, dataset=[x])
    assert any(reason in decision.text for decision in report)
    np.testing.assert_array_equal(run(quantised, x), run(mod, x))


def test_a_module_without_layers_is_what_it_was():
    mod, x = module(lambda bb, x: R.nn.softmax(x), x=(3, 16)), normal(3, 16)
    np.testing.assert_array_equal(run(Q.quantize(mod, dataset=[x]), x), run(mod, x))


# -- bad data --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dataset", "message"),
    [
        (None, "it is empty"),
        ([], "it is empty"),
        (7, "wanted several samples"),
        ({"x": normal(4, 16)}, "wanted several samples.*dict"),
        ([{"y": normal(4, 16)}], "sample 0: wanted the inputs x; got y"),
        ([normal(4, 16), (normal(4, 16),) * 2], "sample 1: wanted 1 inputs, x; got 2"),
        ([normal(4, 16), normal(4, 16) * np.nan], "sample 1: x: wanted finite numbers, got nan"),
        ([normal(4, 16) + np.inf], "sample 0: x: wanted finite numbers, got inf"),
        ([np.full((4, 16), 3e38, "f4")], "sample 0: the value .*: wanted finite numbers"),
    ],
)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_bad_data_set_is_an_error_that_says_which_sample(dataset, message):
    with pytest.raises(PassError, match=message):
        Q.quantize(mlp(4), dataset=dataset)


def test_an_input_of_another_shape_is_the_machines_error():
    with pytest.raises(ValueError, match=r"(?s)main.*16") as error:
        Q.quantize(mlp(4), dataset=[normal(4, 16), normal(4, 15)])
    assert any("sample 1" in note for note in error.value.__notes__)


def test_a_data_set_that_fails_half_way_says_where():
    def samples():
        yield normal(4, 16)
        raise OSError("the disk is gone")

    with pytest.raises(OSError, match="the disk is gone") as error:
        Q.quantize(mlp(4), dataset=samples())
    assert error.value.__notes__ == ["in sample 1 of the dataset"]


@pytest.mark.parametrize("params", [{"v": normal(16, 8)}, {"w": normal(16, 9)}, {"w": "weights"}])
def test_parameters_that_do_not_fit_are_named(params):
    mod = module(lambda bb, x, w: R.matmul(x, w), x=(4, 16), w=(16, 8))
    (name,) = params
    with pytest.raises((ValueError, TypeError), match=name):
        Q.quantize(mod, params, [normal(4, 16)])


def test_weights_of_zeros_give_zeros():
    mod = module(lambda bb, x: R.matmul(x, relax.const(np.zeros((16, 8), "f4"))), x=(4, 16))
    x = normal(4, 16)
    np.testing.assert_array_equal(run(Q.quantize(mod, dataset=[x]), x), np.zeros((4, 8)))


@I.ir_module
class Branches:
    @S.function
    def helper(x: S.Tensor((4, 4), "float32"), w: S.Tensor((4, 4), "float32")):
        y = S.matmul(x, w)
        return y

    @S.function
    def loop(x: S.Tensor((4, 4), "float32"), k: S.Tensor((), "int64")) -> S.Tensor(
        (4, 4), "float32"
    ):
        cls = Branches
        more: S.Tensor((), "bool") = S.greater(k, S.const(0, "int64"))
        if more:
            less = S.subtract(k, S.const(1, "int64"))
            y = S.tanh(x)
            r = cls.loop(y, less)
        else:
            r = x
        return r

    @S.function
    def main(
        x: S.Tensor((4, 4), "float32"),
        w: S.Tensor((4, 4), "float32"),
        k: S.Tensor((), "int64"),
    ) -> S.Tensor((4, 4), "float32"):
        cls = Branches
        a = S.matmul(x, w)
        b = cls.loop(a, k)
        more: S.Tensor((), "bool") = S.greater(k, S.const(1, "int64"))
        if more:
            c = S.matmul(b, w)
        else:
            c = cls.helper(b, w)
        d = S.matmul(c, w)
        return d


def test_around_branches_recursion_and_other_functions_layers_are_quantised():
    w, x = normal(4, 4, scale=0.5), normal(4, 4)
    samples = [(x, np.int64(k)) for k in (0, 3)]
    quantised = Q.quantize(Branches, {"w": w}, samples)
    assert count(quantised, "R.qnn.dense(") == 2
    for sample in samples:
        wanted = run(Branches, sample[0], w, sample[1])
        assert np.abs(run(quantised, *sample) - wanted).max() < 0.05 * np.abs(wanted).max()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("value", [0.0, 3.0, -1e-40])
def test_a_constant_input_can_be_calibrated_with(mode, value):
    mod, x = mlp(4), np.full((4, 16), value, "float32")
    with Q.qconfig(calibrate_mode=mode):
        # A histogram of few values says little: what it keeps is only some of them.
        most = 0.7 if mode == "kl_divergence" else 0.05
        assert error(mod, Q.quantize(mod, dataset=[x]), x) < most


def test_other_things_than_modules_are_refused():
    with pytest.raises(PassError, match="wanted an IRModule, got int"):
        Q.quantize(3, dataset=[1])


# -- random models ---------------------------------------------------------------------------------


KINDS = [
    lambda a, b: R.matmul(a, relax.const(normal(8, 8, scale=0.4))),
    lambda a, b: R.matmul(a, relax.const(normal(8, 8, scale=0.4))),
    lambda a, b: R.add(a, b),
    lambda a, b: R.add(a, relax.const(normal(8))),
    lambda a, b: R.nn.relu(a),
    lambda a, b: R.tanh(a),
    lambda a, b: R.concat(
        [R.strided_slice(a, [1], [0], [4]), R.strided_slice(b, [1], [4], [8])], axis=1
    ),
    lambda a, b: R.reshape(R.permute_dims(R.reshape(a, (-1, 2, 4)), [0, 2, 1]), (-1, 8)),
]


def random_model(rng):
    """Layers, sums, moves and functions of [n, 8] in any order."""

    def layers(bb, x):
        values = [x]
        for _ in range(rng.integers(2, 9)):
            a, b = (values[k] for k in rng.integers(0, len(values), 2))
            made = KINDS[rng.integers(0, len(KINDS))](a, b)
            values.append(bb.emit(bb.normalize(made)))
        return R.add(values[-1], values[-2])

    return module(layers, x=(Symbol("n", "int64") if rng.random() < 0.5 else 32, 8))


@pytest.mark.parametrize(
    "seed", [*range(3), *(pytest.param(k, marks=pytest.mark.slow) for k in range(3, 40))]
)
def test_random_models_in_8_bits_are_near_those_of_floats(seed):
    rng = np.random.default_rng(seed)
    mod, x = random_model(rng), rng.standard_normal((32, 8)).astype("float32")
    dtype, symmetric = rng.choice(["int8", "uint8"]), bool(rng.random() < 0.5)
    with Q.qconfig(dtype_input=str(dtype), symmetric=symmetric):
        rounded, quantised = Q.calibrate(mod, [x]), Q.quantize(mod, dataset=[x])
    assert error(mod, quantised, x) < 0.1
    assert error(rounded, quantised, x) < 0.05


def test_ten_thousand_bindings_need_no_deep_stack():
    def layers(bb, x):
        for k in range(5000):
            x = bb.emit(R.nn.relu(x) if k % 50 else R.matmul(x, relax.const(np.eye(4, dtype="f4"))))
            x = bb.emit(R.reshape(x, (2, 4)))
        return x

    mod = Q.prepared(module(layers, x=(2, 4)))
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(400)
    try:
        assert len(Q.Layers(mod["main"]).every) == 100
    finally:
        sys.setrecursionlimit(limit)


# -- what each layer costs -------------------------------------------------------------------------


def test_sensitivity_tells_of_each_layer_alone_and_of_all():
    mod, samples = images(residual), [normal(2, 4, 10, 10) for _ in range(2)]
    report = Q.sensitivity(mod, samples, repeat=1)
    names = [layer.name for layer in Q.Layers(Q.prepared(mod)["main"]).every]
    assert [c.name for c in report] == [*names, "all"]
    assert all(0 < c.error < 0.05 and c.float_us > 0 and c.quantised_us > 0 for c in report)
    assert report["all"] is report[-1] and report[-1].error == pytest.approx(
        np.mean([error(mod, Q.quantize(mod, dataset=samples), x) for x in samples]), rel=1e-3
    )
    assert report.worst() == [max(report[:-1], key=lambda c: c.error).name]
    assert json.loads(report.to_json()) == [
        {**dataclasses.asdict(cost), "gain": cost.gain} for cost in report
    ]
    with pytest.raises(PassError, match=f"no layer is called 'conv'; there are {names[0]}, "):
        report["conv"]
    head, *rows = repr(report).splitlines()
    assert head.split() == ["layer", "operator", "error", "float", "us", "quantised", "us", "gain"]
    assert len(rows) == 5


def test_sensitivity_takes_a_metric_and_obeys_the_configuration():
    mod, x = mlp(4), normal(4, 16)
    with Q.qconfig(skip_first=True):
        report = Q.sensitivity(mod, [x], lambda got, wanted: np.abs(got - wanted).max(), repeat=1)
    assert len(report) == 2 and report[0].error == report[1].error > 0
    with pytest.raises(PassError, match="metric: wanted a function"):
        Q.sensitivity(mod, [x], "accuracy")
    for metric in (lambda *_: float("nan"), lambda *_: None, lambda *_: np.ones(2)):
        with pytest.raises(PassError, match="metric: wanted it to give a finite number"):
            Q.sensitivity(mod, [x], metric)
    with pytest.raises(PassError, match="it is empty"):
        Q.sensitivity(mod, [])
