"""Inputs that are known when a kernel is built: they are brought into the layout its schedule
wants, and what is computed of them alone is computed then.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from ....base import CpuModel, ScheduleError, telling
from ...stmt import Block, Buffer, PrimFunc
from ..regions import users_of
from ..schedule import Schedule
from .constant_blocks import ConstantBlocks, without_constant_blocks
from .constants import ConstantLayout
from .convolution_channels import channel_layout
from .default import is_scheduled, schedule_function
from .injective import inline_producers
from .low_precision import KNOWN
from .queries import is_copy, never_runs
from .tile import panel_layout
from .winograd import with_fewer_products

# (schedule, block, cpu) -> the layout that the rule for the block wants of a constant input
LAYOUT_RULES: tuple[Callable[[Schedule, Any, CpuModel], ConstantLayout | None], ...] = (
    panel_layout,
    channel_layout,
)


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
    gone = inline_producers(sch, copies)
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
