"""Python's collector of cycles, while much is made that stays."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

# IR has no cycles. By default the collector looks at the newest 700 objects, over and over: a tenth
# of the time of a build.
_OBJECTS = 20_000
_inside: set[object] = set()
# What was there before it was changed here.
_before: tuple[int, int, int] | None = None


@contextlib.contextmanager
def collecting_seldom() -> Iterator[None]:
    """Around a build: let the collector look at more objects at once. Several threads may be
    inside; the last to leave puts back what was. If the collector is off, it stays off.
    """
    global _before
    # No lock: a child of `fork` might find it taken. At worst the collector runs as often as ever.
    me = object()
    try:
        _inside.add(me)
        now = gc.get_threshold()
        if len(_inside) == 1 and 0 < now[0] < _OBJECTS:
            _before = now
            gc.set_threshold(_OBJECTS, *now[1:])
        yield
    finally:
        _inside.discard(me)
        if not _inside and _before is not None:
            before, _before = _before, None
            # What somebody else has set since counts.
            if before is not None and gc.get_threshold() == (_OBJECTS, *before[1:]):
                gc.set_threshold(*before)
