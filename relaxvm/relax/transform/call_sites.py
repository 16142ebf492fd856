"""Loop functions that become what their call sites ask for: several where these differ."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from ...base import NameSupply
from ...ir import BaseFunc, GlobalVar, IRModule
from ...tir import PrimFunc
from ..expr import Binding, Call, Function
from ..flow import bindings_of
from ..kernel_call import KERNEL_CALLS
from ..rewriter import Dropper
from .private_functions import without_unmentioned

_Key = TypeVar("_Key", bound=Hashable)


def specialized_by_call(
    mod: IRModule,
    key_of: Callable[[Function, Call, PrimFunc], _Key],
    special: Callable[[PrimFunc, _Key], PrimFunc],
) -> IRModule:
    """`mod` with ``special(f, key)`` for each loop function `f` that is called with that key; the
    same module if these are what they were.

    key_of  of the calling function, a call of a loop function, and that
    A function of one key, unless it is exported, keeps its name.
    """
    sites: dict[str, dict[_Key, list[tuple[GlobalVar, Binding]]]] = {}
    for gv, fn in mod.items():
        for b in bindings_of(fn) if isinstance(fn, Function) else ():
            callee = _callee(b.value, mod)
            if callee is not None:
                call, called = b.value, mod[callee]
                assert isinstance(fn, Function)
                assert isinstance(call, Call)
                assert isinstance(called, PrimFunc)
                key = key_of(fn, call, called)
                sites.setdefault(callee.name_hint, {}).setdefault(key, []).append((gv, b))
    names = NameSupply(lambda: [gv.name_hint for gv in mod], "_")
    functions: dict[GlobalVar, BaseFunc] = {}
    changes: dict[GlobalVar, dict[int, Any]] = {}
    for name, kinds in sites.items():
        gv = mod.get_global_var(name)
        part = mod[gv]
        assert isinstance(part, PrimFunc)
        alone = len(kinds) == 1 and part.get_attr("global_symbol") is None
        for key, calls in kinds.items():
            special_part = special(part, key)
            if alone:
                functions[gv] = special_part
            elif special_part is not part:
                callee = GlobalVar(names.fresh(name))
                functions[callee] = special_part.without_attr("global_symbol")
                for caller, b in calls:
                    assert isinstance(b.value, Call)
                    new = b.replace(value=b.value.replace(args=(callee, *b.value.args[1:])))
                    changes.setdefault(caller, {})[id(b.var)] = new
    for caller, changed in changes.items():
        fn = mod[caller]
        assert isinstance(fn, Function)
        functions[caller] = Dropper(changed).rewrite(fn)
    if all(gv in mod and mod[gv] is fn for gv, fn in functions.items()):
        return mod
    return without_unmentioned(mod.clone({**mod.functions, **functions}), sites)


def _callee(value: Any, mod: IRModule) -> GlobalVar | None:
    if not isinstance(value, Call) or value.op not in KERNEL_CALLS:
        return None
    gv = value.args[0]
    known = isinstance(gv, GlobalVar) and isinstance(mod.get(gv), PrimFunc)
    return gv if known and isinstance(gv, GlobalVar) else None
