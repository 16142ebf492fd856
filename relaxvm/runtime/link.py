"""From resolved functions to something a loop can run quickly.

Callees are put into the ops and register files of `resolve`. The careful loop runs the ops as they
are; rows of them become blocks of small tuples, specialised by what is called and with how many
arguments, for the fast loop.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import LinkError, VMTypeError, collecting_seldom
from .builtin import TABLE, VMClosure
from .builtin_row import Builtin
from .frame import Frames
from .library import LIBRARY
from .limits import Account
from .native import KernelFunction
from .ops import OpKind, Step
from .program import FunctionInfo, Program
from .registry import get_global_func, nearest_names
from .resolve import THE_MACHINE, ResolvedFunction, resolve_program
from .steps import Blocks
from .verify import arguments_problem

# Ops whose callees have names, which differ from machine to machine.
_NAMED = (OpKind.KERNEL, OpKind.EXTERN, OpKind.FUNCTION)


class LinkedFunction(ResolvedFunction):
    """A VM function ready to run: its callees and the machine are where they are used.

    beyond_inputs  the template without the parameters, which come first
    steps     the ops for the fast loop
    blocks    all of them, made when the fast loop first runs the function
    frames    register files with their storage prepared
    """

    beyond_inputs: list[Any]
    steps: Blocks
    blocks: tuple[tuple[Step, ...], ...]
    frames: Frames | None = None

    def __init__(self, vm: Any, *resolved: Any) -> None:
        super().__init__(*resolved)
        self.vm = vm
        self.name = self.info.name
        self.num_inputs = self.info.num_inputs

    def link(self, callees: Mapping[str, Any]) -> None:
        """Put the machine and `callees`, by name, where they are used."""
        self.template = [self._value(value, callees) for value in self.template]
        self.beyond_inputs = self.template[self.num_inputs :]
        self.ops = [
            op._replace(function=callees[op.symbol]) if op.kind in _NAMED else op for op in self.ops
        ]
        if self.plan.storages or self.plan.places:
            self.frames = Frames(self.template, self.plan)
        registers = self.info.register_file_size
        self.steps = Blocks(self.ops, self.plan, self.leaders, registers, self.reuse_memory)

    def __getattr__(self, name: str) -> Any:
        # `cached_property` has a lock, which a child of `fork` may find taken.
        if name != "blocks":
            raise AttributeError(f"a linked function has no attribute {name!r}")
        self.blocks = tuple([self.steps.block(pc) for pc in self.steps.starts])
        return self.blocks

    def _value(self, value: Any, callees: Mapping[str, Any]) -> Any:
        if value is THE_MACHINE:
            return self.vm
        if type(value) is not FunctionInfo:
            return value
        if value.kind == "packed" and value.name in TABLE:
            return BuiltinValue(value.name, TABLE[value.name])
        callee = callees[value.name]
        return VMClosure(callee) if value.kind == "vm" else callee

    def __repr__(self) -> str:
        return f"<VM function {self.info.signature()}>"


@collecting_seldom()
def link_program(
    vm: Any,
    program: Program,
    kernels: Mapping[str, KernelFunction],
    granted: Mapping[str, Callable[..., Any]] | None,
    reuse_memory: bool,
) -> dict[str, LinkedFunction]:
    """The VM functions of a verified program by name, with all callees resolved.

    granted  where externs come from; None: the global registry

    Raises LinkError listing every extern that is missing.
    """
    linked = resolve_program(program, reuse_memory, functools.partial(LinkedFunction, vm))
    functions = {each.name: each for each in linked}
    homes: Mapping[str, Mapping[str, Any]] = {
        "vm": functions,
        "kernel": kernels,
        "packed": _resolve_externs(program, granted),
    }
    callees = {
        info.name: homes[info.kind][info.name]
        for info in program.functions
        if info.kind != "packed" or info.name not in TABLE
    }
    for each in linked:
        each.link(callees)
    return functions


def _resolve_externs(
    program: Program, granted: Mapping[str, Callable[..., Any]] | None
) -> dict[str, Callable[..., Any]]:
    resolved: dict[str, Callable[..., Any]] = dict(LIBRARY)
    missing: list[str] = []
    for name in program.needs():
        function = get_global_func(name, True) if granted is None else granted.get(name)
        if function is None:
            missing.append(name)
        elif not callable(function):
            raise VMTypeError(
                f"functions[{name!r}]: wanted a callable, got {type(function).__name__}"
            )
        else:
            resolved[name] = function
    if missing:
        known = None if granted is None else list(granted)
        listed = "".join(f"\n  {name}{nearest_names(name, known)}" for name in missing)
        where = "registered" if granted is None else "granted by functions="
        raise LinkError(
            f"the program needs {len(missing)} functions that are not {where}:{listed}\n"
            "register them with relaxvm.register_func before making the VM, "
            "or pass functions={name: f}"
        )
    return resolved


class BuiltinValue:
    """A builtin as a value: its arguments are known only when it is called, and checked then."""

    __slots__ = ("_builtin", "name")

    def __init__(self, name: str, builtin: Builtin) -> None:
        self.name = name
        self._builtin = builtin

    def __call__(self, *args: Any) -> Any:
        return self.run(None, args)

    def run(self, account: Account | None, args: Sequence[Any]) -> Any:
        """Call it on behalf of a run that has `account`."""
        problem = arguments_problem(self._builtin, args)
        if problem is not None:
            raise VMTypeError(f"{self.name} {problem}")
        if self._builtin.account:
            return self._builtin.function(account, *args)
        return self._builtin.function(*args)

    def __repr__(self) -> str:
        return f"<{self.name}>"
