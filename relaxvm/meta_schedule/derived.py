"""`derived_object`: TVM's mark of a user's class, as `ms.utils` and `ms` have it."""

from __future__ import annotations

from typing import TypeVar

from ..base import ScheduleError, submodules

_Class = TypeVar("_Class", bound=type)


def derived_object(cls: _Class) -> _Class:
    """`cls` itself: classes derived from `PyBuilder`, `PyRunner`, `PyDatabase`, ... are used as
    they are. Raises ScheduleError for what is no such class.
    """
    bases = cls.__mro__[1:-1] if isinstance(cls, type) else ()
    if not any(base.__module__.startswith(__name__.rpartition(".")[0]) for base in bases):
        raise ScheduleError(
            f"derived_object: wanted a class derived from one of meta_schedule's, got {cls!r}"
        )
    return cls


__getattr__ = submodules(__name__)
