"""The two forms an instruction takes once its callee is known: an `Op` for reading, a `Step` for
running.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple


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
    aliases: bool = False
    size_bytes: int = -1
    """Bytes of a storage of constant size."""
    tail: bool = False


class StepKind(IntEnum):
    """What a step of a block does: (kind, function, dst, a, b, c).

    The order is the one the fast loop asks in.
    """

    KERNEL3 = 0
    KERNEL2 = 1
    KERNEL1 = 2
    CALL1 = 3
    CALL2 = 4
    KERNEL = 5
    CALL = 6
    CALL0 = 7
    CALL3 = 8
    EXTERN = 9
    KILL = 10
    RET = 11
    FUNCTION = 12
    IF = 13
    GOTO = 14
    INVOKE = 15
    TAIL_FUNCTION = 16
    TAIL_INVOKE = 17


Step = tuple[int, Any, Any, Any, Any, Any]
