"""CombineParallelBatchMatmul: batched products of one value become one.

a = R.matmul(x, w1)  # [b, m, n1]          lv = R.matmul(x, [w1, w2, w3])
b = R.matmul(x, w2)  # [b, m, n2]          a = R.strided_slice(lv, ...)
c = R.matmul(x, w3)  # [b, m, n3]          ...
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from .combine_parallel import Check, Kind, combine_parallel
from .combine_parallel_matmul import columns


@module_pass(opt_level=4)
def CombineParallelBatchMatmul(
    mod: IRModule, ctx: PassContext, *, min_num_branches: int = 3, check: Check | None = None
) -> IRModule:
    """Combine products of one value with batches of matrices, with the biases and activations after
    them.

    min_num_branches  fewer are left alone
    check             (value, weights, biases by branch, what variables are bound to) -> whether
    """
    kind = Kind(lambda call: columns(call, 3))
    return combine_parallel(mod, kind, min_num_branches, check)
