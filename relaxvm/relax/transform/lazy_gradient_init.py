"""LazyGradientInit: zeros and ones, as gradients begin, are made only where they are read.

    a = R.zeros_like(x)                        y = g
    b = R.add(a, g)
    y = R.multiply(b, R.ones_like(g))

Zeros and ones are taken for what they are in sums and products of real numbers. What is left of
them does not read the tensor that they are like.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..expr import Function
from .rule_text import rewritten, rule
from .simplify_expr import NUMBERS, filled_again

RULES = (rule("exact", "filled(x)", lambda call: filled_again(call, call)), *NUMBERS)


@function_pass(opt_level=2, numerics="approximate")
def LazyGradientInit(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Compute with zeros and ones while compiling, and make none before it is read."""
    return rewritten(fn, mod, ctx, RULES, "approximate")
