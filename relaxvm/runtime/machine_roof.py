"""What this machine can do at most, measured once per process with numpy: the yardstick of
profiles.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_SIZES_BYTES = (1 << 15, 1 << 18, 1 << 22, 1 << 26)
_MATRIX = 384
_ROUND_SECONDS = 0.004
_ROUNDS = 3


@dataclass(frozen=True)
class Roof:
    """Measured rates: arithmetic of a float32 `numpy.matmul`, and bytes per second of the better of
    a streaming read and a copy, for blocks of several sizes (caches are faster than memory).
    """

    flops_per_second: float
    bytes_per_second: tuple[tuple[int, float], ...]

    def bandwidth(self, size_bytes: int) -> float:
        """Bytes per second for a working set of this size: that of the next larger block."""
        for size, rate in self.bytes_per_second:
            if size_bytes <= size:
                return rate
        return self.bytes_per_second[-1][1]

    def least_seconds(self, size_bytes: int, flops: float | None) -> float:
        """The least time that moving so many bytes and so much arithmetic can take."""
        moving = size_bytes / self.bandwidth(size_bytes)
        return max(moving, (flops or 0.0) / self.flops_per_second)

    def __str__(self) -> str:
        rates = ", ".join(
            f"{rate / 1e9:.1f} GB/s up to {_size_text(size)}"
            for size, rate in self.bytes_per_second
        )
        return (
            f"measured with numpy in this process: {self.flops_per_second / 1e9:.1f} GFLOP/s "
            f"(float32 matmul), {rates} (larger of read and copy, one thread)"
        )


def _size_text(size_bytes: int) -> str:
    return f"{size_bytes >> 20} MiB" if size_bytes >= 1 << 20 else f"{size_bytes >> 10} KiB"


@functools.lru_cache(maxsize=1)
def machine_roof() -> Roof:
    """This machine's rates. The first call takes about a tenth of a second."""
    a = np.ones((_MATRIX, _MATRIX), np.float32)
    out = np.empty_like(a)
    matmul = _seconds(lambda: np.matmul(a, a, out=out))
    rates = []
    for size in _SIZES_BYTES:
        x = np.ones(size // 4, np.float32)
        half = x[: x.size // 2]
        target = np.empty_like(half)
        read = _seconds(functools.partial(np.dot, x, x))
        copied = _seconds(functools.partial(np.copyto, target, half))
        rates.append((size, size / min(read, copied)))
    # A larger block is never faster: what says otherwise is noise.
    falling = []
    for i, (size, _) in enumerate(rates):
        falling.append((size, max(rate for _, rate in rates[i:])))
    return Roof(2.0 * _MATRIX**3 / matmul, tuple(falling))


def _seconds(work: Callable[[], object]) -> float:
    """The shortest of a few rounds, per call."""
    work()
    best = float("inf")
    for _ in range(_ROUNDS):
        count = 0
        start = time.perf_counter()
        while True:
            work()
            count += 1
            elapsed = time.perf_counter() - start
            if elapsed > _ROUND_SECONDS:
                break
        best = min(best, elapsed / count)
    return max(best, 1e-9)
