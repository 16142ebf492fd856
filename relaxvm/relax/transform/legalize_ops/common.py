"""Rules given from outside: ``@register_legalize("relax.exp")``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import PassError
from ....ir import Op as BaseOp
from ...expr import Call
from ...op.record import Op

Lower = Callable[[Any, Call], Any]
# What operators had before.
_GIVEN: dict[Op, Any] = {}


def legalizations_replaced() -> bool:
    """Whether an operator has a rule given from outside: builds of other processes differ then."""
    return any(record.lower is not former for record, former in _GIVEN.items())


def register_legalize(op_name: str, legal_func: Lower | None = None) -> Any:
    """Make `legal_func`, (builder, call) -> expression, the legalisation of an operator. Also a
    decorator.
    """

    def register(f: Lower) -> Lower:
        record = BaseOp.get(op_name)
        if not isinstance(record, Op):
            raise PassError(f"register_legalize: {op_name} is no operator of the graph language")
        _GIVEN.setdefault(record, record.lower)
        object.__setattr__(record, "lower", f)
        return f

    return register if legal_func is None else register(legal_func)
