"""Where the value of a dimension came from, in words.

The texts of checks show the struct info they check (``main: parameter x: Tensor((n, 64),
float32)``), so a message can name the symbols in it.
"""

from __future__ import annotations

import re
from typing import Any

from .constants import DimProgram
from .dims import symbols_of

_STARTS = (": Tensor((", ": Shape((")
_PRIM = r": Prim\(\w+, value=(.*)\)$"
_MAX_SHOWN = 8


def dimension_text(context: object, axis: int) -> str | None:
    """The dimension (or scalar) that a check's text shows at `axis`, such as ``2 * n``."""
    if not isinstance(context, str):
        return None
    begin = max((context.rfind(start) + len(start), start in context) for start in _STARTS)
    if not begin[1]:
        prim = re.search(_PRIM, context)
        return prim.group(1) if prim is not None and axis == 0 else None
    depth, part, start_of_part = 1, 0, begin[0]
    for i in range(start_of_part, len(context)):
        letter = context[i]
        depth += (letter == "(") - (letter == ")")
        if depth == 0 or (letter == "," and depth == 1):
            if part == axis:
                return context[start_of_part:i].strip() or None
            part, start_of_part = part + 1, i + 1
        if depth == 0:
            break
    return None


def origin_of(context: str, axis: int | None) -> str:
    """What a slot of the shape heap remembers: that it got its value from `axis` (of a scalar:
    None) of what `context` says.
    """
    return context if axis is None else f"axis {axis} of {context}"


def wanted_text(heap: Any, slot: int, context: str, axis: int | None) -> str:
    """For a message about a check with the text `context`: what is wanted, with its name, and where
    that value came from, if that is known.
    """
    name = dimension_text(context, axis or 0)
    value = heap.values[slot]
    wanted = str(value) if name is None or name == str(value) else f"{name} = {value}"
    origin = heap.origins[slot]
    function = context.partition(": ")[0] + ": "
    if type(origin) is not DimProgram:
        return f"{wanted} (from {_within(function, origin)})" if origin else wanted
    sources = [
        f"{_label(heap, leaf)} from {_within(function, heap.origins[leaf])}"
        for leaf in _leaves(heap, origin)
    ]
    return f"{wanted} ({', '.join(sources) or 'computed'})"


def _within(function: str, origin: str) -> str:
    """`origin` without the name of the function, which the message has already."""
    return origin.replace(f"of {function}", "of ", 1).removeprefix(function)


def _label(heap: Any, slot: int) -> str:
    origin = heap.origins[slot]
    axis = re.match(r"axis (\d+) of ", origin)
    name = dimension_text(origin, 0 if axis is None else int(axis.group(1)))
    return f"{name or 'a value'} = {heap.values[slot]}"


def _leaves(heap: Any, program: DimProgram) -> list[int]:
    """The slots that were not computed from others, of those `program` needs."""
    leaves: dict[int, None] = {}
    seen: set[int] = set()
    todo = [program]
    while todo and len(leaves) < _MAX_SHOWN:
        for symbol in symbols_of(todo.pop().dim):
            slot = int(symbol) if symbol.isdecimal() else len(heap.values)
            if slot >= len(heap.values) or slot in seen:
                continue
            seen.add(slot)
            origin = heap.origins[slot]
            if type(origin) is DimProgram:
                todo.append(origin)
            elif origin:
                leaves[slot] = None
    return list(leaves)[:_MAX_SHOWN]
