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
import functools
import math
import os
import pathlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..base import ScheduleError, record, submodules
from ..ir import IRModule
from ..target import Target, cpu_model
from .builder import Builder, plain_context
from .cost_model import CostModel, XGBModel
from .database import Database, JSONDatabase, MemoryDatabase
from .derived import DerivedError
from .engine import NO_END, Engine, Trials
from .fleet import FleetEngine
from .interrupts import heard, interrupts
from .measure import QUICK, Measurer
from .measure_callback import MeasureCallback, UpdateCostModel
from .priors import priors
from .ray_fleet import RayFleet
from .runner import LocalRunner, RayRunner, Runner
from .search_strategy import SearchStrategy
from .space_generator import SpaceGenerator
from .task_scheduler import GradientBased, TaskScheduler
from .tasks import INTERRUPTED, Listener, Task, Tuned
from .tune_context import TuneContext, number_of_cores

_ROUND = 16
_TRIALS = "trials.jsonl"


_NONE = type(None)
_KINDS: dict[str, tuple[type, ...]] = {
    "builder": (Builder, str),
    "runner": (Runner, str),
    "cost_model": (CostModel, str, _NONE),
    "measure_callbacks": (MeasureCallback, Sequence),
    "task_scheduler": (TaskScheduler, str),
    "strategy": (SearchStrategy, str),
    "special_space": (Mapping, _NONE),
    "num_tuning_cores": (int, str),
}
"""What the fields of `Parts` may be, but for spaces."""


@record
class Parts:
    """What a tuning is made of; each is an object, of the user's perhaps, or the name of a kind.

    builder            "local" or a `Builder`; "ray" with that runner, whose workers build
    runner             "local", another kind of `Runner.create`, or a `Runner`. With "ray" or a
                       `RayRunner`, each of its workers searches, builds and measures; parts of the
                       user's are copied to them
    cost_model         "xgb", which begins with what ships with the package (`ms.priors`), "mlp",
                       "random", or a `CostModel`, which may be loaded with what is known already;
                       None: candidates are chosen without one
    measure_callbacks  "default": the cost model learns, and records are committed of what is surely
                       faster than the default schedule; or callbacks, in whose place then `.apply`
                       is all that happens to the candidates of a round, before the finals
    task_scheduler     "gradient", "round-robin", or a `TaskScheduler`
    space              a space generator, its kind ("post-order-apply"), or a function that
                       schedules; each kernel gets a clone. None: what the default schedule could
                       decide otherwise, and what rules for any block design
    strategy           "evolutionary", "replay-trace", "replay-func", or a `SearchStrategy`; each
                       kernel gets a clone
    special_space      {name of a kernel: the space generator for it}
    num_tuning_cores   how many processes build: a number, "physical" or "logical"
    """

    builder: Builder | str = "local"
    runner: Runner | str = "local"
    cost_model: CostModel | str | None = "xgb"
    measure_callbacks: MeasureCallback | Sequence[MeasureCallback] | str = "default"
    task_scheduler: TaskScheduler | str = "gradient"
    space: Any = None
    strategy: SearchStrategy | str = "evolutionary"
    special_space: Mapping[str, Any] | None = None
    num_tuning_cores: int | str = "physical"

    def __post_init__(self) -> None:
        # What is of no kind is an error of the whole, not of a kernel.
        for name, kinds in _KINDS.items():
            value = getattr(self, name)
            if not isinstance(value, kinds):
                wanted = " or ".join(k.__name__ for k in kinds)
                raise ScheduleError(f"tune: {name}: wanted {wanted}, got {value!r}")
        listed = self.measure_callbacks
        for callback in () if isinstance(listed, (str, MeasureCallback)) else listed:
            if not isinstance(callback, MeasureCallback):
                raise ScheduleError(
                    f"tune: measure_callbacks: wanted MeasureCallback objects, got {callback!r}"
                )
        for space in (self.space, *(self.special_space or {}).values()):
            if not (space is None or isinstance(space, (SpaceGenerator, str)) or callable(space)):
                raise ScheduleError(
                    "tune: wanted a space generator, its kind, or a function that schedules, got "
                    f"{space!r}"
                )
        self._new_strategy()

    def _new_strategy(self) -> SearchStrategy:
        if isinstance(self.strategy, str):
            return SearchStrategy.create(self.strategy)
        return self.strategy.clone()

    @contextlib.contextmanager
    def opened(self, threads: int) -> Iterator[tuple[Builder, Runner]]:
        """Builder and runner; those that are made here are closed."""
        with contextlib.ExitStack() as stack:
            builder, runner = self.builder, self.runner
            is_ray = runner == "ray" or isinstance(runner, RayRunner)
            if builder == "ray" or is_ray:
                if not is_ray or builder not in ("local", "ray"):
                    raise ScheduleError(
                        "tune: the workers of Ray build what they run: say runner='ray' (or a "
                        "RayRunner) and leave the builder out, or neither; got "
                        f"builder={builder!r} and runner={runner!r}"
                    )
                builder = "local"
            cores = number_of_cores(self.num_tuning_cores)
            if isinstance(builder, str):
                builder = Builder.create(builder, max_workers=cores)
                stack.callback(builder.close)
            if runner == "local":
                runner = LocalRunner(10.0, QUICK, num_threads=threads)
                stack.callback(runner.close)
            elif isinstance(runner, str):
                runner = Runner.create(runner)
                stack.callback(runner.close)
            yield builder, runner

    def model(self, seed: int) -> CostModel | None:
        """The cost model."""
        if self.cost_model == "xgb":
            return XGBModel(seed=seed, prior=priors())
        if isinstance(self.cost_model, str):
            return CostModel.create(self.cost_model, seed=seed)
        return self.cost_model

    def callbacks(self) -> list[MeasureCallback]:
        """The callbacks of a round."""
        callbacks = self.measure_callbacks
        if callbacks == "default":
            return [UpdateCostModel()]
        if isinstance(callbacks, str):
            callbacks = MeasureCallback.create(callbacks)
        return [callbacks] if isinstance(callbacks, MeasureCallback) else list(callbacks)

    def scheduler(self, seed: int) -> TaskScheduler:
        """The task scheduler."""
        if self.task_scheduler == "gradient":
            return GradientBased(seed=seed)
        if isinstance(self.task_scheduler, str):
            return TaskScheduler.create(self.task_scheduler)
        return self.task_scheduler

    def context(self, task: Task, target: Target, seed: int) -> TuneContext:
        """How a kernel is searched."""
        return TuneContext(
            IRModule({"main": task.fn}),
            target=target,
            space_generator=_cloned((self.special_space or {}).get(task.name, self.space)),
            search_strategy=self._new_strategy(),
            task_name=task.name,
            rand_state=seed,
        )


