"""AttachGlobalSymbol: every function gets a public name, the one it stands under.

@T.prim_func(private=True)          @T.prim_func
def add(...): ...                   def add(...): ...       # global_symbol "add"
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ...tir import PrimFunc
from ..expr import Function
from .signature import replace_functions


@module_pass(opt_level=0)
def AttachGlobalSymbol(mod: IRModule, ctx: PassContext) -> IRModule:
    """Set `global_symbol` on the graph and loop functions that have none."""
    changed = {
        gv: fn.with_attr("global_symbol", gv.name_hint)
        for gv, fn in mod.items()
        if isinstance(fn, (Function, PrimFunc)) and fn.get_attr("global_symbol") is None
    }
    return replace_functions(mod, changed)
