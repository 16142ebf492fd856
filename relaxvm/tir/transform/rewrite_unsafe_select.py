"""Evaluate only the side of a `Select` that is wanted, where the other one may go wrong.

B[i] = T.Select(i > 0, A[i - 1], 0.0)       B[i] = T.if_then_else(i > 0, A[i - 1], 0.0)
"""

from __future__ import annotations

from typing import Any

from ...ir import (
    INTRINSICS,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Intrinsic,
    IRModule,
    Mod,
    Node,
    PassContext,
    PrimExpr,
    Select,
    children,
)
from ...ir import transform as passes
from ...ir.walk import transform
from ..op import if_then_else
from ..stmt import BufferLoad, PrimFunc

_IF = INTRINSICS["if_then_else"]


@passes.prim_func_pass(opt_level=0)
def RewriteUnsafeSelect(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Make `T.Select` with a side that loads, divides or has effects a `T.if_then_else`. One whose
    condition is a vector asks for both sides, and stays.
    """
    unsafe: set[Node] = set()

    def lazily(n: Any) -> PrimExpr | None:
        if isinstance(n, Select) and n.condition.dtype.lanes == 1:
            if not unsafe.isdisjoint((n.true_value, n.false_value)):
                lazy = if_then_else(n.condition, n.true_value, n.false_value)
                if n.condition in unsafe:
                    unsafe.add(lazy)
                return lazy
        if isinstance(n, PrimExpr):
            # An if_then_else guards its sides.
            asked = n.args[:1] if isinstance(n, Call) and n.op is _IF else children(n)
            if _may_go_wrong(n) or not unsafe.isdisjoint(asked):
                unsafe.add(n)
        return None

    return transform(fn, lazily)


def _may_go_wrong(n: PrimExpr) -> bool:
    if isinstance(n, (Div, Mod, FloorDiv, FloorMod)):
        return n.dtype.is_int and not (isinstance(n.b, IntImm) and n.b.value != 0)
    if isinstance(n, Call) and n.op is not _IF:
        return not (isinstance(n.op, Intrinsic) and n.op.effect == "pure")
    return isinstance(n, BufferLoad)
