"""Relay's passes that are passes of the graph language under other names or levels."""

from __future__ import annotations

from ...relax import transform as graph
from .relay_pass import by_name

RemoveUnusedFunctions = by_name(graph.RemoveUnusedFunctions, 1)
DeadCodeElimination = by_name(graph.DeadCodeElimination, 1)
SimplifyExpr = by_name(graph.SimplifyExpr, 0)
Inline = by_name(graph.Inline, 1)
BackwardFoldScaleAxis = by_name(graph.BackwardFoldScaleAxis, 3, written=True)
ForwardFoldScaleAxis = by_name(graph.ForwardFoldScaleAxis, 3, written=True)
FoldScaleAxis = by_name(graph.FoldScaleAxis, 3)
FoldConstant = by_name(graph.FoldConstant, 2)
FoldExplicitPadding = by_name(graph.FoldExplicitPadding, 0)
FlattenAtrousConv = by_name(graph.FlattenAtrousConv, 0)
CombineParallelConv2D = by_name(graph.CombineParallelConv2D, 4)
CombineParallelBatchMatmul = by_name(graph.CombineParallelBatchMatmul, 4)
BatchingOps = by_name(graph.BatchingOps, 4)
EliminateCommonSubexpr = by_name(graph.EliminateCommonSubexpr, 3)
CanonicalizeOps = by_name(graph.CanonicalizeOps, 3)
CanonicalizeCast = by_name(graph.CanonicalizeCast, 3)
AlterOpLayout = by_name(graph.AlterOpLayout, 3)
ConvertLayout = by_name(graph.ConvertLayout, 3)
FastMath = by_name(graph.FastMath, 4)
DivToMul = by_name(graph.DivToMul, 0)
DynamicToStatic = by_name(graph.DynamicToStatic, 3)
EtaExpand = by_name(graph.EtaExpand, 1)
PartialEvaluate = by_name(graph.PartialEvaluate, 1)
LazyGradientInit = by_name(graph.LazyGradientInit, 2)
LambdaLift = by_name(graph.LambdaLift, 1)
FlattenNestedTuples = by_name(graph.FlattenNestedTuples, 0)
SplitArgs = by_name(graph.SplitArgs, 1)
