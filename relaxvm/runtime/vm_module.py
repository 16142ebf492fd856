"""VMModule: a virtual machine seen as TVM's module."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .device import Device

if TYPE_CHECKING:
    from .timing import BenchmarkResult


class VMModule:
    """A VM seen as TVM's module: ``mod["main"]``, ``mod.get_function``, ``mod.time_evaluator``."""

    __slots__ = ("vm",)

    type_key = "relax.VirtualMachine"
    imported_modules: tuple[object, ...] = ()

    def __init__(self, vm: Any) -> None:
        self.vm = vm

    def get_function(self, name: str, query_imports: bool = False) -> Callable[..., Any]:
        """The function `name`, or one of the VM's own (``set_input``, ``invoke_stateful``,
        ``get_output`` ...).
        """
        own = "get_outputs" if name == "get_output" else name
        if own in _VM_FUNCTIONS and name not in self.vm:
            return getattr(self.vm, own)
        return self.vm[name]

    __getitem__ = get_function

    def implements_function(self, name: str, query_imports: bool = False) -> bool:
        """Whether the program has a function `name`."""
        return name in self.vm

    def time_evaluator(
        self, func_name: str, dev: Device | None = None, **options: Any
    ) -> Callable[..., BenchmarkResult]:
        """See `VirtualMachine.time_evaluator`."""
        return self.vm.time_evaluator(func_name, dev, **options)

    def get_source(self, fmt: str = "") -> str:
        """The text of the kernels; see `Program.get_source`."""
        source: str = self.vm.executable.get_source(fmt)
        return source

    def export_library(self, path: str | os.PathLike[str], **options: Any) -> None:
        """Write the executable to `path`; see `Executable.export_library`."""
        self.vm.executable.export_library(path, **options)

    def __repr__(self) -> str:
        return f"<Module of {self.vm!r}>"


_VM_FUNCTIONS = (
    "explain profile set_input set_output invoke_stateful get_outputs save_function invoke_closure "
    "set_instrument"
).split()
