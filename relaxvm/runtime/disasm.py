"""Programs as text: a listing of the instructions, Python-like code, and counts."""

from __future__ import annotations

from collections import Counter

from ..base import NamedTuple
from .builtin import TABLE
from .builtin_row import short_name
from .bytecode import INSTRUCTIONS, VM, VOID, Arg, ArgKind, Call, Goto, If, Instruction, Ret
from .constants import constant_kind, describe
from .debug_table import source_text
from .ndarray import NDArray
from .program import FunctionInfo, Program
from .verify import builtin_args, killed_register

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = ArgKind
_MNEMONICS = {spec.make: spec.opcode.name.lower() for spec in INSTRUCTIONS}


def as_text(program: Program, sources: bool = False) -> str:
    """Every function and instruction, with names and constants resolved; with `sources`, each ends
    with where it comes from.
    """
    parts = []
    for info in program.vm_functions:
        lines = [f"{info.signature()}:  # {info.register_file_size} registers"]
        lines += [
            f"  {pc:4}  {instruction_text(program, instruction)}"
            for pc, instruction in enumerate(program.instructions(info))
        ]
        if sources:
            origins = (source_text(program.source_of(info.name, i)) for i in range(len(lines) - 1))
            lines[1:] = [f"{a}  # {b}" if b else a for a, b in zip(lines[1:], origins)]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def instruction_line(program: Program, function: FunctionInfo, pc: int) -> str:
    """One instruction of a function, with single spaces, as errors and tables show it."""
    return " ".join(instruction_text(program, program.instructions(function)[pc]).split())


def instruction_text(program: Program, instruction: Instruction) -> str:
    """One instruction as the listing shows it."""
    name = _MNEMONICS[type(instruction)]
    if type(instruction) is Call:
        callee = program.functions[instruction.func].name
        args = ", ".join(_arg_text(program, arg) for arg in instruction.args)
        dst = "" if instruction.dst == VOID else f"  dst: %{instruction.dst}"
        return f"{name:5} {callee:28} in: {args}{dst}".rstrip()
    if type(instruction) is Ret:
        return f"{name:5} {_arg_text(program, instruction.value)}"
    if type(instruction) is Goto:
        return f"{name:5} {instruction.offset:+}"
    assert type(instruction) is If
    return f"{name:5} %{instruction.cond}  else: {instruction.false_offset:+}"


def _arg_text(program: Program, arg: Arg) -> str:
    if arg.kind == _CONSTANT:
        return f"c[{arg.value}]={describe(program.constants[arg.value])}"
    if arg.kind == _FUNCTION:
        return f"@{program.functions[arg.value].name}"
    return str(arg)


# Python-like text


class _Region(NamedTuple):
    """An indented piece of code that ends before `end`, and where its else part ends."""

    end: int
    else_end: int


def _register_name(info: FunctionInfo, number: int) -> str:
    if number in (VOID, VM):
        return "None" if number == VOID else "vm"
    name = info.param_names[number] if number < info.num_inputs else ""
    return name if name.isidentifier() and name.isascii() else f"r{number}"


def _operand(program: Program, info: FunctionInfo, arg: Arg) -> str:
    if arg.kind == _REGISTER:
        return _register_name(info, arg.value)
    if arg.kind == _IMMEDIATE:
        return str(arg.value)
    if arg.kind == _FUNCTION:
        return program.functions[arg.value].name
    value = program.constants[arg.value]
    return f"const_{arg.value}" if type(value) is NDArray else describe(value)


def as_python(program: Program) -> str:
    """The program as Python-like text that shows what it computes.

    Tensors are named ``const_0`` ...
    """
    parts = []
    tensors = [
        f"const_{i}: {describe(value)}"
        for i, value in enumerate(program.constants)
        if type(value) is NDArray
    ]
    if tensors:
        parts.append("\n".join(tensors))
    parts += [_function_text(program, info) for info in program.vm_functions]
    return "\n\n\n".join(parts) + "\n"


