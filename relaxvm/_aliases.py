"""Module paths of TVM that are spelled otherwise here, in one table.

``import relaxvm.ir.base`` gives the real module, under both names the same object. Once
`relaxvm.as_tvm` is imported, ``import tvm.ir.base`` gives it too.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from importlib.abc import Loader

MODULES = {
    "relaxvm._ffi": "relaxvm.ffi",
    "relaxvm.container": "relaxvm.ir",
    "relaxvm.contrib.debugger.debug_executor": "relaxvm.runtime.graph_debug",
    "relaxvm.contrib.debugger.debug_runtime": "relaxvm.runtime.graph_debug",
    "relaxvm.contrib.graph_executor": "relaxvm.runtime.graph_executor",
    "relaxvm.contrib.graph_runtime": "relaxvm.runtime.graph_executor",
    "relaxvm.error": "relaxvm.base.errors",
    "relaxvm.ffi.access_path": "relaxvm.ir.access_path",
    "relaxvm.ffi.base": "relaxvm.base.errors",
    "relaxvm.ffi.container": "relaxvm.ffi",
    "relaxvm.ffi.core": "relaxvm.ffi",
    "relaxvm.ffi.registry": "relaxvm.ffi",
    "relaxvm.instrument": "relaxvm.ir.instrument",
    "relaxvm.ir.attrs": "relaxvm.ir",
    "relaxvm.ir.base": "relaxvm.ir",
    "relaxvm.ir.container": "relaxvm.ir",
    "relaxvm.ir.function": "relaxvm.ir",
    "relaxvm.ir.global_info": "relaxvm.ir",
    "relaxvm.ir.type": "relaxvm.ir",
    "relaxvm.meta_schedule.relax_integration": "relaxvm.relax_integration",
    "relaxvm.meta_schedule.utils": "relaxvm.meta_schedule.derived",
    "relaxvm.nd": "relaxvm.runtime.ndarray",
    "relaxvm.ndarray": "relaxvm.runtime.ndarray",
    "relaxvm.parser": "relaxvm.relay.parser",
    "relaxvm.relax.analysis.analysis": "relaxvm.relax.analysis",
    "relaxvm.relax.exec_builder": "relaxvm.runtime.exec_builder",
    "relaxvm.relax.pipeline": "relaxvm.pipeline",
    "relaxvm.relax.transform.transform": "relaxvm.relax.transform",
    "relaxvm.relax.vm": "relaxvm.relax.vm_build",
    "relaxvm.relay.op.nn": "relaxvm.relay.nn",
    "relaxvm.relay.scope_builder": "relaxvm.relay.expr",
    "relaxvm.relay.op.annotation": "relaxvm.relay.annotation",
    "relaxvm.relay.op.image": "relaxvm.relay.image",
    "relaxvm.relay.op.vision": "relaxvm.relay.vision",
    "relaxvm.relay.op.op": "relaxvm.relay.op",
    **{
        f"relaxvm.relay.op.{part}": "relaxvm.relay.tensor"
        for part in ("algorithm", "reduce", "tensor", "transform")
    },
    "relaxvm.runtime.container": "relaxvm.runtime",
    "relaxvm.runtime.packed_func": "relaxvm.runtime",
    "relaxvm.runtime.relax_vm": "relaxvm.runtime.vm",
    "relaxvm.s_tir": "relaxvm.tir",
    "relaxvm.script.ir_builder.ir": "relaxvm.script.ir",
    "relaxvm.script.ir_builder.relax": "relaxvm.script.relax",
    "relaxvm.script.ir_builder.tir": "relaxvm.script.tir",
    "relaxvm.script.parser": "relaxvm.script",
    "relaxvm.tir.analysis.analysis": "relaxvm.tir.analysis",
    "relaxvm.tir.buffer": "relaxvm.tir.stmt",
    "relaxvm.tir.expr": "relaxvm.ir.expr",
    "relaxvm.tir.function": "relaxvm.tir",
    "relaxvm.tir.block_scope": "relaxvm.tir.schedule.model.scopes",
    "relaxvm.tir.schedule.instruction": "relaxvm.tir.schedule",
    "relaxvm.tir.schedule.state": "relaxvm.tir.schedule.model.state",
    "relaxvm.tir.schedule.trace": "relaxvm.tir.schedule.model.trace",
    "relaxvm.tir.transform.transform": "relaxvm.tir.transform",
    "relaxvm.tirx": "relaxvm.tir",
    **{
        f"relaxvm.topi.{part}": "relaxvm.topi"
        for part in ("broadcast", "math", "reduction", "tensor", "transform")
    },
    "relaxvm.transform": "relaxvm.ir.transform",
}
AS_TVM = {"tvm": "relaxvm", "tvm_ffi": "relaxvm.ffi"}
"""The names of TVM's own packages, which `answer_tvm` lets the import system know."""

