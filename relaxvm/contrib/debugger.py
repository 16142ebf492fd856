"""Graphs node by node: `debug_executor` is `runtime.graph_debug`."""

from ..base import submodules as _submodules

__getattr__ = _submodules(__name__)

# A package to the import system: its parts are aliases.
__path__: list[str] = []
