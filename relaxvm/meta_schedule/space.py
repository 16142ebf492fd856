"""The space of schedules of a loop function that starts from what is known.

A point is what the default schedule would decide otherwise: the plan of a block, rules that leave
their blocks alone, a CPU with other caches or vectors, where a block is computed. A point is data;
the same point gives the same schedule. The default schedule is the point where nothing is said.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import field, fields, replace
from typing import Any, Protocol

from ..base import CpuModel, ScheduleError, record, submodules
from ..ir import IRModule
from ..target import cpu_model
from ..tir import PrimFunc
from ..tir.schedule import Schedule
from ..tir.schedule.plans import (
    PLANNERS,
    Picks,
    Plan,
    View,
    plan_from_json,
    plans_for,
    root_of,
    scheduled_by,
)
from ..tir.transform import with_index_dtype
from .arg_info import entry_of
from .candidate import MeasureCandidate
from .database import key_of

# Drawn plans stand so far ahead in the order of predicted costs, on average.
_AHEAD = 8


@record
class Point:
    """plans    of blocks, by their names
    without     names of rules for groups that are not to take blocks
    inside      {block: depth}: blocks computed inside the loop of that depth of what reads them
    caches      how large the caches are taken to be, as a power of 2 of what they are
    vectors     the same of the width of vectors
    alone       whether it runs on one core
    """

    plans: Mapping[str, Plan] = field(default_factory=dict)
    without: frozenset[str] = frozenset()
    inside: Mapping[str, int] = field(default_factory=dict)
    caches: int = 0
    vectors: int = 0
    alone: bool = False

    def as_json(self) -> dict[str, Any]:
        """For `json.dump`; `point_from_json` reads it."""
        return {
            "plans": {name: plan.as_json() for name, plan in self.plans.items()},
            "without": sorted(self.without),
            "inside": dict(self.inside),
            "caches": self.caches,
            "vectors": self.vectors,
            "alone": self.alone,
        }

    def __str__(self) -> str:
        told = [f"{name}: {plan}" for name, plan in self.plans.items()]
        told += [f"without {rule}" for rule in sorted(self.without)]
        told += [f"{name} inside loop {depth}" for name, depth in self.inside.items()]
        told += [f"caches x {2.0**self.caches:g}"] if self.caches else []
        told += [f"vectors x {2.0**self.vectors:g}"] if self.vectors else []
        told += ["one core"] if self.alone else []
        return "; ".join(told) or "the default schedule"


def point_from_json(data: Any) -> Point:
    """What `Point.as_json` gave. Raises ScheduleError for anything else."""
    match data:
        case {
            "plans": {**plans},
            "without": [*without],
            "inside": {**inside},
            "caches": int(caches),
            "vectors": int(vectors),
            "alone": bool(alone),
        } if all(type(w) is str for w in without):
            read = {str(name): plan_from_json(plan) for name, plan in plans.items()}
            places = {str(name): n for name, n in inside.items() if type(n) is int and n >= 0}
            if len(places) == len(inside):
                return Point(read, frozenset(without), places, caches, vectors, alone)
    raise ScheduleError("a point is saved as a map: plans, without, inside, caches, vectors, alone")


class Candidate(MeasureCandidate):
    """A point, and the schedule it gives."""

    def __init__(self, point: Any, schedule: Schedule) -> None:
        super().__init__(schedule)
        self.point, self.schedule = point, schedule


class DesignSpace(Protocol):
    """What a search asks. A point is what is decided, as data with `as_json`. What gives a
    candidate raises ScheduleError or TIRError where decisions do not go together; others may.

    fn       the function as all candidates begin
    refused  what refused candidates, and how many
    reasons  why each refused the last one
    """

    fn: PrimFunc

    @property
    def refused(self) -> Mapping[str, int]: ...

    @property
    def reasons(self) -> Mapping[str, str]: ...

    def default(self) -> Candidate:
        """Where nothing is decided: the default schedule, or the function as it is written."""

    def candidate(self, point: Any) -> Candidate:
        """The schedule of a point."""

    def draw(self, rng: random.Random) -> Candidate:
        """Any point."""

    def near(self, point: Any, rng: random.Random) -> Candidate:
        """A point that differs from another in one decision or few."""

    def between(self, a: Any, b: Any, rng: random.Random) -> Candidate:
        """A point with some decisions of one, the others of another."""

    def point_from_json(self, data: Any) -> Any:
        """What a point's `as_json` gave. Raises ScheduleError for what is no point of it."""


