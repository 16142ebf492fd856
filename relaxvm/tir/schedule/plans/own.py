"""What others decide in default schedules: rules of one's own for blocks, the tuner's picks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ....base import CpuModel, ScheduleError, did_you_mean
from ..primitives.intrin import OWN_RULES
from ..schedule import Schedule
from .plan import PLANS, Plan
from .view import View

# (schedule, block, cpu) -> whether the rule fits and was applied
BlockRule = Callable[[Schedule, Any, CpuModel], bool]


class Picks:
    """What a schedule is free to decide, left to the rules. The tuner decides by a class of its
    own.
    """

    def takes(self, rule: str) -> bool:
        """Whether blocks are left to the rule for groups which is called so, and which fits."""
        return True

    def plan(self, view: View) -> Plan | None:
        """What is tried before the plans that are chosen; None: nothing."""
        return None

    def move(self, sch: Schedule) -> None:
        """Move blocks once each has its loops; a ScheduleError leaves them where they are."""


AS_USUAL = Picks()

# (the plan before which it is tried, None: before all; the rule)
OWN_BLOCK_RULES: list[tuple[str | None, BlockRule]] = []


def block_rule(before: str | None = None) -> Callable[[BlockRule], BlockRule]:
    """Decorator: a rule of one's own for blocks, tried before all plans, or just before those of
    the class that is named ("Tile", "Elementwise", ...). One of the same name takes its place.
    Raises ScheduleError for an unknown name.

    A rule takes a schedule to change, a block of it and a `CpuModel`; it answers whether it fits.
    Where it answers False or raises ScheduleError, what it did to the schedule is forgotten.
    Kernels of a process with such rules are neither taken from the cache nor put there.
    """
    if before is not None and before not in PLANS:
        hint = did_you_mean(before, PLANS)
        raise ScheduleError(
            f"block_rule: no plan is called {before!r}{hint}; there are {', '.join(sorted(PLANS))}"
        )

    def register(rule: BlockRule) -> BlockRule:
        names = [r.__name__ for _, r in OWN_BLOCK_RULES]
        if rule.__name__ in names:
            del OWN_BLOCK_RULES[names.index(rule.__name__)]
        OWN_BLOCK_RULES.insert(0, (before, rule))
        OWN_RULES.append(rule.__name__)
        return rule

    return register
