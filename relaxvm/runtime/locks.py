"""Locks that a child of `fork` finds open.

A thread that holds a lock while another one forks does not exist in the child, where an ordinary
lock stays taken for ever. What these guard is consistent at any moment, or made anew in the child.
What is not (LLVM's own state) is left alone while somebody forks.
"""

from __future__ import annotations

import os
import threading
import weakref
from contextlib import AbstractContextManager
from typing import Any

_alive: weakref.WeakSet[Any] = weakref.WeakSet()


def lock() -> threading.Lock:
    """A new lock."""
    new = threading.Lock()
    _alive.add(new)
    return new


_held: list[AbstractContextManager[object]] = []


def hold_while_forking(guard: AbstractContextManager[object]) -> None:
    """Enter `guard`, which one thread may enter several times, around every `os.fork` from now on.

    The fork waits until other threads have left it, so that a child finds what it guards at rest.
    """
    if not any(guard is each for each in _held):
        _held.append(guard)


def _enter_held() -> None:
    for guard in _held:
        guard.__enter__()


def _leave_held() -> None:
    for guard in reversed(_held):
        guard.__exit__(None, None, None)


def _in_child() -> None:
    _leave_held()
    for each in list(_alive):
        each._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_enter_held, after_in_parent=_leave_held, after_in_child=_in_child)
