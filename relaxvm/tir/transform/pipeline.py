"""Every pass from a scheduled loop function to what a code generator takes, in order."""

from __future__ import annotations

from ...ir import IRModule
from ...ir.transform import Pass, Sequential
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

__all__ = ["LOWER_TIR", "lower_module"]

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
    HoistIfThenElse(),  # guards are in place; loops that become vectors keep their conditions
    VectorizeLoop(),  # looks at flat indices
    UnrollLoop(),  # copies what is vectorised already
    Simplify(),  # constants of the two above
    RemoveNoOp(),  # what Simplify emptied
    InstrumentBoundCheckers(),  # only if asked for, and for files; the accesses are final here
    LowerIntrin(),  # last: its forms hide what they mean from the passes before
)


def lower_module(mod: IRModule) -> IRModule:
    """`mod` with its loop functions lowered."""
    lowered: IRModule = Sequential(LOWER_TIR, name="LOWER_TIR")(mod)
    return lowered
