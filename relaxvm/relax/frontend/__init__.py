"""Ways into the graph language from outside: models written as modules (`nn`).

Enters: other descriptions of a model. Leaves: an `IRModule` and the parameters' values. Not done
here: building and running it (`relax.build`, `runtime`).
"""

from __future__ import annotations

from typing import Any

from ...base import submodules
from ...ir import IRModule

__getattr__ = submodules(__name__)

__all__ = ["detach_params"]


def detach_params(mod: IRModule) -> tuple[IRModule, dict[str, list[Any]]]:
    """`mod` without the attribute "params" of its functions, and what it held:
    {function: arrays}. Importers leave the values of parameters there.
    """
    params = {
        gv: list(fn.attrs["params"]) for gv, fn in mod.items() if "params" in (fn.attrs or ())
    }
    bare = mod.clone()
    for gv in params:
        bare[gv] = mod[gv].without_attr("params")
    return bare, {gv.name_hint: arrays for gv, arrays in params.items()}
