"""BindSymbolicVars: symbols become numbers (or expressions).

def main(x: R.Tensor(("n", 4))): ...        BindSymbolicVars({"n": 8})
def main(x: R.Tensor((8, 4))): ...
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...base import StructInfoError, VerifyError, did_you_mean
from ...ir import GlobalVar, IRModule, PassContext, PrimExpr
from ...ir import Var as TirVar
from ...ir.transform import module_pass
from ..analysis.vars import defined_symbolic_vars, free_symbolic_vars
from ..derive import plain_text
from ..expr import Function
from ..struct_info import as_dim
from ..substitute import substitute_graph
from .signature import replace_functions


@module_pass(opt_level=0)
def BindSymbolicVars(
    mod: IRModule, ctx: PassContext, *, binding_map: Mapping[Any, Any], func_name: str | None = None
) -> IRModule:
    """Replace symbols of graph functions.

    binding_map  {symbol (its name or Var): int or scalar expression}
    func_name    the function to change; None: every one that has such a symbol
    Raises VerifyError for a symbol that no function has, or that is ambiguous.
    """
    binding_map = _checked(binding_map)
    bound: set[int] = set()
    changed: dict[GlobalVar, Function] = {}
    wanted = [mod.get_global_var(func_name)] if func_name is not None else list(mod)
    names: list[str] = []
    for gv in wanted:
        fn = mod[gv]
        if not isinstance(fn, Function):
            if func_name is not None:
                raise VerifyError(
                    f"BindSymbolicVars: {func_name} is no graph function but a {type(fn).__name__}"
                )
            continue
        mapping = _symbols(fn, binding_map, gv.name_hint, bound, names)
        changed[gv] = _substitute(fn, mapping, gv.name_hint)
    _all_found(binding_map, bound, names, func_name or "any graph function")
    return replace_functions(mod, changed)


def bind_symbolic_vars(fn: Function, binding_map: Mapping[Any, Any]) -> Function:
    """`fn` with symbols replaced; see `BindSymbolicVars`."""
    binding_map = _checked(binding_map)
    bound: set[int] = set()
    names: list[str] = []
    mapping = _symbols(fn, binding_map, "the function", bound, names)
    _all_found(binding_map, bound, names, "the function")
    return _substitute(fn, mapping, "the function")


def _checked(binding_map: Any) -> dict[Any, PrimExpr]:
    if not isinstance(binding_map, Mapping):
        raise VerifyError(
            "BindSymbolicVars: binding_map is a mapping from symbols to numbers, "
            f"got {type(binding_map).__name__}"
        )
    checked: dict[Any, PrimExpr] = {}
    for key, value in binding_map.items():
        label = getattr(key, "name", key)
        if not isinstance(key, (str, TirVar)):
            raise VerifyError(
                "BindSymbolicVars: a symbol is named by a string or a tir.Var, got "
                f"{type(key).__name__}"
            )
        try:
            checked[key] = as_dim(value)
        except StructInfoError as error:
            raise VerifyError(f"BindSymbolicVars: symbol {label}: {error}") from None
    return checked


def _symbols(
    fn: Function, binding_map: Mapping[Any, PrimExpr], name: str, bound: set[int], names: list[str]
) -> dict[TirVar, PrimExpr]:
    symbols = {id(v): v for v in (*defined_symbolic_vars(fn), *free_symbolic_vars(fn))}
    names.extend(v.name for v in symbols.values())
    mapping: dict[TirVar, PrimExpr] = {}
    for i, (key, value) in enumerate(binding_map.items()):
        if isinstance(key, TirVar):
            hits = [v for v in symbols.values() if v is key]
        else:
            hits = [v for v in symbols.values() if v.name == key]
        if len(hits) > 1:
            raise VerifyError(
                f"BindSymbolicVars: {name} has {len(hits)} symbols named {key}; give the tir.Var"
            )
        for v in hits:
            if v in mapping:
                raise VerifyError(f"BindSymbolicVars: symbol {v.name} of {name} is given twice")
            mapping[v] = value.astype(v.dtype)
            bound.add(i)
    return mapping


def _all_found(
    binding_map: Mapping[Any, Any], bound: set[int], names: list[str], place: str
) -> None:
    for i, key in enumerate(binding_map):
        if i not in bound:
            label = key.name if isinstance(key, TirVar) else key
            has = list(dict.fromkeys(names))
            raise VerifyError(
                f"BindSymbolicVars: {place} has no symbol {label!r}{did_you_mean(label, has)}; "
                f"there are: {', '.join(has) or 'none'}"
            )


def _substitute(fn: Function, mapping: Mapping[TirVar, PrimExpr], name: str) -> Function:
    try:
        return substitute_graph(fn, mapping)
    except StructInfoError as error:
        values = ", ".join(f"{v.name} = {plain_text(e)}" for v, e in mapping.items())
        raise VerifyError(f"BindSymbolicVars: {name} does not allow {values}: {error}") from None
