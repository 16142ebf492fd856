"""`DefaultSchedule`: a good schedule for every loop function that nobody has scheduled.

Blocks are looked at by what they compute, not by their names. First come plans for several blocks
at once (`GROUP_PLANNERS`). Each block that is left is one of few kinds (`view.Kind`), for which
`PLANNERS` has the classes of plans: the first that chooses to schedule it does, or it stays as it
is: LLVM vectorises plain loops. At last the outermost loops of blocks with much work become
parallel.

What gives up, by False or a ScheduleError, leaves the schedule as it was: a function is never left
half changed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain

from ....base import UNKNOWN, CpuModel, ScheduleError, declined
from ....ir import IRModule, PassContext
from ....ir.transform import prim_func_pass
from ...stmt import FORMULA, REASSOCIATE, Block, For, ForKind, PrimFunc, statements_in
from ...transform import with_index_dtype
from ..schedule import Schedule
from .attention import RowBlocks
from .chains import RowChain
from .convolution import AlongPixels, AlongWidth
from .convolution_channels import AlongChannels
from .convolution_dots import DotsOfWindows
from .few_rows import Dots, Streaming
from .finishing import merge_neighbours, share_loops, store_past_caches
from .injective import Elementwise, inline_producers
from .levels import Levels
from .low_precision import LowPrecision
from .movement import Gather, Transpose
from .plan import Plan, chosen
from .pooling import Windows
from .queries import never_runs, reduces, root_of
from .reduction import Begin, Columns, Rows
from .sums import is_filled, keep_orders, sum_orders, without_empty
from .tiles import Blocked, Ragged, Tile
from .view import Kind, View, give_axes_loops
from .winograd import Winograd
from .work import AS_USUAL, Picks, Work

SCHEDULED = "tir.is_scheduled"


@prim_func_pass(opt_level=1, numerics="reassociates", obeys_numerics=True)
def DefaultSchedule(fn: PrimFunc, mod: IRModule, ctx: PassContext, *, cpu: CpuModel) -> PrimFunc:
    """Schedule the loop functions of a module for `cpu`; those with a schedule of their own stay.

    A function counts as scheduled if it has the attribute `tir.is_scheduled`, or a loop that is not
    serial, or an annotation. Where nothing may be approximate, bfloat16 is summed in float32: its
    dot products take subnormal numbers for 0. Where all is to be exact, rules that add up in
    another order are refused, and LLVM adds in the order that is written.
    """
    if is_scheduled(fn):
        declined("left as it is: it has a schedule of its own, or no blocks")
        return fn
    if ctx.get("numerics") != "approximate":
        cpu = replace(cpu, features=cpu.features - {"avx512bf16", "bf16"})
    return schedule_function(fn, cpu, ctx.get("numerics") == "exact")


@prim_func_pass(opt_level=1)
def WidenIndices(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """The type of the indices of a graph, int64, in functions that have no schedule, as far as it
    is worth the same there. Rules compare indices as they are written: one type is one way.
    """
    return with_wide_indices(fn)


def with_wide_indices(fn: PrimFunc) -> PrimFunc:
    """What `WidenIndices` makes of a function."""
    widened = with_index_dtype(fn, "int64")
    return fn if widened is fn or is_scheduled(fn) else widened


def is_scheduled(fn: PrimFunc) -> bool:
    """Whether `fn` has a schedule of its own, which the default ones leave."""
    if fn.get_attr(SCHEDULED, False):
        return True
    blocks = 0
    for n in statements_in(fn.body):
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
        blocks = sch.get_child_blocks(root_of(sch))
    except ScheduleError:
        return fn
    sums = any(reduces(sch.get(rv)) for rv in blocks)
    sch = scheduled_by(sch, cpu, exact)
    scheduled = sch.state.fn
    if sums and not exact:
        scheduled = scheduled.with_attr(REASSOCIATE, True)
    return scheduled if scheduled is fn else scheduled.with_attr(SCHEDULED, True)


def scheduled_by(
    sch: Schedule, cpu: CpuModel, exact: bool = False, picks: Picks = AS_USUAL
) -> Schedule:
    """A schedule of which no block is scheduled, after the rules and what is picked."""
    blocks = sch.get_child_blocks(root_of(sch))
    # Rules may take blocks away; what is told is about those that were written.
    written = {rv: sch.get(rv) for rv in blocks}
    orders = sum_orders(sch, blocks) if exact else {}
    left = [rv for rv in blocks if not never_runs(sch, rv)]
    for rv in () if exact else left:
        give_axes_loops(sch, rv)
    work = Work(sch, cpu, orders, written, left, picks)
    forms, *others = GROUP_PLANNERS
    work.schedule_groups(forms)
    work.schedule_by(inline_producers)
    for planners in others:
        work.schedule_groups(planners)
    work.schedule_rest(PLANNERS)
    sch = work.sch
    if picks is not AS_USUAL:
        with contextlib.suppress(ScheduleError), sch.attempt():
            picks.move(sch)
            keep_orders(sch, orders)
    merge_neighbours(sch, sch.get_child_blocks(root_of(sch)))
    store_past_caches(sch, sch.get_child_blocks(root_of(sch)), cpu)
    if cpu.cores > 1:
        share_loops(sch, sch.get_child_blocks(root_of(sch)), cpu)
    return sch


# Plans for a block and others around it: of those of a line the first that a block chooses, for all
# blocks, before those of the next.
GROUP_PLANNERS: tuple[tuple[type[Plan], ...], ...] = (
    (Winograd,),  # before its blocks vanish in each other
    (DotsOfWindows, AlongChannels, AlongPixels, AlongWidth),
    (Windows,),
    (RowBlocks,),
    (RowChain,),
)
_REDUCTIONS = (Begin, Rows, Columns)
# What a block is -> the plans for it, of which the first that chooses to is carried out.
PLANNERS: dict[Kind, tuple[type[Plan], ...]] = {
    Kind.CONTRACTION: (LowPrecision, Dots, Streaming, Ragged, Blocked, Tile, *_REDUCTIONS, Levels),
    Kind.CONVOLUTION: (LowPrecision, Ragged, Blocked, Tile, *_REDUCTIONS, Levels),
    Kind.POOL: (*_REDUCTIONS, Levels),
    Kind.REDUCTION: (*_REDUCTIONS, Levels),
    Kind.TRANSPOSE: (Transpose, Elementwise, Levels),
    Kind.GATHER: (Gather, Elementwise, Levels),
    Kind.ELEMENTWISE: (Elementwise, Levels),
    Kind.OTHER: (Levels,),
}


def planned(view: View, cpu: CpuModel) -> Iterator[Plan]:
    """The plans for a block, the best first; most blocks have one or none."""
    for planner in planners_of(view):
        yield from chosen(planner, view, cpu)


def planners_of(view: View) -> tuple[type[Plan], ...]:
    """The classes of plans for a block, in the order in which they are asked."""
    return (*chain(*GROUP_PLANNERS), *PLANNERS[view.kind])
