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
from dataclasses import replace
from typing import Any

import numpy as np

from ....base import (
    UNKNOWN,
    CpuModel,
    ScheduleError,
    decided,
    declined,
    in_function,
    telling,
)
from ....ir import IRModule, PassContext, walk
from ....ir.transform import module_pass, prim_func_pass
from ...stmt import (
    FORMULA,
    REASSOCIATE,
    Block,
    Buffer,
    For,
    ForKind,
    PrimFunc,
)
from ...transform import with_index_dtype
from ..intrin import OWN_RULES
from ..regions import users_of
from ..schedule import Schedule
from .attention import schedule_attention
from .blocked import schedule_blocked
from .chains import schedule_chains
from .constant_blocks import ConstantBlocks, without_constant_blocks
from .constants import ConstantLayout
from .contraction import panel_layout, schedule_contraction, schedule_with_epilogue
from .convolution import schedule_convolutions
from .convolution_channels import channel_layout
from .convolution_dots import schedule_dot_convolutions
from .dots import schedule_dots
from .empty import is_filled, without_empty
from .gather import schedule_gather
from .injective import inline_producers, schedule_elementwise
from .low_precision import KNOWN, schedule_low_precision
from .neighbours import merge_neighbours
from .nontemporal import store_past_caches
from .parallel import share_loops
from .pooling import schedule_pools
from .queries import is_copy, never_runs, reduces
from .ragged import schedule_ragged
from .reduction import schedule_reduction
from .streaming import schedule_streaming
from .sum_order import keep_orders, sum_orders
from .transpose import schedule_transpose
from .winograd import schedule_winograd, with_fewer_products

SCHEDULED = "tir.is_scheduled"

# (schedule, block, cpu) -> whether the rule fits and was applied
BlockRule = Callable[[Schedule, Any, CpuModel], bool]
# (schedule, blocks, cpu) -> the blocks that the rule has taken care of, which block rules leave
GroupRule = Callable[[Schedule, Sequence[Any], CpuModel], Sequence[Any]]


@module_pass(opt_level=1, numerics="reassociates", obeys_numerics=True)
def DefaultSchedule(mod: IRModule, ctx: PassContext, *, cpu: CpuModel) -> IRModule:
    """Schedule the loop functions of `mod` for `cpu`; those with a schedule of their own stay.

    A function counts as scheduled if it has the attribute `tir.is_scheduled`, or a loop that is not
    serial, or an annotation. Where nothing may be approximate, bfloat16 is summed in float32: its
    dot products take subnormal numbers for 0. Where all is to be exact, rules that add up in
    another order are refused, and LLVM adds in the order that is written.
    """
    exact = ctx.get("numerics") == "exact"
    if ctx.get("numerics") != "approximate":
        cpu = replace(cpu, features=cpu.features - {"avx512bf16", "bf16"})
    changed = {}
    for gv, fn in mod.items():
        if not isinstance(fn, PrimFunc):
            continue
        with in_function(gv):
            if is_scheduled(fn):
                declined("left as it is: it has a schedule of its own, or no blocks")
                continue
            scheduled = schedule_function(fn, cpu, exact)
        if scheduled is not fn:
            changed[gv] = scheduled
    if not changed:
        return mod
    new = mod.clone()
    for gv, fn in changed.items():
        new[gv] = fn
    return new


