"""RemoveUnusedParameters: private functions take what they use.

    before:  def main(x, y): gv = cls.f(x, y); return gv
             def f(a, b): return a
    after:   def main(x, y): gv = cls.f(x); return gv
             def f(a): return a

A parameter that only tells a size becomes that size, in a last parameter that is a shape. One that
is only handed on to calls that do not use it is unused. What checks an argument at run time stays:
a parameter goes if every caller's argument certainly fits it.
"""

from __future__ import annotations

from typing import Any

from ...base import reachable
from ...ir import IRModule, PassContext
from ...ir.transform import module_pass
from ..analysis.vars import free_symbolic_vars
from ..derive import (
    bind_symbols,
    definable_tir_vars_in_struct_info,
    is_base_of,
    substitute_struct_info,
    tir_vars_in_struct_info,
)
from ..expr import Call, Function, Var
from ..flow import BINDS, RESULT, Uses, events
from ..rewriter import Dropper
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
)
from .private_functions import Site, function_of, private_calls
from .signature import replace_functions

_Place = tuple[str, int]


@module_pass(opt_level=1)
def RemoveUnusedParameters(mod: IRModule, ctx: PassContext) -> IRModule:
    """Remove parameters of private functions that nothing reads, with the arguments for them."""
    calls = private_calls(mod)
    if not calls:
        return mod
    unused = _unused(mod, calls)
    plans: dict[str, _Plan] = {}
    for name, sites in calls.items():
        fn = function_of(mod, name)
        places = {i for i in range(len(fn.params)) if (name, i) in unused}
        plan = _plan(fn, places, sites) if places else None
        if plan is not None:
            plans[name] = plan
    # What is handed on to a parameter that stays after all has a use.
    while _settle(mod, calls, plans):
        pass
    if not plans:
        return mod
    changes: dict[str, dict[int, Any]] = {}
    for name, plan in plans.items():
        for site in calls[name]:
            changes.setdefault(site.caller, {})[id(site.binding.var)] = _rewritten(site, plan)
    changed = {}
    for gv, each in mod.items():
        if isinstance(each, Function):
            rewritten = Dropper(changes.get(gv.name_hint, {})).rewrite(each)
            plan = plans.get(gv.name_hint)
            changed[gv] = rewritten if plan is None else rewritten.replace(params=plan.params)
    return replace_functions(mod, changed)


# -- who reads what -------------------------------------------------------------------------------


def _unused(mod: IRModule, calls: dict[str, list[Site]]) -> set[_Place]:
    """The parameters that are read nowhere but as arguments for such parameters."""
    param: dict[Var, _Place] = {}
    for name in calls:
        for i, p in enumerate(function_of(mod, name).params):
            param[p] = (name, i)
    handed: dict[_Place, list[_Place]] = {}
    todo: list[_Place] = []

    def read(variables: list[Var]) -> None:
        todo.extend(param[v] for v in variables if v in param)

    for name in calls:
        fn = function_of(mod, name)
        uses = Uses()
        read(uses.of_info(fn.ret_struct_info))
        for p in fn.params:
            read(uses.of_info(p.struct_info))
        for e in events(fn, inner=True):
            if e.kind is RESULT:
                read(e.reads())
            elif e.kind in BINDS:
                rest = uses.of(e.node)
                value = e.node.value
                callee = _callee(value, calls)
                if callee is not None:
                    for i, arg in enumerate(value.args):
                        if arg in param:
                            handed.setdefault((callee, i), []).append(param[arg])
                            rest.remove(arg)
                read(rest)
    return set(param.values()) - reachable(todo, lambda place: handed.get(place, ())).keys()


def _callee(value: Any, calls: dict[str, list[Site]]) -> str | None:
    name = getattr(value.op, "name_hint", None) if type(value) is Call else None
    return name if name in calls and not isinstance(value.op, Var) else None


