"""`Station`: rounds of searching and measuring kernels on the machine that it is on, for a driver
that may be on another.

What goes to and fro is plain data, and little of it: drawing a candidate takes 20 to 500 ms of a
core, so that it is drawn where it is measured.
"""

from __future__ import annotations

import contextlib
import math
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Any, Protocol

import llvmlite
import numpy as np

from ..base import RelaxvmError, ScheduleError, record, submodules
from ..ir import PassContext, load_msgpack
from ..runtime import machine_roof
from ..target import Target, cpu_model, machine_of
from ..tir import PrimFunc
from .arg_info import entry_of
from .builder import Builder, LocalBuilder
from .candidate import MeasureCandidate
from .database import MemoryDatabase, TuningRecord, Workload, circumstances
from .engine import NO_END, Engine
from .measure import QUICK, Measured, OutOfTime
from .runner import LocalRunner, Runner, RunnerResult
from .search_strategy import CountedStrategy
from .tasks import Listener, Task

# The reference kernel runs so often; its best counts.
_ROOFS = 3


@record
class Order:
    """A piece of work for a station.

    task     the name of the kernel
    kernel   a module of it, saved; None where the station has it
    count    how many candidates are drawn and measured; 0: `points` run against the default
             schedule by turns, until one is surely faster
    seconds  after which it has to be over
    points   as JSON: what is measured first, or compared
    sizes    of its symbols, as a `Task` has them
    news     (point as JSON, its time as a part of the default schedule's) that others measured
    """

    task: str
    kernel: bytes | None
    count: int
    seconds: float
    points: Sequence[Any] = ()
    news: Sequence[tuple[Any, float]] = ()
    sizes: Mapping[str, int | float] = field(default_factory=dict)


@record
class Report:
    """What a station did.

    state    of the kernel there: "searching", or why it is not
    default  seconds of the default schedule there; None if it could not be measured
    trials   (point as JSON, its time as a part of the default schedule's, or the kind of its
             refusal) of each candidate
    spent    seconds
    final    of the comparison by turns
    record   if that was won: (workload, record, about), as JSON
    """

    state: str
    default: float | None = None
    trials: Sequence[tuple[Any, float | str]] = ()
    roof_share: float | None = None
    correlation: float | None = None
    spent: float = 0.0
    final: Any = None
    record: Any = None


class Setting(Protocol):
    """What an engine is made with (`tuning.Setting`)."""

    @property
    def target(self) -> Target: ...

    @property
    def threads(self) -> int: ...

    def engine(
        self,
        tasks: list[Task],
        database: MemoryDatabase,
        builder: Builder,
        runner: Runner,
        tell: Listener,
        trials: Any,
    ) -> Engine: ...


