"""Relay's passes: those of the graph language by Relay's names and levels."""

from ...base import submodules as _submodules
from ...ir import PassContext as PassContext
from ...ir.transform import Pass as Pass
from ...ir.transform import PassInfo as PassInfo
from ...ir.transform import Sequential as Sequential
from ...ir.transform import function_pass as function_pass
from ...ir.transform import module_pass as module_pass
from .combine_parallel_dense import CombineParallelDense as CombineParallelDense
from .devices import PlanDevices as PlanDevices
from .devices import RewriteAnnotatedOps as RewriteAnnotatedOps
from .first_order_gradient import FirstOrderGradient as FirstOrderGradient
from .first_order_gradient import gradient as gradient
from .fuse_ops import DefuseOps as DefuseOps
from .fuse_ops import FuseOps as FuseOps
from .infer_type import InferType as InferType
from .passes import AlterOpLayout as AlterOpLayout
from .passes import BackwardFoldScaleAxis as BackwardFoldScaleAxis
from .passes import BatchingOps as BatchingOps
from .passes import CanonicalizeCast as CanonicalizeCast
from .passes import CanonicalizeOps as CanonicalizeOps
from .passes import CombineParallelBatchMatmul as CombineParallelBatchMatmul
from .passes import CombineParallelConv2D as CombineParallelConv2D
from .passes import ConvertLayout as ConvertLayout
from .passes import DeadCodeElimination as DeadCodeElimination
from .passes import DivToMul as DivToMul
from .passes import DynamicToStatic as DynamicToStatic
from .passes import EliminateCommonSubexpr as EliminateCommonSubexpr
from .passes import EtaExpand as EtaExpand
from .passes import FastMath as FastMath
from .passes import FlattenAtrousConv as FlattenAtrousConv
from .passes import FlattenNestedTuples as FlattenNestedTuples
from .passes import FoldConstant as FoldConstant
from .passes import FoldExplicitPadding as FoldExplicitPadding
from .passes import FoldScaleAxis as FoldScaleAxis
from .passes import ForwardFoldScaleAxis as ForwardFoldScaleAxis
from .passes import Inline as Inline
from .passes import LambdaLift as LambdaLift
from .passes import LazyGradientInit as LazyGradientInit
from .passes import PartialEvaluate as PartialEvaluate
from .passes import RemoveUnusedFunctions as RemoveUnusedFunctions
from .passes import SimplifyExpr as SimplifyExpr
from .passes import SplitArgs as SplitArgs
from .simplify_inference import SimplifyInference as SimplifyInference

__getattr__ = _submodules(__name__)
