"""TVM's ways to tune a loop function: `tune_tir`, with a config or with keywords, `tune_te`, and
`compile_tir`.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import ScheduleError, record, submodules
from ..ir import IRModule
from ..target import Target
from ..te import Tensor, create_prim_func
from ..tir import PrimFunc
from ..tir.schedule import Instruction, Schedule, Trace
from ..tir.schedule.plans import as_tuned
from ..tir.transform import with_index_dtype
from .arg_info import entry_of
from .database import Database, key_of
from .derived import asked
from .progress import Progress
from .space import Space
from .tasks import INTERRUPTED, TIME, Task
from .tuning import Parts, tune_kernels

_logger = logging.getLogger("relaxvm.meta_schedule")


@record
class TuneConfig:
    """How much is tried.

    max_trials_global     of all kernels together
    num_trials_per_iter   in one round
    max_trials_per_task   of each kernel; None: as many as of all
    max_seconds           ends earlier, if they pass
    strategy              "evolutionary", "replay-trace", "replay-func"
    """

    max_trials_global: int = 64
    num_trials_per_iter: int = 16
    max_trials_per_task: int | None = None
    max_seconds: float = math.inf
    strategy: str = "evolutionary"


class TunedTIR(Schedule):
    """What `tune_tir` gives: the schedule of the fastest that was found (`mod`, `trace`, `show`),
    and the database (`query_schedule`, `query_tuning_record`, ..., `with`), in one.
    """

    database: Database
    tuned: tuple[list[str], Target]

    def is_of(self, mod: IRModule | PrimFunc, target: Target) -> bool:
        """Whether it is a schedule of the loop function of `mod` alone, for such a target."""
        keys, own = self.tuned
        return keys == [key_of(entry_of(mod))] and own.kind_name == target.kind_name

    def __len__(self) -> int:
        """How many records the database has."""
        return len(self.database)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        return f"TunedTIR({super().__repr__()}, {type(self.database).__name__} of {len(self)})"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or "database" not in self.__dict__:
            raise AttributeError(name)
        return getattr(self.database, name)

    def __enter__(self) -> Database:
        return self.database.__enter__()

    def __exit__(self, *exception: object) -> None:
        self.database.__exit__(*exception)


def tune_tir(
    mod: IRModule | PrimFunc,
    target: Any = None,
    config: TuneConfig | str | os.PathLike[str] | None = None,
    work_dir: str | os.PathLike[str] | int | None = None,
    max_trials_global: int | None = None,
    *,
    task_name: str = "main",
    max_trials_per_task: int | None = None,
    num_trials_per_iter: int | None = None,
    max_seconds: float | None = None,
    database: Database | str | None = None,
    module_equality: str = "structural",
    seed: int | None = None,
    listener: Any = None,
    **parts: Any,
) -> TunedTIR:
    """Find a faster schedule for a loop function.

    mod              a PrimFunc, or a module; of a module with several, each is tuned, and the
                     schedule is of all, under their names
    target           "llvm -num-cores=2", a `Target`, or None
    config           a `TuneConfig`; or its fields as keywords, as newer TVM has them, whose
                     positional arguments are mod, target, work_dir and max_trials_global
    work_dir         keeps records and what was tried; tuning goes on with what is there
    database         takes the records ("json": the one in `work_dir`; "memory")
    module_equality  of a database that is made here
    max_seconds      ends the search, if the trials do not
    seed             of the search
    listener         as of `relaxvm.tune`; False: nothing is shown
    parts            fields of `Parts`: builder, runner, cost_model, measure_callbacks,
                     task_scheduler, space, strategy, special_space, num_tuning_cores

    Returns what serves as a `Schedule` and as a database: `.mod`, `.trace`, `.query_schedule(...)`.
    Where nothing surely faster was found, `.mod` has the default schedule and there is no record.
    Raises ScheduleError for a function that cannot be measured, with the reason, and DerivedError
    for what a user's part raised, after the best so far was kept.
    """
    if isinstance(config, (str, os.PathLike)):
        config, work_dir, max_trials_global = None, config, work_dir or max_trials_global
    limits = TuneConfig() if config is None else config
    if not isinstance(limits, TuneConfig):
        raise ScheduleError(f"tune_tir: config: wanted a TuneConfig, got {config!r}")
    if isinstance(work_dir, int):
        raise ScheduleError(f"tune_tir: work_dir: wanted a folder, got {work_dir!r}")
    most = limits.max_trials_global if max_trials_global is None else max_trials_global
    of_task = limits.max_trials_per_task if max_trials_per_task is None else max_trials_per_task
    size = limits.num_trials_per_iter if num_trials_per_iter is None else num_trials_per_iter
    seconds = limits.max_seconds if max_seconds is None else max_seconds
    loops = _loops(mod, task_name)
    special = parts.get("special_space")
    unknown = set(special) - set(loops) if isinstance(special, Mapping) else None
    if unknown:
        raise ScheduleError(
            f"tune_tir: special_space: no kernel is called {', '.join(sorted(unknown))}; there are:"
            f" {', '.join(loops)}"
        )
    tasks = [Task(name, fn, 1.0 / len(loops), names=[name]) for name, fn in loops.items()]
    with Progress.chosen(listener, seconds) as tell:
        tuned = tune_kernels(
            tasks, seconds, target=target, work_dir=work_dir, max_trials=most,
            max_trials_per_task=of_task, round_trials=size, seed=seed or 0, database=database,
            module_equality=module_equality, listener=tell,
            parts=Parts(**{"strategy": limits.strategy, **parts}),
        )  # fmt: skip
    is_over = tuned.ended in (INTERRUPTED, TIME) or len(tasks) > 1
    for task in tasks:
        if task.is_failed or (task.default_seconds is None and not is_over):
            raise ScheduleError(f"tune_tir: {task.name}: {task.state}")
    _logger.info("%s", tuned)
    return _answer(tuned.database, mod, loops, target)


def tune_te(tensors: Sequence[Tensor], target: Any = None, *args: Any, **options: Any) -> TunedTIR:
    """Find a faster schedule for a formula: `tune_tir` of `te.create_prim_func(tensors)`, of which
    the further arguments are.

    tensors  arguments and results, as for `te.create_prim_func`
    """
    return tune_tir(create_prim_func(list(tensors)), target, *args, **options)


def compile_tir(
    database: Database | TunedTIR, mod: IRModule | PrimFunc, target: Any = None
) -> Schedule | None:
    """The fastest schedule that a database has for a loop function, or None. What `tune_tir` gave
    for that very function is its own answer where the default schedule stays.
    """
    chosen = Target.or_current(target)
    if not isinstance(database, TunedTIR):
        return database.query_schedule(mod, chosen)
    best: Schedule | None = database.database.query_schedule(mod, chosen)
    return database if best is None and database.is_of(mod, chosen) else best


def _loops(mod: IRModule | PrimFunc, task_name: str) -> dict[str, PrimFunc]:
    """What is tuned, by the names of tasks. Raises ScheduleError if that is nothing."""
    if isinstance(mod, IRModule):
        loops = {gv.name_hint: fn for gv, fn in mod.items() if isinstance(fn, PrimFunc)}
        if len(loops) > 1:
            return loops
    return {task_name: entry_of(mod)}


def _answer(
    database: Database, mod: IRModule | PrimFunc, loops: Mapping[str, PrimFunc], target: Any
) -> TunedTIR:
    starts: dict[str, tuple[PrimFunc, Trace]] = {}
    for name, fn in loops.items():
        with asked(database, "query_tuning_record"):
            record = database.query_tuning_record(fn, Target.or_current(target))
        best = Space(fn, target).default().schedule if record is None else record.schedule(fn)
        # Marked as builds mark what they schedule, so that it is compiled as it was measured.
        wide = with_index_dtype(fn, "int64")
        start = fn if record is not None and key_of(fn) == record.workload.key else wide
        starts[name if len(loops) > 1 else "main"] = as_tuned(start, start), best.trace
    whole = IRModule(mod.functions if isinstance(mod, IRModule) and len(loops) > 1 else {})
    for name, (start, _) in starts.items():
        whole[name] = start
    answer = TunedTIR(whole)
    for name, (_, trace) in starts.items():
        answer.work_on(name)
        _of_function(trace, name).apply_to_schedule(answer)
    answer.database = database
    answer.tuned = [key_of(fn) for fn in loops.values()], Target.or_current(target)
    return answer


def _of_function(trace: Trace, name: str) -> Trace:
    """The steps of another function, which is called `name`."""
    named = [
        Instruction.of(i.kind, {**i.args, "func_name": name}, i.outputs)
        if "func_name" in i.args
        else i
        for i in trace.insts
    ]
    decided = trace.decisions
    return Trace(named, {k: decided[i] for k, i in enumerate(trace.insts) if i in decided})


__getattr__ = submodules(__name__)
