"""DeadCodeElimination, RemoveUnusedFunctions: what nobody needs goes.

lv = R.call_tir(cls.f, (x,), ...)          # unused: gone, and so is the private function f
gv = R.call_tir(cls.g, (x,), ...)          gv = R.call_tir(cls.g, (x,), ...)
return gv                                  return gv
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ...base import reachable
from ...ir import BaseFunc, GlobalVar, IRModule, Node, PassContext, walk
from ...ir.transform import module_pass
from ..analysis.usage import remove_all_unused
from ..expr import Function


@module_pass(opt_level=1)
def DeadCodeElimination(
    mod: IRModule, ctx: PassContext, *, entry_functions: Iterable[Any] | None = None
) -> IRModule:
    """Remove unused pure bindings, and private functions that no entry function reaches.

    entry_functions  names or GlobalVars to keep besides the functions with a `global_symbol`
    """
    if isinstance(entry_functions, (str, GlobalVar)):
        entry_functions = (entry_functions,)
    functions = {
        gv: remove_all_unused(fn, mod) if isinstance(fn, Function) else fn for gv, fn in mod.items()
    }
    public = [gv for gv, fn in functions.items() if fn.get_attr("global_symbol") is not None]
    entries = [*(entry_functions or ()), *public]
    # A module without any public function is a library in the making: nothing in it is unreachable.
    return _reached_only(mod, functions, entries or mod)


@module_pass(opt_level=1)
def RemoveUnusedFunctions(
    mod: IRModule, ctx: PassContext, *, entry_functions: Iterable[Any] | None = None
) -> IRModule:
    """Remove functions, public ones too, that no entry function reaches; bodies stay as they are.

    entry_functions  names or GlobalVars; None: the functions with a `global_symbol`
    """
    functions = dict(mod.items())
    if entry_functions is None:
        public = [gv for gv, fn in functions.items() if fn.get_attr("global_symbol") is not None]
        entry_functions = public or mod
    elif isinstance(entry_functions, (str, GlobalVar)):
        entry_functions = (entry_functions,)
    return _reached_only(mod, functions, entry_functions)


def _reached_only(
    mod: IRModule, functions: Mapping[GlobalVar, BaseFunc], entries: Iterable[Any]
) -> IRModule:
    """`mod` with those of `functions` that `entries`, names or GlobalVars, reach."""
    by_name: dict[str, Node] = {gv.name_hint: fn for gv, fn in functions.items()}

    roots = [mod.get_global_var(getattr(e, "name_hint", e)).name_hint for e in entries]
    missing = by_name.keys() - roots

    def mentioned(name: str) -> Iterator[str]:
        """The functions that are met for the first time in this one; nothing is read when none is
        missing any more.
        """
        for n in walk(by_name[name]) if missing else ():
            if isinstance(n, GlobalVar) and n.name_hint in missing:
                missing.remove(n.name_hint)
                yield n.name_hint
                if not missing:
                    return

    reached = reachable(roots, mentioned)
    kept = {gv: fn for gv, fn in functions.items() if gv.name_hint in reached}
    if len(kept) == len(mod) and all(mod[gv] is fn for gv, fn in kept.items()):
        return mod
    return mod.clone(functions=kept)
