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
from .attach_global_symbol import AttachGlobalSymbol as AttachGlobalSymbol
from .bind_params import BindParams as BindParams
from .call_tir_rewrite import CallTIRRewrite as CallTIRRewrite
from .canonicalize_bindings import CanonicalizeBindings as CanonicalizeBindings
from .canonicalize_cast import CanonicalizeCast as CanonicalizeCast
from .combine_parallel_conv2d import CombineParallelConv2D as CombineParallelConv2D
from .combine_parallel_matmul import CombineParallelMatmul as CombineParallelMatmul
from .compute_float_scalars import ComputeFloatScalars as ComputeFloatScalars
from .compute_prim_value import ComputePrimValue as ComputePrimValue
from .dead_code_elimination import DeadCodeElimination as DeadCodeElimination
from .eliminate_common_subexpr import EliminateCommonSubexpr as EliminateCommonSubexpr
from .expand_tuple_arguments import ExpandTupleArguments as ExpandTupleArguments
from .fold_batchnorm_to_conv2d import FoldBatchnormToConv2D as FoldBatchnormToConv2D
from .fold_constant import FoldConstant as FoldConstant
from .fold_scale_axis import FoldScaleAxis as FoldScaleAxis
from .fuse_attention import FuseAttention as FuseAttention
from .fuse_ops import FuseOps as FuseOps
from .fuse_tir import FuseTIR as FuseTIR
from .fuse_tir import kernels_told as kernels_told
from .hoist_row_products import HoistRowProducts as HoistRowProducts
from .inline_private_functions import InlinePrivateFunctions as InlinePrivateFunctions
from .kill_after_last_use import KillAfterLastUse as KillAfterLastUse
from .lambda_lift import LambdaLift as LambdaLift
from .legalize_ops import LegalizeOps as LegalizeOps
from .legalize_qnn import LegalizeQnn as LegalizeQnn
from .lower_alloc_tensor import LowerAllocTensor as LowerAllocTensor
from .normalize import Normalize as Normalize
from .pack_constants import PackConstants as PackConstants
from .remove_purity_checking import RemovePurityChecking as RemovePurityChecking
from .remove_unused_outputs import RemoveUnusedOutputs as RemoveUnusedOutputs
from .remove_unused_parameters import RemoveUnusedParameters as RemoveUnusedParameters
from .reuse_donated_params import ReuseDonatedParams as ReuseDonatedParams
from .rewrite_dataflow_reshape import RewriteDataflowReshape as RewriteDataflowReshape
from .simplify_expr import SimplifyExpr as SimplifyExpr
from .static_plan_block_memory import StaticPlanBlockMemory as StaticPlanBlockMemory
from .to_non_dataflow import ToNonDataflow as ToNonDataflow
from .vm_builtin_lower import VMBuiltinLower as VMBuiltinLower
from .vm_shape_lower import VMShapeLower as VMShapeLower

LowerRuntimeBuiltin = VMBuiltinLower
ToANormalForm = Normalize

# What no build runs of its own accord is loaded when it is asked for.
_LATER = {
    "adjust_matmul_order": "AdjustMatmulOrder",
    "allocate_workspace": "AllocateWorkspace",
    "alter_op_impl": "AlterOpImpl",
    "alter_op_layout": "AlterOpLayout",
    "annotate_tir_op_pattern": "AnnotateTIROpPattern",
    "attach_attr_layout_free_buffers": "AttachAttrLayoutFreeBuffers",
    "backward_fold_scale_axis": "BackwardFoldScaleAxis",
    "batching_ops": "BatchingOps",
    "bind_symbolic_vars": "BindSymbolicVars",
    "bundle_model_params": "BundleModelParams",
    "canonicalize_ops": "CanonicalizeOps",
    "combine_parallel_batch_matmul": "CombineParallelBatchMatmul",
    "combine_parallel_dense": "CombineParallelDense",
    "convert_layout": "ConvertLayout",
    "convert_to_dataflow": "ConvertToDataflow",
    "dataflow_use_inplace_calls": "DataflowUseInplaceCalls",
    "dead_code_elimination": "RemoveUnusedFunctions",
    "decompose_ops": "DecomposeOpsForInference DecomposeOpsForTraining SimplifyInference",
    "defunctionalization": "Defunctionalization",
    "div_to_mul": "DivToMul",
    "dynamic_to_static": "DynamicToStatic",
    "eta_expand": "EtaExpand",
    "expand_matmul_of_sum": "ExpandMatmulOfSum",
    "fake_quantization_to_integer": "FakeQuantizationToInteger",
    "fast_math": "FastMath FastMathTransform",
    "flatten_atrous_conv": "FlattenAtrousConv",
    "flatten_nested_tuples": "FlattenNestedTuples",
    "fold_explicit_padding": "FoldExplicitPadding",
    "forward_fold_scale_axis": "ForwardFoldScaleAxis",
    "gradient": "Gradient",
    "fuse_ops_by_pattern": "FuseOpsByPattern FusionPattern PatternCheckContext",
    "fuse_transpose_matmul": "FuseTransposeMatmul",
    "inline_private_functions": "DefuseOps Inline",
    "lazy_gradient_init": "LazyGradientInit",
    "lazy_inputs": "LazyGetInput LazySetOutput",
    "lazy_transform_params": "LazyTransformParams",
    "lift_transform_params": "LiftTransformParams",
    "meta_schedule": """
        FewShotTuning MetaScheduleApplyDatabase MetaScheduleTuneIRMod MetaScheduleTuneTIR
    """,
    "merge_composite_functions": "MergeCompositeFunctions",
    "normalize_global_var": "NormalizeGlobalVar",
    "optimize_layout_transform": "OptimizeLayoutTransform",
    "partial_evaluate": "PartialEvaluate",
    "realize_vdevice": "RealizeVDevice",
    "reorder_permute_dims_after_concat": "ReorderPermuteDimsAfterConcat",
    "reorder_take_after_matmul": "ReorderTakeAfterMatmul",
    "rewrite_weight_layouts": "RewriteWeightLayouts",
    "run_codegen": "RunCodegen",
    "simplify_expr": "RemoveRedundantReshape",
    "specialize_prim_func_based_on_call_site": "SpecializePrimFuncBasedOnCallSite",
    "split_args": "SplitArgs",
    "split_call_tir_by_pattern": "MatchResult SplitCallTIRByPattern",
    "split_layout_rewrite_preproc": "SplitLayoutRewritePreproc",
    "to_graph_normal_form": "ToGraphNormalForm",
    "to_mixed_precision": "ToMixedPrecision",
    "topological_sort": "TopologicalSort",
    "update_param_struct_info": "UpdateParamStructInfo",
    "update_vdevice": "UpdateVDevice",
}
__getattr__ = _submodules(
    __name__, _LATER, "fake_quantization_to_integer fuse_ops fuse_ops_by_pattern gradient outline"
)


def __dir__() -> list[str]:
    return sorted({*globals(), *" ".join(_LATER.values()).split()})
