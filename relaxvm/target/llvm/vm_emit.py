"""The small pieces that compiled VM functions are emitted from: loads, words of the context, calls
of C functions.
"""

from __future__ import annotations

from ...base import llvm
from ...runtime import pyabi as abi

MAX_INSTRUCTIONS = 2_000_000

# What every function has under these names; the last three in its entry block.
CTX, OUT = (llvm.value(name, "ptr") for name in ("%ctx", "%out"))
DEPTH, BASE = (llvm.value(name, "i64") for name in ("%depth", "%base"))
SLOTS, SCRATCH, SPILL = (llvm.value(name, "ptr") for name in ("%slots", "%scratch", "%spill"))

# The C functions among the words of the context.
C_FUNCTIONS = {
    "PyBytes_FromStringAndSize": "ptr(ptr, i64)",
    "PyErr_CheckSignals": "i32()",
    "PyErr_Clear": "void()",
    "PyErr_Fetch": "void(ptr, ptr, ptr)",
    "PyErr_NormalizeException": "void(ptr, ptr, ptr)",
    "PyErr_Restore": "void(ptr, ptr, ptr)",
    "PyEval_RestoreThread": "void(ptr)",
    "PyEval_SaveThread": "ptr()",
    "PyException_SetTraceback": "i32(ptr, ptr)",
    "PyFloat_AsDouble": "double(ptr)",
    "PyFloat_FromDouble": "ptr(double)",
    "PyLong_AsLongLong": "i64(ptr)",
    "PyLong_FromLongLong": "ptr(i64)",
    "PyObject_Vectorcall": "ptr(ptr, ptr, i64, ptr)",
    "PyTuple_New": "ptr(i64)",
    "PyType_GenericAlloc": "ptr(ptr, i64)",
    "Py_DecRef": "void(ptr)",
    "Py_IncRef": "void(ptr)",
}


class Words(dict[str, int]):
    """The names of the context's words so far, and their places in bytes from its start."""

    def __missing__(self, name: str) -> int:
        self[name] = 8 * len(self)
        return self[name]


class Pieces:
    """Emits into one function.

    words  those of its context
    ctx    the address of the context
    """

    def __init__(self, text: llvm.Function, words: Words, ctx: llvm.Value = CTX) -> None:
        self.text = text
        self.words = words
        self.ctx = ctx

    def field(
        self, pointer: llvm.Value, size_bytes: int, kind: str = "ptr", align: int = 8
    ) -> llvm.Value:
        """What lies at ``pointer + size_bytes``."""
        return self.text.load(kind, self.text.at(pointer, size_bytes), align)

    def context_place(self, name: str) -> llvm.Value:
        """The address of a word of the context."""
        return self.text.at(self.ctx, self.words[name])

    def word(self, name: str, kind: str = "ptr") -> llvm.Value:
        """A word of the context."""
        return self.text.load(kind, self.context_place(name), 8)

    def call(self, name: str, *args: llvm.Operand) -> llvm.Value:
        """Call a C function of the context."""
        return self.text.call(self.word(f"py:{name}"), *args, of=C_FUNCTIONS[name])

    def vectorcall(self, name: str, *objects: llvm.Value) -> llvm.Value:
        """Call a helper of the runtime with objects."""
        row = self.text.alloca("ptr", 8, len(objects))
        for i, one in enumerate(objects):
            self.text.store(one, self.text.at(row, 8 * i))
        helper = self.word(f"call:{name}")
        return self.call("PyObject_Vectorcall", helper, row, len(objects), None)

    def go_if(self, condition: llvm.Operand, label: str) -> None:
        """Go to `label` where `condition` (i1) holds."""
        on = self.text.label("on")
        self.text.branch(condition, label, on)
        self.text.start(on)

    def long_of(self, item: llvm.Value, otherwise: str) -> llvm.Value:
        """The value of an int of 64 bits; goes to `otherwise` where it is none."""
        self.go_if(self.text.not_(self.is_kind(item, "type:int")), otherwise)
        number = self.call("PyLong_AsLongLong", item)
        # -1 may mean that an error is set: rare enough to ask the interpreter.
        with self.text.if_(self.text.op("icmp eq", number, -1)):
            self.call("PyErr_Clear")
            self.text.jump(otherwise)
        return number

    def gapless(self, pointer: llvm.Value, otherwise: str) -> None:
        """Go to `otherwise` unless an NDArray holds an array without gaps."""
        array = self.field(pointer, abi.SLOT_ARRAY)
        self.go_if(self.text.op("icmp eq", array, None), otherwise)
        flags = self.text.op("and", self.field(array, abi.ND_FLAGS, "i32", 4), abi.C_CONTIGUOUS)
        self.go_if(self.text.op("icmp eq", flags, 0), otherwise)

    def count(self, pointer: llvm.Value) -> None:
        """A reference more."""
        self.call("Py_IncRef", pointer)

    def drop(self, pointer: llvm.Value) -> None:
        """A reference less; null is fine."""
        self.call("Py_DecRef", pointer)

    def held_once(self, pointer: llvm.Value) -> llvm.Value:
        """i1: whether an object has one reference."""
        return self.text.op("icmp eq", self.field(pointer, abi.OB_REFCNT, "i32", 4), 1)

    def truth_of(self, pointer: llvm.Value) -> tuple[llvm.Value, llvm.Value]:
        """i1: whether an object is True, and whether it is a bool."""
        yes = self.text.op("icmp eq", pointer, self.word("obj:True"))
        no = self.text.op("icmp eq", pointer, self.word("obj:False"))
        return yes, self.text.op("or", yes, no)

    def is_kind(self, pointer: llvm.Value, name: str) -> llvm.Value:
        """i1: whether an object is exactly of a type of the context."""
        kind = self.field(pointer, abi.OB_TYPE)
        return self.text.op("icmp eq", kind, self.word(name))
