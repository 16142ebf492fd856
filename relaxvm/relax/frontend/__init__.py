"""Ways into the graph language from outside: models written as modules (`nn`).

Enters: other descriptions of a model. Leaves: an `IRModule` and the parameters' values. Not done
here: building and running it (`relax.build`, `runtime`).
"""

import typing

from ...base import submodules as _submodules
from ...ir import IRModule as _IRModule

__getattr__ = _submodules(__name__)


def detach_params(mod: _IRModule) -> tuple[_IRModule, dict[str, list[typing.Any]]]:
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
