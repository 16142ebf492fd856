"""The models of `relay.testing`, as text and through both executors."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax, relay
from relaxvm.contrib import graph_executor
from relaxvm.relay import testing

SMALL = {"num_classes": 10, "image_shape": (3, 32, 32)}
MODELS = {
    "mlp": lambda: testing.mlp.get_workload(1),
    "dcgan": lambda: testing.dcgan.get_workload(1, ngf=8),
    "lstm": lambda: testing.lstm.get_workload(iterations=3, num_hidden=16),
    "dqn": lambda: testing.dqn.get_workload(1, image_shape=(4, 84, 84)),
    "mobilenet": lambda: testing.mobilenet.get_workload(1, **SMALL),
    "mobilenet NHWC": lambda: testing.mobilenet.get_workload(
        1, 10, image_shape=(32, 32, 3), layout="NHWC"
    ),
    "resnet-20": lambda: testing.resnet.get_workload(num_layers=20, **SMALL),
    "resnet-18": lambda: testing.resnet.get_workload(num_layers=18, image_shape=(3, 64, 64)),
    "resnet-50": lambda: testing.resnet.get_workload(num_layers=50, image_shape=(3, 64, 64)),
    "squeezenet": lambda: testing.squeezenet.get_workload(1, 10, image_shape=(3, 64, 64)),
    "vgg-11": lambda: testing.vgg.get_workload(1, num_layers=11, **SMALL),
    "inception v3": lambda: testing.inception_v3.get_workload(1, 10, image_shape=(3, 75, 75)),
    "densenet": lambda: testing.densenet.get_workload(121, 10, 1),
}


@functools.cache
def workload(name):
    return MODELS[name]()


QUICK = ("mlp", "lstm", "dcgan", "dqn", "mobilenet", "squeezenet")
BUILT = ("mlp", "lstm")


def but(quick):
    """All models; those that take long under `slow`."""
    return [n if n in quick else pytest.param(n, marks=pytest.mark.slow) for n in MODELS]


@pytest.mark.parametrize("name", but(QUICK))
def test_a_model_returns_from_its_text(name):
    mod, _ = workload(name)
    text = mod.astext()
    again = relay.parse(text)
    tvm.ir.assert_structural_equal(again, mod)
    assert again.astext() == text
    assert "relax." not in text


# All but densenet, whose 121 layers are built for minutes.
@pytest.mark.parametrize(
    "name", [p for p in but(BUILT) if getattr(p, "values", p) != ("densenet",)]
)
def test_the_graph_executor_gives_what_the_virtual_machine_gives_to_the_bit(name):
    mod, params = workload(name)
    lib = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tvm.cpu()))
    rng = np.random.default_rng(0)
    data = {
        p.name_hint: rng.standard_normal([int(d) for d in p.struct_info.dims]).astype("float32")
        for p in mod["main"].params
        if p.name_hint not in params
    }
    module.run(**data)
    bound = relay.build_module.bind_params_by_name(mod["main"], params)
    vm = relax.VirtualMachine(relax.build(tvm.IRModule.from_expr(bound), "llvm"), tvm.cpu())
    result = vm["main"](*data.values())
    fields = result if isinstance(result, (tuple, list)) else [result]
    assert module.get_num_outputs() == len(fields)
    for i, field in enumerate(fields):
        assert np.isfinite(field.numpy()).all()
        assert np.array_equal(module.get_output(i).numpy(), field.numpy())
