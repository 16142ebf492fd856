"""Measuring how long a call takes, with the options and the result that TVM users know."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import VMTypeError, VMValueError
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


def measure(
    call: Callable[[], object],
    number: int = 10,
    repeat: int = 1,
    min_repeat_ms: int = 0,
    limit_zero_time_iterations: int = 100,
    cooldown_interval_ms: int = 0,
    repeats_to_cooldown: int = 1,
    before: Callable[[], object] | None = None,
) -> BenchmarkResult:
    """Time `call`: one warm-up, then `repeat` times the mean of `number` calls.

    `number` grows until one repeat lasts `min_repeat_ms`; a rest of `cooldown_interval_ms` follows
    every `repeats_to_cooldown` repeats. `before` runs ahead of every repeat, outside the
    measurement. Raises VMValueError for numbers out of range.
    """
    number = _checked("number", number, 1)
    repeat = _checked("repeat", repeat, 1)
    min_repeat_s = _checked("min_repeat_ms", min_repeat_ms, 0) / 1e3
    zero_runs = _checked("limit_zero_time_iterations", limit_zero_time_iterations, 1)
    rest_s = _checked("cooldown_interval_ms", cooldown_interval_ms, 0) / 1e3
    rest_every = _checked("repeats_to_cooldown", repeats_to_cooldown, 1)
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
    check_options(options)
    prepare = get_global_func(f_preproc) if f_preproc else None

    def evaluate(*args: Any, **kwargs: Any) -> BenchmarkResult:
        before = None if prepare is None else lambda: prepare(*args, **kwargs)
        return measure(lambda: function(*args, **kwargs), before=before, **options)

    return evaluate


def check_options(options: Mapping[str, Any]) -> None:
    """Raise VMTypeError or VMValueError unless `options` are options of `measure`."""
    least = {
        "number": 1,
        "repeat": 1,
        "min_repeat_ms": 0,
        "limit_zero_time_iterations": 1,
        "cooldown_interval_ms": 0,
        "repeats_to_cooldown": 1,
    }
    for name, value in options.items():
        if name not in least:
            raise VMTypeError(f"time_evaluator: unknown option {name!r}; known: {', '.join(least)}")
        _checked(name, value, least[name])


def _checked(name: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise VMTypeError(f"time_evaluator: {name}: wanted an int, got {type(value).__name__}")
    if not least <= value <= _MAX_RUNS:
        raise VMValueError(f"time_evaluator: {name}: wanted {least} to {_MAX_RUNS}, got {value}")
    return value


def _timed(call: Callable[[], object], number: int) -> float:
    runs = range(number)
    start = time.perf_counter()
    for _ in runs:
        call()
    return time.perf_counter() - start