def no_candidate(name: str, space: DesignSpace) -> ScheduleError:
    """The error of a kernel of whose space nothing was valid."""
    refused = sorted(space.refused.items(), key=lambda pair: -pair[1])
    told = "; ".join(f"{n} refused {times} (the last: {space.reasons[n]})" for n, times in refused)
    return ScheduleError(f"{name}: no candidate is left: {told}")


class Space:
    """The schedules of a loop function on a target: a `DesignSpace` of `Point`s.

    mod     a loop function, or a module of one
    target  as for `relaxvm.build`
    """

    def __init__(self, mod: IRModule | PrimFunc, target: Any = None) -> None:
        self.target = target
        self.cpu: CpuModel = cpu_model(target)
        # As in a build: one type for all indices.
        self.fn = with_index_dtype(entry_of(mod), "int64")
        self._start = Schedule(IRModule({"main": self.fn}), error_render_level="fast")
        self._plans: dict[Any, Sequence[Plan]] = {}
        self._rules: dict[str, None] = {}
        self.refused: dict[str, int] = {}
        self.reasons: dict[str, str] = {}

    point_from_json = staticmethod(point_from_json)

    def candidate(self, point: Point) -> Candidate:
        """The schedule of a point. What of it fits no block is as in the default schedule."""
        return self._decided(_Follows(self, point))

    def default(self) -> Candidate:
        """The point where nothing is said."""
        return self.candidate(Point())

    def draw(self, rng: random.Random) -> Candidate:
        """Any point: the plan of each block drawn, those predicted to be fast more often."""
        caches = rng.choice((0, 0, 0, -1, 1))
        vectors = rng.choice((0, 0, 0, 0, -1))
        without = {rule for rule in self._rules if rng.random() < 0.15}
        point = Point(without=frozenset(without), caches=caches, vectors=vectors)
        return self._decided(_Draws(self, point, rng, 0.8))

    def near(self, point: Point, rng: random.Random) -> Candidate:
        """A point that differs from another in one decision or few."""
        kind = rng.random()
        if kind < 0.1:
            point = replace(point, caches=rng.choice((-2, -1, 0, 1)))
        elif kind < 0.15:
            point = replace(point, vectors=-1 - point.vectors)
        elif kind < 0.18 and self.cpu.cores > 1:
            point = replace(point, alone=not point.alone)
        elif kind < 0.28 and self._rules:
            point = replace(point, without=point.without ^ {rng.choice([*self._rules])})
        elif kind < 0.6 and point.plans:
            name = rng.choice([*point.plans])
            point = replace(point, plans={**point.plans, name: _varied(point.plans[name], rng)})
        else:
            drop = rng.choice([*point.plans]) if point.plans else None
            kept = {name: plan for name, plan in point.plans.items() if name != drop}
            return self._decided(_Draws(self, replace(point, plans=kept), rng, 0.6))
        return self.candidate(point)

    def between(self, a: Point, b: Point, rng: random.Random) -> Candidate:
        """A point with some decisions of one, the others of another."""
        plans = {
            name: rng.choice([p.plans[name] for p in (a, b) if name in p.plans])
            for name in {**a.plans, **b.plans}
        }
        one, other = rng.sample((a, b), 2)
        return self.candidate(replace(one, plans=plans, without=other.without))

    def plans(self, view: View, cpu: CpuModel) -> Sequence[Plan]:
        """Plans for a block, the cheapest as predicted first."""
        key = (view.block.name_hint, cpu, key_of(view.sch.state.fn))
        if key not in self._plans:
            self._plans[key] = [c.plan for c in plans_for(view.sch, view.rv, cpu)]
        return self._plans[key]

    def _decided(self, picks: _Follows) -> Candidate:
        sch = scheduled_by(self._start.copy(), picks.cpu, picks=picks)
        self._rules.update(picks.asked)
        return Candidate(picks.point, sch)


