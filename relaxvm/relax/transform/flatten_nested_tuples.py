"""FlattenNestedTuples: functions return one row of values.

    before:  def main(x): lv = cls.f(x); ...             def f(x): ...; return ((a, b), c)
    after:   def main(x): lv_0 = cls.f(x); lv_1 = lv_0[0]; lv_2 = lv_0[1]; lv_3 = lv_0[2]
                          lv = ((lv_1, lv_2), lv_3); ...
             def f(x): ...; return (a, b, c)

Public functions too: whoever calls them gets the row. Functions used in any other way than being
called stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ..expr import Binding, BindingBlock, Function, Tuple, TupleGetItem, Var, VarBinding
from ..normal_form import join_plain_blocks
from ..rewriter import Dropper
from ..struct_info import Expr, StructInfo, TupleStructInfo
from .expand_tuple_arguments import MAX_FIELDS, count_fields, same_form, spread
from .private_functions import Site, function_of, only_called
from .signature import replace_functions


@module_pass(opt_level=0)
def FlattenNestedTuples(mod: IRModule, ctx: PassContext) -> IRModule:
    """Give back the fields of tuples in tuples as fields of one tuple, up to 256 of them."""
    calls = {
        name: sites
        for name, sites in only_called(mod, _is_nested).items()
        if all(
            same_form(function_of(mod, name).ret_struct_info, info)
            for info in _results(mod, name, sites)
        )
    }
    changes: dict[str, dict[int, Any]] = {}
    for sites in calls.values():
        for site in sites:
            changes.setdefault(site.caller, {})[id(site.binding.var)] = _nested_again(site)
    changed = {}
    for gv, fn in mod.items():
        if isinstance(fn, Function):
            fn = Dropper(changes.get(gv.name_hint, {})).rewrite(fn)
            changed[gv] = _flat(fn) if gv.name_hint in calls else fn
    return replace_functions(mod, changed)


def _is_nested(fn: Any) -> bool:
    info = fn.ret_struct_info if isinstance(fn, Function) else None
    if not isinstance(info, TupleStructInfo):
        return False
    has_tuples = any(isinstance(field, TupleStructInfo) for field in info.fields)
    return has_tuples and 0 <= count_fields(info) <= MAX_FIELDS


def _results(mod: IRModule, name: str, sites: list[Site]) -> Iterator[StructInfo]:
    yield function_of(mod, name).body.struct_info
    yield from (site.call.struct_info for site in sites)


def _leaves(info: StructInfo) -> list[StructInfo]:
    if not isinstance(info, TupleStructInfo):
        return [info]
    return [leaf for field in info.fields for leaf in _leaves(field)]


def _flat(fn: Function) -> Function:
    seq, form = fn.body, fn.ret_struct_info
    taken: list[Binding] = []
    fields: list[Expr] = []
    spread(seq.body, form, Var, taken, fields)
    blocks = join_plain_blocks((*seq.blocks, BindingBlock(taken))) if taken else seq.blocks
    body = seq.replace(blocks=blocks, body=Tuple(fields))
    return fn.replace(body=body, ret_struct_info=TupleStructInfo(_leaves(form)))


def _nested_again(site: Site) -> list[Binding]:
    b, form = site.binding, site.call.struct_info
    kind, name = type(b.var), b.var.name_hint
    row = kind(f"{name}_row", TupleStructInfo(_leaves(form)), b.var.span)
    bindings: list[Binding] = [
        VarBinding(row, site.call.replace(struct_info=row.struct_info), b.span)
    ]

    def rebuilt(info: StructInfo) -> Expr:
        if isinstance(info, TupleStructInfo):
            return Tuple([rebuilt(field) for field in info.fields])
        item = TupleGetItem(row, len(bindings) - 1)
        bindings.append(VarBinding(kind(f"{name}_{item.index}", item.struct_info), item))
        return bindings[-1].var

    whole = rebuilt(form)
    return [*bindings, b.replace(value=whole)]
