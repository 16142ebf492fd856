"""DataflowUseInplaceCalls: a kernel in a dataflow block writes over an argument that nobody reads
any more.

    before:  z = R.add(x, y); w = R.multiply(z, y)
    after:   z = R.add(x, y)
             w = R.call_tir_inplace(cls.multiply_inplace, (z, y), inplace_indices=[0], ...)

Operators that work element by element (add, subtract, multiply, divide, silu, relu) become such
calls where they can, and `call_tir` of any loop function that allows it. The argument is a tensor
that the same block computed, of the result's shape, under one name, and read here for the last
time. Builds do the same where they plan memory; this pass shows it, before anything is lowered.
"""

from __future__ import annotations

from typing import Any

from ...base import decided, in_function
from ...ir import GlobalVar, IRModule, PassContext
from ...ir.transform import module_pass
from ..analysis.written import may_share
from ..expr import Binding, Call, DataflowBlock, Function, Var, VarBinding
from ..flow import BIND, BINDS, Event, events, vars_in
from ..known_ops import CALL_DPS_PACKED, CALL_TIR
from ..rewriter import Dropper
from ..struct_info import TensorStructInfo
from .inplace_calls import InplaceKernels, last_uses


@module_pass(opt_level=0)
def DataflowUseInplaceCalls(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make calls in dataflow blocks write over arguments that are dead after them."""
    kernels = InplaceKernels(mod)
    changed: dict[GlobalVar, Any] = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            with in_function(gv):
                changes = _changes(fn, kernels)
            if changes:
                changed[gv] = Dropper(changes).rewrite(fn)
    return mod.clone({**mod.functions, **changed, **kernels.made}) if changed else mod


def _changes(fn: Function, kernels: InplaceKernels) -> dict[int, Binding]:
    """By the id of its variable, each binding that becomes one in place."""
    row = events(fn, inner=True)
    own = _own_tensors(row)
    last_use = last_uses(row)
    changes: dict[int, Binding] = {}
    for position, e in enumerate(row):
        if e.kind is not BIND or type(e.node) is not VarBinding or e.node.var not in own:
            continue
        # A tensor of this block, on its own, for the last time.
        read = vars_in(e.value)
        dead = {
            v
            for v in read
            if own.get(v) is e.block and last_use[v] == position and read.count(v) == 1
        }
        if dead:
            inplace = kernels.over(e.value, dead)
            if inplace is not None:
                decided("{} is computed in place", e.node)
                changes[id(e.node.var)] = e.node.replace(value=inplace)
    return changes


def _own_tensors(row: list[Event]) -> dict[Var, DataflowBlock]:
    """The tensors that kernels in dataflow blocks compute, known by no other name, and where."""
    own: dict[Var, DataflowBlock] = {}
    shared: set[Var] = set()
    for e in row:
        if e.kind not in BINDS:
            continue
        value = e.node.value
        shared.update(v for each in may_share(value) for v in vars_in(each))
        op = value.op if isinstance(value, Call) else None
        fresh = op is CALL_TIR or op is CALL_DPS_PACKED or callable(getattr(op, "lower", None))
        if fresh and isinstance(e.block, DataflowBlock) and not list(may_share(value)):
            if isinstance(e.node.var.struct_info, TensorStructInfo):
                own[e.node.var] = e.block
    return {v: block for v, block in own.items() if v not in shared}
