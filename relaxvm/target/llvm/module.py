"""One LLVM module as text: declarations, constants, functions, loop metadata, in a stable order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from ...base import CodegenError
from .text import quote_bytes

_VECTOR = re.compile(r"<(\d+) x (\w+)>")
_DEFINED = re.compile(r"define [^@]*@([\w.$]+)\(")
_SUFFIX = {"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"}

MAX_CONSTANT_BYTES = 1 << 26


class ModuleText:
    """Collects the parts of one module.

    confined     whether nothing may reach outside of the arguments (code from files)
    has_symbol   whether the process that will run the code has a C function of that name
    native_half  whether the machine converts float16 itself (else it is done with integers)
    dot_units    the dot-product instructions of the machine (`dot_units.py`), found when asked
    constants    what the names of constants begin with
    failures     messages of run-time assertions; the inner kernels return position + 1
    """

    def __init__(
        self,
        triple: str,
        native_half: bool,
        confined: bool = False,
        has_symbol: Callable[[str], bool] = lambda name: True,
        dot_units: Callable[[], frozenset[str]] = frozenset,
        constants: str = "constant",
    ) -> None:
        self.triple = triple
        self._constants_stem = constants
        self.native_half = native_half
        self.confined = confined
        self.has_symbol = has_symbol
        self.dot_units = dot_units
        self.failures: list[str] = []
        self._failure_numbers: dict[str, int] = {}
        self._declared: dict[str, str] = {}
        self._constants: dict[str, str] = {}
        self._constant_bytes = 0
        self._functions: list[str] = []
        self._scalar_loops = 0

    def call_function(self, g: Any, node: Any, parts: list[str]) -> str:
        """Emit a call of another function of the module. Only a whole module can."""
        raise CodegenError(f"calls {node.op}, which cannot be called here")

    @staticmethod
    def suffix(of: str) -> str:
        """How intrinsic names spell a type."""
        vector = _VECTOR.fullmatch(of)
        if vector:
            return f"v{vector[1]}{_SUFFIX.get(vector[2], vector[2])}"
        return _SUFFIX.get(of, of)

    def declare(
        self, name: str, result: str, args: tuple[str, ...], attributes: str = "nounwind readnone"
    ) -> None:
        """Declare an external function or an intrinsic. Raises CodegenError if it is used with two
        signatures.
        """
        if name.startswith("llvm."):
            attributes = ""
        line = f"declare {result} @{name}({', '.join(args)}) {attributes}".rstrip()
        former = self._declared.setdefault(name, line)
        if former != line:
            raise CodegenError(
                f"extern {name} is used with two signatures: {former!r} and {line!r}"
            )

    def declared(self, name: str) -> bool:
        """Whether a declaration of that name exists."""
        return name in self._declared

    def constant(self, data: bytes) -> str:
        """A read-only global with these bytes, shared among equal ones."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._constants:
            self._constant_bytes += len(data)
            if self._constant_bytes > MAX_CONSTANT_BYTES:
                raise CodegenError(
                    f"more than {MAX_CONSTANT_BYTES} bytes of constants; pass them as arguments"
                )
            name = f"@{self._constants_stem}{len(self._constants)}"
            kind = f"[{len(data)} x i8]"
            self._constants[digest] = (
                f"{name} = private unnamed_addr constant {kind} {quote_bytes(data)}, align 64"
            )
        return self._constants[digest].split(" ", 1)[0]

    def failure(self, message: str) -> int:
        """The number of the assertion `message`."""
        number = self._failure_numbers.get(message)
        if number is None:
            self.failures.append(message)
            number = self._failure_numbers[message] = len(self.failures)
        return number

    def scalar_loop(self) -> str:
        """What the branch of a loop carries that LLVM must not make vectors of."""
        self._scalar_loops += 1
        return f", !llvm.loop !{self._scalar_loops}"

    def add(self, function: str) -> None:
        """Append a definition."""
        self._functions.append(function)

    def text(self, others: tuple[ModuleText, ...] = ()) -> str:
        """The module, as one with `others`, which may declare what it defines."""
        every = (self, *others)
        functions = [f for each in every for f in each._functions]
        defined = {name[1] for name in map(_DEFINED.match, functions) if name}
        declared = {k: line for each in every for k, line in each._declared.items()}
        parts = [
            f'target triple = "{self.triple}"',
            *(constant for each in every for constant in each._constants.values()),
            *(line for name, line in declared.items() if name not in defined),
        ]
        loops = range(1, self._scalar_loops + 1)
        functions += [f"!{i} = distinct !{{!{i}, !0}}" for i in loops]
        if loops:
            functions.append('!0 = !{!"llvm.loop.vectorize.enable", i1 false}')
        return "\n".join(parts) + "\n\n" + "\n\n".join(functions) + "\n"
