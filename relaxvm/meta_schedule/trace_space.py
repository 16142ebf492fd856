"""Spaces of traces: designs of a space generator, whose decisions are drawn, changed and mixed; and
unions of spaces.

A point is a trace before the postprocessors. A candidate is that trace replayed, and finished by
them; what they refuse is counted.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, NoReturn

from ..base import NamedTuple, ScheduleError, TIRError, record, submodules
from ..ir import IRModule
from ..target import Target
from ..tir import PrimFunc
from ..tir.schedule import Schedule, Trace
from ..tir.transform import with_index_dtype
from .arg_info import entry_of
from .derived import asked
from .space import Candidate, DesignSpace, Space
from .space_generator import PostOrderApply, SpaceGenerator, designs_of

# Of what is drawn from the space of known plans and the one of rules, the part of the former.
_KNOWN = 0.7
# What spaces are expected to win together, and the seconds of each for that; what is left after a
# trial of what was won and spent before; the seconds of a trial beside those of drawing it; and how
# often a space is drawn from at least.
_FIRST_WON, _FIRST_SECONDS, _FADES, _TRIAL_SECONDS, _LEAST_SHARE = 0.5, 4.0, 0.98, 0.1, 0.1


@record
class Traced:
    """A point: the instructions that gave a schedule, with their decisions."""

    trace: Trace

    def as_json(self) -> Any:
        """As `Trace.as_json`; `TraceSpace.point_from_json` reads it."""
        return self.trace.as_json()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Traced) and self.as_json() == other.as_json()

    def __hash__(self) -> int:
        return hash(str(self.as_json()))


class Context(NamedTuple):
    """What the parts of a generator are told, where no `TuneContext` is there."""

    mod: IRModule
    target: Target
    rand_state: int = 0


class TraceSpace:
    """The schedules that a space generator designs: a `DesignSpace` of `Traced` points, of which
    the default is the function as it is written.

    mod        a loop function, or a module of one
    target     as for `relaxvm.build`
    generator  told of the function and the target, unless a `TuneContext` has told it already
    designs    None: what the generator designs
    """

    def __init__(
        self,
        mod: IRModule | PrimFunc,
        target: Any = None,
        generator: SpaceGenerator | None = None,
        designs: Sequence[Schedule] | None = None,
    ) -> None:
        self.fn = with_index_dtype(entry_of(mod), "int64")
        self.refused: dict[str, int] = {}
        self.reasons: dict[str, str] = {}
        self.generator = PostOrderApply() if generator is None else generator
        whole = IRModule({"main": self.fn})
        self._start = Schedule(whole, error_render_level="fast")
        self._designs = designs
        if self.generator.context is None:
            context = Context(whole, Target.or_current(target))
            with asked(self.generator, "initialize_with_tune_context"):
                self.generator.initialize_with_tune_context(context)

    @cached_property
    def designs(self) -> list[Trace]:
        """What the generator designed when it was asked first."""
        return self.designed()

    def designed(self) -> list[Trace]:
        """What the generator designs, asked anew. Raises ScheduleError if that is nothing."""
        schedules = self._designs
        if schedules is None:
            schedules = designs_of(self.generator, self._start.mod)
        return [sch.trace.simplified(remove_postproc=True) for sch in schedules]

    def default(self) -> Candidate:
        """The function as it is written."""
        return Candidate(Traced(Trace()), self._start)

    def candidate(self, point: Traced) -> Candidate:
        """The schedule of a point; decisions that it leaves open are drawn, always the same."""
        return self._replayed(point.trace, 0)

    def draw(self, rng: random.Random) -> Candidate:
        """A design with all its decisions drawn."""
        return self._replayed(_undecided(rng.choice(self.designs)), rng.randrange(1 << 30))

    def near(self, point: Traced, rng: random.Random) -> Candidate:
        """A point as a mutator changes it; drawn anew if none of them knows how."""
        left = dict(self.generator.mutator_probs)
        while any(left.values()):
            mutator = rng.choices(list(left), list(left.values()))[0]
            del left[mutator]
            trace = mutator.mutated(point.trace, rng)
            if trace is not None:
                return self._replayed(trace, rng.randrange(1 << 30))
        return self.draw(rng)

    def between(self, a: Traced, b: Traced, rng: random.Random) -> Candidate:
        """A point with some decisions of one, the others of another, if both are of one design."""
        if [i.name for i in a.trace.insts] != [i.name for i in b.trace.insts]:
            return self.near(rng.choice((a, b)), rng)
        trace = a.trace
        for one, other in zip(a.trace.insts, b.trace.insts):
            if one.kind.random and rng.random() < 0.5:
                trace = trace.with_decision(one, b.trace.get_decision(other))
        return self._replayed(trace, rng.randrange(1 << 30))

    def point_from_json(self, data: Any) -> Traced:
        """What `Traced.as_json` gave. Raises ScheduleError if it is no trace of this function."""
        sch = self._start.copy()
        Trace.apply_json_to_schedule(data, sch)
        return Traced(sch.trace)

    def _replayed(self, trace: Trace, seed: int) -> Candidate:
        sch = self._start.copy()
        sch.seed(seed)
        try:
            trace.apply_to_schedule(sch, remove_postproc=True)
        except (ScheduleError, TIRError) as error:
            self._refuse(str(error).split(":")[0], str(error))
        point = Traced(sch.trace.copy())
        sch.enter_postproc()
        for postproc in self.generator.postprocs:
            name = type(postproc).__name__
            fine, why = False, "it gives False"
            with asked(postproc, "apply"):
                try:
                    fine = postproc.apply(sch)
                except (ScheduleError, TIRError) as error:
                    why = str(error)
            if not fine:
                self._refuse(name, why)
        return Candidate(point, sch)

    def _refuse(self, name: str, why: str) -> NoReturn:
        self.refused[name] = self.refused.get(name, 0) + 1
        self.reasons[name] = why
        raise ScheduleError(f"{name} refused the candidate: {why}")


def _undecided(trace: Trace) -> Trace:
    return Trace(trace.insts)


class Of(NamedTuple):
    """A point of one of several spaces."""

    space: str
    point: Any

    def as_json(self) -> Any:
        """For `json.dump`."""
        return {"space": self.space, "point": self.point.as_json()}


class UnionSpace:
    """Several spaces of a function as one: a `DesignSpace` of `Of` points. Points of different
    spaces have no children in between.

    Each is drawn from as often as what it won for the seconds it took says, and never given up.

    spaces  by name; the default is that of the first, which points without a name are of too
    shares  how often each is drawn from before anything is known
    """

    def __init__(self, spaces: Mapping[str, DesignSpace], shares: Mapping[str, float]) -> None:
        self.spaces = dict(spaces)
        self._hopes = {name: _FIRST_WON * shares[name] for name in self.spaces}
        self._won = dict.fromkeys(self.spaces, 0.0)
        self._spent = dict.fromkeys(self.spaces, 0.0)
        self._first = next(iter(self.spaces))
        self.fn = self.spaces[self._first].fn

    @property
    def shares(self) -> dict[str, float]:
        """How often each is drawn from."""
        rates = {
            name: (hope + self._won[name]) / (_FIRST_SECONDS + self._spent[name])
            for name, hope in self._hopes.items()
        }
        free, total = 1 - _LEAST_SHARE * len(rates), sum(rates.values())
        return {name: _LEAST_SHARE + free * rate / total for name, rate in rates.items()}

    def learn(self, point: Of, won: float) -> None:
        """A point was measured. won: by how much it is faster than all before, as a logarithm."""
        for name in self.spaces:
            self._won[name] *= _FADES
            self._spent[name] *= _FADES
        self._won[point.space] += won
        self._spent[point.space] += _TRIAL_SECONDS

    @property
    def refused(self) -> dict[str, int]:
        """Of all spaces."""
        counts: dict[str, int] = {}
        for space in self.spaces.values():
            for name, count in space.refused.items():
                counts[name] = counts.get(name, 0) + count
        return counts

    @property
    def reasons(self) -> dict[str, str]:
        """Of all spaces."""
        return {n: why for space in self.spaces.values() for n, why in space.reasons.items()}

    def default(self) -> Candidate:
        """That of the first space."""
        return self._of(self._first, self.spaces[self._first].default())

    def candidate(self, point: Of) -> Candidate:
        """The schedule of a point."""
        return self._of(point.space, self.spaces[point.space].candidate(point.point))

    def draw(self, rng: random.Random) -> Candidate:
        """A point of any of them."""
        (name,) = rng.choices(*zip(*self.shares.items()))
        return self._timed(name, lambda space: space.draw(rng))

    def near(self, point: Of, rng: random.Random) -> Candidate:
        """A point of the same space that differs from another in one decision or few."""
        return self._timed(point.space, lambda space: space.near(point.point, rng))

    def between(self, a: Of, b: Of, rng: random.Random) -> Candidate:
        """A point with some decisions of one, the others of another, if they are of one space."""
        if a.space != b.space:
            return self.near(rng.choice((a, b)), rng)
        return self._timed(a.space, lambda space: space.between(a.point, b.point, rng))

    def _timed(self, name: str, draw: Callable[[DesignSpace], Candidate]) -> Candidate:
        begun = time.perf_counter()
        try:
            return self._of(name, draw(self.spaces[name]))
        finally:
            self._spent[name] += time.perf_counter() - begun

    def point_from_json(self, data: Any) -> Of:
        """What `Of.as_json` gave. Raises ScheduleError for what is no point of these spaces."""
        name, point = self._first, data
        if isinstance(data, dict) and data.keys() == {"space", "point"}:
            name, point = data["space"], data["point"]
        if name not in self.spaces:
            raise ScheduleError(f"no space is called {name!r}; there are: {', '.join(self.spaces)}")
        return Of(name, self.spaces[name].point_from_json(point))

    def _of(self, name: str, candidate: Candidate) -> Candidate:
        return Candidate(Of(name, candidate.point), candidate.schedule)


def whole_space(mod: IRModule | PrimFunc, target: Any = None) -> UnionSpace:
    """What is searched where nothing is said: what is known of such blocks, then what rules for any
    blocks design, with those that users registered for theirs.
    """
    spaces: dict[str, DesignSpace] = {"known": Space(mod, target), "rules": TraceSpace(mod, target)}
    return UnionSpace(spaces, {"known": _KNOWN, "rules": 1 - _KNOWN})


__getattr__ = submodules(__name__)