@record
class Setting:
    """What an engine is made with, here or at a station."""

    parts: Parts
    target: Target
    threads: int
    folder: pathlib.Path | None
    seed: int
    confidence: float
    round_trials: int

    def at_stations(self) -> Setting:
        """For other processes. Raises ScheduleError for parts that have to be in this one."""
        if self.parts.measure_callbacks != "default":
            raise ScheduleError(
                "tune: measure_callbacks are told of candidates, which are those of other "
                "processes with runner='ray': leave them out, or give a listener"
            )
        parts = replace(self.parts, builder="local", runner="local", task_scheduler="gradient")
        return replace(self, parts=parts)

    def engine(
        self,
        tasks: list[Task],
        database: Database,
        builder: Builder,
        runner: Runner,
        tell: Listener,
        trials: Any,
        kind: Callable[..., Engine] = Engine,
    ) -> Engine:
        """An engine for tasks, which its scheduler knows."""
        scheduler = self.parts.scheduler(self.seed)
        scheduler.engine = kind(
            tasks, scheduler, self.target, database, self.parts.model(self.seed),
            self.parts.callbacks(),
            context_of=lambda task: self.parts.context(task, self.target, self.seed),
            open_measurer=lambda task, until: Measurer(
                task.fn, self.target if task.ctx is None else task.ctx.target or self.target,
                work_dir=self.folder, num_threads=self.threads, builder=builder, runner=runner,
                one=task.sized[0], until=until,
            ),
            tell=tell, trials=trials, confidence=self.confidence, round_trials=self.round_trials,
        )  # fmt: skip
        return scheduler.engine


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
    database: Database | str | None = None,
    module_equality: str = "structural",
    round_trials: int = _ROUND,
    listener: Listener | None = None,
    spent: float = 0.0,
    parts: Parts = Parts(),
) -> Tuned:
    """Tune kernels for so many seconds, or so many trials; `relaxvm.tune` tells of the options.

    database         a database, or its kind: "json" (in `work_dir`), "memory"
    module_equality  of a database that is made here
    round_trials     candidates of one kernel that are measured before it is another one's turn
    spent            of the seconds, before this call
    parts            what it is made of

    Raises DerivedError for what a user's part raised, after the best so far were kept.
    """
    check_limits(seconds, max_trials, max_trials_per_task, num_threads, confidence, seed)
    if type(round_trials) is not int or round_trials < 1:
        raise ScheduleError(f"tune: round_trials: wanted a number above 0, got {round_trials!r}")
    begun = time.perf_counter()
    chosen = Target.or_current(target)
    folder = None if work_dir is None else pathlib.Path(work_dir)
    kept = database_of(database, folder, module_equality)
    threads = cpu_model(chosen).cores if num_threads is None else num_threads
    tell = _guarded(listener)
    with (
        interrupts() as told,
        parts.opened(threads) as (builder, runner),
        contextlib.ExitStack() as stack,
    ):
        if isinstance(runner, RayRunner):
            threads = runner.num_cpus
        setting = Setting(parts, chosen, threads, folder, seed, confidence, round_trials)
        options: dict[str, Any] = {}
        if isinstance(runner, RayRunner):
            with heard():
                fleet = RayFleet(runner, setting.at_stations(), plain_context(), tell)
            stack.callback(fleet.close)
            options = {"kind": functools.partial(FleetEngine, fleet=fleet)}
        trials = Trials(None if folder is None else folder / _TRIALS)
        engine = setting.engine(tasks, kept, builder, runner, tell, trials, **options)
        engine.most = max_trials or NO_END
        engine.most_of_task = max_trials_per_task or NO_END
        ended = engine.run(seconds - spent)
    took = time.perf_counter() - begun
    return Tuned(kept, tasks, took, INTERRUPTED if told.count else ended)


