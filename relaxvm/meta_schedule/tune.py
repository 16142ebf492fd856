"""`tune_tasks`, TVM's way to tune several kernels whose contexts say how each is searched."""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Sequence
from typing import Any

from ..base import ScheduleError, submodules
from .database import Database
from .progress import Progress
from .tasks import INTERRUPTED, TIME, Task
from .tune_context import TuneContext
from .tuning import Parts, tune_kernels

_logger = logging.getLogger("relaxvm.meta_schedule")


def tune_tasks(
    *,
    tasks: Sequence[TuneContext],
    task_weights: Sequence[float],
    max_trials_global: int | None = None,
    work_dir: str | os.PathLike[str] | None = None,
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int = 64,
    max_seconds: float = math.inf,
    database: Database | str | None = None,
    module_equality: str = "structural",
    seed: int = 0,
    listener: Any = None,
    **parts: Any,
) -> Database:
    """Find faster schedules for kernels.

    tasks                a context for each, with a search strategy
    task_weights         how often each runs
    max_trials_global    candidates in all, `max_trials_per_task` of each, `num_trials_per_iter` in
                         a round
    max_seconds          ends the search, if the trials do not
    work_dir             keeps records and what was tried; tuning goes on with what is there
    database             takes the records; a kind: "json" (in `work_dir`), "memory"
    seed                 of the cost model and the task scheduler
    listener             as of `relaxvm.tune`; False: nothing is shown
    parts                fields of `Parts`: builder, runner, cost_model, measure_callbacks,
                         task_scheduler, num_tuning_cores; spaces and strategies are the contexts'

    Returns the database. It has a record of each kernel for which something surely faster than the
    default schedule was found. Raises ScheduleError if none could be measured.
    """
    if len(tasks) != len(task_weights) or not tasks:
        raise ScheduleError(
            f"tune_tasks: wanted tasks and a weight for each, got {len(tasks)} tasks and "
            f"{len(task_weights)} weights"
        )
    idle = sorted({"space", "strategy", "special_space"} & set(parts))
    if idle:
        raise ScheduleError(f"tune_tasks: {', '.join(idle)}: the contexts in `tasks` say that")
    tuned_tasks = [Task.of(ctx, weight) for ctx, weight in zip(tasks, task_weights)]
    with Progress.chosen(listener, max_seconds) as tell:
        tuned = tune_kernels(
            tuned_tasks, max_seconds, target=tasks[0].target, work_dir=work_dir,
            max_trials=max_trials_global, max_trials_per_task=max_trials_per_task, seed=seed,
            round_trials=num_trials_per_iter, database=database, module_equality=module_equality,
            listener=tell, parts=Parts(**parts),
        )  # fmt: skip
    is_over = tuned.ended in (INTERRUPTED, TIME)
    if not is_over and all(task.default_seconds is None for task in tuned_tasks):
        told = "; ".join(f"{task.name}: {task.state}" for task in tuned_tasks)
        raise ScheduleError(f"tune_tasks: nothing was measured: {told}")
    _logger.info("%s", tuned)
    return tuned.database


__getattr__ = submodules(__name__)
