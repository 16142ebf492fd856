"""ReuseDonatedParams: results are computed in the memory of parameters that calls use up.

    before:  def main(cache: R.Tensor((n, 4)), row: R.Tensor((1, 4))):      # {"donate": ["cache"]}
                 gv = R.call_tir(cls.concat, (cache, row), out_sinfo=R.Tensor((n + 1, 4)))
    after:   def main(cache, row):
                 grown = R.call_pure_packed("vm.builtin.grow", cache, R.shape([n + 1, 4]), ...)
                 gv = R.call_tir_inplace(cls.concat_append, (grown, row), inplace_indices=[0], ...)

A kernel whose result may be written over the parameter (`inplace_kernels`) does that: a scatter
costs what it scatters. One that puts something behind it (`append_kernels`) writes only that: a
cache that grows by a row costs a row. The parameter is a donated tensor, or a field of a donated
tuple, that is read there for the last time, under one name.

What callers hand over is theirs alone only where the machine sees to it, so nothing is done in a
function that other functions of the module call.
"""

from __future__ import annotations

from ...base import decided, declined, in_function
from ...ir import IRModule, PassContext, PrimExpr, walk
from ...ir.transform import module_pass
from ..analysis import all_global_vars
from ..analysis.written import may_share
from ..donate import donated_params
from ..expr import Binding, ExternFunc, Function, TupleGetItem, Var, VarBinding
from ..flow import BIND, BINDS, Event, events, vars_in
from ..rewriter import Dropper
from ..struct_info import StructInfo, TensorStructInfo, TupleStructInfo
from .inplace_calls import InplaceKernels, last_uses


@module_pass(opt_level=0)
def ReuseDonatedParams(mod: IRModule, ctx: PassContext) -> IRModule:
    """Compute results in the memory of donated parameters."""
    graphs = {gv: fn for gv, fn in mod.items() if isinstance(fn, Function)}
    donated = {gv: donated_params(fn, gv.name_hint) for gv, fn in graphs.items()}
    if not any(donated.values()):
        return mod
    called = {name for fn in graphs.values() for name in _names_called(fn)}
    kernels = InplaceKernels(mod)
    changed = {}
    for gv, fn in graphs.items():
        if not donated[gv]:
            continue
        with in_function(gv):
            if gv.name_hint in called or fn.get_attr("global_symbol") in called:
                declined("donated memory is not used: other functions of the module call this one")
                continue
            changes = _changes(fn, [fn.params[i] for i in donated[gv]], kernels)
        if changes:
            changed[gv] = Dropper(changes).rewrite(fn)
    return mod.clone({**mod.functions, **changed, **kernels.made}) if changed else mod


def _names_called(fn: Function) -> set[str]:
    """The functions that `fn` mentions; a packed call may be one of the module, too."""
    packed = (n for n in walk(fn, (StructInfo, PrimExpr)) if isinstance(n, ExternFunc))
    return {n.global_symbol for n in packed} | {v.name_hint for v in all_global_vars(fn)}


def _changes(fn: Function, params: list[Var], kernels: InplaceKernels) -> dict[int, list[Binding]]:
    """By the id of its variable, what stands for each binding that uses donated memory."""
    row = events(fn)
    own, last_use = _own_tensors(row, params), last_uses(row)
    changes: dict[int, list[Binding]] = {}
    for position, e in enumerate(row):
        if e.kind is not BIND or type(e.node) is not VarBinding:
            continue
        read = vars_in(e.value)
        dead = {v for v in read if v in own and last_use[v] == position and read.count(v) == 1}
        if not dead:
            continue
        call = kernels.over(e.value, dead)
        if call is not None:
            decided("{} is written over donated memory", e.node)
            changes[id(e.node.var)] = [e.node.replace(value=call)]
            continue
        reused = kernels.behind(e.value, dead)
        if reused is not None:
            decided("{} is put behind donated memory", e.node)
            changes[id(e.node.var)] = [reused[0], e.node.replace(value=reused[1])]
    return changes


def _own_tensors(row: list[Event], params: list[Var]) -> set[Var]:
    """The tensors in donated parameters that are known by one name."""
    # By each part of a donated parameter: the tuple that it is a field of.
    parents: dict[Var, Var | None] = dict.fromkeys(params)
    shared: set[Var] = set()
    taken: set[tuple[Var, int]] = set()
    for e in row:
        value = e.value
        field = value if e.kind is BIND and isinstance(value, TupleGetItem) else None
        for v in e.reads():
            if isinstance(v.struct_info, TupleStructInfo):
                if field is None or (v, field.index) in taken:
                    shared.add(v)
        if field is not None and field.tuple_value in parents:
            taken.add((field.tuple_value, field.index))
            parents[e.node.var] = field.tuple_value
        elif e.kind in BINDS:
            shared.update(v for each in may_share(e.node.value) for v in vars_in(each))
    own: set[Var] = set()
    for v, parent in parents.items():
        # Tuples come before their fields.
        if v not in shared and (parent is None or parent in own):
            own.add(v)
    return {v for v in own if isinstance(v.struct_info, TensorStructInfo)}
