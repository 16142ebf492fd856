"""A compiled program as plain data: function table, constants, bytecode and kernels.

`Executable` is this with everything one can do with it; verifier, linker, listing and file format
need only the data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Literal, TypeVar

from ..base import UNKNOWN, Span, VMValueError, record
from .builtin import TABLE
from .bytecode import ArgKind, Call, Instruction, decode, from_bytes
from .debug_table import DebugTable
from .kernel import KernelSection
from .library import LIBRARY
from .plain import Plain
from .sinfo import Info, ObjectInfo

_P = TypeVar("_P", bound="Program")
FunctionKind = Literal["vm", "kernel", "packed"]


@record
class FunctionInfo:
    """A row of the function table.

    kind                      "vm" (bytecode), "kernel" (in the kernel section) or "packed"
                              (builtin or extern)
    start, end                its words of the bytecode
    register_file_size        registers it uses, its parameters first
    param_names, params, ret  what it wants and gives
    donated                   parameters, by number, whose arguments a call uses up
    """

    name: str
    kind: FunctionKind
    start: int = 0
    end: int = 0
    register_file_size: int = 0
    param_names: tuple[str, ...] = ()
    params: tuple[Info, ...] = ()
    ret: Info = field(default_factory=ObjectInfo)
    donated: tuple[int, ...] = ()

    @property
    def num_inputs(self) -> int:
        """How many arguments it takes."""
        return len(self.param_names)

    def signature(self) -> str:
        """``main(x: Tensor((n, 64), float32)) -> Tensor((n, 10), float32)``"""
        params = ", ".join(
            name if type(info) is ObjectInfo else f"{name}: {info}"
            for name, info in zip(self.param_names, self.params)
        )
        ret = "" if type(self.ret) is ObjectInfo else f" -> {self.ret}"
        return f"{self.name}({params}){ret}"


@record
class Provenance(Plain):
    """Where an executable came from. No time: equal input gives equal bytes."""

    producer: str = "relaxvm"
    version: str = ""
    target: str = ""
    passes: tuple[str, ...] = ()


def source_of(sources: Mapping[str, str], fmt: str) -> str:
    """The text of that format, by default the first. Raises VMValueError if there is none."""
    if not fmt and sources:
        return next(iter(sources.values()))
    if fmt not in sources:
        raise VMValueError(
            f"this module has no source {fmt!r}; there are: {', '.join(sources) or 'none'}"
        )
    return sources[fmt]


class Program:
    """A program for the VM.

    functions   its function table
    constants   NDArray, ShapeTuple, str, ... (see `constants`)
    code        the bytecode
    kernels     the kernel section, or None
    provenance  where it came from
    trusted     whether its native code may be run as it is
    verified    whether `verify_program` has accepted it
    debug       where its instructions come from, or None
    sources     texts of its kernels by format, such as "c"; files do not keep them
    """

    def __init__(
        self,
        functions: Sequence[FunctionInfo],
        constants: Sequence[Any],
        code: bytes,
        kernels: KernelSection | None = None,
        provenance: Provenance | None = None,
        trusted: bool = True,
        debug: DebugTable | None = None,
    ) -> None:
        self.functions = tuple(functions)
        self.constants = tuple(constants)
        self.code = code
        self.kernels = kernels
        self.provenance = provenance or Provenance()
        self.trusted = trusted
        self.debug = debug
        self.verified = False
        self.sources: Mapping[str, str] = {}
        self._words: list[int] | None = None
        self._decoded: dict[str, list[Instruction]] = {}

    def get_source(self, fmt: str = "") -> str:
        """The text of the kernels as `fmt` ("c", "llvm", "asm", ...; by default the first there
        is). Raises VMValueError where there is none: files do not keep it.
        """
        return source_of(self.sources, fmt)

    def instructions(self, function: FunctionInfo) -> list[Instruction]:
        """The decoded instructions of a bytecode function. Raises VerifyError if they are none."""
        decoded = self._decoded.get(function.name)
        if decoded is None:
            if self._words is None:
                self._words = from_bytes(self.code)
            decoded = decode(self._words, function.start, function.end)
            self._decoded[function.name] = decoded
        return decoded

    def source_of(self, function: str, pc: int) -> Span:
        """Where an instruction comes from: nodes of the model, or lines of source files (`parts`
        has them if they are several). `UNKNOWN` where nothing says it. Raises VMValueError if the
        program has no such function, or no such instruction.
        """
        count = len(self.instructions(self.function(function)))
        if not 0 <= pc < count:
            raise VMValueError(f"{function} has {count} instructions, wanted one of them, got {pc}")
        return UNKNOWN if self.debug is None else self.debug.source_of(function, pc)

    def mentioned(self, function: FunctionInfo) -> Iterator[tuple[FunctionInfo, bool]]:
        """The functions that one calls (True) and those that it passes on as values (False)."""
        for instruction in self.instructions(function):
            if isinstance(instruction, Call):
                yield self.functions[instruction.func], True
                for arg in instruction.args:
                    if arg.kind == ArgKind.FUNCTION:
                        yield self.functions[arg.value], False

    def called_functions(self, function: FunctionInfo) -> set[str]:
        """The bytecode functions that one calls or makes closures of."""
        return {callee.name for callee, _ in self.mentioned(function) if callee.kind == "vm"}

    @property
    def vm_functions(self) -> tuple[FunctionInfo, ...]:
        """The functions that can be called by name."""
        return tuple(f for f in self.functions if f.kind == "vm")

    @property
    def globals(self) -> tuple[str, ...]:
        """The names of the functions that can be called by name."""
        return tuple(f.name for f in self.vm_functions)

    def function(self, name: str) -> FunctionInfo:
        """The row of the bytecode function `name`. Raises VMValueError listing those that exist."""
        for info in self.functions:
            if info.name == name and info.kind == "vm":
                return info
        known = ", ".join(self.globals) or "none"
        raise VMValueError(f"no function {name!r} in this executable; it has: {known}")

    def needs(self) -> tuple[str, ...]:
        """The names of the functions somebody has to register or grant before this can run."""
        from_table = (f.name for f in self.functions if f.kind == "packed")
        return tuple(sorted(n for n in from_table if n not in TABLE and n not in LIBRARY))

    def with_trust(self: _P, trusted: bool) -> _P:
        """The same program with its native code trusted or not."""
        return self._with(trusted=trusted)

    def with_kernels(self: _P, kernels: KernelSection) -> _P:
        """The same program with other machine code for its kernels and functions."""
        return self._with(kernels=kernels)

    def stripped(self: _P) -> _P:
        """The same program without the table of where its instructions come from."""
        return self._with(debug=None)

    def _with(self: _P, **changed: Any) -> _P:
        parts = "functions constants code kernels provenance trusted debug".split()
        program = type(self)(**{part: getattr(self, part) for part in parts} | changed)
        program.verified = self.verified
        program._decoded = self._decoded
        return program
