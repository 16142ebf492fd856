"""Cost models: which candidates will be fast, learnt from those that were measured.

class Short(ms.cost_model.PyCostModel):
    def load(self, path): ...
    def save(self, path): ...
    def update(self, context, candidates, results): ...
    def predict(self, context, candidates):
        return np.array([-len(c.sch.trace.insts) for c in candidates])
"""

from __future__ import annotations

import json
import math
import os
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from ..base import LoadError, ScheduleError, record, submodules
from .arg_info import entry_of
from .candidate import MeasureCandidate
from .database import key_of
from .derived import asked
from .feature_extractor import FeatureExtractor
from .features import of_whole
from .regressors import Network, Regressor, boosting
from .runner import RunnerResult

_Array = np.ndarray[Any, Any]
# How much more has to be known of other kernels until what they teach is fitted again.
_GROWN = 1.5


class CostModel:
    """Derive from it (`PyCostModel`) by giving `load`, `save`, `update` and `predict`."""

    def load(self, path: str | os.PathLike[str]) -> None:
        """Know what `save` wrote, and nothing else."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is loaded")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write what is known to a file."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it is saved")

    def update(
        self,
        context: Any,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Learn what candidates of a `TuneContext` took."""
        raise NotImplementedError(f"{type(self).__name__} does not say how it learns")

    def predict(self, context: Any, candidates: Sequence[MeasureCandidate]) -> _Array:
        """A number for each: the larger, the faster."""
        raise NotImplementedError(f"{type(self).__name__} predicts nothing")

    def knows(self, context: Any) -> bool:
        """Whether it is worth asking about candidates of `context`."""
        return True

    @staticmethod
    def create(kind: str = "xgb", *args: Any, **options: Any) -> CostModel:
        """A cost model by its kind: "xgb", "mlp", "random"."""
        if kind not in _KINDS:
            listed = ", ".join(_KINDS)
            raise ScheduleError(f"CostModel.create: kind is one of {listed}, got {kind!r}")
        return _KINDS[kind](*args, **options)


PyCostModel = CostModel