def _settle(mod: IRModule, calls: dict[str, list[Site]], plans: dict[str, _Plan]) -> bool:
    """Give up plans that drop a parameter which some call still hands on; whether there was one."""
    dropped: dict[Var, str] = {}
    for name, plan in plans.items():
        for i in plan.dropped:
            dropped[function_of(mod, name).params[i]] = name
    wrong: set[str] = set()
    for name, sites in calls.items():
        goes = plans[name].dropped if name in plans else frozenset[int]()
        for site in sites:
            for i, arg in enumerate(site.call.args):
                if i not in goes and arg in dropped:
                    wrong.add(dropped[arg])
    for name in wrong:
        del plans[name]
    return bool(wrong)


# -- what may go ----------------------------------------------------------------------------------


class _Plan:
    """The parameters of a function afterwards.

    dropped  which go
    symbols  sizes that are then given as a shape, in order
    """

    def __init__(self, fn: Function, dropped: frozenset[int], symbols: tuple[Any, ...]) -> None:
        self.dropped = dropped
        self.symbols = symbols
        self.old = fn.params
        params = [p for i, p in enumerate(fn.params) if i not in dropped]
        if symbols:
            params.append(Var("sizes", ShapeStructInfo(symbols)))
        self.params = tuple(params)


def _plan(fn: Function, places: set[int], sites: list[Site]) -> _Plan | None:
    infos = [p.struct_info for p in fn.params]
    # A shape or a scalar that tells a size is what would be passed instead.
    places = {
        i
        for i in places
        if not isinstance(infos[i], (ShapeStructInfo, PrimStructInfo))
        or not definable_tir_vars_in_struct_info(infos[i])
    }
    places = {i for i in places if all(_fits(infos, i, places, site) for site in sites)}
    kept = [info for i, info in enumerate(infos) if i not in places]
    known = {id(s) for info in kept for s in definable_tir_vars_in_struct_info(info)}
    wanted = _symbols_read(fn, kept)
    missing = tuple(s for s in wanted if id(s) not in known)
    if not places or any(s.dtype != "int64" for s in missing):
        return None
    if not all(_sizes(infos, site, missing) is not None for site in sites):
        return None
    return _Plan(fn, frozenset(places), missing)


def _symbols_read(fn: Function, kept: list[StructInfo]) -> list[Any]:
    """The symbols that the function needs from its callers if only `kept` parameters stay."""
    symbols = {id(s): s for info in kept for s in tir_vars_in_struct_info(info)}
    symbols.update((id(s), s) for s in tir_vars_in_struct_info(fn.ret_struct_info))
    # Free in the body: all symbols that it does not bind itself.
    symbols.update((id(s), s) for s in free_symbolic_vars(Function((), fn.body)))
    return list(symbols.values())


def _fits(infos: list[StructInfo], i: int, places: set[int], site: Site) -> bool:
    """Whether the argument for parameter `i` certainly is what the parameter says."""
    args = [a.struct_info for a in site.call.args]
    kept = bind_symbols((p, a) for k, (p, a) in enumerate(zip(infos, args)) if k not in places)
    own = bind_symbols([(infos[i], args[i])])
    wanted = substitute_struct_info(infos[i], {**own, **kept})
    return is_base_of(wanted, args[i])


def _sizes(infos: list[StructInfo], site: Site, symbols: tuple[Any, ...]) -> Expr | None:
    """The sizes `symbols` of the callee, in the caller's symbols; None if they are not known."""
    values = bind_symbols((p, a.struct_info) for p, a in zip(infos, site.call.args))
    if not all(s in values for s in symbols):
        return None
    return ShapeExpr(tuple(values[s] for s in symbols))


def _rewritten(site: Site, plan: _Plan) -> Any:
    args = [a for i, a in enumerate(site.call.args) if i not in plan.dropped]
    if plan.symbols:
        sizes = _sizes([p.struct_info for p in plan.old], site, plan.symbols)
        assert sizes is not None
        args.append(sizes)
    return site.binding.replace(value=site.call.replace(args=tuple(args)))
