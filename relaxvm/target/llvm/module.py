"""One LLVM module as text: declarations, constants, functions, loop metadata, in a stable order."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

from ...base import CodegenError
from ...base.llvm import Function, Module, Value
from .machine import Machine
from .text import computes_long

# LLVM makes vectors of 256 bits on most CPUs that have 512: better for loops that wait for memory,
# and for short ones. Long ones that compute, such as gelu of an array, take 1.3 times as long.
_WIDE = ' "prefer-vector-width"="512"'
_READ_ONLY = "private unnamed_addr constant"
# What LLVM is asked to leave undone with a loop.
NO_VECTORS = '!"llvm.loop.vectorize.enable", i1 false'
NO_UNROLLING = '!"llvm.loop.unroll.disable"'

MAX_CONSTANT_BYTES = 1 << 26


class ModuleText(Module):
    """Collects the parts of one module.

    confined     whether nothing may reach outside of the arguments (code from files)
    has_symbol   whether the process that will run the code has a C function of that name
    native_half  whether the machine converts float16 itself (else it is done with integers)
    failures     messages of run-time assertions, and the numbers that inner kernels return
    """

    def __init__(
        self,
        machine: Machine,
        confined: bool = False,
        has_symbol: Callable[[str], bool] = lambda name: True,
    ) -> None:
        super().__init__(machine.triple)
        self.machine = machine
        self.native_half = machine.native_half
        self.confined = confined
        self.has_symbol = has_symbol
        self.failures: dict[str, int] = {}
        self._constants: dict[str, Value] = {}
        self._constant_bytes = 0

    def call_function(self, g: Any, node: Any, parts: list[Value]) -> Value:
        """Emit a call of another function of the module. Only a whole module can."""
        raise CodegenError(f"calls {node.op}, which cannot be called here")

    def constant(self, data: bytes) -> Value:
        """A read-only global with these bytes, shared among equal ones."""
        digest = hashlib.sha256(data).hexdigest()
        if digest not in self._constants:
            self._constant_bytes += len(data)
            if self._constant_bytes > MAX_CONSTANT_BYTES:
                raise CodegenError(
                    f"more than {MAX_CONSTANT_BYTES} bytes of constants; pass them as arguments"
                )
            name, kind = f"constant{len(self._constants)}", f"[{len(data)} x i8]"
            initial = 'c"' + "".join([f"\\{byte:02X}" for byte in data]) + '"'
            self._constants[digest] = self.variable(name, kind, initial, 64, _READ_ONLY)
        return self._constants[digest]

    def failure(self, message: str) -> int:
        """The number of the assertion `message`."""
        return self.failures.setdefault(message, len(self.failures) + 1)

    def loop_hints(self, hints: Sequence[str]) -> str:
        """What the branch of a loop carries that is to be left as it is, as `hints` say."""
        if not hints:
            return ""
        nodes = ", ".join(map(self.metadata, hints))
        return f", !llvm.loop {self.metadata(nodes, distinct=True)}"

    def add(self, function: str | Function) -> None:
        """Append a definition."""
        if isinstance(function, Function) and computes_long(function):
            function.attributes += _WIDE
        super().add(function)
