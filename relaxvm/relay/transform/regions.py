"""MergeComposite, AnnotateTarget, MergeCompilerRegions, PartitionGraph: parts of a function for
other code generators.

    table = [("dnnl.dense_relu", is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard())))]
    relay.transform.MergeComposite(table)      %0 = @fused(%x, %w)    # Composite="dnnl.dense_relu"
    relay.transform.AnnotateTarget("dnnl")     single operators that "dnnl" takes, likewise
    relay.transform.MergeCompilerRegions()     %0 = @region(%x, %w)   # those that meet are one
    relay.transform.PartitionGraph()           %0 = @tvmgen_default_dnnl_main_0(%x, %w)

A region is a function from the start, so that every step leaves a module that runs; Relay writes
the steps between as annotations.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...base import PassError
from ...ir import IRModule, PassContext
from ...relax import Call, Function
from ...relax import transform as graph
from ...relax.dpl import OrPattern
from ...relax.transform.fuse_ops_by_pattern import in_codegen
from ..operator_patterns import SpelledPattern, any_call
from ..spelling import CALLS, get
from .relay_pass import relay_pass


@relay_pass(0)
def MergeComposite(
    mod: IRModule, ctx: PassContext, *, pattern_table: Sequence[tuple[Any, ...]]
) -> IRModule:
    """Make functions of what matches patterns, each in turn.

    pattern_table  (name, pattern), or (name, pattern, check): `check` of the value that matches
    """
    patterns = []
    for row in pattern_table:
        if not isinstance(row, (tuple, list)) or len(row) not in (2, 3):
            raise PassError(
                f"MergeComposite: wanted (name, pattern) or (name, pattern, check), got {row!r}"
            )
        name, pattern, *check = row
        takes = _of_value(check[0]) if check else None
        patterns += [(name, each, None, takes) for each in _alternatives(pattern)]
    return _fused(mod, ctx, patterns)


@relay_pass(0)
def AnnotateTarget(
    mod: IRModule, ctx: PassContext, *, targets: Any, include_non_call_ops: bool = True
) -> IRModule:
    """Make functions of single operators that code generators take: those whose attribute
    ``target.<name>`` (`tvm.ir.register_op_attr`), a function of the call, says so.

    targets               names of code generators; the first that takes an operator gets it
    include_non_call_ops  whether tuples may be in regions; here they are where they are needed
    """
    names = [targets] if isinstance(targets, str) else list(targets)
    patterns = []
    for target in names:
        for name in CALLS:
            takes = get(name).get_attr(f"target.{target}")
            if takes is not None:
                patterns.append((f"{target}.{name}", any_call(name), None, _of_value(takes)))
    return _fused(mod, ctx, patterns)


@relay_pass(0)
def MergeCompilerRegions(mod: IRModule, ctx: PassContext) -> IRModule:
    """Let functions for the same code generator that pass values on to each other be one."""
    return graph.MergeCompositeFunctions.run(mod, ctx)


@relay_pass(0)
def PartitionGraph(
    mod: IRModule, ctx: PassContext, *, mod_name: str = "default", bind_constants: bool = True
) -> IRModule:
    """Give functions for code generators their names, and the attribute "Compiler".

    mod_name        the name of the build, part of those names
    bind_constants  whether constants are inside of them; here they are since they were matched
    """
    partitioned = mod.clone()
    counts: dict[str, int] = {}
    for gv, fn in mod.items():
        composite = fn.get_attr("Composite") if isinstance(fn, Function) else None
        if isinstance(fn, Function) and composite and not fn.get_attr("global_symbol"):
            fn = in_codegen(str(composite).partition(".")[0], fn, gv.name_hint)
        compiler = fn.get_attr("Codegen") if isinstance(fn, Function) else None
        if isinstance(fn, Function) and compiler and not fn.get_attr("Compiler"):
            number = counts[compiler] = counts.get(compiler, -1) + 1
            name = f"tvmgen_{mod_name}_{compiler}_main_{number}"
            attrs: Mapping[str, Any] = {"Compiler": compiler, "Primitive": 1}
            partitioned[gv] = fn.replace(attrs={**fn.attrs, **attrs, "global_symbol": name})
    return graph.NormalizeGlobalVar.run(partitioned, ctx)


def _alternatives(pattern: Any) -> list[Any]:
    """What may match, in order: of an optional operator first the pattern with it."""
    if isinstance(pattern, SpelledPattern):
        pattern = pattern.graph
    if not isinstance(pattern, OrPattern):
        return [pattern]
    return [*_alternatives(pattern.left), *_alternatives(pattern.right)]


def _of_value(check: Callable[[Call], Any]) -> Callable[[Any], bool]:
    return lambda context: bool(check(context.matched_expr))


def _fused(mod: IRModule, ctx: PassContext, patterns: Sequence[Any]) -> IRModule:
    fuse = graph.FuseOpsByPattern.configured(patterns=patterns, bind_constants=True)
    return fuse.run(mod, ctx) if patterns else mod
