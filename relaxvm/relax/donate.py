"""Which parameters of graph functions are donated: the attribute "donate", a list of their names.

A call uses up what it is given for them, and may compute its results in their memory
(`runtime.donation`, `transform.ReuseDonatedParams`).
"""

from __future__ import annotations

from collections.abc import Sequence

from ..base import PassError
from ..ir import IRModule, StringImm
from .expr import Function
from .struct_info import TensorStructInfo, parts

DONATE = "donate"


def donated_params(fn: Function, name: str) -> tuple[int, ...]:
    """The numbers of the parameters of `fn`, called `name`, that are donated.

    Raises PassError for what is no list of names of parameters that hold tensors.
    """
    donated = fn.get_attr(DONATE)
    if donated is None:
        return ()
    texts = [str(g.value if isinstance(g, StringImm) else g) for g in _items(donated)]
    numbers = {p.name_hint: i for i, p in enumerate(fn.params)}
    for text in texts:
        if text not in numbers:
            raise PassError(
                f"{name}: donate wants names of its parameters, which are "
                f"{', '.join(numbers) or 'none'}; got {text!r}"
            )
        held = parts(fn.params[numbers[text]].struct_info)
        if not any(isinstance(part, TensorStructInfo) for part in held):
            raise PassError(f"{name}: donate: the parameter {text} holds no tensor")
    return tuple(sorted({numbers[text] for text in texts}))


def _items(value: object) -> Sequence[object]:
    return value if isinstance(value, Sequence) and not isinstance(value, str) else (value,)


def with_donated(mod: IRModule, names: object) -> IRModule:
    """`mod` with the parameters called `names` donated in each public graph function that has some.

    Raises PassError for a name that no such function has, and for what is no name.
    """
    wanted = _items(names)
    if not all(isinstance(name, str) for name in wanted):
        raise PassError(f"build: donate wants a list of names of parameters, got {names!r}")
    left, changed = set(wanted), {}
    for gv, fn in mod.items():
        if not isinstance(fn, Function) or fn.get_attr("global_symbol") is None:
            continue
        params = {p.name_hint for p in fn.params}
        here = tuple(str(name) for name in wanted if name in params)
        if here:
            known = _items(fn.get_attr(DONATE) or ())
            changed[gv] = fn.with_attr(DONATE, tuple(dict.fromkeys([*known, *here])))
            left -= set(here)
    if left:
        unknown = ", ".join(map(str, left))
        raise PassError(f"build: donate: no function has a parameter named {unknown}")
    return mod.clone({**mod.functions, **changed}) if changed else mod
