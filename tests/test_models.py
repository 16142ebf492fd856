"""The models of bench/models.py, small: built from ONNX, they give what onnxruntime and onnx's own
reference give.
"""

import importlib
import pathlib

import numpy as np
import onnx
import pytest
from onnx.reference import ReferenceEvaluator

from relaxvm import relax
from relaxvm.cli.bench import write_offline_form
from relaxvm.relax.frontend.onnx import from_onnx
from relaxvm.relax.interp import Evaluator
from relaxvm.runtime import VirtualMachine, cpu

BENCH = pathlib.Path(__file__).parents[1] / "bench"


@pytest.fixture(scope="module")
def models():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCH))
        yield importlib.import_module("models")


QUICK = ("lstm_tagger", "gru_tagger", "trees", "digits_mlp", "digits_convnet")
SLOW = (
    *("resnet50", "mobilenet_v2", "inception", "vgg", "bert_base", "minilm_6", "gpt2_decode"),
    *("llama_decode", "lstm", "unet", "bert_base_dynamic", "resnet50_int8", "mobilenet_v3"),
    *("efficientnet_b0", "yolov8n_nms", "vit_b16", "gpt2_prefill", "whisper_tiny_encoder"),
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


def given_by_onnxruntime(proto, inputs):
    ort = pytest.importorskip("onnxruntime", reason="compares with it where it is installed")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    return ort.InferenceSession(proto.SerializeToString(), options).run(None, inputs)


@pytest.mark.parametrize(
    "name", [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)]
)
def test_a_model_gives_what_onnxruntime_and_the_reference_give_in_both_ways_of_running(
    models, name
):
    proto = models.model(name, "small")
    onnx.checker.check_model(proto, full_check=True)
    inputs = inputs_of(proto, np.random.default_rng(0))
    executable = relax.build(from_onnx(proto), "llvm")
    results = []
    for mode in ("compiled", "bytecode"):
        got = VirtualMachine(executable, cpu(), exec_mode=mode)["main"](*inputs.values())
        flat = got if isinstance(got, tuple) else (got,)
        results.append([value.numpy() for value in flat])
    for other in (given_by_onnxruntime, lambda p, i: ReferenceEvaluator(p).run(None, i)):
        for k, wanted in enumerate(other(proto, inputs)):
            assert wanted.size
            # In 8 bits a value on the border between two steps may take either.
            atol = (0.1 if "int8" in name else 1e-4) * float(np.abs(wanted).max())
            for values in results:
                np.testing.assert_allclose(values[k], wanted, rtol=0, atol=atol)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["session", "transformers"])
@pytest.mark.parametrize("name", [*QUICK, *SLOW])
def test_what_onnxruntime_made_of_a_model_gives_the_same(models, name, how, tmp_path):
    ort = pytest.importorskip("onnxruntime", reason="its optimisers write the models")
    path, better = str(tmp_path / "model.onnx"), str(tmp_path / "better.onnx")
    proto = models.model(name, "small")
    onnx.save(proto, path)
    if how == "session":
        options = ort.SessionOptions()
        options.log_severity_level = 4
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED
        options.optimized_model_filepath = better
        ort.InferenceSession(path, options)
    else:
        write_offline_form(path, better)
    inputs = inputs_of(proto, np.random.default_rng(0))
    got = Evaluator(from_onnx(better))("main", *inputs.values())
    flat = got if isinstance(got, (tuple, list)) else (got,)
    for value, wanted in zip(flat, given_by_onnxruntime(proto, inputs)):
        atol = (0.1 if "int8" in name else 1e-4) * float(np.abs(wanted).max())
        np.testing.assert_allclose(value, wanted, rtol=0, atol=atol)
