"""Instruments: objects called around passes, given to `PassContext(instruments=[...])`.

An instrument has any of the methods of `PassInstrument`.
"""

from __future__ import annotations

import difflib
import html
import importlib
import pathlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from typing import TextIO

from ..base import VerifyError, add_note, submodules
from .equal import structural_equal
from .module import IRModule
from .transform import Pass, PassContext, PassInfo

# It sees the whole house.
__getattr__ = submodules(__name__, {"relaxvm.meaning": "CheckMeaning"})


class PassInstrument:
    """Base of instruments; every method may be left out."""

    def enter_pass_ctx(self) -> None:
        """The context is entered."""

    def exit_pass_ctx(self) -> None:
        """The context is left."""

    def should_run(self, mod: IRModule, info: PassInfo) -> bool:
        """Whether to run the pass; one False is enough to skip it."""
        return True

    def enter_pass(self, p: Pass) -> None:
        """The pass itself, before `run_before_pass`."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass is about to run on `mod`."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """The pass has returned `mod`."""


def pass_instrument(cls: type) -> type:
    """Class decorator for instruments, as TVM has it: the class may define any of
    `PassInstrument`'s methods.
    """
    if issubclass(cls, PassInstrument):
        return cls
    return type(
        cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__, "__module__": cls.__module__}
    )


class PassTimingInstrument(PassInstrument):
    """Measures how long each pass takes, nested passes under the pass that ran them.

    `render()` gives a table; it is empty once the context has been left, as in TVM, so call it
    inside.
    """

    def __init__(self) -> None:
        self._rows: list[tuple[int, str, float]] = []
        self._open: list[tuple[int, str, float]] = []

    def enter_pass_ctx(self) -> None:
        self._rows.clear()
        self._open.clear()

    def exit_pass_ctx(self) -> None:
        self._rows.clear()
        self._open.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((len(self._rows), info.name, time.perf_counter()))
        self._rows.append((len(self._open) - 1, info.name, 0.0))

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        # A pass that raised leaves its entry open: drop entries until ours.
        while self._open:
            row, name, started = self._open.pop()
            if name == info.name:
                self._rows[row] = (len(self._open), name, time.perf_counter() - started)
                break

    @property
    def timings_us(self) -> list[tuple[int, str, float]]:
        """(nesting, pass, microseconds) in the order the passes began."""
        return [(depth, name, seconds * 1e6) for depth, name, seconds in self._rows]

    def render(self) -> str:
        """A table of passes and microseconds."""
        total = sum(seconds for depth, _, seconds in self._rows if depth == 0) or 1.0
        lines = [
            f"{'  ' * depth}{name}: {seconds * 1e6:.0f}us ({100 * seconds / total:.1f}%)"
            for depth, name, seconds in self._rows
        ]
        return "\n".join(lines)


class _Printing(PassInstrument):
    """Shared by the printing instruments: which passes, to where."""

    def __init__(self, passes: Sequence[str] | None = None, file: TextIO | None = None) -> None:
        self._passes = None if passes is None else set(passes)
        self._file = file

    def _show(self, title: str, mod: IRModule, info: PassInfo) -> None:
        if self._passes is None or info.name in self._passes:
            print(f"# {title} {info.name}\n{mod}\n", file=self._file or sys.stdout)


class PrintBeforeAll(_Printing):
    """Prints the module before every pass (or those named)."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._show("before", mod, info)


