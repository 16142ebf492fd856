"""Import, parse, build, load and whole-model time of the first milestone.

    make bench

Targets (ratios in one run; not tests): loading the digits program with native code under 20 ms
after import; building it under 0.5 s. What calls cost is in `bench_vm.py`.
"""

import pathlib
import subprocess
import sys

import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.script import from_source


@pytest.fixture(scope="module", autouse=True)
def _environment_functions():
    @tvm.register_func("env.relu", override=True)
    def relu(x, out):
        np.maximum(x.numpy(), 0, out=out.numpy())

    @tvm.register_func("env.linear", override=True)
    def linear(x, w, b, out):
        np.matmul(x.numpy(), w.numpy().T, out=out.numpy())
        out.numpy()[...] += b.numpy()


def build(digits):
    module, params, _ = digits
    return relax.build(relax.transform.BindParams("main", params)(module), target="llvm")


@pytest.mark.benchmark(group="import (a whole process)")
@pytest.mark.parametrize(
    "statement", ["pass", "import relaxvm", "import numpy", "import relaxvm.runtime"]
)
def bench_import(benchmark, statement):
    benchmark.pedantic(
        lambda: subprocess.run([sys.executable, "-c", statement], check=True),
        rounds=7,
        warmup_rounds=1,
    )


@pytest.mark.benchmark(group="digits: parse, build, load")
def bench_parse(benchmark, digits):
    text = digits[0].script()
    benchmark(lambda: from_source(text))


@pytest.mark.benchmark(group="digits: parse, build, load")
def bench_build(benchmark, digits):
    benchmark.pedantic(lambda: build(digits), rounds=7, warmup_rounds=1)


@pytest.mark.benchmark(group="digits: parse, build, load")
def bench_load_native(benchmark, digits, tmp_path):
    path = str(tmp_path / "digits.rvm")
    build(digits).export_library(path)

    def load():
        return relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu())["main"]

    assert relax.VirtualMachine(tvm.runtime.load_module(path), tvm.cpu()).kernel_source == "native"
    benchmark.pedantic(load, rounds=20, warmup_rounds=2)


def onnxruntime_session(params, threads=1):
    """The same network as an onnx model, or None where onnxruntime is not installed."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    h, np_helper = onnx.helper, onnx.numpy_helper
    nodes = [
        h.make_node("Gemm", ["x", "w0", "b0"], ["h"], transB=1),
        h.make_node("Relu", ["h"], ["r"]),
        h.make_node("Gemm", ["r", "w1", "b1"], ["y"], transB=1),
    ]
    graph = h.make_graph(
        nodes,
        "digits",
        [h.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [1, 64])],
        [h.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [1, 10])],
        [np_helper.from_array(v, k) for k, v in params.items()],
    )
    model = h.make_model(graph, opset_imports=[h.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


@pytest.mark.benchmark(group="digits: one image")
@pytest.mark.parametrize("what", ["relaxvm", "numpy", "onnxruntime"])
def bench_image(benchmark, digits, what):
    _, p, images = digits
    x = images[:1]
    reference = np.maximum(x @ p["w0"].T + p["b0"], 0) @ p["w1"].T + p["b1"]
    if what == "relaxvm":
        main = relax.VirtualMachine(build(digits), tvm.cpu())["main"]
        np.testing.assert_allclose(main(x).numpy(), reference, rtol=1e-4, atol=1e-5)
        benchmark(lambda: main(x))
    elif what == "numpy":
        w0, w1 = np.ascontiguousarray(p["w0"].T), np.ascontiguousarray(p["w1"].T)
        benchmark(lambda: np.maximum(x @ w0 + p["b0"], 0) @ w1 + p["b1"])
    else:
        session = onnxruntime_session(p)
        np.testing.assert_allclose(session.run(None, {"x": x})[0], reference, rtol=1e-4, atol=1e-5)
        benchmark(lambda: session.run(None, {"x": x}))


if __name__ == "__main__":
    sys.exit(pytest.main([str(pathlib.Path(__file__)), "--benchmark-only"]))
