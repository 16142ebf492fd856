"""Keep the loop functions that a condition holds for.

Filter(lambda fn: "global_symbol" in fn.attrs)(mod)
"""

from __future__ import annotations

from collections.abc import Callable

from ...ir import IRModule, PassContext
from ...ir.transform import prim_func_pass
from ..stmt import PrimFunc


@prim_func_pass(opt_level=0)
def Filter(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, fcond: Callable[[PrimFunc], bool]
) -> PrimFunc | None:
    """Remove the loop functions for which `fcond` is false."""
    return fn if fcond(fn) else None
