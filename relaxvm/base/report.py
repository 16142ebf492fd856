"""What passes decide, and why: told while they run, read afterwards.

    decided("{} computed: {} bytes", b, size)
    declined("{} not fused with {}: the sum is also returned", convolution, add)

Whoever wants to know opens a report: a `PassContext` that is entered does, and so does a build.
Where none is open, nothing is kept. Names and places are taken when told, which costs a few
microseconds and keeps no model alive; text is made when a report is printed.
"""

from __future__ import annotations

import contextlib
import contextvars
import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeVar

from .errors import RelaxvmError, add_note
from .record import NamedTuple, record
from .span import UNKNOWN, Span

_T = TypeVar("_T")


class Subject(NamedTuple):
    """What a decision is about: a call by its operator or function, all else by its own name.

    variable  what it is bound to, "" if it is not
    """

    name: str
    variable: str
    span: Span


@record
class Decision:
    """One decision.

    pass_name  the pass that decided, "" outside of passes
    function   the function of the module that it is about, "" for the module
    done       whether the pass did something, or chose not to
    template   the sentence, with {} where the subjects stand
    subjects   `Subject` for what has a place in the source, anything else for numbers and text
    """

    pass_name: str
    function: str
    done: bool
    template: str
    subjects: tuple[Any, ...] = ()

    @property
    def spans(self) -> tuple[Span, ...]:
        """Where the values concerned were written."""
        return tuple(s.span for s in self.subjects if isinstance(s, Subject))

    @property
    def text(self) -> str:
        """The sentence: "conv2d at model.py:12 not fused with add at :14: ..."."""
        words, source = [], ""
        for s in self.subjects:
            word = f"{s:,}" if type(s) is int else str(s)
            if isinstance(s, Subject):
                place, source = _place(s.span, source)
                variable = f" ({s.variable})" if s.variable and not place else ""
                word = f"{s.name} at {place}" if place else f"{s.name}{variable}"
            words.append(word)
        return self.template.format(*words)

    def __str__(self) -> str:
        return f"{self.pass_name}: {self.text}" if self.pass_name else self.text


def _place(span: Span, source: str) -> tuple[str, str]:
    """File and line, without the file if it is `source`; and the file."""
    words = []
    for part in span.parts or (span,):
        if part.line:
            file = "" if part.source == source else os.path.basename(part.source)
            words.append(f"{file}:{part.line}")
            source = part.source
        elif part.name:
            words.append(part.name)
    return " + ".join(dict.fromkeys(words)), source


class Report(Sequence[Decision]):
    """Decisions in the order they were made; printing it gives them by function."""

    def __init__(self, decisions: Iterable[Decision] = ()) -> None:
        self._decisions = list(decisions)

    def __getitem__(self, index: Any) -> Any:
        return self._decisions[index]

    def __len__(self) -> int:
        return len(self._decisions)

    def extend(self, decisions: Iterable[Decision]) -> None:
        """Append these."""
        self._decisions.extend(decisions)

    def of(self, pass_name: str) -> Report:
        """Those of one pass."""
        return Report(d for d in self._decisions if d.pass_name == pass_name)

    def __str__(self) -> str:
        # A dictionary keeps the order of functions, and of what is said of each.
        said: dict[str, dict[str, int]] = {}
        for decision in list(self._decisions):
            lines = said.setdefault(decision.function, {})
            lines[str(decision)] = lines.get(str(decision), 0) + 1
        shown = []
        for function, lines in said.items():
            shown.append(function or "(the module)")
            for line, times in lines.items():
                shown.append(f"  {line}" + (f" ({times} times)" if times > 1 else ""))
        return "\n".join(shown) or "no pass had anything to decide"

    def __repr__(self) -> str:
        return f"<Report: {len(self)} decisions>"


# -- telling ---------------------------------------------------------------------------------------

_open: contextvars.ContextVar[Report | None] = contextvars.ContextVar(
    "relaxvm_report", default=None
)
_pass: contextvars.ContextVar[str] = contextvars.ContextVar("relaxvm_pass", default="")
_function: contextvars.ContextVar[str] = contextvars.ContextVar("relaxvm_function", default="")


def decided(template: str, *subjects: Any) -> None:
    """Tell that the pass that runs did something. In `template`, each {} stands for a subject: a
    binding, call, variable, block or function (shown with its place), a number or text.
    """
    _tell(True, template, subjects)


def declined(template: str, *subjects: Any) -> None:
    """Tell that the pass that runs did not do something, and why; see `decided`."""
    _tell(False, template, subjects)


def _tell(done: bool, template: str, subjects: tuple[Any, ...]) -> None:
    if _open.get() is not None:
        short = tuple(s if type(s) in (str, int) else _subject(s) for s in subjects)
        tell((Decision(_pass.get(), _function.get(), done, template, short),))


def tell(decisions: Iterable[Decision]) -> None:
    """Tell what was decided before, or elsewhere."""
    report = _open.get()
    if report is not None:
        report.extend(decisions)


def _subject(told: Any) -> Any:
    span: Any = getattr(told, "span", None)
    if not isinstance(span, Span):
        return getattr(told, "name", None) or str(told)
    variable = getattr(getattr(told, "var", None), "name_hint", "")
    value = getattr(told, "value", told) if variable else told
    if span is UNKNOWN:
        span = getattr(value, "span", UNKNOWN)
    return Subject(_called(value) or variable or type(value).__name__, variable, span)


def _called(value: Any) -> str:
    op = getattr(value, "op", None)
    name = getattr(op, "name", "") or getattr(value, "name_hint", "")
    args = getattr(value, "args", ())
    if name.startswith("relax.call_") and args:
        # A call of a loop or packed function.
        return getattr(args[0], "name_hint", "") or getattr(args[0], "global_symbol", "") or name
    return str(name).rpartition(".")[2]


class telling:
    """``with telling(report):`` it gets what is decided inside.

    Entered by `PassContext`; each thread and task has its own.
    """

    __slots__ = ("_report", "_token")

    def __init__(self, report: Report | None) -> None:
        self._report = report

    def __enter__(self) -> None:
        self._token = _open.set(self._report)

    def __exit__(self, *exc: object) -> None:
        _open.reset(self._token)


@contextlib.contextmanager
def collected() -> Iterator[Report]:
    """A report of what is decided inside. A report that is open outside gets it too, at the end."""
    outer, report = _open.get(), Report()
    try:
        with telling(report):
            yield report
    finally:
        if outer is not None:
            outer.extend(report)


def in_pass(name: str, run: Callable[..., _T], *args: Any, **options: Any) -> _T:
    """What `run` gives. What it decides is decided by this pass, and its errors say so."""
    token = _pass.set(name)
    try:
        return run(*args, **options)
    except Exception as error:
        add_note(error, f"while running pass {name}")
        raise
    finally:
        _pass.reset(token)


class in_function:
    """What is decided inside is about this function of the module, a GlobalVar or a name; errors
    say so.
    """

    def __init__(self, name: Any) -> None:
        self._name = getattr(name, "name_hint", name)

    def __enter__(self) -> None:
        self._token = _function.set(self._name)

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        _function.reset(self._token)
        if isinstance(error, RelaxvmError):
            add_note(error, f"in function {self._name}")
