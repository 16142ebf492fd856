"""What is known of a verified program's functions before it is linked: instructions as `Op`s,
register files with their constants, the memory that is prepared for them.

The linker adds what belongs to one machine: kernels, externs, the machine itself. The code
generator reads what is here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from ..base import components
from .builtin import TABLE
from .builtin_row import Builtin, Effect
from .bytecode import VM, VOID, Arg, ArgKind, Call, Goto, If, Ret
from .frame import Plan, plan_frame
from .ops import Op, OpKind
from .program import FunctionInfo, Program
from .verify import (
    DYNAMIC,
    builtin_args,
    builtin_called,
    killed_register,
    leaders_of,
    static_values,
)

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = ArgKind
_MAX_FOLLOWED = 64
# Stands for all functions that are used as values.
_ANY_VALUE = ""
_R = TypeVar("_R", bound="ResolvedFunction")


class _Machine:
    def __repr__(self) -> str:
        return "the virtual machine"


THE_MACHINE = _Machine()
"""Stands for the machine in a register file."""


class ResolvedFunction:
    """One VM function.

    template  the register file a call begins with: registers, then `account`, trash and constants.
              A `FunctionInfo` in it stands for that function, THE_MACHINE for the machine.
    ops       one per instruction; those of kernels, externs and VM functions name their callees
              and have no `function`
    leaders   the instructions that begin blocks
    plan      what of its memory is prepared
    reuse_memory  whether memory of one call may serve the next
    """

    __slots__ = ("account", "info", "leaders", "ops", "plan", "program", "reuse_memory", "template")

    def __init__(
        self,
        program: Program,
        info: FunctionInfo,
        circles: Mapping[str, int],
        reuse_memory: bool,
    ) -> None:
        self.program = program
        self.info = info
        resolver = _Resolver(program, info)
        instructions = program.instructions(info)
        self.ops = [resolver.op(pc, instruction) for pc, instruction in enumerate(instructions)]
        self.account = resolver.account
        self.template = resolver.template
        mark_tail_calls(self.ops, info.name, circles)
        self.leaders = leaders_of(instructions)
        self.plan = Plan()
        self.reuse_memory = reuse_memory
        if reuse_memory:
            self.plan = plan_frame(self.ops, info, self.leaders, self.template)
        for scope, seen in self.plan.arenas.values():
            self.plan.places.append((len(self.template), scope, seen))
            self.template.append(None)


def resolve_program(program: Program, reuse_memory: bool, make: Callable[..., _R]) -> list[_R]:
    """The VM functions of a verified program, in its order, as objects of `make`.

    reuse_memory  whether memory is prepared for them
    """
    circles = call_circles(program)
    return [make(program, f, circles, reuse_memory) for f in program.vm_functions]


class _Resolver:
    """Makes the ops of one function, and its register file."""

    def __init__(self, program: Program, info: FunctionInfo) -> None:
        self._program = program
        self._returning = _returning_kernels(program)
        self._places: dict[Arg, int] = {}
        # What builtins were bound to: layers repeat their shapes.
        self._bounds: dict[tuple[Builtin, tuple[int, ...], tuple[Arg, ...]], Any] = {}
        self.template: list[Any] = [None] * (info.register_file_size + 2)
        self.account = info.register_file_size
        self._trash = self.account + 1

    def op(self, pc: int, instruction: object) -> Op:
        """The instruction at `pc`."""
        if type(instruction) is Call:
            killed = killed_register(self._program, instruction)
            return self._call(instruction) if killed is None else Op(OpKind.KILL, args=(killed,))
        if type(instruction) is Ret:
            return Op(OpKind.RET, args=(self._arg(instruction.value),))
        if type(instruction) is Goto:
            return Op(OpKind.GOTO, target=pc + instruction.offset)
        assert type(instruction) is If
        return Op(OpKind.IF, args=(instruction.cond,), target=pc + instruction.false_offset)

    def _arg(self, arg: Arg) -> int:
        """Where an argument lies in the register file."""
        kind, value = arg
        if kind == _REGISTER and value < VOID:
            return value
        place = self._places.get(arg)
        if place is None:
            place = self._places[arg] = len(self.template)
            self.template.append(self._value(kind, value))
        return place

    def _value(self, kind: ArgKind, value: int) -> Any:
        if kind == _REGISTER:
            return THE_MACHINE if value == VM else None
        if kind == _IMMEDIATE:
            return value
        if kind == _CONSTANT:
            return self._program.constants[value]
        return self._program.functions[value]

    def _call(self, call: Call) -> Op:
        info = self._program.functions[call.func]
        dst = self._trash if call.dst == VOID else call.dst
        builtin = builtin_called(self._program, call)
        if builtin is None:
            kind = OpKind.EXTERN
            if info.kind == "vm":
                kind = OpKind.FUNCTION
            elif info.kind == "kernel" and info.name not in self._returning:
                kind = OpKind.KERNEL
            return Op(kind, None, info.name, dst, tuple(map(self._arg, call.args)))
        kind = OpKind.INVOKE if builtin.effect is Effect.INVOKE else OpKind.BUILTIN
        function, operands = self._bound(builtin, builtin_args(call.args))
        args = tuple(map(self._arg, operands))
        if builtin.account:
            args = (self.account, *args)
        size_bytes = getattr(function, "size_bytes", -1)
        return Op(kind, function, info.name, dst, args, builtin=builtin, size_bytes=size_bytes)

    def _bound(self, builtin: Builtin, operands: tuple[Arg, ...]) -> tuple[Any, tuple[Arg, ...]]:
        """The function for a call, which knows the constants as far as it can, and the operands
        that are left for it.
        """
        ways = [] if builtin.bind is None else [(tuple(range(builtin.dynamic)), builtin.bind)]
        if builtin.partly is not None and len(operands) == len(builtin.fixed):
            ways.append(builtin.partly)
        for left, bind in ways:
            known = tuple([operand for i, operand in enumerate(operands) if i not in left])
            key = (builtin, left, known)
            if key not in self._bounds:
                values = static_values(self._program, known)
                unknown = any(value is DYNAMIC for value in values)
                self._bounds[key] = None if unknown else bind(*values)
            function = self._bounds[key]
            if function is not None:
                return function, tuple([operands[i] for i in left])
        return builtin.function, operands


def _returning_kernels(program: Program) -> frozenset[str]:
    infos = () if program.kernels is None else program.kernels.infos
    return frozenset(info.name for info in infos if info.returns)


# Tail calls: those whose value is the caller's own, and which may take its place. Only calls that
# can come back to the caller are marked, so that recursion written as a loop needs no depth, while
# the notes on an exception still name the callers of everything else.


def call_circles(program: Program) -> dict[str, int]:
    """For each VM function the number of its circle: those that may call one another in turn."""
    calls: dict[str, set[str]] = {info.name: set() for info in program.vm_functions}
    values: set[str] = set()
    for info in program.vm_functions:
        mine = calls[info.name]
        for callee, called in program.mentioned(info):
            if callee.kind == "vm":
                (mine if called else values).add(callee.name)
            elif called and callee.name in TABLE and TABLE[callee.name].effect is Effect.INVOKE:
                mine.add(_ANY_VALUE)
    calls[_ANY_VALUE] = values
    circles = components(calls, calls)
    return {name: number for number, group in enumerate(circles) for name in group}


def mark_tail_calls(ops: list[Op], caller: str, circles: Mapping[str, int]) -> None:
    """Mark the calls among `ops` of the VM function `caller` after which there is nothing but
    jumps, moves and kills before their value is returned, and which may come back to it.
    """
    mine = circles[caller]
    for pc, op in enumerate(ops):
        if op.kind == OpKind.FUNCTION:
            callee = op.symbol
        elif op.kind == OpKind.INVOKE:
            callee = _ANY_VALUE
        else:
            continue
        if circles[callee] == mine and _is_returned(ops, pc):
            ops[pc] = op._replace(tail=True)


def _is_returned(ops: list[Op], pc: int) -> bool:
    held, following = ops[pc].dst, pc + 1
    for _ in range(_MAX_FOLLOWED):
        op = ops[following]
        if op.kind == OpKind.RET:
            return op.args[0] == held
        if op.kind == OpKind.GOTO:
            following = op.target
        elif _is_move(op) and op.args[0] == held:
            held, following = op.dst, following + 1
        elif op.kind == OpKind.KILL and op.args[0] != held:
            following += 1
        else:
            return False
    return False


def _is_move(op: Op) -> bool:
    return op.builtin is not None and op.builtin.effect is Effect.SAME and not op.builtin.raises
