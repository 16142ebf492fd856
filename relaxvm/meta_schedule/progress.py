"""What a person sees of tuning while it runs: a table that changes in a notebook, and where `rich`
is installed and a terminal reads; else a line for each kernel now and then.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Callable
from typing import Any, Protocol

from ..base import ScheduleError, notebook
from .tasks import HEADS, WORDS, Task, row_of

_EVERY_SECONDS = 5.0


class Progress:
    """A listener for `tune_kernels`; use it in a `with`.

    seconds  that tuning may take, for the time that is left; None: not told
    write    takes a line of text; None: the table, or standard error
    """

    def __init__(
        self, seconds: float | None = None, write: Callable[[str], object] | None = None
    ) -> None:
        self._seconds, self._begun = seconds, time.perf_counter()
        self._write = write or (lambda line: print(line, file=sys.stderr))
        self._tasks: dict[str, Task] = {}
        self._told, self._note = self._begun, ""
        self._live: _Live | None = _live_table() if write is None else None

    @staticmethod
    def chosen(listener: Any, seconds: float | None = None) -> Progress | _Given:
        """What a user asked for: a listener, False for none, None for a `Progress`."""
        if listener and not callable(listener):
            raise ScheduleError(
                f"tune: listener: wanted a function, False or None, got {listener!r}"
            )
        return Progress(seconds) if listener is None else _Given(listener or _silent)

    def __enter__(self) -> Progress:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *exception: object) -> None:
        if self._live is not None:
            self._show()
            self._live.stop()

    def __call__(self, kind: str, task: Task | None, text: str) -> None:
        now = time.perf_counter()
        if task is None:
            self._note = text
        else:
            self._tasks[task.name] = task
        if self._live is not None:
            if kind != "trials" or now - self._told > 0.25:
                self._told = now
                self._show()
        elif task is None:
            self._say(text)
        elif kind != "trials" or now - self._told > _EVERY_SECONDS:
            self._told = now
            self._say(f"{self._whole()}  {line_of(task)}{'  ' + text if kind == 'final' else ''}")

    def _say(self, line: str) -> None:
        try:
            self._write(line)
        except OSError:
            # Nobody reads any more.
            self._write = len

    def numbers(self) -> dict[str, float | None]:
        """Of the whole, by now: seconds that were spent and are left, trials, those of them that
        were refused, candidates that a cost model left out, trials a second, and how much faster
        than with the default schedules all is with the best so far.
        """
        spent, tasks = time.perf_counter() - self._begun, self._tasks.values()
        saved = sum(t.share * (1 - t.best_part) for t in tasks)
        known = self._seconds is not None and math.isfinite(self._seconds)
        return {
            "spent": spent,
            "left": max(0.0, (self._seconds or 0.0) - spent) if known else None,
            "trials": sum(t.trials for t in tasks),
            "refused": sum(t.refused for t in tasks),
            "pruned": sum(t.pruned for t in tasks),
            "trials_per_second": sum(t.trials for t in tasks) / max(spent, 1e-9),
            "best": 1 / max(1 - saved, 1e-9),
        }

    def _whole(self) -> str:
        n = self.numbers()
        left = "" if n["left"] is None else f", {n['left']:.0f} s left"
        return (
            f"{n['spent']:4.0f} s{left}, {n['trials_per_second']:.1f} trials/s, best so far "
            f"{n['best']:.3f}x in all"
        )

    def _show(self) -> None:
        if self._live is not None:
            shown = sorted(self._tasks.values(), key=lambda t: -t.share)[:30]
            title = f"{self._whole()}  {self._note}".rstrip()
            self._live.update(title, [HEADS, *map(row_of, shown)])


class Events(Progress):
    """The same for machines: an event a line, as JSON."""

    def __init__(self, seconds: float | None = None) -> None:
        super().__init__(seconds, lambda line: print(line, file=sys.stderr, flush=True))

    def __call__(self, kind: str, task: Task | None, text: str) -> None:
        if task is not None:
            self._tasks[task.name] = task
        plain = None if task is None else task.to_plain()
        self._say(json.dumps({"event": kind, "text": text, **self.numbers(), "task": plain}))


class _Given:
    """A listener of the user's, in a `with`."""

    def __init__(self, listener: Callable[[str, Task | None, str], object]) -> None:
        self._listener = listener

    def __enter__(self) -> Callable[[str, Task | None, str], object]:
        return self._listener

    def __exit__(self, *exception: object) -> None:
        pass


def _silent(kind: str, task: Task | None, text: str) -> None:
    pass


def line_of(task: Task) -> str:
    """A kernel in one line."""
    if task.default_seconds is None or task.best_seconds is None:
        return f"{task.name}: {task.state}"
    roof = "" if task.roof_share is None else f", roof {task.roof_share:.0%} of it"
    return (
        f"{task.name}: best {task.best_seconds * 1e6:.1f} us, default "
        f"{task.default_seconds * 1e6:.1f} us{roof}, {task.trials} trials, {task.refused} refused, "
        f"{task.pruned} pruned: {task.state}"
    )


class _Live(Protocol):
    """A table that changes."""

    def start(self) -> object: ...

    def update(self, title: str, rows: list[tuple[str, ...]]) -> object: ...

    def stop(self) -> object: ...


class _OnTerminal:
    def __init__(self, live: Any) -> None:
        self._live = live
        self.start, self.stop = live.start, live.stop

    def update(self, title: str, rows: list[tuple[str, ...]]) -> None:
        from rich.table import Table
        from rich.text import Text

        # What is in brackets is not meant as a style.
        table = Table(title=Text(title), title_justify="left")
        for k, head in enumerate(rows[0]):
            table.add_column(head, justify="left" if k in WORDS else "right")
        for row in rows[1:]:
            table.add_row(*map(Text, row))
        self._live.update(table, refresh=True)


class _InNotebook:
    def __init__(self) -> None:
        self._shown = notebook.Shown()

    def start(self) -> None:
        pass

    def update(self, title: str, rows: list[tuple[str, ...]]) -> None:
        lines = ["  ".join(row) for row in rows]
        self._shown.show(notebook.table_page(title, rows, WORDS), "\n".join([title, *lines]))

    def stop(self) -> None:
        pass


def _live_table() -> _Live | None:
    if notebook.is_notebook():
        return _InNotebook()
    try:
        from rich.console import Console
        from rich.live import Live
    except ImportError:
        return None
    console = Console(stderr=True)
    if not console.is_terminal:
        return None
    return _OnTerminal(Live(console=console, auto_refresh=False))
