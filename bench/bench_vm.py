"""What a call costs: the boundary, the dispatch, Python functions, a small network, loading.

    make bench

Every figure stands beside onnxruntime, numpy and torch in the same run; the table at the end
(`figures.py`) says which targets are met.
"""

import pathlib
import re
import subprocess
import sys

import figures
import numpy as np
import pytest

import relaxvm as tvm
from relaxvm import relax
from relaxvm.runtime import VirtualMachine
from relaxvm.script import from_source

CALLS, CHAIN = figures.CALLS, 100


def vm_of(source, exec_mode="compiled", functions=None):
    """A VM for a module's text, one thread, kernels left as they are."""
    executable = relax.build(from_source(source), target="llvm", exec_mode=exec_mode)
    return VirtualMachine(executable, exec_mode=exec_mode, functions=functions, num_threads=1)


def onnx_session(nodes, inputs, outputs, constants):
    """An onnxruntime session of one thread; skips where it is not installed."""
    ort = pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    onnx = pytest.importorskip("onnx", reason="onnx is not installed")
    helper = onnx.helper

    def values(shapes):
        return [
            helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape)
            for name, shape in shapes.items()
        ]

    weights = [onnx.numpy_helper.from_array(v, k) for k, v in constants.items()]
    made = [helper.make_node(*node[:3], **node[3]) for node in nodes]
    graph = helper.make_graph(made, "bench", values(inputs), values(outputs), weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


# x + 1 on four floats

ADD_ONE = """
@I.ir_module
class M:
    @T.prim_func
    def add_one(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        T.func_attr({"tir.noalias": True})
        for i in T.vectorized(4):
            B[i] = A[i] + T.float32(1)

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> R.Tensor((4,), "float32"):
        with R.dataflow():
            y = R.call_tir(M.add_one, (x,), R.Tensor((4,), "float32"))
            R.output(y)
        return y
"""


@pytest.mark.benchmark(group=f"x + 1 on four floats, {CALLS} calls")
@pytest.mark.parametrize(
    "what",
    ["relaxvm", "relaxvm out=", "relaxvm, ndarray", "bytecode", "onnxruntime", "numpy", "torch"],
)
def bench_add_one(benchmark, what):
    x = np.arange(4, dtype="float32")
    if what == "onnxruntime":
        session = onnx_session(
            [("Add", ["x", "one"], ["y"], {})], {"x": [4]}, {"y": [4]}, {"one": np.ones(1, "f4")}
        )
        feeds = {"x": x}
        benchmark(figures.many(lambda given: session.run(None, given), feeds))
    elif what == "numpy":
        benchmark(figures.many(lambda given: given + 1, x))
    elif what == "torch":
        torch = pytest.importorskip("torch")
        torch.set_num_threads(1)
        benchmark(figures.many(lambda given: given + 1, torch.from_numpy(x)))
    else:
        main = vm_of(ADD_ONE, "bytecode" if what == "bytecode" else "compiled")["main"]
        given = x if what == "relaxvm, ndarray" else tvm.nd.array(x)
        assert main(given).tolist() == [1, 2, 3, 4]
        if what == "relaxvm out=":
            out = tvm.nd.empty((4,))
            assert main(given, out=out) is out
            benchmark(figures.many(main, given, out=out))
        else:
            benchmark(figures.many(main, given))
    figures.record(benchmark, f"x+1, {what}", CALLS)


# A chain of unfused kernels, and of Python functions


STRANDS = 4


def chain(callee, strands=1):
    """main(x): `CHAIN` calls of `callee` (a kernel or an extern) on four floats, one after
    another; in so many strands, whose results are added.
    """
    out = 'R.Tensor((4,), "float32")'
    call = "R.call_tir(M.step" if callee == "step" else f'R.call_dps_packed("{callee}"'
    names = ["x"] * strands + [f"y{i + 1}" for i in range(CHAIN)]
    steps = [f"{y} = {call}, ({x},), {out})" for x, y in zip(names, names[strands:])]
    given = names[-strands:]
    if strands > 1:
        steps.append(f"y = R.call_tir(M.join, ({', '.join(given)}), {out})")
    params = "".join(f'A{k}: T.Buffer((4,), "float32"), ' for k in range(strands))
    lines = "\n".join(f"            {step}" for step in steps)
    last = steps[-1].split(" ", 1)[0]
    return f"""
@I.ir_module
class M:
    @T.prim_func
    def step(A: T.Buffer((4,), "float32"), B: T.Buffer((4,), "float32")):
        # Opaque: nothing may fuse it with its neighbours.
        T.func_attr({{"tir.noalias": True, "op_pattern": 8}})
        for i in T.vectorized(4):
            B[i] = A[i] + T.float32(1)

    @T.prim_func
    def join({params}B: T.Buffer((4,), "float32")):
        T.func_attr({{"tir.noalias": True, "op_pattern": 8}})
        for i in T.vectorized(4):
            B[i] = {" + ".join(f"A{k}[i]" for k in range(strands))}

    @R.function
    def main(x: R.Tensor((4,), "float32")) -> {out}:
        with R.dataflow():
{lines}
            R.output({last})
        return {last}
"""


@pytest.mark.benchmark(group=f"a chain of {CHAIN} four-element kernels")
@pytest.mark.parametrize("mode", ["compiled", "bytecode"])
@pytest.mark.parametrize("strands", [1, STRANDS])
def bench_chain(benchmark, mode, strands):
    """One strand shows how long a kernel waits for what the one before has stored (with nothing
    in between, this takes 3.2 ns on a Zen 4); several show what a call costs.
    """
    vm = vm_of(chain("step", strands), mode)
    assert len(re.findall(r"call +step", vm.executable.as_text())) == CHAIN
    main, x = vm["main"], tvm.nd.array(np.zeros(4, "float32"))
    assert main(x).tolist() == [CHAIN] * 4
    benchmark(main, x)
    figures.record(benchmark, f"chain, {mode}" + (", strands" if strands > 1 else ""), CHAIN)


def do_nothing(x, out):
    """What an extern costs by itself."""


@pytest.mark.benchmark(group=f"{CHAIN} calls of a Python function")
@pytest.mark.parametrize("what", ["relaxvm", "bytecode", "direct"])
def bench_env(benchmark, what):
    x = tvm.nd.array(np.zeros(4, "float32"))
    if what == "direct":

        def direct():
            for _ in range(CHAIN):
                do_nothing(x, x)

        benchmark(direct)
    else:
        mode = "bytecode" if what == "bytecode" else "compiled"
        main = vm_of(chain("env.nothing"), mode, {"env.nothing": do_nothing})["main"]
        benchmark(main, x)
    figures.record(benchmark, f"env, {what}", CHAIN)


# The seed MLP: 1 x 784 -> 128 -> 10


def linear(name, inputs, outputs, rows, lanes):
    """A loop function y = x w^T + b that reads `rows` rows of w at once, `lanes` numbers of each.

    The sums stay in vector registers, so that the weights stream at the speed of the cache.
    """
    halves, width = [], lanes
    while width > 4:
        width //= 2
        halves.append(
            f"                for v in T.vectorized({width}):\n"
            f"                    acc[r, v] = acc[r, v] + acc[r, v + {width}]\n"
        )
    return f"""
    @T.prim_func
    def {name}(
        x: T.Buffer((1, {inputs}), "float32"),
        w: T.Buffer(({outputs}, {inputs}), "float32"),
        b: T.Buffer(({outputs},), "float32"),
        y: T.Buffer((1, {outputs}), "float32"),
    ):
        T.func_attr({{"tir.noalias": True}})
        acc = T.alloc_buffer(({rows}, {lanes}), "float32", scope="local")
        for j in range({outputs // rows}):
            for r in T.unroll({rows}):
                for v in T.vectorized({lanes}):
                    acc[r, v] = T.float32(0)
            for k in range({inputs // lanes}):
                for r in T.unroll({rows}):
                    for v in T.vectorized({lanes}):
                        acc[r, v] = (
                            acc[r, v] + x[0, k * {lanes} + v] * w[j * {rows} + r, k * {lanes} + v]
                        )
            for r in T.unroll({rows}):
{"".join(halves)}                y[0, j * {rows} + r] = b[j * {rows} + r] + (
                    (acc[r, 0] + acc[r, 1]) + (acc[r, 2] + acc[r, 3])
                )
"""


def mlp():
    """The network as three loop functions, each a call of its own."""
    return f"""
@I.ir_module
class M:
{linear("linear0", 784, 128, 4, 16)}
    @T.prim_func
    def relu(x: T.Buffer((1, 128), "float32"), y: T.Buffer((1, 128), "float32")):
        T.func_attr({{"tir.noalias": True}})
        for i in range(8):
            for v in T.vectorized(16):
                y[0, i * 16 + v] = T.max(x[0, i * 16 + v], T.float32(0))
{linear("linear1", 128, 10, 5, 16)}
    @R.function
    def main(
        x: R.Tensor((1, 784), "float32"),
        w0: R.Tensor((128, 784), "float32"), b0: R.Tensor((128,), "float32"),
        w1: R.Tensor((10, 128), "float32"), b1: R.Tensor((10,), "float32"),
    ) -> R.Tensor((1, 10), "float32"):
        with R.dataflow():
            h = R.call_tir(M.linear0, (x, w0, b0), R.Tensor((1, 128), "float32"))
            r = R.call_tir(M.relu, (h,), R.Tensor((1, 128), "float32"))
            y = R.call_tir(M.linear1, (r, w1, b1), R.Tensor((1, 10), "float32"))
            R.output(y)
        return y
"""


@pytest.fixture(scope="module")
def weights():
    rng = np.random.default_rng(0)
    shapes = {"w0": (128, 784), "b0": (128,), "w1": (10, 128), "b1": (10,)}
    return {name: rng.standard_normal(shape).astype("float32") for name, shape in shapes.items()}


@pytest.mark.benchmark(group="the seed MLP, one image")
@pytest.mark.parametrize("what", ["relaxvm", "bytecode", "onnxruntime", "numpy", "torch"])
def bench_mlp(benchmark, weights, what):
    x = np.random.default_rng(1).random((1, 784), dtype="float32")
    w0, b0, w1, b1 = weights.values()
    reference = np.maximum(x @ w0.T + b0, 0) @ w1.T + b1
    if what == "onnxruntime":
        nodes = [
            ("Gemm", ["x", "w0", "b0"], ["h"], {"transB": 1}),
            ("Relu", ["h"], ["r"], {}),
            ("Gemm", ["r", "w1", "b1"], ["y"], {"transB": 1}),
        ]
        session = onnx_session(nodes, {"x": [1, 784]}, {"y": [1, 10]}, weights)
        run = lambda given: session.run(None, {"x": given})[0]  # noqa: E731
    elif what == "numpy":
        t0, t1 = np.ascontiguousarray(w0.T), np.ascontiguousarray(w1.T)
        run = lambda given: np.maximum(given @ t0 + b0, 0) @ t1 + b1  # noqa: E731
    elif what == "torch":
        torch = pytest.importorskip("torch")
        torch.set_num_threads(1)
        tensors = [torch.from_numpy(v) for v in weights.values()]
        functional, given = torch.nn.functional, torch.from_numpy(x)

        def run(_):
            with torch.inference_mode():
                hidden = functional.relu(functional.linear(given, *tensors[:2]))
                return functional.linear(hidden, *tensors[2:]).numpy()
    else:
        mode = "bytecode" if what == "bytecode" else "compiled"
        bound = relax.transform.BindParams("main", weights)(from_source(mlp()))
        executable = relax.build(bound, target="llvm", exec_mode=mode)
        assert len(re.findall(r"call +linear", executable.as_text())) == 2
        run = VirtualMachine(executable, exec_mode=mode, num_threads=1)["main"]
    np.testing.assert_allclose(np.asarray(run(x)), reference, rtol=1e-3, atol=1e-3)
    benchmark(run, x)
    figures.record(benchmark, f"mlp, {what}")


# Loading in a fresh process

LOAD = """
import sys, time
import numpy as np
from relaxvm.runtime import VirtualMachine
path, warm = sys.argv[1], sys.argv[2]
if warm == "warm":
    import llvmlite.binding
def relu(x, out):
    np.maximum(x.numpy(), 0, out=out.numpy())
def linear(x, w, b, out):
    np.matmul(x.numpy(), w.numpy().T, out=out.numpy())
x = np.ones((1, 64), "float32")
began = time.perf_counter()
vm = VirtualMachine(path, functions={"env.relu": relu, "env.linear": linear})
result = vm["main"](x)
print(time.perf_counter() - began, result.shape)
"""


@pytest.mark.benchmark(group="load the digits program and call it (a whole process)")
@pytest.mark.parametrize("what", ["warm", "cold"])
def bench_load(benchmark, digits, tmp_path, what):
    module, params, _ = digits
    path = tmp_path / "digits.rvm"
    bound = relax.transform.BindParams("main", params)(module)
    relax.build(bound, target="llvm").export_library(path)
    seconds = []

    def process():
        command = [sys.executable, "-c", LOAD, str(path), what]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        seconds.append(float(done.stdout.split()[0]))

    benchmark.pedantic(process, rounds=9, warmup_rounds=1)
    # Each process gives one number, which another process may have spoilt: the best counts.
    figures.record_seconds(f"load, {what}", min(seconds))


if __name__ == "__main__":
    sys.exit(pytest.main([str(pathlib.Path(__file__)), "--benchmark-only"]))
