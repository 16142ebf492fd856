"""Names that TVM itself has renamed, in one table: asking for one gives the present thing and a
DeprecationWarning that says how it is written now. Read only when a name is not there.
"""

from __future__ import annotations

import importlib
from typing import Any

from .base import warn_older

# Module ("" for the package) -> older name -> what to write, which is what it gives.
_RENAMED: dict[str, dict[str, str]] = {
    "": {
        "context": "device",
        "TVMContext": "runtime.Device",
        "module": "runtime.module",
        "build_config": "transform.PassContext",
        "convert": "runtime.convert",
        "load_json": "ir.load_json",
        "save_json": "ir.save_json",
        **dict.fromkeys(("expr", "stmt", "make"), "tir"),
        "api": "te",
        **{
            name: f"te.{name}"
            for name in """
                compute extern max min placeholder reduce_axis scan size_var sum thread_axis var
            """.split()
        },
        **{
            name: f"tir.{name}"
            for name in """
                all any call_extern call_pure_extern ceil const decl_buffer div exp floor floordiv
                floormod if_then_else indexdiv indexmod log popcount power round sigmoid sqrt tanh
                trunc truncdiv truncmod
            """.split()
        },
        "select": "tir.Select",
        "ir_builder": "tir.ir_builder",
    },
    "nd": {"context": "device", "TVMContext": "runtime.Device"},
    "runtime": {"context": "device", "TVMContext": "runtime.Device"},
    "target": {"create": "target.Target", "build_config": "transform.PassContext"},
    "relay": {
        "Module": "IRModule",
        "alpha_equal": "ir.structural_equal",
        "build_config": "transform.PassContext",
        "module": "ir",
        "pow": "relay.power",
        "scatter": "relay.scatter_elements",
        "scatter_add": "relay.scatter_elements",
    },
    "relay.analysis": {"alpha_equal": "ir.structural_equal"},
    "relay.build_module": {"build_config": "transform.PassContext"},
    "relay.image": {"resize": "relay.image.resize2d"},
    "relay.transform": {"build_config": "transform.PassContext"},
    "relay.ir_pass": {"alpha_equal": "ir.structural_equal"},
    "ir": {"Module": "IRModule"},
}
# Older operators that take their arguments otherwise, made of the present ones.
_ADAPTED = {"relay.scatter_add", "relay.image.resize"}
_ADAPTERS = "relaxvm.relay.older"
# Modules under paths of `_aliases.MODULES` that TVM has left.
_MOVED = {
    "relaxvm.contrib.debugger.debug_runtime": "contrib.debugger.debug_executor",
    "relaxvm.contrib.graph_runtime": "contrib.graph_executor",
}


def renamed(module: str, name: str) -> Any:
    """What ``module.name`` is now, with a warning; AttributeError if the table has no such name."""
    path = module.partition(".")[2]
    present = _RENAMED.get({"runtime.ndarray": "nd"}.get(path, path), {}).get(name)
    if present is None:
        raise AttributeError(name)
    old = f"{path}.{name}" if path else name
    warn_older(f"{old}: write {present}")
    home, attribute = (_ADAPTERS, name) if old in _ADAPTED else _place(present)
    return getattr(importlib.import_module(home), attribute)


def _place(present: str) -> tuple[str, str]:
    home, _, attribute = f"relaxvm.{present}".rpartition(".")
    return home, attribute


def moved(path: str) -> None:
    """Warn if the module's `path` is one that TVM has left."""
    if path in _MOVED:
        warn_older(f"{path.partition('.')[2]}: write {_MOVED[path]}")
