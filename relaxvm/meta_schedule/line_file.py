"""`LineFile`: JSON lines that several processes add to, and that no death of one spoils."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

from ..base import submodules
from .interrupts import held

try:
    import fcntl as _fcntl
except ImportError:  # Windows: there one process at a time should write
    fcntl: Any = None
else:
    fcntl = _fcntl


class LineFile:
    """A file that grows by lines. A line whose end is missing, of a process that was killed, is cut
    off before another is written.

    restarts  how often the file was found to be another one, with other lines
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.restarts = 0
        self._end = 0
        self._waiting: list[bytes] = []

    def fresh(self) -> Iterator[tuple[int, bytes]]:
        """(place, line) of the whole lines that were added since this was called last."""
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size < self._end:
                self._end, self.restarts = 0, self.restarts + 1
            if size == self._end:
                return
            file.seek(self._end)
            for line in file:
                # One without an end may be somebody's who is still writing it.
                if line.endswith(b"\n") or _is_json(line):
                    place, text = self._end, line.strip()
                    self._end += len(line)
                    if text:
                        yield place + line.index(text), text

    def read(self, places: Iterable[tuple[int, int]]) -> Iterator[bytes]:
        """Lines by their places and sizes; nothing where the file is gone."""
        with contextlib.suppress(FileNotFoundError), open(self.path, "rb") as file:
            for place, size in places:
                file.seek(place)
                yield file.read(size)

    def append(self, line: Any) -> bool:
        """Add a line; False, with a warning, if it has to wait for room on the disk."""
        self._waiting.append(json.dumps(line, separators=(",", ":")).encode() + b"\n")
        return self.flush()

    def flush(self) -> bool:
        """Write what waits, in one piece or not at all."""
        if not self._waiting:
            return True
        with held():
            return self._flush()

    def _flush(self) -> bool:
        try:
            with self._locked() as fd:
                size = _cut(fd)
                data = memoryview(b"".join(self._waiting))
                try:
                    while data:
                        data = data[os.write(fd, data) :]
                except OSError:
                    with contextlib.suppress(OSError):
                        os.ftruncate(fd, size)
                    raise
        except OSError as error:
            warnings.warn(
                f"{self.path} cannot be written ({error}): {len(self._waiting)} lines wait",
                RuntimeWarning,
                stacklevel=5,
            )
            return False
        self._waiting.clear()
        return True

    @contextlib.contextmanager
    def _locked(self) -> Iterator[int]:
        flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | getattr(os, "O_BINARY", 0)
        fd = os.open(self.path, flags, 0o666)
        try:
            if fcntl is not None:
                fcntl.flock(fd, fcntl.LOCK_EX)
            yield fd
        finally:
            # With it goes the lock.
            os.close(fd)


def _cut(fd: int) -> int:
    """End the last line, or cut it off if it is no whole one; bytes that are left."""
    size = os.fstat(fd).st_size
    start, tail = size, b""
    while start and b"\n" not in tail:
        step = min(start, 1 << 16)
        start -= step
        os.lseek(fd, start, os.SEEK_SET)
        tail = os.read(fd, step) + tail
    start += tail.rfind(b"\n") + 1
    tail = tail[tail.rfind(b"\n") + 1 :]
    if not tail.strip():
        return size
    if not _is_json(tail):
        os.ftruncate(fd, start)
        return start
    os.write(fd, b"\n")
    return size + 1


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True


__getattr__ = submodules(__name__)
