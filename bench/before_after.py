"""Kernels of `bench_kernels.py` before and after a change: two checkouts, measured in turns.

    git worktree add ../before main
    python bench/before_after.py ../before . softmax --target "llvm -mcpu=znver3" --threads 1 2

A process for each checkout builds and runs; they take turns, so that what disturbs the machine
disturbs both: a turn is short, and what is told is the median of the ratios of pairs. (The machine
has states of a second and more, in which all is slower: medians of each side's times tell mostly
which of them it met.) Kernels with the same machine code are said to be the same and not run. Of
the others, slower or faster is one whose median and whose best both moved by more than 5 %.
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

NOISE = 1.05
SETTLE_SECONDS = {1: 0.002, 2: 0.03}
TURN_SECONDS = 0.002
REST_SECONDS = 0.05


def serve(tree: str, target: str) -> None:
    """Answer questions by lines of JSON: the checkout's side."""
    sys.path[:0] = [tree, f"{tree}/bench"]
    from bench_kernels import CASES
    from contestants import VirtualMachine, cpu, relax

    executables: dict[int, Any] = {}
    runs: dict[tuple[int, int], Any] = {}

    def executable(number: int) -> Any:
        if number not in executables:
            executables.clear()
            runs.clear()
            module = CASES[number].kernel.module()
            executables[number] = relax.build(module, target=target)
        return executables[number]

    def seconds(number: int, threads: int) -> float:
        if (number, threads) not in runs:
            main = VirtualMachine(executable(number), cpu(), num_threads=threads)["main"]
            inputs = CASES[number].kernel.inputs
            result = main(*inputs)
            out = {"out": result} if hasattr(result, "numpy") else {}
            runs[number, threads] = lambda: main(*inputs, **out)
        run = runs[number, threads]
        start, now, calls = time.perf_counter(), 0.0, 0
        while now < start + SETTLE_SECONDS[min(threads, 2)]:
            run()
            now, calls = time.perf_counter(), calls + 1
        count = max(1, int(TURN_SECONDS * calls / (now - start)))
        start = time.perf_counter()
        for _ in range(count):
            run()
        return (time.perf_counter() - start) / count

    answers = {
        "names": lambda: [str(case) for case in CASES],
        "assembly": lambda number: executable(number).get_source("asm"),
        "seconds": seconds,
    }
    for line in sys.stdin:
        what, *args = json.loads(line)
        print(json.dumps(answers[what](*args)), flush=True)


class Side:
    """The process of one checkout."""

    def __init__(self, tree: str, target: str, cache: str) -> None:
        command = [sys.executable, __file__, "--serve", str(pathlib.Path(tree).resolve()), target]
        environment = {**os.environ, "RELAXVM_CACHE_DIR": cache}
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, text=True, cwd=tree, env=environment
        )

    def ask(self, *question: Any) -> Any:
        assert self.process.stdin
        assert self.process.stdout
        print(json.dumps(question), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if not answer:
            raise SystemExit(f"{self.process.args} ended at {question}")
        return json.loads(answer)


def measured(sides: list[Side], number: int, threads: int, rounds: int) -> tuple[float, float]:
    """Before / after: the median of pairs, and of the best times."""
    times: list[list[float]] = [[], []]
    for k in range(rounds):
        for which in (0, 1) if k % 2 else (1, 0):
            if threads > 1:
                # The threads of the other side may still spin.
                time.sleep(REST_SECONDS)
            times[which].append(sides[which].ask("seconds", number, threads))
    before, after = times
    ratio = statistics.median(b / a for b, a in zip(before, after))
    return ratio, min(before) / min(after)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", help="a checkout")
    parser.add_argument("after", help="another one")
    parser.add_argument("words", nargs="*", help="only kernels that are called so")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--threads", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--rounds", type=int, default=21)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        trees = (options.before, options.after)
        sides = [Side(t, options.target, f"{folder}/{k}") for k, t in enumerate(trees)]
        names = [side.ask("names") for side in sides]
        if names[0] != names[1]:
            raise SystemExit("the two checkouts have different kernels in bench/bench_kernels.py")
        same, logarithms = 0, []
        for number, name in enumerate(names[0]):
            if options.words and not any(w in name for w in options.words):
                continue
            code = [side.ask("assembly", number) for side in sides]
            if code[0] == code[1]:
                same += 1
                continue
            for threads in options.threads:
                median, best = measured(sides, number, threads, options.rounds)
                logarithms.append(math.log(median))
                verdict = (
                    "faster" if min(median, best) > NOISE
                    else "SLOWER" if max(median, best) < 1 / NOISE
                    else ""
                )  # fmt: skip
                print(f"{name:46} {threads:3} before/after {median:5.2f} {verdict}", flush=True)
    mean = math.exp(statistics.fmean(logarithms)) if logarithms else 1.0
    print(f"{same} kernels have the same machine code; geometric mean of the others {mean:.3f}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--serve"]:
        serve(*sys.argv[2:])
    else:
        main()
