"""DivToMul: products instead of quotients.

    y = R.divide(x, R.const(3.0))              y = R.multiply(x, R.const(0.33333334))
    z = R.divide(x, rows)                      lv = R.divide(R.const(1.0), rows)
                                               z = R.multiply(x, lv)

The second only where there are fewer divisors than quotients. Powers of two are exact, and
SimplifyExpr's.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from .. import op as R
from ..expr import Constant, Function, const
from ..struct_info import Expr
from .rule_text import numpy_dtype, rewritten, rule, static_sizes


def _by_reciprocal(call: Expr, x: Expr, y: Any) -> Expr | None:
    dtype = numpy_dtype(y.struct_info)
    if dtype is None or not np.issubdtype(dtype, np.floating):
        return None
    if isinstance(y, Constant):
        with np.errstate(all="ignore"):
            return R.multiply(x, const(np.reciprocal(y.data.numpy()), str(dtype)))
    divisors, quotients = static_sizes(y), static_sizes(call)
    if divisors is None or quotients is None or np.prod(divisors) >= np.prod(quotients):
        return None
    return R.multiply(x, R.divide(const(1.0, str(dtype)), y))


RULES = (rule("approximate", "divide(x, y)", _by_reciprocal),)


@function_pass(opt_level=4, numerics="approximate")
def DivToMul(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Multiply by reciprocals of constants, and of what is broadcast."""
    return rewritten(fn, mod, ctx, RULES, "approximate")