class PrintAfterAll(_Printing):
    """Prints the module after every pass (or those named)."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._show("after", mod, info)


class PrintIR(_Printing):
    """Prints the module after the passes that changed it."""

    def __init__(self, passes: Sequence[str] | None = None, file: TextIO | None = None) -> None:
        super().__init__(passes, file)
        self._before: list[IRModule] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._before.append(mod.clone())

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        before = self._before.pop() if self._before else None
        if before is None or not structural_equal(before, mod):
            self._show("after", mod, info)


class DumpIR(PassInstrument):
    """Writes the module after each pass to `folder`/NNN_PassName.py."""

    def __init__(self, folder: str | pathlib.Path, refresh: bool = False) -> None:
        self._folder = pathlib.Path(folder)
        self._refresh = refresh
        self._count = 0

    def enter_pass_ctx(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        if self._refresh:
            for old in self._folder.glob("[0-9][0-9][0-9]_*.py"):
                old.unlink()
        self._count = 0

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        safe = re.sub(r"\W+", "_", info.name)
        path = self._folder / f"{self._count:03d}_{safe}.py"
        self._count += 1
        path.write_text(mod.script() + "\n", encoding="utf-8")


_PAGE = """<!DOCTYPE html>
<html><head><meta charset="utf-8"><title>What each pass changed</title><style>
body {{ font-family: sans-serif }} pre {{ background: #f6f6f6; padding: 0.5em; overflow: auto }}
summary {{ font-family: monospace }} .same {{ color: #888 }}
.add {{ background: #cfc }} .gone {{ background: #fcc }} .place {{ color: #06c }}
</style></head><body><h1>What each pass changed</h1>
{}
</body></html>
"""
_KINDS = {"+": "add", "-": "gone", "@": "place"}


class HTMLDiff(PassInstrument):
    """Writes one page, to be read in any browser without a network, with what each pass changed:
    passes that ran others as headings, the others as differences of the script text.

    path     where it is written, when the context is left
    context  how many lines are shown around each change
    """

    def __init__(self, path: str | pathlib.Path, context: int = 3) -> None:
        self._path = pathlib.Path(path)
        self._context = context
        self._rows: list[str] = []
        # Of passes that run: place in the rows, name, the module and its text before.
        self._open: list[tuple[int, str, IRModule, str]] = []

    def enter_pass_ctx(self) -> None:
        self._rows.clear()
        self._open.clear()

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._open.append((len(self._rows), info.name, mod, mod.script()))
        self._rows.append(f"<p>{html.escape(info.name)} failed</p>")

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        # A pass that raised leaves its entry open: drop entries until ours.
        while self._open:
            row, name, before, text = self._open.pop()
            if name == info.name:
                leaf = row == len(self._rows) - 1
                after = text if mod is before else mod.script()
                self._rows[row] = self._shown(len(self._open), name, text, after, leaf)
                return

    def _shown(self, depth: int, name: str, before: str, after: str, leaf: bool) -> str:
        title = "&nbsp;" * 4 * depth + html.escape(name)
        if before == after or not leaf:
            kind = "same" if before == after else "runs"
            return f'<div class="{kind}"><code>{title}</code></div>'
        lines = list(
            difflib.unified_diff(
                before.splitlines(), after.splitlines(), n=self._context, lineterm=""
            )
        )[2:]
        marked = (
            f'<span class="{_KINDS.get(line[:1], "")}">{html.escape(line)}</span>' for line in lines
        )
        counts = f"+{_count(lines, '+')} -{_count(lines, '-')}"
        shown = "\n".join(marked)
        return f"<details open><summary>{title} {counts}</summary>\n<pre>{shown}</pre></details>"

    def exit_pass_ctx(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(_PAGE.format("\n".join(self._rows)), encoding="utf-8")


def _count(lines: Sequence[str], sign: str) -> int:
    return sum(line.startswith(sign) for line in lines)


# Of the languages of this house: checks of a whole module, in rooms that this one does not import.
_WELL_FORMED = {
    "relax.Function": ("relaxvm.relax.analysis", "assert_well_formed"),
    "tir.PrimFunc": ("relaxvm.tir.analysis", "verify_well_formed"),
}


def verify_module(mod: IRModule) -> None:
    """Check every function of `mod` by the rules of its language. Raises VerifyError naming the
    function.
    """
    for key in dict.fromkeys(type(fn)._type_key for fn in mod.functions.values()):
        if key in _WELL_FORMED:
            room, name = _WELL_FORMED[key]
            getattr(importlib.import_module(room), name)(mod)


class VerifyAfterAll(PassInstrument):
    """Verifies the module after every pass, so that the pass at fault is named."""

    def __init__(self, verify: Callable[[IRModule], None] | None = None) -> None:
        self._verify = verify or verify_module

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        try:
            self._verify(mod)
        except VerifyError as error:
            add_note(error, f"found after pass {info.name}")
            raise


def blame(p: Pass, mod: IRModule) -> None:
    """Run `p` on `mod` again, verifying after every pass in it: raises VerifyError naming the pass
    after which the module is broken, if there is one.
    """
    with PassContext.current().again() as context:
        context.override_instruments([VerifyAfterAll()])
        p(mod)
