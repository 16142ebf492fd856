"""Submodules that are loaded when they are first used as attributes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType

__all__ = ["submodules"]


def submodules(package: str) -> Callable[[str], ModuleType]:
    """A package's `__getattr__`: ``relaxvm.ir.base`` needs no import of its own, as in TVM."""

    def find(name: str) -> ModuleType:
        full = f"{package}.{name}"
        if not name.startswith("_"):
            try:
                return importlib.import_module(full)
            except ModuleNotFoundError as error:
                if error.name != full:
                    raise
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find
