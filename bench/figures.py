"""Figures that have a target: benches record them, and a table at the end says met or missed.

The targets are those of the project's issues; figures of one run belong together.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """A figure `value(recorded)` in `unit`, which is met at most (or at least) at `bound`; None:
    shown for comparison only.
    """

    text: str
    value: Callable[[dict[str, float]], float]
    unit: str
    bound: float | None = None
    at_least: bool = False

    def verdict(self, value: float) -> str:
        """`` <= 300  met``"""
        if self.bound is None:
            return ""
        met = value >= self.bound if self.at_least else value <= self.bound
        sign = ">=" if self.at_least else "<="
        return f" {sign} {self.bound:<8.3g} {'met' if met else 'MISSED'}"


_NUMPY_US = 0.7
_seconds: dict[str, float] = {}


def _of(name: str, scale: float) -> Callable[[dict[str, float]], float]:
    return lambda seconds: seconds[name] * scale


def _ratio(above: str, below: str) -> Callable[[dict[str, float]], float]:
    return lambda seconds: seconds[above] / seconds[below]


def _above_own_cost(seconds: dict[str, float]) -> float:
    return (seconds["env, relaxvm"] - seconds["env, direct"]) * 1e9


TARGETS = (
    Target("x + 1, output allocated", _of("x+1, relaxvm", 1e9), "ns", 300),
    Target("  beside onnxruntime", _ratio("x+1, relaxvm", "x+1, onnxruntime"), "x", 1 / 15),
    Target("  beside numpy", _ratio("x+1, relaxvm", "x+1, numpy"), "x"),
    Target("  beside torch", _ratio("x+1, relaxvm", "x+1, torch"), "x"),
    Target("x + 1, out=", _of("x+1, relaxvm out=", 1e9), "ns", 120),
    Target("chain of 100, per kernel, compiled", _of("chain, compiled", 1e9), "ns", 5),
    Target("  in four strands side by side", _of("chain, compiled, strands", 1e9), "ns", 3),
    Target("chain of 100, per kernel, interpreter", _of("chain, bytecode", 1e9), "ns", 200),
    Target("env.* call above its own cost", _above_own_cost, "ns", 300),
    Target("seed MLP beside onnxruntime", _ratio("mlp, relaxvm", "mlp, onnxruntime"), "x", 0.65),
    Target("  beside numpy", _ratio("mlp, relaxvm", "mlp, numpy"), "x"),
    Target("parallel region of an empty body", _of("region", 1e6), "us", 5),
    Target(
        "two Python threads, one VM, calls a second",
        _ratio("5 ms kernel, 1 thread", "5 ms kernel, 2 threads"),
        "x",
        1.8,
        at_least=True,
    ),
    Target("load digits and call, after import; best of 9", _of("load, warm", 1e3), "ms", 15),
    Target("  with the import of llvmlite", _of("load, cold", 1e3), "ms"),
)

CALLS = 100


def record(benchmark: Any, name: str, per: int = 1) -> None:
    """Keep the median of a finished bench as the figure `name`, for one of `per` things in it."""
    if benchmark.stats is not None:
        _seconds[name] = benchmark.stats.stats.median / per


def record_seconds(name: str, seconds: float) -> None:
    """Keep a figure that was measured otherwise."""
    _seconds[name] = seconds


def many(call: Callable[..., Any], x: Any, out: Any = None) -> Callable[[], None]:
    """A function that makes `CALLS` calls on `x`; the `for` is measured with them."""

    def plain() -> None:
        for _ in itertools.repeat(None, CALLS):
            call(x)

    def with_out() -> None:
        for _ in itertools.repeat(None, CALLS):
            call(x, out=out)

    return plain if out is None else with_out


def table() -> list[str]:
    """The lines of the closing table; none if nothing was recorded."""
    rows = []
    for target in TARGETS:
        try:
            value = target.value(_seconds)
        except KeyError:
            continue
        rows.append(f"{target.text:48} {value:9.3g} {target.unit:3}{target.verdict(value)}")
    if "x+1, numpy" in _seconds:
        now = _seconds["x+1, numpy"] * 1e6
        rows.append(
            f"(numpy's x + 1 took {now:.2f} us; {_NUMPY_US} us on this kind of machine, idle)"
        )
    return rows
