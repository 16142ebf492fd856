"""ToGraphNormalForm: values that are read once stand where they are read, for people to read.

    a = R.multiply(x, y)                       return R.exp(R.add(R.multiply(x, y), z))
    b = R.add(a, z)
    c = R.exp(b)
    return c

No other pass takes this form: `Normalize`, also called `ToANormalForm`, gives every value its
variable again, and a build begins with that. What has effects, is read in a branch or another
block, or says more than its variable, keeps its own.
"""

from __future__ import annotations

import collections
from collections.abc import Sequence
from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import function_pass
from ..analysis.purity import is_pure_call
from ..expr import Binding, Call, DataflowBlock, Function, Tuple, TupleGetItem, Var, VarBinding
from ..flow import BIND, BINDS, RESULT, Event, Uses, events
from ..rewriter import LeafRewriter
from ..struct_info import Expr


@function_pass(opt_level=0)
def ToGraphNormalForm(fn: Function, mod: IRModule, ctx: PassContext) -> Function:
    """Nest pure values in the only one that reads them."""
    return _Nesting(_read_once(fn, mod)).rewrite(fn)


def _read_once(fn: Function, mod: IRModule) -> set[Var]:
    """Variables bound to what may stand where its only reader, of the same block, has it."""
    home: dict[Var, Event] = {}
    reader: dict[Var, Event] = {}
    uses = Uses()
    times = collections.Counter(uses.of_info(fn.ret_struct_info))
    for e in events(fn):
        if e.kind in BINDS:
            times.update(uses.of(e.node))
            if e.kind is BIND and _may_move(e.node, mod):
                home[e.node.var] = e
        if isinstance(e.value, Function):
            times.update(e.reads())
        elif e.value is not None:
            reader.update(dict.fromkeys(e.reads(), e))
            if e.kind is RESULT:
                times.update(e.reads())
    return {v for v, e in home.items() if times[v] == 1 and v in reader and _beside(e, reader[v])}


def _beside(bound: Event, read: Event) -> bool:
    """Whether no block and no branch ends between the two."""
    if bound.scope is not read.scope:
        return False
    return bound.block is read.block or (
        read.kind is RESULT and not isinstance(bound.block, DataflowBlock)
    )


def _may_move(b: Binding, mod: IRModule) -> bool:
    value = b.value
    if type(b) is not VarBinding or b.var.struct_info is not value.struct_info:
        return False
    if isinstance(value, Call):
        return is_pure_call(value, mod)
    return isinstance(value, (Tuple, TupleGetItem))


class _Nesting(LeafRewriter):
    """Puts the values of some variables where these are read."""

    def __init__(self, nested: set[Var]) -> None:
        super().__init__()
        self.nested = nested
        self.values: dict[Any, Expr] = {}

    def leaf(self, value: Expr, out: list[Binding]) -> Expr:
        return self.values.pop(value, value)

    def binding(self, b: Binding) -> Sequence[Binding] | None:
        after = super().binding(b)
        if b.var not in self.nested:
            return after
        self.values[b.var] = b.value if after is None else after[-1].value
        return ()
