"""LLVM IR from typed values: modules, functions, blocks, instructions.

    m = Module()
    f = m.define("i64(i64, i64)", "larger")
    a, b = f.params
    f.ret(f.select(f.op("icmp sgt", a, b), a, b))
    m.text()

A value knows its type, and each instruction compares those of its operands: what does not fit is a
CodegenError at the line that emits it. Operands may be Python numbers, and None for the null
pointer: constants of the type that is wanted there. Types are written as LLVM writes them: "i64",
"ptr", "<8 x float>", "{ i64, i1 }".

Text, rather than `llvmlite.ir`: that has no bfloat, takes 20 ms to import, and writes its text ten
times as slowly. Names and order depend on the input only.
"""

from __future__ import annotations

import functools
import re
import struct
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from typing import NoReturn

from .errors import CodegenError
from .record import NamedTuple

MAX_LANES = 256
MAX_INSTRUCTIONS = 1_000_000

_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_FLOATS = {"half": "f16", "bfloat": "bf16", "float": "f32", "double": "f64"}
_SUFFIX = {**_FLOATS, "ptr": "p0"}
_ALIGN = {"ptr": 8, "double": 8, "float": 4, "half": 2, "bfloat": 2}
_ZEROS = ("0", "false", "0x0000000000000000")
# (bits of the operand against those of the result, what the operand is, what the result is)
_CASTS = {
    "trunc": ("more", "i", "i"),
    "zext": ("less", "i", "i"),
    "sext": ("less", "i", "i"),
    "fptrunc": ("more", "f", "f"),
    "fpext": ("less", "f", "f"),
    "fptosi": ("", "f", "i"),
    "fptoui": ("", "f", "i"),
    "sitofp": ("", "i", "f"),
    "uitofp": ("", "i", "f"),
    "ptrtoint": ("", "p", "i"),
    "inttoptr": ("", "i", "p"),
    "bitcast": ("same", "if", "if"),
}
_INT_OPS = "add sub mul sdiv udiv srem urem shl lshr ashr and or xor".split()
_FLOAT_OPS = "fadd fsub fmul fdiv frem".split()
_KINDS = {
    **dict.fromkeys(_INT_OPS, "i"),
    **dict.fromkeys(_FLOAT_OPS, "f"),
    **{"icmp": "ip", "fcmp": "f"},
}


class Value(str):
    """An operand as LLVM writes it, a name or a constant, its type, and in how many of the loops
    that hoist it is computed. (A str, since most of what is done with one is to write it.)
    """

    __slots__ = ("depth", "type")
    type: str
    depth: int


Operand = Value | int | float | None
"""A value, or the constant of the type that is wanted: None is the null pointer."""

_write = str.__new__


def value(text: str, of: str, depth: int = 0) -> Value:
    """What LLVM writes as `text`, of the type `of`."""
    written = _write(Value, text)
    written.type, written.depth = of, depth
    return written


def address_in(name: str, size_bytes: int) -> Value:
    """The constant address ``&name + size_bytes`` in a global variable."""
    return value(f"getelementptr (i8, ptr @{name}, i64 {size_bytes})", "ptr")


# -- types -----------------------------------------------------------------------------------------


@functools.cache
def vector_of(element: str, lanes: int) -> str:
    """The type of `lanes` of `element`."""
    if lanes == 1:
        return element
    if lanes > MAX_LANES:
        raise CodegenError(
            f"a vector of {lanes} lanes: the limit is {MAX_LANES}; split the loop first"
        )
    return f"<{lanes} x {element}>"


@functools.cache
def parts_of(of: str) -> tuple[str, int]:
    """The type of an element and how many lanes there are: 1 of all but vectors."""
    vector = _VECTOR.fullmatch(of)
    return (vector[2], int(vector[1])) if vector else (of, 1)


@functools.cache
def mask_of(of: str) -> str:
    """What comparing two values of a type gives."""
    return vector_of("i1", parts_of(of)[1])


@functools.cache
def suffix_of(of: str) -> str:
    """How the names of intrinsics spell a type."""
    element, lanes = parts_of(of)
    return ("" if lanes == 1 else f"v{lanes}") + _SUFFIX.get(element, element)


@functools.cache
def _kind(of: str) -> tuple[str, int]:
    """("i", "f", "p" or "" for others, bits)"""
    element, lanes = parts_of(of)
    if element in _FLOATS:
        return "f", int(_FLOATS[element].strip("bf")) * lanes
    if element[:1] == "i" and element[1:].isdigit():
        return "i", int(element[1:]) * lanes
    return ("p", 64 * lanes) if element == "ptr" else ("", 0)


