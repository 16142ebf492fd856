"""The only reader of environment variables.

RELAXVM_CACHE_DIR   where keys and compiled kernels are kept (default: the user's cache folder +
                    "relaxvm")
RELAXVM_CACHE       0 neither takes compiled kernels from there nor keeps them
RELAXVM_PROGRAM_CACHE   how many MB of whole programs are kept there (4096); 0: none
RELAXVM_BUILD_JOBS  most processes that compile kernels at once (default: one per core; 1: only the
                    process that builds, and LLVM's)
CC                  the C compiler of targets of kind "c"; it may have arguments
RELAXVM_CHECKS      1 freezes IR nodes and verifies after every pass (all tests run so)
"""

from __future__ import annotations

import os
import pathlib
import sys
import time
from typing import TYPE_CHECKING

from .lazy import Deferred

if TYPE_CHECKING:
    import tempfile
else:
    tempfile = Deferred("tempfile")


# When this process loaded relaxvm; what changed on disk since then is not what runs.
LOADED_AT = time.time()

_checks = os.environ.get("RELAXVM_CHECKS", "") not in ("", "0")


def checks_enabled() -> bool:
    """Whether costly self-checks are on."""
    return _checks


def cache_enabled() -> bool:
    """Whether compiled kernels are kept on disk."""
    return os.environ.get("RELAXVM_CACHE", "") != "0"


def turn_cache_off() -> None:
    """Neither take compiled kernels from there nor keep them, in this process."""
    os.environ["RELAXVM_CACHE"] = "0"


def program_cache_bytes() -> int:
    """About how much is kept of programs built from models; 0: nothing, none are taken either."""
    megabytes = os.environ.get("RELAXVM_PROGRAM_CACHE", "")
    return (int(megabytes) if megabytes.isdecimal() and len(megabytes) < 10 else 4096) << 20


def c_compiler() -> str:
    """The command of the C compiler that the user wants, "" for any."""
    return os.environ.get("CC", "")


def build_jobs() -> int | None:
    """How many processes may compile at once; None: as many as there are cores."""
    count = os.environ.get("RELAXVM_BUILD_JOBS", "")
    return max(1, int(count)) if count.isdecimal() and len(count) < 6 else None


def cache_dir() -> pathlib.Path:
    """The folder for keys and caches; it may not exist yet."""
    explicit = os.environ.get("RELAXVM_CACHE_DIR")
    if explicit:
        return pathlib.Path(explicit)
    if sys.platform == "darwin":
        base = _home() / "Library" / "Caches"
    elif os.name == "nt":
        base = pathlib.Path(os.environ.get("LOCALAPPDATA") or _home() / "AppData" / "Local")
    else:
        # The XDG specification has no relative paths: they would be other folders in each process.
        xdg = os.environ.get("XDG_CACHE_HOME", "")
        base = pathlib.Path(xdg) if os.path.isabs(xdg) else _home() / ".cache"
    return base / "relaxvm"


def _home() -> pathlib.Path:
    """The user's folder. A user without one (containers run as any number) has a folder among the
    temporary files, which is used only if it is theirs alone.
    """
    try:
        home = pathlib.Path.home()
        if home.is_absolute():
            return home
    except (RuntimeError, OSError):
        pass
    user = os.getuid() if hasattr(os, "getuid") else "user"
    return pathlib.Path(tempfile.gettempdir()) / f"relaxvm-{user}"
