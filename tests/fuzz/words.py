"""Random bytecode, mostly well formed so that much of it verifies; what it does is random.

make(rng)          a case: table of functions, parameters and words of two functions
executable(case)   the program
run(rng, ex)       calls it; anything but typed errors is raised
"""

from __future__ import annotations

import contextlib
import os
import random

from relaxvm.base import DataType, RelaxvmError
from relaxvm.runtime import (
    TABLE,
    DimProgram,
    Executable,
    FunctionInfo,
    ObjectInfo,
    ShapeTuple,
    TensorInfo,
    VirtualMachine,
    array,
)
from relaxvm.runtime.bytecode import VM, VOID, to_bytes

ODD = [0, 1, -1, 127, 255, 1 << 31, (1 << 32) - 1, 1 << 56, 1 << 62, (1 << 63) - 1, -(1 << 63)]


def constants() -> list[object]:
    return [
        array([1.0, 2.0, 3.0, 4.0]),
        "main: x",
        "{} {}",
        DataType("float32"),
        DataType("int64"),
        ShapeTuple([2, 2]),
        ShapeTuple([4]),
        ShapeTuple([-1, 1 << 40]),
        1.5,
        True,
        1 << 62,
        TensorInfo(DataType("float32"), 1, (("$0",),)),
        DimProgram(("$0", "$1", "+")),
        DimProgram(("$0", 0, "//")),
    ]


KINDS = {
    "imm": ["i"],
    "text": [1, 2],
    "dtype": [3, 4],
    "dtype?": [3, 4],
    "info": [11],
    "dim": [12, 13],
    "any": ["r"] * 20 + ["i", "i", "c", "c", "c", "f"],
}


def random_words(rng: random.Random, table: list[str], inputs: int, registers: int) -> list[int]:
    """Mostly well-formed instructions, so that many verify; what they do is as random as can be."""
    defined = set(range(inputs))

    def word(kind: int, value: int) -> int:
        return (kind << 56) | (value & ((1 << 56) - 1))

    def arg(wanted: str) -> int:
        if rng.random() < 0.02:
            return word(rng.randrange(4), rng.choice(ODD))
        choice = rng.choice(KINDS[wanted.rstrip("=")])
        if isinstance(choice, int):
            return word(2, choice)
        if choice == "r":
            return word(0, rng.choice([*defined, *defined, VOID, VM]))
        if choice == "i":
            small = [0, 1, 0, 1, 0, 1, 0, 1, 2, 3, 4, 8, 16, 64, 100]
            return word(1, rng.choice([-1, 1 << 40]) if rng.random() < 0.05 else rng.choice(small))
        if choice == "c":
            return word(2, rng.choice([0, 0, 5, 6, *range(14)]))
        return word(3, rng.randrange(len(table)))

    words: list[int] = []
    if rng.random() < 0.9:
        # Things to work with: a shape heap, a storage, a tensor in it.
        begin = [
            ("alloc_shape_heap", 5, [word(1, 4)]),
            ("alloc_storage", 6, [word(1, 64), word(1, 0), word(2, 3), word(2, 1)]),
            ("alloc_tensor", 7, [word(0, 6), word(1, 0), word(2, 6), word(2, 3)]),
        ]
        for name, dst, args in begin:
            words += [1, dst, table.index(f"vm.builtin.{name}"), len(args), *args]
            defined.add(dst)
    for _ in range(rng.randrange(2, 14)):
        if rng.random() < 0.12:
            offset = rng.choice([1, 1, 2, 2, 3, -1, -2])
            words += [4, rng.choice([*defined]), offset] if rng.random() < 0.7 else [3, offset]
            continue
        func = rng.randrange(2 if rng.random() < 0.1 else 0, len(table))
        func = rng.randrange(2, len(table)) if func < 2 and rng.random() < 0.8 else func
        entry = TABLE.get(table[func])
        if entry is None:
            kinds = ["any"] * (inputs if table[func][0] == "f" else rng.randrange(4))
        else:
            kinds = list(entry.fixed[: rng.randint(entry.min_args, len(entry.fixed))])
            if len(kinds) == len(entry.fixed):
                kinds += list(entry.repeated) * rng.randrange(4)
        dst = rng.choice([VOID, *range(registers), *range(registers)])
        args = [arg(kind) for kind in kinds]
        words += [1, dst, func, len(args), *args]
        if dst != VOID:
            defined.add(dst)
    if rng.random() < 0.05:
        words.append(rng.choice(ODD))
    return [*words, 2, rng.choice([*defined])]


class Weird:
    """An object no builtin knows."""


def externs() -> dict[str, object]:
    return {
        "env.echo": lambda *args: args,
        "env.first": lambda *args: args[0] if args else None,
        "env.array": lambda *args: array([1.0, 2.0, 3.0, 4.0]),
        "env.weird": lambda *args: Weird(),
    }


GRANTED = externs()


def make(rng: random.Random) -> dict:
    always = [f"vm.builtin.alloc_{name}" for name in ("shape_heap", "storage", "tensor")]
    table = list(dict.fromkeys([*always, *rng.choices(list(TABLE), k=12), *GRANTED]))
    inputs = rng.randrange(1, 4)
    bodies = [random_words(rng, ["f0", "f1", *table], inputs, 8) for _ in range(2)]
    registers = [8 if rng.random() < 0.98 else 5 for _ in range(2)]
    return {"table": table, "inputs": inputs, "bodies": bodies, "registers": registers}


def executable(case: dict) -> Executable:
    infos, code, inputs = [], [], case["inputs"]
    for i, (words, registers) in enumerate(zip(case["bodies"], case["registers"])):
        names = tuple(f"a{k}" for k in range(inputs))
        infos.append(
            FunctionInfo(
                f"f{i}",
                "vm",
                len(code),
                len(code) + len(words),
                registers,
                names,
                (ObjectInfo(),) * inputs,
            )
        )
        code += words
    table = [FunctionInfo(name, "packed") for name in case["table"]]
    return Executable([*infos, *table], constants(), to_bytes(code))


def _has_tail_calls(ex: Executable) -> bool:
    try:
        functions = VirtualMachine(ex, functions=GRANTED)._functions
    except RelaxvmError:
        return False
    return any(op.tail for linked in functions.values() for op in linked.ops)


def run(rng: random.Random, ex: Executable) -> None:
    values = [0, 1, 3, True, 1.5, None, "x", array([1.0, 2.0, 3.0, 4.0]), (1, (2,)), (2, 2), len]
    # Backward jumps and tail calls may go on for ever: those programs run only with limits.
    loops = _has_tail_calls(ex) or any(
        offset < 0
        for info in ex.vm_functions
        for instruction in ex.instructions(info)
        for offset in [getattr(instruction, "offset", getattr(instruction, "false_offset", 0))]
    )
    limits = {"max_instructions": 500, "max_bytes": 1 << 20, "max_depth": 20}
    for options in (
        (limits, {**limits, "max_seconds": 5.0}) if loops else (limits, {"max_depth": 4})
    ):
        try:
            vm = VirtualMachine(ex, functions=GRANTED, **options)
        except RelaxvmError:
            continue
        for info in ex.vm_functions:
            for _ in range(2):
                args = [rng.choice(values) for _ in range(info.num_inputs)]
                try:
                    with open(os.devnull, "w") as null, contextlib.redirect_stdout(null):
                        vm[info.name](*args)
                except RelaxvmError:
                    pass
                except TypeError as error:
                    # `len` is a function of Python's and raises as it likes.
                    if "len() " not in str(error) and "has no len" not in str(error):
                        raise
