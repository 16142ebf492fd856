"""The register file of a compiled function that leaves for the interpreter.

Where it leaves, the function has written the live registers to a row of 64-bit words. The site says
how each is rebuilt: a tuple whose first item is the kind (`Described`), with numbers of words in
it.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from ..base import DataType, to_numpy_dtype
from .builtin import Storage
from .compiled_frame import NativeFrame
from .constants import DimProgram
from .heap import ShapeHeap, origin_of
from .link import LinkedFunction
from .ndarray import ShapeTuple, wrap_unchecked
from .pyabi import array_over, peek
from .verify import builtin_args, static_values

ORIGIN_STEP = 128
"""Origins are numbered so that an instruction has room for all axes."""
_UINT8 = np.dtype("uint8")


class Described:
    """The kinds of descriptions, and what follows them.

    A size is an int or (WORD, word); a holder is (OBJECT, word) or (ARENA, instruction).
    """

    OBJECT = "o"
    """word"""
    NONE = "n"
    INT = "i"
    """size"""
    BOOL = "b"
    """word"""
    FLOAT = "f"
    """word"""
    SHAPE = "s"
    """sizes"""
    TENSOR = "t"
    """dtype, sizes, word of its data, holder"""
    STORAGE = "m"
    """size, word of its memory, holder, scope"""
    HEAP = "h"
    """Slots, and the word that holds the address of two words per slot: its value, and -1 for none
    or ORIGIN_STEP times the instruction that wrote it, plus the axis it came from plus 1.
    """
    WORD = "w"
    ARENA = "a"


def rebuild(
    linked: LinkedFunction, frame: NativeFrame | None, described: Any, words: int
) -> list[Any]:
    """A register file for `linked`, from what a site describes and the words at an address."""
    source = linked.template if frame is None else frame.registers
    registers = source.copy()
    reader = _Reader(linked, frame, words)
    for register, value in described:
        registers[register] = reader.value(value)
    return registers


class _Reader:
    def __init__(self, linked: LinkedFunction, frame: NativeFrame | None, words: int) -> None:
        self._linked = linked
        self._frame = frame
        self.words = words

    def word(self, number: int) -> int:
        return int(peek(self.words + 8 * number, ctypes.c_int64))

    def size(self, described: Any) -> int:
        return described if type(described) is int else self.word(described[1])

    def object(self, number: int) -> Any:
        return ctypes.cast(self.word(number), ctypes.py_object).value

    def value(self, described: Any) -> Any:
        return _READERS[described[0]](self, *described[1:])

    def tensor(self, name: str, sizes: Any, data: int, holder: Any) -> Any:
        dtype, shape = DataType(name), tuple([self.size(d) for d in sizes])
        array = array_over(self.word(data), shape, to_numpy_dtype(dtype), self._holder(holder))
        return wrap_unchecked(array, dtype)

    def _holder(self, described: Any) -> Any:
        if described[0] == Described.OBJECT:
            return self.object(described[1])
        assert self._frame is not None
        return self._frame.arena(described[1]).raw

    def storage(self, size: Any, data: int, holder: Any, scope: str) -> Storage:
        size_bytes, address = self.size(size), self.word(data)
        if holder[0] == Described.ARENA:
            assert self._frame is not None
            arena = self._frame.arena(holder[1])
            return Storage(arena.raw, arena.start, size_bytes, scope)
        raw = array_over(address, (size_bytes,), _UINT8, self.object(holder[1]))
        return Storage(raw, 0, size_bytes, scope)

    def heap(self, size: int, memory: int) -> ShapeHeap:
        heap = ShapeHeap(size)
        words = (ctypes.c_int64 * (2 * size)).from_address(self.word(memory))
        for slot in range(size):
            value, written = words[2 * slot], words[2 * slot + 1]
            if written >= 0:
                heap.values[slot] = value
                heap.origins[slot] = self._origin(*divmod(written, ORIGIN_STEP))
        return heap

    def _origin(self, pc: int, place: int) -> str | DimProgram:
        program = self._linked.program
        instruction: Any = program.instructions(self._linked.info)[pc]
        said = static_values(program, builtin_args(instruction.args))[2]
        if type(said) is DimProgram:
            return said
        return origin_of(str(said), place - 1 if place else None)


_READERS: dict[str, Callable[..., Any]] = {
    Described.OBJECT: _Reader.object,
    Described.NONE: lambda reader: None,
    Described.INT: _Reader.size,
    Described.BOOL: lambda reader, word: bool(reader.word(word)),
    Described.FLOAT: lambda reader, word: peek(reader.words + 8 * word, ctypes.c_double),
    Described.SHAPE: lambda reader, sizes: ShapeTuple([reader.size(d) for d in sizes]),
    Described.TENSOR: _Reader.tensor,
    Described.STORAGE: _Reader.storage,
    Described.HEAP: _Reader.heap,
}
