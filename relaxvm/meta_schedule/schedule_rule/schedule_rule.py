"""What a schedule rule is, and those that a target has."""

from __future__ import annotations

from typing import Any

from ...base import ScheduleError, submodules
from ...ir import Var, is_const
from ...tir import Block
from ...tir.schedule import BlockRV, LoopRV, Schedule
from ..derived import Part


class ScheduleRule(Part):
    """Derive from it (`PyScheduleRule`) by giving `apply`."""

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        """The schedules to go on with: `sch`, changed or not, copies of it, or none at all."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    @staticmethod
    def create(kind: str = "llvm") -> list[ScheduleRule]:
        """The rules of TVM for CPUs, in order. Raises ScheduleError for other kinds of targets."""
        if kind not in KINDS:
            raise ScheduleError(
                f"ScheduleRule.create: code is made for CPUs here, kind is one of "
                f"{', '.join(KINDS)}, got {kind!r}"
            )
        return [rule() for rule in KINDS[kind]]


PyScheduleRule = ScheduleRule


def loops_by_axis(sch: Schedule, block: BlockRV) -> dict[Var, LoopRV] | None:
    """{axis: its loop}, without axes of one iteration that have none; None if another axis has no
    loop of its own.
    """
    node: Block = sch.get(block)
    by_var: dict[object, LoopRV] = {sch.get(loop).loop_var: loop for loop in sch.get_loops(block)}
    loops = {}
    for axis, value in zip(node.iter_vars, sch.state.realize(node).iter_values):
        loop = by_var.pop(value, None)
        if loop is not None:
            loops[axis.var] = loop
        elif not is_const(axis.range.extent, 1):
            return None
    return loops


KINDS: dict[str, list[Any]] = {}
"""Kind of target -> what makes its rules."""

__getattr__ = submodules(__name__)
