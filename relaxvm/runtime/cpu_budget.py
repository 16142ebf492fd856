"""How many cores this process may keep busy: affinity, hyper-threads and cgroup quotas counted."""

from __future__ import annotations

import _thread
import contextlib
import functools
import os
import pathlib
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from ..base import Deferred

if TYPE_CHECKING:
    import queue
else:
    queue = Deferred("queue")

_T = TypeVar("_T")
_SYSTEM = pathlib.Path("/")


def usable_cores(root: pathlib.Path = _SYSTEM) -> int:
    """Physical cores allowed by affinity and by the cgroup's quota, which is read once (affinity is
    asked for each time); at least 1.

    root  where `sys` and `proc` are
    """
    try:
        allowed = frozenset(os.sched_getaffinity(0))
    except (AttributeError, OSError):
        return max(1, os.cpu_count() or 1)
    if sys.platform != "linux":
        return max(1, len(allowed))
    return _cores_of(root, allowed)


@functools.lru_cache(maxsize=64)
def _cores_of(root: pathlib.Path, allowed: frozenset[int]) -> int:
    # A build asks many times, and what the system says takes 0.4 ms to be read.
    cores = len({_siblings(root, cpu) for cpu in allowed})
    quota = _quota(root)
    return max(1, cores if quota is None else min(cores, int(quota + 0.5)))


def _read(path: pathlib.Path) -> str | None:
    try:
        return path.read_text()[:65536].strip()
    except (OSError, ValueError):
        return None


def _siblings(root: pathlib.Path, cpu: int) -> str:
    """A text that the hyper-threads of one core have in common."""
    folder = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
    for name in ("core_cpus_list", "thread_siblings_list"):
        siblings = _read(folder / name)
        if siblings:
            return siblings
    return f"cpu {cpu}"


def _quota(root: pathlib.Path) -> float | None:
    """CPUs that the least of the cgroup quotas above this process allows; None without any."""
    base = root / "sys/fs/cgroup"
    quotas: list[float] = []
    for line in (_read(root / "proc/self/cgroup") or "").splitlines():
        parts = line.split(":", 2)
        if len(parts) != 3:
            continue
        controllers, place = parts[1].split(","), parts[2].strip("/")
        if parts[1] == "":
            for folder in _upwards(base, place):
                quotas += _version_2(_read(folder / "cpu.max"))
        elif "cpu" in controllers:
            for top in (base / parts[1], base / "cpu"):
                for folder in _upwards(top, place):
                    quota = _read(folder / "cpu.cfs_quota_us")
                    period = _read(folder / "cpu.cfs_period_us")
                    quotas += _version_2(f"{quota} {period}")
    return min(quotas, default=None)


def _upwards(base: pathlib.Path, place: str) -> list[pathlib.Path]:
    """`base / place` and the folders above it down to `base`; outside of it, `base` alone."""
    parts = [p for p in place.split("/") if p][:64]
    if ".." in parts:
        return [base]
    return [base.joinpath(*parts[:i]) for i in range(len(parts), -1, -1)]


def _version_2(text: str | None) -> list[float]:
    match = re.fullmatch(r"(\d+) (\d+)", text or "")
    if match is None or int(match[2]) == 0 or int(match[1]) == 0:
        return []
    return [int(match[1]) / int(match[2])]


def side_by_side(work: Callable[[_T], object], items: Iterable[_T]) -> None:
    """Do `work` on each item, by as many threads as there are cores, of which this is one; see
    `begun_side_by_side`.
    """
    begun_side_by_side(work, items)()


def begun_side_by_side(work: Callable[[_T], object], items: Iterable[_T]) -> Callable[[], None]:
    """Have `work` begun on several items by as many threads as there are cores but one, and give
    what does the rest and waits for them: who comes late finds less left to do.

    For copies of large memory: the system clears the pages that are written for the first time.
    What is given raises what the first item that fails raises. In a child of `fork` it does again
    what was not done.
    """
    todo = list(items)
    left, done = iter(enumerate(todo)), list[int]()
    failed: dict[int, BaseException] = {}
    taken: queue.SimpleQueue[None] = queue.SimpleQueue()
    process = os.getpid()

    def take(left: Iterator[tuple[int, _T]]) -> None:
        # It gives each item to one thread only.
        for k, item in left:
            try:
                work(item)
            except BaseException as error:
                failed[k] = error
            done.append(k)
            taken.put(None)

    def finish() -> None:
        # Who is interrupted here may come back for the rest, and another may wait as well.
        try:
            take(left)
            if os.getpid() != process:
                # There are no other threads here.
                take(iter([(k, item) for k, item in enumerate(todo) if k not in done]))
            while len(done) < len(todo):
                taken.get()
        finally:
            taken.put(None)
        if failed:
            raise failed[min(failed)]

    if len(todo) > 1:
        for _ in range(min(usable_cores(), len(todo)) - 1):
            # There may be too many threads.
            with contextlib.suppress(RuntimeError):
                _thread.start_new_thread(take, (left,))
    return finish
