"""Passes over loop functions, TVM's names: one file each, `LOWER_TIR` in order in `pipeline.py`.

Enters: PrimFuncs with blocks. Leaves: PrimFuncs without blocks, over flat buffers, for code
generators. Every pass keeps the meaning that `tir.interpret` gives. Not done here: choosing loops
(`tir/schedule`).
"""

from ...base import submodules
from ...ir.transform import prim_func_pass
from .apply import Apply
from .bind_target import BindTarget
from .common_subexpr_elim import CommonSubexprElimTIR
from .compact_buffer_allocation import CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque
from .convert_for_loops_to_serial import ConvertForLoopsToSerial
from .filter import Filter
from .flatten_buffer import FlattenBuffer
from .guard_indices import GuardIndices
from .hoist_expression import HoistedConditionals, HoistedLetBindings, HoistExpression
from .hoist_if_then_else import HoistIfThenElse
from .index_dtype import with_index_dtype
from .instrument_bound_checkers import InstrumentBoundCheckers
from .loop_partition import PARTITION_HINT, LoopPartition, linear_in
from .lower_init_block import LowerInitBlock
from .lower_intrin import LowerIntrin, lower_intrinsics
from .lower_match_buffer import LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock
from .narrow_data_type import ForceNarrowIndexToInt32, NarrowDataType
from .pipeline import LOWER_TIR, lower_module
from .plan_buffer_allocation import PlanAndUpdateBufferAllocationLocation
from .reduce_branching import ReduceBranchingThroughOvercompute, UseAssumeToReduceBranches
from .remove_hints import RemoveAssume, RemoveStoreUndef
from .remove_no_op import RemoveNoOp
from .rewriter import ScopedRewriter, StmtRewriter, size_bounds
from .simplify import Simplify
from .unroll_loop import UnrollLoop
from .vectorize_loop import VectorizeLoop

__getattr__ = submodules(__name__)

__all__ = [
    "Apply",
    "BindTarget",
    "CommonSubexprElimTIR",
    "CompactBufferAllocation",
    "ConvertBlocksToOpaque",
    "ConvertForLoopsToSerial",
    "Filter",
    "FlattenBuffer",
    "ForceNarrowIndexToInt32",
    "GuardIndices",
    "HoistExpression",
    "HoistIfThenElse",
    "HoistedConditionals",
    "HoistedLetBindings",
    "InstrumentBoundCheckers",
    "LOWER_TIR",
    "LoopPartition",
    "LowerInitBlock",
    "LowerIntrin",
    "LowerMatchBuffer",
    "LowerOpaqueBlock",
    "NarrowDataType",
    "PARTITION_HINT",
    "PlanAndUpdateBufferAllocationLocation",
    "ReduceBranchingThroughOvercompute",
    "RemoveAssume",
    "RemoveNoOp",
    "RemoveStoreUndef",
    "UseAssumeToReduceBranches",
    "ScopedRewriter",
    "Simplify",
    "StmtRewriter",
    "UnrollLoop",
    "VectorizeLoop",
    "linear_in",
    "lower_intrinsics",
    "lower_module",
    "prim_func_pass",
    "size_bounds",
    "with_index_dtype",
]