class RandomModel(CostModel):
    """Random numbers; they are all it saves and loads."""

    def __init__(self, *, seed: int | None = None, max_range: int = 100) -> None:
        self._rng, self.max_range = np.random.RandomState(seed), max_range

    def load(self, path: str | os.PathLike[str]) -> None:
        _, numbers, *rest = _read(path, "random")
        self._rng.set_state(("MT19937", np.array(numbers, "uint32"), *rest))

    def save(self, path: str | os.PathLike[str]) -> None:
        kind, numbers, *rest = self._rng.get_state()
        _write(path, "random", [kind, np.asarray(numbers).tolist(), *rest])

    def update(
        self,
        context: Any,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        pass

    def predict(self, context: Any, candidates: Sequence[MeasureCandidate]) -> _Array:
        return self._rng.rand(len(candidates)) * self.max_range

    def knows(self, context: Any) -> bool:
        return False


@record(frozen=False)
class FeatureGroup:
    """What is known of one kernel.

    group_hash  the key of its function; "" for a context without one
    features    numbers of a candidate, one row for each
    costs       seconds
    """

    group_hash: str
    features: list[_Array] = field(default_factory=list)
    costs: list[float] = field(default_factory=list)

    @property
    def min_cost(self) -> float:
        """Seconds of the fastest."""
        return min(self.costs)

    @property
    def centre(self) -> _Array:
        """The mean of its rows."""
        mean: _Array = np.mean(self.features, axis=0)
        return mean

    def values(self) -> _Array:
        """What is predicted: how much faster each is than the middle one, as a logarithm."""
        logs = np.log(self.costs)
        values: _Array = np.median(logs) - logs
        return values


class FeatureModel(CostModel):
    """A regressor over the numbers of a `FeatureExtractor`.

    It learns twice. What other kernels taught (those tuned before, or loaded from a file) is a
    first guess, from how much a candidate's numbers differ from the mean of its own kernel's. How
    far that is to be trusted, and what is left, is learnt for each kernel from its own candidates.

    new_regressor       makes a regressor
    extractor           a `FeatureExtractor`, or its kind
    num_warmup_samples  so many candidates have to be known until it predicts, at least 2
    seed                of what it says until then
    prior               kernels that are known from elsewhere, which `save` leaves out
    """

    def __init__(
        self,
        new_regressor: Callable[[], Regressor],
        *,
        extractor: FeatureExtractor | str = "per-store-feature",
        num_warmup_samples: int = 8,
        seed: int = 0,
        prior: Sequence[FeatureGroup] = (),
    ) -> None:
        if type(num_warmup_samples) is not int or num_warmup_samples < 0:
            raise ScheduleError(
                f"num_warmup_samples: wanted a number from 0, got {num_warmup_samples!r}"
            )
        if isinstance(extractor, str):
            extractor = FeatureExtractor.create(extractor)
        if not isinstance(extractor, FeatureExtractor):
            raise ScheduleError(f"extractor: wanted a FeatureExtractor, got {extractor!r}")
        self.extractor = extractor
        self.num_warmup_samples = max(2, num_warmup_samples)
        self.data: dict[str, FeatureGroup] = {}
        self.prior = tuple(prior)
        self._new = new_regressor
        self._rng = np.random.default_rng(seed)
        # By kernel: what others taught and from how many candidates; what its own did.
        self._guesses: dict[str, tuple[int, Regressor]] = {}
        self._rests: dict[str, tuple[int, float, Regressor]] = {}

    @property
    def data_size(self) -> int:
        """How many candidates are known."""
        return sum(len(group.costs) for group in self.data.values())

    def knows(self, context: Any) -> bool:
        key = _key(context)
        own = len(self.data[key].costs) if key in self.data else 0
        enough = self.num_warmup_samples
        others = self.data_size - own + sum(len(group.costs) for group in self.prior)
        return own >= enough or others >= enough

    def update(
        self,
        context: Any,
        candidates: Sequence[MeasureCandidate],
        results: Sequence[RunnerResult],
    ) -> None:
        """Learn from what ran; what did not teaches nothing."""
        group = self.data.setdefault(_key(context), FeatureGroup(_key(context)))
        seconds = [_seconds(result) for result in results]
        ran = [(c, s) for c, s in zip(candidates, seconds) if s is not None]
        group.features += self._features(context, [c for c, _ in ran])
        group.costs += [s for _, s in ran]

    def predict(self, context: Any, candidates: Sequence[MeasureCandidate]) -> _Array:
        rows = np.array(self._features(context, candidates))
        if not len(rows):
            return np.zeros(0)
        if not self.knows(context):
            return self._rng.random(len(rows))
        key = _key(context)
        group = self.data.get(key, FeatureGroup(key))
        guess = self._guess(key)
        centre = group.centre if group.costs else rows.mean(axis=0)
        scores = np.zeros(len(rows)) if guess is None else guess.predict(rows - centre)
        if len(group.costs) >= self.num_warmup_samples:
            size, trust, rest = self._rests.get(key, (0, 1.0, None))
            if rest is None or size != len(group.costs):
                own, values = np.array(group.features), group.values()
                guessed = np.zeros(len(own)) if guess is None else guess.predict(own - centre)
                trust, rest = _slope(guessed, values), self._new()
                rest.fit(own, values - trust * guessed)
                self._rests[key] = len(group.costs), trust, rest
            scores = trust * scores + rest.predict(rows)
        return scores

    def _guess(self, key: str) -> Regressor | None:
        """What other kernels teach of differences within a kernel."""
        here = [g for k, g in self.data.items() if k != key]
        others = [g for g in (*self.prior, *here) if len(g.costs) > 1]
        size = sum(len(g.costs) for g in others)
        if size < self.num_warmup_samples:
            return None
        known, guess = self._guesses.get(key, (0, None))
        if guess is None or size > known * _GROWN:
            guess = self._new()
            rows = np.concatenate([np.array(g.features) - g.centre for g in others])
            guess.fit(rows, np.concatenate([g.values() for g in others]))
            self._guesses[key] = size, guess
            # What is left after the guess is something else now.
            self._rests.pop(key, None)
        return guess

    def _features(self, context: Any, candidates: Sequence[MeasureCandidate]) -> list[_Array]:
        if not candidates:
            return []
        with asked(self.extractor, "extract_from"):
            tables = [
                np.asarray(t).astype("float64", copy=False)
                for t in self.extractor.extract_from(context, candidates)
            ]
            if len(tables) != len(candidates) or not all(
                t.ndim == 2 and np.isfinite(t).all() for t in tables
            ):
                raise ScheduleError(
                    f"wanted a table of finite numbers for each of {len(candidates)} candidates, "
                    f"got {[t.shape for t in tables][:3]}..."
                )
            return [of_whole(t) for t in tables]

    def save(self, path: str | os.PathLike[str]) -> None:
        """All candidates that are known: numbers and seconds, by kernel, as JSON."""
        groups = [
            [group.group_hash, [row.tolist() for row in group.features], group.costs]
            for group in self.data.values()
        ]
        _write(path, "features", groups)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Know what `save` wrote, and nothing else. Raises LoadError if it is something else."""
        groups = _read(path, "features")
        data: dict[str, FeatureGroup] = {}
        try:
            for key, rows, costs in groups:
                table = np.array(rows, "float64").reshape(len(costs), -1)
                if not (np.isfinite(table).all() and all(0 < float(c) < math.inf for c in costs)):
                    raise ValueError("numbers that are none")
                data[str(key)] = FeatureGroup(str(key), list(table), [float(c) for c in costs])
            if len({row.shape for group in data.values() for row in group.features}) > 1:
                raise ValueError("rows of different lengths")
        except (TypeError, ValueError) as error:
            raise LoadError(f"{os.fspath(path)}: not what a cost model saved: {error}") from None
        self.data = data
        self._guesses.clear()
        self._rests.clear()


class XGBModel(FeatureModel):
    """Gradient boosting of scikit-learn where that is installed (the extra `tune`), else ridge
    regression over the numbers and their squares; XGBoost itself is not used.
    """

    def __init__(
        self,
        *,
        extractor: FeatureExtractor | str = "per-store-feature",
        num_warmup_samples: int = 8,
        seed: int = 0,
        prior: Sequence[FeatureGroup] = (),
    ) -> None:
        super().__init__(
            lambda: boosting(seed), extractor=extractor,
            num_warmup_samples=num_warmup_samples, seed=seed, prior=prior,
        )  # fmt: skip


class MLPModel(FeatureModel):
    """A small network: two layers of `hidden_dim` units, trained `epochs` times on all that is
    known each time that there is more.
    """

    def __init__(
        self,
        *,
        extractor: FeatureExtractor | str = "per-store-feature",
        num_warmup_samples: int = 8,
        hidden_dim: int = 32,
        epochs: int = 150,
        learning_rate: float = 0.02,
        seed: int = 0,
    ) -> None:
        super().__init__(
            lambda: Network(hidden_dim, epochs, learning_rate, seed),
            extractor=extractor, num_warmup_samples=num_warmup_samples, seed=seed,
        )  # fmt: skip


def _slope(guessed: _Array, values: _Array) -> float:
    """How far guesses are to be trusted, from 0 to 1: that part of them is the nearest to what was
    measured.
    """
    around = guessed - guessed.mean()
    return float(np.clip(around @ values / max(around @ around, 1e-9), 0.0, 1.0))


def knows(model: CostModel | None, context: Any) -> bool:
    """Whether there is a model, perhaps the user's, that is worth asking."""
    if model is None:
        return False
    with asked(model, "knows"):
        return model.knows(context)


def scores_of(
    model: CostModel | None, context: Any, candidates: Sequence[MeasureCandidate]
) -> _Array:
    """What a model, perhaps the user's, predicts; of one that is not worth asking, nothing."""
    if model is None or not candidates or not knows(model, context):
        return np.zeros(0)
    with asked(model, "predict"):
        scores = np.asarray(model.predict(context, candidates), "float64")
        if scores.shape != (len(candidates),):
            raise ScheduleError(
                f"wanted a number for each of {len(candidates)} candidates, got an array of shape "
                f"{scores.shape}"
            )
        return scores


def _key(context: Any) -> str:
    return "" if context.mod is None else key_of(entry_of(context.mod))


def _seconds(result: RunnerResult) -> float | None:
    """The median of what a candidate took, or None."""
    times = list(result.run_secs or ()) if result.error_msg is None else []
    median = statistics.median(times) if times else 0.0
    return median if 0 < median < math.inf else None


def _write(path: str | os.PathLike[str], kind: str, content: Iterable[Any]) -> None:
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"cost model": kind, "content": content}, file)


def _read(path: str | os.PathLike[str], kind: str) -> list[Any]:
    try:
        with open(path, encoding="utf-8") as file:
            saved = json.load(file)
    except (ValueError, RecursionError) as error:
        raise LoadError(f"{os.fspath(path)}: not what a cost model saved: {error}") from None
    match saved:
        case {"cost model": str(other), "content": [*content]} if other == kind:
            return content
    raise LoadError(f"{os.fspath(path)}: not what a cost model of this kind saved ({kind})")


_KINDS: dict[str, Callable[..., CostModel]] = {
    "xgb": XGBModel,
    "mlp": MLPModel,
    "random": RandomModel,
}
create = CostModel.create

__getattr__ = submodules(__name__)
