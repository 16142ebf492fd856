"""`TuneContext`: a kernel, the space of its schedules, and how that is searched."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from ..base import ScheduleError, submodules
from ..ir import IRModule
from ..runtime import usable_cores
from ..target import Target
from ..tir import PrimFunc
from ..tir.schedule import Schedule
from .candidate import MeasureCandidate
from .cost_model import CostModel
from .database import Database
from .derived import asked
from .runner import RunnerResult
from .search_strategy import SearchStrategy
from .space import DesignSpace
from .space_generator import SpaceGenerator, designs_of
from .trace_space import TraceSpace, whole_space


class TuneContext:
    """mod              a loop function, or a module of one
    target           as for `relaxvm.build`
    space_generator  gives designs for `mod`, or its kind, or a function for `ScheduleFn`; None:
                     what the default schedule could decide otherwise, and what rules design
    search_strategy  a `SearchStrategy`, or its kind
    task_name        for messages
    rand_state       seed of the search; -1: another one each time
    num_threads      a number, "physical" or "logical", for classes of the user's to read: the
                     search itself runs in one thread
    logger           is told each round; a `logging.Logger`
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc | None = None,
        *,
        target: Any = None,
        space_generator: Any = None,
        search_strategy: SearchStrategy | str | None = None,
        task_name: str = "main",
        rand_state: int = -1,
        num_threads: int | str = "physical",
        logger: logging.Logger | None = None,
    ) -> None:
        self.mod = IRModule({"main": mod}) if isinstance(mod, PrimFunc) else mod
        if not (self.mod is None or isinstance(self.mod, IRModule)):
            raise ScheduleError(f"TuneContext: mod: wanted an IRModule or a PrimFunc, got {mod!r}")
        if type(rand_state) is not int:
            raise ScheduleError(f"TuneContext: rand_state: wanted a number, got {rand_state!r}")
        self.target = None if target is None else Target(target)
        self.task_name, self.logger = task_name, logger
        self.rand_state = random.randrange(1, 1 << 31) if rand_state == -1 else rand_state
        self.num_threads = number_of_cores(num_threads)
        self.tried: Sequence[Any] = ()
        """Points that an older search tried, as JSON, the fastest first."""
        self.until = math.inf
        """When, by `time.perf_counter`, the strategy is to propose what it has."""
        self.pruned = 0
        """How many candidates the strategy left out because a cost model said so."""
        self.space_generator: SpaceGenerator | None = space_generator
        if isinstance(space_generator, str) or callable(space_generator):
            self.space_generator = SpaceGenerator.create(space_generator)
        if isinstance(search_strategy, str):
            search_strategy = SearchStrategy.create(search_strategy)
        self.search_strategy = search_strategy
        for name, kind in (
            ("space_generator", SpaceGenerator),
            ("search_strategy", SearchStrategy),
        ):
            part = getattr(self, name)
            if not (part is None or isinstance(part, kind)):
                raise ScheduleError(
                    f"TuneContext: {name}: wanted a {kind.__name__} or its kind, got {part!r}"
                )
        self.initialize()

    def initialize(self) -> None:
        """Tell its parts of it, after one was set."""
        for part in (self.space_generator, self.search_strategy):
            if part is not None:
                with asked(part, "initialize_with_tune_context"):
                    part.initialize_with_tune_context(self)

    # -- the space ---------------------------------------------------------------------------------

    def generate_design_space(self) -> list[Schedule]:
        """The designs of the space generator; without one, the default schedule."""
        if self.mod is None:
            raise ScheduleError(f"TuneContext: {self.task_name} has no mod")
        if self.space_generator is None:
            return [self.space.default().sch]
        return designs_of(self.space_generator, self.mod)

    @cached_property
    def designs(self) -> list[Schedule]:
        """What `generate_design_space` gave first."""
        return self.generate_design_space()

    @cached_property
    def space(self) -> DesignSpace:
        """All schedules that may be chosen."""
        if self.mod is None:
            raise ScheduleError(f"TuneContext: {self.task_name} has no mod")
        if self.space_generator is None:
            return whole_space(self.mod, self.target)
        return TraceSpace(self.mod, self.target, self.space_generator)

    def space_of(self, design_spaces: Sequence[Schedule]) -> DesignSpace:
        """The space of designs. Raises ScheduleError if there are none."""
        if not design_spaces:
            raise ScheduleError(
                f"{self.task_name}: {type(self.space_generator).__name__} designs nothing"
            )
        if self.space_generator is None or list(design_spaces) == self.designs:
            return self.space
        return TraceSpace(self.space.fn, self.target, self.space_generator, design_spaces)

    # -- the search --------------------------------------------------------------------------------

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int = 64,
        design_spaces: Sequence[Schedule] | None = None,
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Begin the search; arguments as of `SearchStrategy.pre_tuning`. design_spaces: None:
        those that are generated.
        """
        strategy = self._strategy("pre_tuning")
        designs = self.designs if design_spaces is None else design_spaces
        with asked(strategy, "pre_tuning"):
            strategy.pre_tuning(max_trials, num_trials_per_iter, designs, database, cost_model)

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """What to measure next; None if there is nothing more."""
        strategy = self._strategy("generate_measure_candidates")
        with asked(strategy, "generate_measure_candidates"):
            candidates = strategy.generate_measure_candidates()
            if candidates is None:
                return None
            if not all(isinstance(each, MeasureCandidate) for each in candidates):
                raise ScheduleError(
                    f"wanted a list of MeasureCandidate or None, got {candidates!r}"
                )
            return list(candidates)

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """What became of candidates."""
        strategy = self._strategy("notify_runner_results")
        with asked(strategy, "notify_runner_results"):
            strategy.notify_runner_results(measure_candidates, results)

    def post_tuning(self) -> None:
        """End the search."""
        strategy = self._strategy("post_tuning")
        with asked(strategy, "post_tuning"):
            strategy.post_tuning()

    def _strategy(self, method: str) -> SearchStrategy:
        if self.search_strategy is None:
            raise ScheduleError(
                f"TuneContext.{method}: {self.task_name} has no search_strategy; give one, such as "
                "'evolutionary'"
            )
        return self.search_strategy

    def clone(self) -> TuneContext:
        """Another context of the same kernel, with its own space generator and strategy, and
        another seed.
        """
        parts = (self.space_generator, self.search_strategy)
        generator, strategy = (None if part is None else part.clone() for part in parts)
        return TuneContext(
            self.mod, target=self.target, space_generator=generator, search_strategy=strategy,
            task_name=self.task_name, rand_state=random.Random(self.rand_state).randrange(1 << 31),
            num_threads=self.num_threads, logger=self.logger,
        )  # fmt: skip


def number_of_cores(count: int | str) -> int:
    """A number, or "physical" or "logical": as many as this process may use. Raises ScheduleError
    for anything else.
    """
    if count in ("physical", "logical"):
        return usable_cores()
    if type(count) is not int or count < 1:
        raise ScheduleError(
            f"wanted a number of cores above 0, 'physical' or 'logical', got {count!r}"
        )
    return count


__getattr__ = submodules(__name__)
