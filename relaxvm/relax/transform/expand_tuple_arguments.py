"""ExpandTupleArguments: private functions take the fields of a tuple instead of the tuple.

    before:  def main(x, y): gv = cls.f((x, y)); return gv
             def f(t: R.Tuple(A, B)): a = t[0]; ...
    after:   def main(x, y): gv = cls.f(x, y); return gv
             def f(t_0: A, t_1: B): t = (t_0, t_1); a = t[0]; ...

So that RemoveUnusedParameters sees each field. Tuples inside tuples are expanded too, unless that
gives very many parameters.
"""

from __future__ import annotations

from typing import Any

from ...base import NameSupply
from ...ir import IRModule, PassContext, descend
from ...ir.transform import module_pass
from ..expr import Binding, Function, Tuple, TupleGetItem, Var, VarBinding
from ..normal_form import names_in
from ..rewriter import Dropper
from ..struct_info import Expr, StructInfo, TupleStructInfo
from .private_functions import Site, function_of, private_calls
from .signature import replace_functions

MAX_FIELDS = 256


@module_pass(opt_level=1)
def ExpandTupleArguments(mod: IRModule, ctx: PassContext) -> IRModule:
    """Make a parameter of each field of the tuples that private functions take."""
    expanded: dict[str, set[int]] = {}
    calls = private_calls(mod)
    for name, sites in calls.items():
        fn = function_of(mod, name)
        places = {
            i
            for i, p in enumerate(fn.params)
            if isinstance(p.struct_info, TupleStructInfo)
            and 0 <= count_fields(p.struct_info) <= MAX_FIELDS
            and all(same_form(p.struct_info, s.call.args[i].struct_info) for s in sites)
        }
        if places:
            expanded[name] = places
    if not expanded:
        return mod
    changes: dict[str, dict[int, Any]] = {}
    for name, places in expanded.items():
        for site in calls[name]:
            rewritten = _rewritten(site, function_of(mod, name).params, places)
            changes.setdefault(site.caller, {})[id(site.binding.var)] = rewritten
    changed = {}
    for gv, each in mod.items():
        if isinstance(each, Function):
            changed[gv] = _expanded(
                each, expanded.get(gv.name_hint, set()), changes.get(gv.name_hint, {})
            )
    return replace_functions(mod, changed)


def count_fields(info: StructInfo) -> int:
    """How many fields that are no tuples `info` has, or -1 if too many to expand."""
    count = 0
    parts = descend(info, lambda i: i.fields if isinstance(i, TupleStructInfo) else ())
    for visited, each in enumerate(parts):
        count += not isinstance(each, TupleStructInfo)
        # Tuples of empty tuples may be many, too.
        if count > MAX_FIELDS or visited > 4 * MAX_FIELDS:
            return -1
    return count


def same_form(a: StructInfo, b: StructInfo) -> bool:
    """Whether both are tuples (of tuples) of as many fields wherever `a` is one."""
    if not isinstance(a, TupleStructInfo):
        return True
    if not isinstance(b, TupleStructInfo) or len(a.fields) != len(b.fields):
        return False
    return all(map(same_form, a.fields, b.fields))


# -- the callee -----------------------------------------------------------------------------------


def _expanded(fn: Function, places: set[int], changes: dict[int, Any]) -> Function:
    names = names_in(fn)
    params: list[Var] = []
    prologue: list[Binding] = []
    for i, p in enumerate(fn.params):
        if i not in places:
            params.append(p)
            continue
        whole = _fields(p.name_hint, p.struct_info, names, params)
        prologue.append(VarBinding(p, whole, p.span))
    expanded = Dropper(changes, prologue).rewrite(fn)
    return expanded.replace(params=tuple(params)) if places else expanded


def _fields(name: str, info: StructInfo, names: NameSupply, params: list[Var]) -> Expr:
    """The tuple of new parameters for a parameter of `info`."""
    if not isinstance(info, TupleStructInfo):
        params.append(Var(names.fresh(name), info))
        return params[-1]
    return Tuple([_fields(f"{name}_{i}", f, names, params) for i, f in enumerate(info.fields)])


# -- the calls ------------------------------------------------------------------------------------


def _rewritten(site: Site, params: tuple[Var, ...], places: set[int]) -> list[Binding]:
    out: list[Binding] = []
    args: list[Expr] = []
    for i, arg in enumerate(site.call.args):
        if i in places:
            spread(arg, params[i].struct_info, type(site.binding.var), out, args)
        else:
            args.append(arg)
    return [*out, site.binding.replace(value=site.call.replace(args=tuple(args)))]


def spread(
    value: Expr, form: StructInfo, kind: type[Var], out: list[Binding], args: list[Expr]
) -> None:
    """Append the fields of `value` to `args`, as deep as `form`; those of a variable are taken in
    `out`.
    """
    if not isinstance(form, TupleStructInfo):
        args.append(value)
        return
    infos: Any = value.struct_info
    for i, each in enumerate(form.fields):
        if isinstance(value, Tuple):
            field = value.fields[i]
        else:
            field = kind(f"{getattr(value, 'name_hint', 'field')}_{i}", infos.fields[i])
            out.append(VarBinding(field, TupleGetItem(value, i)))
        spread(field, each, kind, out, args)
