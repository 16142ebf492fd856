"""What a build makes of a model on its way, and which of its nodes an instruction computes."""

from __future__ import annotations

from typing import Any

from ..base import UNKNOWN
from ..runtime import TABLE, Executable, bytecode

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


def nodes_of_instructions(program: Executable) -> dict[tuple[str, int], tuple[str, ...]]:
    """{(function, instruction): nodes of the model, or source lines} for calls of kernels and of
    functions from outside, as far as the program tells.
    """
    nodes: dict[tuple[str, int], tuple[str, ...]] = {}
    computing = {f.name for f in program.functions}.difference(program.globals, TABLE)
    for info in program.vm_functions:
        for pc, each in enumerate(program.instructions(info)):
            if not isinstance(each, bytecode.Call):
                continue
            span = program.source_of(info.name, pc)
            if program.functions[each.func].name in computing and span is not UNKNOWN:
                nodes[info.name, pc] = tuple(map(str, span.parts or (span,)))
    return nodes
