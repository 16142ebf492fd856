"""Note on every loop function which target it is compiled for.

@T.prim_func                                @T.prim_func
def f(...): ...                             def f(...):
                                                T.func_attr({"target": Target("llvm")})
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import prim_func_pass
from ..stmt import PrimFunc


@prim_func_pass(opt_level=0)
def BindTarget(fn: PrimFunc, mod: IRModule, ctx: PassContext, target: Any) -> PrimFunc:
    """Set the attribute "target" of functions that have none."""
    return fn if fn.get_attr("target") is not None else fn.with_attr("target", target)
