"""How a pass of Relay's name is made: a pass of the graph language between two forms.

Relay's functions are expressions: pure values have no order, and are there as long as something
reads them. So every pass finds types first, works on dataflow blocks, and leaves the bindings in
the order in which the expression reads them, without those that nothing reads.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ...ir import IRModule, Node, PassContext, post_order, walk
from ...ir.transform import Pass, PassInfo
from ...ir.walk import transform
from ...relax import (
    BindingBlock,
    Call,
    Function,
    If,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
)
from ...relax import transform as graph
from ...relax.analysis import contains_impure_call
from ...relax.flow import vars_in
from .infer_type import InferType

# In these no sequence stands.
WITHOUT_SEQUENCES = (StructInfo, Var, Call)


def as_relay_pass(
    opt_level: int, numerics: str = "exact"
) -> Callable[[Callable[..., IRModule]], Pass]:
    """Make a pass of Relay's name of ``f(mod, ctx, options...)``. Passes that require a name still
    get the pass of the graph language.
    """

    def make(f: Callable[..., IRModule]) -> Pass:
        info = PassInfo(opt_level, f.__name__, numerics=numerics)
        parameters = dict(list(inspect.signature(f).parameters.items())[2:])
        return Pass(info, f, parameters, doc=f.__doc__)

    return make


def relay_pass(
    opt_level: int, numerics: str = "exact", dataflow: bool = True
) -> Callable[[Callable[..., IRModule]], Pass]:
    """`as_relay_pass` of what gets types and leaves the order of expressions to this.

    dataflow  whether pure bindings are in dataflow blocks; else there are plain blocks only
    """

    def make(f: Callable[..., IRModule]) -> Pass:
        @functools.wraps(f)
        def run(mod: IRModule, ctx: PassContext, **options: Any) -> IRModule:
            typed = as_dataflow(mod, ctx) if dataflow else InferType.run(mod, ctx)
            return as_expressions(f(typed, ctx, **options), ctx)

        return as_relay_pass(opt_level, numerics)(run)

    return make


def by_name(graph_pass: Any, opt_level: int, name: str | None = None, **defaults: Any) -> Pass:
    """A pass of the graph language under Relay's name and level, with the options that it has."""
    inner: Pass = graph_pass.configured(**defaults)

    def run(mod: IRModule, ctx: PassContext, **options: Any) -> IRModule:
        typed = as_dataflow(mod, ctx)
        return as_expressions(inner.configured(**options).run(typed, ctx), ctx)

    info = PassInfo(opt_level, name or inner.info.name, numerics=inner.info.numerics)
    return Pass(info, run, inner._parameters, inner.options, inner.__doc__)


def as_dataflow(mod: IRModule, ctx: PassContext) -> IRModule:
    """`mod`, typed, with all that is pure in dataflow blocks."""
    mod = InferType.run(mod, ctx)
    return _TO_DATAFLOW.run(mod, ctx)


_TO_DATAFLOW: Pass = graph.ConvertToDataflow.configured(min_size=1)


def as_expressions(mod: IRModule, ctx: PassContext) -> IRModule:
    """`mod` with every sequence of pure bindings in the order of the expression it stands for."""
    for step in (graph.Normalize, graph.CanonicalizeBindings, graph.ToNonDataflow):
        mod = step.run(mod, ctx)
    changed = mod.clone()
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            changed[gv] = transform(fn, _ordered, without=WITHOUT_SEQUENCES)
    return changed


def _ordered(n: Node) -> Node | None:
    """A sequence without effects in the order in which its result reads its bindings."""
    if not isinstance(n, SeqExpr):
        return None
    bindings = [b for block in n.blocks for b in block.bindings]
    if not all(type(b) is VarBinding and not contains_impure_call(b.value) for b in bindings):
        return None
    home: dict[Any, Any] = {b.var: b for b in bindings}

    def read(b: Any) -> list[Any]:
        value = n.body if b is n else b.value
        inside = walk(value) if isinstance(value, (Function, If)) else vars_in(value)
        functions = [home[v] for v in inside if v in home]
        if isinstance(value, Call) and value.op in home:
            functions.append(functions.pop(0))  # a function stands right before its call
        return functions

    *ordered, _ = post_order(n, read)
    if ordered == bindings:
        return None
    return n.replace(blocks=(BindingBlock(tuple(ordered)),) if ordered else ())
