"""What a file may claim and what a run may use.

The numbers bound the reader, the verifier and the machine, so that hostile bytes cost no more than
honest ones of the same size.
"""

from __future__ import annotations

import math
import threading
import time
import weakref

import numpy as np

from ..base import LimitError, VMTypeError, VMValueError, record
from .storage import aligned_empty

MAX_FILE_BYTES = 1 << 38
"""Bytes of one executable file."""
MAX_ITEMS = 1 << 22
"""Values (numbers, texts, lists, maps) in one executable file."""
MAX_NESTING = 64
"""Lists and maps within each other in a file; struct info within struct info."""
MAX_NDIM = 32
"""Axes of an array: what every supported numpy can do."""
MAX_DEPTH = 10_000
"""Default for calls of VM functions within each other."""
MAX_VERIFY_WORK = 5_000_000
"""Steps the register analysis may take before it calls the control flow too tangled."""


@record
class Limits:
    """What one call of a VM function may use; None means no limit.

    max_instructions  executed instructions
    max_bytes         live bytes allocated by the program
    max_depth         calls within each other
    max_seconds       wall time, looked at between instructions
    """

    max_instructions: int | None = None
    max_bytes: int | None = None
    max_depth: int = MAX_DEPTH
    max_seconds: float | None = None

    def __post_init__(self) -> None:
        for name in ("max_instructions", "max_bytes", "max_depth", "max_seconds"):
            value = getattr(self, name)
            if value is None and name != "max_depth":
                continue
            number = (int, float) if name == "max_seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, number):
                raise VMTypeError(f"{name}: wanted a number, got {type(value).__name__}: {value!r}")
            least = 1 if name == "max_depth" else 0
            if not value >= least:
                raise VMValueError(f"{name}: wanted at least {least}, got {value!r}")

    @property
    def counted(self) -> bool:
        """Whether every instruction has to be looked at (depth is always watched)."""
        limits = (self.max_instructions, self.max_bytes, self.max_seconds)
        return any(limit is not None for limit in limits)


class Account:
    """What one call has used so far, charged against its limits."""

    __slots__ = ("_deadline", "_left", "_limits", "_live_bytes", "_lock", "_owners")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._left = -1 if limits.max_instructions is None else limits.max_instructions
        seconds = limits.max_seconds
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._live_bytes = 0
        self._owners: dict[int, weakref.ref[np.ndarray]] = {}
        self._lock = threading.Lock()

    @property
    def counts_bytes(self) -> bool:
        """Whether allocations have to be reported."""
        return self._limits.max_bytes is not None

    def instruction(self) -> None:
        """Charge one instruction. Raises LimitError."""
        if self._left == 0:
            raise LimitError(f"the run used up max_instructions={self._limits.max_instructions}")
        self._left -= 1
        if self._deadline is not None and time.monotonic() > self._deadline:
            raise LimitError(f"the run took longer than max_seconds={self._limits.max_seconds}")

    def reserve(self, size_bytes: int) -> None:
        """Raise LimitError if `size_bytes` more would be too many."""
        most = self._limits.max_bytes
        if most is not None and self._live_bytes + size_bytes > most:
            raise LimitError(
                f"the run needs {self._live_bytes + size_bytes} bytes at once, "
                f"more than max_bytes={most}"
            )

    def own(self, memory: np.ndarray, size_bytes: int) -> None:
        """Count `size_bytes` until the owner of `memory` is freed."""
        owner: np.ndarray = memory
        while type(owner.base) is np.ndarray:
            owner = owner.base
        key = id(owner)

        def release(_: object) -> None:
            with self._lock:
                self._live_bytes -= size_bytes
                self._owners.pop(key, None)

        reference = weakref.ref(owner, release)
        with self._lock:
            self._owners[key] = reference
            self._live_bytes += size_bytes


def counted_empty(account: Account | None, shape: tuple[int, ...], storage: np.dtype) -> np.ndarray:
    """An uninitialised aligned array, charged to `account` for as long as its memory lives.

    Raises LimitError if there is not so much memory, or the run may not have it.
    """
    needed = math.prod(shape) * storage.itemsize
    if account is not None:
        account.reserve(needed)
    try:
        memory = aligned_empty(shape, storage)
    except VMValueError as error:
        raise LimitError(str(error)) from None
    if account is not None:
        account.own(memory, needed)
    return memory
