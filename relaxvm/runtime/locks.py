"""Locks that a child of `fork` finds open.

A thread that holds a lock while another one forks does not exist in the child, where an ordinary
lock stays taken for ever. What these guard is consistent at any moment, or made anew in the child.
"""

from __future__ import annotations

import os
import threading
import weakref

__all__ = ["lock"]

_alive: weakref.WeakSet[threading.Lock] = weakref.WeakSet()


def lock() -> threading.Lock:
    """A new lock."""
    made = threading.Lock()
    _alive.add(made)
    return made


def _open_all() -> None:
    for each in list(_alive):
        each._at_fork_reinit()  # type: ignore[attr-defined]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_open_all)
