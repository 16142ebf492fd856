"""Random loop functions in which stores, loads and conditions on what is in memory meet."""

from __future__ import annotations

import random

SIZE = 6


def program(seed: int) -> str:
    """Script text of a function over A, B (int32, 6 elements) and two scalars below 6."""
    rng = random.Random(seed)
    lines = ['def main(A: T.Buffer((6,), "int32"), B: T.Buffer((6,), "int32"),']
    lines.append("         n: T.int32, k: T.int32):")
    if rng.random() < 0.7:
        lines.append('    T.func_attr({"tir.noalias": True})')
    _block(rng, lines, 1, ["n", "k"])
    return "\n" + "\n".join(lines) + "\n"


def _index(rng: random.Random, names: list[str]) -> str:
    v = rng.choice(names)
    return rng.choice([v, v, v, f"({v} + 1) % 6", f"5 - {v}", str(rng.randrange(SIZE))])


def _value(rng: random.Random, names: list[str]) -> str:
    load = f"{rng.choice('AB')}[{_index(rng, names)}]"
    plain = rng.choice([str(rng.randrange(4)), rng.choice(names), f"{rng.choice(names)} + 1"])
    chosen = f"T.if_then_else({_condition(rng, names)}, {load}, {plain})"
    return rng.choice(
        [plain, plain, load, f"{load} + 1", chosen, f"T.Select({plain} < 3, {load}, 0)"]
    )


def _condition(rng: random.Random, names: list[str]) -> str:
    limit = rng.randrange(SIZE)
    plain = f"{rng.choice(names)} < {limit}"
    memory = f"{rng.choice('AB')}[{_index(rng, names)}] {rng.choice(['<', '==', '!='])} {limit}"
    return rng.choice(
        [plain, memory, f"{plain} and {rng.choice(names)} >= 1", f"{plain} or {memory}"]
    )


def _block(rng: random.Random, lines: list[str], depth: int, names: list[str]) -> None:
    pad = "    " * depth
    for _ in range(rng.randint(1, 3 if depth > 1 else 4)):
        kind = rng.random()
        if kind < 0.5 or depth > 4:
            lines.append(f"{pad}{rng.choice('AB')}[{_index(rng, names)}] = {_value(rng, names)}")
        elif kind < 0.75:
            v = f"i{len(lines)}"
            lines.append(f"{pad}for {v} in range({rng.choice(['6', '6', '4', 'n', '1'])}):")
            _block(rng, lines, depth + 1, [*names, v, v])
        elif kind < 0.93:
            lines.append(f"{pad}if {_condition(rng, names)}:")
            _block(rng, lines, depth + 1, names)
            if rng.random() < 0.4:
                lines.append(f"{pad}else:")
                _block(rng, lines, depth + 1, names)
        elif kind < 0.96:
            v, value, limit = f"i{len(lines)}", rng.randrange(3), rng.randrange(SIZE)
            lines.append(f"{pad}for {v} in range(6):\n{pad}    A[{v}] = {value}")
            lines.append(f"{pad}for {v} in range(6):")
            choice = f"T.if_then_else({v} < {limit}, A[{v}], {rng.choice([value, value, 1])})"
            lines.append(f"{pad}    B[{v}] = {choice}")
        else:
            v = f"x{len(lines)}"
            lines.append(f"{pad}{v}: T.int32 = {_value(rng, names)}")
            lines.append(f"{pad}B[{_index(rng, names)}] = {v}")
