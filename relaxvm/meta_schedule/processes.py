"""Worker processes: started when they are first needed, used again, started anew when lost."""

from __future__ import annotations

import atexit
import contextlib
import os
import time
from collections.abc import Mapping
from typing import Any

import msgpack

from ..base import ScheduleError
from ..runtime.locks import lock
from ..target import Worker, WorkerLost, has_python

# It sees the modules that this process sees, and none of the folder it is started in.
_START = (
    "import sys; sys.path[:] = sys.argv[1:]; "
    "from relaxvm.meta_schedule.worker import serve; serve()"
)
_START_SECONDS = 120.0
_MOST_IDLE = 4
_lock = lock()
_idle: list[Worker] = []


@atexit.register
def _end_all() -> None:
    for worker in _idle:
        worker.end()


class Process:
    """A worker process, which is another one after the former was lost.

    memory_bytes  how much a request may add to what it uses
    """

    def __init__(self, memory_bytes: int) -> None:
        self.memory_bytes = memory_bytes
        self.generation = 0
        self._worker: Worker | None = None
        self._killed = False

    def ready(self) -> None:
        """Have a process, started if there is none. Raises ScheduleError if there can be none."""
        if self._worker is not None and self._worker.is_alive() and not self._killed:
            return
        self._killed = False
        self._forget()
        with _lock:
            while _idle and self._worker is None:
                worker = _idle.pop()
                if worker.is_alive():
                    self._worker = worker
                else:
                    worker.end()
        self.generation += 1
        if self._worker is None:
            self._worker = _started()

    def ask(self, request: Mapping[str, Any], seconds: float) -> dict[str, Any]:
        """The answer to a request; {"kind": "crash" or "timeout", "reason"} if the process was lost
        over it.
        """
        self.ready()
        assert self._worker is not None
        data = msgpack.packb({**request, "seconds": seconds, "memory": self.memory_bytes})
        begun = time.perf_counter()
        try:
            (answer,) = self._worker.ask(data, seconds=seconds)
        except WorkerLost as lost:
            self._worker = None
            kind = "timeout" if lost.late else "crash"
            noise = f": {lost.noise[-500:]}" if lost.noise else ""
            spent = time.perf_counter() - begun
            return {"kind": kind, "reason": f"it {lost}{noise}", "spent": spent}
        except BaseException:
            # An interrupt: the worker is ended by `ask`.
            self._worker = None
            raise
        plain: dict[str, Any] = msgpack.unpackb(answer)
        if plain["grown"] > self.memory_bytes // 2:
            # What leaks goes with its process.
            self._forget()
        return plain

    def kill(self) -> None:
        """End the process, whoever may be waiting for it."""
        worker = self._worker
        if worker is not None:
            # It takes a moment.
            self._killed = True
            worker.kill()

    def _forget(self) -> None:
        worker, self._worker = self._worker, None
        if worker is not None:
            worker.end()

    def close(self) -> None:
        """Leave the process to whoever needs one next."""
        worker, self._worker = self._worker, None
        if worker is None:
            return
        with _lock:
            if worker.is_alive() and not self._killed and len(_idle) < _MOST_IDLE:
                _idle.append(worker)
                return
        worker.end()

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._forget()


def default_memory_bytes() -> int:
    """4 GiB, or half of the machine's memory."""
    try:
        return min(1 << 32, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)
    except (AttributeError, OSError, ValueError):
        return 1 << 32


def _started() -> Worker:
    if not has_python():
        raise ScheduleError("candidates are measured in another process, which cannot be started")
    try:
        worker = Worker("-c", _START)
    except OSError as error:
        raise ScheduleError(f"candidates are measured in another process: {error}") from None
    try:
        worker.ask(None, seconds=_START_SECONDS)
    except WorkerLost as lost:
        raise ScheduleError(
            f"the process that measures candidates {lost}: {lost.noise[-2000:]}"
        ) from None
    except BaseException:
        with contextlib.suppress(OSError):
            worker.end()
        raise
    return worker