def _function_text(program: Program, info: FunctionInfo) -> str:
    instructions = program.instructions(info)
    lines: list[tuple[int, int, str]] = []  # instruction, indent, text
    regions: list[_Region] = []
    joined: set[int] = set()  # gotos that end a then part
    targets: set[int] = set()
    for pc, instruction in enumerate(instructions):
        while regions and regions[-1].end <= pc:
            if lines[-1][1] == len(regions):
                lines.append((pc, len(regions) + 1, "pass"))
            region = regions.pop()
            if region.else_end > pc + 1:
                lines.append((pc, len(regions) + 1, "else:"))
                regions.append(_Region(region.else_end, 0))
                break
        indent = len(regions) + 1
        if type(instruction) is If:
            limit = regions[-1].end if regions else len(instructions)
            nested = _nested(instructions, pc, limit)
            if nested is not None:
                lines.append((pc, indent, f"if {_register_name(info, instruction.cond)}:"))
                regions.append(nested)
                if nested.else_end:
                    joined.add(nested.end)
                continue
            targets.add(pc + instruction.false_offset)
            condition = _register_name(info, instruction.cond)
            text = f"if not {condition}: goto L{pc + instruction.false_offset}"
            lines.append((pc, indent, text))
        elif type(instruction) is Goto:
            if pc not in joined:
                targets.add(pc + instruction.offset)
                lines.append((pc, indent, f"goto L{pc + instruction.offset}"))
        elif type(instruction) is Ret:
            lines.append((pc, indent, f"return {_operand(program, info, instruction.value)}"))
        else:
            assert type(instruction) is Call
            lines.append((pc, indent, _call_text(program, info, instruction)))
    out = [f"def {info.signature()}:"]
    pending = sorted(targets)
    for pc, indent, text in lines:
        while pending and pending[0] <= pc:
            out.append(f"  L{pending.pop(0)}:")
        out.append("    " * indent + text)
    return "\n".join(out)


def _nested(instructions: list[Instruction], pc: int, limit: int) -> _Region | None:
    """The then part of the If at `pc`, and where its else part ends, if both lie within `limit`."""
    branch = instructions[pc]
    assert type(branch) is If
    other = pc + branch.false_offset
    if not pc < other <= limit:
        return None
    last = instructions[other - 1]
    if other - 1 > pc and type(last) is Goto and other <= other - 1 + last.offset <= limit:
        return _Region(other - 1, other - 1 + last.offset)
    return _Region(other, 0)


def _call_text(program: Program, info: FunctionInfo, call: Call) -> str:
    killed = killed_register(program, call)
    if killed is not None:
        return f"del {_register_name(info, killed)}"
    callee = program.functions[call.func].name
    args = builtin_args(call.args) if callee in TABLE else call.args
    shown = short_name(callee) if callee in TABLE else callee
    dst = "" if call.dst == VOID else f"{_register_name(info, call.dst)} = "
    return f"{dst}{shown}({', '.join(_operand(program, info, arg) for arg in args)})"


# Counts


def stats(program: Program) -> str:
    """Counts and sizes of what is inside, one per line."""
    titles = {"vm": "Globals", "kernel": "Kernels", "packed": "Packed functions"}
    by_kind: dict[str, list[str]] = {title: [] for title in (*titles.values(), "Builtins")}
    for info in program.functions:
        builtin = info.kind == "packed" and info.name in TABLE
        by_kind["Builtins" if builtin else titles[info.kind]].append(info.name)
    opcodes = Counter(
        _MNEMONICS[type(instruction)]
        for info in program.vm_functions
        for instruction in program.instructions(info)
    )
    kinds = Counter(constant_kind(value) for value in program.constants)
    size_bytes = sum(value.nbytes for value in program.constants if type(value) is NDArray)
    provenance = program.provenance
    lines = [
        "Relax VM executable statistics:",
        *(f"  {kind} (#{len(names)}): [{', '.join(names)}]" for kind, names in by_kind.items()),
        f"  Instructions (#{sum(opcodes.values())}): {_counted(opcodes)}",
        f"  Constants (#{len(program.constants)}): {_counted(kinds)}; tensors {size_bytes} bytes",
        f"  Bytecode: {len(program.code)} bytes",
    ]
    if program.debug is not None:
        rows = sum(len(rows) for _, rows in program.debug.functions)
        places = program.debug.places
        lines.append(f"  Debug table: {len(places)} places, {rows} bytes of instructions")
    if program.kernels is not None:
        for code in program.kernels.native:
            size = sum(map(len, code.objects))
            lines.append(f"  Native code: {size} bytes for {code.triple}, cpu {code.cpu}")
        lines.append(f"  Portable kernels: {len(program.kernels.portable)} bytes")
    lines.append(
        f"  Made by: {provenance.producer} {provenance.version}".rstrip()
        + (f", target {provenance.target}" if provenance.target else "")
    )
    return "\n".join(lines) + "\n"


def _counted(counts: Counter[str]) -> str:
    return ", ".join(f"{name} {count}" for name, count in sorted(counts.items())) or "none"
