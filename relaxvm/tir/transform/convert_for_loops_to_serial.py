"""Make every parallel, vectorized or thread-bound loop serial.

for i in T.parallel(8): ...                 for i in range(8): ...
"""

from __future__ import annotations

from ...ir import IRModule, Node, PassContext
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ..stmt import For, ForKind, PrimFunc


@prim_func_pass(opt_level=0)
def ConvertForLoopsToSerial(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Run every loop one iteration after the other."""

    def convert(n: Node) -> Node | None:
        if isinstance(n, For) and n.kind not in (ForKind.SERIAL, ForKind.UNROLLED):
            return n.replace(kind=ForKind.SERIAL, thread_binding=None)
        return None

    return transform(fn, convert)
