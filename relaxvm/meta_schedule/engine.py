"""The loop of tuning: rounds of candidates for one kernel after the other, then the finals.

What it asks is small and may be the user's: a task scheduler, which kernel is next; the strategy of
that kernel's context, which candidates; a `Measurer`, what becomes of them; callbacks, which are
told. What any of them raises ends the tuning; the best so far are compared and kept before.
"""

from __future__ import annotations

import contextlib
import json
import math
import pathlib
import time
import traceback
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field, replace
from typing import Any

from ..base import LoadError, ScheduleError, TIRError, record, submodules, to_numpy_dtype
from ..ir import IRModule
from ..runtime import machine_roof
from ..target import Target, cpu_model
from ..tir import PrimFunc
from ..tir.analysis import estimate_tir_flops
from ..tir.schedule.plans import as_tuned
from .arg_info import ArgInfo
from .builder import BuilderResult
from .candidate import MeasureCandidate
from .cost_model import CostModel, scores_of
from .database import Database, TuningRecord, key_of
from .derived import DerivedError, asked
from .interrupts import check, heard, held
from .line_file import LineFile
from .measure import Comparison, Measured, Measurer, OutOfTime
from .measure_callback import MeasureCallback
from .progress import line_of
from .regressors import rank_correlation
from .runner import RunnerResult
from .tasks import CANNOT, INTERRUPTED, TIME, Listener, Task
from .tune_context import TuneContext

NO_END = 1 << 60
"""More trials than there will be."""
NO_TIME = "default stays: no time to compare"
"""The state of a task that has had no final."""
# The part of the roof from which on a kernel is left alone.
_AT_ROOF = 0.9
# Seconds of a comparison at most and at least, how often it calls a kernel at least, the part of
# all the time that finals may take.
FINAL_SECONDS, _LEAST_FINAL, _FINAL_CALLS, _FINALS = 1.0, 0.3, 24, 0.15
# Seconds until a process is there that was ended with the search.
_START_SECONDS = 3.0
# The part of the time that is left that drawing candidates may take.
_DRAWING = 0.5
# How much slower a schedule may seem at other sizes than those where it is faster: the same code at
# two places in memory differs by so much.
_NOISE = 0.01
# Points of an older search that a search may begin with.
_POINTS = 256


