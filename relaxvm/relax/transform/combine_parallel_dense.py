"""CombineParallelDense: products of one value with matrices become one, batched or flat.

a = R.matmul(x, w1)                        lv = R.matmul(x, [w1, w2, w3])  # of three matrices
b = R.matmul(x, w2)                        lv1 = R.strided_slice(lv, ...)
c = R.matmul(x, w3)                        a = R.squeeze(lv1, axis=[0])
                                           ...
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ..derive import tensor_dims
from ..expr import Call
from .combine_parallel import Check, Kind, combine_parallel
from .combine_parallel_matmul import columns


@module_pass(opt_level=4)
def CombineParallelDense(
    mod: IRModule,
    ctx: PassContext,
    *,
    min_num_branches: int = 3,
    to_batch: bool = True,
    check: Check | None = None,
) -> IRModule:
    """Combine products of one matrix with matrices, with the biases and activations after them.

    min_num_branches  fewer are left alone
    to_batch          whether weights of the same shape are stacked to one batch of products; else
                      they are put side by side, and may differ in how many columns they have
    check             (value, weights, biases by branch, what variables are bound to) -> whether
    """
    return combine_parallel(mod, Kind(_matrices, to_batch), min_num_branches, check)


def _matrices(call: Call) -> tuple[int, int] | None:
    data = tensor_dims(call.args[0]) if call.args else None
    return columns(call, 2) if data is not None and len(data) == 2 else None
