"""Run a Python function on every loop function.

Apply(lambda fn: fn.with_attr("checked", True))(mod)
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import IRModule, PassContext
from ...ir.transform import prim_func_pass
from ..stmt import PrimFunc


@prim_func_pass(opt_level=0)
def Apply(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, ftransform: Callable[[PrimFunc], PrimFunc]
) -> PrimFunc:
    """Replace each loop function by `ftransform` of it."""
    return ftransform(fn)
