"""What cost models are made of: numbers predicted from rows of numbers.

A regressor forgets what it knew when it is fitted again.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ..base import submodules

_Array = np.ndarray[Any, Any]


class Regressor(Protocol):
    """rows [n, k] to values [n]"""

    def fit(self, rows: _Array, values: _Array) -> object: ...

    def predict(self, rows: _Array) -> _Array: ...


class _Scaled:
    """Columns moved and scaled to mean 0 and variance 1; those that are constant, to 0."""

    def __init__(self, rows: _Array) -> None:
        self._mean, deviation = rows.mean(axis=0), rows.std(axis=0)
        self._scale = np.where(deviation > 1e-9, deviation, np.inf)

    def __call__(self, rows: _Array) -> _Array:
        scaled: _Array = (rows - self._mean) / self._scale
        return scaled


class Ridge:
    """Least squares with a penalty, over numbers and their squares."""

    def __init__(self, penalty: float = 30.0) -> None:
        self._penalty = penalty

    def fit(self, rows: _Array, values: _Array) -> Ridge:
        wide = _with_squares(rows)
        self._scaled, self._offset = _Scaled(wide), float(values.mean())
        scaled, rest = self._scaled(wide), values - self._offset
        n, k = scaled.shape
        # The smaller of the two systems with the same solution.
        if n < k:
            dual = np.linalg.solve(scaled @ scaled.T + self._penalty * np.eye(n), rest)
            self._weights = scaled.T @ dual
        else:
            gram = scaled.T @ scaled + self._penalty * np.eye(k)
            self._weights = np.linalg.solve(gram, scaled.T @ rest)
        return self

    def predict(self, rows: _Array) -> _Array:
        predicted: _Array = self._scaled(_with_squares(rows)) @ self._weights + self._offset
        return predicted


def _with_squares(rows: _Array) -> _Array:
    return np.concatenate([rows, rows**2], axis=1)


class Network:
    """Two layers of `hidden` units and one output, trained by Adam on all rows at once."""

    def __init__(
        self, hidden: int = 32, epochs: int = 150, learning_rate: float = 0.02, seed: int = 0
    ) -> None:
        self._hidden, self._epochs, self._rate, self._seed = hidden, epochs, learning_rate, seed

    def fit(self, rows: _Array, values: _Array) -> Network:
        self._scaled, self._offset = _Scaled(rows), float(values.mean())
        spread = float(values.std())
        self._spread = spread if spread > 1e-9 else 1.0
        x, y = self._scaled(rows), (values - self._offset) / self._spread
        rng = np.random.default_rng(self._seed)
        sizes = [x.shape[1], self._hidden, self._hidden, 1]
        self._layers = [
            array
            for n, m in itertools.pairwise(sizes)
            for array in (rng.standard_normal((n, m)) / np.sqrt(n), np.zeros(m))
        ]
        moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self._layers]
        for step in range(1, self._epochs + 1):
            for w, gradient, (mean, square) in zip(self._layers, self._gradients(x, y), moments):
                # A pull towards 0, for there are few rows.
                gradient = gradient + 1e-3 * w
                mean += 0.1 * (gradient - mean)
                square += 0.001 * (gradient**2 - square)
                root = np.sqrt(square / (1 - 0.999**step)) + 1e-8
                w -= self._rate * mean / (1 - 0.9**step) / root
        return self

    def _gradients(self, x: _Array, y: _Array) -> list[_Array]:
        """Of half the mean squared error, for each of the layers' arrays."""
        w1, b1, w2, b2, w3, b3 = self._layers
        first = np.tanh(x @ w1 + b1)
        second = np.tanh(first @ w2 + b2)
        out = ((second @ w3 + b3)[:, 0] - y)[:, None] / len(y)
        below = out @ w3.T * (1 - second**2)
        lowest = below @ w2.T * (1 - first**2)
        return [
            *(x.T @ lowest, lowest.sum(axis=0), first.T @ below, below.sum(axis=0)),
            *(second.T @ out, out.sum(axis=0)),
        ]

    def predict(self, rows: _Array) -> _Array:
        w1, b1, w2, b2, w3, b3 = self._layers
        hidden = np.tanh(np.tanh(self._scaled(rows) @ w1 + b1) @ w2 + b2)
        predicted: _Array = (hidden @ w3 + b3)[:, 0] * self._spread + self._offset
        return predicted


def boosting(seed: int = 0) -> Regressor:
    """Gradient boosting where scikit-learn is installed (extra `tune`), else `Ridge`.

    In one thread: the threads of the histogram variant wait for each other where kernels are built
    or neighbours compute: a test took five times as long with it.
    """
    try:
        from sklearn.ensemble import GradientBoostingRegressor
    except ImportError:
        return Ridge()
    model: Regressor = GradientBoostingRegressor(
        n_estimators=80, max_depth=4, max_features=0.3, subsample=0.8, random_state=seed
    )
    return model


def rank_correlation(a: Sequence[float] | _Array, b: Sequence[float] | _Array) -> float:
    """Spearman's: 1 if both are in the same order, -1 if in the opposite one; 0 of less than 2."""
    one, other = (np.argsort(np.argsort(values)).astype(float) for values in (a, b))
    return statistics.correlation(one.tolist(), other.tolist()) if len(one) > 1 else 0.0


__getattr__ = submodules(__name__)
