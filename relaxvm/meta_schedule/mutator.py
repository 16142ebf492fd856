"""Mutators: another decision for one instruction of a trace.

    class Smaller(ms.mutator.PyMutator):
        def apply(self, trace):
            ...
            return trace.with_decision(inst, decision)

Enters: a trace whose sampling instructions have decisions. Leaves: another trace, or None where the
mutator knows nothing to change. An instruction that is left without a decision is drawn anew.
"""

from __future__ import annotations

import inspect
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

from ..base import ScheduleError, record, submodules
from ..tir.schedule import Instruction, Trace
from .derived import Part, asked
from .schedule_rule.finishing import PARALLEL, UNROLL

_TILES = ("sample_perfect_tile", "sample_partitioned_tile")


class Mutator(Part):
    """Derive from it (`PyMutator`) by giving `apply`.

    rng  to draw from; the space sets it, so that the same seed gives the same search
    """

    rng = random.Random(0)

    def apply(self, trace: Trace) -> Trace | None:
        """A trace that differs in a decision, or None. Derived classes may take a seed behind the
        trace, as TVM gives them one.
        """
        raise NotImplementedError(f"{type(self).__name__} does not say what it does")

    def mutated(self, trace: Trace, rng: random.Random) -> Trace | None:
        """What `apply` gives, with `rng` to draw from."""
        self.rng = rng
        apply: Any = self.apply
        with asked(self, "apply"):
            # Bound here, so that what is raised inside is not taken for wrong arguments.
            wants_seed = len(inspect.signature(apply).parameters) > 1
            other = apply(trace, rng.randrange(1, 1 << 31)) if wants_seed else apply(trace)
            if not (other is None or isinstance(other, Trace)):
                raise ScheduleError(f"wanted a Trace or None, got {type(other).__name__}")
            return other

    @staticmethod
    def create(kind: str = "llvm") -> dict[Mutator, float]:
        """Those of TVM for CPUs, with how often each is asked. Raises ScheduleError for other kinds
        of targets.
        """
        if kind not in ("llvm", "cpu", "c"):
            raise ScheduleError(
                f"Mutator.create: code is made for CPUs here, kind is llvm, cpu or c, got {kind!r}"
            )
        return {
            MutateTileSize(): 0.85,
            MutateComputeLocation(): 0.07,
            MutateUnroll(): 0.04,
            MutateParallel(max_jobs_per_core=16): 0.04,
        }


PyMutator = Mutator
create = Mutator.create


class MutateTileSize(Mutator):
    """Move a factor of one tile of a loop to another of its tiles."""

    def apply(self, trace: Trace) -> Trace | None:
        insts = [i for i in trace.insts if i.name in _TILES and trace.get_decision(i)]
        self.rng.shuffle(insts)
        for inst in insts:
            moved = self._moved(inst, trace.get_decision(inst))
            if moved is not None:
                return trace.with_decision(inst, moved)
        return None

    def _moved(self, inst: Instruction, tiles: Sequence[int]) -> list[int] | None:
        sources = [k for k, n in enumerate(tiles) if n > 1]
        if not sources or len(tiles) < 2:
            return None
        source = self.rng.choice(sources)
        goal = self.rng.choice([k for k in range(len(tiles)) if k != source])
        factors = [n for n in range(2, tiles[source] + 1) if tiles[source] % n == 0]
        most = inst.attrs.get("max_innermost_factor", math.inf)
        if goal == len(tiles) - 1:
            factors = [n for n in factors if tiles[goal] * n <= most]
        if not factors:
            return None
        factor = self.rng.choice(factors)
        moved = list(tiles)
        moved[source] //= factor
        moved[goal] *= factor
        return moved


class MutateComputeLocation(Mutator):
    """Draw the place of a block anew."""

    def apply(self, trace: Trace) -> Trace | None:
        insts = [i for i in trace.insts if i.name == "sample_compute_location"]
        return trace.with_decision(self.rng.choice(insts), None) if insts else None


class MutateUnroll(Mutator):
    """Choose another limit for loops that are written out."""

    def apply(self, trace: Trace) -> Trace | None:
        marks = [i for i in trace.insts if i.attrs.get("ann_key") in UNROLL.values()]
        return _chosen_anew(trace, [v for i in marks for v in i.inputs], self.rng)


class MutateThreadBinding(Mutator):
    """Choose another number of threads of a GPU; None where no loop is bound to them."""

    def apply(self, trace: Trace) -> Trace | None:
        bound = {id(v) for i in trace.insts if i.name == "bind" for v in i.inputs}
        splits = [
            i for i in trace.insts if i.name == "split" and any(id(o) in bound for o in i.outputs)
        ]
        return _chosen_anew(trace, [v for i in splits for v in i.inputs], self.rng)


@record(values=False, frozen=False)
class MutateParallel(Mutator):
    """Share nests out into more jobs, or fewer.

    max_jobs_per_core  how many for each core at most
    """

    max_jobs_per_core: int

    def apply(self, trace: Trace) -> Trace | None:
        from_core = [1 << k for k in range(max(1, self.max_jobs_per_core).bit_length())]
        for k, inst in _annotations(trace, PARALLEL):
            now = inst.args["ann_val"]
            others = [n for n in (1, *(self.cores * each for each in from_core)) if n != now]
            insts = list(trace.insts)
            args = {**inst.args, "ann_val": self.rng.choice(others)}
            insts[k] = Instruction.of(inst.kind, args, inst.outputs)
            decided = {n: trace.get_decision(i) for n, i in enumerate(trace.insts)}
            return Trace(insts, {n: d for n, d in decided.items() if d is not None})
        return None


def _annotations(trace: Trace, key: str) -> Iterator[tuple[int, Instruction]]:
    for k, inst in enumerate(trace.insts):
        if inst.name == "annotate" and inst.args["ann_key"] == key:
            yield k, inst


def _chosen_anew(trace: Trace, numbers: Sequence[Any], rng: random.Random) -> Trace | None:
    """Another choice of one of `numbers` that was drawn from a list, each as likely as it says."""
    wanted = {id(v) for v in numbers}
    insts = [
        i
        for i in trace.insts
        if i.name == "sample_categorical"
        and id(i.outputs[0]) in wanted
        and len(i.args["candidates"]) > 1
    ]
    if not insts:
        return None
    inst = rng.choice(insts)
    weights = list(map(float, inst.args["probs"]))
    now = trace.get_decision(inst)
    if now is not None:
        weights[now] = 0.0
    if not any(weights):
        return None
    return trace.with_decision(inst, rng.choices(range(len(weights)), weights)[0])


__getattr__ = submodules(__name__)