@prim_func_pass(opt_level=1)
def WidenIndices(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """The type of the indices of a graph, int64, in functions that have no schedule, as far as it
    is worth the same there. Rules compare indices as they are written: one type is one way.
    """
    widened = with_index_dtype(fn, "int64")
    return fn if widened is fn or is_scheduled(fn) else widened


def is_scheduled(fn: PrimFunc) -> bool:
    """Whether `fn` has a schedule of its own, which the default ones leave."""
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


def schedule_function(fn: PrimFunc, cpu: CpuModel, exact: bool = False) -> PrimFunc:
    """`fn` with a default schedule; the same function if no rule fits and its indices are wide.

    exact  whether sums are to be added up in the order in which `fn` does
    """
    fn = with_index_dtype(fn, "int64")
    if fn.span is FORMULA:
        fn = fn.replace(span=UNKNOWN)
    trimmed = without_empty(fn)
    if trimmed is not None:
        scheduled = _scheduled(trimmed[0], cpu, exact)
        if scheduled is not trimmed[0] and is_filled(scheduled, trimmed[1]):
            return scheduled
    return _scheduled(fn, cpu, exact)


def _scheduled(fn: PrimFunc, cpu: CpuModel, exact: bool) -> PrimFunc:
    try:
        sch = Schedule(fn, error_render_level="fast")
        blocks = sch.get_child_blocks(sch.get_block("root"))
    except ScheduleError:
        return fn
    sums = any(reduces(sch.get(rv)) for rv in blocks)
    # Rules may take blocks away; what is told is about those that were written.
    written = {rv: sch.get(rv) for rv in blocks}
    orders = sum_orders(sch, blocks) if exact else {}
    left = [rv for rv in blocks if not never_runs(sch, rv)]
    for group_rule in GROUP_RULES:
        trial = sch.copy()
        try:
            taken = group_rule(trial, left, cpu)
            keep_orders(trial, orders)
        except ScheduleError as error:
            declined("{} given up: {}", group_rule.__name__, str(error))
            continue
        if taken:
            for rv in taken:
                if rv in written:
                    decided("block {} taken by {}", written[rv], group_rule.__name__)
            # Rules put other blocks in the place of some that they do not speak of.
            sch, left = trial, [rv for rv in left if rv not in taken and trial.has_block(rv)]
    for rv in left:
        for rule in BLOCK_RULES:
            trial = sch.copy()
            try:
                fits = rule(trial, rv, cpu)
                keep_orders(trial, orders)
            except ScheduleError as error:
                declined("block {} not taken by {}: {}", written[rv], rule.__name__, str(error))
                continue
            if fits:
                decided("block {} taken by {}", written[rv], rule.__name__)
                sch = trial
                break
        else:
            declined("block {} stays as it is: no rule fits", written[rv])
    sch = merge_neighbours(sch, sch.get_child_blocks(sch.get_block("root")))
    sch = store_past_caches(sch, sch.get_child_blocks(sch.get_block("root")), cpu)
    if cpu.cores > 1:
        sch = share_loops(sch, sch.get_child_blocks(sch.get_block("root")), cpu)
    scheduled = next(iter(sch.mod.functions.values()))
    assert isinstance(scheduled, PrimFunc)
    if sums and not exact:
        scheduled = scheduled.with_attr(REASSOCIATE, True)
    return scheduled if scheduled is fn else scheduled.with_attr(SCHEDULED, True)


GROUP_RULES: tuple[GroupRule, ...] = (
    schedule_winograd,  # before its blocks vanish in each other
    inline_producers,
    schedule_dot_convolutions,
    schedule_convolutions,
    schedule_pools,
    schedule_attention,
    schedule_chains,
)
BLOCK_RULES: list[BlockRule] = [
    schedule_low_precision,
    schedule_dots,
    schedule_streaming,
    schedule_ragged,
    schedule_blocked,
    schedule_with_epilogue,
    schedule_contraction,
    schedule_reduction,
    schedule_transpose,
    schedule_gather,
    schedule_elementwise,
]


def block_rule(before: str | None = None) -> Callable[[BlockRule], BlockRule]:
    """Decorator: a rule of one's own for blocks, tried before all others, or just before the one
    that is named. One of the same name takes its place. Raises ScheduleError for an unknown name.

    A rule takes a schedule to change, a block of it and a `CpuModel`; it answers whether it fits.
    Where it answers False or raises ScheduleError, what it did to the schedule is forgotten.
    Kernels of a process with such rules are neither taken from the cache nor put there.
    """
    names = [rule.__name__ for rule in BLOCK_RULES]
    if before is not None and before not in names:
        there = ", ".join(names)
        raise ScheduleError(f"block_rule: no rule is named {before!r}; there are {there}")

    def register(rule: BlockRule) -> BlockRule:
        BLOCK_RULES[:] = [r for r in BLOCK_RULES if r.__name__ != rule.__name__]
        names = [r.__name__ for r in BLOCK_RULES]
        BLOCK_RULES.insert(names.index(before) if before in names else 0, rule)
        OWN_RULES.append(rule.__name__)
        return rule

    return register


# (schedule, block, cpu) -> the layout that the rule for the block wants of a constant input
LAYOUT_RULES: tuple[Callable[[Schedule, Any, CpuModel], ConstantLayout | None], ...] = (
    panel_layout,
    channel_layout,
)


# -- constant inputs -------------------------------------------------------------------------------


def with_constant_layouts(
    fn: PrimFunc, constants: Collection[int], cpu: CpuModel, approximate: bool = False
) -> tuple[PrimFunc, dict[int, Callable[[np.ndarray], np.ndarray]]]:
    """`fn`, not yet scheduled, with its constant inputs in the layouts that its schedule for `cpu`
    wants; and {position of the parameter: what brings an array into that layout}.

    constants    which parameters are known when the kernel is built
    approximate  whether convolutions may be computed in fewer multiplications
    """
    packs: dict[int, Callable[[np.ndarray], np.ndarray]] = {}
    if is_scheduled(fn):
        return fn, packs
    if approximate:
        fewer, packs = with_fewer_products(fn, constants, cpu)
        if packs:
            return fewer, packs
    try:
        sch = Schedule(fn, error_render_level="fast")
        blocks = sch.get_child_blocks(sch.get_block("root"))
    except ScheduleError:
        return fn, packs
    places = {fn.buffer_map[p]: k for k, p in enumerate(fn.params) if p in fn.buffer_map}
    known = {b for b, k in places.items() if k in constants}
    copies = [rv for rv in blocks if _copies(sch.get(rv), known)]
    gone = inline_producers(sch, copies, cpu)
    for rv in (rv for rv in blocks if rv not in gone):
        if never_runs(sch, rv):
            continue
        for rule in LAYOUT_RULES:
            wanted = rule(sch, rv, cpu)
            if wanted is None:
                continue
            k = places.get(wanted.buffer)
            if k is None or k not in constants or k in packs:
                continue
            if str(wanted.buffer.dtype) in _NARROW:
                continue  # these are packed by blocks of their own
            block: Block = sch.get(rv)
            if len(users_of(sch.state, wanted.buffer.data)[0]) != 1:
                continue
            position = [r.buffer for r in block.reads].index(wanted.buffer)
            try:
                sch.transform_layout(rv, ("read", position), wanted.index_map)
            except ScheduleError:
                continue
            packs[k] = wanted.pack
    packed = next(iter(sch.mod.functions.values()))
    assert isinstance(packed, PrimFunc)
    return (packed if packs else fn), packs


def _copies(block: Block, known: Collection[Buffer]) -> bool:
    """Whether a block copies elements of one of the buffers `known`."""
    return is_copy(block.body) and all(r.buffer in known for r in block.reads)


# Dtypes that kernels widen or rearrange before they multiply.
_NARROW = frozenset({"int8", "uint8", "int16", "bfloat16", "float16"})


def with_constant_blocks(
    fn: PrimFunc, constants: Collection[int], cpu: CpuModel, exact: bool = False
) -> tuple[PrimFunc, list[ConstantBlocks]]:
    """`fn`, not yet scheduled, with its schedule for `cpu`, but without what that computes of
    constant inputs of narrow numbers alone; and how to compute that. `fn` itself if there is
    nothing of the kind.

    constants  which parameters are known when the kernel is built
    """
    buffers = [fn.buffer_map.get(fn.params[k]) for k in constants]
    if is_scheduled(fn) or not any(b and b.ndim > 1 and str(b.dtype) in _NARROW for b in buffers):
        return fn, []
    with telling(None):
        scheduled = schedule_function(fn.with_attr(KNOWN, tuple(constants)), cpu, exact)
    rest, blocks = without_constant_blocks(scheduled.without_attr(KNOWN), constants)
    return (rest, blocks) if blocks else (fn, [])
