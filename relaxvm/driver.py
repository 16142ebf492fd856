"""`relaxvm.build` and `relaxvm.compile`: whatever it is, compile it.

A module with graph functions gives an `Executable` for the virtual machine; loop functions alone
give a `Module` whose functions are called directly.
"""

from __future__ import annotations

from typing import Any

from . import target as target_room
from .ir import IRModule
from .relax import Function, vm_build

__all__ = ["build", "compile"]


def compile(mod: Any, target: Any = None, **options: Any) -> Any:
    """`relax.build` for a graph function or a module with one, else `target.build`; `options`
    are theirs.
    """
    graph = isinstance(mod, Function) or (
        isinstance(mod, IRModule) and any(isinstance(f, Function) for f in mod.functions.values())
    )
    if graph:
        return vm_build.build(mod, target, **options)
    return target_room.build(mod, target, **options)


build = compile
