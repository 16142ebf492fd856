"""One kernel, run by relaxvm, numpy, torch and onnxruntime on the same arrays with the same number
of threads.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from relaxvm import relax
from relaxvm.ir import IRModule
from relaxvm.relax.op.meaning import evaluate
from relaxvm.relax.transform import BindParams
from relaxvm.runtime import VirtualMachine, cpu

__all__ = ["RUNS", "Kernel", "Run", "interleaved", "medians", "runner"]

Run = Callable[[], Any]

_REST_SECONDS = 0.1
_WARM_SECONDS = 0.03


@dataclass
class Kernel:
    """An operator on arrays, and what others call the same.

    make      (*variables) -> call, or a module with the function `main`
    arrays    what it is called on
    torch     (functional, *tensors) -> result
    onnx      (operator, attributes, inputs that are added behind the arrays)
    constant  how many of the last arrays are weights, known when the kernel is built
    numpy     (*arrays) -> result; the meaning of the operator if None
    slow_meaning  the meaning is no contestant: too slow to be worth the time
    """

    name: str
    make: Callable[..., Any] | IRModule
    arrays: Sequence[np.ndarray]
    torch: Callable[..., Any] | None = None
    onnx: Any = None
    constant: int = 0
    numpy: Callable[..., Any] | None = None
    slow_meaning: bool = False
    opset: int = 21

    def __str__(self) -> str:
        return self.name

    def call(self) -> tuple[Any, list[Any]]:
        """The call of the operator, and its variables."""
        params = [
            relax.Var(f"x{k}", relax.TensorStructInfo(a.shape, a.dtype.name))
            for k, a in enumerate(self.arrays)
        ]
        return self.make(*params), params  # type: ignore[operator]

    def module(self) -> IRModule:
        """`main`, with the weights bound."""
        if isinstance(self.make, IRModule):
            mod = self.make
        else:
            call, params = self.call()
            builder = relax.BlockBuilder()
            with builder.function("main", params):
                with builder.dataflow():
                    out = builder.emit_output(call)
                builder.emit_func_output(out)
            mod = builder.get()
        if not self.constant:
            return mod
        first = len(self.arrays) - self.constant
        weights = {f"x{k}": self.arrays[k] for k in range(first, len(self.arrays))}
        return BindParams("main", weights)(mod)

    @property
    def inputs(self) -> Sequence[np.ndarray]:
        """The arrays of each call."""
        return self.arrays[: len(self.arrays) - self.constant]


def _relaxvm(kernel: Kernel, threads: int) -> Run:
    executable = relax.build(kernel.module(), target="llvm")
    main = VirtualMachine(executable, cpu(), num_threads=threads)["main"]
    inputs = kernel.inputs
    result = main(*inputs)
    if not hasattr(result, "numpy"):
        return lambda: main(*inputs)
    # numpy, torch and onnxruntime hand out memory that was used before; so do we.
    return lambda: main(*inputs, out=result)


def _numpy(kernel: Kernel, threads: int) -> Run:
    limits = pytest.importorskip("threadpoolctl", reason="sets the number of numpy's threads")
    limits.threadpool_limits(threads)
    if kernel.numpy is not None:
        meaning, arrays = kernel.numpy, kernel.arrays
        return lambda: meaning(*arrays)
    if kernel.slow_meaning:
        pytest.skip("numpy has no such function")
    call, params = kernel.call()
    values = dict(zip(params, kernel.arrays))
    return lambda: evaluate(call, values)


def _torch(kernel: Kernel, threads: int) -> Run:
    torch = pytest.importorskip("torch", reason="compares with torch where it is installed")
    if kernel.torch is None:
        pytest.skip("torch has no such function")
    torch.set_num_threads(threads)
    tensors = [torch.from_numpy(np.asarray(a)) for a in kernel.arrays]
    call = kernel.torch

    def run() -> Any:
        with torch.inference_mode():
            return call(torch.nn.functional, *tensors)

    return run


def _onnxruntime(kernel: Kernel, threads: int) -> Run:
    ort = pytest.importorskip("onnxruntime", reason="compares with it where it is installed")
    onnx = pytest.importorskip("onnx", reason="builds the model for onnxruntime")
    if kernel.onnx is None:
        pytest.skip("ONNX has no such operator")
    helper = onnx.helper
    arrays = {f"x{k}": np.asarray(a) for k, a in enumerate(kernel.arrays)}
    operator, attributes, more = kernel.onnx
    names = [*arrays, *("" if a is None else f"a{k}" for k, a in enumerate(more))]
    added = {f"a{k}": np.asarray(a) for k, a in enumerate(more) if a is not None}
    nodes = [helper.make_node(operator, names, ["y"], **attributes)]
    first = len(kernel.arrays) - kernel.constant
    feeds = {f"x{k}": arrays[f"x{k}"] for k in range(first)}
    infos = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for n, a in feeds.items()
    ]
    known = {n: a for n, a in (arrays | added).items() if n not in feeds}
    weights = [onnx.numpy_helper.from_array(a, n) for n, a in known.items()]
    graph = helper.make_graph(nodes, "one", infos, [onnx.ValueInfoProto(name="y")], weights)
    opsets = [helper.make_opsetid("", kernel.opset)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, feeds)


RUNS = {"relaxvm": _relaxvm, "numpy": _numpy, "torch": _torch, "onnxruntime": _onnxruntime}


def runner(kernel: Kernel, what: str, threads: int = 1) -> Run:
    """A function that runs `kernel` once. Skips where `what` has no such kernel."""
    return RUNS[what](kernel, threads)


@contextlib.contextmanager
def _skips() -> Iterator[None]:
    with contextlib.suppress(pytest.skip.Exception):
        yield


def interleaved(kernel: Kernel, threads: int = 1, seconds: float = 1.0) -> dict[str, float]:
    """Seconds per call of all who can run `kernel`, see `medians`."""
    runs: dict[str, Run] = {}
    for what in RUNS:
        with _skips():
            runs[what] = runner(kernel, what, threads)
    return medians(runs, threads, seconds)


def medians(runs: dict[str, Run], threads: int = 1, seconds: float = 1.0) -> dict[str, float]:
    """Seconds per call: the medians of rounds in which each has its turn, so that what disturbs the
    machine disturbs all.

    seconds  about how long each runs in all
    """
    for run in runs.values():
        run()
    calls = {what: max(1, int(2e-3 / _time(run, 1))) for what, run in runs.items()}
    times: dict[str, list[float]] = {what: [] for what in runs}
    end, rounds = time.perf_counter() + seconds * len(runs), 0
    while time.perf_counter() < end or rounds < 5:
        rounds += 1
        for what, run in runs.items():
            if threads > 1:
                # The threads of the one before may still spin, waiting for more work; then those
                # of this one have to wake up: on a virtual machine a processor that rested takes
                # up to some 20 ms to come back.
                time.sleep(_REST_SECONDS)
                warm = time.perf_counter() + _WARM_SECONDS
                while time.perf_counter() < warm:
                    run()
            times[what].append(_time(run, calls[what]))
    return {what: statistics.median(t) for what, t in times.items()}


def _time(run: Run, calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        run()
    return max(time.perf_counter() - start, 1e-9) / calls
