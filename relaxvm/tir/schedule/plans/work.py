"""The work on a schedule: which blocks are left, and how plans and rules are tried on them; what
others decide about that, by rules of their own for blocks and by the tuner's picks.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from ....base import CpuModel, ScheduleError, decided, declined, did_you_mean
from ...stmt import Block
from ..primitives.intrin import OWN_RULES
from ..schedule import Schedule
from .plan import PLANS, Plan, chosen
from .sums import keep_orders
from .view import Kind, View

# -- what others decide ----------------------------------------------------------------------------


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


# -- which plan is carried out ---------------------------------------------------------------------


class _NotFor(ScheduleError):
    """A rule says that a block is none for it."""


class Work:
    """Gives blocks their loops: by a rule of somebody's own, or the first plan that holds.

    written  the blocks before any was changed, for the report
    left     those that are not scheduled so far
    """

    def __init__(
        self,
        sch: Schedule,
        cpu: CpuModel,
        orders: Mapping[Any, tuple[int, ...]],
        written: Mapping[Any, Block],
        left: Sequence[Any],
        picks: Picks,
    ) -> None:
        self.sch, self.cpu, self.orders = sch, cpu, orders
        self.written, self.left, self.picks = written, left, picks

    def schedule_groups(self, planners: Sequence[type[Plan]]) -> None:
        """Look for the blocks around which a plan of these classes fits, from the last one on."""
        for rv in reversed(self.left):
            if rv not in self.left:
                continue
            view = View(self.sch, rv, self.left)
            for planner in planners:
                plans = list(chosen(planner, view, self.cpu))
                takes = plans and self.picks.takes(planner.__name__)
                taken = self._by_plan(view, plans) if takes else ()
                if taken:
                    self.left = [r for r in self.left if r not in taken and self.sch.has_block(r)]
                    break

    def schedule_by(self, rule: Callable[[Schedule, Sequence[Any]], Sequence[Any]]) -> None:
        """Ask a rule that takes care of some of the blocks it is given, and says of which."""
        trial = self.sch.copy()
        taken = rule(trial, self.left)
        if taken and self.picks.takes(rule.__name__):
            for rv in taken:
                decided("block {} taken by {}", self.written[rv], rule.__name__)
            self.sch, self.left = trial, [rv for rv in self.left if rv not in taken]

    def schedule_rest(self, planners: Mapping[Kind, Sequence[type[Plan]]]) -> None:
        """Schedule what is left, block by block."""
        for rv in self.left:
            if rv in self.left:
                view = View(self.sch, rv, self.left)
                self._schedule(view, planners[view.kind])

    def _schedule(self, view: View, planners: Sequence[type[Plan]]) -> None:
        rv, picked = view.rv, self.picks.plan(view)
        taken = () if picked is None else self._by_plan(view, [picked])
        if taken:
            self.left = [r for r in self.left if r not in taken]
            return
        names = {planner.__name__ for planner in planners}
        if self._by_own_rule(rv, {None, *PLANS} - names):
            return
        for planner in planners:
            if self._by_own_rule(rv, {planner.__name__}):
                return
            if self._by_plan(view, chosen(planner, view, self.cpu)):
                return
        declined("block {} stays as it is: no plan fits", self.written[rv])

    def _by_own_rule(self, rv: Any, before: Collection[str | None]) -> bool:
        return any(
            self._holds([rv], rule.__name__, partial(rule, self.sch, rv, self.cpu))
            for place, rule in OWN_BLOCK_RULES
            if place in before
        )

    def _by_plan(self, view: View, plans: Iterable[Plan]) -> Sequence[Any]:
        """The blocks that the first plan that holds was carried out for; none if none does."""

        def carry_out() -> bool:
            plan.apply(view)
            return True

        for plan in plans:
            members = plan.members(view)
            if self._holds(members, str(plan), carry_out):
                return members
            view.forget()
        return ()

    def _holds(self, blocks: Sequence[Any], name: str, change: Callable[[], bool]) -> bool:
        """Change the schedule of some blocks. Where that gives up, by False or a ScheduleError, or
        adds up in another order than is to be kept, the schedule is as before.
        """
        told = [self.written[rv] for rv in blocks if rv in self.written]
        try:
            with self.sch.attempt():
                if not change():
                    raise _NotFor
                keep_orders(self.sch, self.orders)
        except _NotFor:
            return False
        except ScheduleError as error:
            for block in told:
                declined("block {} not taken by {}: {}", block, name, str(error))
            return False
        for block in told:
            decided("block {} taken by {}", block, name)
        return True
