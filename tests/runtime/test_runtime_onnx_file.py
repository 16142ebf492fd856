"""A model's file that other threads read while the compiler is loaded."""

import _thread
import gc
import os
import subprocess
import sys
import time
import weakref

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


@pytest.mark.parametrize("unseen", [False, True])
@pytest.mark.parametrize("without", ["nothing", "threads", "memfd_create", "maps"])
def test_larger_weights_are_read_apart_from_the_rest(tmp_path, monkeypatch, without, unseen):
    path = tmp_path / "model.onnx"
    weights = made(path, [5000, 3, 20000, 1 << 20])

    def none_left(*args):
        raise RuntimeError("can't start new thread") if without == "threads" else OSError(12)

    if without == "threads":
        monkeypatch.setattr(_thread, "start_new_thread", none_left)
    elif without == "maps":
        monkeypatch.setattr(onnx_file.libc(), "mmap", lambda *args: None)
    elif without == "memfd_create":
        monkeypatch.delattr(os, "memfd_create", raising=False)
    file = OnnxFile(path, unseen=unseen)
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


@pytest.mark.parametrize("unseen", [False, True])
def test_no_file_stays_open_for_weights(tmp_path, unseen):
    """Of a model of 200 weights; a process may have 50 files."""
    made(tmp_path / "model.onnx", [1 << 16] * 200)
    program = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
from relaxvm.runtime import OnnxFile
weights = OnnxFile(sys.argv[1], unseen=bool(sys.argv[2])).weights()
assert len(weights) == 200
import relaxvm.relax, relaxvm.target
open(sys.argv[1]).close()
"""
    pytest.importorskip("resource")
    arguments = [str(tmp_path / "model.onnx"), "yes" if unseen else ""]
    subprocess.run([sys.executable, "-c", program, *arguments], check=True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_has_weights_of_its_own(tmp_path):
    """What users get; what it is built of was packed where the parent's were, too."""
    made(tmp_path / "model.onnx", [1 << 20])
    program = """
import os, sys
from relaxvm.runtime import OnnxFile
weights = OnnxFile(sys.argv[1]).weights()[0].view("float32")
before = weights.copy()
child = os.fork()
if not child:
    weights[:] = 7
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert (weights == before).all()
"""
    subprocess.run([sys.executable, "-c", program, str(tmp_path / "model.onnx")], check=True)


def test_a_file_goes_with_its_weights_when_nobody_needs_it(tmp_path):
    made(tmp_path / "model.onnx", [1 << 20, 50000])
    gc.collect()
    gc.disable()
    try:
        file = OnnxFile(tmp_path / "model.onnx", unseen=True)
        known = [weakref.ref(file), *map(weakref.ref, file.weights().values())]
        assert len(known) == 3
        del file
        # A thread that read may be at its last instruction.
        until = time.monotonic() + 30
        while any(each() is not None for each in known) and time.monotonic() < until:
            time.sleep(0.01)
        assert all(each() is None for each in known)
    finally:
        gc.enable()
