"""Passes over graph functions, one file each.

Enters: modules. Leaves: new modules that share what was not touched; the same module if nothing
changed.
"""

from ...base import submodules
from ...ir.transform import (
    Pass,
    PassContext,
    PassInfo,
    Sequential,
    dataflowblock_pass,
    function_pass,
    module_pass,
)
from .attach_global_symbol import AttachGlobalSymbol
from .bind_params import BindParams
from .bind_symbolic_vars import BindSymbolicVars
from .call_tir_rewrite import CallTIRRewrite
from .canonicalize_bindings import CanonicalizeBindings
from .compute_float_scalars import ComputeFloatScalars
from .compute_prim_value import ComputePrimValue
from .dead_code_elimination import DeadCodeElimination
from .decompose_ops import DecomposeOpsForInference, DecomposeOpsForTraining
from .eliminate_common_subexpr import EliminateCommonSubexpr
from .expand_tuple_arguments import ExpandTupleArguments
from .fold_constant import FoldConstant
from .inline_private_functions import InlinePrivateFunctions
from .kill_after_last_use import KillAfterLastUse
from .lambda_lift import LambdaLift
from .lazy_inputs import LazyGetInput, LazySetOutput
from .legalize_ops import LegalizeOps
from .lower_alloc_tensor import LowerAllocTensor
from .normalize import Normalize
from .pack_constants import PackConstants
from .realize_vdevice import RealizeVDevice
from .remove_purity_checking import RemovePurityChecking
from .remove_unused_outputs import RemoveUnusedOutputs
from .remove_unused_parameters import RemoveUnusedParameters
from .static_plan_block_memory import StaticPlanBlockMemory
from .to_mixed_precision import ToMixedPrecision
from .to_non_dataflow import ToNonDataflow
from .update_vdevice import UpdateVDevice
from .vm_builtin_lower import VMBuiltinLower
from .vm_shape_lower import VMShapeLower

LowerRuntimeBuiltin = VMBuiltinLower

__getattr__ = submodules(__name__)

__all__ = [
    "AttachGlobalSymbol",
    "BindParams",
    "BindSymbolicVars",
    "CallTIRRewrite",
    "CanonicalizeBindings",
    "ComputeFloatScalars",
    "ComputePrimValue",
    "DeadCodeElimination",
    "DecomposeOpsForInference",
    "DecomposeOpsForTraining",
    "EliminateCommonSubexpr",
    "ExpandTupleArguments",
    "FoldConstant",
    "InlinePrivateFunctions",
    "KillAfterLastUse",
    "LambdaLift",
    "LazyGetInput",
    "LazySetOutput",
    "LegalizeOps",
    "LowerAllocTensor",
    "LowerRuntimeBuiltin",
    "Normalize",
    "Pass",
    "PassContext",
    "PassInfo",
    "PackConstants",
    "RealizeVDevice",
    "RemovePurityChecking",
    "RemoveUnusedOutputs",
    "RemoveUnusedParameters",
    "Sequential",
    "StaticPlanBlockMemory",
    "ToMixedPrecision",
    "ToNonDataflow",
    "UpdateVDevice",
    "VMBuiltinLower",
    "VMShapeLower",
    "dataflowblock_pass",
    "function_pass",
    "module_pass",
]