@functools.cache
def natural_align(of: str) -> int:
    """The alignment of a scalar in memory; of a vector, that of its elements."""
    element = parts_of(of)[0]
    return _ALIGN.get(element) or max(1, _kind(element)[1] // 8)


@functools.cache
def _signature(text: str) -> tuple[str, tuple[str, ...]]:
    """``"i64(ptr, i64)"``: the type of the result and those of the arguments; the last may be
    ``...``
    """
    result, _, listed = text.rstrip(")").partition("(")
    return result, tuple(listed.split(", ")) if listed else ()


@functools.cache
def _result(opcode: str, of: str) -> str:
    """The type that an instruction gives of two operands of a type."""
    first = opcode.split(" ", 1)[0]
    kinds = _KINDS.get(first)
    if kinds is None:
        raise CodegenError(f"LLVM has no instruction {opcode!r} of two operands")
    if _kind(of)[0] not in tuple(kinds):
        raise CodegenError(f"wanted {'integers' if 'i' in kinds else 'floats'}, got {of}")
    return mask_of(of) if first in ("icmp", "fcmp") else of


# -- constants -------------------------------------------------------------------------------------


def hex_double(number: float) -> str:
    """A float of 32 or 64 bits as LLVM writes it exactly."""
    return f"0x{struct.unpack('>Q', struct.pack('>d', number))[0]:016X}"


def splat_constant(text: str, element: str, lanes: int) -> str:
    """A constant in all lanes."""
    if lanes == 1:
        return text
    if text in _ZEROS:
        return "zeroinitializer"
    return "<" + ", ".join([f"{element} {text}"] * lanes) + ">"


def constant(number: Operand, of: str) -> Value:
    """A number as a constant of a type, in all lanes of a vector; a value of that type as it is.

    Raises CodegenError for what the type does not hold.
    """
    if isinstance(number, Value):
        if number.type != of:
            raise CodegenError(f"wanted {of}, got {number.type} {number}")
        return number
    # Not of floats: as keys of a cache, 0.0 and -0.0 are the same.
    make = int_constant.__wrapped__ if isinstance(number, float) else int_constant
    return make(number, of)


@functools.lru_cache(4096, typed=True)
def int_constant(number: int | float | None, of: str) -> Value:
    """`constant` of what is known to be an int, remembered."""
    element, lanes = parts_of(of)
    kind, bits = _kind(element)
    fits = False
    text = "null"
    if number is None:
        fits = kind == "p"
    elif kind == "f" and isinstance(number, (int, float)):
        text, fits = hex_double(float(number)), True
    elif element == "i1" and isinstance(number, int):
        text, fits = ("true" if number else "false"), number in (0, 1)
    elif kind == "i" and type(number) is int:
        text, fits = str(number), -(1 << (bits - 1)) <= number < 1 << bits
    if not fits:
        raise CodegenError(f"wanted {of}, got {type(number).__name__} {number!r}")
    return value(splat_constant(text, element, lanes), of)


# -- modules ---------------------------------------------------------------------------------------


class Module:
    """Collects the parts of a module, in the order in which they come."""

    def __init__(self, triple: str = "") -> None:
        self.triple = triple
        self.signatures: dict[str, tuple[str, tuple[str, ...]]] = {}
        self._declared: dict[str, str] = {}
        self._globals: list[str] = []
        self._functions: list[str | Function] = []
        self._metadata: dict[str, int] = {}

    def declare(
        self, name: str, result: str, args: tuple[str, ...], attributes: str = "nounwind readnone"
    ) -> None:
        """Declare an external function or an intrinsic; again is fine. `result` may begin with a
        linkage. Raises CodegenError if it is used with two signatures.
        """
        if name.startswith("llvm."):
            attributes = ""
        line = f"declare {result} @{name}({', '.join(args)}) {attributes}".rstrip()
        former = self._declared.setdefault(name, line)
        if former != line:
            raise CodegenError(
                f"extern {name} is used with two signatures: {former!r} and {line!r}"
            )
        self.signatures[name] = result.removeprefix("hidden "), args

    def declared(self, name: str) -> bool:
        """Whether a declaration of that name exists."""
        return name in self._declared

    def define(
        self,
        signature: str,
        name: str,
        attributes: str = "nounwind",
        linkage: str = "",
        budget: int = MAX_INSTRUCTIONS,
    ) -> Function:
        """A new function, ``"i64(ptr, i64)"``, with parameters %p0, %p1, ..."""
        result, kinds = _signature(signature)
        function = Function(self, name, result, attributes, linkage, budget)
        for i, kind in enumerate(kinds):
            function.param(f"p{i}", kind)
        self._functions.append(function)
        return function

    def add(self, function: str | Function) -> None:
        """Append a definition."""
        self._functions.append(function)

    def variable(self, name: str, of: str, initial: str, align: int, kind: str = "global") -> Value:
        """A global variable (or, as `kind` says, a constant); gives its address."""
        self._globals.append(f"@{name} = {kind} {of} {initial}, align {align}")
        return value(f"@{name}", "ptr")

    def metadata(self, node: str, distinct: bool = False) -> str:
        """The name of a node such as ``!"branch_weights", i32 9, i32 1``; equal ones share one,
        those that are `distinct` name themselves first.
        """
        number = len(self._metadata)
        own = ", ".join([f"!{number}"] + [node] * bool(node))
        written = f"distinct !{{{own}}}" if distinct else f"!{{{node}}}"
        return f"!{self._metadata.setdefault(written, number)}"

    def text(self, others: tuple[Module, ...] = ()) -> str:
        """The module, as one with `others`, which may declare what it defines."""
        every = (self, *others)
        functions = [f for each in every for f in each._functions]
        defined = {f.name for f in functions if isinstance(f, Function)}
        declared = {k: line for each in every for k, line in each._declared.items()}
        parts = [
            *([f'target triple = "{self.triple}"'] if self.triple else ()),
            *(line for each in every for line in each._globals),
            *[line for name, line in declared.items() if name not in defined],
        ]
        # Only one of several modules that become one may have nodes: they are numbered.
        nodes = [f"!{i} = {node}" for each in every for node, i in each._metadata.items()]
        written = [f if isinstance(f, str) else f.text() for f in functions]
        return "\n".join(parts) + "\n\n" + "\n\n".join([*written, *nodes]) + "\n"


# -- functions -------------------------------------------------------------------------------------


class _Loop(NamedTuple):
    """A loop that is open, and before which what it does not change is computed.

    before  the block that leads to it, and `line`, by which line of the function
    sure    the blocks in it that run whenever that line does
    hoisted what goes before that line, and `known`, what it computes
    """

    before: str
    line: int
    sure: set[str]
    hoisted: list[str]
    known: dict[str, Value]


class Function:
    """A function under construction: an entry block of allocas, then blocks in the order they are
    started.

    Every instruction counts against `budget`, so that hostile input ends in an error and not in a
    swap storm.

    params  the parameters so far
    block   the label of the block that is open, "" after its end
    known   what that block has computed of constants and registers, by its text or by the key of
            whoever asked for it; another object in each block
    loaded  by memory that no other overlaps, what that block has read of it since the last store
    """

    __slots__ = (
        "_counter",
        "_loops",
        "_parameters",
        "allocas",
        "attributes",
        "block",
        "budget",
        "known",
        "lines",
        "linkage",
        "loaded",
        "module",
        "name",
        "params",
        "result",
    )

    def __init__(
        self,
        module: Module,
        name: str,
        result: str,
        attributes: str = "nounwind",
        linkage: str = "",
        budget: int = MAX_INSTRUCTIONS,
    ) -> None:
        self.module = module
        self.name = name
        self.result = result
        self.attributes = attributes
        self.linkage = linkage
        self.budget = budget
        self.params: list[Value] = []
        self._parameters: list[str] = []
        self.allocas: list[str] = []
        self.lines: list[str] = ["start:"]
        self.block = "start"
        self._counter = 0
        self.known: dict[Hashable, Value] = {}
        self.loaded: dict[str, dict[str, Value]] = {}
        self._loops: list[_Loop] = []
        module.signatures[name] = result, ()

    def param(self, name: str, of: str, facts: str = "") -> Value:
        """One parameter more. facts: its attributes, " noalias align 64" """
        self._parameters.append(f"{of}{facts} %{name}")
        self.params.append(value(f"%{name}", of))
        self.module.signatures[self.name] = self.result, tuple([p.type for p in self.params])
        return self.params[-1]

    def text(self) -> str:
        """The whole definition."""
        linkage = f"{self.linkage} " if self.linkage else ""
        head = f"define {linkage}{self.result} @{self.name}({', '.join(self._parameters)})"
        body = [*self.allocas, "  br label %start", *self.lines, "}"]
        return "\n".join([f"{head} {self.attributes} {{", "entry:", *body])

    # -- lines -------------------------------------------------------------------------------------

    def _refuse(self, what: str, wanted: str, got: object) -> NoReturn:
        kind = f"{got.type} {got}" if isinstance(got, Value) else f"{type(got).__name__} {got!r}"
        raise CodegenError(f"{what} in {self.name}: wanted {wanted}, got {kind}")

    def _as(self, what: str, operand: Operand, of: str) -> Value:
        """An operand that is wanted to be of a type."""
        if isinstance(operand, Value) and operand.type == of:
            return operand
        try:
            return int_constant(operand, of) if type(operand) is int else constant(operand, of)
        except CodegenError as error:
            raise CodegenError(f"{what} in {self.name}: {error}") from None

    def emit(self, line: str) -> None:
        """Append an instruction without a result."""
        self._counter += 1
        if not self.block or self._counter > self.budget:
            self._stop(line)
        self.lines.append(line)

    def _stop(self, line: str) -> NoReturn:
        if self.block:
            raise CodegenError(f"more than {self.budget} LLVM instructions; split the function")
        raise CodegenError(f"{self.name}: no block is open for {line.strip()!r}")

    def result_of(self, text: str, of: str, depth: int | None = None) -> Value:
        """Append an instruction whose operands are as they should be; gives its result.

        depth  of an instruction that always gives the same of its operands: in how many loops they
               are computed. It is written once in a block, and before the loops that do not change
               it: of the kernels of ResNet-50 that leaves half of the text.
        """
        if depth is not None:
            known = self.known.get(text)
            if known is not None:
                return known
            if depth < len(self._loops):
                known = self.known[text] = self._hoisted(text, of, depth)
                return known
        self._counter = number = self._counter + 1
        name = _write(Value, f"%v{number}")
        name.type, name.depth = of, len(self._loops)
        if number > self.budget or not self.block:
            self._stop(text)
        self.lines.append(f"  %v{number} = {text}")
        if depth is not None:
            self.known[text] = name
        return name

    def _hoisted(self, text: str, of: str, depth: int) -> Value:
        loop = self._loops[depth]
        name = loop.known.get(text)
        if name is None:
            self._counter += 1
            name = loop.known[text] = value(f"%v{self._counter}", of, depth)
            loop.hoisted.append(f"  {name} = {text}")
        return name

    def varies(self, each: Value) -> bool:
        """Whether a value is another one in each iteration of the innermost loop that hoists."""
        return each.depth >= len(self._loops)

    def _surely(self) -> int:
        """Of how many of the open loops it cannot be told that this block runs if they do."""
        block, depth = self.block, len(self._loops)
        while depth and block in self._loops[depth - 1].sure:
            depth -= 1
            block = self._loops[depth].before
        return depth

    def label(self, hint: str) -> str:
        """A block name nobody has."""
        self._counter += 1
        return f"{hint}{self._counter}"

    # -- arithmetic --------------------------------------------------------------------------------

    def op(self, opcode: str, a: Operand, b: Operand) -> Value:
        """Arithmetic, logic and comparisons, flags with them: "add nuw", "fadd reassoc contract",
        "icmp ult", "fcmp oeq". One of the operands may be a number.
        """
        of = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else "a value"
        try:
            if not isinstance(a, Value):
                a = constant(a, of)
            if not isinstance(b, Value) or b.type != of:
                b = int_constant(b, of) if type(b) is int else constant(b, of)
            result = _result(opcode, of)
        except CodegenError as error:
            raise CodegenError(f"{opcode} in {self.name}: {error}") from None
        depth = a.depth if a.depth > b.depth else b.depth
        return self.result_of("".join((opcode, " ", of, " ", a, ", ", b)), result, depth)

    def not_(self, condition: Value) -> Value:
        """The opposite."""
        return self.op("xor", condition, True)

    def select(self, condition: Operand, a: Operand, b: Operand) -> Value:
        """`a` where `condition` holds, else `b`: one for all lanes, or lane by lane."""
        of = a.type if isinstance(a, Value) else b.type if isinstance(b, Value) else "a value"
        mask = getattr(condition, "type", "i1")
        if mask not in ("i1", mask_of(of)):
            self._refuse("select", mask_of(of), condition)
        if not isinstance(condition, Value):
            condition = self._as("select", condition, mask)
        if not isinstance(a, Value) or a.type != of:
            a = self._as("select", a, of)
        if not isinstance(b, Value) or b.type != of:
            b = self._as("select", b, of)
        parts = ("select ", mask, " ", condition, ", ", of, " ", a, ", ", of, " ", b)
        return self.result_of("".join(parts), of, max(condition.depth, a.depth, b.depth))

    def cast(self, opcode: str, a: Value, to: str) -> Value:
        """A conversion instruction; nothing where the types are the same."""
        of = a.type
        if of == to:
            return a
        order, source, result = _CASTS[opcode]
        (kind, bits), (to_kind, to_bits) = _kind(of), _kind(to)
        sized = order == "" or order == ("more" if bits > to_bits else "less")
        if order == "same":
            sized = bits == to_bits
        elif parts_of(of)[1] != parts_of(to)[1]:
            sized = False
        if not sized or kind not in source or to_kind not in result or not kind or not to_kind:
            self._refuse(f"{opcode} to {to}", "what can be converted so", a)
        return self.result_of(f"{opcode} {of} {a} to {to}", to, a.depth)

    # -- vectors and structs -----------------------------------------------------------------------

    def splat(self, one: Value, lanes: int) -> Value:
        """A scalar in every lane."""
        if lanes == 1:
            return one
        vector = vector_of(one.type, lanes)
        if not one.startswith("%"):
            return value(splat_constant(one, one.type, lanes), vector)
        first = self.with_lane(value("poison", vector), 0, one)
        mask = f"<{lanes} x i32> zeroinitializer"
        text = f"shufflevector {vector} {first}, {vector} poison, {mask}"
        return self.result_of(text, vector, first.depth)

    def lane(self, vector: Value, i: int) -> Value:
        """Element `i`."""
        element, lanes = parts_of(vector.type)
        if not 0 <= i < lanes or lanes == 1:
            self._refuse(f"lane {i}", "a vector that has it", vector)
        text = f"extractelement {vector.type} {vector}, i64 {i}"
        return self.result_of(text, element, vector.depth)

    def with_lane(self, vector: Value, i: int, one: Operand) -> Value:
        """The vector with another element `i`."""
        of = vector.type
        element, lanes = parts_of(of)
        if not 0 <= i < lanes or lanes == 1:
            self._refuse(f"lane {i}", "a vector that has it", vector)
        one = self._as("insertelement", one, element)
        text = f"insertelement {of} {vector}, {element} {one}, i64 {i}"
        return self.result_of(text, of, max(vector.depth, one.depth))

    def joined(self, scalars: list[Value]) -> Value:
        """The vector of these; the scalar itself if it is one."""
        if len(scalars) == 1:
            return scalars[0]
        vector = value("poison", vector_of(scalars[0].type, len(scalars)))
        for i, one in enumerate(scalars):
            vector = self.with_lane(vector, i, one)
        return vector

    def shuffle(self, a: Value, b: Value | None, places: list[int] | range) -> Value:
        """The elements at `places` of `a` and, counted on, of `b`."""
        of = a.type
        element, lanes = parts_of(of)
        second = value("poison", of) if b is None else self._as("shuffle", b, of)
        if lanes == 1 or not all(0 <= i < 2 * lanes for i in places):
            self._refuse(f"shuffle by {list(places)}", "a vector that has them", a)
        to, mask = vector_of(element, len(places)), ", ".join(f"i32 {i}" for i in places)
        listed = f"<{len(places)} x i32> <{mask}>"
        text = f"shufflevector {of} {a}, {of} {second}, {listed}"
        return self.result_of(text, to, max(a.depth, second.depth))

    def field(self, struct: Value, i: int) -> Value:
        """Element `i` of a struct."""
        kinds = struct.type.strip("{ }").split(", ")
        if not struct.type.startswith("{") or i >= len(kinds):
            self._refuse(f"field {i}", "a struct that has it", struct)
        return self.result_of(f"extractvalue {struct.type} {struct}, {i}", kinds[i], struct.depth)

    # -- memory ------------------------------------------------------------------------------------

    def alloca(
        self, element: str, align: int = 8, count: int | Value = 1, name: Value | None = None
    ) -> Value:
        """Stack memory in the entry block (right here if only the run knows the count). name: what
        it is called
        """
        if isinstance(count, Value):
            return self.result_of(f"alloca {element}, {count.type} {count}, align {align}", "ptr")
        if name is None:
            self._counter += 1
            name = value(f"%v{self._counter}", "ptr")
        self.allocas.append(f"  {name} = alloca [{count} x {element}], align {align}")
        return name

    def slot(self, of: str, initial: Operand) -> Value:
        """Stack memory that holds `initial` when the function begins."""
        name = self.alloca(of)
        first = self._as("slot", initial, of)
        self.allocas.append(f"  store {of} {first}, ptr {name}, align {natural_align(of)}")
        return name

    def let_escape(self, memory: Value) -> None:
        """Have stack memory, as far as LLVM knows, seen by others: it is not kept in registers."""
        self.allocas.append(f'  call void asm sideeffect "", "r"(ptr {memory})')

    def load(
        self,
        of: str,
        place: Value,
        align: int = 0,
        order: str = "",
        memory: str = "",
        is_fixed: bool = False,
    ) -> Value:
        """What lies at an address. order: of an atomic load. memory: what it is in, if no other
        overlaps that; such a load is written once between stores. is_fixed: whether nothing is
        ever stored there
        """
        if place.__class__ is not Value or place.type != "ptr":
            self._refuse("load", "ptr", place)
        head, tail = ("load atomic ", f" {order}") if order else ("load ", "")
        tail = f"{tail}, align {align or natural_align(of)}"
        text = "".join((head, of, ", ptr ", place, tail))
        if is_fixed:
            return self.result_of(text, of, max(place.depth, self._surely()))
        if not memory:
            return self.result_of(text, of)
        read = self.loaded.setdefault(memory, {})
        if text not in read:
            read[text] = self.result_of(text, of)
        return read[text]

    def store(
        self,
        stored: Operand,
        place: Value,
        align: int = 0,
        order: str = "",
        note: str = "",
        of: str = "",
        memory: str = "",
    ) -> None:
        """Put a value at an address. of: the type that is wanted, needed for numbers. memory: what
        it is in, if no other overlaps that
        """
        if place.__class__ is not Value or place.type != "ptr":
            self._refuse("store", "ptr", place)
        if not of and isinstance(stored, Value):
            of = stored.type
        else:
            stored = self._as("store", stored, of or "a value with a type")
        head, tail = ("  store atomic ", f" {order}") if order else ("  store ", "")
        tail = f"{tail}, align {align or natural_align(of)}{note}"
        self.emit("".join((head, of, " ", stored, ", ptr ", place, tail)))
        if memory:
            self.loaded.pop(memory, None)
        else:
            self.loaded = {}

    def at(self, pointer: Value, size_bytes: Operand, inbounds: bool = False) -> Value:
        """``pointer + size_bytes``"""
        return pointer if size_bytes == 0 else self.element("i8", pointer, size_bytes, inbounds)

    def element(self, of: str, array: Value, i: Operand, inbounds: bool = False) -> Value:
        """The address of element `i` (i64) of an array."""
        if array.__class__ is not Value or array.type != "ptr":
            self._refuse("address", "ptr", array)
        if type(i) is int:
            i = int_constant(i, "i64")
        elif not isinstance(i, Value) or i.type != "i64":
            i = self._as("address", i, "i64")
        head = "getelementptr inbounds " if inbounds else "getelementptr "
        depth = array.depth if array.depth > i.depth else i.depth
        return self.result_of("".join((head, of, ", ptr ", array, ", i64 ", i)), "ptr", depth)

    def member(self, struct: str, place: Value, i: int) -> Value:
        """The address of field `i` of a struct."""
        place = self._as("address", place, "ptr")
        head = f"getelementptr inbounds {struct}, ptr {place}"
        return self.result_of(f"{head}, i32 0, i32 {i}", "ptr", place.depth)

    def forget_memory(self) -> None:
        """Whatever was loaded before may have changed, as far as LLVM knows."""
        self.emit('  call void asm sideeffect "", "~{memory}"()')
        self.loaded = {}

    def change(self, how: str, place: Value, operand: Operand, order: str, of: str = "") -> Value:
        """atomicrmw: "add", "sub", "and", ...; gives what was there."""
        self.loaded = {}
        place, of = self._as(how, place, "ptr"), of or getattr(operand, "type", "")
        operand = self._as(how, operand, of or "a value with a type")
        return self.result_of(f"atomicrmw {how} ptr {place}, {of} {operand} {order}", of)

    def exchange(
        self, of: str, place: Value, expected: Operand, stored: Operand, order: str
    ) -> tuple[Value, Value]:
        """cmpxchg: what was there, and whether (i1) it was what is expected and is `stored` now.
        order: of success and failure, "acquire monotonic"
        """
        self.loaded = {}
        place, old = self._as("cmpxchg", place, "ptr"), self._as("cmpxchg", expected, of)
        new = self._as("cmpxchg", stored, of)
        text = f"cmpxchg ptr {place}, {of} {old}, {of} {new} {order}"
        pair = self.result_of(text, f"{{ {of}, i1 }}")
        return self.field(pair, 0), self.field(pair, 1)

    # -- calls -------------------------------------------------------------------------------------

    def call(self, callee: str | Value, *args: Operand, of: str = "", flags: str = "") -> Value:
        """A call of a function of the module by name, or of an address with signature `of`,
        ``"i64(ptr)"``. flags: LLVM's for floating point, or attributes of the result.
        """
        if isinstance(callee, Value):
            (result, wanted), target = _signature(of), str(self._as("call", callee, "ptr"))
        elif callee in self.module.signatures:
            (result, wanted), target = self.module.signatures[callee], f"@{callee}"
        else:
            raise CodegenError(f"call in {self.name}: {callee} is not declared")
        kind = result
        if wanted and wanted[-1] == "...":
            kind = f"{result} ({', '.join(wanted)})"
            wanted = wanted[:-1] + tuple(getattr(a, "type", "ptr") for a in args[len(wanted) - 1 :])
        if len(args) != len(wanted):
            raise CodegenError(
                f"call of {target} in {self.name}: wanted {len(wanted)} arguments "
                f"({', '.join(wanted)}), got {len(args)}"
            )
        self.loaded = {}
        listed = ""
        for t, a in zip(wanted, args):
            if not isinstance(a, Value) or a.type != t:
                a = self._as(target, a, t)
            listed += f", {t} {a}" if listed else f"{t} {a}"
        head = f"call {flags} {kind}" if flags else f"call {kind}"
        if result == "void":
            self.emit(f"  {head} {target}({listed})")
            return value("", "void")
        return self.result_of(f"{head} {target}({listed})", result)

    def extern(self, result: str, name: str, *args: Value, flags: str = "") -> Value:
        """A call of a pure function or an intrinsic, declared on the way."""
        if name not in self.module.signatures:
            self.module.declare(name, result, tuple([a.type for a in args]))
        loaded = self.loaded
        result = self.call(name, *args, flags=flags)
        self.loaded = loaded
        return result

    def intrinsic(self, name: str, *args: Value, flags: str = "") -> Value:
        """A call of the LLVM intrinsic `name`, overloaded on the type that its arguments and its
        result have.
        """
        of = args[0].type
        return self.extern(of, f"{name}.{suffix_of(of)}", *args, flags=flags)

    # -- blocks ------------------------------------------------------------------------------------

    def start(self, label: str) -> None:
        """Begin a block; the one before must have been ended."""
        if self.block:
            raise CodegenError(f"{self.name}: block {label} begins in {self.block}, not ended yet")
        self.block = label
        self.emit(f"{label}:")

    def enter(self, label: str) -> None:
        """End the block by going on in `label`, which begins here."""
        self.jump(label)
        self.start(label)

    def _end(self, line: str) -> None:
        self.emit(line)
        self.block, self.known, self.loaded = "", {}, {}

    def jump(self, label: str) -> None:
        """End the block: go to `label`."""
        self._end(f"  br label %{label}")

    def branch(
        self,
        condition: Operand,
        yes: str,
        no: str,
        note: str = "",
        weights: tuple[int, int] | None = None,
    ) -> None:
        """End the block: go to `yes` where `condition` (i1) holds, else to `no`.

        weights: how often each is taken, if that is known. note: ", " and other metadata
        """
        if not isinstance(condition, Value) or condition.type != "i1":
            condition = self._as("branch", condition, "i1")
        if weights is not None:
            both = "".join(f", i32 {weight}" for weight in weights)
            note += f', !prof {self.module.metadata(f"""!"branch_weights"{both}""")}'
        self._end(f"  br i1 {condition}, label %{yes}, label %{no}{note}")

    def switch(self, number: Value, otherwise: str, cases: dict[int, str]) -> None:
        """End the block: go where `number` has a case."""
        of = number.type
        listed = " ".join(f"{of} {constant(n, of)}, label %{to}" for n, to in cases.items())
        self._end(f"  switch {of} {number}, label %{otherwise} [ {listed} ]")

    def ret(self, result: Operand | str = "") -> None:
        """End the function with its result; with nothing if it has none."""
        if self.result == "void":
            if result != "":
                self._refuse("ret", "nothing", result)
            self._end("  ret void")
        elif isinstance(result, str) and not isinstance(result, Value):
            self._refuse("ret", self.result, result)
        else:
            self._end(f"  ret {self.result} {self._as('ret', result, self.result)}")

    def phi(self, of: str, *incoming: tuple[Operand, str]) -> Value:
        """The value of the block that led here; `incoming` adds more."""
        pairs = [f"[ {self._as('phi', v, of)}, %{block} ]" for v, block in incoming]
        return self.result_of(f"phi {of} " + ", ".join(pairs), of)

    def carried(
        self, of: str, *incoming: tuple[Operand, str]
    ) -> tuple[Value, Callable[[Operand, str], None]]:
        """A value that a loop carries on: as `phi`, with a function (value, block) that adds what
        it is on the way back from a block.
        """
        phi = self.phi(of, *incoming)
        lines, line = self.lines, len(self.lines) - 1

        def add(operand: Operand, block: str) -> None:
            lines[line] += f", [ {self._as('phi', operand, of)}, %{block} ]"

        return phi, add

    @contextmanager
    def into(self, lines: list[str], block: str) -> Iterator[None]:
        """What is emitted inside goes to the end of `lines`, which lie in `block`; to that of
        ``allocas`` in "entry": what the function begins with.
        """
        now = self.lines, self.block, self.known, self.loaded, self._loops
        self.lines, self.block, self.known, self.loaded, self._loops = lines, block, {}, {}, []
        try:
            yield
        finally:
            self.lines, self.block, self.known, self.loaded, self._loops = now

    @contextmanager
    def if_(self, condition: Operand) -> Iterator[Callable[[], None]]:
        """What is emitted inside runs where `condition` holds. What comes after a call of the
        function that this gives runs where it does not::

            with f.if_(c) as otherwise:
                ...
                otherwise()
                ...
        """
        yes, no, end = self.label("then"), self.label("else"), self.label("end")
        lines, line = self.lines, len(self.lines)
        self.branch(condition, yes, end)
        self.start(yes)

        def otherwise() -> None:
            lines[line] = lines[line].replace(f"%{end}", f"%{no}")
            if self.block:
                self.jump(end)
            self.start(no)

        yield otherwise
        if self.block:
            self.jump(end)
        self.start(end)

    def either(
        self,
        condition: Operand,
        yes: Callable[[], Value],
        no: Callable[[], Operand] = lambda: None,
    ) -> Value:
        """What `yes` emits and gives where `condition` holds, else what `no` does."""
        with self.if_(condition) as otherwise:
            a = yes()
            from_a = self.block
            otherwise()
            b = no()
            from_b = self.block
        return self.phi(a.type, (a, from_a), (b, from_b))

    @contextmanager
    def for_(
        self,
        end: Operand,
        first: Operand = 0,
        guard: str = "sgt",
        flags: str = "nuw nsw",
        note: Callable[[], str] = str,
        hoists: bool = False,
    ) -> Iterator[Value]:
        """A loop from `first` to before `end` (i64), which gives its counter.

        guard  how `end` compares with 0 where the loop runs at all; "" if it surely does
        flags  what is known of the addition to the counter
        note   ", " and metadata of the branch back, asked for after the body
        hoists whether what it does not change is computed before it
        """
        before, body, after = self.block, self.label("loop"), self.label("end")
        if guard and isinstance(end, Value):
            self.branch(self.op(f"icmp {guard}", end, 0), body, after)
        else:
            self.jump(body)
            guard = ""
        loops, around, line = self._loops, self._loops[-1:], len(self.lines) - 1
        loop = _Loop(before, line, set() if guard else {body}, [], {})
        if hoists:
            loops.append(loop)
        self.start(body)
        counter, add = self.carried("i64", (first, before))
        yield counter
        following = self.op(f"add {flags}", counter, 1)
        add(following, self.block)
        self.branch(self.op("icmp ne", following, end), body, after, note())
        if hoists:
            self.lines[line:line] = loop.hoisted
            del loops[len(loops) - 1 :]
        if around and not guard and before in around[0].sure:
            around[0].sure.add(after)
        self.start(after)

    @contextmanager
    def while_(self, condition: Callable[[], Operand]) -> Iterator[None]:
        """A loop as long as what `condition` emits holds."""
        head, body, end = self.label("while"), self.label("body"), self.label("end")
        self.enter(head)
        self.branch(condition(), body, end)
        self.start(body)
        yield
        self.jump(head)
        self.start(end)
