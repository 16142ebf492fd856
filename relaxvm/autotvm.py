"""AutoTVM's names for looking up what was tuned; the records are those of `meta_schedule`.

with autotvm.apply_history_best("logs"):
    lib = relay.build(mod, "llvm")
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .base import submodules as _submodules
from .meta_schedule.dispatch import DispatchContext as DispatchContext


def apply_history_best(records: Any) -> DispatchContext:
    """A `DispatchContext` of one database or path of records."""
    return DispatchContext(records)


class FallbackContext(DispatchContext):
    """A `DispatchContext` without records of its own."""

    def __init__(self) -> None:
        super().__init__(None)


class tophub:
    """What comes with the package. Nothing is downloaded."""

    @staticmethod
    def context(target: Any, extra_files: Sequence[Any] | None = None) -> DispatchContext:
        """A `DispatchContext` of `extra_files` and the records that come with the package."""
        context = DispatchContext()
        for path in extra_files or ():
            context.databases += DispatchContext(path).databases
        return context


__getattr__ = _submodules(__name__)
