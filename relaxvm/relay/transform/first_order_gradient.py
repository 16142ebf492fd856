"""FirstOrderGradient: functions give their gradients, too.

def @main(x, w) { sum(nn.dense(x, w)) }    def @main(x, w) { (sum(nn.dense(x, w)), (x's, w's)) }
"""

from __future__ import annotations

from typing import Any

from ...base import PassError
from ...ir import IRModule, PassContext
from ...relax import Function, TensorStructInfo
from ...relax import transform as graph
from ...relax.transform.gradient import differentiated
from .relay_pass import relay_pass


@relay_pass(0, dataflow=False)
def FirstOrderGradient(mod: IRModule, ctx: PassContext) -> IRModule:
    """Let every function give ``result, (gradient of the result's sum by each parameter, ...)``; of
    a tuple, of its first field.

    Functions that are called are put where they are called first. Raises PassError for what has no
    gradient.
    """
    inlined = mod
    for step in (graph.LambdaLift, graph.DefuseOps, graph.InlinePrivateFunctions):
        inlined = step.run(inlined, ctx)
    changed = inlined.clone()
    for gv, fn in inlined.items():
        if isinstance(fn, Function):
            changed[gv] = _with_gradients(fn)
    return changed


def _with_gradients(fn: Function) -> Function:
    tensors = [p for p in fn.params if isinstance(p.struct_info, TensorStructInfo)]
    return differentiated(fn, tensors)


def gradient(expr: Any, mod: IRModule | None = None, mode: str = "higher_order") -> Function:
    """The function that gives what `expr`, a function, does and its gradients; see
    `FirstOrderGradient`.

    mod   where functions are that it calls
    mode  TVM's: "higher_order" or "first_order", which are the same here

    Raises PassError for another mode.
    """
    if mode not in ("higher_order", "first_order"):
        raise PassError(f"gradient: mode: wanted higher_order or first_order, got {mode!r}")
    whole = IRModule() if mod is None else mod.clone()
    whole["gradient"] = expr
    after = FirstOrderGradient()(whole)["gradient"]
    assert isinstance(after, Function)
    return after
