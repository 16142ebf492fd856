"""`EvolutionarySearch`: what to measure next, by what was measured so far.

Evolution over the points of a `DesignSpace`: parents are the fastest that were measured, children
differ from them in one decision, mix two of them, or are drawn anew. Of many children those are
measured that a cost model predicts to be the fastest.
"""

from __future__ import annotations

import contextlib
import math
import random
import statistics
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...base import RelaxvmError, ScheduleError, TIRError, submodules
from ...tir.schedule import Schedule
from ..candidate import MeasureCandidate
from ..cost_model import CostModel, knows, scores_of
from ..database import Database, TuningRecord
from ..derived import DerivedError, asked
from ..runner import RunnerResult
from ..space import no_candidate
from ..trace_space import UnionSpace
from .search_strategy import CountedStrategy

# How many of the fastest have children; how many of them, where nothing else is said, for each that
# is measured; how many points and records of older searches come first.
_PARENTS, _CHILDREN, _FIRST = 12, 2, 16


class EvolutionarySearch(CountedStrategy, kind="evolutionary"):
    """The names are TVM's; the defaults are for a search that takes seconds.

    population_size        candidates of a generation; None: twice as many as are measured
    init_measured_ratio    the part of them that are children of those that were measured; the rest
                           is drawn anew
    init_min_unmeasured    so many at least are drawn anew
    max_fail_count         so many rounds without a new schedule end the search
    genetic_num_iters      generations of a round, each of children of what the model predicts to be
                           the fastest so far; without a model that knows something, one
    genetic_mutate_prob    the part of the children that differ from one parent; the rest has two
    genetic_max_fail_count so many times in a row without a new schedule end a generation
    eps_greedy             the part of what is measured that is chosen without asking the model
    """

    def __init__(
        self,
        *,
        population_size: int | None = None,
        init_measured_ratio: float = 0.7,
        init_min_unmeasured: int = 0,
        max_fail_count: int = 1,
        genetic_num_iters: int = 1,
        genetic_mutate_prob: float = 0.8,
        genetic_max_fail_count: int = 40,
        eps_greedy: float = 0.2,
    ) -> None:
        parts = {
            "init_measured_ratio": init_measured_ratio,
            "genetic_mutate_prob": genetic_mutate_prob,
            "eps_greedy": eps_greedy,
        }
        for name, part in parts.items():
            if not 0 <= part <= 1:
                raise ScheduleError(f"EvolutionarySearch: {name} is from 0 to 1, got {part!r}")
        counts = (population_size or 1, max_fail_count, genetic_num_iters, genetic_max_fail_count)
        if min(counts) < 1 or init_min_unmeasured < 0:
            raise ScheduleError(f"EvolutionarySearch: wanted counts above 0, got {counts}")
        self.population_size = population_size
        self.init_measured_ratio, self.init_min_unmeasured = (
            init_measured_ratio,
            init_min_unmeasured,
        )
        self.max_fail_count, self.genetic_num_iters = max_fail_count, genetic_num_iters
        self.genetic_mutate_prob = genetic_mutate_prob
        self.genetic_max_fail_count, self.eps_greedy = genetic_max_fail_count, eps_greedy

    def begin(
        self,
        design_spaces: Sequence[Schedule],
        database: Database | None,
        cost_model: CostModel | None,
    ) -> None:
        self._space = self.context.space_of(design_spaces)
        self._rng = random.Random(self.context.rand_state)
        self._model = cost_model
        default = self._space.default()
        self._seen = {default.key}
        self._fastest: list[tuple[float, Any]] = [(math.inf, default.point)]
        self._fails = 0
        self._queue = self._known(database)

    def _known(self, database: Database | None) -> list[MeasureCandidate]:
        """The fastest of older searches: points that were tried, schedules of records."""
        known: list[MeasureCandidate] = []
        for saved in self.context.tried[:_FIRST]:
            if time.perf_counter() > self.context.until:
                break
            with contextlib.suppress(RelaxvmError, TypeError, ValueError):
                known.append(self._space.candidate(self._space.point_from_json(saved)))
        fn = self._space.fn
        starts: list[TuningRecord] = []
        if database is not None:
            with asked(database, "starting_points"):
                starts = database.starting_points(fn, self.context.target)
        for record in starts:
            with contextlib.suppress(RelaxvmError):
                known.append(MeasureCandidate(record.schedule(fn)))
        return known

    def propose(self, count: int) -> list[MeasureCandidate] | None:
        """At most `count` candidates that were not proposed before."""
        is_asked = knows(self._model, self.context)
        size = (self.population_size or count * _CHILDREN) if is_asked else count
        pool = self._new(self._queue)
        self._queue = []
        measured = [point for seconds, point in self._fastest]
        self._breed(pool, max(size, count), measured if len(measured) > 1 else [])
        for _ in range(1, self.genetic_num_iters if is_asked else 1):
            ranked = [c.point for c in self._ranked(pool) if c.point is not None]
            self._breed(pool, len(pool) + size, ranked[:_PARENTS])
        self._rng.shuffle(pool)
        blind = max(1, int(count * self.eps_greedy)) if is_asked else count
        chosen = [*pool[:blind], *(self._ranked(pool[blind:]) if is_asked else [])][:count]
        # Those that were not chosen may be proposed again.
        self._seen -= {c.key for c in pool} - {c.key for c in chosen}
        self.context.pruned += len(pool) - len(chosen)
        self._fails = 0 if chosen else self._fails + 1
        if not chosen and len(self._seen) == 1 and self._space.refused:
            raise no_candidate(self.context.task_name, self._space)
        return chosen if self._fails < self.max_fail_count else None

    def _breed(self, pool: list[MeasureCandidate], size: int, parents: Sequence[Any]) -> None:
        """Add children until there are so many."""
        vain, born = 0, 0
        until = self.context.until
        while len(pool) < size and vain < self.genetic_max_fail_count:
            if pool and time.perf_counter() > until:
                break
            try:
                child = self._child(parents if born >= self.init_min_unmeasured else [])
            except DerivedError:
                raise
            except (ScheduleError, TIRError):
                vain += 1  # a decision that a primitive refuses where nothing catches it
                continue
            fresh = self._new([child])
            vain = 0 if fresh else vain + 1
            born += 1
            pool += fresh

    def _new(self, candidates: Sequence[MeasureCandidate]) -> list[MeasureCandidate]:
        fresh = {c.key: c for c in candidates if c.key not in self._seen}
        self._seen |= set(fresh)
        return [*fresh.values()]

    def _child(self, parents: Sequence[Any]) -> MeasureCandidate:
        rng, space = self._rng, self._space
        child: MeasureCandidate
        if not parents or rng.random() >= self.init_measured_ratio:
            child = space.draw(rng)
        elif rng.random() < self.genetic_mutate_prob:
            child = space.near(self._parent(parents), rng)
        else:
            child = space.between(self._parent(parents), self._parent(parents), rng)
        return child

    def _parent(self, ranked: Sequence[Any]) -> Any:
        return ranked[min(int(self._rng.expovariate(1 / 3)), len(ranked) - 1)]

    def _ranked(self, candidates: Sequence[MeasureCandidate]) -> list[MeasureCandidate]:
        """Those first that the model predicts to be the fastest."""
        scores = scores_of(self._model, self.context, candidates)
        return [candidates[k] for k in np.argsort(-scores, kind="stable")]

    def learn(
        self, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        # Others may have proposed them.
        self._seen |= {candidate.key for candidate in candidates}
        for candidate, result in zip(candidates, results):
            if result.error_msg is None and result.run_secs and candidate.point is not None:
                seconds = statistics.median(result.run_secs)
                if isinstance(self._space, UnionSpace):
                    best = min(s for s, _ in self._fastest)
                    won = math.log(best / seconds) if 0 < seconds < best < math.inf else 0.0
                    self._space.learn(candidate.point, won)
                self._fastest.append((seconds, candidate.point))
        self._fastest.sort(key=lambda pair: pair[0])
        del self._fastest[_PARENTS:]


__getattr__ = submodules(__name__)
