"""Classes of users': `derived_object`, TVM's mark of one, as `ms.utils` and `ms` have it; what
those share that belong to a tuning context; and what becomes of what they raise.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any, TypeVar

from ..base import ScheduleError, submodules
from ..target import cpu_model

_Class = TypeVar("_Class", bound=type)
_ROOM = __name__.rpartition(".")[0]


class DerivedError(ScheduleError):
    """A class or a function of the user's raised something, which is the cause of this. It ends the
    tuning.
    """


def derived_object(cls: _Class) -> _Class:
    """`cls` itself: classes derived from `PyBuilder`, `PyRunner`, `PyDatabase`, ... are used as
    they are; what is around one in TVM, its `_outer()`, is the object. Raises ScheduleError for
    what is no such class.
    """
    bases = cls.__mro__[1:-1] if isinstance(cls, type) else ()
    if not any(base.__module__.startswith(_ROOM) for base in bases):
        raise ScheduleError(
            f"derived_object: wanted a class derived from one of meta_schedule's, got {cls!r}"
        )
    marked: Any = cls
    marked._outer = lambda self: self
    return cls


@contextlib.contextmanager
def asked(of: object, method: str, about: str = "") -> Iterator[None]:
    """Around a call of a method of what may be the user's: what it raises is a `DerivedError` that
    names both, and what it was about. Errors of this package's own classes pass.
    """
    try:
        yield
    except DerivedError:
        raise
    except Exception as error:
        if type(of).__module__.startswith(_ROOM):
            raise
        raised = f"{type(of).__qualname__}.{method}{about} raised {type(error).__name__}: {error}"
        raise DerivedError(raised) from error


class Part:
    """A part of a tuning context: a rule, a mutator, a postprocessor, a space generator, a search
    strategy.

    Derived classes may take the context in `initialize_with_tune_context`, under that name or, as
    newer TVM spells it, with an underscore before it.
    """

    context: Any = None

    def initialize_with_tune_context(self, context: Any) -> None:
        """Called before anything else, with what has `mod`, `target` and `rand_state`."""
        self._initialize_with_tune_context(context)

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.context = context

    @property
    def cores(self) -> int:
        """Of the context's target."""
        return cpu_model(None if self.context is None else self.context.target).cores

    def clone(self) -> Any:
        """Another one, for another context."""
        return copy.copy(self)


__getattr__ = submodules(__name__)
