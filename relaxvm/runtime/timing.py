"""Measuring how long a call takes, with the options and the result that TVM users know."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import VMTypeError, VMValueError
from .constants import integer
from .registry import get_global_func

_MAX_RUNS = 10**9


class BenchmarkResult:
    """Seconds per call: `results` (one per repeat) and their mean, median, min, max and std."""

    __slots__ = ("results", "mean", "median", "min", "max", "std")

    results: tuple[float, ...]
    mean: float
    median: float
    min: float
    max: float
    std: float

    def __init__(self, results: Sequence[float]) -> None:
        self.results = tuple(results)
        if not self.results:
            raise VMValueError("BenchmarkResult: wanted at least one result")
        self.mean = statistics.fmean(self.results)
        self.median = statistics.median(self.results)
        self.min, self.max = min(self.results), max(self.results)
        self.std = statistics.pstdev(self.results)

    def __repr__(self) -> str:
        fields = ", ".join(
            f"{name}={getattr(self, name)!r}" for name in ("mean", "median", "min", "max", "std")
        )
        return f"BenchmarkResult({fields}, results={self.results!r})"

    def __str__(self) -> str:
        names = ("mean", "median", "max", "min", "std")
        unit, scale = _unit(self.mean)
        heads = "  ".join(f"{f'{name} ({unit})':>12}" for name in names)
        values = "  ".join(f"{getattr(self, name) * scale:>12.4f}" for name in names)
        return f"Execution time summary:\n{heads}\n{values}"


def _unit(seconds: float) -> tuple[str, float]:
    for unit, scale in (("s", 1.0), ("ms", 1e3), ("us", 1e6)):
        if seconds * scale >= 1.0:
            return unit, scale
    return "ns", 1e9


# The options of `measure`: each by default, and at least.
_OPTIONS = {
    "number": (10, 1),
    "repeat": (1, 1),
    "min_repeat_ms": (0, 0),
    "limit_zero_time_iterations": (100, 1),
    "cooldown_interval_ms": (0, 0),
    "repeats_to_cooldown": (1, 1),
}


def measure(
    call: Callable[[], object], before: Callable[[], object] | None = None, **options: int
) -> BenchmarkResult:
    """Time `call`: one warm-up, then `repeat` (1) times the mean of `number` (10) calls.

    `number` grows until one repeat lasts `min_repeat_ms`, or takes no time at all
    `limit_zero_time_iterations` (100) times; a rest of `cooldown_interval_ms` follows every
    `repeats_to_cooldown` (1) repeats. `before` runs ahead of every repeat, outside the measurement.
    Raises VMTypeError or VMValueError for other options and for numbers out of range.
    """
    number, repeat, min_repeat_ms, zero_runs, rest_ms, rest_every = checked_options(options)
    min_repeat_s, rest_s = min_repeat_ms / 1e3, rest_ms / 1e3
    call()
    results = []
    for turn in range(repeat):
        if before is not None:
            before()
        elapsed, zeros = _timed(call, number), 0
        while elapsed < min_repeat_s and number < _MAX_RUNS:
            if elapsed <= 0.0:
                zeros += 1
                if zeros >= zero_runs:
                    break
            wanted = number * min_repeat_s / elapsed * 1.2 if elapsed > 0.0 else number * 2
            number = int(min(max(math.ceil(wanted), number + 1), number * 16, _MAX_RUNS))
            elapsed = _timed(call, number)
        results.append(elapsed / number)
        if rest_s and (turn + 1) % rest_every == 0:
            time.sleep(rest_s)
    return BenchmarkResult(results)


def time_evaluator(
    function: Callable[..., object], f_preproc: str = "", **options: Any
) -> Callable[..., BenchmarkResult]:
    """A callable that measures `function` on the arguments it is given. Options as in `measure`;
    `f_preproc` names a registered function that is called with the arguments before every repeat.
    """
    checked_options(options)
    prepare = get_global_func(f_preproc) if f_preproc else None

    def evaluate(*args: Any, **kwargs: Any) -> BenchmarkResult:
        before = None if prepare is None else lambda: prepare(*args, **kwargs)
        return measure(lambda: function(*args, **kwargs), before=before, **options)

    return evaluate


def checked_options(options: Mapping[str, Any]) -> list[int]:
    """All options of `measure`, in order, of which these are given. Raises VMTypeError or
    VMValueError for what is none.
    """
    for name, value in options.items():
        if name not in _OPTIONS:
            known = ", ".join(_OPTIONS)
            raise VMTypeError(f"time_evaluator: unknown option {name!r}; known: {known}")
        least = _OPTIONS[name][1]
        if not least <= integer(value, f"time_evaluator: {name}") <= _MAX_RUNS:
            raise VMValueError(
                f"time_evaluator: {name}: wanted {least} to {_MAX_RUNS}, got {value}"
            )
    return [options.get(name, default) for name, (default, _) in _OPTIONS.items()]


def options_in(named: dict[str, Any], **options: int) -> dict[str, Any]:
    """`options` and those of `measure` among `named`, which is left with what are none."""
    return options | {name: named.pop(name) for name in _OPTIONS if name in named}


def _timed(call: Callable[[], object], number: int) -> float:
    runs = range(number)
    start = time.perf_counter()
    for _ in runs:
        call()
    return time.perf_counter() - start
