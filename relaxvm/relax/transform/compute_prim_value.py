"""Every scalar that has to be computed gets a binding of its own.

    before:  gv = R.call_packed("env.f", x, R.prim_value(n * 2 + 1))
    after:   prim = R.prim_value(n * 2 + 1)
             gv = R.call_packed("env.f", x, prim)

TVM generates a loop function for each such scalar. Here the virtual machine computes it:
VMShapeLower turns the binding into a `vm.builtin.shape_expr`, a small postfix program over the
shape heap. Constants and lone symbols stay where they are; the same scalar is computed once per
sequence of bindings.
"""

from __future__ import annotations

from ...ir import FloatImm, IntImm, IRModule, PassContext, PrimExpr
from ...ir.transform import function_pass
from ..expr import Binding, Function, PrimValue, Var, VarBinding
from ..rewriter import LeafRewriter
from ..struct_info import Expr
from ..vm_info import bare_symbol


@function_pass(opt_level=0)
def ComputePrimValue(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Bind computed scalars to variables."""
    return _Rewriter().rewrite(fn)


def is_computed(expr: PrimExpr) -> bool:
    """Whether a scalar is neither a constant nor a lone symbol."""
    return not isinstance(expr, (IntImm, FloatImm)) and bare_symbol(expr) is None


class _Rewriter(LeafRewriter):
    def __init__(self) -> None:
        super().__init__()
        self.known: dict[PrimExpr, Var] = {}

    def leaf(self, value: Expr, out: list[Binding]) -> Expr:
        if not isinstance(value, PrimValue) or not is_computed(value.value):
            return value
        var = self.known.get(value.value)
        if var is None:
            var = Var("prim", value.struct_info, value.span)
            self.remember(self.known, value.value, var)
            out.append(VarBinding(var, value, value.span))
        return var
