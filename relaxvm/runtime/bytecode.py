"""The instruction set: one table, from which encoder, decoder, verifier and disassembler follow.

A program is a row of signed 64-bit words. An argument is one word: its kind in the high 8 bits, its
payload, signed, in the low 56. Jumps count instructions, from the jump itself.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any

import numpy as np

from ..base import NamedTuple, VerifyError

PAYLOAD_BITS = 56
PAYLOAD_MIN, PAYLOAD_MAX = -(1 << (PAYLOAD_BITS - 1)), (1 << (PAYLOAD_BITS - 1)) - 1
VOID = 1 << 54
"""The register that holds nothing: as a destination it drops the result, as an argument it is None.
"""
VM = VOID + 1
"""The register that holds the virtual machine itself."""


class ArgKind(IntEnum):
    """Where an argument's value comes from; the payload is its number there."""

    REGISTER = 0
    IMMEDIATE = 1
    CONSTANT = 2
    FUNCTION = 3


class Arg(NamedTuple):
    """One argument of an instruction."""

    kind: ArgKind
    value: int

    def __str__(self) -> str:
        if self.kind == ArgKind.REGISTER:
            return {VOID: "%void", VM: "%vm"}.get(self.value, f"%{self.value}")
        return ("", "i", "c[", "f[")[self.kind] + str(self.value) + ("]" if self.kind > 1 else "")


class Opcode(IntEnum):
    """First word of an instruction."""

    CALL = 1
    RET = 2
    GOTO = 3
    IF = 4


class Call(NamedTuple):
    """``dst = func(*args)``"""

    dst: int
    func: int
    args: tuple[Arg, ...]


class Ret(NamedTuple):
    """Leave the function with `value`."""

    value: Arg


class Goto(NamedTuple):
    """``pc += offset``"""

    offset: int


class If(NamedTuple):
    """``pc += 1 if cond else false_offset``"""

    cond: int
    false_offset: int


Instruction = Call | Ret | Goto | If


class Spec(NamedTuple):
    """One line of the table: operands are (field, how it is stored)."""

    opcode: Opcode
    make: Callable[..., Any]
    operands: tuple[tuple[str, str], ...]
    meaning: str


INSTRUCTIONS = (
    Spec(
        Opcode.CALL,
        Call,
        (("dst", "register"), ("func", "index"), ("args", "args")),
        "dst = func(*args)",
    ),
    Spec(Opcode.RET, Ret, (("value", "arg"),), "return value"),
    Spec(Opcode.GOTO, Goto, (("offset", "offset"),), "pc += offset"),
    Spec(
        Opcode.IF,
        If,
        (("cond", "register"), ("false_offset", "offset")),
        "pc += 1 if cond else false_offset",
    ),
)
_BY_CODE = {int(spec.opcode): spec for spec in INSTRUCTIONS}
_BY_TYPE = {spec.make: spec for spec in INSTRUCTIONS}
_KINDS = tuple(ArgKind)
_PAYLOAD_MASK = (1 << PAYLOAD_BITS) - 1
_SIGN = 1 << (PAYLOAD_BITS - 1)


def arg_to_word(arg: Arg) -> int:
    """The word that stores `arg`. Raises VerifyError if its payload does not fit."""
    if not PAYLOAD_MIN <= arg.value <= PAYLOAD_MAX:
        raise VerifyError(
            f"argument {arg.value} does not fit {PAYLOAD_BITS} bits; make it a constant"
        )
    return (arg.kind << PAYLOAD_BITS) | (arg.value & _PAYLOAD_MASK)


def arg_from_word(word: int) -> Arg:
    """The argument stored in `word`. Raises VerifyError for an unknown kind."""
    kind = word >> PAYLOAD_BITS
    if not 0 <= kind < len(_KINDS):
        raise VerifyError(f"unknown argument kind {kind}")
    return Arg(_KINDS[kind], ((word & _PAYLOAD_MASK) ^ _SIGN) - _SIGN)


def encode(instructions: Sequence[Instruction]) -> list[int]:
    """The words of `instructions`."""
    words: list[int] = []
    for instruction in instructions:
        spec = _BY_TYPE[type(instruction)]
        words.append(int(spec.opcode))
        values: tuple[Any, ...] = instruction
        for (_, stored), value in zip(spec.operands, values):
            if stored == "args":
                words.append(len(value))
                words.extend(map(arg_to_word, value))
            else:
                words.append(arg_to_word(value) if stored == "arg" else value)
    return words


def decode(words: Sequence[int], begin: int, end: int) -> list[Instruction]:
    """The instructions in ``words[begin:end]``. Raises VerifyError where they are none."""
    code: list[Instruction] = []
    known: dict[int, Arg] = {}  # most registers are read more than once

    def read_arg(word: int) -> Arg:
        try:
            arg = known[word] = arg_from_word(word)
        except VerifyError as error:
            raise VerifyError(f"instruction {len(code)}: {error}") from None
        return arg

    i = begin
    while i < end:
        spec = _BY_CODE.get(words[i])
        if spec is None:
            raise VerifyError(f"instruction {len(code)}: unknown opcode {words[i]} at word {i}")
        i += 1
        values: list[Any] = []
        for _, stored in spec.operands:
            if i >= end:
                raise _cut_off(len(code))
            word = words[i]
            i += 1
            if stored == "args":
                if not 0 <= word <= end - i:
                    raise _cut_off(len(code))
                values.append(tuple([known.get(w) or read_arg(w) for w in words[i : i + word]]))
                i += word
            else:
                values.append(read_arg(word) if stored == "arg" else word)
        code.append(spec.make(*values))
    return code


def _cut_off(index: int) -> VerifyError:
    return VerifyError(f"instruction {index}: runs past the end of its function")


def to_bytes(words: Sequence[int]) -> bytes:
    """`words` as the file stores them: little-endian."""
    return np.array(words, dtype="<i8").tobytes()


def from_bytes(code: bytes | memoryview) -> list[int]:
    """The inverse of `to_bytes`. Raises VerifyError if this is no whole number of words."""
    if len(code) % 8:
        raise VerifyError(f"bytecode: wanted a multiple of 8 bytes, got {len(code)}")
    words: list[int] = np.frombuffer(code, dtype="<i8").tolist()
    return words
