"""What text from elsewhere may do while it is read.

A decorated class or function is the user's own Python, and its plain sub-expressions evaluate as
Python does. Text given to `from_source` may come from anyone: it sees the script languages, the
names it was given and a few harmless builtins, it cannot reach private attributes, and what it may
ask Python to build is bounded.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from ...base import TIRError

__all__ = [
    "LIMIT",
    "SAFE_BUILTINS",
    "VISITS",
    "check_attribute",
    "check_call",
    "check_operands",
    "check_text",
]

# Elements that one expression of foreign text may make or visit in Python.
LIMIT = 1_000_000
VISITS = 100_000
_LIMIT_BITS = 4096
_WIDE = re.compile(r"\d{5,}")

_PLAIN_METHODS = {
    dict: {"get", "items", "keys", "values"},
    list: {"count", "index"},
    tuple: {"count", "index"},
    str: {"endswith", "lower", "startswith", "upper"},
}
_BARE: tuple[type, ...] = (*_PLAIN_METHODS, int, float, bool, bytes, complex, set, frozenset, range)

SAFE_BUILTINS: Mapping[str, Any] = {
    f.__name__: f
    for f in (
        abs, all, any, bool, dict, enumerate, float, int, len, list, max, min, range, reversed,
        round, set, sorted, str, sum, tuple, zip,
    )
}  # fmt: skip


def check_attribute(value: Any, name: str) -> str | None:
    """Why foreign text may not read that attribute, or None if it may; "" for a name that a module
    does not offer.
    """
    if name.startswith("_"):
        return f"the private attribute {name} cannot be read by text"
    for kind in _BARE:
        if isinstance(value, kind) and type(value).__module__ == "builtins":
            if name in _PLAIN_METHODS.get(kind, ()):
                return None
            return f"text cannot use {kind.__name__}.{name}"
    if isinstance(value, ModuleType):
        offers = vars(value).get("_offers")
        if name not in vars(value).get("__all__", ()) and not (offers is not None and offers(name)):
            return ""
    elif isinstance(value, type) and name == "mro":
        return "text cannot use mro"
    return None


def check_call(func: Any, args: list[Any]) -> str | None:
    """Why foreign text may not make that call, or None if it may."""
    if func is range:
        return None
    for value in args:
        if isinstance(value, range) and len(value) > LIMIT:
            return f"a range of {len(value)} elements is too long to be read at once"
    if func is int and args and isinstance(args[0], str) and len(args[0]) > _LIMIT_BITS:
        return "the number is too long"
    return None


def check_operands(op: type[ast.operator], left: Any, right: Any) -> None:
    """Raise TIRError if foreign text asks Python for something too large."""
    if op is ast.Pow and isinstance(left, int) and isinstance(right, int):
        if abs(right) * max(1, left.bit_length()) > _LIMIT_BITS:
            raise TIRError(f"{left} ** {right} is too large")
    elif op is ast.LShift and isinstance(left, int) and isinstance(right, int):
        if right > _LIMIT_BITS:
            raise TIRError(f"a shift by {right} is too large")
    elif op is ast.Mult:
        if isinstance(left, int) and isinstance(right, int):
            if left.bit_length() + right.bit_length() > _LIMIT_BITS:
                raise TIRError("the product is too large")
        for value, times in ((left, right), (right, left)):
            if isinstance(value, (str, bytes, list, tuple)) and isinstance(times, int):
                if len(value) * times > LIMIT:
                    raise TIRError(f"a sequence of {len(value) * times} elements is too long")
    elif op is ast.Mod and isinstance(left, (str, bytes)):
        raise TIRError("% formatting is not allowed in text; use an f-string")


def check_text(spec: str) -> None:
    """Raise TIRError if a format specification asks for a very wide field."""
    if _WIDE.search(spec):
        raise TIRError(f"the format {spec!r} is too wide")
