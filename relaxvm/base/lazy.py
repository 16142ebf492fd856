"""What is loaded when it is first used: submodules of a package, and names that live in them."""

from __future__ import annotations

import importlib
import os
import sys
import warnings
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from .collector import collecting_seldom


def submodules(
    package: str, homes: Mapping[str, str] | None = None, files: str = ""
) -> Callable[[str], Any]:
    """A package's `__getattr__`: ``relaxvm.ir.base`` needs no import of its own, as in TVM. For a
    module without submodules it only says, of a name that is not there, why.

    It gives `__all__` too. A package's face is what its `__init__` defines or imports without `_`;
    there, ``from .stmt import For as For`` is what type checkers want to see of a name that is
    passed on. Of another module it is the functions and classes that are made in it.

    homes  {submodule, or other module with its whole path: names it gives, with spaces between}
    files  the submodules that are part of the face
    """
    home_of = {name: home for home, names in (homes or {}).items() for name in names.split()}

    def find(name: str) -> Any:
        if name == "__all__":
            return _face(package, home_of, files)
        home = home_of.get(name)
        if home is not None:
            full = home if home.startswith("relaxvm.") else f"{package}.{home}"
            with collecting_seldom():
                value = getattr(importlib.import_module(full), name)
            setattr(sys.modules[package], name, value)
            return value
        return _submodule(package, name)

    return find


def _face(module: str, home_of: Mapping[str, str], files: str) -> list[str]:
    namespace = vars(sys.modules[module])
    public = {name: value for name, value in namespace.items() if not name.startswith("_")}
    if "__path__" not in namespace:
        return sorted(n for n, v in public.items() if getattr(v, "__module__", "") == module)
    own = {name for name, value in public.items() if not isinstance(value, ModuleType)}
    other_rooms = {name for name, home in home_of.items() if home.startswith("relaxvm.")}
    return sorted({*own, *home_of, *files.split()} - other_rooms)


def _submodule(package: str, name: str) -> Any:
    if name.startswith("__"):
        # The import system asks for these of every module.
        raise AttributeError(f"module {package!r} has no attribute {name!r}")
    full = f"{package}.{name}"
    if not name.startswith("_") and "__path__" in vars(sys.modules[package]):
        try:
            return importlib.import_module(full)
        except ModuleNotFoundError as error:
            if error.name != full:
                raise
    try:
        return importlib.import_module("relaxvm._deprecated").renamed(package, name)
    except AttributeError:
        raise importlib.import_module("relaxvm._absent").no_such_name(package, name) from None


_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


def warn_older(message: str) -> None:
    """A DeprecationWarning at the line of the user's program."""
    frame, level = sys._getframe(1), 2
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_HERE, "<frozen")):
        # `from module import name` asks twice; the first time is not the program's.
        if frame.f_code.co_name == "_handle_fromlist":
            return
        level += not frame.f_code.co_filename.startswith("<frozen importlib")
        frame = frame.f_back
    warnings.warn(message, DeprecationWarning, stacklevel=level)


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
