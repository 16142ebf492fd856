"""`build`: loop functions to a module whose functions can be called on arrays."""

from __future__ import annotations

from typing import Any

from ..base import CodegenError
from ..ir import IRModule
from ..runtime import Module
from ..tir import PrimFunc
from .llvm import compile_kernels
from .target import Target

__all__ = ["build"]


def build(
    mod: IRModule | PrimFunc,
    target: Any = None,
    target_host: Any = None,
    name: str | None = None,
    pipeline: Any = None,
) -> Module:
    """Compile a loop function, or a module of them, for `target` (default: the current one, or
    this computer).

    mod       a PrimFunc (named by `name`, its "global_symbol", or "main") or an IRModule of
              PrimFuncs
    pipeline  a pass to run on the module first
    returns   `rt` with `rt["mm"](a, b, c)`, `rt.time_evaluator`, `rt.get_source("llvm")`

    Raises VerifyError for functions that are not well formed, CodegenError for what the target has
    no code for.
    """
    if isinstance(mod, PrimFunc):
        entry = str(name or mod.get_attr("global_symbol") or "main")
        module = IRModule({entry: mod})
    elif isinstance(mod, IRModule):
        module, entry = mod, name or ""
    else:
        raise CodegenError(f"build: wanted a PrimFunc or an IRModule, got {type(mod).__name__}")
    others = [gv.name_hint for gv, fn in module.items() if not isinstance(fn, PrimFunc)]
    if others:
        raise CodegenError(
            f"build: {', '.join(others[:5])} are graph functions; compile those with relax.build"
        )
    if not len(module):
        raise CodegenError("build: the module has no functions")
    if pipeline is not None:
        module = pipeline(module)
    chosen = Target(target) if target is not None else Target.current() or Target("llvm")
    if target_host is not None:
        chosen = chosen.with_host(target_host)
    kernels = compile_kernels(module, chosen)
    return Module(
        kernels.section,
        entry_name=entry if entry in kernels.section.names else None,
        sources=kernels.sources,
    )
