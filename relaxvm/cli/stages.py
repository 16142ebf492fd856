"""What a build makes of a model on its way, and which of its nodes an instruction computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ..base import Deferred
from ..runtime import Executable, bytecode

if TYPE_CHECKING:
    from .. import ir, relax
else:
    ir = Deferred("relaxvm.ir")
    relax = Deferred("relaxvm.relax")

# Passes behind which a module is kept -> the stage it has reached then.
_KEPT = {
    "graph_to_legal": "legal",
    "legal_to_fused": "fused",
    "fused_to_planned": "planned",
    "pack": "packed",
}


class Stages:
    """An instrument that keeps the module at each stage of a build: "graph", "legal", "fused",
    "planned", and "packed", which is compiled.
    """

    def __init__(self) -> None:
        self.modules: dict[str, Any] = {}

    def run_before_pass(self, mod: Any, info: Any) -> None:
        if info.name == "graph_to_legal":
            self.modules["graph"] = mod

    def run_after_pass(self, mod: Any, info: Any) -> None:
        if info.name in _KEPT:
            self.modules[_KEPT[info.name]] = mod


def nodes_of_instructions(
    program: Executable, stages: Stages
) -> dict[tuple[str, int], tuple[str, ...]]:
    """{(function, instruction): nodes of the model} for calls of kernels; what cannot be told is
    left out.
    """
    nodes: dict[tuple[str, int], tuple[str, ...]] = {}
    mod: Any = stages.modules.get("packed", {})
    section = program.kernels
    kernels = {info.name for info in (section.infos if section is not None else ())}
    for info in program.vm_functions:
        if info.name not in mod:
            continue
        calls = [
            (pc, program.functions[each.func].name)
            for pc, each in enumerate(program.instructions(info))
            if isinstance(each, bytecode.Call) and program.functions[each.func].name in kernels
        ]
        spans = [
            (name, span) for name, span in _kernel_calls(mod[info.name].body) if name in kernels
        ]
        if [name for _, name in calls] == [name for name, _ in spans]:
            for (pc, _), (_, span) in zip(calls, spans):
                names = tuple(part.name for part in span.parts or (span,) if part.name)
                if names:
                    nodes[info.name, pc] = names
    return nodes


def _kernel_calls(body: Any) -> Iterator[tuple[str, Any]]:
    """(kernel, span) of the calls in a function's body, in the order in which they are compiled."""
    for block in getattr(body, "blocks", ()):
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                yield from _kernel_calls(value.true_branch)
                yield from _kernel_calls(value.false_branch)
            elif isinstance(value, relax.Call) and isinstance(value.op, ir.GlobalVar):
                yield value.op.name_hint, value.span
