"""`Mutator`: rewriting the tree of modules.

class Quantise(nn.Mutator):
    def visit_module(self, name, node):
        return QuantLinear(node) if isinstance(node, nn.Linear) else self.visit(name, node)

model = Quantise().visit_module("", model)
"""

from __future__ import annotations

from typing import Any

from .core import (
    Effect,
    Module,
    ModuleDict,
    ModuleList,
    Parameter,
    ParameterDict,
    ParameterList,
)


class Mutator:
    """Replaces parts of a model: each `visit_*` gets the name of a part (``layers.0.linear``) and
    the part, and gives what is to stand there. Those not overridden visit what is below.
    """

    def visit_module(self, name: str, node: Module) -> Any:
        """A module."""
        return self.visit(name, node)

    def visit_effect(self, name: str, node: Effect) -> Any:
        """An effect."""
        return node

    def visit_param(self, name: str, node: Parameter) -> Any:
        """A parameter."""
        return node

    def visit_moduledict(self, name: str, node: ModuleDict) -> Any:
        """A `ModuleDict`."""
        return self.visit(name, node)

    def visit_modulelist(self, name: str, node: ModuleList) -> Any:
        """A `ModuleList`."""
        return self.visit(name, node)

    def visit_parameterdict(self, name: str, node: ParameterDict) -> Any:
        """A `ParameterDict`."""
        return self.visit(name, node)

    def visit_parameterlist(self, name: str, node: ParameterList) -> Any:
        """A `ParameterList`."""
        return self.visit(name, node)

    def visit(self, name: str, node: Any) -> Any:
        """Visit what is below `node`, put what that gives in its place, and give `node`."""
        for key, child in list(node.children()):
            method = next((m for kind, m in _METHODS if isinstance(child, kind)), None)
            if method is None:
                continue
            mutated = getattr(self, method)(f"{name}.{key}" if name else key, child)
            if mutated is child:
                continue
            if isinstance(node, (ModuleList, ParameterList)):
                node[int(key)] = mutated
            elif isinstance(node, (ModuleDict, ParameterDict)):
                node[key] = mutated
            else:
                setattr(node, key, mutated)
        return node


# The first that fits.
_METHODS: tuple[tuple[type, str], ...] = (
    (ParameterDict, "visit_parameterdict"),
    (ParameterList, "visit_parameterlist"),
    (ModuleDict, "visit_moduledict"),
    (ModuleList, "visit_modulelist"),
    (Module, "visit_module"),
    (Effect, "visit_effect"),
    (Parameter, "visit_param"),
)
