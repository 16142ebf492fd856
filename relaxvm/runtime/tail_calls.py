"""Which calls may take the place of their caller: those whose value is the caller's own.

Only calls that can come back to the caller are marked, so that recursion written as a loop needs
no depth, while the notes on an exception still name the callers of everything else.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..base import components
from .builtin import TABLE
from .builtin_row import Effect
from .ops import Op, OpKind
from .program import Program

_MAX_FOLLOWED = 64
# Stands for all functions that are used as values.
_ANY_VALUE = ""


def call_circles(program: Program) -> dict[str, int]:
    """For each VM function the number of its circle: those that may call one another in turn."""
    calls: dict[str, set[str]] = {info.name: set() for info in program.vm_functions}
    values: set[str] = set()
    for info in program.vm_functions:
        mine = calls[info.name]
        for callee, called in program.mentioned(info):
            if callee.kind == "vm":
                (mine if called else values).add(callee.name)
            elif called and callee.name in TABLE and TABLE[callee.name].effect is Effect.INVOKE:
                mine.add(_ANY_VALUE)
    calls[_ANY_VALUE] = values
    circles = components(calls, calls)
    return {name: number for number, group in enumerate(circles) for name in group}


def mark_tail_calls(ops: list[Op], caller: str, circles: Mapping[str, int]) -> None:
    """Mark the calls among `ops` of the VM function `caller` after which there is nothing but
    jumps, moves and kills before their value is returned, and which may come back to it.
    """
    mine = circles[caller]
    for pc, op in enumerate(ops):
        if op.kind == OpKind.FUNCTION:
            callee = op.symbol
        elif op.kind == OpKind.INVOKE:
            callee = _ANY_VALUE
        else:
            continue
        if circles[callee] == mine and _is_returned(ops, pc):
            ops[pc] = op._replace(tail=True)


def _is_returned(ops: list[Op], pc: int) -> bool:
    held, following = ops[pc].dst, pc + 1
    for _ in range(_MAX_FOLLOWED):
        op = ops[following]
        if op.kind == OpKind.RET:
            return op.args[0] == held
        if op.kind == OpKind.GOTO:
            following = op.target
        elif _is_move(op) and op.args[0] == held:
            held, following = op.dst, following + 1
        elif op.kind == OpKind.KILL and op.args[0] != held:
            following += 1
        else:
            return False
    return False


def _is_move(op: Op) -> bool:
    return op.builtin is not None and op.builtin.effect is Effect.SAME and not op.builtin.raises
