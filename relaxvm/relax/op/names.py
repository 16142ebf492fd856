"""Every operator by its name, for rules that reach other operators: ``ops.exp(x)``,
``ops.nn.softmax(x)``.

Families do not import one another; gradient and legalisation rules get this object (or import it)
and look up what they need when they run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...ir import Op


class _Names:
    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Callable[..., Any]:
        full = self._prefix + name
        found = Op._table.get(full)
        if found is not None:
            return found.function  # type: ignore[attr-defined]
        if any(known.startswith(f"{full}.") for known in Op._table):
            return _Names(f"{full}.")  # type: ignore[return-value]
        raise AttributeError(f"no operator is named {full!r}")


ops: Any = _Names("relax.")
