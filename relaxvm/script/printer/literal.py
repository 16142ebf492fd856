"""Constants as text: numbers that restore their bits, strings, attribute values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from ...base import DataType
from ...ir import Map, Node, Op
from ...target import Target
from .core import ATTR, Piece, Printer, comma, prints


def quote(text: str) -> str:
    """A Python literal of a string, in double quotes where that needs no escapes."""
    plain = repr(str.__str__(text))
    if plain[0] == "'" and '"' not in plain:
        return '"' + plain[1:-1].replace("\\'", "'") + '"'
    return plain


_SHORT: dict[str, Any] = {"float32": np.float32, "float16": np.float16}


def float_text(value: float, dtype: DataType) -> str:
    """The shortest decimal that rounds to `value` in `dtype`, quoted if it is not finite.

    Whole numbers have no point.
    """
    if math.isnan(value):
        return '"-nan"' if math.copysign(1.0, value) < 0 else '"nan"'
    if math.isinf(value):
        return '"inf"' if value > 0 else '"-inf"'
    text = _shortest(value, dtype)
    return text[:-2] if text.endswith(".0") and not (value == 0 and text[0] == "-") else text


def _shortest(value: float, dtype: DataType) -> str:
    if value.is_integer() and abs(value) < 1e9:
        return f"{value:.1f}"
    kind = _SHORT.get(str.__str__(dtype))
    if kind is not None:
        with np.errstate(over="ignore"):
            rounded = kind(value)
            text = str(rounded)
            # Reading the decimal as a double first may round twice; then the double is written.
            if float(kind(float(text))) == value:
                return text
    elif dtype.kind == "bfloat":
        for digits in range(1, 9):
            text = f"{value:.{digits}g}"
            if _to_bfloat16(float(text)) == value and abs(float(text)) <= dtype.max_value:
                return text
    return repr(value)


def _to_bfloat16(value: float) -> float:
    with np.errstate(over="ignore"):
        bits = int(np.float32(value).view(np.uint32))
    rounded = ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16) & 0xFFFFFFFF
    return float(np.uint32(rounded).view(np.float32))


def python_float(value: float, dtype: DataType | None = None) -> str:
    """A Python expression for a float: never like an int; `float("inf")` if not finite."""
    if not math.isfinite(value):
        return f"float({float_text(value, DataType('float64'))})"
    text = _shortest(value, DataType("float64") if dtype is None else dtype)
    return text if any(c in text for c in ".en") else f"{text}.0"


def attr_value(p: Printer, value: Any) -> list[Piece]:
    """A value of an attribute or annotation map."""
    if isinstance(value, DataType):
        return [quote(value)]
    if isinstance(value, str):
        return [quote(value)]
    if isinstance(value, Op):
        return [quote(value.name)]
    if isinstance(value, Node):
        return [(value, 0, ATTR)]
    if isinstance(value, bool) or value is None:
        return [repr(value)]
    if isinstance(value, int):
        return [repr(int(value))]
    if isinstance(value, float):
        return [python_float(float(value))]
    if isinstance(value, (tuple, list)):
        return ["[", *comma(attr_value(p, v) for v in value), "]"]
    if isinstance(value, Mapping):
        return attr_map(p, value)
    return [repr(value)]


def attr_map(p: Printer, items: Mapping[Any, Any]) -> list[Piece]:
    """A Python dictionary of an attribute map."""
    return [
        "{",
        *comma([*attr_value(p, k), ": ", *attr_value(p, v)] for k, v in items.items()),
        "}",
    ]


@prints(Target)
def _target(p: Printer, n: Target, _: int, __: int) -> list[Piece]:
    return [f"{p.T}.target(", *attr_map(p, n.export()), ")"]


@prints(Map)
def _map(p: Printer, n: Map, first: int, second: int) -> list[Piece]:
    return attr_map(p, n)
