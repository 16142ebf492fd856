"""`DefaultSchedule`: a good schedule for every loop function that nobody has scheduled.

Blocks are looked at by what they compute, not by their names. First come rules for several blocks
at once (`GROUP_RULES`), then each block that is left gets the first rule of `BLOCK_RULES` that
fits, or stays as it is: LLVM vectorises plain loops. At last the outermost loops of blocks with
much work become parallel.

A rule works on a copy of the schedule. Where it gives up, by False or a ScheduleError, the copy is
thrown away: a function is never left half changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ....base import CpuModel, ScheduleError, TIRError
from ....ir import IntImm, IRModule, PassContext, Var
from ....ir.transform import module_pass
from ....ir.walk import walk
from ...analysis import estimate_tir_flops
from ...stmt import REASSOCIATE, Block, For, ForKind, PrimFunc
from ..reducer import match_reducer
from ..schedule import Schedule
from .contraction import extent_of, loops_of, match_contraction, schedule_contraction

__all__ = ["DefaultSchedule", "schedule_function"]

SCHEDULED = "tir.is_scheduled"
_PARALLEL_FLOPS = 1 << 22
_PARALLEL_STEPS = 1 << 17
_TYPICAL_SIZE = 64
# Below this a tile has nothing to gain.
_LEAST_STEPS = 1 << 10

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


def _contraction(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Register tiles."""
    found = match_contraction(sch.get(rv))
    if found is None or _iterations(sch, sch.get_loops(rv)) < _LEAST_STEPS:
        return False
    return schedule_contraction(sch, rv, found, cpu)


def _contiguous_innermost(sch: Schedule, rv: Any, cpu: CpuModel) -> bool:
    """Let the axis along which output and input of a reduction are contiguous be the innermost
    loop. (Sums along a contiguous axis are computed in several parts, by `tir.reassociate`.)
    """
    block: Block = sch.get(rv)
    reducer = match_reducer(block)
    loops = loops_of(sch, rv)
    if reducer is None or loops is None or len(reducer.buffers) != 1:
        return False
    indices = reducer.buffers[0][1]
    last = indices[-1] if indices else None
    if not isinstance(last, Var) or last not in loops:
        return False
    reads = [r for r in block.reads if len(r.region)]
    reduce = [loops[a.var] for a in block.iter_vars if a.iter_type == "reduce"]
    if not reduce or not any(r.region[-1].min is last for r in reads):
        return False
    sch.reorder(*reduce, loops[last])
    sch.decompose_reduction(rv, reduce[0])
    return True


GROUP_RULES: tuple[GroupRule, ...] = ()
BLOCK_RULES: tuple[BlockRule, ...] = (_contraction, _contiguous_innermost)


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
    steps = _iterations(sch, loops)
    if steps >= 16 * _PARALLEL_STEPS:
        return True
    flops = _flops(nest)
    return flops >= _PARALLEL_FLOPS or (steps >= _PARALLEL_STEPS and flops < 2 * steps)


def _iterations(sch: Schedule, loops: Sequence[Any]) -> float:
    """How often what is inside the loops runs, symbols taken for typical."""
    steps = 1.0
    for loop in loops:
        extent = sch.get(loop).extent
        steps *= extent.value if isinstance(extent, IntImm) else _TYPICAL_SIZE
    return steps


def _flops(nest: For) -> float:
    try:
        return estimate_tir_flops(nest)
    except TIRError:
        # A loop without a bound: nothing is known, so it counts as little.
        return 0.0
