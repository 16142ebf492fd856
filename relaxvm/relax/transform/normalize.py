"""Normalize: normal form.

return R.add(R.multiply(x, y), z)          lv = R.multiply(x, y)
                                           gv = R.add(lv, z)
                                           return gv
"""

from __future__ import annotations

import weakref

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..expr import Function
from ..normal_form import Normalizer, names_in


@function_pass(opt_level=0)
def Normalize(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Give every nested value a variable of its own, drop empty blocks and join plain blocks that
    follow one another.
    """
    if fn in _normal:
        return fn
    normal = Normalizer(names_in(fn)).function(fn)
    _normal.add(normal)
    return normal


# Functions in normal form: a build asks for it before and after what users put into it.
_normal: weakref.WeakSet[Function] = weakref.WeakSet()
