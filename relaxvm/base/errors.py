"""Every error relaxvm raises on purpose, by the stage that finds it.

Each class is also the builtin that fits (`TypeError`, `ValueError`, ...), so that code written for
numpy or TVM
catches it. A message says what was wanted, what was got, where, and what to do.
"""

from __future__ import annotations

from .lazy import submodules

__getattr__ = submodules(__name__)


class RelaxvmError(Exception):
    """Base of every error that relaxvm raises on purpose. Also reachable as `TVMError`."""


TVMError = RelaxvmError


class InternalError(RelaxvmError, RuntimeError):
    """A fault of relaxvm itself; the message asks for a report."""

    def __init__(self, message: str) -> None:
        super().__init__(
            f"{message}\nThis is a fault in relaxvm; please report it with the input that caused "
            f"it."
        )


class ParseError(RelaxvmError, SyntaxError):
    """Script text that is not a program: names file, line and column and shows the line with a
    caret.
    """

    def __str__(self) -> str:
        if not self.lineno:
            return str(self.msg)
        lines = [f"{self.filename}:{self.lineno}:{self.offset}: {self.msg}"]
        if self.text:
            text, offset = self.text.rstrip("\n"), self.offset or 1
            one_line = self.end_lineno == self.lineno and self.end_offset
            width = (self.end_offset or 0) - offset if one_line else 1
            lines += [f"    {text}", f"    {' ' * (offset - 1)}{'^' * max(1, width)}"]
        return "\n".join(lines)


class DiagnosticError(ParseError):
    """TVM's name for a parse error with a source position."""


class FrontendError(RelaxvmError, ValueError):
    """A model of another framework that cannot be imported."""


class OpNotImplemented(FrontendError, NotImplementedError):
    """An operator of another framework's model that has no translation here."""


class DTypeError(RelaxvmError, TypeError, ValueError):
    """A scalar type that does not exist, or types that cannot be combined."""


class StructInfoError(RelaxvmError, TypeError, ValueError):
    """A call whose argument shapes, dtypes or kinds do not fit."""


class TIRError(RelaxvmError, TypeError, ValueError):
    """A scalar expression, statement or loop function built from parts that do not fit together."""


class VerifyError(RelaxvmError, ValueError):
    """IR or bytecode that breaks a rule of its stage."""


class BuilderError(VerifyError, RuntimeError):
    """A builder of functions used out of order, such as a function without an output."""


class PassError(RelaxvmError, ValueError):
    """A pass, a pass option or a pass configuration that does not exist or has the wrong type."""


class PatternError(RelaxvmError, TypeError, ValueError):
    """A pattern of graph functions built from parts that do not fit, or a rewriter that gives what
    cannot stand where its pattern matched.
    """


class ScheduleError(RelaxvmError, ValueError):
    """A schedule primitive that would not be legal: of the loops and blocks `sites`."""

    sites: tuple[object, ...] = ()


class CodegenError(RelaxvmError, ValueError):
    """Lowered IR for which the target has no code."""


class LoadError(RelaxvmError, ValueError):
    """Bytes or a file that are not an executable this version accepts."""


class LinkError(RelaxvmError, LookupError):
    """An executable that needs functions nobody registered; all of them are listed at once."""


class VMError(RelaxvmError, RuntimeError):
    """A failure while a program runs."""


class VMTypeError(VMError, TypeError):
    """A run-time argument of the wrong type, dtype or rank."""


class VMValueError(VMError, ValueError):
    """A run-time argument of the wrong shape or value."""


class LimitError(VMError):
    """A run that went past a limit the caller set: instructions, bytes, call depth or time."""


def add_note(error: BaseException, note: str) -> None:
    """Append a line of context to `error`, shown under its traceback.

    Python 3.10 has no `BaseException.add_note` and shows no notes; there the line is still kept in
    `__notes__`.
    """
    if hasattr(error, "add_note"):
        error.add_note(note)
    else:
        notes = error.__dict__.setdefault("__notes__", [])
        notes.append(note)
