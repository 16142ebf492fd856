"""Turn `T.init()` into a condition: run where every reduction axis is at its first value.

with T.block("C"):                          with T.block("C"):
    vi, vk = T.axis.remap("SR", [i, k])         vi, vk = T.axis.remap("SR", [i, k])
    with T.init():                              if vk == 0:
        C[vi] = 0.0                                 C[vi] = 0.0
    C[vi] = C[vi] + A[vi, vk]                   C[vi] = C[vi] + A[vi, vk]
"""

from __future__ import annotations

from ...ir import EQ, And, IRModule, PassContext, PrimExpr
from ...ir.transform import prim_func_pass
from ...ir.walk import transform
from ..stmt import Block, IfThenElse, PrimFunc, seq, statements_in


@prim_func_pass(opt_level=0)
def LowerInitBlock(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Replace the init part of every block by a guarded statement in its body."""
    if not any(type(s) is Block and s.init is not None for s in statements_in(fn.body)):
        return fn
    return transform(fn, _lower, only=_BLOCK)


_BLOCK = frozenset({Block})


def _lower(n: Block) -> Block | None:
    if n.init is None:
        return None
    condition: PrimExpr | None = None
    for axis in n.iter_vars:
        if axis.is_reduce and axis.dom is not None:
            first = EQ(axis.var, axis.dom.min)
            condition = first if condition is None else And(condition, first)
    init = n.init if condition is None else IfThenElse(condition, n.init)
    return n.replace(init=None, body=seq(init, n.body))
