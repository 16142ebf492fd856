"""`I`: modules as script text writes them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

from ..ir import DummyGlobalInfo, VDevice
from ..ir import Range as _Range
from .reader import decorate_class, records
from .reader.records import Step, marked, statement
from .reader.tir_suite import between

__all__ = [
    "Range",
    "decl_function",
    "def_function",
    "dummy_global_info",
    "ir_module",
    "module_attrs",
    "module_global_infos",
    "vdevice",
]


@marked(script_language="module")
def ir_module(cls: Any = None, **options: Any) -> Any:
    """Make an IRModule out of a class whose functions are decorated with ``@T.prim_func`` or
    ``@R.function``.

    check_well_formed  check the module when it is read (default: True)
    Raises ParseError, pointing into the source, for text that is not in the language.
    """
    if cls is None:
        return records.Definition("I.ir_module", _ir_module, options)
    return decorate_class(cls, sys._getframe(1), options)


def _ir_module(cls: Any, options: Any) -> Any:
    return decorate_class(cls, sys._getframe(2), options)


@statement
def module_attrs(attrs: Mapping[str, Any]) -> records.ModuleAttrs:
    """Attributes of the module."""
    return records.ModuleAttrs(attrs)


@statement
def module_global_infos(global_infos: Mapping[str, Any]) -> records.ModuleGlobalInfos:
    """What the module declares for its functions to refer to, such as ``{"vdevice":
    [I.vdevice("llvm")]}``.
    """
    return records.ModuleGlobalInfos(global_infos)


@statement
def decl_function(func_name: str, func_signature: Any) -> Step:
    """A function of the module that is written later: gives the GlobalVar to call it by. An
    IRBuilder's; in text the functions of a class know each other.

    func_signature  a function with the right parameters and result
    """
    return Step("I.decl_function", "decl_function", (func_name, func_signature))


@statement
def def_function(func_name: str, func: Any) -> Step:
    """`func` is the function of that name in the module (an IRBuilder's)."""
    return Step("I.def_function", "def_function", (func_name, func))


def vdevice(target: Any = None, vdevice_id: int = 0, memory_scope: str = "global") -> VDevice:
    """A device that tensors can be annotated with."""
    return VDevice(target, vdevice_id, memory_scope)


def dummy_global_info() -> DummyGlobalInfo:
    """A global info without content."""
    return DummyGlobalInfo()


def Range(begin: Any, end: Any = None) -> _Range:
    """The integers from `begin` up to `end`; from 0 to `begin` if that is all."""
    return _Range.from_min_extent(*(between(0, begin) if end is None else between(begin, end)))
