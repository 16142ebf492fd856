"""Which compiler this is: what it was when its kernels were put on disk it must be when they are
taken from there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pathlib
import time

from ...base import config

# The rooms whose code decides what becomes of a loop function.
_ROOMS = ("base", "ir", "arith", "tir", "runtime", "target")
_DAY = 86400.0


@functools.lru_cache(maxsize=1)
def fingerprint() -> str | None:
    """A digest over names and contents of this compiler's source files; None if one changed after
    this process began, so that nobody knows which state of it runs here, or if there are none.
    Looked at once: some 10 ms.

    A version number alone would keep kernels of an older state of somebody's working tree, and so
    would the files' times and sizes: some installers give all files one time.
    """
    return _digest(pathlib.Path(__file__).parents[2], config.LOADED_AT)


def _digest(package: pathlib.Path, began: float) -> str | None:
    # What bears a date beyond tomorrow got it from somebody, and was not changed just now.
    latest = max(began, time.time()) + _DAY
    digests = []
    root = len(os.path.join(package, ""))
    for room in _ROOMS:
        for folder, _, names in os.walk(package / room):
            for name in names:
                # Some are installed without sources; what Python keeps beside those is not asked.
                compiled = name.endswith(".pyc") and os.path.basename(folder) != "__pycache__"
                if not (name.endswith(".py") or compiled):
                    continue
                path = os.path.join(folder, name)
                try:
                    with open(path, "rb") as file:
                        content = file.read()
                    changed = os.stat(path).st_mtime
                except OSError:
                    return None
                if began <= changed < latest:
                    return None
                digest = hashlib.sha256(content).hexdigest()
                digests.append(f"{path[root:]} {digest}")
    if not digests:
        return None
    return hashlib.sha256("\n".join(sorted(digests)).encode()).hexdigest()
