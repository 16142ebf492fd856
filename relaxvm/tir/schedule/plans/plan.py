"""Plans: what is decided about the loops of a block, as data, before any of them is touched.

    for choice in tir.schedule.plans_of(sch, "matmul", target):
        print(choice)                       Tile(rows=6, vectors=4, lanes=16, pack)    12.1 us, ...
    tir.schedule.apply_plan(sch, "matmul", choice.plan)

A class of plans is a way to schedule one kind of block. It chooses from what a block is and what
the CPU has; carrying out needs the CPU no more. A plan prints, compares, and is saved as JSON, so
that one can be written by hand, kept with what was measured, and searched for.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from random import Random
from typing import Any

from ....base import CpuModel, DataType, LoadError, ScheduleError, did_you_mean, record
from ....runtime import Plain, entries_of
from ..schedule import Schedule
from .cost import Cost
from .view import View, give_axes_loops

PLANS: dict[str, type[Plan]] = {}
"""The classes of plans, by their names."""


@record
class Plan(Plain):
    """One way to schedule a block. Numbers are at least 1, those whose default is 0 at least 0.
    Raises ScheduleError for these and for values of other types, as those of numpy.
    """

    def __init_subclass__(cls, form: str = "map") -> None:
        super().__init_subclass__(form)
        if "choose" in vars(cls):
            PLANS[cls.__name__] = cls

    @classmethod
    def choose(cls, view: View, cpu: CpuModel) -> Plan | None:
        """The plan of this class for a block; None if another class serves it better."""
        raise NotImplementedError

    @classmethod
    def random(cls, view: View, cpu: CpuModel, rng: Random) -> Plan | None:
        """Any plan of this class for a block, drawn; None if it has none that could be drawn."""
        return None

    @classmethod
    def fitting(cls, view: View, cpu: CpuModel) -> Plan | None:
        """The plan of this class for a block that others may serve better."""
        return cls.choose(view, cpu)

    def others(self, view: View, cpu: CpuModel) -> Iterable[Plan]:
        """Plans of this class that differ in what could be decided otherwise; those that are wrong
        for the block, or this one itself, do no harm.
        """
        return ()

    def varied(self, **choices: Iterable[Any]) -> Iterator[Plan]:
        """The plan with every combination of what these fields could be."""
        for values in itertools.product(*choices.values()):
            yield replace(self, **dict(zip(choices, values)))

    def simpler(self) -> Plan | None:
        """What to do instead where a primitive refuses to carry the plan out."""
        return None

    def wrong(self, view: View) -> str | None:
        """Why the plan does not fit a block; None if it does."""
        return None

    def members(self, view: View) -> Sequence[Any]:
        """The blocks that it gives their loops, that of the view among them."""
        return (view.rv,)

    def apply(self, view: View) -> None:
        """Carry it out on the schedule of `view`, in which the block is as it was."""
        raise NotImplementedError

    def cost(self, view: View, cpu: CpuModel) -> Cost | None:
        """What it is predicted to cost; None if nothing is predicted of such blocks."""
        return None

    def __post_init__(self) -> None:
        for f, (_, codec) in zip(fields(self), self._columns()):
            least = 0 if f.default == 0 else 1
            try:
                value = codec.read(_as_stored(getattr(self, f.name)))
                if type(value) is int and value < least:
                    raise LoadError(f"wanted {least} or more, got {value}")
            except LoadError as error:
                raise ScheduleError(f"{type(self).__name__}: {f.name}: {error}") from None
            object.__setattr__(self, f.name, value)

    def __str__(self) -> str:
        told = []
        for f in fields(self):
            value = getattr(self, f.name)
            if value != f.default:
                told.append(f.name if value is True else f"{f.name}={value}")
        return f"{type(self).__name__}({', '.join(told)})"

    def as_json(self) -> dict[str, Any]:
        """For `json.dump`; `plan_from_json` reads it."""
        return {"plan": type(self).__name__, **self.to_plain()}


@record
class InTiles(Plan):
    """What plans share that sum up tiles of `rows` x (`vectors` x `lanes`) in registers."""

    rows: int
    vectors: int
    lanes: int

    @property
    def width(self) -> int:
        """How many columns a tile has."""
        return self.lanes * self.vectors


def chosen(planner: type[Plan], view: View, cpu: CpuModel) -> Iterator[Plan]:
    """What one class of plans chooses for a block, then what is simpler."""
    plan = planner.choose(view, cpu)
    while plan is not None:
        yield plan
        plan = plan.simpler()


def plan_from_json(data: Any) -> Plan:
    """The plan that `Plan.as_json` gave. Fields that have defaults may be missing. Raises
    ScheduleError for anything else.
    """
    if not isinstance(data, Mapping) or not isinstance(data.get("plan"), str):
        got = type(data).__name__
        raise ScheduleError(
            f"a plan is a map with the key 'plan', which names its class, got {got}"
        )
    name = data["plan"]
    if name not in PLANS:
        hint = did_you_mean(name, PLANS)
        raise ScheduleError(
            f"no plan is called {name[:40]!r}{hint}; there are {', '.join(sorted(PLANS))}"
        )
    cls: Any = PLANS[name]
    given = {f.name: f.default for f in fields(cls) if f.default is not MISSING}
    given |= {key: value for key, value in data.items() if key != "plan"}
    try:
        values = entries_of(given, [f.name for f in fields(cls)], name)
    except LoadError as error:
        raise ScheduleError(f"plan {error}") from None
    plan: Plan = cls(**values)
    return plan


def _as_stored(value: Any, depth: int = 4) -> Any:
    """What files hold of a value that is written as Python has it; no field is nested deeper."""
    if isinstance(value, tuple) and depth:
        return [_as_stored(item, depth - 1) for item in value]
    return str.__str__(value) if isinstance(value, DataType) else value


def apply_plan(sch: Schedule, block: Any, plan: Plan | Mapping[str, Any]) -> None:
    """Give the loops of a block what a plan says.

    block  of `sch`, not scheduled so far; or its name
    plan   a plan, or what `Plan.as_json` gave

    Raises ScheduleError, which says what is wrong with the plan for this block; the schedule is as
    before then.
    """
    chosen = plan if isinstance(plan, Plan) else plan_from_json(plan)
    with sch.attempt():
        rv = sch.get_block(block) if isinstance(block, str) else block
        give_axes_loops(sch, rv)
        view = View(sch, rv)
        reason = chosen.wrong(view)
        if reason is not None:
            what = f"block {view.block.name_hint} ({view.kind.value})"
            raise ScheduleError(f"{chosen} does not fit {what}: {reason}")
        chosen.apply(view)
