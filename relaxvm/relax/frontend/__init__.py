"""Ways into the graph language from outside: models written as modules (`nn`).

Enters: other descriptions of a model. Leaves: an `IRModule` and the parameters' values. Not done
here: building and running it (`relax.build`, `runtime`).
"""

from __future__ import annotations

from ...base import submodules

__getattr__ = submodules(__name__)

__all__: list[str] = []
