"""`relaxvm bench`: how fast a model is, alone or beside others, in turns."""

from __future__ import annotations

import argparse
import concurrent.futures
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..base import Deferred, LoadError
from ..runtime import VirtualMachine, cpu, usable_cores
from .console import Console
from .inputs import add_input_options, inputs_of, plain
from .models import add_build_options, add_model, opened

if TYPE_CHECKING:
    from .. import program_cache
else:
    # The other commands do without it.
    program_cache = Deferred("relaxvm.program_cache")

HELP = "measure a model, alone or beside other runtimes"
EXAMPLES = """
    relaxvm bench model.onnx
    relaxvm bench model.onnx --beside onnxruntime --threads 1,2 --seconds 10
    relaxvm bench model.rvm --hint throughput --requests 4
    relaxvm bench bert.onnx --shape ids=1x128 --beside onnxruntime,onnxruntime-offline,openvino
"""
_NOISY = 1.5
_ROUND_SECONDS = 2e-3
# Between two who use several threads: those of the one before still spin, those of the next sleep.
_REST_SECONDS, _WARM_SECONDS = 0.1, 0.03
_PERCENTILES = (50, 90, 99)

Run = Callable[[], Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    add_model(parser)
    add_input_options(parser)
    parser.add_argument("--threads", default="1", metavar="1,2", help="numbers of threads; 1")
    parser.add_argument("--seconds", type=float, default=5.0, help="for each who runs; 5")
    parser.add_argument(
        "--beside", default="", metavar="NAMES", help=f"others to measure: {', '.join(PEERS)}"
    )
    parser.add_argument(
        "--hint", choices=["latency", "throughput"], default="latency",
        help="latency: one request at a time, all threads for it; throughput: several at a time, a "
        "thread for each",
    )  # fmt: skip
    parser.add_argument(
        "--requests", type=int, metavar="N", help="how many at a time; with throughput: as threads"
    )
    add_build_options(parser)


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Measure, show a table for each number of threads."""
    counts = _numbers(arguments.threads)
    others = [name for name in arguments.beside.split(",") if name]
    for name in others:
        if name not in PEERS:
            raise LoadError(f"--beside: wanted some of {', '.join(PEERS)}, got {name!r}")
    if arguments.requests is not None and not 1 <= arguments.requests <= 1024:
        raise LoadError(f"--requests: wanted 1 to 1024, got {arguments.requests}")
    if not 0 < arguments.seconds < 1e6:
        raise LoadError(f"--seconds: wanted a time, got {arguments.seconds}")
    model = opened(arguments, console)
    if others and not model.is_onnx:
        raise LoadError(f"--beside {others[0]}: it runs ONNX models; {arguments.model} is none")
    program = model.program(arguments, console)
    # Nothing else shall be at work.
    program_cache.settle()
    inputs = inputs_of(arguments, program, console, model.shapes)
    results: list[dict[str, Any]] = []
    left_out: dict[str, str] = {}
    for count in counts:
        throughput = arguments.hint == "throughput"
        each = 1 if throughput else count
        requests = arguments.requests or (count if throughput else 1)
        values = [plain(v) for v in inputs.values()]
        runs: dict[str, Run] = {"relaxvm": ours(program, tuple(inputs.values()), each)}
        for name in others:
            if name in left_out:
                continue
            try:
                with console.stage(f"{name} loads"):
                    call = PEERS[name](model.path, values, each)
                    call()
                runs[name] = call
            except LoadError:
                raise
            except Exception as error:  # what another runtime cannot do it says in its own way
                left_out[name] = f"{type(error).__name__}: {error}"
                console.warn(f"{name} is left out, it cannot run this model: {left_out[name]}")
        with console.stage(f"{_count(count, 'thread')}, {requests} at a time"):
            times = _measured(runs, each, requests, arguments.seconds)
        rows = {name: _figures(t, requests) for name, t in times.items()}
        results.append({"threads": count, "requests": requests, "hint": arguments.hint,
                        "runs": rows})  # fmt: skip
        _show(console, results[-1])
    console.note(f"input shapes: {_shapes(inputs)}; {usable_cores()} cores, load {_load():.1f}")
    for each_result in results:
        mine = each_result["runs"]["relaxvm"]
        if mine["p90_ms"] > _NOISY * mine["p50_ms"] or _load() > usable_cores() + 1:
            console.warn("the machine is noisy: read the ratios, or measure again when it is idle")
            break
    console.result({"model": arguments.model, "cores": usable_cores(), "load": _load(),
                    "inputs": _shapes(inputs), "results": results,
                    "left_out": left_out})  # fmt: skip
    return 0


def _numbers(text: str) -> list[int]:
    words = [w.strip() for w in text.split(",")]
    if not all(w.isdecimal() and 1 <= int(w) <= 1024 for w in words):
        raise LoadError(f"--threads: wanted numbers such as 1,2, got {text!r}")
    return [int(w) for w in words]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _load() -> float:
    return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0


def _shapes(inputs: Mapping[str, Any]) -> str:
    shapes = (f"{n} {'x'.join(map(str, np.shape(plain(v)))) or 'scalar'}"
              for n, v in inputs.items() if not isinstance(v, tuple))  # fmt: skip
    return ", ".join(shapes)


# -- who runs --------------------------------------------------------------------------------------


def ours(program: Any, values: tuple[Any, ...], threads: int) -> Run:
    """A function that calls `main` of a program once."""
    main = VirtualMachine(program, cpu(), num_threads=threads)["main"]
    return lambda: main(*values)


def _onnxruntime(path: str, values: list[Any], threads: int) -> Run:
    try:
        import onnxruntime
    except ImportError as error:
        raise LoadError("--beside onnxruntime: it is not installed") from error
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    feeds = dict(zip([i.name for i in session.get_inputs()], values))
    return lambda: session.run(None, feeds)


def write_offline_form(path: str, better: str) -> None:
    """`path` as onnxruntime's optimiser for transformers writes it to the file `better`; models of
    other kinds get its basic optimisations.
    """
    try:
        import onnxruntime
        import sympy  # noqa: F401  the optimiser infers shapes with it
        from onnxruntime.transformers import optimizer
    except ImportError as error:
        message = f"--beside onnxruntime-offline: {error.name} is not installed"
        raise LoadError(message) from error
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = better
    onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    # Only the fusions: for the basic level `optimize_model` would import torch.
    with contextlib.redirect_stdout(sys.stderr):
        optimizer.optimize_model(better, "bert", opt_level=0).save_model_to_file(better)


def _onnxruntime_offline(path: str, values: list[Any], threads: int) -> Run:
    with tempfile.TemporaryDirectory() as folder:
        better = os.path.join(folder, "model.onnx")
        write_offline_form(path, better)
        return _onnxruntime(better, values, threads)


def _openvino(path: str, values: list[Any], threads: int) -> Run:
    try:
        import openvino
    except ImportError as error:
        raise LoadError("--beside openvino: it is not installed") from error
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "PERFORMANCE_HINT": "LATENCY",
        # Where a processor has bfloat16, openvino computes in it unless it is told not to.
        "INFERENCE_PRECISION_HINT": "f32",
    }
    compiled = openvino.Core().compile_model(path, "CPU", settings)
    return lambda: compiled(values)


def _torch(path: str, values: list[Any], threads: int) -> Run:
    try:
        import onnx2torch
        import torch
    except Exception as error:  # packages that do not fit each other raise what they like
        raise LoadError(
            f"--beside torch: wanted the packages torch, torchvision and onnx2torch: {error}"
        ) from error
    module = onnx2torch.convert(path).eval()
    tensors = [torch.from_numpy(v) for v in values]

    def call() -> Any:
        torch.set_num_threads(threads)
        with torch.inference_mode():
            return module(*tensors)

    return call


PEERS: dict[str, Callable[[str, list[Any], int], Run]] = {
    "onnxruntime": _onnxruntime,
    "onnxruntime-offline": _onnxruntime_offline,
    "openvino": _openvino,
    "torch": _torch,
}
"""Who else runs ONNX models: (path, values of the inputs, threads) -> a function that runs once."""


# -- measuring -------------------------------------------------------------------------------------


def _measured(
    runs: Mapping[str, Run], threads: int, requests: int, seconds: float
) -> dict[str, list[float]]:
    """Seconds per call of rounds in which each has its turn, so that what disturbs the machine
    disturbs all.
    """
    calls = {}
    for name, call in runs.items():
        call()
        calls[name] = max(1, int(_ROUND_SECONDS / _timed(call, 1)))
    times: dict[str, list[float]] = {name: [] for name in runs}
    end, rounds = time.perf_counter() + seconds * len(runs), 0
    with concurrent.futures.ThreadPoolExecutor(requests) as pool:
        while time.perf_counter() < end or rounds < 3:
            rounds += 1
            for name, call in runs.items():
                if threads > 1 and len(runs) > 1:
                    time.sleep(_REST_SECONDS)
                    warm = time.perf_counter() + _WARM_SECONDS
                    while time.perf_counter() < warm:
                        call()
                if requests == 1:
                    times[name].append(_timed(call, calls[name]))
                    continue
                began = time.perf_counter()
                waiting = [pool.submit(_timed, call, calls[name]) for _ in range(requests)]
                for each in waiting:
                    each.result()
                times[name].append((time.perf_counter() - began) / calls[name])
    return times


def _timed(call: Run, count: int) -> float:
    began = time.perf_counter()
    for _ in range(count):
        call()
    return max(time.perf_counter() - began, 1e-9) / count


def _figures(times: list[float], requests: int) -> dict[str, float]:
    figures = {f"p{p}_ms": float(np.percentile(times, p)) * 1e3 for p in _PERCENTILES}
    return {
        "best_ms": min(times) * 1e3,
        **figures,
        "per_second": requests / statistics.median(times),
        "rounds": len(times),
    }


def _show(console: Console, result: Mapping[str, Any]) -> None:
    mine = result["runs"]["relaxvm"]["p50_ms"]
    console.table(
        ("", "best ms", "p50 ms", "p90 ms", "p99 ms", "per second", "relaxvm's speedup"),
        [
            (name, f["best_ms"], f["p50_ms"], f["p90_ms"], f["p99_ms"], f"{f['per_second']:.1f}",
             None if name == "relaxvm" else f"{f['p50_ms'] / mine:.2f}")
            for name, f in result["runs"].items()
        ],
        title=f"{_count(result['threads'], 'thread')}, {_count(result['requests'], 'request')} "
        f"at a time ({result['hint']})",
    )  # fmt: skip
    console.text()
