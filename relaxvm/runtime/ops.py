"""The two forms an instruction takes once its callee is known: an `Op` for reading, a `Step` for
running.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import Any

from ..base import NamedTuple
from .builtin_row import Builtin


class OpKind(IntEnum):
    """What an instruction does, once its callee is known."""

    BUILTIN = 0
    KERNEL = 1
    EXTERN = 2
    FUNCTION = 3
    INVOKE = 4
    KILL = 5
    GOTO = 6
    IF = 7
    RET = 8


class Op(NamedTuple):
    """One instruction. Arguments are places in the register file; `target` is the instruction
    jumped to, `tail` says that a call's value is returned with nothing in between.
    """

    kind: OpKind
    function: Any = None
    symbol: str = ""
    dst: int = -1
    args: tuple[int, ...] = ()
    target: int = -1
    builtin: Builtin | None = None
    size_bytes: int = -1
    """Bytes of a storage of constant size."""
    tail: bool = False

    @property
    def aliases(self) -> bool:
        """Whether it is a builtin whose result may share memory with an argument."""
        return self.builtin is not None and self.builtin.aliases

    @property
    def calls(self) -> bool:
        """Whether it is a builtin that calls a function it is given."""
        return self.builtin is not None and self.builtin.calls


class StepKind(IntEnum):
    """What a step of a block does: (kind, function, dst, a, b, c).

    The order is the one the fast loop asks in. KERNEL and CALL have one to three and up to three
    arguments (a, b, c; None for none), those with "MANY" a tuple of them; of a ROW, `dst` is a
    tuple of the steps that `function` runs at once, given all registers.
    """

    KERNEL = 0
    CALL = 1
    ROW = 2
    RET = 3
    KERNEL_MANY = 4
    CALL_MANY = 5
    EXTERN = 6
    KILL = 7
    FUNCTION = 8
    IF = 9
    GOTO = 10
    INVOKE = 11
    TAIL_FUNCTION = 12
    TAIL_INVOKE = 13


Step = tuple[int, Any, Any, Any, Any, Any]


def places_of(kernel: Step) -> Sequence[int]:
    """The registers that a step with a kernel passes."""
    kind, _, _, *places = kernel
    return places[0] if kind == StepKind.KERNEL_MANY else [p for p in places if p is not None]
