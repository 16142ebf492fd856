"""ExpandMatmulOfSum: a product with a sum becomes a sum of products.

    lv = R.add(w, lora)                        lv = R.matmul(x, w)
    gv = R.matmul(x, lv)                       lv1 = R.matmul(x, lora)
                                               gv = R.add(lv, lv1)

Where what is added is a product of thin matrices itself, `AdjustMatmulOrder` can then do without
it. A sum that is known before the function runs stays.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..derive import prove_dims, tensor_dims
from ..dpl import is_op, rewrite_call, wildcard
from ..expr import Function
from ..op.names import ops
from ..struct_info import Expr
from .adjust_matmul_order import is_known, weights_of


@function_pass(opt_level=4, numerics="reassociates")
def ExpandMatmulOfSum(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Multiply by each of two matrices that are added, instead of by their sum."""
    weights = weights_of(fn, mod)
    x, a, b = wildcard(), wildcard(), wildcard()

    def rule(call: Any, matched: Any) -> Expr | None:
        one, two = matched[a], matched[b]
        first, second = tensor_dims(one), tensor_dims(two)
        if first is None or second is None or min(len(first), len(second)) < 2:
            return None
        if not all(prove_dims(p, q) for p, q in zip(first[-2:], second[-2:])):
            return None
        if is_known(one, weights) and is_known(two, weights):
            return None
        return ops.add(*(ops.matmul(matched[x], y, **dict(call.attrs)) for y in (one, two)))

    return rewrite_call(is_op("relax.matmul")(x, is_op("relax.add")(a, b)), rule, fn)
