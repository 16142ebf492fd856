"""From the values that were seen to the integers that stand for them.

A threshold on magnitudes is chosen first, by the mode; what lies beyond saturates. A grid then
spreads 8 bits over the range that is left: real = (stored - zero) * scale.
"""

from __future__ import annotations

import numpy as np

from ..base import NamedTuple
from .config import QConfig
from .observed import Observed

_TINY = float(np.finfo("float32").tiny)


class Grid(NamedTuple):
    """How reals are stored in `dtype`: scale a float32 scalar or vector, zero an int32 scalar."""

    scale: np.ndarray
    zero: np.ndarray
    dtype: str

    def stored(self, x: np.ndarray, axis: int = -1) -> np.ndarray:
        """The integers nearest to `x`; vectors go along `axis`."""
        limits = np.iinfo(self.dtype)
        shape = [1] * x.ndim
        if self.scale.ndim:
            shape[axis] = -1
        steps = np.rint(x.astype("float64") / self.scale.reshape(shape)) + self.zero
        return np.asarray(np.clip(steps, limits.min, limits.max)).astype(self.dtype)


def grid_of(seen: Observed, config: QConfig) -> Grid:
    """The grid of a value, of which `seen` tells what it was.

    Symmetric: scale = t / 127. Else the range [low, high] of what lies within the threshold t, with
    0 in it: scale = (high - low) / 255, zero = round(least stored - low / scale), so that 0 is
    stored exactly (arXiv 1712.05877, equation 1 and section 3).
    """
    limit = _threshold(seen, config)
    if config.symmetric or config.calibrate_mode == "global_scale":
        return _symmetric(np.asarray(limit), config.dtype_input)
    limits = np.iinfo(config.dtype_input)
    low, high = max(min(seen.low, 0.0), -limit), min(max(seen.high, 0.0), limit)
    if high == low:
        return _symmetric(np.asarray(0.0), config.dtype_input)
    scale = max((high - low) / 255, _TINY)
    zero = np.clip(np.rint(limits.min - low / scale), limits.min, limits.max)
    return Grid(np.asarray(scale, "float32"), np.asarray(zero, "int32"), config.dtype_input)


def weight_grid(weight: np.ndarray, axis: int | None, config: QConfig, least: float = 0.0) -> Grid:
    """The grid of a weight, by its greatest magnitude; along `axis`, of each channel.

    least  no scale is smaller, nor than a 65536th of the greatest
    """
    over = None if axis is None else tuple(k for k in range(weight.ndim) if k != axis)
    limit = np.abs(weight.astype("float64")).max(over, initial=0.0)
    if config.weight_scale == "power2":
        limit = np.exp2(np.ceil(np.log2(np.maximum(limit, _TINY)))) * (limit > 0)
    least = max(least, float(limit.max(initial=0.0)) / 127 / 2**16)
    return _symmetric(limit, config.dtype_weight, least)


def _symmetric(limit: np.ndarray, dtype: str, least: float = 0.0) -> Grid:
    """`limit` is 127 steps from zero, which is stored as 0, or 128 without a sign. Of a limit of 0
    a step is 1.
    """
    scale = np.maximum(limit / 127, max(least, _TINY))
    scale = np.where((limit == 0) & (least == 0), 1.0, scale).astype("float32")
    return Grid(scale, np.asarray(128 if dtype == "uint8" else 0, "int32"), dtype)


# -- thresholds ------------------------------------------------------------------------------------


def _threshold(seen: Observed, config: QConfig) -> float:
    if config.calibrate_mode == "global_scale":
        return float(config.global_scale)
    if seen.counts is None:
        return seen.limit
    width = seen.limit / len(seen.counts)
    if config.calibrate_mode == "percentile":
        return percentile(seen.counts, config.percentile) * width
    steps = 128 if config.symmetric or seen.low < 0 else 256
    return kl_divergence(seen.counts, steps) * width


def percentile(counts: np.ndarray, percent: float) -> float:
    """How many of the first bins hold at least `percent` of all."""
    upto = np.cumsum(counts)
    return float(np.searchsorted(upto, percent * upto[-1] / 100) + 1)


def kl_divergence(counts: np.ndarray, steps: int = 128) -> float:
    """How many bins to keep of a histogram of magnitudes so that, stored in `steps` integers, what
    is kept differs least from what was, in Kullback and Leibler's sense.

    S. Migacz, "8-bit Inference with TensorRT", GTC 2017: for each number of bins, P are these with
    all beyond them added to the last; Q the same bins without that, put into `steps` equal parts
    and each part spread evenly over its bins that are not empty; the threshold of the least
    KL(P || Q) lies in the middle of the last bin. Bins of P that Q has empty count as if Q had a
    millionth there. The first bin counts as the second does: zeros, of which activations have many,
    are stored exactly whatever is kept.
    """
    counts = counts.astype("float64")
    counts[0] = counts[1]
    beyond = counts.sum() - np.cumsum(counts)
    best, kept = np.inf, float(len(counts))
    for n in range(min(steps, len(counts)), len(counts) + 1):
        reference = counts[:n].copy()
        reference[-1] += beyond[n - 1]
        starts = np.arange(steps) * n // steps if n >= steps else np.arange(n)
        sizes = np.diff(starts, append=n)
        filled = counts[:n] > 0
        parts = np.add.reduceat(counts[:n], starts)
        used = np.maximum(np.add.reduceat(filled.astype("float64"), starts), 1)
        spread = np.repeat(parts / used, sizes) * filled
        there = reference > 0
        p = reference[there] / reference.sum()
        q = np.maximum(spread[there] / max(spread.sum(), 1.0), 1e-6)
        divergence = float((p * np.log(p / q)).sum())
        if divergence < best:
            best, kept = divergence, n + 0.5 if n < len(counts) else float(n)
    return kept
