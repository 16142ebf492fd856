"""`relaxvm.build` and `relaxvm.compile`: whatever it is, compile it; `relaxvm.lower`: show how.

A module with graph functions gives an `Executable` for the virtual machine; loop functions alone
give a `Module` whose functions are called directly.
"""

from __future__ import annotations

from typing import Any

from . import target as target_room
from .ir import IRModule
from .pipeline import build as build_graph
from .relax import Function
from .tir import PrimFunc
from .tir.transform import lower_module


def compile(mod: Any, target: Any = None, **options: Any) -> Any:
    """`relax.build` for a graph function or a module with one, else `target.build`; `options`
    are theirs.
    """
    graph = isinstance(mod, Function) or (
        isinstance(mod, IRModule) and any(isinstance(f, Function) for f in mod.functions.values())
    )
    if graph:
        return build_graph(mod, target, **options)
    return target_room.build(mod, target, **options)


build = compile


def lower(mod: PrimFunc | IRModule, name: str = "main") -> IRModule:
    """A module of loop functions as the code generator takes it: no blocks, flat buffers.

    name  what the function is called if it is given alone and has no name
    """
    if isinstance(mod, PrimFunc):
        mod = IRModule({mod.get_attr("global_symbol") or name: mod})
    return lower_module(mod)
