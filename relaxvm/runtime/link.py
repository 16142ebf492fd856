"""From verified bytecode to something a loop can run quickly.

Every callee is resolved once and every constant placed in the register file, behind the registers.
An instruction becomes an `Op`, which the careful loop runs as it is; rows of ops become blocks of
small tuples, specialised by what is called and with how many arguments, for the fast loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import LinkError, VMTypeError
from .builtin import TABLE, Builtin, VMClosure, alloc_shaped_tensor_of
from .bytecode import VM, VOID, Arg, ArgKind, Call, Goto, If, Ret
from .disasm import instruction_text
from .frame import Frames, Plan, plan_frame, take_from_arena
from .library import LIBRARY
from .limits import Account
from .native import KernelFunction
from .ops import Op, OpKind, Step, StepKind
from .program import FunctionInfo, Program
from .registry import get_global_func, nearest_names
from .tail_calls import call_circles, mark_tail_calls
from .verify import (
    DYNAMIC,
    arguments_problem,
    builtin_args,
    killed_register,
    leaders_of,
    static_values,
)

__all__ = ["BuiltinValue", "LinkedFunction", "link_program"]

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = ArgKind


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
        "positions",
        "program",
        "template",
        "vm",
    )

    def __init__(self, vm: Any, program: Program, info: FunctionInfo) -> None:
        self.vm = vm
        self.program = program
        self.info = info
        self.name = info.name
        self.num_inputs = info.num_inputs
        self.template: list[Any] = []
        self.ops: list[Op] = []
        self.blocks: tuple[tuple[Step, ...], ...] = ()
        self.positions: dict[int, int] = {}
        self.account = 0
        self.frames: Frames | None = None

    def describe(self, pc: int | None) -> str:
        """``VM function main, instruction 3: call ...``"""
        if pc is None:
            return f"VM function {self.name}"
        instruction = self.program.instructions(self.info)[pc]
        text = " ".join(instruction_text(self.program, instruction).split())
        return f"VM function {self.name}, instruction {pc}: {text[:200]}"

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
    functions = {f.name: LinkedFunction(vm, program, f) for f in program.vm_functions}
    externs = _resolve_externs(program, granted)
    circles = call_circles(program)
    for linked in functions.values():
        _Linker(linked, functions, kernels, externs, circles).link(reuse_memory)
    return functions


def _resolve_externs(
    program: Program, granted: Mapping[str, Callable[..., Any]] | None
) -> dict[str, Callable[..., Any]]:
    found: dict[str, Callable[..., Any]] = dict(LIBRARY)
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
            found[name] = function
    if missing:
        known = None if granted is None else list(granted)
        listed = "".join(f"\n  {name}{nearest_names(name, known)}" for name in missing)
        where = "registered" if granted is None else "granted by functions="
        raise LinkError(
            f"the program needs {len(missing)} functions that are not {where}:{listed}\n"
            "register them with relaxvm.register_func before making the VM, "
            "or pass functions={name: f}"
        )
    return found


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


class _Linker:
    """Links one function."""

    def __init__(
        self,
        linked: LinkedFunction,
        functions: dict[str, LinkedFunction],
        kernels: Mapping[str, KernelFunction],
        externs: dict[str, Callable[..., Any]],
        circles: Mapping[str, int],
    ) -> None:
        self._circles = circles
        self._linked = linked
        self._program = linked.program
        self._functions = functions
        self._kernels = kernels
        self._externs = externs
        self._template: list[Any] = [None] * linked.info.register_file_size
        self._places: dict[object, int] = {}

    def link(self, reuse_memory: bool) -> None:
        linked, program = self._linked, self._program
        linked.account = self._place("account", None)
        self._trash = self._place("trash", None)
        instructions = program.instructions(linked.info)
        for pc, instruction in enumerate(instructions):
            if type(instruction) is Call:
                killed = killed_register(program, instruction)
                op = self._call(instruction) if killed is None else Op(OpKind.KILL, args=(killed,))
            elif type(instruction) is Ret:
                op = Op(OpKind.RET, args=(self._arg(instruction.value),))
            elif type(instruction) is Goto:
                op = Op(OpKind.GOTO, target=pc + instruction.offset)
            else:
                assert type(instruction) is If
                op = Op(OpKind.IF, args=(instruction.cond,), target=pc + instruction.false_offset)
            linked.ops.append(op)
        mark_tail_calls(linked, self._circles)
        linked.template = self._template
        leaders = leaders_of(instructions)
        plan = Plan()
        if reuse_memory:
            plan = plan_frame(linked.ops, linked.info, leaders, self._template)
        for pc, (scope, seen) in plan.arenas.items():
            plan.places.append((self._place(("arena", pc), None), scope, seen))
        linked.frames = Frames(linked.template, plan) if plan.storages or plan.places else None
        linked.blocks = _blocks(linked, leaders, plan)

    def _place(self, key: object, value: Any) -> int:
        """Where `value` lies in the register file."""
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = len(self._template)
            self._template.append(value)
        return place

    def _arg(self, arg: Arg) -> int:
        kind, value = arg
        if kind == _REGISTER:
            if value < VOID:
                return value
            return self._place(arg, self._linked.vm if value == VM else None)
        if kind == _IMMEDIATE:
            return self._place(arg, value)
        if kind == _CONSTANT:
            return self._place(arg, self._program.constants[value])
        return self._place(arg, self._function_value(self._program.functions[value]))

    def _function_value(self, info: FunctionInfo) -> Any:
        """A function of the table as a value."""
        if info.kind == "vm":
            return VMClosure(self._functions[info.name])
        if info.kind == "kernel":
            return self._kernels[info.name]
        builtin = TABLE.get(info.name)
        return self._externs[info.name] if builtin is None else BuiltinValue(info.name, builtin)

    def _call(self, call: Call) -> Op:
        info = self._program.functions[call.func]
        dst = self._trash if call.dst == VOID else call.dst
        builtin = TABLE.get(info.name) if info.kind == "packed" else None
        if builtin is None:
            args = tuple(map(self._arg, call.args))
            if info.kind == "vm":
                return Op(OpKind.FUNCTION, self._functions[info.name], info.name, dst, args)
            if info.kind == "kernel":
                kernel = self._kernels[info.name]
                kind = OpKind.EXTERN if kernel.returns else OpKind.KERNEL
                return Op(kind, kernel, info.name, dst, args)
            return Op(OpKind.EXTERN, self._externs[info.name], info.name, dst, args)
        given = builtin_args(call.args)
        if info.name == "vm.builtin.invoke_closure":
            return Op(OpKind.INVOKE, builtin.function, info.name, dst, tuple(map(self._arg, given)))
        function: Any = builtin.function
        size_bytes = -1
        if builtin.bind is not None:
            constants = static_values(self._program, given[builtin.dynamic :])
            if not any(value is DYNAMIC for value in constants):
                function = builtin.bind(*constants)
                given = given[: builtin.dynamic]
                size_bytes = getattr(function, "size_bytes", -1)
        if info.name == "vm.builtin.alloc_tensor" and len(given) == 4:
            _, offset, _, dtype = static_values(self._program, given)
            if offset is not DYNAMIC:
                function, given = alloc_shaped_tensor_of(offset, dtype), (given[0], given[2])
        args = tuple(map(self._arg, given))
        if builtin.account:
            args = (self._linked.account, *args)
        return Op(
            OpKind.BUILTIN,
            function,
            info.name,
            dst,
            args,
            aliases=builtin.aliases,
            size_bytes=size_bytes,
        )


_CALLS = {0: StepKind.CALL0, 1: StepKind.CALL1, 2: StepKind.CALL2, 3: StepKind.CALL3}
_KERNEL_CALLS = {1: StepKind.KERNEL1, 2: StepKind.KERNEL2, 3: StepKind.KERNEL3}


def _blocks(linked: LinkedFunction, leaders: list[int], plan: Plan) -> tuple[tuple[Step, ...], ...]:
    """The steps of each block.

    A call of a VM function ends one, so that the caller can go on at the next.
    """
    ops = linked.ops
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
            made = _step(ops[pc], pc, index, linked.info.register_file_size)
            if pc in arenas:
                size, dst = ops[pc].args[1], ops[pc].dst
                made = (StepKind.CALL2.value, take_from_arena, dst, arenas[pc][0], size, None)
            steps.append(made)
            linked.positions[id(made)] = pc
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
