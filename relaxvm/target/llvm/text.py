"""LLVM IR as text: types, constants and a function under construction.

The generator writes text rather than calling `llvmlite.ir`: that layer has no bfloat, no
saturating casts and other pointer rules in every version, and costs several times as much. Names
and order depend on the input only.
"""

from __future__ import annotations

import re

from ...base import CodegenError, DataType
from ...ir import double_bits

# A value of a float type of 4, 8 or 16 bits lives in a register as the float32 that it is exactly.
_VALUE = {"bool": "i1", "handle": "ptr", "bfloat": "float"}
_FLOATS = {16: "float", 32: "float", 64: "double"}

MAX_LANES = 256


def scalar_type(dtype: DataType) -> str:
    """The register type of one element."""
    if dtype.is_int:
        return f"i{dtype.bits}"
    if dtype.kind == "float":
        return _FLOATS[dtype.bits]
    register = "float" if dtype.is_small_float else _VALUE.get(dtype.kind)
    if register is None:
        raise CodegenError(f"a value of dtype {dtype} has no register type")
    return register


def vector_of(element: str, lanes: int) -> str:
    """The type of `lanes` of `element`."""
    if lanes == 1:
        return element
    if lanes > MAX_LANES:
        raise CodegenError(
            f"a vector of {lanes} lanes: the limit is {MAX_LANES}; split the loop first"
        )
    return f"<{lanes} x {element}>"


def value_type(dtype: DataType) -> str:
    """The register type of a scalar or vector."""
    return vector_of(scalar_type(dtype), dtype.lanes)


def storage_type(dtype: DataType, native_half: bool) -> str:
    """The type of one element in memory."""
    if dtype.is_bool or dtype.is_byte:
        return "i8"
    if dtype.kind == "bfloat":
        return "i16"
    if dtype.kind == "float" and dtype.bits == 16:
        return "half" if native_half else "i16"
    return scalar_type(dtype)


def element_constant(value: int | float, dtype: DataType) -> str:
    """A scalar constant of `dtype`."""
    if dtype.is_float:
        return f"0x{double_bits(float(value)):016X}"
    if dtype.kind == "bool":
        return "true" if value else "false"
    return str(int(value))


def splat_constant(constant: str, element: str, lanes: int) -> str:
    """`constant` in all lanes."""
    if lanes == 1:
        return constant
    if constant in ("0", "false", "0x0000000000000000"):
        return "zeroinitializer"
    return "<" + ", ".join([f"{element} {constant}"] * lanes) + ">"


def quote_bytes(data: bytes) -> str:
    """The initialiser of an array of i8."""
    return 'c"' + "".join(f"\\{byte:02X}" for byte in data) + '"'


def mangle(name: str) -> str:
    """`name` as part of a symbol: letters, digits and ``_`` stay, others become ``$`` and
    hexadecimal code points.
    """
    return "".join(
        c if c.isascii() and (c.isalnum() or c == "_") else f"${ord(c):x}$" for c in name
    )


# LLVM makes vectors of 256 bits on most CPUs that have 512: better for loops that wait for memory,
# and for short ones. Long ones that compute, such as gelu of an array, take 1.3 times as long.
_WIDE = ' "prefer-vector-width"="512"'
_ARITHMETIC = ("fmul float", "fadd float", "fsub float", "fdiv float", "call float @llvm.fm")
_LENGTH = re.compile(r" = icmp ne i64 %v\d+, (\d+)\n")
_SHORT = 64


def _computes_long(body: str) -> bool:
    """Whether there are many operations of float32 for each that is loaded, as in the formulas of
    elementary functions, and no loop is known to be short.
    """
    operations = sum(body.count(f" = {each}") for each in _ARITHMETIC)
    if operations < 8 * max(1, body.count(" = load float")):
        return False
    return all(int(length) >= _SHORT for length in _LENGTH.findall(body))


class FunctionText:
    """One function under construction: an entry block of allocas, then blocks in the order they
    are started.

    Every instruction counts against `budget`, so that hostile input ends in an error and not in a
    swap storm.
    """

    __slots__ = ("_counter", "allocas", "block", "budget", "header", "lines")

    def __init__(self, header: str, budget: int) -> None:
        self.header = header
        self.budget = budget
        self.allocas: list[str] = []
        self.lines: list[str] = ["start:"]
        self.block = "start"
        self._counter = 0

    def fresh(self) -> str:
        """A value name nobody has."""
        self._counter += 1
        return f"%v{self._counter}"

    def label(self, hint: str) -> str:
        """A block name nobody has."""
        self._counter += 1
        return f"{hint}{self._counter}"

    def emit(self, line: str) -> None:
        """Append an instruction without a result."""
        lines = self.lines
        lines.append(line)
        if len(lines) > self.budget:
            raise CodegenError(f"more than {self.budget} LLVM instructions; split the function")

    def op(self, text: str) -> str:
        """Append an instruction; returns the name of its result."""
        self._counter += 1
        name = f"%v{self._counter}"
        self.emit(f"  {name} = {text}")
        return name

    def alloca(self, element: str, align: int, count: int = 1) -> str:
        """Stack memory in the entry block."""
        name = self.fresh()
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align {align}")
        return name

    def start(self, label: str) -> None:
        """Begin the block `label`; the one before must have been ended."""
        self.emit(f"{label}:")
        self.block = label

    def jump(self, label: str) -> None:
        """End the block: go to `label`."""
        self.emit(f"  br label %{label}")

    def branch(self, condition: str, yes: str, no: str) -> None:
        """End the block: go to `yes` where `condition` holds, else to `no`."""
        self.emit(f"  br i1 {condition}, label %{yes}, label %{no}")

    def text(self) -> str:
        """The whole definition."""
        body = "\n".join(["entry:", *self.allocas, "  br label %start", *self.lines, "}"])
        wide = _WIDE if _computes_long(body) else ""
        return f"{self.header}{wide} {{\n{body}"
