"""What a command tells: results on standard output, progress and errors on standard error; with
colours and tables of `rich` where that is installed and a terminal reads, else as plain text.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

Cell = str | int | float | None
# Where a terminal has no room for numbers and so much of each text, it gets lines, no table.
_NARROWEST = 12
# Texts that are longer move what follows them, in their line only.
_WIDEST = 80


class Console:
    """The two streams of a command.

    json  only `result` is written to standard output, as one JSON document
    """

    def __init__(self, as_json: bool = False) -> None:
        self.json = as_json
        self.stages: dict[str, float] = {}
        self._rich = {stream: _rich(stream) for stream in (sys.stdout, sys.stderr)}

    # -- results ----------------------------------------------------------------------------------

    def text(self, text: str = "") -> None:
        """Lines of a result."""
        if not self.json:
            print(text)

    def table(
        self, heads: Sequence[str], rows: Sequence[Sequence[Cell]], title: str = "", left: int = 1
    ) -> None:
        """A table of a result; the first `left` columns are texts, the others numbers."""
        if self.json:
            return
        cells = [[_shown(cell) for cell in row] for row in rows]
        terminal = self._rich.get(sys.stdout)
        lines = [list(heads), *cells]
        wide = [max(map(len, column)) for column in zip(*lines)]
        least = [min(w, _NARROWEST) if i < left else w for i, w in enumerate(wide)]
        # A table draws a line and two spaces for each column, and a line more.
        if terminal is not None and sum(least) + 3 * len(least) + 1 <= terminal.width:
            from rich.table import Table

            table = Table(title=title or None, title_justify="left")
            for i, head in enumerate(heads):
                table.add_column(
                    head, justify="left" if i < left else "right", overflow="fold",
                    no_wrap=i >= left,
                )  # fmt: skip
            for row in cells:
                table.add_row(*map(_escaped, row))
            terminal.print(table)
            return
        if title:
            print(title)
        for row in lines:
            padded = [
                c.ljust(min(w, _WIDEST)) if i < left else c.rjust(w)
                for i, (c, w) in enumerate(zip(row, wide))
            ]
            print("  ".join(padded).rstrip())

    def result(self, plain: Any) -> None:
        """The whole result for machines."""
        if self.json:
            json.dump(plain, sys.stdout, indent=1, default=str)
            print()

    # -- progress ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def stage(self, what: str) -> Iterator[None]:
        """Tell that something begins, and how long it took."""
        terminal = self._rich.get(sys.stderr)
        began = time.perf_counter()
        with terminal.status(what) if terminal is not None else contextlib.nullcontext():
            yield
        self.took(what, time.perf_counter() - began)

    def took(self, what: str, seconds: float) -> None:
        """Tell how long a stage took."""
        self.stages[what] = seconds
        self.note(f"{what:<44} {seconds:8.3f} s")

    def note(self, text: str) -> None:
        """A line that is no result."""
        print(text, file=sys.stderr)

    def warn(self, text: str) -> None:
        """A line that should not be missed."""
        self._coloured(f"warning: {text}", "yellow")

    def fail(self, error: BaseException) -> None:
        """Why there is no result."""
        notes = list(getattr(error, "__notes__", ()))
        message = str(error) or type(error).__name__
        if isinstance(error, MemoryError):
            message = f"there is not enough memory: {message}"
        self._coloured("\n".join([f"error: {message}", *notes]), "red")
        if self.json:
            self.result({"error": message, "kind": type(error).__name__, "notes": notes})

    def close(self) -> None:
        """Write what is left; a full disk or a closed pipe is told here."""
        sys.stdout.flush()

    def _coloured(self, text: str, colour: str) -> None:
        terminal = self._rich.get(sys.stderr)
        if terminal is not None:
            terminal.print(text, style=colour, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr)


def _rich(stream: Any) -> Any:
    if not stream.isatty():
        return None
    try:
        import rich.console
    except ImportError:
        return None
    return rich.console.Console(file=stream)


def _escaped(text: str) -> str:
    import rich.markup

    return rich.markup.escape(text)


def _shown(cell: Cell) -> str:
    if cell is None:
        return ""
    return f"{cell:.3f}" if isinstance(cell, float) else str(cell)


def few(names: Sequence[str]) -> str:
    """The first of many names."""
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")


def size_text(size_bytes: Any) -> str:
    """A number of bytes for readers; other texts (formulas) as they are."""
    if not isinstance(size_bytes, int):
        return str(size_bytes)
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if size_bytes >= step:
            return f"{size_bytes / step:.1f} {unit}"
    return f"{size_bytes} bytes"
