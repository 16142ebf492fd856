"""Ten whole graphs (`graphs`), untuned, beside onnxruntime on the same graph: kernels launched,
bytes moved, time for one and two threads, cold build time, peak memory.

    python -m bench.bench_graphs [WORD ...]            the graphs whose names hold one of the words
    python -m bench.bench_graphs --without fusion ...  the same without a group of passes, beside it
    python -m bench.bench_graphs --top 8 WORD          and the dearest kernels of each
    make bench                                         the graphs one by one, as benches

Each graph is built and measured in a process of its own with an empty cache. Times are medians of
rounds in which each contestant has its turn; read the ratios. Memory is what a process takes that
loads the saved program and runs it, over what it had after another, small program (the first one
brings in LLVM's linker, 8 MB of a shared library); beside it stands how many times that is of the
weights and the two largest tensors.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import numpy as np
import pytest
from contestants import medians
from graphs import GRAPHS, bound
from to_onnx import onnx_model

import relaxvm as tvm
from relaxvm import relax
from relaxvm.ir import IntImm, walk
from relaxvm.relax import transform
from relaxvm.runtime import VirtualMachine, cpu

__all__ = ["GROUPS", "measure"]

GROUPS = {
    "fusion": "FuseOps FuseTIR FuseOpsByPattern RewriteDataflowReshape",
    "folding": "FoldConstant SimplifyExpr CanonicalizeOps",
    "layout": "ConvertLayout AlterOpImpl AlterOpLayout OptimizeLayoutTransform",
    "scale": "FoldScaleAxis BackwardFoldScaleAxis ForwardFoldScaleAxis FoldBatchnormToConv2D",
    "combine": "CombineParallelConv2D CombineParallelDense CombineParallelMatmul "
    "CombineParallelBatchMatmul BatchingOps",
}
"""Passes that are switched off together; those that this version has."""


def build(mod: Any, without: str = "") -> Any:
    """`mod` compiled with all passes that the default context runs but those of a group."""
    names = [n for n in GROUPS.get(without, "").split() if hasattr(transform, n)]
    with tvm.transform.PassContext(disabled_pass=names):
        return relax.build(mod, "llvm")


def ours(executable: Any, inputs: Any, threads: int) -> Callable[[], Any]:
    main = VirtualMachine(executable, cpu(), num_threads=threads)["main"]
    return lambda: main(*inputs)


def theirs(mod: Any, inputs: Any, threads: int) -> Callable[[], Any]:
    ort = pytest.importorskip("onnxruntime", reason="compares with it where it is installed")
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    session = ort.InferenceSession(onnx_model(mod), options, providers=["CPUExecutionProvider"])
    arrays = [a for x in inputs for a in (x if isinstance(x, tuple) else (x,))]
    feeds = dict(zip([i.name for i in session.get_inputs()], arrays))
    return lambda: session.run(None, feeds)


RUNS = ("relaxvm", "onnxruntime")


@pytest.mark.parametrize("what", RUNS)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", GRAPHS)
def bench_graph(benchmark, name, threads, what):
    benchmark.group = f"{name}, {threads} threads"
    mod, inputs = bound(name)
    benchmark(
        ours(build(mod), inputs, threads) if what == "relaxvm" else theirs(mod, inputs, threads)
    )


# -- one graph, in a process of its own ------------------------------------------------------------


def measure(name: str, without: list[str], threads: list[int], seconds: float) -> dict[str, Any]:
    """The figures of a graph: of the whole build, and of builds without groups of passes."""
    mod, inputs = bound(name)
    variants = ["", *without]
    executables, figures = {}, {}
    for variant in variants:
        began = time.perf_counter()
        executables[variant] = build(mod, variant)
        figures[variant] = {"build": time.perf_counter() - began}
        figures[variant] |= _counted(executables[variant], inputs)
        figures[variant]["memory"] = _peak_bytes(executables[variant], name)
    needed = _needed_bytes(mod)
    for count in threads:
        runs = {v: ours(executables[v], inputs, count) for v in variants}
        try:
            runs["onnxruntime"] = theirs(mod, inputs, count)
        except pytest.skip.Exception:
            pass
        times = medians(runs, count, seconds)
        other = times.pop("onnxruntime", math.nan)
        for variant, took in times.items():
            figures[variant][f"t{count}"] = [took, other]
    return {v: figures[v] | {"needed": needed} for v in variants}


def _counted(executable: Any, inputs: Any) -> dict[str, Any]:
    """Kernels launched, bytes moved, and the dearest kernels, of the shortest of some runs."""
    vm = VirtualMachine(executable, cpu(), num_threads=1)
    reports = [vm.profile("main", *inputs) for _ in range(5)]
    report = min(reports, key=lambda r: r.calls_ns)
    rows = [r for r in report.calls if r.kind == "kernel"]
    top = [
        (r.name, r.count, r.total_ns / 1e3, r.gigaflops, r.gigabytes_per_second, r.roof_share)
        for r in rows[:40]
    ]
    moved = sum(r.size_bytes or 0 for r in rows)
    return {"kernels": sum(r.count for r in rows), "moved": moved, "top": top}


def _needed_bytes(mod: Any) -> int:
    """The weights, and the two largest tensors of known size that a graph function makes."""
    weights, sizes = {}, [0, 0]
    for fn in mod.functions.values():
        for e in walk(fn):
            if isinstance(e, relax.Constant):
                weights[id(e.data)] = e.data.nbytes
            elif isinstance(e, relax.Var) and isinstance(e.struct_info, relax.TensorStructInfo):
                dims = e.struct_info.dims
                if dims is not None and all(isinstance(d, IntImm) for d in dims):
                    sizes.append(math.prod(d.value for d in dims) * e.struct_info.dtype.itemsize)
    return sum(weights.values()) + sum(sorted(sizes)[-2:])


_LOAD = """
import sys
sys.path.insert(0, sys.argv[2])
from graphs import graph
from relaxvm.runtime import VirtualMachine, cpu
import llvmlite.binding

