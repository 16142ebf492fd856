"""How a model is built as a whole, where that was measured: `Choices`, and how builds come by them.

tuned = relaxvm.tune(mod, seconds=120)     tries some on the whole model
with tuned.database:
    relaxvm.build(mod)                     obeys what was fastest
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import asdict, field
from typing import Any

from .base import LoadError, decided, record
from .ir import IRModule, Map, PassContext
from .relax import transform
from .target import Target
from .tir.schedule.plans import SOURCES

CORES = "num-cores"
"""The option of targets."""


@record
class Choices:
    """What a build decides about a model as a whole. What is left out is as in any other build.

    exec_mode  as of `relax.build`
    cores      of targets that do not say how many they have
    without    passes that do not run
    layouts    as of `relax.transform.ConvertLayout`, which runs first
    """

    exec_mode: str | None = None
    cores: int | None = None
    without: tuple[str, ...] = ()
    layouts: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """For `json.dump`; `choices_from_json` reads it."""
        return {**asdict(self), "without": list(self.without)}

    def __str__(self) -> str:
        told = [f"exec_mode={self.exec_mode}"] if self.exec_mode else []
        told += [f"{self.cores} core{'s' * (self.cores > 1)}"] if self.cores else []
        told += [f"without {name}" for name in self.without]
        told += [f"{name} as {', '.join(wanted)}" for name, wanted in self.layouts.items()]
        return "; ".join(told) or "the default build"

    def target(self, target: Target) -> Target:
        """`target` with these cores."""
        if self.cores is None or CORES in target.options:
            return target
        options = Map({**target.options, CORES: self.cores})
        return Target(target.kind_name, options, target.host)

    def passes(self) -> AbstractContextManager[object]:
        """The current context without these passes, to be entered."""
        if not self.without:
            return nullcontext()
        context = copy(PassContext.current())
        context.disabled_pass = (*context.disabled_pass, *self.without)
        return context

    def converted(self, mod: IRModule) -> IRModule:
        """`mod` in these layouts."""
        return transform.ConvertLayout(self.layouts)(mod) if self.layouts else mod


def choices_from_json(saved: Any) -> Choices:
    """What `Choices.as_json` gave. Raises LoadError for anything else."""
    match saved:
        case {
            "exec_mode": None | "bytecode" | "compiled" as exec_mode,
            "cores": int() | None as cores,
            "without": [*without],
            "layouts": dict(layouts),
        } if all(type(name) is str for name in without) and (cores is None or cores > 0):
            return Choices(exec_mode, cores, tuple(without), layouts)
    raise LoadError("choices are saved as a map: exec_mode, cores, without, layouts")


def model_key(mod: IRModule) -> str:
    """The same text for models that compute the same; the contents of weights do not count."""
    return f"model {hashlib.sha256(mod.script().encode()).hexdigest()}"


def choices_for(mod: IRModule, target: Target) -> Choices:
    """What the innermost of the databases that are entered knows of `mod` on `target`."""
    key = ""
    for source in reversed(SOURCES.get()):
        # A database that was entered, or a function of the user's.
        database: Any = getattr(source, "__self__", None)
        if getattr(database, "knows_models", False):
            key = key or model_key(mod)
            saved = database.query_choices(key, target)
            if saved is not None:
                try:
                    chosen = choices_from_json(saved)
                except LoadError as error:
                    warnings.warn(f"what was tuned of the model is left out: {error}", stacklevel=2)
                    return Choices()
                decided("built as it was measured to be fastest: {}", chosen)
                return chosen
    return Choices()
