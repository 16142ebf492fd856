"""Every operator by its name, for rules that reach other operators: ``ops.exp(x)``,
``ops.nn.softmax(x)``.

Families do not import one another; gradient and legalisation rules get this object (or import it)
and look up what they need when they run.
"""

from __future__ import annotations

from typing import Any, cast

from ...ir import Op
from ..rules import Ops


class _Names:
    __slots__ = ("_prefix",)

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix

    def __getattr__(self, name: str) -> Any:
        full = self._prefix + name
        record: Any = Op._table.get(full)
        if record is not None:
            return record.function
        if any(known.startswith(f"{full}.") for known in Op._table):
            return _Names(f"{full}.")
        raise AttributeError(f"no operator is named {full!r}")


ops = cast(Ops, _Names("relax."))
