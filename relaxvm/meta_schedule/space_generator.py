"""Space generators: the designs of a loop function, schedules whose traces draw what is left open.

    ms.space_generator.PostOrderApply(sch_rules=[...])   what schedule rules make of each block
    ms.space_generator.ScheduleFn(f)                     what a function makes of the whole

Enters: a module. Leaves: schedules. Not done here: drawing and changing decisions (`trace_space`).
"""

from __future__ import annotations

import functools
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import ScheduleError, submodules
from ..ir import IRModule
from ..tir import Block, PrimFunc
from ..tir.schedule import BlockRV, Schedule
from ..tir.schedule.plans import root_of
from .derived import Part, asked
from .mutator import Mutator
from .postproc import Postproc
from .schedule_rule import ApplyCustomRule, ScheduleRule
from .schedule_rule.custom import custom_rule, schedules_of

_FROM_TARGET = "from-target"


class SpaceGenerator(Part):
    """Derive from it (`PySpaceGenerator`) by giving `generate_design_space`.

    sch_rules      the rules for blocks
    postprocs      what finishes candidates, and refuses them
    mutator_probs  what changes traces, with how often it is asked
                   Each is "from-target" (those of TVM), a kind ("llvm"), a list of one's own or
                   None for none
    """

    def __init__(
        self,
        sch_rules: Sequence[ScheduleRule] | str | None = _FROM_TARGET,
        postprocs: Sequence[Postproc] | str | None = _FROM_TARGET,
        mutator_probs: Mapping[Mutator, float] | str | None = _FROM_TARGET,
    ) -> None:
        self.sch_rules = _parts(sch_rules, ScheduleRule)
        self.postprocs = _parts(postprocs, Postproc)
        self.mutator_probs = _probs(mutator_probs)

    # What a derived class has that does not call `__init__`.

    _rng: random.Random | None = None

    @functools.cached_property
    def sch_rules(self) -> list[ScheduleRule]:
        return _parts(_FROM_TARGET, ScheduleRule)

    @functools.cached_property
    def postprocs(self) -> list[Postproc]:
        return _parts(_FROM_TARGET, Postproc)

    @functools.cached_property
    def mutator_probs(self) -> dict[Mutator, float]:
        return _probs(_FROM_TARGET)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        """The designs of a module."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it generates")

    def _initialize_with_tune_context(self, context: Any) -> None:
        self.context = context
        self._rng = random.Random(context.rand_state)
        for part in (*self.sch_rules, *self.postprocs, *self.mutator_probs):
            part.initialize_with_tune_context(context)

    def clone(self) -> Any:
        other = super().clone()
        other.sch_rules = [rule.clone() for rule in self.sch_rules]
        other.postprocs = [postproc.clone() for postproc in self.postprocs]
        other.mutator_probs = {m.clone(): chance for m, chance in self.mutator_probs.items()}
        return other

    def seed(self) -> int | None:
        """What a schedule draws by: in a context, numbers that follow from its `rand_state`."""
        return None if self._rng is None else self._rng.randrange(1, 1 << 31)

    @staticmethod
    def create(kind: Any = "post-order-apply", *args: Any, **options: Any) -> SpaceGenerator:
        """A generator by its kind: "post-order-apply", "union", or a function for `ScheduleFn`."""
        if callable(kind):
            return ScheduleFn(kind, *args, **options)
        if kind not in _KINDS:
            raise ScheduleError(
                f"SpaceGenerator.create: kind is one of {', '.join(_KINDS)}, or a function that "
                f"schedules, got {kind!r}"
            )
        generator: SpaceGenerator = _KINDS[kind](*args, **options)
        return generator


PySpaceGenerator = SpaceGenerator
create = SpaceGenerator.create


def _kind(parts: Any) -> str:
    return "llvm" if parts == _FROM_TARGET else parts if isinstance(parts, str) else ""


def _probs(parts: Any) -> dict[Mutator, float]:
    probs: Any = Mutator.create(_kind(parts)) if _kind(parts) else parts
    for mutator, chance in (probs or {}).items():
        if not isinstance(mutator, Mutator) or not chance >= 0:
            raise ScheduleError(
                f"mutator_probs: wanted {{a Mutator: how often, 0 or more}}, got "
                f"{{{type(mutator).__name__}: {chance!r}}}"
            )
    return dict(probs or {})


def _parts(parts: Any, of: Any) -> list[Any]:
    several = of.create(_kind(parts)) if _kind(parts) else list(parts or ())
    for part in several:
        if not isinstance(part, of):
            raise ScheduleError(f"wanted a list of {of.__name__}, got {type(part).__name__}")
    return several


def designs_of(generator: SpaceGenerator, mod: IRModule) -> list[Schedule]:
    """What a generator, perhaps the user's, designs. Raises ScheduleError if that is nothing."""
    with asked(generator, "generate_design_space"):
        designs = generator.generate_design_space(mod)
        if not isinstance(designs, (list, tuple)) or not all(
            isinstance(each, Schedule) for each in designs
        ):
            raise ScheduleError(f"wanted a list of Schedule, got {designs!r}")
    if not designs:
        raise ScheduleError(f"the space generator {type(generator).__name__} designs nothing")
    return list(designs)


