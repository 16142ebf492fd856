"""`ReplayTrace` and `ReplayFunc`: any candidates, whatever was measured."""

from __future__ import annotations

import random
from collections.abc import Sequence

from ...base import ScheduleError, TIRError, submodules
from ...tir.schedule import Schedule
from ..candidate import MeasureCandidate
from ..cost_model import CostModel
from ..database import Database
from ..derived import DerivedError
from ..space import no_candidate
from ..trace_space import Traced, TraceSpace
from .search_strategy import CountedStrategy


class ReplayTrace(CountedStrategy, kind="replay-trace"):
    """Each candidate is a design with all its decisions drawn anew.

    max_fail_count  so many draws in a row that are refused end a round
    """

    def __init__(self, max_fail_count: int = 100) -> None:
        self.max_fail_count = max_fail_count

    def begin(
        self,
        design_spaces: Sequence[Schedule],
        database: Database | None,
        cost_model: CostModel | None,
    ) -> None:
        self._space = self.context.space_of(design_spaces)
        self._rng = random.Random(self.context.rand_state)
        self._is_empty = True

    def propose(self, count: int) -> list[MeasureCandidate] | None:
        candidates: list[MeasureCandidate] = []
        fails = 0
        while len(candidates) < count and fails < self.max_fail_count:
            try:
                candidates.append(self.drawn())
                fails = 0
            except DerivedError:
                raise
            except (ScheduleError, TIRError):
                fails += 1
        self._is_empty &= not candidates
        if self._is_empty and self._space.refused:
            raise no_candidate(self.context.task_name, self._space)
        return candidates or None

    def drawn(self) -> MeasureCandidate:
        """Any candidate. Raises ScheduleError or TIRError if it is refused."""
        candidate: MeasureCandidate = self._space.draw(self._rng)
        return candidate


class ReplayFunc(ReplayTrace, kind="replay-func"):
    """Each candidate is one of the designs that the space generator gives when it is asked again.
    A context without a space generator draws from its space, as `ReplayTrace` does.
    """

    def drawn(self) -> MeasureCandidate:
        if not isinstance(self._space, TraceSpace):
            return super().drawn()
        return self._space.candidate(Traced(self._rng.choice(self._space.designed())))


__getattr__ = submodules(__name__)
