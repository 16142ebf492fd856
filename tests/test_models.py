"""The models of bench/models.py, small: built from ONNX, they give what onnxruntime gives."""

import importlib
import pathlib

import numpy as np
import onnx
import pytest

import relaxvm

BENCH = pathlib.Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def models():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("models")


QUICK = ("lstm_tagger", "gru_tagger", "trees", "digits_mlp", "digits_convnet")
SLOW = (
    *("resnet50", "mobilenet_v2", "inception", "vgg", "bert_base", "sentence_encoder"),
    *("gpt2_decode", "llama_decode", "lstm", "unet", "bert_base_dynamic", "resnet50_int8"),
)


def inputs_of(proto, rng):
    sizes = {"n": 3, "s": 5, "length": 4, "past": 5}
    inputs = {}
    for info in proto.graph.input:
        tensor = info.type.tensor_type
        shape = [d.dim_value or int(sizes.get(d.dim_param, 5)) for d in tensor.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        whole = dtype.kind == "i"
        values = rng.integers(0, 5, shape) if whole else rng.standard_normal(shape)
        inputs[info.name] = values.astype(dtype)
    return inputs


def test_every_model_is_tested(models):
    assert {*QUICK, *SLOW} == set(models.MODELS)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_model_gives_what_onnxruntime_gives(models, name):
    ort = pytest.importorskip("onnxruntime", reason="compares with it where it is installed")
    proto = models.model(name, "small")
    onnx.checker.check_model(proto, full_check=True)
    inputs = inputs_of(proto, np.random.default_rng(0))
    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(proto.SerializeToString(), options)
    wanted = session.run(None, inputs)
    program = relaxvm.load(proto, exec_mode="bytecode")
    got = program["main"](*inputs.values())
    for a, b in zip(wanted, got if isinstance(got, tuple) else (got,)):
        # In 8 bits a value on the border between two steps may take either.
        atol = (0.1 if "int8" in name else 1e-4) * float(np.abs(a).max())
        np.testing.assert_allclose(b.numpy(), a, rtol=1e-3, atol=atol)