class Station:
    """Searches and measures kernels.

    setting  of the tuning, whose limits of trials are the driver's
    context  `plain_context` of the driver
    number   of the station: searches of two differ
    """

    def __init__(self, setting: Setting, context: Sequence[Any], number: int) -> None:
        self._target, self._context, self._number = setting.target, context, number
        self._stopped = False
        self._log = _Log()
        self._numbers: dict[str, int] = {}
        self._builder = LocalBuilder(setting.threads)
        self._runner = LocalRunner(10.0, QUICK, num_threads=setting.threads)
        self._engine = setting.engine(
            [], MemoryDatabase(), self._builder, self._runner, self._tell, self._log
        )

    def about(self) -> dict[str, Any]:
        """{"same": what has to be the same at all stations, "speed": of a reference kernel,
        "process": its number}
        """
        speeds = []
        for _ in range(_ROOFS):
            machine_roof.machine_roof.cache_clear()
            speeds.append(machine_roof.machine_roof().flops_per_second)
        machine, cpu = machine_of(self._target), cpu_model(self._target)
        return {
            "same": {
                "cpu": machine.cpu,
                "features": machine.features,
                "caches": [cpu.l1_bytes, cpu.l2_bytes, cpu.l3_bytes],
                "system": platform.system(),
                "llvmlite": llvmlite.__version__,
                "numpy": np.__version__,
            },
            "speed": max(speeds),
            "process": os.getpid(),
        }

    def done(self, order: Order) -> Report:
        """Do what was ordered. What a kernel or a candidate is refused for stands in the report."""
        level, required, disabled, config = self._context
        begun, self._log.tried = time.perf_counter(), []
        # Who compares what was found is not to stop any more.
        self._stopped = self._stopped and order.count > 0
        with PassContext(level, required, disabled, None, config):
            number = self._number_of(order)
            task = self._engine.tasks[number]
            try:
                if number not in self._engine.measurers:
                    self._log.first = list(order.points) if order.count else []
                    # The limit of the last order was another kernel's.
                    self._engine.most_of_task = NO_END
                    until = begun + order.seconds if order.count else math.inf
                    self._engine.begin(number, until)
                report = self._round(number, order) if order.count else self._final(number, order)
            except KeyboardInterrupt:
                report = self._report(task)
            except OutOfTime:
                report = Report("waiting")
            except RelaxvmError as error:
                report = Report(f"cannot be measured: {error}")
        return replace(report, spent=time.perf_counter() - begun)

    def stop(self) -> None:
        """End the round that another thread is in, as soon as a candidate is measured."""
        self._stopped = True

    def close(self) -> None:
        """Give back its processes."""
        self._builder.close()
        self._runner.close()

    def _tell(self, kind: str, task: Task | None, text: str) -> None:
        if self._stopped:
            raise KeyboardInterrupt

    def _number_of(self, order: Order) -> int:
        """The number of the task here."""
        if order.task not in self._numbers:
            if order.kernel is None:
                raise ScheduleError(f"the station was told nothing of the kernel {order.task}")
            self._numbers[order.task] = len(self._engine.tasks)
            fn = entry_of(load_msgpack(order.kernel))
            self._engine.tasks.append(Task(order.task, fn, 1.0, sizes=order.sizes))
        return self._numbers[order.task]

    def _round(self, number: int, order: Order) -> Report:
        task = self._engine.tasks[number]
        self._hear(task, order)
        self._engine.most_of_task = task.trials + order.count
        # Whether it is worth going on, the driver says.
        task.hope = math.inf
        self._engine.round(number, time.perf_counter() + order.seconds)
        return self._report(task)

    def _hear(self, task: Task, order: Order) -> None:
        """Learn what others measured, where the strategy learns from what it did not propose."""
        if task.ctx is None or not isinstance(task.ctx.search_strategy, CountedStrategy):
            return
        space, candidates, results = task.ctx.space, [], []
        for saved, part in order.news:
            with contextlib.suppress(RelaxvmError):
                candidates.append(space.candidate(space.point_from_json(saved)))
                results.append(RunnerResult([part * (task.default_seconds or 1.0)]))
        if candidates:
            task.ctx.search_strategy.learn(candidates, results)
            if self._engine.cost_model is not None:
                self._engine.cost_model.update(task.ctx, candidates, results)

    def _final(self, number: int, order: Order) -> Report:
        task, database = self._engine.tasks[number], self._engine.database
        assert task.ctx is not None
        assert database is not None
        space = task.ctx.space
        finalists = [space.candidate(space.point_from_json(saved)) for saved in order.points]
        task.fastest = [(0.0, candidate) for candidate in finalists]
        before, end = len(database), time.perf_counter() + order.seconds
        confidence = self._engine.confidence or 0.95
        self._engine.final(task, self._engine.measurers[number], end, confidence)
        record = None
        for new in database.get_all_tuning_records()[before:]:
            about = {**circumstances(new.target), **new.about}
            record = (new.workload.as_json(), new.as_json(), about)
        return replace(self._report(task), final=task.final, record=record)

    def _report(self, task: Task) -> Report:
        default = task.default_seconds
        trials = [
            (
                None if candidate.point is None else candidate.point.as_json(),
                str(measured.refusal and measured.refusal.kind)
                if measured.seconds is None
                else measured.seconds / (default or 1.0),
            )
            for candidate, measured in self._log.tried
        ]
        return Report(task.state, default, trials, task.roof_share, task.correlation)


class _Log:
    """What was tried in a round, and what is tried first."""

    def __init__(self) -> None:
        self.first: list[Any] = []
        self.tried: list[tuple[MeasureCandidate, Measured]] = []

    def of(self, fn: PrimFunc) -> list[Any]:
        return self.first

    def add(self, fn: PrimFunc, candidate: MeasureCandidate, measured: Measured) -> None:
        self.tried.append((candidate, measured))


def record_from(saved: Any) -> TuningRecord:
    """The record of a report. Raises LoadError if it is none."""
    workload, record, about = saved
    return TuningRecord.from_json(record, Workload.from_json(workload), about)


__getattr__ = submodules(__name__)
