"""What is tuned, and what came of it: `Task`, `Tuned`, and the table that shows them."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Any

from ..base import ScheduleError, record, submodules, table
from ..tir import PrimFunc
from ..tir.schedule.plans import is_scheduled
from .arg_info import entry_of
from .candidate import MeasureCandidate
from .database import Database, key_of
from .measure import Comparison
from .runner import RunnerResult
from .sizes import Sized, sized
from .tune_context import TuneContext
from .whole import Whole

EMPTY: Mapping[str, Any] = MappingProxyType({})
CANNOT = "cannot be measured"
"""How the state of a task begins that failed."""
INTERRUPTED, TIME = "interrupted", "time"
"""Why a tuning ended that was, or whose time was over."""
# What a round is expected to win of a kernel at first, as a part of its distance to the roof; what
# is left of that after a round that won nothing; below which part of it, of so many trials, it is
# given up.
_HOPE, FADES, _HOPELESS, _MANY = 0.2, 0.75, 0.004, 64
# How many candidates go to the final: the fastest may only seem so.
FINALISTS = 3


@record(frozen=False)
class Task:
    """A kernel that is tuned.

    share     its part of the time of all kernels in a run of the model, from 0 to 1
    state     "waiting", "searching", "tuned", or why it keeps the default schedule
    seconds   of the default schedule and of the fastest candidate, None until they are measured
    fastest   seconds, as they are without noise, and candidates that go to the final, until one is
              surely faster
    ctx       how it is searched; None: as the tuning says
    weight    how often it runs, where that is known instead of its share
    won       by each round, as a part of the time that it took before
    hope      what a round is expected to win, as a part of its distance to the roof
    sizes     of its symbols, and its scalars, in a run of the model
    pruned    how many candidates a cost model left out
    measured  the candidates of the last round, what became of them in `results`
    """

    name: str
    fn: PrimFunc
    share: float
    state: str = "waiting"
    default_seconds: float | None = None
    best_seconds: float | None = None
    trials: int = 0
    refused: int = 0
    pruned: int = 0
    roof_share: float | None = None
    correlation: float | None = None
    spent: float = 0.0
    final: Comparison | None = None
    fastest: list[tuple[float, MeasureCandidate]] = field(default_factory=list)
    hope: float = _HOPE
    won: list[float] = field(default_factory=list)
    names: list[str] = field(default_factory=list)
    ctx: TuneContext | None = None
    weight: float | None = None
    sizes: Mapping[str, int | float] = field(default_factory=dict)
    measured: list[MeasureCandidate] = field(default_factory=list)
    results: list[RunnerResult] = field(default_factory=list)

    @staticmethod
    def of(ctx: TuneContext, weight: float = 1.0) -> Task:
        """The kernel of a context, which runs so often. Raises ScheduleError for a context that
        cannot be searched.
        """
        name = ctx.task_name
        if ctx.mod is None or ctx.search_strategy is None:
            lacks = "mod" if ctx.mod is None else "search_strategy (such as 'evolutionary')"
            raise ScheduleError(f"tune: the context of {name} has no {lacks}")
        if not 0 < weight < math.inf:
            raise ScheduleError(f"tune: {name}: wanted a weight above 0, got {weight!r}")
        return Task(name, entry_of(ctx.mod), 0.0, names=[name], ctx=ctx, weight=float(weight))

    @functools.cached_property
    def sized(self) -> list[Sized]:
        """The kernel at the sizes at which it is measured: those where it is tuned first. Raises
        ScheduleError for what is called with addresses.
        """
        return sized(self.fn, self.sizes)

    @property
    def runner_futures(self) -> None:
        """What still runs, as TVM's tasks have it: nothing does between two rounds."""
        return None

    @property
    def is_terminated(self) -> bool:
        """Whether no more candidates are measured."""
        return self.state not in ("waiting", "searching")

    def ran(self, candidate: MeasureCandidate, seconds: float, noise: float = 1.0) -> None:
        """What a candidate took, while all was so many times slower than in calm: it may go to the
        final for what it would take otherwise, but that is not its time.
        """
        if self.default_seconds is None:
            return
        self.best_seconds = min(self.best_seconds or self.default_seconds, seconds)
        if seconds / noise < self.default_seconds:
            self.fastest.append((seconds / noise, candidate))
            self.fastest.sort(key=lambda pair: pair[0])
            del self.fastest[FINALISTS:]

    @property
    def is_failed(self) -> bool:
        """Whether it could not be measured, or nothing of its space."""
        return self.state.startswith(CANNOT)

    def learn(self, won: float) -> None:
        """What a round won."""
        self.won.append(won)
        self.hope = max(self.hope * FADES, won)

    @property
    def is_hopeless(self) -> bool:
        """Whether what is expected of the next round is next to nothing."""
        return self.hope * self.share < _HOPELESS * _HOPE and self.trials >= _MANY

    @property
    def best_part(self) -> float:
        """The time of the fastest so far, as a part of the default schedule's."""
        if not self.default_seconds or self.best_seconds is None:
            return 1.0
        return self.best_seconds / self.default_seconds

    @property
    def speedup(self) -> float:
        """Of what was accepted over the default schedule; 1.0 if that stays."""
        return self.final.speedup if self.final is not None and self.final.holds else 1.0

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        plain = {
            name: getattr(self, name)
            for name in (
                "name share state default_seconds best_seconds trials refused pruned roof_share "
                "correlation spent speedup"
            ).split()
        }
        return {**plain, "names": self.names, "final": str(self.final or "")}


