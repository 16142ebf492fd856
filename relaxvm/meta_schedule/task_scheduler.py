"""Task schedulers: of which kernel candidates are measured next.

class Last(ms.task_scheduler.PyTaskScheduler):
    def next_task_id(self):
        open_tasks = [n for n, task in enumerate(self.tasks_) if not task.is_terminated]
        return max(open_tasks, default=-1)
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Sequence
from typing import Any

from ..base import ScheduleError, submodules
from ..target import Target
from .builder import Builder
from .cost_model import CostModel
from .database import Database
from .engine import NO_END, Engine, Trials
from .measure import Measurer
from .measure_callback import MeasureCallback
from .progress import line_of
from .runner import Runner, RunnerResult
from .tasks import Task
from .tune_context import TuneContext

_logger = logging.getLogger("relaxvm.meta_schedule")


class TaskScheduler:
    """Derive from it (`PyTaskScheduler`) by giving `next_task_id`.

    tasks_              kernels as `Task`s, each with its context `ctx`
    database_           takes records; `cost_model_` learns; `measure_callbacks_` are told
    remaining_tasks_    how many of the tasks go on
    """

    engine: Engine | None = None

    @property
    def tasks_(self) -> list[Task]:
        return self._engine.tasks

    @property
    def database_(self) -> Database | None:
        return self._engine.database

    @property
    def cost_model_(self) -> CostModel | None:
        return self._engine.cost_model

    @property
    def measure_callbacks_(self) -> Sequence[MeasureCallback]:
        return self._engine.callbacks

    @property
    def remaining_tasks_(self) -> int:
        return sum(not task.is_terminated for task in self.tasks_)

    @property
    def _engine(self) -> Engine:
        if self.engine is None:
            raise ScheduleError(f"{type(self).__name__} has no tasks until it tunes")
        return self.engine

    def next_task_id(self) -> int:
        """The number of a task that is not terminated; -1: that is all."""
        raise NotImplementedError(f"{type(self).__name__} does not say what is next")

    def tune(
        self,
        tasks: Sequence[TuneContext],
        task_weights: Sequence[float],
        max_trials_global: int,
        max_trials_per_task: int,
        num_trials_per_iter: int,
        builder: Builder,
        runner: Runner,
        measure_callbacks: Sequence[MeasureCallback] = (),
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Measure candidates of contexts, and nothing else: what becomes of them is for callbacks.
        `ms.tune_tasks` compares the fastest with the default schedules and keeps records of them.

        task_weights  how often each kernel runs
        """
        if len(tasks) != len(task_weights) or not tasks:
            raise ScheduleError(
                f"tune: wanted tasks and a weight for each, got {len(tasks)} tasks and "
                f"{len(task_weights)} weights"
            )
        target = Target.or_current(tasks[0].target)
        engine = Engine(
            [Task.of(ctx, weight) for ctx, weight in zip(tasks, task_weights)],
            self, target, database, cost_model, measure_callbacks, _has_context,
            lambda task, until: Measurer(
                task.fn, (task.ctx and task.ctx.target) or target, builder=builder, runner=runner,
                one=task.sized[0], until=until,
            ),
            lambda kind, task, text: None, Trials(None), None,
            num_trials_per_iter, max_trials_global, max_trials_per_task or NO_END,
        )  # fmt: skip
        self.engine = engine
        engine.run(math.inf)

    def terminate_task(self, task_id: int) -> None:
        """Measure no more candidates of a task."""
        self.tasks_[task_id].state = "ended by the task scheduler"

    def touch_task(self, task_id: int) -> None:
        """Begin a task, and measure some of its candidates, before it is its turn."""
        if not self.tasks_[task_id].is_terminated:
            self._engine.round(task_id)

    def join_running_task(self, task_id: int) -> list[RunnerResult]:
        """What became of the last candidates of a task. Nothing runs between two rounds."""
        return self.tasks_[task_id].results

    def print_tuning_statistics(self) -> None:
        """A line for each task, to the log."""
        for task in self.tasks_:
            _logger.info("%s", line_of(task))

    @staticmethod
    def create(kind: str = "gradient", *args: Any, **options: Any) -> TaskScheduler:
        """A scheduler by its kind: "gradient", "round-robin"."""
        if kind not in _KINDS:
            listed = ", ".join(_KINDS)
            raise ScheduleError(f"TaskScheduler.create: kind is one of {listed}, got {kind!r}")
        return _KINDS[kind](*args, **options)


PyTaskScheduler = TaskScheduler


def _has_context(task: Task) -> TuneContext:
    assert task.ctx is not None
    return task.ctx


class RoundRobin(TaskScheduler):
    """One after the other."""

    _last = -1

    def next_task_id(self) -> int:
        count = len(self.tasks_)
        turns = ((self._last + 1 + k) % count for k in range(count))
        self._last = next((n for n in turns if not self.tasks_[n].is_terminated), -1)
        return self._last


class GradientBased(TaskScheduler):
    """The kernel of which a round is expected to win most of the time of all, for what it costs: by
    its share of that time, its distance from the machine's roof, and what its rounds won.

    alpha        weight of what the last rounds won on average, against the most that one of them
                 won, which fades
    window_size  how many rounds are the last
    seed         of the choice where nothing is expected of any; -1: another one each time
    """

    def __init__(self, *, alpha: float = 0.2, window_size: int = 3, seed: int = -1) -> None:
        if not 0 <= alpha <= 1 or type(window_size) is not int or window_size < 1:
            raise ScheduleError(
                f"GradientBased: wanted alpha from 0 to 1 and window_size from 1, got {alpha!r} "
                f"and {window_size!r}"
            )
        self.alpha, self.window_size = alpha, window_size
        self._rng = random.Random(None if seed == -1 else seed)

    def next_task_id(self) -> int:
        gains = {n: self.gain(t) for n, t in enumerate(self.tasks_) if not t.is_terminated}
        if not gains:
            return -1
        if not any(gains.values()):
            return self._rng.choice([*gains])
        return max(gains, key=lambda n: gains[n])

    def gain(self, task: Task) -> float:
        """Expected of a round, for each second of it, as a part of the time of all kernels."""
        if task.default_seconds is None or not task.trials:
            return math.inf if task.default_seconds is None else task.share * 1e3
        best = task.best_seconds or task.default_seconds
        left = task.share * best / task.default_seconds * (1 - (task.roof_share or 0.0))
        last = task.won[-self.window_size :]
        expected = (1 - self.alpha) * task.hope + self.alpha * sum(last) / max(1, len(last))
        return left * expected * task.trials / max(task.spent, 1e-3)


_KINDS: dict[str, Callable[..., TaskScheduler]] = {
    "gradient": GradientBased,
    "round-robin": RoundRobin,
}
create = TaskScheduler.create

__getattr__ = submodules(__name__)
