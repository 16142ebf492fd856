"""`DefaultSchedule`: a good schedule for every loop function that nobody has scheduled.

Blocks are looked at by what they compute, not by their names. First come rules for several blocks
at once (`GROUP_RULES`), then each block that is left gets the first rule of `BLOCK_RULES` that
fits, or stays as it is: LLVM vectorises plain loops. At last the outermost loops of blocks with
much work become parallel.

A rule works on a copy of the schedule. Where it gives up, by False or a ScheduleError, the copy is
thrown away: a function is never left half changed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from ....base import CpuModel, ScheduleError, TIRError
from ....ir import IRModule, PassContext
from ....ir.transform import module_pass
from ....ir.walk import walk
from ...analysis import estimate_tir_flops
from ...stmt import REASSOCIATE, Block, For, ForKind, PrimFunc
from ..regions import users_of
from ..schedule import Schedule
from .blocked import schedule_blocked
from .chains import schedule_chains
from .constants import ConstantLayout
from .contraction import (
    extent_of,
    iterations,
    panel_layout,
    schedule_contraction,
    schedule_with_epilogue,
)
from .convolution import schedule_convolutions
from .injective import inline_producers, schedule_elementwise
from .low_precision import schedule_low_precision
from .ragged import schedule_ragged
from .reduction import schedule_reduction
from .streaming import schedule_streaming
from .transpose import schedule_transpose

__all__ = ["DefaultSchedule", "schedule_function", "with_constant_layouts"]

SCHEDULED = "tir.is_scheduled"
_PARALLEL_FLOPS = 1 << 22
_PARALLEL_STEPS = 1 << 17

# (schedule, block, cpu) -> whether the rule fits and was applied
BlockRule = Callable[[Schedule, Any, CpuModel], bool]
# (schedule, blocks, cpu) -> the blocks that the rule has taken care of, which block rules leave
GroupRule = Callable[[Schedule, Sequence[Any], CpuModel], Sequence[Any]]


@module_pass(opt_level=1, numerics="reassociates")
def DefaultSchedule(mod: IRModule, ctx: PassContext, *, cpu: CpuModel) -> IRModule:
    """Schedule the loop functions of `mod` for `cpu`; those with a schedule of their own stay.

    A function counts as scheduled if it has the attribute `tir.is_scheduled`, or a loop that is not
    serial, or an annotation.
    """
    changed = {}
    for gv, fn in mod.items():
        if isinstance(fn, PrimFunc) and not _is_scheduled(fn):
            made = schedule_function(fn, cpu)
            if made is not fn:
                changed[gv] = made
    if not changed:
        return mod
    new = mod.clone()
    for gv, fn in changed.items():
        new[gv] = fn
    return new


def _is_scheduled(fn: PrimFunc) -> bool:
    if fn.get_attr(SCHEDULED, False):
        return True
    blocks = 0
    for n in walk(fn.body):
        if isinstance(n, For) and (n.kind != ForKind.SERIAL or n.annotations):
            return True
        if isinstance(n, Block):
            blocks += 1
            if n.annotations:
                return True
    return blocks < 2


def schedule_function(fn: PrimFunc, cpu: CpuModel) -> PrimFunc:
    """`fn` with a default schedule; the same function if no rule fits."""
    try:
        sch = Schedule(fn, error_render_level="fast")
        blocks = sch.get_child_blocks(sch.get_block("root"))
    except ScheduleError:
        return fn
    left, reduces = list(blocks), any(_reduces(sch.get(rv)) for rv in blocks)
    for group_rule in GROUP_RULES:
        trial = sch.copy()
        try:
            taken = group_rule(trial, left, cpu)
        except ScheduleError:
            continue
        if taken:
            sch, left = trial, [rv for rv in left if rv not in taken]
    for rv in left:
        for rule in BLOCK_RULES:
            trial = sch.copy()
            try:
                fits = rule(trial, rv, cpu)
            except ScheduleError:
                continue
            if fits:
                sch = trial
                break
    if cpu.cores > 1:
        sch = _parallel(sch, sch.get_child_blocks(sch.get_block("root")), cpu)
    made = next(iter(sch.mod.functions.values()))
    assert isinstance(made, PrimFunc)
    if reduces:
        made = made.with_attr(REASSOCIATE, True)
    return made if made is fn else made.with_attr(SCHEDULED, True)


def _reduces(block: Block) -> bool:
    return any(axis.iter_type == "reduce" for axis in block.iter_vars)


GROUP_RULES: tuple[GroupRule, ...] = (inline_producers, schedule_convolutions, schedule_chains)
BLOCK_RULES: tuple[BlockRule, ...] = (
    schedule_low_precision,
    schedule_streaming,
    schedule_ragged,
    schedule_blocked,
    schedule_with_epilogue,
    schedule_contraction,
    schedule_reduction,
    schedule_transpose,
    schedule_elementwise,
)


# (schedule, block, cpu) -> the layout that the rule for the block wants of a constant input
LAYOUT_RULES: tuple[Callable[[Schedule, Any, CpuModel], ConstantLayout | None], ...] = (
    panel_layout,
)


# -- constant inputs -------------------------------------------------------------------------------


def with_constant_layouts(
    fn: PrimFunc, constants: Collection[int], cpu: CpuModel
) -> tuple[PrimFunc, dict[int, Callable[[np.ndarray], np.ndarray]]]:
    """`fn`, not yet scheduled, with its constant inputs in the layouts that its schedule for `cpu`
    wants; and {position of the parameter: what brings an array into that layout}.

    constants  which parameters are known when the kernel is built
    """
    packs: dict[int, Callable[[np.ndarray], np.ndarray]] = {}
    if _is_scheduled(fn):
        return fn, packs
    try:
        sch = Schedule(fn, error_render_level="fast")
        blocks = sch.get_child_blocks(sch.get_block("root"))
    except ScheduleError:
        return fn, packs
    places = {fn.buffer_map[p]: k for k, p in enumerate(fn.params) if p in fn.buffer_map}
    for rv in blocks:
        for rule in LAYOUT_RULES:
            wanted = rule(sch, rv, cpu)
            k = None if wanted is None else places.get(wanted.buffer)
            if wanted is None or k not in constants or k in packs:
                continue
            block: Block = sch.get(rv)
            if len(users_of(sch.state, wanted.buffer.data)[0]) != 1:
                continue
            position = [r.buffer for r in block.reads].index(wanted.buffer)
            try:
                sch.transform_layout(rv, ("read", position), wanted.index_map)
            except ScheduleError:
                continue
            packs[k] = wanted.pack
    made = next(iter(sch.mod.functions.values()))
    assert isinstance(made, PrimFunc)
    return (made if packs else fn), packs


# -- parallel loops --------------------------------------------------------------------------------


def _parallel(sch: Schedule, blocks: Any, cpu: CpuModel) -> Schedule:
    """Share out the outermost loop of each nest that has enough to do."""
    seen: set[int] = set()
    for rv in blocks:
        loops = list(sch.get_loops(rv))
        if not loops or id(sch.get(loops[0])) in seen:
            continue
        seen.add(id(sch.get(loops[0])))
        if not _is_much(sch, loops):
            continue
        for loop in loops[:3]:
            extent = extent_of(sch, loop)
            if extent is not None and extent < cpu.cores:
                continue
            trial = sch.copy()
            try:
                trial.parallel(loop)
            except ScheduleError:
                break
            sch = trial
            break
    return sch


def _is_much(sch: Schedule, loops: list[Any]) -> bool:
    """Whether a nest is worth waking another thread for."""
    nest = sch.get(loops[0])
    steps = iterations(sch, loops)
    if steps >= 16 * _PARALLEL_STEPS:
        return True
    flops = _flops(nest)
    return flops >= _PARALLEL_FLOPS or (steps >= _PARALLEL_STEPS and flops < 2 * steps)


def _flops(nest: For) -> float:
    try:
        return estimate_tir_flops(nest)
    except TIRError:
        # A loop without a bound: nothing is known, so it counts as little.
        return 0.0
