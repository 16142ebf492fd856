"""What a search strategy is asked, and how the strategies of this package keep count."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ...base import ScheduleError, submodules
from ...tir.schedule import Schedule
from ..candidate import MeasureCandidate
from ..cost_model import CostModel
from ..database import Database
from ..derived import Part
from ..runner import RunnerResult

_KINDS: dict[str, Callable[..., SearchStrategy]] = {}


class SearchStrategy(Part):
    """Derive from it (`PySearchStrategy`) by giving `pre_tuning`, `generate_measure_candidates`,
    `notify_runner_results` and `post_tuning`.
    """

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        """Begin.

        max_trials           candidates in all
        num_trials_per_iter  candidates at once
        design_spaces        what the space generator gave
        database             what is known already
        """
        raise NotImplementedError(f"{type(self).__name__} does not say how it begins")

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        """What to measure next; None if there is nothing more."""
        raise NotImplementedError(f"{type(self).__name__} generates no candidates")

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """What became of candidates: of those that were generated last, or of the first of them."""
        raise NotImplementedError(f"{type(self).__name__} takes no results")

    def post_tuning(self) -> None:
        """End."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it ends")

    def __init_subclass__(cls, kind: str = "") -> None:
        super().__init_subclass__()
        if kind:
            _KINDS[kind] = cls

    @staticmethod
    def create(kind: str = "evolutionary", *args: Any, **options: Any) -> SearchStrategy:
        """A strategy by its kind: "evolutionary", "replay-trace", "replay-func"."""
        chosen = _KINDS.get(str(kind).replace("_", "-"))
        if chosen is None:
            listed = ", ".join(_KINDS)
            raise ScheduleError(f"SearchStrategy.create: kind is one of {listed}, got {kind!r}")
        return chosen(*args, **options)


PySearchStrategy = SearchStrategy


class CountedStrategy(SearchStrategy):
    """A strategy that proposes so many candidates, in rounds. Derive by giving `propose`; `begin`
    and `learn` as well, where it learns.
    """

    _left: int | None = None
    _at_once: int = 0

    def pre_tuning(
        self,
        max_trials: int,
        num_trials_per_iter: int,
        design_spaces: Sequence[Schedule],
        database: Database | None = None,
        cost_model: CostModel | None = None,
    ) -> None:
        name = type(self).__name__
        if self.context is None:
            raise ScheduleError(
                f"{name}.pre_tuning: wanted a TuneContext(..., search_strategy=...) around it"
            )
        if self._left is not None:
            raise ScheduleError(f"{name}.pre_tuning: it has begun; call post_tuning before")
        for what, count in (
            ("max_trials", max_trials),
            ("num_trials_per_iter", num_trials_per_iter),
        ):
            if type(count) is not int or count < 1:
                raise ScheduleError(f"{name}: {what}: wanted a number above 0, got {count!r}")
        self._left, self._at_once = max_trials, num_trials_per_iter
        self.begin(design_spaces, database, cost_model)

    def generate_measure_candidates(self) -> list[MeasureCandidate] | None:
        if self._left is None:
            raise ScheduleError(f"{type(self).__name__}: call pre_tuning before it generates")
        if not self._left:
            return None
        candidates = self.propose(min(self._left, self._at_once))
        self._left -= len(candidates or ())
        return candidates

    def notify_runner_results(
        self, measure_candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        if self._left is None:
            raise ScheduleError(f"{type(self).__name__}: call pre_tuning before it is told results")
        self.learn(measure_candidates, results)

    def post_tuning(self) -> None:
        self._left = None

    def begin(
        self,
        design_spaces: Sequence[Schedule],
        database: Database | None,
        cost_model: CostModel | None,
    ) -> None:
        """Prepare for `propose`."""

    def propose(self, count: int) -> list[MeasureCandidate] | None:
        """At most `count` candidates; None if there are no more."""
        raise NotImplementedError(f"{type(self).__name__} proposes nothing")

    def learn(
        self, candidates: Sequence[MeasureCandidate], results: Sequence[RunnerResult]
    ) -> None:
        """What became of them."""


__getattr__ = submodules(__name__)