@record(frozen=False)
class Tuned:
    """What tuning found.

    database  the records of what is faster than the default schedules
    tasks     kernels, those with the largest share first
    seconds   it took in all
    ended     "time", "trials", "nothing more to win", "interrupted"
    whole     what was tried on the whole model, if that was
    """

    database: Database
    tasks: list[Task]
    seconds: float
    ended: str
    whole: Whole | None = None

    @property
    def speedup(self) -> float:
        """Of the whole, as far as the shares of its kernels tell."""
        shares = sum(t.share for t in self.tasks)
        left = sum(t.share / t.speedup for t in self.tasks) + max(0.0, 1.0 - shares)
        return max(1.0, shares) / left if left else 1.0

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "seconds": self.seconds,
            "ended": self.ended,
            "speedup": self.speedup,
            "tasks": [t.to_plain() for t in self.tasks],
            "whole": None if self.whole is None else self.whole.to_plain(),
        }

    def rows(self) -> list[tuple[str, ...]]:
        """The table of `print(tuned)`, its heads first."""
        return [HEADS, *map(row_of, self.tasks)]

    def __str__(self) -> str:
        rows = self.rows()
        lines = table(rows, right={*range(len(HEADS))}.difference(WORDS))
        told = f"{self.speedup:.3f}x in all, {self.seconds:.0f} s, ended by: {self.ended}"
        whole = [] if self.whole is None else [str(self.whole)]
        return "\n".join([*lines, told, *whole])


HEADS = (
    *("kernel", "share", "default us", "best us", "roof", "speedup", "trials", "refused", "pruned"),
    "state",
)
"""Of the table of tasks."""
WORDS = (0, len(HEADS) - 1)
"""Its columns of words; all others are numbers."""


def row_of(task: Task) -> tuple[str, ...]:
    """A row of that table."""
    times = (task.default_seconds, task.best_seconds)
    return (
        task.name,
        f"{task.share:.1%}",
        *("" if t is None else f"{t * 1e6:.1f}" for t in times),
        "" if task.roof_share is None else f"{task.roof_share:.0%}",
        f"{task.speedup:.3f}x",
        str(task.trials),
        str(task.refused),
        str(task.pruned),
        task.state,
    )


# What happens, as it happens: ("task" | "trials" | "final" | "note", the task or None, a text).
Listener = Callable[[str, Task | None, str], object]


def tasks_from(
    kernels: Mapping[str, PrimFunc],
    shares: Mapping[str, float],
    sizes: Mapping[str, Mapping[str, int | float]] = EMPTY,
) -> list[Task]:
    """The kernels without a schedule of their own as tasks, equal ones once, those with the largest
    share first. Raises ScheduleError if there are none.

    shares  of the time of a run of the whole, by name
    sizes   of the symbols and scalars of kernels in that run, by the names of both
    """
    tasks: dict[str, Task] = {}
    for name, fn in kernels.items():
        if not is_scheduled(fn):
            task = tasks.setdefault(key_of(fn), Task(name, fn, 0.0, sizes=sizes.get(name, EMPTY)))
            task.share += shares.get(name, 0.0)
            task.names.append(name)
    if not tasks:
        raise ScheduleError(
            "tune: there is nothing to tune: no loop function without a schedule of its own"
        )
    return sorted(tasks.values(), key=lambda t: -t.share)


__getattr__ = submodules(__name__)
