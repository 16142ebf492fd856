"""`relay.quantize`, as its tutorials have it."""

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relay
from relaxvm.base import PassError
from relaxvm.relax.interp import Evaluator

RNG = np.random.default_rng(0)
W = [RNG.standard_normal((4, 4, 3, 3)).astype("float32") * 0.3 for _ in range(2)]


def model():
    x = relay.var("data", shape=(1, 4, 8, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, relay.var("w0", shape=W[0].shape), padding=(1, 1)))
    y = relay.nn.relu(relay.nn.conv2d(y, relay.var("w1", shape=W[1].shape), padding=(1, 1)))
    y = relay.nn.dense(relay.nn.batch_flatten(y), relay.const(np.ones((3, 256), "float32")))
    return tvm.IRModule.from_expr(relay.Function(relay.analysis.free_vars(y), y))


PARAMS = {"w0": W[0], "w1": W[1]}
SAMPLES = [{"data": RNG.standard_normal((1, 4, 8, 8)).astype("float32")} for _ in range(2)]


KL = {"calibrate_mode": "kl_divergence", "weight_scale": "max"}


@pytest.mark.parametrize("options", [{}, KL])
def test_the_first_convolution_and_products_stay_in_floats_by_default(options):
    with relay.quantize.qconfig(**options):
        mod = relay.quantize.quantize(model(), PARAMS, dataset=SAMPLES)
    text = mod.script()
    assert (text.count("R.qnn.conv2d("), text.count("R.qnn.dense(")) == (1, 0)
    got = Evaluator(mod)("main", SAMPLES[0]["data"])
    wanted = Evaluator(relay.quantize.prerequisite_optimize(model(), PARAMS))(
        "main", SAMPLES[0]["data"]
    )
    assert np.abs(got - wanted).max() < 0.1 * np.abs(wanted).max()


def test_without_a_configuration_its_defaults_hold():
    assert relay.quantize.current_qconfig().skip_dense_layer
    mod = relay.quantize.quantize(model(), PARAMS)
    assert mod.script().count("R.qnn.conv2d(") == 1
    with relay.quantize.qconfig(skip_conv_layers=None, skip_dense_layer=False, nbit_input=8):
        mod = relay.quantize.quantize(model(), PARAMS)
    assert (mod.script().count("R.qnn.conv2d("), mod.script().count("R.qnn.dense(")) == (2, 1)


def test_what_is_not_offered_is_named():
    with pytest.raises(PassError, match="qconfig: nbit_input: only 8; got 4"):
        relay.quantize.qconfig(nbit_input=4)
    with pytest.raises(PassError, match="unknown option 'bits'"):
        relay.quantize.qconfig(bits=8)


def test_what_tutorials_write():
    tvm_data = ({"data": tvm.nd.array(s["data"])} for s in SAMPLES)
    with tvm.transform.PassContext(opt_level=3):
        with relay.quantize.qconfig(global_scale=8.0, skip_conv_layers=[0]):
            assert relay.quantize.current_qconfig().skip_conv_layers == [0]
            scaled = relay.quantize.quantize(model(), params=PARAMS)
        with relay.quantize.qconfig(calibrate_mode="kl_divergence", weight_scale="max"):
            counted = relay.quantize.quantize(model(), PARAMS, dataset=tvm_data)
    for mod in (scaled, counted):
        lib = relay.build(mod, target="llvm")
        machine = tvm.contrib.graph_executor.GraphModule(lib["default"](tvm.cpu(0)))
        machine.set_input("data", SAMPLES[0]["data"])
        machine.run()
        wanted = Evaluator(mod)("main", SAMPLES[0]["data"])
        np.testing.assert_allclose(machine.get_output(0).numpy(), wanted, rtol=1e-5)


def test_quantising_in_two_steps_is_quantising():
    with relay.quantize.qconfig(**KL):
        steps = tvm.transform.Sequential(
            [relay.quantize.calibrate(SAMPLES), relay.quantize.realize()]
        )
        parts = steps(relay.quantize.prerequisite_optimize(model(), PARAMS))
        whole = relay.quantize.quantize(model(), PARAMS, SAMPLES)
    tvm.ir.assert_structural_equal(parts, whole)
