"""Inputs that are known when a kernel is built: they are brought into the layout its schedule
wants, and what is computed of them alone is computed then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np

from ....base import CpuModel, ScheduleError, telling
from ....ir import PassContext
from ...stmt import Block, Buffer, PrimFunc
from ...transform import LAYOUT_REWRITE_PREPROC
from ..model.regions import users_of
from ..schedule import Schedule
from .constant_blocks import ConstantBlocks, without_constant_blocks
from .constants import ConstantLayout
from .convolution_channels import channel_layout
from .default import is_scheduled, schedule_function, with_wide_indices
from .injective import inline_producers
from .low_precision import KNOWN
from .queries import is_copy, never_runs, root_of
from .tiles import panel_layout
from .winograd import with_fewer_products

# (schedule, block, cpu) -> the layout that the rule for the block wants of a constant input
LAYOUT_RULES: tuple[Callable[[Schedule, Any, CpuModel], ConstantLayout | None], ...] = (
    panel_layout,
    channel_layout,
)


def with_constants(
    fn: PrimFunc, constants: Collection[int], cpu: CpuModel
) -> tuple[PrimFunc, dict[int, Callable[[np.ndarray], np.ndarray]], list[ConstantBlocks]]:
    """`with_constant_layouts`, then `with_constant_blocks`, as the PassContext allows."""
    context = PassContext.current()
    fn, layouts = with_constant_layouts(fn, constants, cpu, context.allows("approximate"))
    fn, blocks = with_constant_blocks(fn, constants, cpu, not context.allows("reassociates"))
    return fn, layouts, blocks


def ready_kernel(fn: PrimFunc, constants: Collection[int], cpu: CpuModel) -> PrimFunc:
    """`fn` as `DefaultSchedule` gets it in a build."""
    return with_constants(with_wide_indices(fn), constants, cpu)[0]


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
        blocks = sch.get_child_blocks(root_of(sch))
    except ScheduleError:
        return fn, packs
    for rv, position, k, wanted in _wanted_layouts(sch, blocks, fn, constants, cpu):
        with contextlib.suppress(ScheduleError):
            sch.transform_layout(rv, ("read", position), wanted.index_map)
            packs[k] = wanted.pack
    return (sch.state.fn if packs else fn), packs


def with_layout_rewrites(fn: PrimFunc, weights: Collection[int], cpu: CpuModel) -> PrimFunc:
    """`fn`, not yet scheduled, with blocks that bring its inputs `weights` into the layouts that
    its schedule for `cpu` wants: copies marked ``meta_schedule.layout_rewrite_preproc``.
    """
    if is_scheduled(fn):
        return fn
    sch = Schedule(fn, error_render_level="fast")
    blocks = sch.get_child_blocks(root_of(sch))
    for rv, position, _, wanted in _wanted_layouts(sch, blocks, fn, weights, cpu):
        with contextlib.suppress(ScheduleError), sch.attempt():
            copy = sch.cache_read(rv, position, "global")
            sch.transform_layout(copy, ("write", 0), wanted.index_map)
            sch.annotate(copy, LAYOUT_REWRITE_PREPROC, True)
    return sch.state.fn


def _wanted_layouts(
    sch: Schedule, blocks: Sequence[Any], fn: PrimFunc, constants: Collection[int], cpu: CpuModel
) -> Iterator[tuple[Any, int, int, ConstantLayout]]:
    """(block, which of its reads, position of the parameter, layout that its rule wants of it) of
    the parameters `constants`; the schedule may change meanwhile.
    """
    places = {fn.buffer_map[p]: k for k, p in enumerate(fn.params) if p in fn.buffer_map}
    known = {b for b, k in places.items() if k in constants}
    copies = [rv for rv in blocks if _copies(sch.get(rv), known)]
    gone = inline_producers(sch, copies)
    for rv in (rv for rv in blocks if rv not in gone):
        if never_runs(sch, rv):
            continue
        for rule in LAYOUT_RULES:
            wanted = rule(sch, rv, cpu)
            k = None if wanted is None else places.get(wanted.buffer)
            if wanted is None or k is None or k not in constants:
                continue
            if str(wanted.buffer.dtype) in _NARROW:
                continue  # these are packed by blocks of their own
            block: Block = sch.get(rv)
            if len(users_of(sch.state, wanted.buffer.data)[0]) == 1:
                yield rv, [r.buffer for r in block.reads].index(wanted.buffer), k, wanted


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
