"""Tuples within tuples, as deep and as shared as a program makes them.

A loop of a few instructions can build a tuple of more levels than Python's stack has frames, or
of 2^60 leaves of which all are one object. So nothing here recurses, and shared parts are visited
once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..base import VMTypeError
from .storage import ShapeTuple


def is_nest(value: object) -> bool:
    """Whether `value` has parts: a tuple or list that is no shape."""
    return isinstance(value, (tuple, list)) and type(value) is not ShapeTuple


def map_leaves(nest: Any, leaf: Callable[[Any], Any]) -> Any:
    """`nest` with `leaf` applied to all that is no tuple or list, lists turned into tuples.

    Tuples in which nothing changes stay the same objects. Raises VMTypeError for a list that
    contains itself.
    """
    images: dict[int, tuple[Any, Any]] = {}  # id -> (the part itself, kept alive; its image)
    entered: set[int] = set()
    waiting = [nest]
    while waiting:
        part = waiting[-1]
        key = id(part)
        if key in images:
            waiting.pop()
        elif key not in entered:
            entered.add(key)
            for child in part:
                if is_nest(child) and id(child) not in images:
                    if id(child) in entered:
                        raise VMTypeError("a list that contains itself cannot become a tuple")
                    waiting.append(child)
        else:
            image = tuple([images[id(c)][1] if is_nest(c) else leaf(c) for c in part])
            if type(part) is tuple and all(a is b for a, b in zip(part, image)):
                image = part
            images[key] = (part, image)
            entered.discard(key)
            waiting.pop()
    return images[id(nest)][1]