class _Follows(Picks):
    """Decides as a point says."""

    def __init__(self, space: Space, point: Point) -> None:
        self.space, self.point = space, point
        self.asked: dict[str, None] = {}
        cpu = space.cpu
        self.cpu = replace(
            cpu,
            l1_bytes=int(cpu.l1_bytes * 2.0**point.caches),
            l2_bytes=int(cpu.l2_bytes * 2.0**point.caches),
            vector_bits=max(64, int(cpu.vector_bits * 2.0**point.vectors)),
            cores=1 if point.alone else cpu.cores,
        )

    def takes(self, rule: str) -> bool:
        self.asked.setdefault(rule)
        return rule not in self.point.without

    def plan(self, view: View) -> Plan | None:
        plan = self.point.plans.get(view.block.name_hint)
        return plan if plan is not None and plan.wrong(view) is None else None

    def move(self, sch: Schedule) -> None:
        for name, depth in self.point.inside.items():
            with contextlib.suppress(ScheduleError), sch.attempt():
                block = sch.get_block(name)
                loops = _loops_of_reader(sch, block)
                if depth < len(loops):
                    sch.compute_at(block, loops[depth])


class _Draws(_Follows):
    """Draws what a point leaves open, of each decision with a probability, and tells it."""

    def __init__(self, space: Space, point: Point, rng: random.Random, chance: float) -> None:
        super().__init__(space, point)
        self.rng, self.chance = rng, chance
        self.drawn, self.inside = dict(point.plans), dict(point.inside)
        self.point = replace(point, plans=self.drawn, inside=self.inside)

    def plan(self, view: View) -> Plan | None:
        name = view.block.name_hint
        plan = super().plan(view)
        if plan is not None or self.rng.random() > self.chance:
            return plan
        plan = self._drawn(view)
        if plan is not None:
            self.drawn[name] = plan
        return plan

    def _drawn(self, view: View) -> Plan | None:
        known = self.space.plans(view, self.cpu)
        if known and self.rng.random() < 0.75:
            place = int(self.rng.expovariate(1 / _AHEAD))
            return known[min(place, len(known) - 1)]
        drawn = [p.random(view, self.cpu, self.rng) for p in PLANNERS[view.kind]]
        plans = [plan for plan in drawn if plan is not None]
        return self.rng.choice(plans) if plans else None

    def move(self, sch: Schedule) -> None:
        for block in sch.get_child_blocks(root_of(sch)):
            name = sch.get(block).name_hint
            if name not in self.point.inside and self.rng.random() < 0.2:
                loops = _loops_of_reader(sch, block)
                if loops:
                    self.inside[name] = self.rng.randrange(len(loops))
        super().move(sch)


def _loops_of_reader(sch: Schedule, block: Any) -> Sequence[Any]:
    """The loops around the only block that reads what another writes; none if there are several."""
    readers = sch.get_consumers(block)
    return list(sch.get_loops(readers[0])) if len(readers) == 1 else []


def _varied(plan: Plan, rng: random.Random) -> Plan:
    """A plan that differs in one number or answer; the same one if there is none that it allows."""
    numbers = [f.name for f in fields(plan) if type(getattr(plan, f.name)) in (int, bool, tuple)]
    if not numbers:
        return plan
    name = rng.choice(numbers)
    value = getattr(plan, name)
    with contextlib.suppress(ScheduleError):
        return replace(plan, **{name: _other(value, rng)})
    return plan


def _other(value: Any, rng: random.Random) -> Any:
    if type(value) is bool:
        return not value
    if type(value) is int:
        return max(0, rng.choice((value * 2, value // 2, value + 1, value - 1)))
    if type(value) is tuple and value:
        k = rng.randrange(len(value))
        return (*value[:k], _other(value[k], rng), *value[k + 1 :])
    return value


__getattr__ = submodules(__name__)
