"""NormalizeGlobalVar: public functions stand under their `global_symbol`.

before:  main (global_symbol "run"), run (private)
after:   run (global_symbol "run"), run1 (private)
"""

from __future__ import annotations

from ...base import NameSupply, VerifyError
from ...ir import IRModule, PassContext
from ...ir.transform import module_pass


@module_pass(opt_level=0)
def NormalizeGlobalVar(mod: IRModule, ctx: PassContext) -> IRModule:
    """Rename functions in their definitions and calls: public ones to their `global_symbol`,
    private ones in whose place these would stand to a name like theirs.

    Raises VerifyError if two functions have the same `global_symbol`.
    """
    symbols = {gv.name_hint: fn.get_attr("global_symbol") for gv, fn in mod.items()}
    public: dict[str, str] = {}
    for name, symbol in symbols.items():
        if symbol is not None and public.setdefault(symbol, name) != name:
            raise VerifyError(
                f"NormalizeGlobalVar: {public[symbol]} and {name} have the same global_symbol "
                f"{symbol!r}; rename one, or make it private"
            )
    names = NameSupply(lambda: [*symbols, *public])
    renamed = {
        name: symbol or (names.fresh(name) if name in public else name)
        for name, symbol in symbols.items()
    }
    changed = {old: new for old, new in renamed.items() if old != new}
    return mod.replace_global_vars(changed) if changed else mod