def _guarded(listener: Listener | None) -> Listener:
    """A listener that is told nothing more once it raised something, which is a DerivedError."""
    heard = listener

    def tell(kind: str, task: Task | None, text: str) -> None:
        nonlocal heard
        try:
            if heard is not None:
                heard(kind, task, text)
        except Exception as error:  # whatever the user's function raises
            heard = None
            raised = f"the listener raised {type(error).__name__}: {error}"
            raise DerivedError(raised) from error

    return tell


def _cloned(space: Any) -> Any:
    return space.clone() if isinstance(space, SpaceGenerator) else space


def check_limits(
    seconds: float,
    max_trials: int | None,
    max_trials_per_task: int | None,
    num_threads: int | None,
    confidence: float,
    seed: int,
) -> None:
    """Raise ScheduleError unless these say when a tuning ends and how it measures."""
    counts = {
        "max_trials": max_trials,
        "max_trials_per_task": max_trials_per_task,
        "num_threads": num_threads,
    }
    for name, count in counts.items():
        if count is not None and (type(count) is not int or count < 1):
            raise ScheduleError(f"tune: {name}: wanted a number above 0, got {count!r}")
    if isinstance(seconds, bool) or not (isinstance(seconds, (int, float)) and seconds > 0):
        raise ScheduleError(f"tune: wanted seconds above 0, got {seconds!r}")
    if math.isinf(seconds) and max_trials is max_trials_per_task is None:
        raise ScheduleError("tune: wanted seconds, or a number of trials, after which it ends")
    if not (isinstance(confidence, (int, float)) and 0.5 <= confidence < 1):
        raise ScheduleError(f"tune: wanted a confidence from 0.5 to below 1, got {confidence!r}")
    if type(seed) is not int or seed < 0:
        raise ScheduleError(f"tune: seed: wanted a whole number from 0 on, got {seed!r}")


def database_of(
    database: Database | str | None,
    folder: pathlib.Path | None,
    equality: str = "structural",
) -> Database:
    """A database that was given, or of this kind; None: in the folder, if there is one."""
    if isinstance(database, Database):
        return database
    kind = database or ("memory" if folder is None else "json")
    if kind == "json":
        if folder is None:
            raise ScheduleError("tune: database='json': wanted a work_dir")
        return JSONDatabase(work_dir=folder, module_equality=equality)
    if kind == "memory":
        return MemoryDatabase(equality)
    raise ScheduleError(f"tune: database is 'json', 'memory' or a Database, got {database!r}")


__getattr__ = submodules(__name__)
