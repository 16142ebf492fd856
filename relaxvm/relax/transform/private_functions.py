"""Functions whose signature may change: private ones, all of whose calls we see."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from ...base import NamedTuple
from ...ir import GlobalVar, IRModule, walk
from ...tir import PrimFunc
from ...tir.analysis import called_functions
from ..analysis import all_global_vars
from ..expr import Binding, Call, Function, VarBinding

_OPAQUE = ("Codegen", "Composite", "Primitive")


class Site(NamedTuple):
    """A call of a private function, bound by a VarBinding of the function `caller`."""

    caller: str
    binding: Binding
    call: Call


def function_of(mod: IRModule, name: str) -> Function:
    """The graph function `name` of `mod`."""
    fn = mod[name]
    assert isinstance(fn, Function)
    return fn


def is_private(fn: Any) -> bool:
    """Whether `fn` is a graph function that only functions of its module can call."""
    if not isinstance(fn, Function) or fn.get_attr("global_symbol") is not None:
        return False
    return not is_opaque(fn)


def is_opaque(fn: Function) -> bool:
    """Whether `fn` stands for a kernel, or is left to another code generator."""
    return any(fn.get_attr(name) for name in _OPAQUE)


def private_calls(mod: IRModule) -> dict[str, list[Site]]:
    """The calls of each private function that is called, and nothing but called, by graph
    functions.
    """
    return {name: sites for name, sites in only_called(mod, is_private).items() if sites}


def only_called(mod: IRModule, which: Callable[[Any], bool]) -> dict[str, list[Site]]:
    """The calls of each of these functions that graph functions use in no other way."""
    sites_of: dict[str, list[Site]] = {gv.name_hint: [] for gv, fn in mod.items() if which(fn)}
    escaped: set[str] = set()
    if not sites_of:
        return {}
    for gv, fn in mod.items():
        if not isinstance(fn, Function):
            continue
        bound: set[int] = set()
        for n in walk(fn):
            if type(n) is VarBinding and type(n.value) is Call:
                call = n.value
                if isinstance(call.op, GlobalVar) and call.op.name_hint in sites_of:
                    bound.add(id(call))
                    sites_of[call.op.name_hint].append(Site(gv.name_hint, n, call))
            below: Any = n._children_
            if type(n) is Call and isinstance(n.op, GlobalVar):
                below = n.args
                if id(n) not in bound:
                    escaped.add(n.op.name_hint)  # a call out of normal form
            escaped.update(c.name_hint for c in below if isinstance(c, GlobalVar))
    return {
        name: sites
        for name, sites in sites_of.items()
        if name not in escaped and _fits(function_of(mod, name), sites)
    }


def _fits(fn: Function, sites: list[Site]) -> bool:
    return all(len(site.call.args) == len(fn.params) for site in sites)


def without_unmentioned(mod: IRModule, names: Container[str]) -> IRModule:
    """`mod` without those of the functions `names` that are private and that no other mentions."""
    mentioned = {
        gv.name_hint
        for f in mod.functions.values()
        for gv in (called_functions(f) if isinstance(f, PrimFunc) else all_global_vars(f))
    }
    return mod.clone(
        functions={
            gv: fn
            for gv, fn in mod.items()
            if gv.name_hint in mentioned
            or gv.name_hint not in names
            or fn.get_attr("global_symbol") is not None
        }
    )
