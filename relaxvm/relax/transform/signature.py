"""Replacing functions of a module whose signatures change."""

from __future__ import annotations

from collections.abc import Mapping

from ...ir import BaseFunc, GlobalVar, IRModule, Node
from ...ir.walk import transform
from ..expr import Constant, Function, Var
from ..struct_info import StructInfo


def replace_functions(mod: IRModule, changed: Mapping[GlobalVar, BaseFunc]) -> IRModule:
    """A module with `changed` put in; the same module if nothing differs.

    A function whose signature changed gets a new GlobalVar that says so, and all functions that
    mention it follow.
    """
    changed = {gv: fn for gv, fn in changed.items() if mod[gv] is not fn}
    if not changed:
        return mod
    renewed: dict[str, GlobalVar] = {}
    for gv, fn in changed.items():
        info = fn._for_callers_()
        if gv.struct_info is not None and gv.struct_info is not info:
            renewed[gv.name_hint] = gv.replace(struct_info=info)
    replaced = mod.clone(functions={})
    for gv, fn in mod.items():
        fn = changed.get(gv, fn)
        if renewed and isinstance(fn, Function):
            fn = _follow(fn, renewed)
        replaced[renewed.get(gv.name_hint, gv)] = fn
    return replaced


def _follow(fn: Function, renewed: Mapping[str, GlobalVar]) -> Function:
    def pre(n: Node) -> Node | None:
        if isinstance(n, GlobalVar):
            return renewed.get(n.name_hint, n)
        return None

    # Nothing that is called stands in these.
    return transform(fn, None, pre=pre, without=(StructInfo, Var, Constant))
