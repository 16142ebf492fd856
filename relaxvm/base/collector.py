"""Python's collector of cycles, while much is made that stays."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# IR has no cycles. By default the collector looks at the newest 700 objects, over and over: a tenth
# of the time of a build.
_OBJECTS = 20_000
_inside: set[object] = set()
_before = gc.get_threshold()


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Around a build: let the collector look at more objects at once. Several threads may be
    inside; the last to leave puts back what was. If the collector is off, it stays off.
    """
    global _before
    # No lock: a child of `fork` might find it taken. At worst the collector runs as often as ever.
    me = object()
    _inside.add(me)
    if len(_inside) == 1 and 0 < gc.get_threshold()[0] < _OBJECTS:
        _before = gc.get_threshold()
        gc.set_threshold(_OBJECTS, *_before[1:])
    try:
        yield
    finally:
        _inside.discard(me)
        # What somebody else has set since counts.
        if not _inside and gc.get_threshold() == (_OBJECTS, *_before[1:]):
            gc.set_threshold(*_before)
