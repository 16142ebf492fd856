"""From resolved functions to something a loop can run quickly.

Callees are put into the ops and register files of `resolve`. The careful loop runs the ops as they
are; rows of them become blocks of small tuples, specialised by what is called and with how many
arguments, for the fast loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import LinkError, VMTypeError
from .builtin import TABLE, Builtin, VMClosure
from .frame import Frames, take_from_arena
from .library import LIBRARY
from .limits import Account
from .native import KernelFunction
from .ops import Op, OpKind, Step, StepKind
from .program import FunctionInfo, Program
from .registry import get_global_func, nearest_names
from .resolve import THE_MACHINE, ResolvedFunction, resolve_program
from .verify import arguments_problem

# Ops whose callees have names, which differ from machine to machine.
_NAMED = (OpKind.KERNEL, OpKind.EXTERN, OpKind.FUNCTION)


class LinkedFunction:
    """A VM function ready to run.

    template  the register file a call begins with: registers, then `account`, trash and constants
    ops       one per instruction
    blocks    the same for the fast loop
    frames    register files with their storage prepared
    """

    __slots__ = (
        "__weakref__",
        "account",
        "blocks",
        "frames",
        "info",
        "name",
        "num_inputs",
        "ops",
        "plan",
        "positions",
        "program",
        "template",
        "vm",
    )

    def __init__(self, vm: Any, resolved: ResolvedFunction) -> None:
        self.vm = vm
        self.program = resolved.program
        self.info = resolved.info
        self.name = resolved.info.name
        self.num_inputs = resolved.info.num_inputs
        self.account = resolved.account
        self.plan = resolved.plan
        self.template: list[Any] = []
        self.ops: list[Op] = []
        self.blocks: tuple[tuple[Step, ...], ...] = ()
        self.positions: dict[int, int] = {}
        self.frames: Frames | None = None

    def link(self, resolved: ResolvedFunction, callees: Mapping[str, Any]) -> None:
        """Put the machine and `callees`, by name, where they are used."""
        self.template = [self._value(value, callees) for value in resolved.template]
        self.ops = [
            op._replace(function=callees[op.symbol]) if op.kind in _NAMED else op
            for op in resolved.ops
        ]
        if self.plan.storages or self.plan.places:
            self.frames = Frames(self.template, self.plan)
        self.blocks = _blocks(self, resolved.leaders)

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
    resolved = resolve_program(program, reuse_memory)
    functions = {each.info.name: LinkedFunction(vm, each) for each in resolved}
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
    for each in resolved:
        functions[each.info.name].link(each, callees)
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


_CALLS = {0: StepKind.CALL0, 1: StepKind.CALL1, 2: StepKind.CALL2, 3: StepKind.CALL3}
_KERNEL_CALLS = {1: StepKind.KERNEL1, 2: StepKind.KERNEL2, 3: StepKind.KERNEL3}


def _blocks(linked: LinkedFunction, leaders: list[int]) -> tuple[tuple[Step, ...], ...]:
    """The steps of each block.

    A call of a VM function ends one, so that the caller can go on at the next.
    """
    ops, plan = linked.ops, linked.plan
    arenas = dict(zip(plan.arenas, plan.places))
    starts = set(leaders)
    starts.update(
        pc + 1 for pc, op in enumerate(ops) if op.kind in (OpKind.FUNCTION, OpKind.INVOKE)
    )
    ordered = sorted(starts)
    index = {pc: i for i, pc in enumerate(ordered)}
    blocks: list[tuple[Step, ...]] = []
    for start, end in zip(ordered, [*ordered[1:], len(ops)]):
        steps: list[Step] = []
        for pc in range(start, end):
            if pc in plan.skipped:
                continue
            step = _step(ops[pc], pc, index, linked.info.register_file_size)
            if pc in arenas:
                size, dst = ops[pc].args[1], ops[pc].dst
                step = (StepKind.CALL2.value, take_from_arena, dst, arenas[pc][0], size, None)
            steps.append(step)
            linked.positions[id(step)] = pc
        if ops[end - 1].kind in (OpKind.BUILTIN, OpKind.KERNEL, OpKind.EXTERN, OpKind.KILL):
            steps.append((StepKind.GOTO.value, None, None, index[end], None, None))
        blocks.append(tuple(steps))
    return tuple(blocks)


def _step(op: Op, pc: int, index: dict[int, int], registers: int) -> Step:
    """One op for the fast loop. Each call makes a new tuple: its identity stands for the
    instruction.
    """
    args, count = op.args, len(op.args)
    a, b, c = (*args[:3], None, None, None)[:3]
    if op.kind == OpKind.KERNEL:
        kind = _KERNEL_CALLS.get(count)
        if kind is not None:
            return (kind.value, op.function.call, op.function, a, b, c)
        return (StepKind.KERNEL.value, op.function.call, op.function, args, None, None)
    if op.kind == OpKind.BUILTIN or (op.kind == OpKind.EXTERN and op.dst >= registers):
        # What an extern returns is made a value of the program where a register takes it.
        small = _CALLS.get(count)
        if small is not None:
            return (small.value, op.function, op.dst, a, b, c)
        return (StepKind.CALL.value, op.function, op.dst, operator.itemgetter(*args), None, None)
    if op.kind == OpKind.EXTERN:
        return (StepKind.EXTERN.value, op.function, op.dst, args, None, None)
    if op.kind == OpKind.FUNCTION:
        called = StepKind.TAIL_FUNCTION if op.tail else StepKind.FUNCTION
        return (called.value, op.function, op.dst, args, index[pc + 1], None)
    if op.kind == OpKind.INVOKE:
        called = StepKind.TAIL_INVOKE if op.tail else StepKind.INVOKE
        return (called.value, op.function, op.dst, a, b, index[pc + 1])
    if op.kind == OpKind.KILL:
        return (StepKind.KILL.value, None, a, None, None, None)
    if op.kind == OpKind.GOTO:
        return (StepKind.GOTO.value, None, None, index[op.target], None, None)
    if op.kind == OpKind.IF:
        return (StepKind.IF.value, None, None, a, index[pc + 1], index[op.target])
    return (StepKind.RET.value, None, None, a, None, None)
