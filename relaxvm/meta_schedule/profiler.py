"""`Profiler`: where the time of tuning goes.

with ms.Profiler() as profiler:
    with ms.Profiler.timeit("Build"): ...
profiler.get()       {"Build": seconds, "Total": seconds}
print(profiler.table())
"""

from __future__ import annotations

import contextlib
import contextvars
import time
from collections.abc import Iterator

from ..base import submodules

_current: contextvars.ContextVar[tuple[Profiler, ...]] = contextvars.ContextVar(
    "profilers", default=()
)


class Profiler:
    """Adds up seconds by name while it is entered."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}
        self._begun = 0.0
        self._total = 0.0

    def get(self) -> dict[str, float]:
        """Seconds by name, and of all, as "Total"."""
        running = time.perf_counter() - self._begun if self._begun else 0.0
        return {**self._seconds, "Total": self._total + running}

    def table(self) -> str:
        """The same as text, with the share of each."""
        rows = self.get()
        total = rows["Total"] or 1.0
        width = max(map(len, rows))
        ordered = sorted(rows.items(), key=lambda item: -item[1])
        return "\n".join(f"{n:<{width}}  {s:10.3f} s  {s / total:6.1%}" for n, s in ordered)

    def __enter__(self) -> Profiler:
        _current.set((*_current.get(), self))
        self._begun = time.perf_counter()
        return self

    def __exit__(self, *exception: object) -> None:
        _current.set(_current.get()[:-1])
        self._total += time.perf_counter() - self._begun
        self._begun = 0.0

    @staticmethod
    def current() -> Profiler | None:
        """The innermost one that is entered in this thread, or None."""
        return _current.get()[-1] if _current.get() else None

    @staticmethod
    @contextlib.contextmanager
    def timeit(name: str) -> Iterator[None]:
        """Count what is inside under `name`, if a profiler is entered."""
        profiler, begun = Profiler.current(), time.perf_counter()
        try:
            yield
        finally:
            if profiler is not None:
                took = time.perf_counter() - begun
                profiler._seconds[name] = profiler._seconds.get(name, 0.0) + took


__getattr__ = submodules(__name__)
