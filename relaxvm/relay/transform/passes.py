"""Relay's passes that are passes of the graph language under other names or levels."""

from __future__ import annotations

from typing import Any

from ...base import UNKNOWN, PassError, Span
from ...ir import IRModule, PassContext, structural_digest
from ...ir.walk import transform
from ...relax import Function, VarBinding
from ...relax import transform as graph
from ...relax.rewriter import BindingRewriter
from ..spelling import let_span
from .infer_type import InferType
from .relay_pass import WITHOUT_SEQUENCES, as_relay_pass, by_name, relay_pass

RemoveUnusedFunctions = by_name(graph.RemoveUnusedFunctions, 1, entry_functions=("main",))
DeadCodeElimination = by_name(graph.DeadCodeElimination, 1)
SimplifyExpr = by_name(graph.SimplifyExpr, 0)
Inline = by_name(graph.Inline, 1)
BackwardFoldScaleAxis = by_name(graph.BackwardFoldScaleAxis, 3, written=True)
ForwardFoldScaleAxis = by_name(graph.ForwardFoldScaleAxis, 3, written=True)
FoldScaleAxis = by_name(graph.FoldScaleAxis, 3)
FoldConstant = by_name(graph.FoldConstant, 2)
FoldExplicitPadding = by_name(graph.FoldExplicitPadding, 0)
FlattenAtrousConv = by_name(graph.FlattenAtrousConv, 0)
FakeQuantizationToInteger = by_name(graph.FakeQuantizationToInteger, 0)
Legalize = by_name(graph.LegalizeQnn, 1, "Legalize")
CombineParallelConv2D = by_name(graph.CombineParallelConv2D, 4)
CombineParallelBatchMatmul = by_name(graph.CombineParallelBatchMatmul, 4)
BatchingOps = by_name(graph.BatchingOps, 4)
EliminateCommonSubexpr = by_name(graph.EliminateCommonSubexpr, 3)
CanonicalizeOps = by_name(graph.CanonicalizeOps, 3)
CanonicalizeCast = by_name(graph.CanonicalizeCast, 3)
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


@relay_pass(1, dataflow=False)
def ToANormalForm(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give every value a variable of its own, as all passes here leave it, and a `let`."""
    return _with_lets(mod, let_span())


def _with_lets(mod: IRModule, span: Span) -> IRModule:
    """`mod`, of whose bindings `span` says whether a `let` wrote them."""
    changed = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            changed[gv] = transform(
                fn,
                lambda n: n.replace(span=span) if type(n) is VarBinding else None,
                without=WITHOUT_SEQUENCES,
            )
    return changed


@relay_pass(1, dataflow=False)
def ToBasicBlockNormalForm(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give every value a variable in the branch that needs it, as all passes here leave it."""
    return mod


@as_relay_pass(1)
def ToGraphNormalForm(mod: IRModule, ctx: PassContext) -> IRModule:
    """Put values that are read once where they are read; any other pass names them again."""
    typed = graph.ToNonDataflow.run(_with_lets(InferType.run(mod, ctx), UNKNOWN), ctx)
    return graph.ToGraphNormalForm.run(typed, ctx)


@relay_pass(0, "approximate")
def ToMixedPrecision(
    mod: IRModule,
    ctx: PassContext,
    *,
    mixed_precision_type: str = "float16",
    missing_op_mode: int = 1,
) -> IRModule:
    """Let products and convolutions work on float16, and what follows them as far as it is safe.

    missing_op_mode  TVM's: what to do with operators it has no rule for; all have one here
    Raises PassError for another type than float16.
    """
    if mixed_precision_type != "float16":
        raise PassError(f"ToMixedPrecision: wanted float16, got {mixed_precision_type!r}")
    return graph.ToMixedPrecision.run(mod, ctx)


@relay_pass(1)
def LabelOps(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give functions marked "Primitive" the attribute "hash", the same for those that are equal."""
    labelled = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            labelled[gv] = _Labels().rewrite(_labelled(fn))
    return labelled


def _labelled(fn: Function) -> Function:
    if not fn.get_attr("Primitive"):
        return fn
    return fn.with_attr("hash", structural_digest(fn.without_attr("hash")).hex())


class _Labels(BindingRewriter):
    def binding(self, b: Any) -> Any:
        if not isinstance(b.value, Function):
            return None
        return [b.replace(value=_labelled(b.value))]


def Defunctionalization(func: Any = None, mod: IRModule | None = None) -> Any:
    """The pass that makes functions as values data; or `func`, a function that may call those of
    `mod`, after it. Functions that this needs are put where they are called, or into `mod`.
    """
    if not isinstance(func, Function):
        return _DEFUNCTIONALIZATION if func is None else _DEFUNCTIONALIZATION(func)
    whole = IRModule() if mod is None else mod.clone()
    whole["main"] = func
    after = graph.InlinePrivateFunctions()(_DEFUNCTIONALIZATION(whole))
    for gv, fn in after.items():
        if mod is not None and gv.name_hint != "main" and gv.name_hint not in mod:
            mod[gv] = fn
    return after["main"]


_DEFUNCTIONALIZATION = by_name(graph.Defunctionalization, 0)
