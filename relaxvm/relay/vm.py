"""`relay.vm.compile`: modules for the virtual machine, which runs everything.

exe = relay.vm.compile(mod, target="llvm", params=params)
vm = runtime.vm.VirtualMachine(exe, dev)
vm.run(x)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..pipeline import build
from ..runtime import Executable as Executable
from ..runtime import VirtualMachine as VirtualMachine
from .build_module import one_target, taken_module, typed


def compile(
    mod: Any,
    target: Any = None,
    target_host: Any = None,
    params: Mapping[str, Any] | None = None,
    exec_mode: str | None = None,
) -> Executable:
    """An executable of all functions of `mod`, under the current PassContext; arguments as in
    `relay.build`.

    exec_mode  as in `relax.build`
    """
    taken = typed(taken_module(mod, params))
    return build(taken, one_target(target, target_host), exec_mode=exec_mode)
