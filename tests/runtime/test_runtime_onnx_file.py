"""A model's file that other threads read while the compiler is loaded."""

import _thread
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from relaxvm.runtime import onnx_file
from relaxvm.runtime.onnx_file import OnnxFile


def made(path, sizes):
    """A model with weights of these sizes, which is written to `path`; and the weights."""
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal(n).astype("float32") for n in sizes]
    graph = helper.make_graph(
        [],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])],
        [],
        [numpy_helper.from_array(w, f"w{k}") for k, w in enumerate(weights)],
    )
    onnx.save(helper.make_model(graph), path)
    return weights


@pytest.mark.parametrize("without", ["nothing", "threads", "memfd_create", "maps"])
def test_larger_weights_are_read_apart_from_the_rest(tmp_path, monkeypatch, without):
    path = tmp_path / "model.onnx"
    weights = made(path, [5000, 3, 20000, 1 << 20])

    def none_left(*args):
        raise RuntimeError("can't start new thread") if without == "threads" else OSError(12)

    if without == "threads":
        monkeypatch.setattr(_thread, "start_new_thread", none_left)
    elif without == "maps":
        monkeypatch.setattr(onnx_file, "Pages", none_left)
    elif without == "memfd_create":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    file = OnnxFile(path)
    data, read = file.graph, file.weights()
    assert len(data) < 1000
    assert sorted(read) == [0, 2, 3]
    for number, values in read.items():
        assert (values.view("float32") == weights[number]).all()
    left = onnx.load_from_string(data).graph.initializer
    assert (numpy_helper.to_array(left[1]) == weights[1]).all()
    assert [len(t.raw_data) for t in left] == [0, 12, 0, 0]


def test_what_cannot_be_read_is_told(tmp_path, monkeypatch):
    with pytest.raises(FileNotFoundError):
        OnnxFile(tmp_path / "missing.onnx")
    path = tmp_path / "model.onnx"
    made(path, [50000])
    found = onnx_file.without_weights

    def and_cut(read, size):
        answer = found(read, size)
        with open(path, "r+b") as file:
            file.truncate(1000)
        return answer

    monkeypatch.setattr(onnx_file, "without_weights", and_cut)
    cut = OnnxFile(path)
    for _ in range(2):
        with pytest.raises(OSError, match="shrank"):
            cut.weights()
