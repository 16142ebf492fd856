"""What must hold of a program before its first instruction runs.

Tables: names unique, code ranges contiguous, kernels present. Instructions: every index inside its
table, jumps inside the function, no way to run off its end, argument counts, constants of the kind
a builtin wants. Registers: written before read on every path. Time and memory are linear in the
size of the program, or the program is refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any, get_args

from ..base import DataType, VerifyError, VMError, record
from .builtin import TABLE
from .builtin_row import Builtin, Effect
from .bytecode import VM, VOID, Arg, ArgKind, Call, Goto, If, Instruction, Ret
from .constants import DimProgram
from .dims import check, symbols_of
from .kernel import KernelInfo
from .limits import MAX_VERIFY_WORK
from .program import FunctionInfo, FunctionKind, Program
from .sinfo import INFO_TYPES

_MAX_NAME = 1 << 12
_KINDS = get_args(FunctionKind)
_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = ArgKind


class _Dynamic:
    def __repr__(self) -> str:
        return "a register"


DYNAMIC: Any = _Dynamic()
"""Stands for an argument whose value is known only when the instruction runs."""


def static_values(program: Program, args: tuple[Arg, ...]) -> list[Any]:
    """The values of the arguments that are constants; DYNAMIC for the others."""
    values: list[Any] = []
    for kind, value in args:
        if kind == _IMMEDIATE:
            values.append(value)
        elif kind == _CONSTANT:
            values.append(program.constants[value])
        else:
            values.append(None if kind == _REGISTER and value == VOID else DYNAMIC)
    return values


def builtin_args(args: tuple[Arg, ...]) -> tuple[Arg, ...]:
    """The arguments of a builtin, without the VM that TVM passes first to some."""
    return args[1:] if args and args[0] == (_REGISTER, VM) else args


def verify_program(program: Program) -> None:
    """Raise VerifyError, naming function and instruction, unless `program` can run safely."""
    if program.verified:
        return
    section = program.kernels
    kernels = {} if section is None else {info.name: info for info in section.infos}
    _verify_table(program, kernels)
    for info in program.functions:
        if info.kind != "vm":
            continue
        where = f"function {info.name}"
        try:
            instructions = program.instructions(info)
        except VerifyError as error:
            raise VerifyError(f"{where}: {error}") from None
        for pc, instruction in enumerate(instructions):
            try:
                _verify_instruction(program, info, kernels, instruction, pc, len(instructions))
            except VerifyError as error:
                raise VerifyError(f"{where}: instruction {pc}: {error}") from None
        _verify_registers(info, instructions, where, program)
    if program.debug is not None:
        program.debug.verify({f.name: len(program.instructions(f)) for f in program.vm_functions})
    program.verified = True


def _verify_table(program: Program, kernels: dict[str, KernelInfo]) -> None:
    seen: set[str] = set()
    start = 0
    for info in program.functions:
        name = info.name
        if not name or len(name) > _MAX_NAME or "\0" in name:
            raise VerifyError(f"function name {name[:40]!r}: wanted 1 to {_MAX_NAME} characters")
        if name in seen:
            raise VerifyError(f"function {name} is in the table twice")
        seen.add(name)
        if info.kind not in _KINDS:
            raise VerifyError(f"function {name}: kind {info.kind[:40]!r} is not one of {_KINDS}")
        if info.kind == "kernel" and name not in kernels:
            raise VerifyError(f"function {name}: the kernel section has no such kernel")
        if info.kind != "vm":
            continue
        if name in TABLE:
            raise VerifyError(f"function {name}: the name belongs to a builtin")
        if info.start != start or info.end <= start:
            raise VerifyError(
                f"function {name}: wanted code from word {start} on, got {info.start} to {info.end}"
            )
        start = info.end
        names = info.param_names
        if len(info.params) != len(names):
            raise VerifyError(f"function {name}: {len(names)} parameters, {len(info.params)} infos")
        if len(set(names)) != len(names):
            raise VerifyError(f"function {name}: two parameters have the same name")
        most = len(names) + info.end - info.start
        if not len(names) <= info.register_file_size <= most:
            raise VerifyError(
                f"function {name}: wanted {len(names)} to {most} registers, "
                f"got {info.register_file_size}"
            )
    if start * 8 != len(program.code):
        raise VerifyError(
            f"the functions cover {start} words of code, there are {len(program.code) / 8:g}"
        )


def _verify_instruction(
    program: Program,
    info: FunctionInfo,
    kernels: dict[str, KernelInfo],
    instruction: Instruction,
    pc: int,
    count: int,
) -> None:
    registers = info.register_file_size
    if type(instruction) is Call:
        if instruction.dst != VOID:
            _verify_register(instruction.dst, registers)
        if not 0 <= instruction.func < len(program.functions):
            raise VerifyError(
                f"function f[{instruction.func}] is outside the table of {len(program.functions)}"
            )
        for arg in instruction.args:
            _verify_arg(program, registers, arg)
        _verify_call(program, program.functions[instruction.func], kernels, instruction.args)
    elif type(instruction) is Ret:
        arg = instruction.value
        _verify_arg(program, registers, arg)
        if arg.kind == _FUNCTION or arg == (_REGISTER, VM):
            raise VerifyError(f"cannot return {arg}")
    elif type(instruction) is Goto:
        _verify_target(pc, instruction.offset, count)
    elif type(instruction) is If:
        _verify_register(instruction.cond, registers)
        _verify_target(pc, instruction.false_offset, count)
    falls_through = type(instruction) is Call or type(instruction) is If
    if falls_through and pc + 1 == count:
        raise VerifyError("the function runs off its end; wanted a ret")


def _verify_target(pc: int, offset: int, count: int) -> None:
    if not 0 <= pc + offset < count:
        raise VerifyError(f"the jump by {offset} leaves the function of {count} instructions")
    if offset == 0:
        raise VerifyError("the jump is to itself")


def _verify_register(register: int, count: int) -> None:
    if not 0 <= register < count:
        raise VerifyError(f"register %{register} is outside the {count} of the function")


def _verify_arg(program: Program, registers: int, arg: Arg) -> None:
    kind, value = arg
    if kind == _REGISTER:
        if value not in (VOID, VM):
            _verify_register(value, registers)
    elif kind == _CONSTANT:
        if not 0 <= value < len(program.constants):
            raise VerifyError(
                f"constant c[{value}] is outside the pool of {len(program.constants)}"
            )
    elif kind == _FUNCTION and not 0 <= value < len(program.functions):
        raise VerifyError(f"function f[{value}] is outside the table of {len(program.functions)}")


def _verify_call(
    program: Program,
    callee: FunctionInfo,
    kernels: dict[str, KernelInfo],
    args: tuple[Arg, ...],
) -> None:
    if callee.kind == "vm":
        if len(args) != callee.num_inputs:
            raise VerifyError(
                f"{callee.signature()} takes {callee.num_inputs} arguments, got {len(args)}"
            )
        return
    if callee.kind == "kernel":
        kernel = kernels[callee.name]
        wanted = len(kernel.params) - kernel.returns
        if len(args) != wanted:
            raise VerifyError(f"kernel {kernel} takes {wanted} arguments, got {len(args)}")
        for param, arg in zip(kernel.params, args):
            if param.written and arg.kind != _REGISTER:
                raise VerifyError(f"kernel {kernel} writes {param.name}, which is a constant here")
        return
    builtin = TABLE.get(callee.name)
    if builtin is not None:
        _verify_builtin(program, callee.name, builtin, builtin_args(args))


def _verify_builtin(program: Program, name: str, builtin: Builtin, args: tuple[Arg, ...]) -> None:
    values = static_values(program, args)
    problem = arguments_problem(builtin, values)
    if problem is not None:
        raise VerifyError(f"{name} {problem}")
    if builtin.bind is not None and not any(v is DYNAMIC for v in values[builtin.dynamic :]):
        try:
            builtin.bind(*values[builtin.dynamic :])
        except VMError as error:
            raise VerifyError(f"{name}: {error}") from None


def arguments_problem(builtin: Builtin, values: Sequence[Any]) -> str | None:
    """What is wrong with the number or the kinds of a builtin's arguments (DYNAMIC: not known), or
    None.
    """
    fixed, repeated = builtin.fixed, builtin.repeated
    extra = len(values) - len(fixed)
    wrong = len(values) < builtin.min_args or (extra > 0 and not repeated)
    if wrong or (extra > 0 and extra % len(repeated)):
        return f"takes the arguments ({builtin.args or 'none'}), got {len(values)}"
    kinds = fixed + repeated * (max(extra, 0) // max(len(repeated), 1))
    for i, (kind, value) in enumerate(zip(kinds, values)):
        kind = kind.rstrip("=")
        if not _FITS[kind](value):
            shown = "a register" if value is DYNAMIC else type(value).__name__
            return f"argument {i}: wanted {_WANTED[kind]}, got {shown}"
    return None


def _is_heap_program(value: Any) -> bool:
    if type(value) is not DimProgram:
        return False
    check(value.dim)
    return all(s.isascii() and s.isdigit() and len(s) <= 6 for s in symbols_of(value.dim))


_FITS = {
    "any": lambda value: True,
    "imm": lambda value: type(value) is int,
    "text": lambda value: type(value) is str,
    "dtype": lambda value: type(value) is DataType,
    "dtype?": lambda value: value is None or type(value) is DataType,
    "info": lambda value: isinstance(value, INFO_TYPES),
    "dim": _is_heap_program,
}
_WANTED = {
    "imm": "an int",
    "text": "a constant text",
    "dtype": "a constant dtype",
    "dtype?": "a constant dtype or void",
    "info": "a constant struct info",
    "dim": "a constant dimension over heap slots",
}


# Registers


def builtin_called(program: Program, call: Call) -> Builtin | None:
    """The row of what `call` calls, if that is a builtin."""
    callee = program.functions[call.func]
    return TABLE.get(callee.name) if callee.kind == "packed" else None


def killed_register(program: Program, instruction: Instruction) -> int | None:
    """The register that `instruction` leaves empty, if it is a call that does so."""
    if type(instruction) is not Call or instruction.dst != VOID:
        return None
    row = builtin_called(program, instruction)
    if row is None or row.effect is not Effect.KILL:
        return None
    arg = builtin_args(instruction.args)[0]
    return arg.value if arg.kind == _REGISTER and arg.value < VOID else None


def leaders_of(instructions: list[Instruction]) -> list[int]:
    """The first instruction of each basic block, in order."""
    leaders = {0}
    for pc, instruction in enumerate(instructions):
        if type(instruction) is Goto:
            leaders.add(pc + instruction.offset)
        elif type(instruction) is If:
            leaders.add(pc + instruction.false_offset)
        if type(instruction) is not Call and pc + 1 < len(instructions):
            leaders.add(pc + 1)
    return sorted(leaders)


@record(frozen=False)
class _Block:
    """A basic block as the register analysis sees it.

    exposed  register read before it is written here -> instruction
    live     register -> whether it is defined at the end
    killed   the register read after it was killed here, and where
    undefined  of the registers that are read in another block than they are written in, as bits,
             those that may be undefined where it begins; None: it is not reached
    """

    start: int
    end: int
    successors: list[int] = field(default_factory=list)
    exposed: dict[int, int] = field(default_factory=dict)
    live: dict[int, bool] = field(default_factory=dict)
    killed: tuple[int, int] | None = None
    undefined: int | None = None


def _reads(instruction: Instruction) -> list[int]:
    if type(instruction) is Call:
        return [a.value for a in instruction.args if a.kind == _REGISTER and a.value < VOID]
    if type(instruction) is Ret:
        arg = instruction.value
        return [arg.value] if arg.kind == _REGISTER and arg.value < VOID else []
    return [instruction.cond] if type(instruction) is If else []


def _verify_registers(
    info: FunctionInfo, instructions: list[Instruction], where: str, program: Program
) -> None:
    leaders = leaders_of(instructions)
    ends = [*leaders[1:], len(instructions)]
    index = {start: i for i, start in enumerate(leaders)}
    blocks = [_Block(start, end) for start, end in zip(leaders, ends)]
    for block in blocks:
        _scan(block, instructions, program)
        last = instructions[block.end - 1]
        if type(last) is Goto:
            block.successors = [index[block.end - 1 + last.offset]]
        elif type(last) is If:
            block.successors = [index[block.end], index[block.end - 1 + last.false_offset]]
        elif type(last) is Call:
            block.successors = [index[block.end]]
    _propagate(blocks, range(info.num_inputs), where)
    for block in blocks:
        if block.undefined is not None and block.killed is not None:
            _raise_undefined(where, *block.killed)


def _scan(block: _Block, instructions: list[Instruction], program: Program) -> None:
    defined = block.live
    for pc in range(block.start, block.end):
        instruction = instructions[pc]
        for register in _reads(instruction):
            state = defined.get(register)
            if state is None:
                block.exposed.setdefault(register, pc)
            elif not state and block.killed is None:
                block.killed = (register, pc)
        killed = killed_register(program, instruction)
        if killed is not None:
            defined[killed] = False
        elif type(instruction) is Call and instruction.dst != VOID:
            defined[instruction.dst] = True


def _propagate(blocks: list[_Block], params: range, where: str) -> None:
    """Find reads that some path reaches without a write: a forward flow of "maybe undefined".

    A step handles up to 4096 registers; memory counts as well as time, as each block holds sets.
    """
    exposed = {register for block in blocks for register in block.exposed}
    bit = {register: i for i, register in enumerate(sorted(exposed))}
    left = MAX_VERIFY_WORK // (1 + len(bit) // 4096)

    def spend(steps: int) -> None:
        nonlocal left
        left -= steps
        if left < 0:
            raise VerifyError(f"{where}: the control flow is too tangled to verify")

    spend(64 * len(blocks) + len(bit))
    # What a block leaves undefined, and what it defines.
    effects: list[tuple[int, int]] = []
    for block in blocks:
        crossing = [(bit[r], is_defined) for r, is_defined in block.live.items() if r in bit]
        spend(len(crossing) + len(block.exposed))
        sets = [0, 0]
        for i, is_defined in crossing:
            sets[is_defined] |= 1 << i
        effects.append((sets[False], sets[True]))
    blocks[0].undefined = 0
    for register, i in bit.items():
        blocks[0].undefined |= (register not in params) << i
    waiting = [0]
    while waiting:
        spend(1)
        number = waiting.pop()
        (killed, defined), block = effects[number], blocks[number]
        assert block.undefined is not None
        out = (block.undefined & ~defined) | killed
        for j in block.successors:
            known = blocks[j].undefined
            if known is None or out & ~known:
                blocks[j].undefined = out if known is None else known | out
                waiting.append(j)
    for block in blocks:
        for register, pc in block.exposed.items():
            if block.undefined is not None and block.undefined >> bit[register] & 1:
                _raise_undefined(where, register, pc)


def _raise_undefined(where: str, register: int, pc: int) -> None:
    raise VerifyError(
        f"{where}: instruction {pc}: register %{register} is read before it is written "
        "on every path"
    )