class PostOrderApply(SpaceGenerator):
    """Each rule in turn, for each block: those that are written last come first, so that a block
    finds the loops of what reads it.

    f_block_filter  (block) -> whether rules see it; None: all
    """

    f_block_filter: Callable[[Block], bool] | None = None

    def __init__(
        self,
        f_block_filter: Callable[[Block], bool] | None = None,
        sch_rules: Sequence[ScheduleRule] | str | None = _FROM_TARGET,
        postprocs: Sequence[Postproc] | str | None = _FROM_TARGET,
        mutator_probs: Mapping[Mutator, float] | str | None = _FROM_TARGET,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.f_block_filter = f_block_filter

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        designs = [Schedule(mod, seed=self.seed(), error_render_level="fast")]
        for rule in self.sch_rules:
            designs = [d for design in designs for d in self._applied(rule, design)]
        return designs

    def _applied(self, rule: ScheduleRule, design: Schedule) -> list[Schedule]:
        """The designs that a rule makes of one."""
        designs = [design]
        for block in self._blocks(design):
            designs = [d for sch in designs for d in self._applied_to(rule, sch, block)]
        return designs

    def _applied_to(self, rule: ScheduleRule, sch: Schedule, block: BlockRV) -> list[Schedule]:
        if not sch.has_block(block):
            return [sch]
        node: Block = sch.get(block)
        if custom_rule(node) is not None and not isinstance(rule, ApplyCustomRule):
            return [sch]
        about = f", for block {node.name_hint},"
        with asked(rule, "apply", about):
            return schedules_of(rule.apply(sch, block), sch, f"{type(rule).__name__}.apply{about}")

    def _blocks(self, sch: Schedule) -> list[BlockRV]:
        blocks: list[BlockRV] = []
        for gv, fn in sch.mod.functions.items():
            level = [root_of(sch, gv.name_hint)] if isinstance(fn, PrimFunc) else []
            inside: list[BlockRV] = []
            while level:
                inside += level
                level = [child for block in level for child in sch.get_child_blocks(block)]
            names = [sch.get(block).name_hint for block in inside]
            # By their names, where those are clear, so that traces say what they are about.
            blocks += [
                sch.get_block(name, gv.name_hint) if names.count(name) == 1 else block
                for name, block in zip(names, inside)
            ]
        wants = self.f_block_filter
        return [b for b in reversed(blocks) if wants is None or wants(sch.get(b))]


class ScheduleFn(SpaceGenerator):
    """What a function makes of a schedule: it changes it, or returns one or several.

    sch_fn  (Schedule) -> None, a Schedule or a list of them
    """

    def __init__(
        self,
        sch_fn: Callable[[Schedule], Any],
        sch_rules: Sequence[ScheduleRule] | str | None = _FROM_TARGET,
        postprocs: Sequence[Postproc] | str | None = _FROM_TARGET,
        mutator_probs: Mapping[Mutator, float] | str | None = _FROM_TARGET,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.sch_fn = sch_fn

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        sch = Schedule(mod, seed=self.seed())
        with asked(self.sch_fn, getattr(self.sch_fn, "__name__", "")):
            return schedules_of(self.sch_fn(sch), sch, "the function of ScheduleFn")


class SpaceGeneratorUnion(SpaceGenerator):
    """The designs of several generators."""

    def __init__(
        self,
        space_generators: Sequence[SpaceGenerator],
        sch_rules: Sequence[ScheduleRule] | str | None = _FROM_TARGET,
        postprocs: Sequence[Postproc] | str | None = _FROM_TARGET,
        mutator_probs: Mapping[Mutator, float] | str | None = _FROM_TARGET,
    ) -> None:
        super().__init__(sch_rules, postprocs, mutator_probs)
        self.space_generators: list[SpaceGenerator] = list(space_generators)

    def generate_design_space(self, mod: IRModule) -> list[Schedule]:
        return [s for g in self.space_generators for s in g.generate_design_space(mod)]

    def _initialize_with_tune_context(self, context: Any) -> None:
        super()._initialize_with_tune_context(context)
        for generator in self.space_generators:
            generator.initialize_with_tune_context(context)

    def clone(self) -> Any:
        other = super().clone()
        other.space_generators = [generator.clone() for generator in self.space_generators]
        return other


_KINDS: dict[str, Any] = {"post-order-apply": PostOrderApply, "union": SpaceGeneratorUnion}

__getattr__ = submodules(__name__)
