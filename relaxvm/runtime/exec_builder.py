"""Writing bytecode by hand, or by a compiler: TVM's ExecBuilder.

    ib = ExecBuilder()
    with ib.function("main", num_inputs=2):
        ib.emit_call("env.add", args=[ib.r(0), ib.r(1)], dst=ib.r(2))
        ib.emit_ret(ib.r(2))
    ex = ib.get()

Registers may be numbered freely (parameters come first); `get` renumbers them, and verifies the
result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import field
from typing import Any

import numpy as np

from ..base import UNKNOWN, DataType, Span, VerifyError, VMTypeError, VMValueError, record
from .builtin import Builtins
from .builtin_row import Builtin
from .bytecode import (
    PAYLOAD_MAX,
    PAYLOAD_MIN,
    VM,
    VOID,
    Arg,
    ArgKind,
    Call,
    Goto,
    If,
    Instruction,
    Ret,
    encode,
    to_bytes,
)
from .constants import as_constant, constant_key, integer
from .debug_table import debug_table
from .executable import Executable
from .gaps import begun_without_gaps
from .kernel import KernelSection
from .ndarray import NDArray
from .program import FunctionInfo, Provenance
from .sinfo import Info, ObjectInfo

_REGISTER, _IMMEDIATE, _CONSTANT, _FUNCTION = ArgKind


class Label:
    """A place in a function to jump to, perhaps not reached yet."""

    __slots__ = ("pc",)

    def __init__(self) -> None:
        self.pc: int | None = None


@record(frozen=False)
class _Function:
    """A function being written."""

    name: str
    param_names: tuple[str, ...]
    params: tuple[Info, ...]
    ret: Info
    donated: tuple[int, ...]
    instructions: list[Instruction] = field(default_factory=list)
    sources: list[Span] = field(default_factory=list)
    jumps: list[tuple[int, Label]] = field(default_factory=list)


class ExecBuilder:
    """Collects functions, constants and kernels, and makes an `Executable` of them.

    source  where the instructions that are emitted next come from
    finish  waits until constants are copied: see `get`
    """

    def __init__(self) -> None:
        self.source = UNKNOWN
        self.finish: Callable[[], None] = lambda: None
        self._table: dict[str, int] = {}
        self._functions: dict[str, _Function] = {}
        self._current: _Function | None = None
        self._constants: list[Any] = []
        self._constant_index: dict[object, int] = {}
        self._kernels: KernelSection | None = None
        self._kernel_names: frozenset[str] = frozenset()

    # Operands

    def r(self, index: int) -> Arg:
        """Register `index`; the first ones hold the parameters."""
        return Arg(_REGISTER, integer(index, "register"))

    def imm(self, value: int) -> Arg:
        """An int; one too large for an instruction becomes a constant."""
        number = integer(value, "immediate")
        if PAYLOAD_MIN <= number <= PAYLOAD_MAX:
            return Arg(_IMMEDIATE, number)
        return self.convert_constant(number)

    def c(self, index: int) -> Arg:
        """Constant `index`, as `convert_constant` numbered it."""
        return Arg(_CONSTANT, integer(index, "constant"))

    def f(self, name: str) -> Arg:
        """The function `name`, which may be defined later."""
        return Arg(_FUNCTION, self._function_index(name))

    def void_arg(self) -> Arg:
        """No value."""
        return Arg(_REGISTER, VOID)

    def vm_state(self) -> Arg:
        """The virtual machine."""
        return Arg(_REGISTER, VM)

    def convert_constant(self, value: object) -> Arg:
        """`value` in the constant pool, where equal values share an entry.

        Raises VMTypeError for what a program cannot hold.
        """
        constant = as_constant(value)
        key = constant_key(constant)
        index = self._constant_index.get(key)
        if index is None:
            index = self._constant_index[key] = len(self._constants)
            self._constants.append(constant)
        return Arg(_CONSTANT, index)

    def _arg(self, value: object) -> Arg:
        if type(value) is Arg:
            return value
        if value is None:
            return self.void_arg()
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            return self.imm(int(value))
        return self.convert_constant(value)

    def _function_index(self, name: str) -> int:
        if type(name) is not str:
            if not isinstance(name, str):
                raise VMTypeError(f"function name: wanted a text, got {type(name).__name__}")
            name = str(name)
        return self._table.setdefault(name, len(self._table))

    # Functions

    @contextmanager
    def function(
        self,
        func_name: str,
        num_inputs: int | None = None,
        param_names: Sequence[str] | None = None,
        params_sinfo: Sequence[Info] | None = None,
        ret_sinfo: Info | None = None,
        donated: Sequence[int] = (),
    ) -> Iterator[ExecBuilder]:
        """The scope in which the instructions of a function are emitted.

        num_inputs may be left out if names or struct infos tell it. Parameters without a name are
        arg0, arg1, ...; `donated` are the numbers of those whose arguments a call uses up.
        """
        if self._current is not None:
            raise VMValueError(f"function {func_name}: still inside function {self._current.name}")
        if func_name in self._functions:
            raise VMValueError(f"function {func_name} is defined already")
        counts = [len(names) for names in (param_names, params_sinfo) if names is not None]
        if num_inputs is None:
            num_inputs = counts[0] if counts else 0
        if integer(num_inputs, "num_inputs") < 0 or any(count != num_inputs for count in counts):
            raise VMValueError(
                f"function {func_name}: num_inputs={num_inputs} does not fit {counts}"
            )
        if param_names is None:
            param_names = [f"arg{i}" for i in range(num_inputs)]
        infos = [ObjectInfo()] * num_inputs if params_sinfo is None else params_sinfo
        self._function_index(func_name)
        self._current = _Function(
            str(func_name), tuple(map(str, param_names)), tuple(infos), ret_sinfo or ObjectInfo(),
            tuple(donated),
        )  # fmt: skip
        try:
            yield self
            self._functions[self._current.name] = self._current
        finally:
            self._current = None

    def _emit(self, instruction: Instruction) -> None:
        scope = self._scope()
        scope.instructions.append(instruction)
        scope.sources.append(self.source)

    def _scope(self) -> _Function:
        if self._current is None:
            raise VMValueError('emit instructions inside a scope: with builder.function("name"):')
        return self._current

    def emit_call(
        self,
        name: str | Arg | Builtin,
        args: Sequence[object] | None = None,
        dst: Arg | None = None,
    ) -> None:
        """``dst = name(*args)``. Arguments that are no `Arg` become immediates and constants.

        Of `alloc_storage`, a shape and a `DataType` that are no `Arg` ask for so many elements, as
        in TVM; in the program the size is in bytes.
        """
        self._scope()
        if isinstance(name, Arg):
            if name.kind != _FUNCTION:
                raise VMTypeError(f"emit_call: wanted a function, got {name}")
            func = name.value
        else:
            func = self._function_index(name.name if isinstance(name, Builtin) else name)
        target = _register(self.void_arg() if dst is None else dst, "emit_call", "dst")
        if name in (Builtins.ALLOC_STORAGE, Builtins.ALLOC_STORAGE.name):
            args = _size_in_bytes(args or ())
        operands = tuple(map(self._arg, () if args is None else args))
        self._emit(Call(target, func, operands))

    def emit_ret(self, result: object) -> None:
        """Leave the function with `result`."""
        self._emit(Ret(self._arg(result)))

    def emit_goto(self, offset: int | Label) -> None:
        """Jump by `offset` instructions, or to a label."""
        self._emit(Goto(self._offset(offset)))

    def emit_if(self, cond: Arg, false_offset: int | Label) -> None:
        """Go on if `cond` holds, else jump by `false_offset` instructions or to a label."""
        register = _register(cond, "emit_if", "condition")
        self._emit(If(register, self._offset(false_offset)))

    def label(self) -> Label:
        """A label to jump to; `place` says where it is."""
        return Label()

    def place(self, label: Label) -> None:
        """Put `label` before the next instruction."""
        if label.pc is not None:
            raise VMValueError("place: the label has a place already")
        label.pc = len(self._scope().instructions)

    def _offset(self, offset: int | Label) -> int:
        scope = self._scope()
        if type(offset) is Label:
            scope.jumps.append((len(scope.instructions), offset))
            return 0
        return integer(offset, "jump offset")

    def add_kernels(self, section: KernelSection) -> None:
        """The kernels that calls may name. Once per executable."""
        if type(section) is not KernelSection:
            raise VMTypeError(f"add_kernels: wanted a KernelSection, got {type(section).__name__}")
        if self._kernels is not None:
            raise VMValueError("add_kernels: the executable has its kernels already")
        self._kernels = section
        self._kernel_names = frozenset(section.names)

    # The result

    def get(self, provenance: Provenance | None = None, wait: bool = True) -> Executable:
        """The verified executable. Raises VerifyError naming function and instruction.

        wait  False: constants that are views with gaps are copied when `finish` comes back
        """
        if self._current is not None:
            raise VMValueError(f"get: still inside function {self._current.name}")
        words: list[int] = []
        compiled: dict[str, FunctionInfo] = {}
        for name in self._table:
            written = self._functions.get(name)
            if written is None:
                is_kernel = name in self._kernel_names
                compiled[name] = FunctionInfo(name, "kernel" if is_kernel else "packed")
                continue
            if name in self._kernel_names:
                raise VerifyError(f"function {name} is a kernel too")
            instructions, registers = _numbered(written)
            start = len(words)
            words.extend(encode(instructions))
            interface = written.param_names, written.params, written.ret, written.donated
            compiled[name] = FunctionInfo(name, "vm", start, len(words), registers, *interface)
        executable = Executable(
            tuple(compiled.values()),
            tuple(self._without_gaps()),
            _code(words),
            self._kernels,
            provenance,
            debug=debug_table({name: f.sources for name, f in self._functions.items()}),
        )
        executable.verify()
        if wait:
            self.finish()
        return executable

    def _without_gaps(self) -> list[Any]:
        keys = {number: key for key, number in self._constant_index.items()}

        def replace(number: int, copy: NDArray) -> None:
            # The key may be an identity, which another array may have as soon as this is gone.
            del self._constant_index[keys[number]]
            self._constants[number] = copy
            self._constant_index[constant_key(copy)] = number

        constants, self.finish = begun_without_gaps(self._constants, replace)
        return constants


def _register(arg: Arg, method: str, what: str) -> int:
    if type(arg) is not Arg or arg.kind != _REGISTER:
        raise VMTypeError(f"{method}: wanted a register as {what}, got {arg!r}")
    return arg.value


def _code(words: list[int]) -> bytes:
    try:
        return to_bytes(words)
    except OverflowError:
        raise VerifyError("a jump offset does not fit 64 bits") from None


def _numbered(written: _Function) -> tuple[list[Instruction], int]:
    """The instructions with jumps resolved and registers numbered in order of appearance."""
    instructions = list(written.instructions)
    for pc, label in written.jumps:
        if label.pc is None:
            raise VerifyError(f"function {written.name}: instruction {pc}: its label has no place")
        offset, jump = label.pc - pc, instructions[pc]
        instructions[pc] = If(jump.cond, offset) if type(jump) is If else Goto(offset)
    numbers = {i: i for i in range(len(written.param_names))}

    def number(register: int) -> int:
        if register < 0:
            raise VerifyError(
                f"function {written.name}: wanted a register of at least 0, got {register}"
            )
        return register if register >= VOID else numbers.setdefault(register, len(numbers))

    def renamed(arg: Arg) -> Arg:
        return Arg(arg.kind, number(arg.value)) if arg.kind == _REGISTER else arg

    for pc, instruction in enumerate(instructions):
        if type(instruction) is Call:
            args = tuple(map(renamed, instruction.args))
            instructions[pc] = instruction._replace(args=args, dst=number(instruction.dst))
        elif type(instruction) is Ret:
            instructions[pc] = Ret(renamed(instruction.value))
        elif type(instruction) is If:
            instructions[pc] = instruction._replace(cond=number(instruction.cond))
    return instructions, len(numbers)


def _size_in_bytes(args: Sequence[object]) -> Sequence[object]:
    dtype = next((a for a in args if isinstance(a, DataType)), None)
    if dtype is None:
        return args
    return [
        (*a, dtype.itemsize) if isinstance(a, (tuple, list)) and type(a) is not Arg else a
        for a in args
    ]
