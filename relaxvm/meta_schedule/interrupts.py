"""Ctrl-C while tuning: raised where there is something to break off, kept waiting elsewhere.

    with interrupts() as told:          the signal is ours; nested, the same one
        with heard():
            search()                    may raise KeyboardInterrupt
            with held():
                write()                 may not
        close()                         may not
    told.count                          how often there was one

Where the signal is not Python's own to begin with, or in another thread, all is as it was.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import Any

from ..base import submodules


class Interrupts:
    """count  how many there were"""

    def __init__(self) -> None:
        self.count = 0
        self._is_heard = False
        self._waits = 0

    def _handle(self, number: int, frame: Any) -> None:
        self.count += 1
        self._waits += 1
        self._raise()

    def _raise(self) -> None:
        if self._waits and self._is_heard:
            # Another one waits until this one is dealt with.
            self._is_heard = False
            raise KeyboardInterrupt

    @contextlib.contextmanager
    def _turned(self, is_heard: bool) -> Iterator[None]:
        before = self._is_heard
        try:
            self._is_heard = is_heard
            self._raise()
            yield
        except KeyboardInterrupt:
            self._waits = max(0, self._waits - 1)
            # Python ends by the signal, caught or not, if the last text that it executed (which
            # importing a dataclass does) was broken off by one.
            exec("")
            raise
        finally:
            self._is_heard = before
        self._raise()

    def check(self) -> None:
        """Raise an interrupt again that was lost: Python drops what is raised in `__del__`."""
        if self._waits:
            raise KeyboardInterrupt


_current: Interrupts | None = None


@contextlib.contextmanager
def interrupts() -> Iterator[Interrupts]:
    """Inside, interrupts wait wherever they are not `heard`."""
    global _current
    if _current is not None and _is_main():
        yield _current
        return
    told = Interrupts()
    if not _is_main() or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield told
        return
    try:
        _current = told
        signal.signal(signal.SIGINT, told._handle)
        yield told
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        _current = None


def heard() -> contextlib.AbstractContextManager[None]:
    """Inside, an interrupt is raised: one that waited at once, a second one after this."""
    return _turned(True)


def held() -> contextlib.AbstractContextManager[None]:
    """Inside, interrupts wait."""
    return _turned(False)


def check() -> None:
    """Raise an interrupt that was lost where Python drops what is raised."""
    if _current is not None and _is_main():
        _current.check()


def _turned(is_heard: bool) -> contextlib.AbstractContextManager[None]:
    if _current is None or not _is_main():
        return contextlib.nullcontext()
    return _current._turned(is_heard)


def _is_main() -> bool:
    return threading.current_thread() is threading.main_thread()


__getattr__ = submodules(__name__)
