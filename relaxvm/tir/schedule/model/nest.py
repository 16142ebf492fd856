"""A picture of a loop nest for messages: loops and blocks only, the ones in question marked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ....ir import descend
from ...stmt import BlockRealize, For, ForKind, Stmt, statements_below
from .state import State

_LONGEST = 40


def picture(state: State, sites: Sequence[Any]) -> str:
    """The nest of the function, one line per loop and block, with arrows at `sites`."""
    marked = {id(s) for s in sites}
    lines: list[str] = []

    def below(item: tuple[Stmt, int]) -> list[tuple[Stmt, int]]:
        s, depth = item
        return [(c, depth + (_line(s) is not None)) for c in statements_below(s)]

    for s, depth in descend((state.fn.body, 0), below):
        text = _line(s)
        if text is not None:
            hit = id(s) in marked or (isinstance(s, BlockRealize) and id(s.block) in marked)
            lines.append(("> " if hit else "  ") + "  " * depth + text)
    if len(lines) > _LONGEST:
        keep = [k for k, line in enumerate(lines) if line.startswith("> ")]
        first = max(0, (keep[0] if keep else 0) - _LONGEST // 2)
        shown = lines[first : first + _LONGEST]
        shown = ["  …", *shown] if first else shown
        lines = [*shown, "  …"] if first + _LONGEST < len(lines) else shown
    return "\n".join(lines)


def _line(s: Any) -> str | None:
    if isinstance(s, For):
        kind = "" if s.kind == ForKind.SERIAL else f"T.{ForKind(s.kind).name.lower()} "
        low = getattr(s.min, "value", s.min)
        extent = getattr(s.extent, "value", s.extent)
        return f"for {s.loop_var.name} in {kind}{f'{low} + ' if low != 0 else ''}range({extent}):"
    if isinstance(s, BlockRealize):
        axes = ", ".join(
            f"{a.var.name}: {a.iter_type} = {v}" for a, v in zip(s.block.iter_vars, s.iter_values)
        )
        return f"block {s.block.name_hint}({axes})"
    return None
