"""`relay.backend`: what runs a graph, as newer tutorials for Relay say it.

lib = relay.build(mod, "llvm", params=params, executor=Executor("graph", {"link-params": True}))
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from ..base import PassError, submodules


class _Choice:
    """A name of those that there are, and options."""

    names: ClassVar[tuple[str, ...]]
    known: ClassVar[tuple[str, ...]]

    def __init__(self, name: str, options: Mapping[str, Any] | None = None) -> None:
        kind = type(self).__name__
        if name not in self.names:
            raise PassError(f"{kind}: wanted one of {', '.join(self.names)}, got {name!r}")
        self.name = name
        self.options = dict(options or {})
        unknown = [key for key in self.options if key not in self.known]
        if unknown:
            raise PassError(
                f"{kind}: no option is named {unknown[0]!r}; these are: {', '.join(self.known)}"
            )

    def __getitem__(self, key: str) -> Any:
        return self.options[key]

    def __contains__(self, key: str) -> bool:
        return key in self.options

    def __eq__(self, other: object) -> bool:
        same = type(self) is type(other)
        return same and vars(self) == vars(other)

    def __hash__(self) -> int:
        return hash((type(self), self.name))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.options})"


class Executor(_Choice):
    """What runs a graph: "graph", an interpreter of its nodes.

    options  "link-params": whether the library holds the parameters
    """

    names = ("graph",)
    known = ("link-params",)


class Runtime(_Choice):
    """What kernels are called by: "cpp", this process, or "crt", a program in C (target "c")."""

    names = ("cpp", "crt")
    known = ("system-lib",)


__getattr__ = submodules(__name__)
