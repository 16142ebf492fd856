"""TVM's ways to tune a model: `tune_relax`, its parts, and `compile_relax`. In TVM this is
``tvm.meta_schedule.relax_integration``, and so it is called here, too.

    database = ms.relax_integration.tune_relax(mod, params, "llvm", "logs", max_trials_global=64)
    ex = ms.relax_integration.compile_relax(database, mod, "llvm", params)
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from .base import ScheduleError, submodules
from .ir import IRModule
from .meta_schedule import (
    Database,
    ExtractedTask,
    Parts,
    Progress,
    SearchStrategy,
    SpaceGenerator,
    TuneContext,
    tune_kernels,
)
from .meta_schedule import tasks_from as tasks_of_kernels
from .meta_schedule.logging import get_loggers_from_work_dir
from .pipeline import build, ready_to_schedule
from .relax import Function
from .relax.analysis import kernel_calls
from .relax.vm_build import bind_params
from .runtime import Executable
from .target import Target
from .tuning import kernels_of, tasks_of


def extract_tasks(
    mod: IRModule | Function,
    target: Any,
    params: Mapping[str, Any] | None = None,
    *,
    module_equality: str = "structural",
) -> list[ExtractedTask]:
    """The kernels that a build of `mod` for `target` would choose schedules for, equal ones once,
    those that are called most often first.

    params           parameters of the graph functions that are known: {name: array}
    module_equality  which kernels are equal; all that TVM knows mean the same, as loop functions
                     hold no arrays here
    """
    chosen = Target.or_current(target)
    mod = ready_to_schedule(_bound(mod, params), chosen)
    tasks = tasks_of_kernels(kernels_of(mod), kernel_calls(mod))
    modules = [IRModule({"main": t.fn}) for t in tasks]
    return [ExtractedTask(t.name, m, chosen, [m], round(t.share)) for t, m in zip(tasks, modules)]


def extracted_tasks_to_tune_contexts(
    extracted_tasks: Sequence[ExtractedTask],
    work_dir: str | os.PathLike[str],
    space: Any = None,
    strategy: SearchStrategy | str = "evolutionary",
    num_threads: int | str = "physical",
    seed: int | None = None,
) -> tuple[list[TuneContext], list[float]]:
    """What `ms.tune_tasks` takes: a context for each task, and how often each runs.

    work_dir  gets a log of each task
    space     a space generator, or its kind; None: that of `TuneContext`
    strategy  its kind, or a `SearchStrategy`; each context has a clone
    seed      of the searches; None: another one each time
    """
    loggers = get_loggers_from_work_dir(work_dir, [t.task_name for t in extracted_tasks])
    contexts = [
        TuneContext(
            task.mod,
            target=task.target,
            space_generator=space.clone() if isinstance(space, SpaceGenerator) else space,
            search_strategy=strategy if isinstance(strategy, str) else strategy.clone(),
            task_name=task.task_name,
            rand_state=-1 if seed is None else seed + k,
            num_threads=num_threads,
            logger=logger,
        )
        for k, (task, logger) in enumerate(zip(extracted_tasks, loggers))
    ]
    return contexts, [float(task.weight) for task in extracted_tasks]


def tune_relax(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: Any,
    work_dir: str | os.PathLike[str],
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
    *,
    num_trials_per_iter: int = 16,
    max_seconds: float = math.inf,
    database: Database | str | None = None,
    module_equality: str = "structural",
    seed: int | None = None,
    listener: Any = None,
    **parts: Any,
) -> Database:
    """Tune the kernels of a model; the records.

    params            parameters of the graph functions that are known: {name: array}
    work_dir          keeps records and what was tried; tuning goes on with what is there
    max_trials_global, max_trials_per_task  how many candidates are measured, of all and of each
    num_trials_per_iter  of a kernel before the next is chosen
    op_names          only kernels whose names hold one of these words
    max_seconds       ends the search, if the trials do not
    database          takes the records instead of one in `work_dir` ("memory": nothing stays)
    listener          is told what happens (False: nobody)
    parts             what the tuning is made of: builder, runner, cost_model, measure_callbacks,
                      task_scheduler, space, strategy, num_tuning_cores, as of `tune_tir`

    Raises ScheduleError if there is nothing to tune.
    """
    tasks = tasks_of(_bound(mod, params), target)
    if op_names is not None:
        if isinstance(op_names, str):
            raise ScheduleError(f"tune_relax: op_names: wanted a list of words, got {op_names!r}")
        tasks = [t for t in tasks if any(word in t.name for word in op_names)]
    if not tasks:
        raise ScheduleError(f"tune_relax: no kernel is named like one of {op_names}")
    with Progress.chosen(listener, max_seconds) as tell:
        tuned = tune_kernels(
            tasks, max_seconds, target=target, work_dir=work_dir, max_trials=max_trials_global,
            max_trials_per_task=max_trials_per_task, round_trials=num_trials_per_iter,
            seed=seed or 0, database=database, module_equality=module_equality, listener=tell,
            parts=Parts(**parts),
        )  # fmt: skip
    return tuned.database


def compile_relax(
    database: Database,
    mod: IRModule | Function,
    target: Any,
    params: Mapping[str, Any] | None = None,
    enable_warning: bool = False,
) -> Executable:
    """A model built with the schedules that `database` has for its kernels.

    params          as of `tune_relax`
    enable_warning  accepted as in TVM; what is not in the database is in the executable's `report`
    """
    if not isinstance(database, Database):
        raise ScheduleError(
            f"compile_relax: wanted a Database, got {database!r}; "
            "JSONDatabase(work_dir=...) reads one"
        )
    with database:
        return build(_bound(mod, params), target)


def _bound(mod: IRModule | Function, params: Mapping[str, Any] | None) -> IRModule:
    return bind_params(IRModule.from_expr(mod) if isinstance(mod, Function) else mod, params or {})


__getattr__ = submodules(__name__)
