"""UpdateParamStructInfo: parameters of other shapes or dtypes, and what follows from that.

def main(x: R.Tensor(("n", 8), "float32")):         UpdateParamStructInfo(
    y = R.exp(x)       # R.Tensor(("n", 8), ...)        lambda p: R.Tensor((4, 8), "float32"))
    return y                                        makes x and y tensors of (4, 8)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ...base import PassError, callees_first
from ...ir import GlobalVar, IRModule, PassContext
from ...ir.transform import module_pass
from ..analysis.recursion import graph_calls
from ..expr import Call, Function, Var
from ..rewriter import Inferring
from ..struct_info import Expr, StructInfo
from .private_functions import function_of
from .signature import replace_functions


@module_pass(opt_level=0)
def UpdateParamStructInfo(
    mod: IRModule, ctx: PassContext, *, sinfo_func: Callable[[Var], StructInfo | None]
) -> IRModule:
    """Give parameters of the module's functions other struct info, and infer every call again.

    sinfo_func  what a parameter is now, or None to keep what it is
    Raises StructInfoError, naming the operator, where the new struct info does not fit.
    """
    calls = graph_calls(mod)
    renewed: dict[Any, GlobalVar] = {}
    changed: dict[GlobalVar, Function] = {}
    for name in callees_first(calls, calls):
        fn, gv = function_of(mod, name), mod.get_global_var(name)
        params = [_param(p, sinfo_func) for p in fn.params]
        changed[gv] = updated = _Updater(renewed).function(fn, params)
        if updated.struct_info is not fn.struct_info:
            renewed[name] = gv.replace(struct_info=updated.struct_info)
    return replace_functions(mod, changed)


def _param(p: Var, sinfo_func: Callable[[Var], StructInfo | None]) -> Var:
    info: Any = sinfo_func(p)
    if info is not None and not isinstance(info, StructInfo):
        raise PassError(
            f"UpdateParamStructInfo: sinfo_func gives struct info or None, for {p.name_hint} it "
            f"gave {type(info).__name__}"
        )
    return p if info is None else p.replace(struct_info=info)


class _Updater(Inferring):
    def __init__(self, renewed: Mapping[str, GlobalVar]) -> None:
        super().__init__({})
        self.renewed = renewed

    def value(self, value: Expr) -> Expr:
        op = value.op if isinstance(value, Call) else None
        if isinstance(op, GlobalVar) and op.name_hint in self.renewed:
            called = self.operand(value.replace(op=self.renewed[op.name_hint]), [])
            return called.replace(struct_info=None)
        return super().value(value)
