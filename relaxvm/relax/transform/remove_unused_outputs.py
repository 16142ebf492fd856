"""RemoveUnusedOutputs: private functions return what their callers take.

    before:  def main(x): t = cls.both(x); a = t[1]; return a
             def both(x): a = R.exp(x); b = R.sin(x); return (a, b)
    after:   def main(x): t = cls.both(x); a = t; return a
             def both(x): a = R.exp(x); b = R.sin(x); return b

A single output that is left stands for itself, without a tuple around it. What computed the others
is removed by DeadCodeElimination.
"""

from __future__ import annotations

from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ..expr import (
    Binding,
    BindingBlock,
    Function,
    Tuple,
    TupleGetItem,
    Var,
    VarBinding,
)
from ..flow import BINDS, RESULT, Uses, events
from ..rewriter import Dropper
from ..struct_info import Expr, StructInfo, TupleStructInfo
from .private_functions import Site, function_of, private_calls
from .signature import replace_functions


@module_pass(opt_level=1)
def RemoveUnusedOutputs(mod: IRModule, ctx: PassContext) -> IRModule:
    """Remove fields of the tuples that private functions return and no caller reads."""
    calls = private_calls(mod)
    calls = {n: s for n, s in calls.items() if isinstance(_ret(mod, n), TupleStructInfo)}
    if not calls:
        return mod
    items = _Items(mod, {site.caller for sites in calls.values() for site in sites})
    kept: dict[str, list[int]] = {}
    for name, sites in calls.items():
        count = len(_ret(mod, name).fields)
        read = [items.read(site) for site in sites]
        known = [fields for fields in read if fields is not None]
        wanted = sorted(set[int]().union(*known))
        if len(known) == len(read) and len(wanted) < count:
            kept[name] = wanted
    if not kept:
        return mod
    changes: dict[str, dict[int, Any]] = {}
    for name, wanted in kept.items():
        for site in calls[name]:
            changes.setdefault(site.caller, {}).update(_rewritten(site, wanted, items))
    changed = {}
    for gv, fn in mod.items():
        name = gv.name_hint
        if isinstance(fn, Function):
            fn = Dropper(changes.get(name, {})).rewrite(fn)
            changed[gv] = _returning(fn, kept[name]) if name in kept else fn
    return replace_functions(mod, changed)


def _ret(mod: IRModule, name: str) -> Any:
    return function_of(mod, name).ret_struct_info


class _Items:
    """Who reads which field of the tuples bound in some functions of a module."""

    def __init__(self, mod: IRModule, callers: set[str]) -> None:
        self.items: dict[Var, list[Binding]] = {}
        self.escaped: set[Var] = set()
        for name in callers:
            self.collect(function_of(mod, name))

    def collect(self, fn: Function) -> None:
        uses = Uses()
        for e in events(fn, inner=True):
            node = e.node
            if e.kind in BINDS:
                value = node.value
                if type(node) is VarBinding and type(value) is TupleGetItem:
                    if isinstance(value.tuple_value, Var):
                        self.items.setdefault(value.tuple_value, []).append(node)
                        continue
                self.escaped.update(uses.of(node))
            elif e.kind is RESULT:
                self.escaped.update(e.reads())

    def read(self, site: Site) -> set[int] | None:
        """The fields read of a call's result; None if the tuple itself is used."""
        if site.binding.var in self.escaped:
            return None
        for info in (site.binding.var.struct_info, site.call.struct_info):
            if not isinstance(info, TupleStructInfo):
                return None
        return {b.value.index for b in self.items.get(site.binding.var, ())}  # type: ignore[attr-defined]


def _kept_info(info: StructInfo, wanted: list[int]) -> StructInfo:
    fields = info.fields  # type: ignore[attr-defined]
    return fields[wanted[0]] if len(wanted) == 1 else TupleStructInfo([fields[i] for i in wanted])


def _rewritten(site: Site, wanted: list[int], items: _Items) -> dict[int, Any]:
    b = site.binding
    old = b.var
    var = type(old)(old.name_hint, _kept_info(old.struct_info, wanted), old.span)
    call = site.call.replace(struct_info=_kept_info(site.call.struct_info, wanted))
    changes: dict[int, Any] = {id(old): b.replace(var=var, value=call)}
    for item in items.items.get(old, ()):
        place = wanted.index(item.value.index)  # type: ignore[attr-defined]
        value: Expr = var
        if len(wanted) > 1:
            value = TupleGetItem(var, place, span=item.value.span)  # type: ignore[attr-defined]
        changes[id(item.var)] = item.replace(value=value)
    return changes


def _returning(fn: Function, wanted: list[int]) -> Function:
    """`fn` with only these fields of its result."""
    seq = fn.body
    blocks = seq.blocks
    result = seq.body
    if isinstance(result, Tuple):
        fields: list[Expr] = [result.fields[i] for i in wanted]
    else:
        info: Any = result.struct_info
        if not isinstance(info, TupleStructInfo):
            info = fn.ret_struct_info
        bindings = [
            VarBinding(Var(f"field{i}", info.fields[i]), TupleGetItem(result, i, info.fields[i]))
            for i in wanted
        ]
        fields = [b.var for b in bindings]
        if bindings:
            blocks = (*blocks, BindingBlock(bindings))
    body = fields[0] if len(fields) == 1 else Tuple(fields)
    ret = _kept_info(fn.ret_struct_info, wanted)
    return fn.replace(body=seq.replace(blocks=blocks, body=body), ret_struct_info=ret)
