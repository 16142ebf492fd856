"""Whole models (`models`) from ONNX files, untuned, beside onnxruntime: time for one and two
threads, build time cold and from the cache, time to the first answer of a saved file, sizes.

    python -m bench.bench_models [WORD ...]            the models whose names hold one of the words
    python -m bench.bench_models --beside onnxruntime,openvino --seconds 10

Everything is measured by the command `relaxvm`, each step in a process of its own with a cache that
is empty at first. Read the ratios: times of one row belong to one run, in turns.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import onnx
import pytest
from models import MODELS, model

__all__ = ["measure"]

# The first answer of a saved program, from the call that loads it; the process is told apart.
_FIRST = """
import sys, time
from relaxvm.cli.inputs import inputs_of
from relaxvm.cli.console import Console
import argparse, relaxvm
named = argparse.Namespace(input=[], size=[], seed=0)
made = inputs_of(named, relaxvm.load(sys.argv[1]), Console())
began = time.perf_counter()
program = relaxvm.load(sys.argv[1])
program["main"](*made.values())
print(time.perf_counter() - began)
"""


def _run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def measure(name: str, beside: str, threads: str, seconds: float) -> dict[str, Any]:
    """The figures of a model, in seconds, bytes and milliseconds."""
    figures: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RELAXVM_CACHE_DIR"] = os.path.join(folder, "cache")
        path, program = (os.path.join(folder, f"model.{end}") for end in ("onnx", "rvm"))
        onnx.save(model(name), path)
        for which in ("cold", "warm"):
            began = time.perf_counter()
            report = _run("-m", "relaxvm", "compile", path, "-o", program, "--json")
            figures[which] = time.perf_counter() - began
            figures[f"{which} stages"] = json.loads(report)["stages"]
        figures["file"] = os.path.getsize(program)
        figures["first"] = min(float(_run("-c", _FIRST, program)) for _ in range(3))
        options = ["--threads", threads, "--seconds", str(seconds), "--json"]
        if beside:
            options += ["--beside", beside]
        figures["runs"] = json.loads(_run("-m", "relaxvm", "bench", path, *options))["results"]
    return figures


@pytest.mark.parametrize("name", MODELS)
def bench_model(benchmark, name):
    figures = benchmark.pedantic(measure, (name, "onnxruntime", "1,2", 1.0), rounds=1)
    benchmark.extra_info.update(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each who runs")
    parser.add_argument("--beside", default="onnxruntime")
    options = parser.parse_args()
    ratios: dict[int, list[float]] = {}
    print(f"{'model':20} cold s  warm s  first s  file MB   threads: ms, others' ms and ratio")
    for name in MODELS:
        if options.words and not any(word in name for word in options.words):
            continue
        figures = measure(name, options.beside, options.threads, options.seconds)
        line = f"{name:20} {figures['cold']:6.1f}  {figures['warm']:6.1f}  "
        line += f"{figures['first']:7.3f}  {figures['file'] / 1e6:7.1f} "
        for result in figures["runs"]:
            runs = dict(result["runs"])
            mine = runs.pop("relaxvm")["p50_ms"]
            line += f"  {result['threads']}: {mine:.3f}"
            for who, other in runs.items():
                line += f", {who} {other['p50_ms']:.3f} ({other['p50_ms'] / mine:.2f})"
            if runs:
                best = min(other["p50_ms"] for other in runs.values())
                ratios.setdefault(result["threads"], []).append(best / mine)
        print(line, flush=True)
    for count, values in ratios.items():
        mean = math.exp(statistics.mean(map(math.log, values)))
        print(f"{count} threads: {mean:.3f} times as fast as the best other (geometric mean), "
              f"at least {min(values):.3f}")  # fmt: skip


if __name__ == "__main__":
    main()