def status(word):
    with open("/proc/self/status") as file:
        return next(int(l.split()[1]) * 1024 for l in file if l.startswith(word))

inputs = graph(sys.argv[3])[2]
VirtualMachine(sys.argv[4], cpu(), num_threads=1)["main"](*graph("lstm", "small")[2])
before = status("VmRSS")
with open("/proc/self/clear_refs", "w") as file:
    file.write("5")
main = VirtualMachine(sys.argv[1], cpu(), num_threads=1)["main"]
for _ in range(3):
    main(*inputs)
print(status("VmHWM") - before)
"""


def _peak_bytes(executable: Any, name: str) -> int | None:
    """What loading and running takes at most; None where the system does not say."""
    if not os.path.exists("/proc/self/clear_refs"):
        return None
    with tempfile.TemporaryDirectory() as folder:
        path, small = (os.path.join(folder, f"{which}.rvm") for which in ("graph", "small"))
        executable.export_library(path)
        relax.build(bound("lstm", "small")[0], "llvm").export_library(small)
        here = str(pathlib.Path(__file__).parent)
        made = subprocess.run(
            [sys.executable, "-c", _LOAD, path, here, name, small],
            capture_output=True,
            text=True,
        )
        if made.returncode:
            raise RuntimeError(made.stderr)
        return int(made.stdout)


# -- the table -------------------------------------------------------------------------------------


def _in_a_process(name: str, options: Any) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--one", name, "--seconds", str(options.seconds)]
        command += ["--threads", *map(str, options.threads), "--without", *options.without]
        environment = os.environ | {"RELAXVM_CACHE_DIR": folder}
        made = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=environment)
    if made.returncode:
        raise SystemExit(f"{name}: the measuring process failed")
    return json.loads(made.stdout)


def _line(name: str, figures: dict[str, Any], threads: list[int]) -> str:
    times = ""
    for count in threads:
        mine, other = figures[f"t{count}"]
        times += f"{mine * 1e3:8.2f} {other * 1e3:8.2f} {other / mine:5.2f} "
    memory = figures["memory"]
    shown = "" if memory is None else f"{memory / 1e6:6.0f} {memory / figures['needed']:5.2f}"
    return (
        f"{name:30} {figures['kernels']:4} {figures['moved'] / 1e6:7.0f} {times} "
        f"{figures['build']:6.1f} {shown}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--seconds", type=float, default=3.0, help="per contestant and graph")
    parser.add_argument("--without", nargs="*", default=[], choices=GROUPS)
    parser.add_argument("--top", type=int, default=0, help="kernels to show of each graph")
    parser.add_argument("--one", help="print the figures of one graph as JSON")
    options = parser.parse_args()
    if options.one:
        figures = measure(options.one, options.without, options.threads, options.seconds)
        print(json.dumps(figures))
        return
    heads = "".join(f"{f'{n} thr, ms':>8} {'onnxrt':>8} {'times':>5} " for n in options.threads)
    print(f"{'graph':30} krnl      MB {heads}  build, s  peak MB, times")
    ratios: dict[tuple[str, int], list[float]] = {}
    for name in GRAPHS:
        if options.words and not any(word in name for word in options.words):
            continue
        for variant, figures in _in_a_process(name, options).items():
            title = f"  without {variant}" if variant else name
            print(_line(title, figures, options.threads), flush=True)
            for count in options.threads:
                mine, other = figures[f"t{count}"]
                ratios.setdefault((variant, count), []).append(other / mine)
            for row in figures["top"][: options.top]:
                rates = "".join(f"{0 if v is None else v:9.2f}" for v in row[3:])
                print(f"    {row[0][:60]:60} {row[1]:4} {row[2]:9.1f} us{rates}")
    for (variant, count), found in ratios.items():
        mean = float(np.exp(np.mean(np.log(found))))
        what = f"without {variant}" if variant else "all passes"
        print(
            f"{what}, {count} threads, beside onnxruntime: {mean:.3f} times as fast "
            f"(geometric mean; target 1.15), at least {min(found):.3f} (target 1.0)"
        )


if __name__ == "__main__":
    main()
