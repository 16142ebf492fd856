"""DecomposeOpsForInference, DecomposeOpsForTraining: composite operators become simpler ones. The
first is also Relay's SimplifyInference.

    lv = R.nn.batch_norm(x, gamma, beta, mean, var, axis=1)     lv1 = R.expand_dims(mean, ...)
                                                                lv2 = R.subtract(x, lv1)
                                                                ...
                                                                lv = lv9, mean, var

How is the operator's own `decompose` rule, (builder, call, training) -> expression, or None to keep
the call.
"""

from __future__ import annotations

from typing import Any

from ...base import PassError, add_note
from ...ir import IRModule, PassContext, walk
from ...ir.transform import module_pass
from ..expr import Call, Function
from ..expr_functor import PyExprMutator
from ..flow import name_of
from ..op.record import Op
from ..struct_info import Expr


@module_pass(opt_level=0, numerics="reassociates")
def DecomposeOpsForInference(
    mod: IRModule, ctx: PassContext, *, func_name: str | None = None
) -> IRModule:
    """Decompose composite operators as inference means them (batch_norm uses the moving statistics,
    dropout is identity).

    func_name  the one function to change; None: every graph function
    """
    return _decompose(mod, func_name, False, "DecomposeOpsForInference")


@module_pass(opt_level=0, numerics="reassociates")
def DecomposeOpsForTraining(
    mod: IRModule, ctx: PassContext, *, func_name: str | None = None
) -> IRModule:
    """Decompose composite operators as training means them (batch_norm uses and updates the batch's
    statistics).

    func_name  the one function to change; None: every graph function
    """
    return _decompose(mod, func_name, True, "DecomposeOpsForTraining")


def _decompose(mod: IRModule, func_name: str | None, training: bool, what: str) -> IRModule:
    wanted = list(mod) if func_name is None else [mod.get_global_var(func_name)]
    mutator = _Decomposer(mod, training)
    for gv in wanted:
        fn = mod[gv]
        if not isinstance(fn, Function):
            if func_name is not None:
                raise PassError(
                    f"{what}: {func_name} is no graph function but a {type(fn).__name__}"
                )
            continue
        if not any(type(n) is Call and _rule(n) is not None for n in walk(fn)):
            continue
        new = mutator.visit_expr(fn)
        if new is not fn:
            mutator.builder_.update_func(gv, new)
    return mutator.builder_.get() if mutator.changed else mod


def _rule(call: Call) -> Any:
    rule = call.op.decompose if isinstance(call.op, Op) else None
    return rule if callable(rule) else None


class _Decomposer(PyExprMutator):
    def __init__(self, mod: IRModule, training: bool) -> None:
        super().__init__(mod)
        self.training = training
        self.changed = False

    def visit_call_(self, call: Call) -> Expr:
        visited = super().visit_call_(call)
        assert isinstance(visited, Call)
        call = visited
        rule = _rule(call)
        parts = None
        if rule is not None:
            try:
                parts = rule(self.builder_, call, self.training)
            except Exception as error:
                add_note(error, f"while decomposing {name_of(call.op)} at {call.span}")
                raise
        if parts is None or parts is call:
            return call
        # Simpler operators broadcast where this one may not.
        self.builder_.legalising = call
        call.op.checked(self.builder_, call)  # type: ignore[attr-defined]
        self.changed = True
        return parts


SimplifyInference = DecomposeOpsForInference
"""Its name in Relay."""
