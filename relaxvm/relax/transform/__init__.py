"""Passes over graph functions, one file each.

Enters: modules. Leaves: new modules that share what was not touched; the same module if nothing
changed.
"""

from ...base import submodules as _submodules
from ...ir import PassContext as PassContext
from ...ir.transform import Pass as Pass
from ...ir.transform import PassInfo as PassInfo
from ...ir.transform import Sequential as Sequential
from ...ir.transform import dataflowblock_pass as dataflowblock_pass
from ...ir.transform import function_pass as function_pass
from ...ir.transform import module_pass as module_pass
from .adjust_matmul_order import AdjustMatmulOrder as AdjustMatmulOrder
from .allocate_workspace import AllocateWorkspace as AllocateWorkspace
from .alter_op_impl import AlterOpImpl as AlterOpImpl
from .alter_op_layout import AlterOpLayout as AlterOpLayout
from .annotate_tir_op_pattern import AnnotateTIROpPattern as AnnotateTIROpPattern
from .attach_attr_layout_free_buffers import (
    AttachAttrLayoutFreeBuffers as AttachAttrLayoutFreeBuffers,
)
from .attach_global_symbol import AttachGlobalSymbol as AttachGlobalSymbol
from .backward_fold_scale_axis import BackwardFoldScaleAxis as BackwardFoldScaleAxis
from .batching_ops import BatchingOps as BatchingOps
from .bind_params import BindParams as BindParams
from .bind_symbolic_vars import BindSymbolicVars as BindSymbolicVars
from .bundle_model_params import BundleModelParams as BundleModelParams
from .call_tir_rewrite import CallTIRRewrite as CallTIRRewrite
from .canonicalize_bindings import CanonicalizeBindings as CanonicalizeBindings
from .canonicalize_cast import CanonicalizeCast as CanonicalizeCast
from .canonicalize_ops import CanonicalizeOps as CanonicalizeOps
from .combine_parallel_batch_matmul import (
    CombineParallelBatchMatmul as CombineParallelBatchMatmul,
)
from .combine_parallel_conv2d import CombineParallelConv2D as CombineParallelConv2D
from .combine_parallel_dense import CombineParallelDense as CombineParallelDense
from .combine_parallel_matmul import CombineParallelMatmul as CombineParallelMatmul
from .compute_float_scalars import ComputeFloatScalars as ComputeFloatScalars
from .compute_prim_value import ComputePrimValue as ComputePrimValue
from .convert_layout import ConvertLayout as ConvertLayout
from .convert_to_dataflow import ConvertToDataflow as ConvertToDataflow
from .dataflow_use_inplace_calls import DataflowUseInplaceCalls as DataflowUseInplaceCalls
from .dead_code_elimination import DeadCodeElimination as DeadCodeElimination
from .dead_code_elimination import RemoveUnusedFunctions as RemoveUnusedFunctions
from .decompose_ops import DecomposeOpsForInference as DecomposeOpsForInference
from .decompose_ops import DecomposeOpsForTraining as DecomposeOpsForTraining
from .defunctionalization import Defunctionalization as Defunctionalization
from .div_to_mul import DivToMul as DivToMul
from .dynamic_to_static import DynamicToStatic as DynamicToStatic
from .eliminate_common_subexpr import EliminateCommonSubexpr as EliminateCommonSubexpr
from .eta_expand import EtaExpand as EtaExpand
from .expand_matmul_of_sum import ExpandMatmulOfSum as ExpandMatmulOfSum
from .expand_tuple_arguments import ExpandTupleArguments as ExpandTupleArguments
from .fast_math import FastMath as FastMath
from .flatten_atrous_conv import FlattenAtrousConv as FlattenAtrousConv
from .flatten_nested_tuples import FlattenNestedTuples as FlattenNestedTuples
from .fold_batchnorm_to_conv2d import FoldBatchnormToConv2D as FoldBatchnormToConv2D
from .fold_constant import FoldConstant as FoldConstant
from .fold_explicit_padding import FoldExplicitPadding as FoldExplicitPadding
from .fold_scale_axis import FoldScaleAxis as FoldScaleAxis
from .forward_fold_scale_axis import ForwardFoldScaleAxis as ForwardFoldScaleAxis
from .fuse_attention import FuseAttention as FuseAttention
from .fuse_ops import FuseOps as FuseOps
from .fuse_ops_by_pattern import FuseOpsByPattern as FuseOpsByPattern
from .fuse_ops_by_pattern import FusionPattern as FusionPattern
from .fuse_ops_by_pattern import PatternCheckContext as PatternCheckContext
from .fuse_tir import FuseTIR as FuseTIR
from .fuse_transpose_matmul import FuseTransposeMatmul as FuseTransposeMatmul
from .inline_private_functions import DefuseOps as DefuseOps
from .inline_private_functions import Inline as Inline
from .inline_private_functions import InlinePrivateFunctions as InlinePrivateFunctions
from .kill_after_last_use import KillAfterLastUse as KillAfterLastUse
from .lambda_lift import LambdaLift as LambdaLift
from .lazy_gradient_init import LazyGradientInit as LazyGradientInit
from .lazy_inputs import LazyGetInput as LazyGetInput
from .lazy_inputs import LazySetOutput as LazySetOutput
from .lazy_transform_params import LazyTransformParams as LazyTransformParams
from .legalize_ops import LegalizeOps as LegalizeOps
from .lift_transform_params import LiftTransformParams as LiftTransformParams
from .lower_alloc_tensor import LowerAllocTensor as LowerAllocTensor
from .merge_composite_functions import MergeCompositeFunctions as MergeCompositeFunctions
from .normalize import Normalize as Normalize
from .normalize_global_var import NormalizeGlobalVar as NormalizeGlobalVar
from .optimize_layout_transform import OptimizeLayoutTransform as OptimizeLayoutTransform
from .pack_constants import PackConstants as PackConstants
from .partial_evaluate import PartialEvaluate as PartialEvaluate
from .realize_vdevice import RealizeVDevice as RealizeVDevice
from .remove_purity_checking import RemovePurityChecking as RemovePurityChecking
from .remove_unused_outputs import RemoveUnusedOutputs as RemoveUnusedOutputs
from .remove_unused_parameters import RemoveUnusedParameters as RemoveUnusedParameters
from .reorder_permute_dims_after_concat import (
    ReorderPermuteDimsAfterConcat as ReorderPermuteDimsAfterConcat,
)
from .reorder_take_after_matmul import ReorderTakeAfterMatmul as ReorderTakeAfterMatmul
from .reuse_donated_params import ReuseDonatedParams as ReuseDonatedParams
from .rewrite_dataflow_reshape import RewriteDataflowReshape as RewriteDataflowReshape
from .run_codegen import RunCodegen as RunCodegen
from .simplify_expr import RemoveRedundantReshape as RemoveRedundantReshape
from .simplify_expr import SimplifyExpr as SimplifyExpr
from .specialize_prim_func_based_on_call_site import (
    SpecializePrimFuncBasedOnCallSite as SpecializePrimFuncBasedOnCallSite,
)
from .split_args import SplitArgs as SplitArgs
from .split_call_tir_by_pattern import MatchResult as MatchResult
from .split_call_tir_by_pattern import SplitCallTIRByPattern as SplitCallTIRByPattern
from .split_layout_rewrite_preproc import SplitLayoutRewritePreproc as SplitLayoutRewritePreproc
from .static_plan_block_memory import StaticPlanBlockMemory as StaticPlanBlockMemory
from .to_graph_normal_form import ToGraphNormalForm as ToGraphNormalForm
from .to_mixed_precision import ToMixedPrecision as ToMixedPrecision
from .to_non_dataflow import ToNonDataflow as ToNonDataflow
from .topological_sort import TopologicalSort as TopologicalSort
from .update_param_struct_info import UpdateParamStructInfo as UpdateParamStructInfo
from .update_vdevice import UpdateVDevice as UpdateVDevice
from .vm_builtin_lower import VMBuiltinLower as VMBuiltinLower
from .vm_shape_lower import VMShapeLower as VMShapeLower

LowerRuntimeBuiltin = VMBuiltinLower
ToANormalForm = Normalize
FastMathTransform = FastMath
SimplifyInference = DecomposeOpsForInference

__getattr__ = _submodules(__name__)
