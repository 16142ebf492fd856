"""Feature extractors: what cost models know of candidates without running them.

class Loops(ms.feature_extractor.PyFeatureExtractor):
    def extract_from(self, context, candidates):
        return [np.array([[len(c.sch.trace.insts)]]) for c in candidates]
model = ms.cost_model.XGBModel(extractor=Loops())
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ..base import ScheduleError, submodules
from .arg_info import entry_of
from .candidate import MeasureCandidate
from .features import Detail, features_of_stores

_Array = np.ndarray[Any, Any]


class FeatureExtractor:
    """Derive from it (`PyFeatureExtractor`) by giving `extract_from`."""

    def extract_from(self, context: Any, candidates: Sequence[MeasureCandidate]) -> list[_Array]:
        """A table of numbers for each candidate: [rows, numbers], all with as many numbers; any
        count of rows, one for each store, say.

        context  the `TuneContext` that they are of
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it extracts")

    @staticmethod
    def create(kind: str = "per-store-feature", *args: Any, **options: Any) -> FeatureExtractor:
        """An extractor by its kind: "per-store-feature", "random"."""
        if kind not in _KINDS:
            listed = ", ".join(_KINDS)
            raise ScheduleError(f"FeatureExtractor.create: kind is one of {listed}, got {kind!r}")
        return _KINDS[kind](*args, **options)


PyFeatureExtractor = FeatureExtractor


class PerStoreFeature(FeatureExtractor):
    """A row for each store: how often it runs, in which loops, how much memory they touch.

    buffers_per_store                   of how many buffers a row tells one by one (TVM: 5)
    arith_intensity_curve_num_samples   for how many depths of loops it tells the arithmetic for a
                                        byte (TVM: 10)
    cache_line_bytes                    that memory is touched by
    extract_workload                    whether each row ends with the numbers of the function
                                        before it was scheduled, that of the context

    Numbers are logarithms; they are not TVM's 164. `ms.features.NAMES` says what they are.
    """

    def __init__(
        self,
        buffers_per_store: int = 0,
        arith_intensity_curve_num_samples: int = 0,
        cache_line_bytes: int = 64,
        extract_workload: bool = False,
    ) -> None:
        self._detail = Detail(
            buffers_per_store, arith_intensity_curve_num_samples, cache_line_bytes
        )
        if min(self._detail) < 0 or cache_line_bytes < 1:
            raise ScheduleError(f"PerStoreFeature: wanted counts, got {tuple(self._detail)}")
        self.extract_workload = extract_workload

    def extract_from(self, context: Any, candidates: Sequence[MeasureCandidate]) -> list[_Array]:
        tables = [self._rows(c) for c in candidates]
        if not self.extract_workload:
            return tables
        unscheduled = features_of_stores(entry_of(context.mod), self._detail)
        whole = np.logaddexp2.reduce(unscheduled, axis=0, initial=0.0)
        return [np.hstack([rows, np.tile(whole, (len(rows), 1))]) for rows in tables]

    def _rows(self, candidate: MeasureCandidate) -> _Array:
        if self._detail == Detail():
            return candidate.rows
        return features_of_stores(candidate.fn, self._detail)


class RandomFeatureExtractor(FeatureExtractor):
    """Random numbers from 0 to 1, to try cost models with.

    feature_size   numbers in a row
    max_block_num  most rows of a candidate
    random_state   of the numbers to come; it may be set
    """

    def __init__(self, *, feature_size: int = 30, max_block_num: int = 5, seed: int = 0) -> None:
        self.feature_size, self.max_block_num = feature_size, max_block_num
        self._rng = np.random.RandomState(seed)

    @property
    def random_state(self) -> Any:
        return self._rng.get_state()

    @random_state.setter
    def random_state(self, state: Any) -> None:
        self._rng.set_state(state)

    def extract_from(self, context: Any, candidates: Sequence[MeasureCandidate]) -> list[_Array]:
        return [
            self._rng.rand(self._rng.randint(1, self.max_block_num + 1), self.feature_size)
            for _ in candidates
        ]


_KINDS: dict[str, Callable[..., FeatureExtractor]] = {
    "per-store-feature": PerStoreFeature,
    "random": RandomFeatureExtractor,
}
create = FeatureExtractor.create

__getattr__ = submodules(__name__)
