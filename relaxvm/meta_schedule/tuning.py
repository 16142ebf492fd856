"""`tune_kernels`: better schedules for the kernels of a module, in the time that a user gives.

    tuned = relaxvm.tune(mod, seconds=120)  of a loop function, a whole module, an ONNX model
    print(tuned)                            what each kernel gained, and why others did not
    with tuned.database:
        ex = relaxvm.build(mod)

The time goes to where it is expected to be won: kernels by their share of a run of the model, by
how far they are from the machine's roof, and by what the last rounds won. The default schedule is
candidate zero, and stays unless another is faster in a comparison by turns.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ..base import LoadError, RelaxvmError, ScheduleError, TIRError, submodules
from ..ir import IntImm, IRModule
from ..runtime import machine_roof
from ..target import Target, cpu_model
from ..tir import PrimFunc
from ..tir.analysis import estimate_tir_flops
from ..tir.schedule.rules import as_tuned, is_scheduled
from .arg_info import ArgInfo
from .builder import LocalBuilder
from .database import Database, JSONDatabase, MemoryDatabase, TuningRecord, key_of
from .measure import Comparison, Measured, Measurer
from .runner import EvaluatorConfig, LocalRunner
from .search import Search
from .space import Candidate, Point, Space, point_from_json

# The part of the roof from which on a kernel is left alone.
_AT_ROOF = 0.9
# What a round is expected to win of a kernel at first, as a part of its distance to the roof; what
# is left of that after a round that won nothing; below which it is given up.
_HOPE, _FADES, _HOPELESS = 0.2, 0.75, 0.004
# Candidates of a round, seconds of a final, and the part of all the time that finals may take.
_ROUND, _FINAL_SECONDS, _FINALS = 16, 1.0, 0.15
_TRIALS = "trials.jsonl"
_NO_END = 1 << 60


@dataclass
class Task:
    """A kernel that is tuned.

    share    its part of the time of all kernels in a run of the model, from 0 to 1
    state    "waiting", "searching", "tuned", or why it keeps the default schedule
    seconds  of the default schedule and of the fastest candidate, None until they are measured
    """

    name: str
    fn: PrimFunc
    share: float
    state: str = "waiting"
    default_seconds: float | None = None
    best_seconds: float | None = None
    trials: int = 0
    refused: int = 0
    roof_share: float | None = None
    correlation: float | None = None
    spent: float = 0.0
    final: Comparison | None = None
    best: Candidate | None = None
    hope: float = _HOPE
    names: list[str] = field(default_factory=list)

    @property
    def speedup(self) -> float:
        """Of what was accepted over the default schedule; 1.0 if that stays."""
        return self.final.speedup if self.final is not None and self.final.holds else 1.0

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        plain = {
            name: getattr(self, name)
            for name in (
                "name share state default_seconds best_seconds trials refused roof_share "
                "correlation spent speedup"
            ).split()
        }
        return {**plain, "names": self.names, "final": str(self.final or "")}


@dataclass
class Tuned:
    """What tuning found.

    database  the records of what is faster than the default schedules
    tasks     kernels, those with the largest share first
    seconds   it took in all
    ended     "time", "trials", "nothing more to win", "interrupted"
    """

    database: Database
    tasks: list[Task]
    seconds: float
    ended: str

    @property
    def speedup(self) -> float:
        """Of the whole, as far as the shares of its kernels tell."""
        shares = sum(t.share for t in self.tasks)
        left = sum(t.share / t.speedup for t in self.tasks) + max(0.0, 1.0 - shares)
        return max(1.0, shares) / left if left else 1.0

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seconds": self.seconds,
            "ended": self.ended,
            "speedup": self.speedup,
            "tasks": [t.to_plain() for t in self.tasks],
        }

    def rows(self) -> list[tuple[str, ...]]:
        """The table of `print(tuned)`, its heads first."""
        return [HEADS, *map(row_of, self.tasks)]

    def __str__(self) -> str:
        rows = self.rows()
        wide = [max(map(len, column)) for column in zip(*rows)]
        lines = [
            "  ".join(
                c.ljust(w) if k in (0, 7) else c.rjust(w) for k, (c, w) in enumerate(zip(r, wide))
            )
            for r in rows
        ]
        told = f"{self.speedup:.3f}x in all, {self.seconds:.0f} s, ended by: {self.ended}"
        return "\n".join([*(line.rstrip() for line in lines), told])


HEADS = ("kernel", "share", "default us", "best us", "speedup", "trials", "refused", "state")
"""Of the table of tasks."""


def row_of(task: Task) -> tuple[str, ...]:
    """A row of that table."""
    times = (task.default_seconds, task.best_seconds)
    return (
        task.name,
        f"{task.share:.1%}",
        *("" if t is None else f"{t * 1e6:.1f}" for t in times),
        f"{task.speedup:.3f}x",
        str(task.trials),
        str(task.refused),
        task.state,
    )


# What happens, as it happens: ("task" | "trials" | "final" | "note", the task or None, a text).
Listener = Callable[[str, Task | None, str], object]


def tune_kernels(
    tasks: list[Task],
    seconds: float = math.inf,
    *,
    target: Any = None,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials: int | None = None,
    max_trials_per_task: int | None = None,
    num_threads: int | None = None,
    confidence: float = 0.95,
    seed: int = 0,
    database: Database | None = None,
    round_trials: int = _ROUND,
    listener: Listener | None = None,
    spent: float = 0.0,
) -> Tuned:
    """Tune kernels for so many seconds, or so many trials; `relaxvm.tune` tells of the options.

    spent  of the seconds, before this call
    """
    counts = {
        "max_trials": max_trials,
        "max_trials_per_task": max_trials_per_task,
        "round_trials": round_trials,
    }
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise ScheduleError(f"tune: {name}: wanted a number above 0, got {count!r}")
    if not (isinstance(seconds, (int, float)) and seconds > 0):
        raise ScheduleError(f"tune: wanted seconds above 0, got {seconds!r}")
    if math.isinf(seconds) and max_trials is max_trials_per_task is None:
        raise ScheduleError("tune: wanted seconds, or a number of trials, after which it ends")
    if not 0.5 <= confidence < 1:
        raise ScheduleError(f"tune: wanted a confidence from 0.5 to below 1, got {confidence!r}")
    begun = time.perf_counter()
    chosen = Target.or_current(target)
    folder = None if work_dir is None else pathlib.Path(work_dir)
    if database is None:
        database = MemoryDatabase() if folder is None else JSONDatabase(work_dir=folder)
    threads = cpu_model(chosen).cores if num_threads is None else num_threads
    quick = EvaluatorConfig(1, 5, 4)
    with (
        contextlib.closing(LocalBuilder()) as builder,
        contextlib.closing(LocalRunner(10.0, quick, num_threads=threads)) as runner,
    ):
        run = _Run(tasks, chosen, database, listener or (lambda kind, task, text: None))
        run.seed, run.confidence, run.round_trials = seed, confidence, round_trials
        run.most, run.most_of_task = max_trials or _NO_END, max_trials_per_task or _NO_END
        run.trials = _Trials(None if folder is None else folder / _TRIALS)
        run.open_measurer = lambda task: Measurer(
            task.fn, chosen, work_dir=folder, num_threads=threads, builder=builder, runner=runner
        )
        ended = run.until(begun + max(1.0, seconds - spent))
    return Tuned(database, tasks, time.perf_counter() - begun, ended)


def tasks_from(kernels: Mapping[str, PrimFunc], shares: Mapping[str, float]) -> list[Task]:
    """The kernels without a schedule of their own as tasks, equal ones once, those with the largest
    share first. Raises ScheduleError if there are none.

    shares  of the time of a run of the whole, by name
    """
    tasks: dict[str, Task] = {}
    for name, fn in kernels.items():
        if not is_scheduled(fn):
            task = tasks.setdefault(key_of(fn), Task(name, fn, 0.0))
            task.share += shares.get(name, 0.0)
            task.names.append(name)
    if not tasks:
        raise ScheduleError(
            "tune: there is nothing to tune: no loop function without a schedule of its own"
        )
    for task in tasks.values():
        if not all(isinstance(n, IntImm) for b in task.fn.buffer_map.values() for n in b.shape):
            task.state = "not tuned: sizes are symbols (give shapes)"
    return sorted(tasks.values(), key=lambda t: -t.share)


class _Run:
    """One call of `tune`."""

    seed: int
    confidence: float
    round_trials: int
    most: int
    most_of_task: int
    trials: _Trials
    open_measurer: Callable[[Task], Measurer]

    def __init__(
        self, tasks: list[Task], target: Target, database: Database, tell: Listener
    ) -> None:
        self.tasks, self.target, self.database, self.tell = tasks, target, database, tell
        self._measurers: dict[str, Measurer] = {}
        self._searches: dict[str, Search] = {}
        self._roof: machine_roof.Roof | None = None

    def until(self, deadline: float) -> str:
        """Search until then; why it ended."""
        whole = min(deadline - time.perf_counter(), 3600.0)
        reserved = min(_FINALS * whole, 2 * _FINAL_SECONDS * len(self.tasks))
        try:
            ended = "time"
            while time.perf_counter() < deadline - reserved:
                if sum(t.trials for t in self.tasks) >= self.most:
                    ended = "trials"
                    break
                task = self._next()
                if task is None:
                    ended = "nothing more to win"
                    break
                self._round(task, deadline - reserved)
        except KeyboardInterrupt:
            self.tell("note", None, "interrupted: the best so far are compared and kept")
            ended = "interrupted"
            deadline = time.perf_counter() + max(5.0, _FINALS * whole)
        try:
            self._finals(deadline)
        finally:
            for measurer in self._measurers.values():
                measurer.close()
        return ended

    # -- the search --------------------------------------------------------------------------------

    def _next(self) -> Task | None:
        """The kernel of which a round is expected to win most, for the time it takes."""
        open_tasks = [t for t in self.tasks if t.state in ("waiting", "searching")]
        return max(open_tasks, key=self._gain, default=None)

    def _gain(self, task: Task) -> float:
        if task.default_seconds is None or not task.trials:
            return math.inf if task.default_seconds is None else task.share * 1e3
        best = task.best_seconds or task.default_seconds
        left = task.share * best / task.default_seconds * (1 - (task.roof_share or 0.0))
        return left * task.hope * task.trials / max(task.spent, 1e-3)

    def _round(self, task: Task, deadline: float) -> None:
        begun = time.perf_counter()
        try:
            if task.name not in self._searches:
                self._begin(task)
            if task.state == "searching":
                self._measure_some(task, deadline)
        except (ScheduleError, TIRError, LoadError) as error:
            task.state = f"cannot be measured: {error}"
            self.tell("task", task, task.state)
        task.spent += time.perf_counter() - begun

    def _begin(self, task: Task) -> None:
        space = Space(task.fn, self.target)
        known = self.trials.of(space.fn)
        points = [point for _, point in sorted(known, key=lambda pair: pair[0])[:_ROUND]]
        self._searches[task.name] = Search(space, self.seed, points)
        measurer = self._measurers[task.name] = self.open_measurer(task)
        task.default_seconds = task.best_seconds = measurer.default.seconds
        task.state = "searching"
        task.roof_share = self._of_roof(task)
        if task.roof_share is not None and task.roof_share >= _AT_ROOF:
            task.state = f"at the machine's roof ({task.roof_share:.0%}): left alone"
        self.tell("task", task, task.state)

    def _of_roof(self, task: Task) -> float | None:
        """The part of the time of the default schedule that the machine needs at least."""
        assert task.default_seconds is not None
        with contextlib.suppress(ScheduleError, TIRError, OSError):
            if self._roof is None:
                self._roof = machine_roof.machine_roof()
            infos = ArgInfo.from_prim_func(task.fn)
            size = sum(math.prod(i.shape) * np.dtype(_numpy(i.dtype)).itemsize for i in infos)
            flops = estimate_tir_flops(task.fn) if "float32" in infos[-1].dtype else None
            # The rate of a block an eighth as large: what is left alone is surely at the roof.
            moving = size / self._roof.bandwidth(size // 8)
            least = max(moving, (flops or 0.0) / self._roof.flops_per_second)
            return min(1.0, least / cpu_model(self.target).cores / task.default_seconds)
        return None

    def _measure_some(self, task: Task, deadline: float) -> None:
        search, measurer = self._searches[task.name], self._measurers[task.name]
        left = min(self.most - sum(t.trials for t in self.tasks), self.most_of_task - task.trials)
        candidates = search.propose(min(self.round_trials, left))
        if not candidates:
            task.state = "no more candidates" if left else "as many trials as were allowed"
            return
        before = task.best_seconds or math.inf
        learnt: list[tuple[Candidate, float | None]] = []

        def on_result(k: int, measured: Measured) -> None:
            candidate = candidates[k]
            task.trials += 1
            learnt.append((candidate, measured.seconds))
            self.trials.add(search.space.fn, candidate.point, measured)
            if measured.seconds is None:
                task.refused += 1
            elif measured.seconds < (task.best_seconds or math.inf):
                task.best, task.best_seconds = candidate, measured.seconds
            self.tell("trials", task, str(measured.refusal or ""))
            if time.perf_counter() > deadline:
                raise _OutOfTime

        with contextlib.suppress(_OutOfTime):
            measurer.measure([_function(search.space, c) for c in candidates], on_result)
        search.learn(learnt)
        task.correlation = search.correlation
        won = 1.0 - (task.best_seconds or before) / before
        task.hope = max(task.hope * _FADES, won)
        if task.hope * task.share < _HOPELESS * _HOPE and task.trials >= 4 * _ROUND:
            task.state = "nothing won by many trials"

    # -- the end -----------------------------------------------------------------------------------

    def _finals(self, deadline: float) -> None:
        """Compare the best of each kernel with its default schedule by turns."""
        open_tasks = [t for t in self.tasks if t.best is not None]
        for k, task in enumerate(sorted(open_tasks, key=lambda t: -t.share)):
            left = max(0.3, (deadline - time.perf_counter()) / (len(open_tasks) - k))
            self._final(task, min(_FINAL_SECONDS, left))
        for task in self.tasks:
            if task.state in ("waiting", "searching"):
                task.state = "not reached" if task.state == "waiting" else "default stays"

    def _final(self, task: Task, seconds: float) -> None:
        space, best = self._searches[task.name].space, task.best
        assert best is not None
        try:
            task.final = self._measurers[task.name].beats(
                _function(space, best), confidence=self.confidence, seconds=seconds
            )
        except ScheduleError as error:
            task.state = f"default stays: {error}"
            return
        task.state = "tuned" if task.final.holds else "default stays: not surely faster"
        if task.final.holds:
            took = (task.default_seconds or 0.0) / task.final.speedup
            workload = self.database.commit_workload(IRModule({"main": space.fn}))
            args = ArgInfo.from_prim_func(space.fn)
            record = TuningRecord.of(best.schedule, workload, [took], self.target, args)
            self.database.commit_tuning_record(record)
        self.tell("final", task, str(task.final))


class _OutOfTime(Exception):
    """The time for the search is over."""


def _function(space: Space, candidate: Candidate) -> PrimFunc:
    (fn,) = candidate.schedule.mod.functions.values()
    assert isinstance(fn, PrimFunc)
    return as_tuned(space.fn, fn)


def _numpy(dtype: str) -> str:
    return "int16" if dtype in ("bfloat16",) else "bool" if dtype == "bool" else dtype


# -- what was tried --------------------------------------------------------------------------------


class _Trials:
    """Points that were measured, a line each, so that another run begins with them."""

    def __init__(self, path: pathlib.Path | None) -> None:
        self._path = path
        self._known: dict[str, list[tuple[float, Point]]] = {}
        for saved in _lines(path):
            with contextlib.suppress(RelaxvmError, TypeError, ValueError):
                match saved:
                    case [str(key), point, float(seconds)] if math.isfinite(seconds):
                        self._known.setdefault(key, []).append((seconds, point_from_json(point)))

    def of(self, fn: PrimFunc) -> list[tuple[float, Point]]:
        """Seconds and points of a loop function."""
        return self._known.get(key_of(fn), [])

    def add(self, fn: PrimFunc, point: Point, measured: Measured) -> None:
        if self._path is None:
            return
        refusal = None if measured.refusal is None else measured.refusal.kind
        line = json.dumps([key_of(fn), point.as_json(), measured.seconds or refusal])
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with open(self._path, "ab") as file:
            # Behind a line that was cut, a new one begins.
            file.write(f"\n{line}\n".encode())


def _lines(path: pathlib.Path | None) -> Iterator[Any]:
    if path is None or not path.exists():
        return
    with open(path, encoding="utf-8", errors="replace") as file:
        for line in file:
            with contextlib.suppress(ValueError, RecursionError):
                yield json.loads(line)


__getattr__ = submodules(__name__)
