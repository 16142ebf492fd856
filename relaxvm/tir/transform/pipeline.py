"""Every pass from a scheduled loop function to what a code generator takes, in order."""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import Pass, Sequential, register_config
from ..analysis import verify_well_formed
from .compact_buffer_allocation import CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .flatten_buffer import FlattenBuffer
from .guard_indices import GuardIndices
from .hoist_if_then_else import HoistIfThenElse
from .instrument_bound_checkers import InstrumentBoundCheckers
from .loop_partition import LoopPartition
from .lower_init_block import LowerInitBlock
from .lower_intrin import LowerIntrin
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .plan_buffer_allocation import PlanAndUpdateBufferAllocationLocation
from .remove_no_op import RemoveNoOp
from .simplify import Simplify
from .unroll_loop import UnrollLoop
from .vectorize_loop import VectorizeLoop

LOWER_TIR: tuple[Pass, ...] = (
    LowerInitBlock(),  # while axes still say which are reduced
    PlanAndUpdateBufferAllocationLocation(),  # while blocks own their buffers
    ConvertBlocksToOpaque(),  # axes become loop variables
    LowerMatchBuffer(),  # regions are over loop variables now
    CompactBufferAllocation(),  # while blocks own buffers, and indices say which loops they follow
    LowerOpaqueBlock(),  # predicates and allocations replace the blocks
    LoopPartition(),  # conditions are statements now, and not yet part of indices or vectors
    GuardIndices(),  # axis by axis, while there are axes
    FlattenBuffer(),  # one 64-bit index per access
    HoistIfThenElse(
        variant="innermost"
    ),  # guards are in place; loops that become vectors keep their conditions
    VectorizeLoop(),  # looks at flat indices
    UnrollLoop(),  # copies what is vectorised already
    Simplify(),  # constants of the two above
    RemoveNoOp(),  # what Simplify emptied
    InstrumentBoundCheckers(),  # only if asked for, and for files; the accesses are final here
    LowerIntrin(),  # last: its forms hide what they mean from the passes before
)


# Before which pass those of the user run, by phase: whole, flat, unrolled, simplified.
_PHASES = ("LowerInitBlock", "HoistIfThenElse", "Simplify", "InstrumentBoundCheckers")


def _are_phased_passes(pairs: Any) -> bool:
    return all(
        isinstance(p, (tuple, list))
        and len(p) == 2
        and p[0] in range(len(_PHASES))
        and isinstance(p[1], Pass)
        for p in pairs
    )


register_config(
    "tir.add_lower_pass",
    list,
    [],
    "a list of (phase, pass): 0 before lowering, 1 when buffers are flat, 2 when loops are "
    "unrolled, 3 when all is simplified",
    _are_phased_passes,
)
register_config(
    "tir.noalias",
    bool,
    True,
    "functions made of te.compute take it that what they write overlaps no other argument",
)


def lower_module(mod: IRModule) -> IRModule:
    """`mod` with its loop functions lowered, by LOWER_TIR and what "tir.add_lower_pass" adds."""
    own = PassContext.current().get("tir.add_lower_pass")
    steps: list[Pass] = []
    for each in LOWER_TIR:
        added = [p for phase, p in own if _PHASES[phase] == each.info.name]
        if added:
            mod = Sequential(steps, name="LOWER_TIR")(mod)
            mod, steps = Sequential(added, name="add_lower_pass")(mod), []
            verify_well_formed(mod)
        # What GuardIndices made sure of, passes of a user may have undone.
        steps.append(each(force=True) if own and each.info.name == _PHASES[3] else each)
    lowered: IRModule = Sequential(steps, name="LOWER_TIR")(mod)
    return lowered
