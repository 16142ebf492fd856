"""Plain arguments of primitives: what an annotation says is checked, in one place.

    n: int        decision: Sequence[int] | None        storage_scope: str

Numbers may be numpy's or constants of the IR; what comes out is plain Python, which a trace keeps.
So a trace of unknown origin cannot hand a primitive anything that it was not written for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from ....base import ScheduleError
from ....ir import FloatImm, IntImm, StringImm

_MOST_BITS = 63
_MOST_ITEMS = 1 << 12
_MOST_TEXT = 1 << 12


class _Wrong(Exception):
    """Not what was wanted; says what was."""


def _int(value: Any) -> int:
    if isinstance(value, IntImm):
        value = value.value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise _Wrong("a whole number")
    number = int(value.__index__())
    if number.bit_length() > _MOST_BITS:
        raise _Wrong(f"a number of at most {_MOST_BITS} bits")
    return number


def _float(value: Any) -> float:
    if isinstance(value, (IntImm, FloatImm)):
        value = value.value
    if isinstance(value, (bool, str, bytes)) or not hasattr(value, "__float__"):
        raise _Wrong("a number")
    try:
        number = float(value)
    except (OverflowError, TypeError, ValueError):
        raise _Wrong("a number") from None
    if not math.isfinite(number):
        raise _Wrong("a finite number")
    return number


def _str(value: Any) -> str:
    if isinstance(value, StringImm):
        value = value.value
    if not isinstance(value, str):
        raise _Wrong("text")
    if len(value) > _MOST_TEXT:
        raise _Wrong(f"text of at most {_MOST_TEXT} characters")
    return str(value)


def _bool(value: Any) -> bool:
    if isinstance(value, IntImm):
        value = value.value
    if isinstance(value, int) or str(getattr(value, "dtype", "")) == "bool":
        return bool(value)
    raise _Wrong("True or False")


def _none(value: Any) -> None:
    if value is not None:
        raise _Wrong("None")


def _list_of(name: str, each: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def check(value: Any) -> list[Any]:
        if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
            raise _Wrong(f"a list of {name}")
        items = list(value)
        if len(items) > _MOST_ITEMS:
            raise _Wrong(f"a list of at most {_MOST_ITEMS} {name}")
        try:
            return [each(v) for v in items]
        except _Wrong as wrong:
            raise _Wrong(f"a list of {name}, each {wrong}") from None

    return check


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "int": _int,
    "float": _float,
    "str": _str,
    "bool": _bool,
    "None": _none,
    "Sequence[int]": _list_of("numbers", _int),
    "Sequence[float]": _list_of("numbers", _float),
    "Sequence[str]": _list_of("texts", _str),
}


def is_plain(annotation: str) -> bool:
    """Whether the annotation is one of those that are checked here."""
    return all(part.strip() in _CHECKS for part in annotation.split("|"))


def checked(annotation: str, value: Any, what: str) -> Any:
    """`value` as plain Python. Raises ScheduleError if it is not what the annotation says."""
    wanted = []
    for part in annotation.split("|"):
        try:
            return _CHECKS[part.strip()](value)
        except _Wrong as wrong:
            wanted.append(str(wrong))
    got = f"{type(value).__name__} {value!r}"
    got = got if len(got) < 80 else f"{got[:76]} ..."
    raise ScheduleError(f"{what}: wanted {' or '.join(wanted)}, got {got}")
