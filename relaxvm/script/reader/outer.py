"""The Python names that script text can see around itself."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from types import FrameType, FunctionType
from typing import Any

MISSING: Any = object()


class Outer:
    """Layers of Python names, innermost first."""

    __slots__ = ("layers",)

    def __init__(self, *layers: Mapping[str, Any]) -> None:
        self.layers = tuple(layers)

    def lookup(self, name: str) -> Any:
        """The value of that name, or `MISSING`."""
        for layer in self.layers:
            if name in layer:
                return layer[name]
        return MISSING

    def names(self) -> list[str]:
        """All names, for suggestions."""
        return [name for layer in self.layers for name in layer]

    def inside(self, layer: Mapping[str, Any]) -> Outer:
        """These names with `layer` before them."""
        return Outer(layer, *self.layers) if layer else self

    @staticmethod
    def of_frame(frame: FrameType) -> Outer:
        """What code in `frame` sees, as of now. Values bound later are not seen."""
        return Outer(dict(frame.f_locals), frame.f_globals, vars(builtins))

    @staticmethod
    def of_function(function: FunctionType) -> Outer:
        """What the body of `function` sees outside itself."""
        return Outer(closure(function), function.__globals__, vars(builtins))


def closure(function: Callable[..., Any]) -> dict[str, Any]:
    """The variables of enclosing functions that `function` uses, where they have a value."""
    code = getattr(function, "__code__", None)
    cells = getattr(function, "__closure__", None)
    variables = {}
    if code is not None and cells:
        for name, cell in zip(code.co_freevars, cells):
            try:
                variables[name] = cell.cell_contents
            except ValueError:
                continue  # the enclosing function has not bound it yet
    return variables
