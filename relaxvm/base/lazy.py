"""What is loaded when it is first used: submodules of a package, and names that live in them."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

__all__ = ["Deferred", "submodules"]


def submodules(package: str, homes: Mapping[str, str] | None = None) -> Callable[[str], Any]:
    """A package's `__getattr__`: ``relaxvm.ir.base`` needs no import of its own, as in TVM.

    homes  {submodule: names it gives to the package, with spaces between}
    """
    home_of = {name: home for home, names in (homes or {}).items() for name in names.split()}

    def find(name: str) -> Any:
        home = home_of.get(name)
        if home is not None:
            value = getattr(importlib.import_module(f"{package}.{home}"), name)
            setattr(sys.modules[package], name, value)
            return value
        return _submodule(package, name)

    return find


def _submodule(package: str, name: str) -> ModuleType:
    full = f"{package}.{name}"
    if not name.startswith("_"):
        try:
            return importlib.import_module(full)
        except ModuleNotFoundError as error:
            if error.name != full:
                raise
    raise AttributeError(f"module {package!r} has no attribute {name!r}")


class Deferred:
    """Stands for a module that few need: ``profile = Deferred("relaxvm.runtime.profile")`` loads it
    when an attribute is first asked for.

    Written beside an import under TYPE_CHECKING, so that the reader, the type checker and the test
    of import directions see it.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
