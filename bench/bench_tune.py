"""What tuning wins, and how soon: ratios over the default schedules of the same run.

    python bench/bench_tune.py [PART ...] [--seconds 60] [--kernels 20]     parts: see `PARTS`
    make bench                                                              TUNE_SECONDS each

dense      the tutorial's layer, 1 x 784 x 128, in 64 trials
kernels    those of four models with the most arithmetic, so many seconds each
strangers  kernels of users that no rule knows, beside their plain loops
models     whole models, so many seconds each, tuned and default builds by turns
ranks      how well a cost model puts the schedules of a kernel in order that it has never seen
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from graphs import bound

import relaxvm
from relaxvm import meta_schedule as ms
from relaxvm import te, tir
from relaxvm.base import ScheduleError, TIRError
from relaxvm.choices import Choices
from relaxvm.ir import IRModule
from relaxvm.meta_schedule.regressors import rank_correlation
from relaxvm.pipeline import ready_to_schedule
from relaxvm.target import Target
from relaxvm.tir.schedule.plans import SCHEDULED, as_tuned
from relaxvm.tuning import kernels_of
from relaxvm.whole_models import WholeModel

TARGET = "llvm -num-cores=1"
SECONDS = float(os.environ.get("TUNE_SECONDS", "10"))
TRIALS, NEAR, DRAWN = 64, 1.05, 24
WHOLE = ("resnet50", "mobilenet_v2", "bert_base")
MODELS = (*WHOLE, "gpt2_decode")


@dataclass
class Course:
    """A kernel that was tuned, and when which time was the best.

    begun    when the default schedule had been measured
    history  (seconds since then, the fastest so far)
    """

    task: ms.Task
    seconds: float = 0.0
    begun: float = 0.0
    history: list[tuple[float, float]] = field(default_factory=list)

    def tell(self, kind: str, task: ms.Task | None, text: str) -> None:
        now = time.perf_counter()
        if kind == "task" and not self.begun:
            self.begun = now
        elif kind == "trials" and task is not None and task.best_seconds is not None:
            self.history.append((now - self.begun, task.best_seconds))

    @property
    def until_near(self) -> float:
        """The part of the time until the best was nearly as fast as it ever got."""
        if not self.history:
            return 0.0
        least = min(best for _, best in self.history)
        return next(at for at, best in self.history if best <= NEAR * least) / self.seconds

    def row(self) -> str:
        task = self.task
        cells = [
            task.name, f"{(task.default_seconds or 0) * 1e6:.1f} us", f"{task.speedup:.2f}x",
            f"{self.until_near:.0%}", f"{task.trials / self.seconds:.1f}/s", str(task.refused),
            task.state,
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


HEAD = "| kernel | default | tuned | near its best after | trials | refused | state |"
RULE = "|---" * 7 + "|"


def tuned(name: str, fn: tir.PrimFunc, seconds: float, trials: int | None = None) -> Course:
    """A kernel tuned for so many seconds or trials."""
    course = Course(ms.Task(name, fn, 1.0, names=[name]))
    begun = time.perf_counter()
    ms.tune_kernels([course.task], seconds, target=TARGET, max_trials=trials, listener=course.tell)
    course.seconds = time.perf_counter() - begun
    return course


# -- kernels ---------------------------------------------------------------------------------------


def of_models(count: int, size: str = "full") -> Iterator[tuple[str, tir.PrimFunc]]:
    """So many kernels, as many of each model: those with the most arithmetic."""
    for k, model in enumerate(MODELS):
        mod, _ = bound(model, size)
        functions = kernels_of(ready_to_schedule(mod, Target(TARGET)))
        work = {}
        for kernel, f in functions.items():
            with contextlib.suppress(TIRError):  # those of any length
                work[kernel] = tir.analysis.estimate_tir_flops(f)
        sized = {kernel: functions[kernel] for kernel in work}
        largest = [t for t in ms.tasks_from(sized, work) if t.state == "waiting"]
        for task in largest[: count // len(MODELS) + (k < count % len(MODELS))]:
            yield f"{model}, {task.name}", task.fn


def layer() -> tir.PrimFunc:
    """The layer of `examples/tune_and_swap.py`."""
    x, w, b = (te.placeholder(s, name=n) for n, s in zip("XWB", ((1, 784), (128, 784), (128,))))
    k = te.reduce_axis((0, 784), "k")
    sums = te.compute((1, 128), lambda i, j: te.sum(x[i, k] * w[j, k], axis=k), "Y")
    return te.create_prim_func([x, w, b, te.compute((1, 128), lambda i, j: sums[i, j] + b[j], "Z")])


def stencil(n: int = 512) -> tir.PrimFunc:
    """Two steps of a stencil over nine points, and what is left of the difference."""
    x = te.placeholder((n, n), "float32", "X")

    def step(a: Any, name: str) -> Any:
        size = int(a.shape[0]) - 2

        def mean(i: Any, j: Any) -> Any:
            around = [a[i + y, j + z] for y in range(3) for z in range(3)]
            return sum(around[1:], around[0]) * 0.1 + a[i + 1, j + 1] * 0.1

        return te.compute((size, size), mean, name)

    once = step(x, "once")
    twice = step(once, "twice")
    shape = twice.shape
    out = te.compute(shape, lambda i, j: te.abs(twice[i, j] - x[i + 2, j + 2]), "out")
    return te.create_prim_func([x, out])


def triangular(batch: int = 8, n: int = 128) -> tir.PrimFunc:
    """Products of triangles: what is above the diagonal of the left side counts as 0."""
    a, b = te.placeholder((batch, n, n), name="A"), te.placeholder((batch, n, n), name="B")
    k = te.reduce_axis((0, n), "k")

    def term(m: Any, i: Any, j: Any) -> Any:
        return te.sum(tir.if_then_else(k <= i, a[m, i, k] * b[m, k, j], 0.0), axis=k)

    return te.create_prim_func([a, b, te.compute((batch, n, n), term, "C")])


def einsum() -> tir.PrimFunc:
    """``ipq, jrp, qrk -> kij``: three operands, no two of which share an order of axes."""
    sizes = {"i": 24, "j": 20, "k": 28, "p": 12, "q": 10, "r": 8}
    shapes = {name: tuple(sizes[s] for s in name) for name in ("ipq", "jrp", "qrk", "kij")}
    a, b, c = (te.placeholder(shapes[name], name=name) for name in ("ipq", "jrp", "qrk"))
    p, q, r = (te.reduce_axis((0, sizes[s]), s) for s in "pqr")

    def term(k: Any, i: Any, j: Any) -> Any:
        return te.sum(a[i, p, q] * b[j, r, p] * c[q, r, k], axis=[p, q, r])

    return te.create_prim_func([a, b, c, te.compute(shapes["kij"], term, "out")])


STRANGERS: dict[str, Callable[[], tir.PrimFunc]] = {
    "fused stencil": stencil,
    "batched triangular product": triangular,
    "einsum of three": einsum,
}


# -- the parts -------------------------------------------------------------------------------------


def dense(seconds: float, count: int) -> dict[str, float]:
    """Target: at most 20 s, 8 trials a second, not slower than untuned."""
    course = tuned("dense 1x784x128", layer(), math.inf, TRIALS)
    print(HEAD, RULE, course.row(), sep="\n")
    return {
        "seconds": course.seconds,
        "trials a second": course.task.trials / course.seconds,
        "over untuned": course.task.speedup,
    }


def kernels(seconds: float, count: int) -> dict[str, float]:
    """Targets, 60 s each: none slower, a mean of 1.10, 80 % near their best in half the time."""
    print(HEAD, RULE, sep="\n")
    courses = []
    for name, fn in of_models(count):
        courses.append(tuned(name, fn, seconds))
        print(courses[-1].row(), flush=True)
    gains = [c.task.speedup for c in courses]
    return {
        "slower than untuned": sum(g < 1 for g in gains),
        "geometric mean": statistics.geometric_mean(gains),
        "near their best in half the time": statistics.mean(c.until_near <= 0.5 for c in courses),
    }


def strangers(seconds: float, count: int) -> dict[str, float]:
    """Target, 60 s each: 5 times as fast as plain loops."""
    print(HEAD, RULE, sep="\n")
    figures = {}
    for name, make in STRANGERS.items():
        fn = make()
        course = tuned(name, fn, seconds)
        print(course.row(), flush=True)
        with ms.Measurer(fn, TARGET) as measurer:
            (plain,) = measurer.measure([fn.with_attr(SCHEDULED, True)])
            assert plain.seconds is not None
            over = plain.seconds / measurer.default.seconds
        figures[f"{name}: default over plain loops"] = over
        figures[f"{name}: tuned over plain loops"] = over * course.task.speedup
    return figures


def models(seconds: float, count: int) -> dict[str, float]:
    """Targets, 600 s each: none slower, a mean of 1.08."""
    figures = {}
    for name in WHOLE:
        mod, inputs = bound(name)
        found = relaxvm.tune(mod, seconds, target="llvm", inputs=inputs)
        print(f"{name}\n{found}", flush=True)
        # The last comparison of all, for longer than tuning has time for it.
        whole = WholeModel(mod, Target("llvm"), lambda _, given=inputs: given, seconds=10.0)
        with found.database:
            compared = whole.compare(whole.default, whole.runs(Choices()))
        assert compared is not None, f"{name}: other results"
        print(compared, flush=True)
        figures[f"{name}: tuned over default"] = compared.speedup
    return {**figures, "geometric mean": statistics.geometric_mean(figures.values())}


def ranks(seconds: float, count: int) -> dict[str, float]:
    """Target: a rank correlation of 0.7. Each kernel in turn is the one that is not known."""
    measured = [_drawn(name, fn, seconds) for name, fn in of_models(max(count, 2))]
    figures = {}
    for unseen in measured:
        model = ms.CostModel.create("xgb", seed=0)
        for known in measured:
            if known is not unseen:
                model.update(*known)
        ctx, candidates, results = unseen
        figures[ctx.task_name] = rank_correlation(
            model.predict(ctx, candidates), [-statistics.median(r.run_secs) for r in results]
        )
    return {**figures, "median of all": statistics.median(figures.values())}


def _drawn(
    name: str, fn: tir.PrimFunc, seconds: float
) -> tuple[ms.TuneContext, list[Any], list[Any]]:
    """Schedules that were drawn for a kernel, and what they took."""
    ctx = ms.TuneContext(IRModule({"main": fn}), target=TARGET, task_name=name, rand_state=1)
    rng, candidates, results, end = random.Random(0), {}, [], time.perf_counter() + seconds
    while len(candidates) < DRAWN and time.perf_counter() < end:
        try:
            candidate = ctx.space.draw(rng)
            candidates[candidate.key] = candidate
        except (ScheduleError, TIRError):
            continue  # decisions that do not go together
    ran = []
    with ms.Measurer(fn, TARGET) as measurer:
        for candidate in candidates.values():
            if time.perf_counter() > end and len(ran) > 2:
                break
            (took,) = measurer.measure([as_tuned(ctx.space.fn, candidate.fn)])
            if took.seconds is not None:
                ran.append(candidate)
                results.append(ms.runner.RunnerResult([took.seconds]))
    return ctx, ran, results


PARTS: dict[str, Callable[[float, int], dict[str, float]]] = {
    "dense": dense,
    "kernels": kernels,
    "strangers": strangers,
    "models": models,
    "ranks": ranks,
}


@pytest.mark.parametrize("part", PARTS)
def bench_tuning(benchmark, part):
    figures = benchmark.pedantic(PARTS[part], (SECONDS, 20), rounds=1)
    benchmark.extra_info.update(figures)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", help=f"of {', '.join(PARTS)}; none: all")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="for each kernel")
    parser.add_argument("--kernels", type=int, default=20, help="of the models")
    given = parser.parse_args()
    for part in given.parts or PARTS:
        print(f"\n{part}: {PARTS[part].__doc__}\n")
        for name, value in PARTS[part](given.seconds, given.kernels).items():
            print(f"{name}: {value:.3g}", flush=True)


if __name__ == "__main__":
    main()
