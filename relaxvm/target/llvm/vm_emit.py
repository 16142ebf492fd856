"""The small pieces that compiled VM functions are emitted from: loads, words of the context, calls
of C functions.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...runtime import pyabi as abi
from .text import FunctionText
from .vm_values import Place

if TYPE_CHECKING:
    from .vm_program import Unit


MAX_INSTRUCTIONS = 2_000_000


class Emitter:
    """Emits into one function, whose context is ``%ctx`` and whose frame is ``%frame``."""

    def __init__(self, unit: Unit) -> None:
        self.unit = unit
        self.text = FunctionText("", MAX_INSTRUCTIONS)
        self.values: dict[Any, str] = {}
        self._lasting: dict[Any, str] = {}
        self._scratch = 0

    def offset(self, pointer: str, size_bytes: int) -> str:
        """``pointer + size_bytes``"""
        if size_bytes == 0:
            return pointer
        return self.text.op(f"getelementptr i8, ptr {pointer}, i64 {size_bytes}")

    def field(self, pointer: str, size_bytes: int, kind: str = "ptr", align: int = 8) -> str:
        """What lies at ``pointer + size_bytes``."""
        address = self.offset(pointer, size_bytes)
        return self.text.op(f"load {kind}, ptr {address}, align {align}")

    def fill(self, memory: str, size_bytes: int, byte: int) -> None:
        """Set all bytes of `memory`."""
        if size_bytes:
            self.text.emit(self._filled(memory, size_bytes, byte))

    def context_place(self, name: str) -> str:
        """The address of a word of the context."""
        return self.offset("%ctx", self.unit.words.offset(name))

    def word(self, name: str, kind: str = "ptr") -> str:
        """A word of the context."""
        return self.text.op(f"load {kind}, ptr {self.context_place(name)}, align 8")

    def load(self, place: Place, kind: str = "ptr") -> str:
        """What lies at `place`."""
        if isinstance(place, str):
            return place
        base, offset = place
        return self.field("%" + base, offset, kind)

    def in_context(self, name: str) -> Place:
        """The place of a word of the context."""
        return ("ctx", self.unit.words.offset(name))

    def call(self, name: str, result: str, args: str) -> str:
        """Call a C function of the context."""
        function = self.word(name)
        if result == "void":
            self.text.emit(f"  call void {function}({args})")
            return ""
        return self.text.op(f"call {result} {function}({args})")

    def count(self, pointer: str) -> None:
        """A reference more."""
        self.call("py:Py_IncRef", "void", f"ptr {pointer}")

    def drop(self, pointer: str) -> None:
        """A reference less; null is fine."""
        self.call("py:Py_DecRef", "void", f"ptr {pointer}")

    def scratch(self, count: int) -> str:
        """Memory for `count` words, until the next call of this."""
        self._scratch = max(self._scratch, count)
        return "%scratch"

    def row(self, values: list[str], kind: str = "ptr") -> str:
        """The scratch memory holding these."""
        place = self.scratch(max(1, len(values)))
        for i, value in enumerate(values):
            self.text.emit(f"  store {kind} {value}, ptr {self.offset(place, 8 * i)}, align 8")
        return place

    def known(self, key: Any) -> str | None:
        """The value computed here before from the same things."""
        return self.values.get(key) or self._lasting.get(key)

    def learn(self, key: Any, value: str) -> None:
        """Remember a value for `known`."""
        self.values[key] = value

    def _filled(self, memory: str, size_bytes: int, byte: int) -> str:
        self.unit.declare_memset()
        return (
            f"  call void @llvm.memset.p0.i64(ptr align 8 {memory}, i8 {byte}, "
            f"i64 {size_bytes}, i1 false)"
        )

    def is_kind(self, pointer: str, name: str) -> str:
        """i1: whether an object is exactly of a type of the context."""
        kind = self.field(pointer, abi.OB_TYPE)
        return self.text.op(f"icmp eq ptr {kind}, {self.word(name)}")

    def not_(self, condition: str) -> str:
        """i1"""
        return self.text.op(f"xor i1 {condition}, true")