_answered: dict[str, str] = {}


def real_name(name: str) -> str:
    """The path of the module that `name` stands for: ``tvm.s_tir.schedule`` is
    ``relaxvm.tir.schedule``.
    """
    head, *rest = name.split(".")
    real = AS_TVM.get(head, head)
    for part in rest:
        real = MODULES.get(f"{real}.{part}", f"{real}.{part}")
    return real


class _AliasFinder:
    """Finder and loader; not by inheritance, as importing `importlib.abc` takes 10 ms."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        head = fullname.partition(".")[0]
        if head != "relaxvm" and head not in _answered:
            return None
        # Below an alias too: the path finder would load a second copy of the real file.
        real = real_name(fullname)
        if real == fullname:
            return None
        importlib.import_module("relaxvm._deprecated").moved(fullname)
        try:
            importlib.import_module(real)
        except ModuleNotFoundError as error:
            if not (real == error.name or real.startswith(f"{error.name}.")):
                raise
            raise importlib.import_module("relaxvm._absent").no_such_module(fullname) from None
        return importlib.machinery.ModuleSpec(fullname, cast("Loader", self))

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        real = sys.modules[real_name(spec.name)]
        self._specs[spec.name] = real.__spec__
        return real

    def exec_module(self, module: ModuleType) -> None:
        # The import system has put the alias's spec on the real module: put its own back.
        alias = module.__spec__.name if module.__spec__ is not None else ""
        module.__spec__ = self._specs.pop(alias, module.__spec__)
        _mirror(alias, module.__name__)

    def __init__(self) -> None:
        self._specs: dict[str, importlib.machinery.ModuleSpec | None] = {}


def _mirror(alias: str, real: str) -> None:
    """Enter the loaded modules below `real` under `alias`.

    Importing them by that name would bind each in its package, over a function of the same name:
    `runtime.device`, `te.create_prim_func`.
    """
    for name in [n for n in sys.modules if n.startswith(f"{real}.") and real_name(n) == n]:
        sys.modules.setdefault(alias + name[len(real) :], sys.modules[name])


def install() -> None:
    """Let the import system know the aliases (once)."""
    if not any(isinstance(finder, _AliasFinder) for finder in sys.meta_path):
        # First: below an aliased package the path finder would load a second copy of the real file.
        sys.meta_path.insert(0, _AliasFinder())


def answer_tvm() -> None:
    """Let `AS_TVM`'s names be imported. Raises ImportError if they are TVM's already."""
    for name, real in AS_TVM.items():
        module = sys.modules.get(name)
        if module is not None and module.__name__ != real:
            where = getattr(module, "__file__", None) or "no file"
            raise ImportError(
                f"relaxvm.as_tvm: {name} is imported already, from {where}, and it is not relaxvm; "
                "import relaxvm.as_tvm before it, or in a process of its own",
                name=name,
            )
    _answered.update(AS_TVM)
    sys.modules["tvm"] = sys.modules["relaxvm"]
    _mirror("tvm", "relaxvm")


def forget_tvm() -> None:
    """Undo `answer_tvm`."""
    _answered.clear()
    for name in [n for n in sys.modules if n.partition(".")[0] in AS_TVM and real_name(n) != n]:
        if sys.modules[name] is sys.modules.get(real_name(name)):
            del sys.modules[name]
