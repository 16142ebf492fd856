"""BatchingOps: convolutions, products and batched products of one value become one each.

`CombineParallelConv2D`, `CombineParallelDense` and `CombineParallelBatchMatmul` in one.
"""

from __future__ import annotations

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from .combine_parallel_batch_matmul import CombineParallelBatchMatmul
from .combine_parallel_conv2d import CombineParallelConv2D
from .combine_parallel_dense import CombineParallelDense


@module_pass(opt_level=4)
def BatchingOps(mod: IRModule, ctx: PassContext) -> IRModule:
    """Combine at least three convolutions, products or batched products of one value."""
    for run in (CombineParallelConv2D, CombineParallelDense, CombineParallelBatchMatmul):
        mod = run.run(mod, ctx)
    return mod
