"""CombineParallelMatmul: products of one value become one.

q = R.matmul(x, wq)                        lv = R.matmul(x, [wq, wk, wv])
k = R.matmul(x, wk)                        q = R.strided_slice(lv, ...)
v = R.matmul(x, wv)                        k = R.strided_slice(lv, ...)
                                           v = R.strided_slice(lv, ...)
"""

from __future__ import annotations

from ...ir import IRModule, Op, PassContext
from ...ir.transform import module_pass
from ..derive import tensor_dims
from ..expr import Call
from .combine_parallel import Check, Kind, combine_parallel

_MATMUL = Op.get("relax.matmul")


@module_pass(opt_level=4)
def CombineParallelMatmul(
    mod: IRModule, ctx: PassContext, *, check: Check | None = None
) -> IRModule:
    """Combine products of one value that differ in weights and how many columns these have alone,
    with the biases and activations after them.

    check  (value, weights, biases by branch, what variables are bound to) -> whether to combine
    """
    return combine_parallel(mod, Kind(lambda call: columns(call)), 2, check)


def columns(call: Call, *ranks: int) -> tuple[int, int] | None:
    """The axes of the columns of a product, and of its second operand, if that is of one of these
    ranks (none given: of any but 1).
    """
    weight = tensor_dims(call.args[1]) if call.op is _MATMUL else None
    fits = weight is not None and (len(weight) in ranks if ranks else len(weight) > 1)
    return (-1, -1) if fits else None
