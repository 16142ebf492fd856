"""`WholeModel`: builds of a model measured against each other, by turns."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from .base import RelaxvmError
from .choices import CORES, Choices
from .ir import IRModule
from .meta_schedule import Listener, Whole, heard
from .meta_schedule.measure import Comparison, sign_test
from .pipeline import build
from .relax.analysis import called_operators
from .runtime import Executable, VirtualMachine, cpu
from .target import Target, cpu_model

# Layouts that are tried where a model has the operator.
LAYOUTS = {"relax.nn.conv2d": ["NHWC", "OHWI"]}
# Seconds of a sample, and the fewest and the most pairs of samples of a comparison.
_SAMPLE, _FEWEST, _MOST = 0.002, 5, 200
# How far results of two builds may differ, relative to the largest.
_CLOSE = 1e-2


class WholeModel:
    """A module with a function "main", its arguments, and how long it takes.

    mod         with graph functions
    inputs      gives arguments of "main" for a program
    confidence  of a comparison
    seconds     that one comparison takes
    """

    def __init__(
        self,
        mod: IRModule,
        target: Target,
        inputs: Callable[[Executable], Sequence[Any]],
        *,
        num_threads: int | None = None,
        confidence: float = 0.95,
        seconds: float = 1.0,
    ) -> None:
        self.mod, self.target, self._inputs = mod, target, inputs
        self._threads, self._confidence, self._seconds = num_threads, confidence, seconds
        self._values: Sequence[Any] | None = None
        begun = time.perf_counter()
        self.default = self.runs(Choices())
        self.seconds_of_one = time.perf_counter() - begun + seconds
        """What building and comparing took the last time."""

    def runs(self, choices: Choices) -> Callable[[], Any]:
        """The model, built with some choices, to be called. Databases that are entered count."""
        with choices.passes():
            target = choices.target(self.target)
            program = build(choices.converted(self.mod), target, exec_mode=choices.exec_mode)
        vm = VirtualMachine(program, cpu(), num_threads=self._threads)
        if self._values is None:
            self._values = self._inputs(program)
        return functools.partial(vm["main"], *self._values)

    def choose(self, deadline: float, whole: Whole, tell: Listener) -> Choices:
        """The fastest of some choices; each that is surely faster is kept for the next ones. Begins
        nothing that will not be over by `deadline`, as far as the last one tells.
        """
        chosen, best = Choices(), self.default
        for decided in self._decisions():
            begun = time.perf_counter()
            if begun + self.seconds_of_one > deadline:
                tell("note", None, "the whole model: no time for further choices")
                break
            other = replace(chosen, **decided)
            try:
                with heard():
                    run = self.runs(other)
                    compared = self.compare(best, run)
            except KeyboardInterrupt:
                tell("note", None, "interrupted: what was chosen for the whole model is kept")
                break
            except RelaxvmError as error:
                tell("note", None, f"the whole model, {other}: {error}")
                continue
            self.seconds_of_one = time.perf_counter() - begun
            if compared is None:
                tell("note", None, f"the whole model, {other}: other results, not taken")
                continue
            whole.tried.append((str(other), compared))
            tell("note", None, f"the whole model, {other}: {compared}")
            if compared.holds:
                chosen, best = other, run
        whole.chosen = str(chosen)
        return chosen

    def _decisions(self) -> Iterator[dict[str, Any]]:
        """Fields of `Choices`."""
        operators = {f"relax.{name.removeprefix('relax.')}" for name in called_operators(self.mod)}
        yield {"without": ("FuseOps",)}
        for name, wanted in LAYOUTS.items():
            if name in operators:
                yield {"layouts": {name: wanted}}
        if cpu_model(self.target).cores > 1 and CORES not in self.target.options:
            yield {"cores": 1}
        yield {"exec_mode": "bytecode"}

    def compare(self, one: Callable[[], Any], other: Callable[[], Any]) -> Comparison | None:
        """Whether the second is faster; None if its results are others."""
        if not _alike(one(), other()):
            return None
        calls = [max(1, int(_SAMPLE / max(_seconds_of(run, 1), 1e-7))) for run in (one, other)]
        deadline = time.perf_counter() + self._seconds
        pairs: list[list[float]] = []
        while len(pairs) < _FEWEST or (len(pairs) < _MOST and time.perf_counter() < deadline):
            order = (0, 1) if len(pairs) % 2 else (1, 0)
            took = {k: _seconds_of((one, other)[k], calls[k]) for k in order}
            pairs.append([took[0], took[1]])
        return sign_test(pairs, self._confidence, 0.01)


def _seconds_of(run: Callable[[], Any], calls: int) -> float:
    """Of one of so many calls."""
    begun = time.perf_counter()
    for _ in range(calls):
        run()
    return (time.perf_counter() - begun) / calls


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(map(_alike, one, other))
    if not hasattr(one, "numpy"):
        return bool(one == other)
    a, b = np.asarray(one.numpy()), np.asarray(other.numpy())
    if a.dtype.kind not in "fV" or not a.size:
        return a.shape == b.shape and bool((a == b).all())
    largest = float(np.abs(np.nan_to_num(a)).max())
    with contextlib.suppress(ValueError):
        return bool(np.allclose(a, b, rtol=_CLOSE, atol=_CLOSE * largest, equal_nan=True))
    return False
