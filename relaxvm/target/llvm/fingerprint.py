"""Which compiler this is: what it was when its kernels were put on disk it must be when they are
taken from there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib

from ...base import config

__all__ = ["fingerprint"]

# The rooms whose code decides what becomes of a loop function.
_ROOMS = ("base", "ir", "arith", "tir", "runtime", "target")


@functools.lru_cache(maxsize=1)
def fingerprint() -> str | None:
    """A digest over names, sizes and times of this compiler's source files; None if one changed
    after this process began, so that nobody knows which state of it runs here. Looked at once.

    A version number alone would keep kernels of an older state of somebody's working tree.
    """
    return _digest(pathlib.Path(__file__).parents[2], config.LOADED_AT)


def _digest(package: pathlib.Path, began: float) -> str | None:
    found = []
    for room in _ROOMS:
        for folder, _, names in os.walk(package / room):
            for name in names:
                if not name.endswith(".py"):
                    continue
                path = os.path.join(folder, name)
                try:
                    status = os.stat(path)
                except OSError:
                    return None
                if status.st_mtime >= began:
                    return None
                found.append(f"{os.path.relpath(path, package)} {status.st_size} ")
                found[-1] += str(status.st_mtime_ns)
    return hashlib.sha256("\n".join(sorted(found)).encode()).hexdigest()
