"""BundleModelParams and LazyTransformParams: weights as one tuple, and weights one by one."""

from __future__ import annotations

import numpy as np
import pytest
from pass_cases import becomes, parse

from relaxvm import relax
from relaxvm.base import PassError
from relaxvm.ir import assert_structural_equal
from relaxvm.relax.analysis import assert_well_formed
from relaxvm.relax.transform import BundleModelParams, LazyTransformParams, LiftTransformParams
from relaxvm.runtime import VirtualMachine

M = 'R.Tensor((4, 4), "float32")'
X, W1, W2 = np.random.default_rng(0).random((3, 4, 4), dtype="float32")
MODEL = f"""
@R.function
def main(x: {M}, w1: {M}, w2: {M}):
    R.func_attr({{"num_input": 1}})
    with R.dataflow():
        t = R.permute_dims(w1)
        y = R.matmul(x, t)
        gv = R.add(y, w2)
        R.output(gv)
    return gv
"""


def test_weights_become_one_tuple():
    bundled = f"""
@R.function
def main(x: {M}, model_params: R.Tuple({M}, {M})):
    R.func_attr({{"num_input": 1}})
    w1 = model_params[0]
    w2 = model_params[1]
    with R.dataflow():
        t = R.permute_dims(w1)
        y = R.matmul(x, t)
        gv = R.add(y, w2)
        R.output(gv)
    return gv
"""
    made = BundleModelParams()(parse(MODEL))
    assert_structural_equal(made, parse(bundled))
    assert made["main"].params[1].name_hint == "model_params"
    named = BundleModelParams("weights")(parse(MODEL))
    assert named["main"].params[1].name_hint == "weights"
    got = VirtualMachine(relax.build(made, "llvm"))["main"](X, (W1, W2))
    np.testing.assert_allclose(got.numpy(), X @ W1.T + W2, rtol=1e-6)


def test_functions_without_weights_stay():
    mod = parse(MODEL.replace('"num_input": 1', '"num_input": 3'))
    assert BundleModelParams()(mod) is mod
    assert LazyTransformParams()(mod) is mod


TRANSFORM = f"""
@R.function
def main_transform_params(params: R.Tuple({M}, {M})):
    with R.dataflow():
        w2 = params[1]
        w1 = params[0]
        t = R.permute_dims(w1)
        gv = (w2, t)
        R.output(gv)
    return gv
"""


def test_weights_are_asked_for_and_results_handed_over():
    becomes(
        lambda mod: mod if not mod["main_transform_params"].params else LazyTransformParams()(mod),
        TRANSFORM,
        f"""
@R.function(pure=False)
def main_transform_params():
    b = R.call_packed("get_item", R.prim_value(1), sinfo_args=(R.Object,))
    b1 = R.match_cast(b, {M})
    w2 = b1
    _ = R.call_packed("set_item", R.prim_value(0), w2, sinfo_args=(R.Object,))
    a = R.call_packed("get_item", R.prim_value(0), sinfo_args=(R.Object,))
    a1 = R.match_cast(a, {M})
    w1 = a1
    t = R.permute_dims(w1)
    _1 = R.call_packed("set_item", R.prim_value(1), t, sinfo_args=(R.Object,))
    gv = (w2, t)
    return R.tuple()
""",
    )


@pytest.mark.parametrize("mode", ["compiled", "bytecode"])
def test_a_lifted_transform_runs_weight_by_weight(mode):
    lifted = LiftTransformParams()(parse(MODEL))
    made = LazyTransformParams(
        fget_item="test.get",
        fset_item="test.set",
        extra_get_item_params=[relax.StringImm("from")],
        extra_set_item_params=[relax.StringImm("to"), relax.PrimValue(7)],
    )(lifted)
    assert_well_formed(made)
    results = {}

    def get(source, k):
        assert source == "from"
        return relax.const((W1, W2)[k]).data

    def put(target, seven, k, value):
        assert (target, seven) == ("to", 7)
        results[k] = value

    functions = {"test.get": get, "test.set": put}
    vm = VirtualMachine(relax.build(made, "llvm"), functions=functions, exec_mode=mode)
    assert vm["main_transform_params"]() == ()
    got = vm["main"](X, results[0], results[1])
    np.testing.assert_allclose(got.numpy(), X @ W1.T + W2, rtol=1e-6)


def test_results_may_be_returned_and_weights_stay_parameters():
    made = LazyTransformParams(fset_item=None)(parse(TRANSFORM))
    assert made["main_transform_params"].params == ()
    functions = {"get_item": lambda k: relax.const((W1, W2)[k]).data}
    vm = VirtualMachine(relax.build(made, "llvm"), functions=functions)
    one, two = vm["main_transform_params"]()
    assert np.array_equal(one.numpy(), W2)
    assert np.array_equal(two.numpy(), W1.T)
    made = LazyTransformParams(fget_item=None)(parse(TRANSFORM))
    (params,) = made["main_transform_params"].params
    assert params.name_hint == "params"
    assert_well_formed(made)


def test_a_wrong_name_is_an_error():
    with pytest.raises(PassError, match="by its name, got 3"):
        LazyTransformParams(fget_item=3)(parse(TRANSFORM))
