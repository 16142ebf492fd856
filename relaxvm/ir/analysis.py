"""Questions about whole modules."""

from __future__ import annotations

from .module import GlobalVar, IRModule
from .walk import walk


def collect_call_map(module: IRModule) -> dict[GlobalVar, list[GlobalVar]]:
    """For each function the functions of the module that it mentions, each once, in order."""
    return {
        gv: list(dict.fromkeys(n for n in walk(fn) if isinstance(n, GlobalVar)))
        for gv, fn in module.items()
    }
