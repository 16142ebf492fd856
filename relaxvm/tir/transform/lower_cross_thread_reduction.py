"""Let one thread reduce what several would.

for i in range(4):                                   for i in range(4):
    for k in T.thread_binding(8, "threadIdx.x"):         for k in range(8):
        with T.block("sum"):                                 with T.block("sum"):
            vi = T.axis.spatial(4, i)                            vi = T.axis.spatial(4, i)
            vk = T.axis.reduce(8, k)                             vk = T.axis.reduce(8, k)
            with T.init():                                       with T.init():
                B[vi] = 0.0                                          B[vi] = 0.0
            B[vi] = B[vi] + A[vi, vk]                            B[vi] = B[vi] + A[vi, vk]
"""

from __future__ import annotations

from ...ir import IRModule, Node, PassContext, walk
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ..stmt import BlockRealize, For, ForKind, PrimFunc


@prim_func_pass(opt_level=0)
def LowerCrossThreadReduction(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Make serial the loops over threads ("threadIdx.x" …) that move a reduce axis. The order of
    adding is that of the loop, as before.
    """
    reducing = {
        v
        for n in walk(fn.body)
        if isinstance(n, BlockRealize)
        for axis, value in zip(n.block.iter_vars, n.iter_values)
        if axis.is_reduce
        for v in walk(value)
    }

    def lower(n: Node) -> Node | None:
        if isinstance(n, For) and n.thread_binding is not None and n.loop_var in reducing:
            return n.replace(kind=ForKind.SERIAL, thread_binding=None)
        return None

    return transform(fn, lower)
