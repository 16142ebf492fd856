"""What the code generator knows about the value of a register at a point of a VM function.

A value that is not boxed costs nothing until somebody wants an object: a tensor is a pointer and
sizes, a shape is sizes, a number is a number. Sizes are ints where they are constant, else names
of i64 values.
"""

from __future__ import annotations

from dataclasses import field, replace
from typing import Any, Literal

from ...base import DataType, llvm, record

Size = int | llvm.Value
Place = llvm.Value | tuple[str, int]
"""An SSA name, or ("ctx" | "frame", byte offset): loaded where it is used."""

NOWHERE = llvm.constant(None, "ptr")
_NO, _ZERO = llvm.constant(False, "i1"), llvm.constant(0.0, "double")


@record(values=False, frozen=False)
class Region:
    """Where the memory of a tensor lies.

    kind      "prepared", "arena", "fresh" (allocated in this call), "constant" or "foreign"
    shown     whether code outside of the function gets to see it: then what comes from outside may
              lie in it too
    result    i1 name: whether the memory is the caller's `out`; None if it never is
    again     where the last arrays of this memory are kept; None if they are not
    """

    kind: Literal["prepared", "arena", "fresh", "constant", "foreign"]
    shown: bool = False
    result: llvm.Value | None = None
    again: llvm.Value | None = None


@record(frozen=False)
class Value:
    """Base class. `box` is where the object lies, None if there is none yet."""

    box: Place | None = None

    def copied(self) -> Any:
        """The same value for another register."""
        return replace(self)


@record(frozen=False)
class Nothing(Value):
    """None."""


@record(frozen=False)
class Obj(Value):
    """Anything. kind: the name of its exact type, if known."""

    kind: str = ""


@record(frozen=False)
class Tensor(Value):
    """A C-contiguous tensor. dtype None: not known.

    holder      the object that keeps the memory alive; None: the box does
    start, end  its bytes within its region, if they are constant
    writeable   whether it is known that its memory may be written
    """

    dtype: DataType | None = None
    dims: tuple[Size, ...] = ()
    data: Place = NOWHERE
    region: Region = field(default_factory=lambda: Region("foreign"))
    holder: Place | None = None
    start: int = 0
    end: int = -1
    arena: int = -1
    writeable: bool = False


@record(frozen=False)
class Memory(Value):
    """A storage."""

    base: Place = NOWHERE
    size: Size = 0
    region: Region = field(default_factory=lambda: Region("fresh"))
    holder: Place | None = None
    arena: int = -1
    scope: str = "global"


@record(frozen=False)
class Shape(Value):
    """A shape."""

    dims: tuple[Size, ...] = ()


@record(frozen=False)
class Integer(Value):
    """An int of 64 bits."""

    value: Size = 0


@record(frozen=False)
class Boolean(Value):
    """A bool (i1)."""

    value: llvm.Value = _NO


@record(frozen=False)
class Real(Value):
    """A float (double)."""

    value: llvm.Value = _ZERO


@record(frozen=False)
class TupleOf(Value):
    """A tuple of known length; `items` as far as they are known."""

    items: tuple[Value | None, ...] = ()


@record(frozen=False)
class Heap(Value):
    """The shape heap.

    memory   two words per slot: its value, and the instruction that wrote it, -1 for none
    size     how many slots there are
    known    the values that are known here
    writes   how many instructions write each slot
    """

    memory: llvm.Value = NOWHERE
    size: int = 0
    known: dict[int, Size] = field(default_factory=dict)
    writes: dict[int, int] = field(default_factory=dict)

    def copied(self) -> Heap:
        """The same heap, with knowledge of its own."""
        return replace(self, known=dict(self.known))