@record(frozen=False)
class Engine:
    """One tuning.

    scheduler     answers `next_task_id()`; -1 is the end
    context_of    a context for a task that has none
    confidence    of the finals; None: there are none, and only callbacks commit records
    round_trials  candidates of a round; `most` of all tasks, `most_of_task` of each
    """

    tasks: list[Task]
    scheduler: Any
    target: Target
    database: Database | None
    cost_model: CostModel | None
    callbacks: Sequence[MeasureCallback]
    context_of: Callable[[Task], TuneContext]
    open_measurer: Callable[[Task, float], Measurer]
    tell: Listener
    trials: Trials
    confidence: float | None = 0.95
    round_trials: int = 16
    most: int = NO_END
    most_of_task: int = NO_END
    measurers: dict[int, Measurer] = field(default_factory=dict)
    _seconds: float = 0.0
    _begun: list[TuneContext] = field(default_factory=list)
    _roof: machine_roof.Roof | None = None

    def clock(self) -> float:
        """Seconds, of which deadlines are."""
        return time.perf_counter()

    def run(self, seconds: float) -> str:
        """Search for so long; why it ended. Raises DerivedError for what a user's part raised."""
        deadline = self.clock() + seconds
        self._seconds = min(seconds, 3600.0)
        failure = None
        try:
            with heard():
                ended = self.search(deadline)
        except (KeyboardInterrupt, DerivedError) as error:
            failure = error if isinstance(error, DerivedError) else None
            why = INTERRUPTED if failure is None else str(failure)
            self.tell("note", None, f"{why}: the best so far are compared and kept")
            ended = INTERRUPTED
            deadline = self.clock() + max(5.0, _FINALS * self._seconds)
        try:
            try:
                with heard():
                    self.finals(deadline)
            except KeyboardInterrupt:
                self.tell("note", None, "interrupted: what was compared is kept")
                ended = INTERRUPTED
            for task in self.tasks:
                if not task.is_terminated:
                    task.state = "not reached" if task.state == "waiting" else "default stays"
            while self._begun:
                self._begun.pop().post_tuning()
        finally:
            for measurer in self.measurers.values():
                measurer.close()
        if failure is not None:
            raise failure
        return ended

    # -- the search --------------------------------------------------------------------------------

    def reserved(self) -> float:
        """Seconds that are kept for the finals."""
        if self.confidence is None:
            return 0.0
        most = min(_FINALS * self._seconds, _START_SECONDS + 2 * FINAL_SECONDS * len(self.tasks))
        return min(max(most, sum(map(self._least_final, self.measurers))), self._seconds / 2)

    def _least_final(self, number: int) -> float:
        """Seconds that the final of a task takes at least, building included."""
        default = self.measurers[number].default
        if not self.tasks[number].fastest or default.seconds is None:
            return 0.0
        return _LEAST_FINAL + _FINAL_CALLS * default.seconds + 2 * default.build_seconds

    def search(self, deadline: float) -> str:
        """One round after the other, until the finals; why it ended."""
        while (end := deadline - self.reserved()) > time.perf_counter():
            if sum(t.trials for t in self.tasks) >= self.most:
                return "trials"
            check()
            number = self.next()
            if number == -1:
                return "nothing more to win"
            self.round(number, end)
        return TIME

    def next(self) -> int:
        """The number of the task that the scheduler wants next; -1: that is all."""
        with asked(self.scheduler, "next_task_id"):
            number: int = self.scheduler.next_task_id()
            if number == -1:
                return number
            if type(number) is not int or not 0 <= number < len(self.tasks):
                raise ScheduleError(f"wanted -1 or a task's number, got {number!r}")
            if self.tasks[number].is_terminated:
                raise ScheduleError(f"task {number} is over: {self.tasks[number].state}")
        return number

    def round(self, number: int, deadline: float = math.inf) -> None:
        """Measure some candidates of a task, after its default schedule."""
        task, begun = self.tasks[number], time.perf_counter()
        try:
            if number not in self.measurers:
                self.begin(number, deadline)
            if task.state == "searching":
                self._measure_some(number, deadline)
        except OutOfTime:
            pass
        except DerivedError:
            raise
        except (ScheduleError, TIRError, LoadError) as error:
            task.state = f"{CANNOT}: {error}"
            self.tell("task", task, task.state)
        except Exception as error:
            # It is not to cost what was found for others.
            task.state = f"{CANNOT}: {type(error).__name__}: {error}"
            told = "".join(traceback.format_exception(error)[-3:])
            warnings.warn(
                f"tune: {task.name}: a fault of relaxvm's, which ends its search; please report "
                f"it: {told}",
                RuntimeWarning,
                stacklevel=2,
            )
        task.spent += time.perf_counter() - begun

    def begin(self, number: int, deadline: float = math.inf) -> None:
        """Measure the default schedule of a task. Raises what refuses it, and OutOfTime."""
        task = self.tasks[number]
        ctx = task.ctx = task.ctx or self.context_of(task)
        ctx.until = deadline
        measurer = self.measurers[number] = self.open_measurer(task, deadline)
        task.default_seconds = task.best_seconds = measurer.default.seconds
        self.share()
        task.roof_share = self._of_roof(task)
        if task.roof_share is not None and task.roof_share >= _AT_ROOF:
            task.state = f"at the machine's roof ({task.roof_share:.0%}): left alone"
        else:
            ctx.tried = self.trials.of(ctx.space.fn)
            most = min(self.most, self.most_of_task)
            ctx.pre_tuning(most, self.round_trials, None, self.database, self.cost_model)
            self._begun.append(ctx)
            task.state = "searching"
        self.tell("task", task, task.state)

    def share(self) -> None:
        """Shares of tasks by their weights, as far as they are measured."""
        took = [
            (t, t.weight * t.default_seconds)
            for t in self.tasks
            if t.weight is not None and t.default_seconds is not None
        ]
        for task, seconds in took:
            task.share = seconds / sum(s for _, s in took)

    def _of_roof(self, task: Task) -> float | None:
        """The part of the time of the default schedule that the machine needs at least."""
        assert task.default_seconds is not None
        with contextlib.suppress(ScheduleError, TIRError, OSError):
            if self._roof is None:
                self._roof = machine_roof.machine_roof()
            fn = task.sized[0].fn
            infos = ArgInfo.from_prim_func(fn)
            size = sum(math.prod(i.shape) * to_numpy_dtype(i.dtype).itemsize for i in infos)
            flops = estimate_tir_flops(fn) if infos and "float32" in infos[-1].dtype else None
            # The rate of a block an eighth as large: what is left alone is surely at the roof.
            moving = size / self._roof.bandwidth(size // 8)
            least = max(moving, (flops or 0.0) / self._roof.flops_per_second)
            return min(1.0, least / cpu_model(self.target).cores / task.default_seconds)
        return None

    def _measure_some(self, number: int, deadline: float) -> None:
        task, measurer = self.tasks[number], self.measurers[number]
        ctx = task.ctx
        assert ctx is not None
        left = min(self.most - sum(t.trials for t in self.tasks), self.most_of_task - task.trials)
        now = time.perf_counter()
        measurer.until, ctx.until = deadline, now + _DRAWING * (deadline - now)
        candidates = ctx.generate_measure_candidates() if left > 0 else None
        if candidates is None:
            task.state = "no more candidates" if left > 0 else "as many trials as were allowed"
            return
        candidates, task.pruned = candidates[:left], ctx.pruned
        predicted = scores_of(self.cost_model, ctx, candidates)
        before = task.best_seconds or math.inf
        told: list[Measured] = []

        def on_result(k: int, measured: Measured) -> None:
            task.trials += 1
            told.append(measured)
            self.trials.add(ctx.space.fn, candidates[k], measured)
            if measured.seconds is None:
                task.refused += 1
            else:
                task.ran(candidates[k], measured.seconds, measured.noise)
            self.tell("trials", task, str(measured.refusal or ""))
            check()

        with contextlib.suppress(OutOfTime):
            measurer.measure([as_tuned(ctx.space.fn, c.fn) for c in candidates], on_result)
        ran = [(p, -m.seconds) for p, m in zip(predicted, told) if m.seconds is not None]
        if len(ran) > 2:
            task.correlation = rank_correlation(*zip(*ran))
        self._tell_all(number, candidates[: len(told)], told)
        task.learn(1.0 - (task.best_seconds or before) / before)
        if ctx.logger is not None:
            ctx.logger.info("%s", line_of(task))
        if task.is_hopeless:
            task.state = "nothing won by many trials"

    def _tell_all(
        self, number: int, candidates: list[MeasureCandidate], told: Sequence[Measured]
    ) -> None:
        """The strategy and the callbacks are told what became of candidates."""
        task = self.tasks[number]
        built, ran = [], []
        for measured in told:
            error = None if measured.refusal is None else str(measured.refusal)
            is_built = measured.refusal is None or measured.refusal.kind not in (
                "schedule",
                "build",
            )
            built.append(BuilderResult(None, None if is_built else error))
            ran.append(RunnerResult(None if error else list(measured.samples), error))
        task.measured, task.results = candidates, ran
        assert task.ctx is not None
        task.ctx.notify_runner_results(candidates, ran)
        for callback in self.callbacks:
            with asked(callback, "apply"):
                callback.apply(self.scheduler, number, candidates, built, ran)

    # -- the end -----------------------------------------------------------------------------------

    def finals(self, deadline: float) -> None:
        """Compare the best of each kernel with its default schedule by turns."""
        open_tasks = [(n, t) for n, t in enumerate(self.tasks) if t.fastest]
        if self.confidence is not None:
            for k, (n, task) in enumerate(sorted(open_tasks, key=lambda pair: -pair[1].share)):
                now = time.perf_counter()
                end = now + max(self._least_final(n), (deadline - now) / (len(open_tasks) - k))
                if now < deadline:
                    self.final(task, self.measurers[n], end, self.confidence)
                else:
                    task.state = NO_TIME

    def final(self, task: Task, measurer: Measurer, end: float, confidence: float) -> None:
        """One finalist after the other, until one is surely faster or the time is over."""
        assert task.ctx is not None
        fn = task.ctx.space.fn
        # Both are built again.
        measurer.until = end + _START_SECONDS + 2 * measurer.default.build_seconds
        # Each has a chance to win wrongly.
        confidence = 1 - (1 - confidence) / len(task.fastest)
        for _, candidate in task.fastest:
            left = end - time.perf_counter()
            if task.final is not None and (task.final.holds or left < _LEAST_FINAL):
                break
            try:
                best = as_tuned(fn, candidate.fn)
                seconds = min(FINAL_SECONDS, max(_LEAST_FINAL, left)) / len(task.sized)
                task.final = measurer.beats(best, confidence=confidence, seconds=seconds)
                for other in task.sized[1:] if task.final.holds else ():
                    _check_size(measurer.resized(other), best, other.told, seconds)
            except DerivedError:
                raise
            except (ScheduleError, OutOfTime) as error:
                late = isinstance(error, OutOfTime)
                task.state = NO_TIME if late else f"default stays: {error}"
                task.final = task.final and replace(task.final, holds=False)
                continue
            task.state = "tuned" if task.final.holds else "default stays: not surely faster"
            if task.final.holds and self.database is not None:
                self._keep(task.final, candidate, task)
            self.tell("final", task, str(task.final))

    def _keep(self, final: Comparison, candidate: MeasureCandidate, task: Task) -> None:
        assert self.database is not None
        assert task.ctx is not None
        fn = task.ctx.space.fn
        took = (task.default_seconds or 0.0) / final.speedup
        with held(), asked(self.database, "commit_tuning_record"):
            workload = self.database.commit_workload(IRModule({"main": fn}))
            args = ArgInfo.from_prim_func(task.sized[0].fn)
            record = TuningRecord.of(candidate.sch, workload, [took], self.target, args)
            self.database.commit_tuning_record(record)


def _check_size(measurer: Measurer, best: PrimFunc, told: str, seconds: float) -> None:
    """Raise ScheduleError if a schedule is wrong or slower than the default one there."""
    with measurer:
        (measured,) = measurer.measure([best])
        if measured.refusal is not None:
            raise ScheduleError(f"at {told} {measured.refusal}")
        compared = measurer.beats(best, seconds=seconds)
        if compared.speedup < 1 - _NOISE:
            raise ScheduleError(f"slower at {told}: {compared}")


# -- what was tried --------------------------------------------------------------------------------


class Trials:
    """Points that were measured, a line each, so that another run begins with them.

    path  of the file; None: they are forgotten
    """

    def __init__(self, path: pathlib.Path | None) -> None:
        self._file = None if path is None else LineFile(str(path))
        self._known: dict[str, list[tuple[float, Any]]] = {}
        for _, line in () if self._file is None else self._file.fresh():
            with contextlib.suppress(ValueError, RecursionError):
                match json.loads(line):
                    case [str(key), point, float(seconds)] if math.isfinite(seconds):
                        self._known.setdefault(key, []).append((seconds, point))
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)

    def of(self, fn: PrimFunc) -> list[Any]:
        """Points of a function as JSON, the fastest first."""
        known = sorted(self._known.get(key_of(fn), []), key=lambda pair: pair[0])
        return [point for _, point in known[:_POINTS]]

    def add(self, fn: PrimFunc, candidate: MeasureCandidate, measured: Measured) -> None:
        """Note what became of a candidate, if it is a point."""
        if candidate.point is not None:
            refusal = None if measured.refusal is None else measured.refusal.kind
            self.note(fn, candidate.point.as_json(), measured.seconds or refusal)

    def note(self, fn: PrimFunc, point: Any, outcome: float | str | None) -> None:
        """Note a point, as JSON: its seconds, or the kind of its refusal."""
        if self._file is not None:
            self._file.append([key_of(fn), point, outcome])


__getattr__ = submodules(__name__)
