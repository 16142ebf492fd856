"""The plans that a block could have: the space that is searched by measuring."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from ....base import CpuModel, NamedTuple
from ..schedule import Schedule
from .cost import Cost
from .default import planned, planners_of
from .plan import Plan, chosen
from .view import View, give_axes_loops


class Choice(NamedTuple):
    """A plan for a block, and what it is predicted to cost: None if nothing is predicted of it."""

    plan: Plan
    cost: Cost | None

    def __str__(self) -> str:
        return str(self.plan) if self.cost is None else f"{self.plan}    {self.cost}"


def plans_for(sch: Schedule, block: Any, cpu: CpuModel) -> list[Choice]:
    """The plans for a block that is not scheduled so far: first the one that the default schedule
    carries out, then what else fits it, the cheapest as predicted first.
    """
    rv = sch.get_block(block) if isinstance(block, str) else block
    sch = sch.copy()
    give_axes_loops(sch, rv)
    view = View(sch, rv)
    first = list(planned(view, cpu))[:1]
    rest = dict.fromkeys(
        other
        for planner in planners_of(view)
        for plan in (*chosen(planner, view, cpu), planner.fitting(view, cpu))
        for other in (() if plan is None else (plan, *_others(plan, view, cpu)))
        if other not in first
    )
    choices = [Choice(plan, plan.cost(view, cpu)) for plan in rest]
    choices.sort(key=lambda c: math.inf if c.cost is None else c.cost.seconds)
    return [*(Choice(plan, plan.cost(view, cpu)) for plan in first), *choices]


def _others(plan: Plan, view: View, cpu: CpuModel) -> Iterator[Plan]:
    return (other for other in plan.others(view, cpu) if other.wrong(view) is None)
