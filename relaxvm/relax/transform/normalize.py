"""Normalize: normal form.

return R.add(R.multiply(x, y), z)          lv = R.multiply(x, y)
                                           gv = R.add(lv, z)
                                           return gv
"""

from __future__ import annotations

from ...ir.module import IRModule
from ...ir.transform import PassContext, function_pass
from ..expr import Function
from ..normal_form import NameSupply, Normalizer, bound_names

__all__ = ["Normalize"]


@function_pass(opt_level=0)
def Normalize(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Give every nested value a variable of its own, drop empty blocks and join plain blocks that
    follow one another.
    """
    return Normalizer(NameSupply(lambda: bound_names(fn))).function(fn)
