"""Loop functions get schedules that were found by measuring.

MetaScheduleTuneTIR       measures for each loop function of the module, keeps records in a folder
MetaScheduleTuneIRMod     the same for those that graph functions call
MetaScheduleApplyDatabase gives loop functions the schedules of such records
FewShotTuning             gives loop functions the best of a few, and keeps nothing

before   @T.prim_func main: 128 x 128 plain loops
after    the same function with the steps of its fastest record, marked as scheduled
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from ...base import ScheduleError
from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ...meta_schedule import JSONDatabase, Progress, tasks_from, tune_kernels
from ...target import Target, cpu_model
from ...tir import PrimFunc
from ...tir.schedule.plans import ApplyTuned, DefaultSchedule, is_scheduled
from ..analysis import kernel_calls
from .bind_params import BindParams


@module_pass(opt_level=0, numerics="reassociates", obeys_numerics=True)
def MetaScheduleApplyDatabase(
    mod: IRModule,
    ctx: PassContext,
    *,
    work_dir: str | os.PathLike[str] | None = None,
    enable_warning: bool = False,
) -> IRModule:
    """Schedule loop functions of `mod` as they were tuned for the current target.

    work_dir        the folder of a `JSONDatabase`; None: the databases that are entered
    enable_warning  accepted as in TVM; what is not in the database is in `ctx.report`
    """
    tuned = ApplyTuned(target=Target.or_current(None))
    if work_dir is None:
        return tuned(mod)
    with JSONDatabase(work_dir=work_dir, allow_missing=False):
        return tuned(mod)


@module_pass(opt_level=0)
def MetaScheduleTuneTIR(
    mod: IRModule,
    ctx: PassContext,
    *,
    work_dir: str | os.PathLike[str],
    max_trials_global: int,
    max_trials_per_task: int | None = None,
) -> IRModule:
    """Tune every loop function of `mod` without a schedule for the current target; the module stays
    as it is, the records are in the folder `work_dir`. Raises ScheduleError if there are none.

    max_trials_global    candidates of all functions together
    max_trials_per_task  of each; None: no limit of its own
    """
    _tune(
        _loops(mod), dict.fromkeys(_loops(mod), 1), work_dir, max_trials_global, max_trials_per_task
    )
    return mod


@module_pass(opt_level=0)
def MetaScheduleTuneIRMod(
    mod: IRModule,
    ctx: PassContext,
    *,
    params: Mapping[str, Any],
    work_dir: str | os.PathLike[str],
    max_trials_global: int,
    max_trials_per_task: int | None = None,
    op_names: Sequence[str] | None = None,
) -> IRModule:
    """Tune the loop functions that graph functions of `mod` call, as they are: a module whose
    functions are fused later wants `get_pipeline("static_shape_tuning")`. Further as
    MetaScheduleTuneTIR.

    params    parameters of "main" that are known: {name: array}. They change no loop function
    op_names  only functions whose names hold one of these words
    """
    if params:
        mod = BindParams("main", params)(mod)
    counts = kernel_calls(mod)
    called = {name: fn for name, fn in _loops(mod).items() if name in counts}
    if op_names is not None:
        if isinstance(op_names, str):
            raise ScheduleError(f"op_names: wanted a list of words, got {op_names!r}")
        called = {n: fn for n, fn in called.items() if any(word in n for word in op_names)}
    _tune(called, counts, work_dir, max_trials_global, max_trials_per_task)
    return mod


@module_pass(opt_level=0, numerics="reassociates", obeys_numerics=True)
def FewShotTuning(
    mod: IRModule, ctx: PassContext, *, valid_count: int = 1, benchmark: bool = False
) -> IRModule:
    """Schedule every loop function of `mod` for the current target, with few or no measurements.

    valid_count  how many candidates are measured for each, besides what the rules choose
    benchmark    whether to measure; without, the rules' choice is taken, the best as predicted
    """
    target, loops = Target.or_current(None), _loops(mod)
    if benchmark and loops:
        tasks = tasks_from(loops, dict.fromkeys(loops, 1 / len(loops)))
        with Progress.chosen(None) as tell:
            tuned = tune_kernels(
                tasks, target=target, max_trials_per_task=valid_count, listener=tell
            )
        with tuned.database:
            mod = ApplyTuned(target=target)(mod)
    return DefaultSchedule(cpu=cpu_model(target))(mod)


def _loops(mod: IRModule) -> dict[str, PrimFunc]:
    """The loop functions without a schedule, by name."""
    return {
        gv.name_hint: fn
        for gv, fn in mod.items()
        if isinstance(fn, PrimFunc) and not is_scheduled(fn)
    }


def _tune(
    loops: Mapping[str, PrimFunc],
    counts: Mapping[str, int],
    work_dir: str | os.PathLike[str],
    most: int,
    most_of_task: int | None,
) -> None:
    total = sum(counts[name] for name in loops)
    tasks = tasks_from(loops, {name: counts[name] / total for name in loops})
    with Progress.chosen(None) as tell:
        tune_kernels(
            tasks, work_dir=work_dir, max_trials=most, max_trials_per_task=most_of_task,
            listener=tell,
        )  # fmt: skip
