"""The search of one kernel's schedule: what to measure next, by what was measured so far.

Evolution over the points of a `Space`: parents are the fastest that were measured, children differ
from them in one decision, mix two of them, or are drawn anew. Of many children those are measured
that a model predicts to be the fastest; it learns from everything that was measured.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..base import ScheduleError, TIRError, submodules
from ..tir import PrimFunc
from .features import features_of
from .space import Candidate, Point, Space

# How many of the fastest have children, how many children there are for each that is measured, and
# the part of what is measured that is drawn without asking the model.
_PARENTS, _CHILDREN, _BLIND = 12, 2, 0.2
# So many measurements until the model is asked; so many times without a new schedule end a round.
_LEAST, _PATIENCE = 8, 40


class CostModel(Protocol):
    """Predicts logarithms of seconds from rows of features, and learns them."""

    def fit(self, rows: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> object: ...

    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]: ...


class Ridge:
    """Least squares with a penalty, over features and their squares, each scaled to variance 1."""

    def __init__(self, penalty: float = 3.0) -> None:
        self._penalty = penalty
        self._mean = self._scale = self._weights = np.zeros(0)
        self._offset = 0.0

    def fit(self, rows: np.ndarray[Any, Any], values: np.ndarray[Any, Any]) -> Ridge:
        """Learn from all that is known; what was learnt before is forgotten."""
        wide = _with_squares(rows)
        self._mean = wide.mean(axis=0)
        self._scale = np.where(wide.std(axis=0) > 1e-9, wide.std(axis=0), 1.0)
        scaled = (wide - self._mean) / self._scale
        self._offset = float(values.mean())
        # Fewer rows than columns: the system of the rows is the smaller one.
        gram = scaled @ scaled.T + self._penalty * np.eye(len(rows))
        self._weights = scaled.T @ np.linalg.solve(gram, values - self._offset)
        return self

    def predict(self, rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """One value for each row."""
        scaled = (_with_squares(rows) - self._mean) / self._scale
        return scaled @ self._weights + self._offset


def _with_squares(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.concatenate([rows, rows**2], axis=1)


def best_model() -> CostModel:
    """Gradient boosting where scikit-learn is installed (extra `tune`), else `Ridge`."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        return Ridge()
    model: CostModel = HistGradientBoostingRegressor(
        max_iter=80, min_samples_leaf=3, learning_rate=0.15, random_state=0
    )
    return model


class Search:
    """What to measure next.

    space  of the kernel
    seed   the same seed, and the same times, give the same search
    first  points to begin with: those of an older search, say
    """

    def __init__(
        self,
        space: Space,
        seed: int = 0,
        first: Sequence[Point] = (),
        model: CostModel | None = None,
    ) -> None:
        self.space = space
        self._rng = random.Random(seed)
        self._model = best_model() if model is None else model
        self._queue = [space.candidate(point) for point in first]
        self._seen = {space.default().key}
        self._rows: list[np.ndarray[Any, Any]] = []
        self._values: list[float] = []
        self._fastest: list[tuple[float, Point]] = [(np.inf, Point())]
        self._fitted = 0
        self.correlation: float | None = None
        """Of predicted and measured order of what was measured last, from -1 to 1 (Spearman)."""

    def propose(self, count: int) -> list[Candidate]:
        """At most `count` candidates that were not proposed before; none if there are no more."""
        pool, vain = self._new(self._queue), 0
        self._queue = []
        most = count * (_CHILDREN if self._fitted else 1)
        while len(pool) < most and vain < _PATIENCE:
            try:
                candidate = self._child()
            except (ScheduleError, TIRError):
                vain += 1  # a decision that a primitive refuses where nothing catches it
                continue
            fresh = self._new([candidate])
            vain = 0 if fresh else vain + 1
            pool += fresh
        chosen = self._chosen(pool, count)
        # Those that were not chosen may be proposed again.
        self._seen -= {c.key for c in pool} - {c.key for c in chosen}
        return chosen

    def learn(self, measured: Sequence[tuple[Candidate, float | None]]) -> None:
        """What candidates took, in seconds; None for those that did not run."""
        ran = [(c, s) for c, s in measured if s is not None]
        if not ran:
            return
        rows = np.array([_features(c) for c, _ in ran])
        values = [float(np.log(s)) for _, s in ran]
        if self._fitted and len(ran) > 2:
            self.correlation = rank_correlation(self._model.predict(rows), values)
        self._rows += list(rows)
        self._values += values
        self._fastest += [(s, c.point) for c, s in ran]
        self._fastest.sort(key=lambda pair: pair[0])
        del self._fastest[_PARENTS:]
        if len(self._values) >= _LEAST:
            self._model.fit(np.array(self._rows), np.array(self._values))
            self._fitted = len(self._values)

    def _new(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        fresh = {c.key: c for c in candidates if c.key not in self._seen}
        self._seen |= set(fresh)
        return [*fresh.values()]

    def _child(self) -> Candidate:
        rng = self._rng
        kind = rng.random()
        if kind < 0.3 or not self._values:
            return self.space.draw(rng)
        parent = self._parent()
        if kind < 0.45:
            return self.space.between(parent, self._parent(), rng)
        return self.space.near(parent, rng)

    def _parent(self) -> Point:
        place = min(int(self._rng.expovariate(1 / 3)), len(self._fastest) - 1)
        return self._fastest[place][1]

    def _chosen(self, pool: list[Candidate], count: int) -> list[Candidate]:
        self._rng.shuffle(pool)
        blind = count if not self._fitted else max(1, int(count * _BLIND))
        rest = pool[blind:]
        if rest and self._fitted:
            scores = self._model.predict(np.array([_features(c) for c in rest]))
            rest = [rest[k] for k in np.argsort(scores, kind="stable")]
        return [*pool[:blind], *rest][:count]


def _features(candidate: Candidate) -> np.ndarray[Any, Any]:
    (fn,) = candidate.schedule.mod.functions.values()
    assert isinstance(fn, PrimFunc)
    return features_of(fn)


def rank_correlation(a: Sequence[float] | np.ndarray[Any, Any], b: Sequence[float]) -> float:
    """Spearman's: 1 if both are in the same order, -1 if in the opposite one."""
    one, other = (np.argsort(np.argsort(values)).astype(float) for values in (a, b))
    return statistics.correlation(one.tolist(), other.tolist()) if len(one) > 1 else 0.0


__getattr__ = submodules(__name__)
