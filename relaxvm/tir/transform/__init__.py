"""Passes over loop functions, TVM's names: one file each, `LOWER_TIR` in order in `pipeline.py`.

Enters: PrimFuncs with blocks. Leaves: PrimFuncs without blocks, over flat buffers, for code
generators. Every pass keeps the meaning that `tir.interpret` gives. Not done here: choosing loops
(`tir/schedule`).
"""

from ...base import submodules as _submodules
from ...ir.transform import prim_func_pass as prim_func_pass
from .apply import Apply as Apply
from .bind_target import BindTarget as BindTarget
from .canonicalize_loop import CanonicalizeLoop as CanonicalizeLoop
from .common_subexpr_elim import CommonSubexprElimTIR as CommonSubexprElimTIR
from .compact_buffer_allocation import CompactBufferAllocation as CompactBufferAllocation
from .convert_blocks_to_opaque import ConvertBlocksToOpaque as ConvertBlocksToOpaque
from .convert_for_loops_to_serial import ConvertForLoopsToSerial as ConvertForLoopsToSerial
from .convert_ssa import ConvertSSA as ConvertSSA
from .filter import Filter as Filter
from .flatten_buffer import FlattenBuffer as FlattenBuffer
from .guard_indices import GuardIndices as GuardIndices
from .hoist_expression import HoistedConditionals as HoistedConditionals
from .hoist_expression import HoistedLetBindings as HoistedLetBindings
from .hoist_expression import HoistExpression as HoistExpression
from .hoist_if_then_else import HoistIfThenElse as HoistIfThenElse
from .host_entry import LowerTVMBuiltin as LowerTVMBuiltin
from .host_entry import MakePackedAPI as MakePackedAPI
from .host_entry import ThreadSync as ThreadSync
from .index_dtype import with_index_dtype as with_index_dtype
from .inject_virtual_thread import InjectVirtualThread as InjectVirtualThread
from .inline_private_functions import InlinePrivateFunctions as InlinePrivateFunctions
from .instrument_bound_checkers import InstrumentBoundCheckers as InstrumentBoundCheckers
from .loop_partition import PARTITION_HINT as PARTITION_HINT
from .loop_partition import LoopPartition as LoopPartition
from .lower_cross_thread_reduction import LowerCrossThreadReduction as LowerCrossThreadReduction
from .lower_init_block import LowerInitBlock as LowerInitBlock
from .lower_intrin import LowerIntrin as LowerIntrin
from .lower_intrin import lower_intrinsics as lower_intrinsics
from .lower_match_buffer import LowerMatchBuffer as LowerMatchBuffer
from .lower_opaque_block import LowerOpaqueBlock as LowerOpaqueBlock
from .narrow_data_type import ForceNarrowIndexToInt32 as ForceNarrowIndexToInt32
from .narrow_data_type import NarrowDataType as NarrowDataType
from .pipeline import LOWER_TIR as LOWER_TIR
from .pipeline import lower_module as lower_module
from .plan_buffer_allocation import (
    PlanAndUpdateBufferAllocationLocation as PlanAndUpdateBufferAllocationLocation,
)
from .reduce_branching import ReduceBranchingThroughOvercompute as ReduceBranchingThroughOvercompute
from .reduce_branching import UseAssumeToReduceBranches as UseAssumeToReduceBranches
from .remove_hints import RemoveAssume as RemoveAssume
from .remove_hints import RemoveStoreUndef as RemoveStoreUndef
from .remove_hints import SkipAssert as SkipAssert
from .remove_no_op import RemoveNoOp as RemoveNoOp
from .remove_weight_layout_rewrite_block import LAYOUT_REWRITE_PREPROC as LAYOUT_REWRITE_PREPROC
from .remove_weight_layout_rewrite_block import (
    RemoveWeightLayoutRewriteBlock as RemoveWeightLayoutRewriteBlock,
)
from .remove_weight_layout_rewrite_block import is_layout_rewrite as is_layout_rewrite
from .rewrite_unsafe_select import RewriteUnsafeSelect as RewriteUnsafeSelect
from .rewriter import MAX_SIZE as MAX_SIZE
from .rewriter import ScopedRewriter as ScopedRewriter
from .rewriter import StmtRewriter as StmtRewriter
from .rewriter import fold as fold
from .rewriter import reads_memory as reads_memory
from .rewriter import size_bounds as size_bounds
from .simplify import Simplify as Simplify
from .storage_rewrite import StorageRewrite as StorageRewrite
from .unify_thread_binding import UnifyThreadBinding as UnifyThreadBinding
from .unroll_loop import WRITES_OUT as WRITES_OUT
from .unroll_loop import WRITTEN_OUT as WRITTEN_OUT
from .unroll_loop import UnrollLoop as UnrollLoop
from .vectorize_loop import SCALAR_WORK as SCALAR_WORK
from .vectorize_loop import VectorizeLoop as VectorizeLoop

__getattr__ = _submodules(__name__)
