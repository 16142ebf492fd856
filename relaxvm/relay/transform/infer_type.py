"""InferType: the type of every value of a function in Relay's spelling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ...relax import Binding, Call, DataflowVar, Expr, Function
from ...relax.normal_form import Normalizer, Scope, names_in
from ...relax.rewriter import Inferring
from ...relax.transform import Normalize, UpdateParamStructInfo
from ..spelling import Spelled, written_out


@module_pass(opt_level=0)
def InferType(mod: IRModule, ctx: PassContext) -> IRModule:
    """Find the type of every value; operators of what had none are written out.

    Raises StructInfoError naming operator and argument where a type does not follow.
    """
    mod = Normalize()(mod)
    changed = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            changed[gv] = _Typing().function(fn, fn.params)
    # Callers see what their callees give now.
    return UpdateParamStructInfo(lambda p: None)(changed)


class _Typing(Inferring):
    def __init__(self) -> None:
        super().__init__({})

    def begin(self, fn: Function) -> None:
        self.normal = Normalizer(names_in(fn))

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        value = b.value
        if not (isinstance(value, Call) and isinstance(value.op, Spelled)):
            return super().binding(b)
        call: Any = self.operand(value, [])
        scope = Scope()
        scope.begin(self.local is DataflowVar)
        self.normal.scopes.append(scope)
        new: Expr = self.normal.value(written_out(call))
        self.normal.scopes.pop()
        var = b.var
        if new.struct_info is not var.struct_info:
            var = self.replaced[b.var] = var.replace(struct_info=new.struct_info)
        return (*scope.block.bindings, b.replace(var=var, value=new))
