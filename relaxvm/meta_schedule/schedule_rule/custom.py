"""Rules of users for blocks that name them."""

from __future__ import annotations

from typing import Any

from ...base import ScheduleError, submodules
from ...runtime import get_global_func
from ...target import Target
from ...tir import Block
from ...tir.schedule import BlockRV, Schedule
from ..derived import DerivedError, asked
from .schedule_rule import ScheduleRule

RULE = "schedule_rule"
"""On a block: the name of its rule, or "None" for none at all."""


class ApplyCustomRule(ScheduleRule):
    """Blocks with ``T.block_attr({"schedule_rule": "name"})`` are scheduled by the function that is
    registered as ``meta_schedule.cpu.name`` (or another of the target's keys): (sch, block) -> a
    schedule, a list of them, or None for `sch` as it is then. Other rules leave such blocks.
    """

    def apply(self, sch: Schedule, block: BlockRV) -> list[Schedule]:
        node: Block = sch.get(block)
        name = custom_rule(node)
        if name is None:
            return [sch]
        sch.unannotate(block, RULE)
        if name == "None":
            return [sch]
        target = Target.or_current(None if self.context is None else self.context.target)
        known = [f"meta_schedule.{key}.{name}" for key in target.keys]
        for path in known:
            function = get_global_func(path, allow_missing=True)
            if function is not None:
                with asked(function, path, f", for block {node.name_hint},"):
                    return schedules_of(function(sch, block), sch, path)
        raise ScheduleError(
            f"block {node.name_hint} wants the schedule rule {name!r}; register a function "
            f"(sch, block) -> schedules as {' or '.join(known)}"
        )


def custom_rule(block: Block) -> str | None:
    """The rule that a block names."""
    name: Any = block.annotations.get(RULE)
    return None if name is None else str(getattr(name, "value", name))


def schedules_of(answer: Any, sch: Schedule, what: str) -> list[Schedule]:
    """A schedule, several, or None for `sch`, as a list. Raises DerivedError for anything else."""
    several = [sch] if answer is None else [answer] if isinstance(answer, Schedule) else answer
    if isinstance(several, (list, tuple)) and all(isinstance(s, Schedule) for s in several):
        return list(several)
    raise DerivedError(
        f"{what}: wanted a Schedule, a list of them, or None, got {type(answer).__name__}"
    )


__getattr__ = submodules(__name__)
