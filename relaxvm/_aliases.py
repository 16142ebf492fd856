"""Module paths of TVM that are spelled otherwise here, in one table.

``import relaxvm.ir.base`` gives the real module, under both names the same object.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType

__all__ = ["MODULES", "install"]

MODULES = {
    "relaxvm.container": "relaxvm.ir",
    "relaxvm.error": "relaxvm.base.errors",
    "relaxvm.instrument": "relaxvm.ir.instrument",
    "relaxvm.ir.base": "relaxvm.ir",
    "relaxvm.ir.container": "relaxvm.ir",
    "relaxvm.nd": "relaxvm.runtime.ndarray",
    "relaxvm.ndarray": "relaxvm.runtime.ndarray",
    "relaxvm.relax.pipeline": "relaxvm.pipeline",
    "relaxvm.relax.transform.transform": "relaxvm.relax.transform",
    "relaxvm.relax.vm": "relaxvm.relax.vm_build",
    "relaxvm.runtime.container": "relaxvm.runtime",
    "relaxvm.runtime.relax_vm": "relaxvm.runtime.vm",
    "relaxvm.s_tir": "relaxvm.tir",
    "relaxvm.s_tir.schedule": "relaxvm.tir.schedule",
    "relaxvm.script.parser": "relaxvm.script",
    "relaxvm.script.parser.ir": "relaxvm.script.ir",
    "relaxvm.script.parser.relax": "relaxvm.script.relax",
    "relaxvm.script.parser.tir": "relaxvm.script.tir",
    "relaxvm.tir.buffer": "relaxvm.tir.stmt",
    "relaxvm.tir.expr": "relaxvm.ir.expr",
    "relaxvm.tir.function": "relaxvm.tir",
    "relaxvm.tir.transform.transform": "relaxvm.tir.transform",
    "relaxvm.tirx": "relaxvm.tir",
    "relaxvm.tirx.schedule": "relaxvm.tir.schedule",
    "relaxvm.transform": "relaxvm.ir.transform",
}


class _AliasFinder:
    """Finder and loader; not by inheritance, as importing `importlib.abc` takes 10 ms."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in MODULES:
            return None
        return importlib.machinery.ModuleSpec(fullname, self)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        real = importlib.import_module(MODULES[spec.name])
        self._specs[spec.name] = real.__spec__
        return real

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put the alias's spec on the real module: put its own back.
        alias = module.__spec__.name if module.__spec__ is not None else ""
        module.__spec__ = self._specs.pop(alias, module.__spec__)

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}


def install() -> None:
    """Let the import system know the aliases (once)."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        # First: below an aliased package the path finder would load a second copy of the real file.
        sys.meta_path.insert(0, _AliasFinder())
