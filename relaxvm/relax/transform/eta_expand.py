"""EtaExpand: functions of the module that are used as values become inner functions that call them.

y = R.call_pure_packed("apply", cls.f)     def f_value(a: ...) -> ...: return cls.f(a)
                                           y = R.call_pure_packed("apply", f_value)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import GlobalVar, IRModule, PassContext
from ...ir.transform import function_pass
from ..expr import Binding, BindingBlock, Call, Function, SeqExpr, Var, VarBinding
from ..known_ops import MAKE_CLOSURE, is_op
from ..rewriter import LeafRewriter
from ..struct_info import Expr
from ..substitute import copy_with_new_vars


@function_pass(opt_level=0)
def EtaExpand(
    fn: Function,
    mod: IRModule,
    ctx: PassContext,
    *,
    expand_constructor: bool = True,
    expand_global_var: bool = False,
) -> Function:
    """Let nothing but calls mention graph functions of the module.

    expand_global_var   whether to: without it nothing is done
    expand_constructor  Relay's; the graph language has no constructors
    """
    return _Expander(mod).rewrite(fn) if expand_global_var else fn


class _Expander(LeafRewriter):
    def __init__(self, mod: IRModule) -> None:
        super().__init__()
        self.mod = mod

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        return None if is_op(b.value, MAKE_CLOSURE) else super().binding(b)

    def leaf(self, value: Any, out: list[Binding]) -> Expr:
        called = self.mod.get(value) if isinstance(value, GlobalVar) else None
        if not isinstance(called, Function):
            leaf: Expr = value
            return leaf
        result = Var("result", called.ret_struct_info)
        call = Call(value, called.params, None, (), result.struct_info)
        body = SeqExpr((BindingBlock((VarBinding(result, call),)),), result)
        inner = Function(called.params, body, called.ret_struct_info, called.is_pure)
        inner = copy_with_new_vars(inner)
        function_var = Var(f"{value.name_hint}_value", inner.struct_info)
        out.append(VarBinding(function_var, inner))
        return function_var
