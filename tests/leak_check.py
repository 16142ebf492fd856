"""Whether calls leave memory behind, told in a process that does other things meanwhile."""

from __future__ import annotations

import gc
import itertools
import statistics
import tracemalloc
from collections.abc import Callable

_WINDOWS = 7


def growth(work: Callable[[], object]) -> float:
    """By how many bytes each run of `work` makes Python's memory grow.

    The median of several runs: what grows once (caches, specialised code) or moves in another
    thread does not count, a leak is in all of them.
    """
    work()
    used = []
    # What other tests left in this process is not looked through at each collection.
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        for _ in range(_WINDOWS + 1):
            work()
            gc.collect()
            used.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return statistics.median(b - a for a, b in itertools.pairwise(used))


def peak(work: Callable[[], object]) -> int:
    """The most bytes of Python's memory that a run of `work` has at once: the least of some runs,
    since others may allocate meanwhile.
    """
    found = []
    for _ in range(3):
        gc.collect()
        tracemalloc.start()
        try:
            work()
            found.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(found)
