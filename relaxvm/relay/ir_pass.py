"""The passes of the first Relay: functions of an expression, ``ir_pass.infer_type(expr)``.

What `relay.analysis` has is the same; every pass of `relay.transform` is there by its name in small
letters. Each warns, and says what to write.
"""

from __future__ import annotations

from typing import Any

from ..base import submodules, warn_older
from ..ir import IRModule
from ..relax import Function
from . import analysis, transform


def __getattr__(name: str) -> Any:
    pass_name = "".join(part.capitalize() for part in name.split("_"))
    pass_name = pass_name.replace("Conv2d", "Conv2D")
    if name.startswith("_"):
        return _missing(name)
    if hasattr(transform, pass_name):
        return _on_expressions(name, pass_name)
    if name in vars(analysis):
        warn_older(f"relay.ir_pass.{name}: write relay.analysis.{name}")
        return getattr(analysis, name)
    return _missing(name)


_missing = submodules(__name__)


def _on_expressions(name: str, pass_name: str) -> Any:
    def run(expr: Any, *rest: Any, mod: Any = None, **options: Any) -> Any:
        warn_older(f"relay.ir_pass.{name}: write relay.transform.{pass_name}()(module)")
        if rest and (rest[0] is None or isinstance(rest[0], IRModule)):
            mod, *rest_ = rest
        else:
            rest_ = list(rest)
        whole = IRModule.from_expr(expr) if mod is None else mod.clone()
        whole["main"] = IRModule.from_expr(expr)["main"]
        steps = [transform.InferType()]
        if pass_name != "InferType":
            steps.append(getattr(transform, pass_name)(*rest_, **options))
        for step in steps:
            whole = step(whole)
        entry: Any = whole["main"]
        return entry if isinstance(expr, Function) else entry.body

    run.__name__ = run.__qualname__ = name
    return run
