"""Child process of the fuzz tests: ``python fuzz_child.py files|words COUNT SEED``.

Prints ``done loaded=... refused=... peak_kib=...``; anything but typed errors ends it with a
traceback and a seed.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import random
import resource
import sys

import msgpack

sys.path.insert(0, str(pathlib.Path(__file__).parent))

from golden_program import golden_program
from kernel_fixture import section

from relaxvm.base import DataType, LoadError, RelaxvmError, VerifyError
from relaxvm.runtime import (
    TABLE,
    DimProgram,
    ExecBuilder,
    Executable,
    FunctionInfo,
    ObjectInfo,
    ShapeTuple,
    TensorInfo,
    VirtualMachine,
    array,
    load,
)
from relaxvm.runtime.bytecode import VM, VOID, to_bytes

ODD = [0, 1, -1, 127, 255, 1 << 31, (1 << 32) - 1, 1 << 56, 1 << 62, (1 << 63) - 1, -(1 << 63)]


def with_kernels() -> bytes:
    b = ExecBuilder()
    b.add_kernels(section())
    with b.function("main", 3):
        b.emit_call("add", [b.r(0), b.r(1), b.r(2)])
        b.emit_ret(b.r(2))
    return b.get().to_bytes()


# Files


def mutate(rng: random.Random, seeds: list[bytes]) -> bytes:
    data = bytearray(rng.choice(seeds))
    kind = rng.randrange(7)
    if kind == 0:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 1:
        for _ in range(rng.choice([1, 1, 2, 8])):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        return bytes(data)
    if kind == 2:
        for _ in range(rng.choice([1, 4])):
            data[rng.randrange(len(data))] = rng.choice([0, 0x7F, 0x80, 0xC1, 0xDD, 0xDF, 0xFF])
        return bytes(data)
    if kind == 3:
        other = rng.choice(seeds)
        a, b = rng.randrange(len(data)), rng.randrange(len(other))
        return bytes(data[:a]) + other[b : b + rng.randrange(200)] + bytes(data[a:])
    if kind == 4:
        a = rng.randrange(len(data))
        del data[a : a + rng.randrange(1, 40)]
        return bytes(data)
    if kind == 5:
        return rng.randbytes(rng.randrange(200))
    document = msgpack.unpackb(bytes(data), strict_map_key=False)
    for _ in range(rng.choice([1, 1, 2])):
        document = edit(rng, document)
    try:
        return msgpack.packb(document)
    except (OverflowError, ValueError):
        return bytes(data)


def edit(rng: random.Random, value):
    """The document with one value somewhere inside replaced, removed, repeated or renamed."""
    path, node = [], value
    while isinstance(node, (dict, list)) and node and (not path or rng.random() < 0.8):
        key = rng.choice(list(node)) if isinstance(node, dict) else rng.randrange(len(node))
        path.append((node, key))
        node = node[key]
    if not path:
        return value
    parent, key = path[-1]
    action = rng.randrange(4)
    if action == 0:
        del parent[key]
    elif action == 1 and isinstance(parent, list):
        parent.insert(key, node)
    elif action == 1:
        parent[f"{key}x"] = node
    else:
        parent[key] = replacement(rng, node)
    return value


def replacement(rng: random.Random, node):
    if isinstance(node, bytes) and rng.random() < 0.8 and node:
        changed = bytearray(node)
        at = rng.randrange(len(changed) // 8 + 1) * 8
        changed[at : at + 8] = rng.choice(ODD).to_bytes(8, "little", signed=True)
        return bytes(changed)
    if isinstance(node, int) and rng.random() < 0.7:
        return rng.choice([node + 1, node - 1, *ODD])
    return rng.choice([None, True, 0, -1, 1.5, "", "x", b"", [], {}, ["object"], [[]], "float32"])


def fuzz_files(count: int, rng: random.Random) -> tuple[int, int]:
    seeds = [golden_program().to_bytes(), golden_program().to_bytes(sign=False), with_kernels()]
    loaded = refused = 0
    for _ in range(count):
        data = mutate(rng, seeds)
        try:
            ex = load(data)
        except (LoadError, VerifyError):
            refused += 1
            continue
        loaded += 1
        assert ex.verified
        # What was accepted can be shown and saved, and gives itself back.
        ex.as_text(), ex.as_python(), ex.stats(), ex.needs()
        assert load(ex.to_bytes(sign=False)).as_text() == ex.as_text()
    return loaded, refused


# Words


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


def fuzz_words(count: int, rng: random.Random) -> tuple[int, int]:
    names = list(TABLE)
    granted = externs()
    pool = constants()
    loaded = refused = 0
    for _ in range(count):
        always = [f"vm.builtin.alloc_{name}" for name in ("shape_heap", "storage", "tensor")]
        chosen = dict.fromkeys([*always, *rng.choices(names, k=12), *granted])
        table = [FunctionInfo(name, "packed") for name in chosen]
        code, infos = [], []
        inputs = rng.randrange(1, 4)
        for i in range(2):
            words = random_words(rng, ["f0", "f1", *chosen], inputs, 8)
            infos.append(
                FunctionInfo(
                    f"f{i}",
                    "vm",
                    len(code),
                    len(code) + len(words),
                    8 if rng.random() < 0.98 else 5,
                    tuple(f"a{k}" for k in range(inputs)),
                    (ObjectInfo(),) * inputs,
                )
            )
            code += words
        ex = Executable([*infos, *table], pool, to_bytes(code))
        try:
            ex.verify()
        except VerifyError:
            refused += 1
            continue
        ex = load(ex.to_bytes(sign=False))
        loaded += 1
        run(rng, ex, granted)
    return loaded, refused


def _has_tail_calls(ex: Executable, granted: dict[str, object]) -> bool:
    try:
        functions = VirtualMachine(ex, functions=granted)._functions
    except RelaxvmError:
        return False
    return any(op.tail for linked in functions.values() for op in linked.ops)


def run(rng: random.Random, ex: Executable, granted: dict[str, object]) -> None:
    values = [0, 1, 3, True, 1.5, None, "x", array([1.0, 2.0, 3.0, 4.0]), (1, (2,)), (2, 2), len]
    # Backward jumps and tail calls may go on for ever: those programs run only with limits.
    loops = _has_tail_calls(ex, granted) or any(
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
            vm = VirtualMachine(ex, functions=granted, **options)
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


def main() -> None:
    what, count, seed = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    # Far more than is needed; an allocation in proportion to a claim instead of the input fails.
    resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
    work = fuzz_files if what == "files" else fuzz_words
    work(50, random.Random(0))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rng = random.Random(seed)
    loaded, refused = work(count, rng)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    print(f"done loaded={loaded} refused={refused} grown_kib={grown}")


if __name__ == "__main__":
    main()
