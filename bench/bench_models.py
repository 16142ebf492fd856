"""Whole models (`models`) from ONNX files, untuned, beside other runtimes: time for one and two
threads, build time cold and from the cache, time to the first answer, peak memory, size of a file.

    python -m bench.bench_models [WORD ...]            the models whose names hold one of the words
    python -m bench.bench_models --beside onnxruntime,openvino --seconds 10 --json figures.json

What it prints is the table of docs/performance.md. Everything is measured by the command `relaxvm`
and what it measures others with, each step in a process of its own, with a cache that is empty at
first. Read the ratios: times of one row belong to one run, in turns. Memory is what a process takes
at most that loads the model and runs it, over what it had after a small model (which brings in the
libraries); the offline optimiser's work is no part of it.
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
from collections.abc import Mapping, Sequence
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parent))

import onnx
import pytest
from models import MODELS, model

__all__ = ["measure"]

# Inputs for a program, as the command makes them up.
_INPUTS = """
import argparse, pickle, sys
import relaxvm
from relaxvm.cli.console import Console
from relaxvm.cli.inputs import inputs_of, plain
options = argparse.Namespace(input=[], size=[], seed=0, weights=None)
values = inputs_of(options, relaxvm.load(sys.argv[1]), Console(), {}).values()
with open(sys.argv[2], "wb") as file:
    pickle.dump([plain(v) for v in values], file)
"""
# Who runs, a small model and the model, each with its inputs: seconds to the first answer, and the
# peak of memory.
_ALONE = """
import json, os, pickle, sys, time
from relaxvm.cli.bench import PEERS, ours
from relaxvm.runtime import load

def started(path, inputs):
    with open(inputs, "rb") as file:
        values = pickle.load(file)
    began = time.perf_counter()
    if sys.argv[1] == "relaxvm":
        nested = tuple(tuple(v) if isinstance(v, list) else v for v in values)
        run = ours(load(path, mmap=True), nested, 1)
    else:
        run = PEERS[sys.argv[1]](path, values, 1)
    run()
    return run, time.perf_counter() - began

def status(word):
    with open("/proc/self/status") as file:
        return next(int(l.split()[1]) * 1024 for l in file if l.startswith(word))

small, _ = started(*sys.argv[2:4])
counts = os.path.exists("/proc/self/clear_refs")
if counts:
    before = status("VmRSS")
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
run, first = started(*sys.argv[4:6])
run()
run()
print(json.dumps({"first": first, "memory": status("VmHWM") - before if counts else None}))
"""
_SMALL = "digits_mlp"


def _run(*command: str) -> str:
    done = subprocess.run([sys.executable, *command], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr}")
    return done.stdout


def measure(name: str, beside: Sequence[str], threads: str, seconds: float) -> dict[str, Any]:
    """The figures of a model, in seconds, bytes and milliseconds."""
    figures: dict[str, Any] = {"model": name}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RELAXVM_CACHE_DIR"] = os.path.join(folder, "cache")

        def file(which: str, ending: str) -> str:
            return os.path.join(folder, f"{which}.{ending}")

        onnx.save(model(_SMALL, "small"), file("small", "onnx"))
        onnx.save(model(name), file("model", "onnx"))
        _run("-m", "relaxvm", "compile", file("small", "onnx"), "-o", file("small", "rvm"))
        for which in ("cold", "warm"):
            began = time.perf_counter()
            report = _run("-m", "relaxvm", "compile", file("model", "onnx"),
                          "-o", file("model", "rvm"), "--json")  # fmt: skip
            figures[which] = time.perf_counter() - began
            figures[f"{which} stages"] = json.loads(report)["stages"]
        figures["file"] = os.path.getsize(file("model", "rvm"))
        for which in ("small", "model"):
            _run("-c", _INPUTS, file(which, "rvm"), file(which, "inputs"))
        figures["alone"] = {}
        for who in ["relaxvm", *(p for p in beside if not p.endswith("-offline"))]:
            end = "rvm" if who == "relaxvm" else "onnx"
            files = [file(which, e) for which in ("small", "model") for e in (end, "inputs")]
            runs = [json.loads(_run("-c", _ALONE, who, *files)) for _ in range(3)]
            figures["alone"][who] = {k: min(r[k] for r in runs) for k in runs[0] if runs[0][k]}
        options = ["--threads", threads, "--seconds", str(seconds), "--json"]
        if beside:
            options += ["--beside", ",".join(beside)]
        output = _run("-m", "relaxvm", "bench", file("model", "onnx"), *options)
        figures["runs"] = json.loads(output)["results"]
    return figures


@pytest.mark.parametrize("name", MODELS)
def bench_model(benchmark, name):
    figures = benchmark.pedantic(measure, (name, ["onnxruntime"], "1,2", 1.0), rounds=1)
    benchmark.extra_info.update(figures)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _heads(beside: Sequence[str], threads: Sequence[str]) -> list[str]:
    each = [f"{count} threads, ms | beside {', '.join(beside)}" for count in threads]
    return ["model", "file, MB", "build, s: cold, cached", "first answer, s; others'",
            "memory, MB; others'", *each]  # fmt: skip


def _cells(figures: Mapping[str, Any]) -> list[str]:
    def alone(kind: str, unit: float, digits: int) -> str:
        mine, *others = (
            f"{run[kind] / unit:.{digits}f}" if kind in run else "?"
            for run in figures["alone"].values()
        )
        return f"{mine}; {', '.join(others)}"

    cells = [figures["model"], f"{figures['file'] / 1e6:.1f}",
             f"{figures['cold']:.1f}, {figures['warm']:.2f}", alone("first", 1, 2),
             alone("memory", 1e6, 0)]  # fmt: skip
    for result in figures["runs"]:
        mine, *others = (run["p50_ms"] for run in result["runs"].values())
        ratios = (f"{o / mine:.2f}" for o in others)
        cells += [f"{mine:.3f}" if mine < 1 else f"{mine:.2f}", ", ".join(ratios)]
    return cells


def _means(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """How many times as fast, by the geometric mean: beside each and beside the best."""
    ratios: dict[tuple[int, str], list[float]] = {}
    for result in (r for row in rows for r in row["runs"]):
        runs = {who: run["p50_ms"] for who, run in result["runs"].items()}
        mine = runs.pop("relaxvm")
        best = {"the best of all": min(runs.values())} if runs else {}
        for who, other in {**runs, **best}.items():
            ratios.setdefault((result["threads"], who), []).append(other / mine)
    return [
        f"{count} threads, beside {who}: {math.exp(statistics.mean(map(math.log, values))):.3f} "
        f"times as fast (geometric mean), at least {min(values):.3f}"
        for (count, who), values in ratios.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*")
    parser.add_argument("--threads", default="1,2")
    parser.add_argument("--seconds", type=float, default=3.0, help="for each who runs")
    parser.add_argument("--beside", default="onnxruntime", help="as of `relaxvm bench`")
    parser.add_argument("--json", help="a file for all figures")
    options = parser.parse_args()
    beside = [name for name in options.beside.split(",") if name]
    heads = _row(_heads(beside, options.threads.split(",")))
    print(heads)
    print("|" + "---|" * (heads.count("|") - 1), flush=True)
    rows = []
    for name in MODELS:
        if options.words and not any(word in name for word in options.words):
            continue
        rows.append(measure(name, beside, options.threads, options.seconds))
        print(_row(_cells(rows[-1])), flush=True)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(rows, indent=1))
    print(*_means(rows), sep="\n")


if __name__ == "__main__":
    main()
