"""Which calls have effects beyond their results."""

from __future__ import annotations

from typing import Any

from ...ir import GlobalVar, IRModule, walk
from ...tir import PrimFunc
from ...tir.analysis import is_pure_function
from ..expr import Call, Function
from ..op import Op
from ..struct_info import Expr, FuncStructInfo


def is_pure_call(call: Call, mod: IRModule | None = None) -> bool:
    """Whether `call` has no effect but its result. What is not known to be pure is impure.

    mod  where the called functions are looked up; without it their GlobalVars' signatures decide
    """
    op: Any = call.op
    if isinstance(op, Op):
        return op.pure
    if isinstance(op, GlobalVar) and mod is not None and op in mod:
        op = mod[op]
        if isinstance(op, PrimFunc):
            return is_pure_function(op)
        if isinstance(op, Function):
            return op.is_pure
    info = getattr(op, "struct_info", None)
    return isinstance(info, FuncStructInfo) and info.purity


def contains_impure_call(expr: Expr, own_name: Any = None, mod: IRModule | None = None) -> bool:
    """Whether evaluating `expr` (for a function: calling it) may make an impure call.

    own_name  the variable of a function that calls itself: such calls do not count
    Functions defined inside count only where they are called.
    """
    own = getattr(own_name, "name_hint", own_name)
    inside = expr.body if isinstance(expr, Function) else expr
    return any(
        isinstance(n, Call)
        and not is_pure_call(n, mod)
        and (own is None or getattr(n.op, "name_hint", None) != own)
        for n in walk(inside, (Function,))
        if not isinstance(n, Function)
    )
