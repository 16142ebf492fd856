"""`build`: loop functions to a module whose functions can be called on arrays."""

from __future__ import annotations

from typing import Any

from ..base import CodegenError, ScheduleError, collecting_seldom
from ..ir import IRModule
from ..runtime import Module
from ..tir import FORMULA, PrimFunc
from ..tir.schedule import Schedule
from ..tir.schedule.plans import SCHEDULED, Choice, DefaultSchedule, WidenIndices, plans_for
from .codegen_kinds import compile_kernels
from .cpu import cpu_model
from .llvm import llvm_at_hand
from .target import Target


@collecting_seldom()
@llvm_at_hand()
def build(
    mod: IRModule | PrimFunc,
    target: Any = None,
    target_host: Any = None,
    name: str | None = None,
    pipeline: Any = None,
    schedule: bool = True,
) -> Module:
    """Compile a loop function, or a module of them, for `target` (default: the current one, or
    this computer).

    mod       a PrimFunc (named by `name`, its "global_symbol", or "main") or an IRModule of
              PrimFuncs
    pipeline  a pass to run on the module first
    schedule  whether functions whose loops nobody wrote (`te.create_prim_func` and operators made
              them, and no `tir.Schedule` touched them) get default schedules. Loops that somebody
              wrote are compiled as they are; `default_schedule` schedules those.
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
    chosen = Target.or_current(target)
    if target_host is not None:
        chosen = chosen.with_host(target_host)
    schedule = schedule and any(
        isinstance(fn, PrimFunc) and fn.span is FORMULA for fn in module.functions.values()
    )
    if schedule:
        module = WidenIndices()(module.clone({gv: _as_written(fn) for gv, fn in module.items()}))
    kernels = compile_kernels(
        module, chosen, DefaultSchedule(cpu=cpu_model(chosen)) if schedule else None
    )
    return Module(
        kernels.section,
        entry_name=entry if entry in kernels.section.names else None,
        sources=kernels.sources,
    )


def _as_written(fn: Any) -> PrimFunc:
    """`fn`; if somebody wrote its loops, with the mark that they stay."""
    return fn if fn.span is FORMULA else fn.with_attr(SCHEDULED, True)


def plans_of(sch: Schedule, block: Any, target: Any = None) -> list[Choice]:
    """The ways to schedule a block of `sch` that is not scheduled so far: first the one that the
    default schedule for `target` takes, then what else fits, the cheapest as predicted first. Empty
    if the block stays as it is. `tir.schedule.apply_plan` carries one out.

    block  or its name
    """
    return plans_for(sch, block, cpu_model(target))


def default_schedule(mod: Any, target: Any = None) -> Any:
    """`mod` with the loops that a default schedule for `target` (default: the current one, or this
    computer) gives it, as in `relax.build`.

    mod  a PrimFunc, or an IRModule, whose other functions stay as they are

    Functions that have a schedule stay too: loops that are not serial, annotations, or no blocks.
    """
    cpu = cpu_model(target)
    if isinstance(mod, PrimFunc):
        return DefaultSchedule(cpu=cpu)(IRModule({"main": mod}))["main"]
    if not isinstance(mod, IRModule):
        wanted = "a PrimFunc or an IRModule"
        raise ScheduleError(f"default_schedule: wanted {wanted}, got {type(mod).__name__}")
    return DefaultSchedule(cpu=cpu)(mod)
