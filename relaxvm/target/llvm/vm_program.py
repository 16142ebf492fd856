"""The VM functions of a program as an LLVM module, which calls the inner kernels of others.

Enters: a verified program, and how its kernels are called (`codegen.InnerKernel`). Leaves: entries
in the module, and what the runtime must know to link them (`runtime.compiled_code`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ...base import CodegenError, llvm, reachable
from ...runtime import (
    INTERPRETER,
    CompiledCode,
    CompiledInfo,
    NDArray,
    Program,
    ResolvedFunction,
    layout_plain,
    resolve_program,
)
from .codegen import InnerKernel
from .module import ModuleText
from .text import mangle
from .vm_body import Body
from .vm_emit import Words
from .vm_entry import Entry, fields_in_place, result_in_place
from .vm_exits import Untranslatable
from .vm_instructions import emit_instruction
from .vm_support import declare_support
from .vm_values import Region

MAX_FUNCTIONS = 4096
MAX_SITES = 200_000


class Unit:
    """The compiled functions of one program.

    numbers       of its VM functions, by name
    kernels       how each is called, and `kernel_infos`, the runtime's descriptions of them
    failed        why functions have no body here
    """

    def __init__(
        self, generator: ModuleText, program: Program, kernels: Mapping[str, InnerKernel]
    ) -> None:
        self.generator = generator
        self.program = program
        self.words = Words()
        self.infos = list(program.vm_functions)
        self.constants_region = Region("constant")
        self.has_tensor_constants = any(type(c) is NDArray for c in program.constants)
        section = program.kernels
        infos = () if section is None else section.infos
        self.kernel_infos = {info.name: info for info in infos}
        self.kernels = kernels
        self.resolved = resolve_program(program, True, ResolvedFunction)
        self.numbers = {info.name: i for i, info in enumerate(self.infos)}
        self._called = [
            {self.numbers[name] for name in program.called_functions(info)} for info in self.infos
        ]
        self._reach: dict[int, set[int]] = {}
        self.failed: dict[int, str] = {}
        self.sites: list[tuple[Any, ...]] = []

    # -- what bodies ask ---------------------------------------------------------------------------

    def body_symbol(self, index: int) -> str:
        """The symbol of the body of a function."""
        return f"relaxvm_vm_body{index}_{mangle(self.infos[index].name)[:100]}"

    def entry_symbol(self, index: int) -> str:
        """The symbol of its entry."""
        return f"relaxvm_vm_entry{index}_{mangle(self.infos[index].name)[:100]}"

    def reaches(self, start: int, target: int) -> bool:
        """Whether calling `start` may lead to a call of `target`."""
        callees = self._reach.get(start)
        if callees is None:
            callees = set(reachable(self._called[start], self._called.__getitem__))
            self._reach[start] = callees
        return target in callees

    def takes_out(self, index: int) -> bool:
        """Whether its result may be computed in the caller's memory."""
        info = self.infos[index]
        return result_in_place(info) is not None or fields_in_place(info)

    def site(self, index: int, pc: int, registers: tuple[Any, ...]) -> int:
        """The number of a new site."""
        if len(self.sites) >= MAX_SITES:
            raise Untranslatable("the program has very many instructions that may fail")
        self.sites.append((index, pc, registers))
        return len(self.sites) - 1

    # -- the whole ---------------------------------------------------------------------------------

    def compile(self) -> CompiledCode:
        """Emit everything into the generator's module."""
        support = declare_support(self.generator)
        for i, info in enumerate(self.infos):
            kinds = ("ptr", "i64", "i64", "ptr", *["ptr"] * info.num_inputs)
            self.generator.signatures[self.body_symbol(i)] = "ptr", kinds
        while True:
            self.words, self.sites = Words(support), []
            before = len(self.failed)
            bodies: list[Body] = []
            entries: list[llvm.Function] = []
            for i in (i for i in range(len(self.infos)) if i not in self.failed):
                with self._or_interpreted(i):
                    body = Body(self, i, self.resolved[i])
                    body.translate(emit_instruction)
                    bodies.append(body)
            for body in bodies if len(self.failed) == before else ():
                with self._or_interpreted(body.index):
                    entries.append(Entry(self, body.index).emit(body.fresh))
            # A caller was emitted before its callee was found to be the interpreter's.
            if len(self.failed) == before:
                break
        for text in (*(body.text for body in bodies), *entries):
            self.generator.add(text)
        by_index = {body.index: body for body in bodies}
        functions = tuple(self._described(i, by_index.get(i)) for i in range(len(self.infos)))
        return CompiledCode(tuple(self.words), functions, tuple(self.sites))

    @contextmanager
    def _or_interpreted(self, index: int) -> Iterator[None]:
        """Around emitting a function: where that cannot be, the interpreter runs it."""
        try:
            yield
        except Untranslatable as error:
            self.failed[index] = str(error)
        except CodegenError as error:
            self.failed[index] = f"LLVM code cannot be made of it: {error}"[:300]

    def _described(self, index: int, body: Body | None) -> CompiledInfo:
        info, resolved = self.infos[index], self.resolved[index]
        if body is None:
            reason = self.failed[index]
            steps = ((INTERPRETER, reason),) * len(resolved.ops)
            return CompiledInfo(info.name, "", reason, (), steps)
        layout = layout_plain(resolved.plan)
        return CompiledInfo(info.name, self.entry_symbol(index), "", layout, tuple(body.steps))


def compile_functions(
    generator: ModuleText, program: Program, kernels: Mapping[str, InnerKernel]
) -> CompiledCode | None:
    """Emit the VM functions of a verified program into the generator's module.

    None if there are none, or more than is sensible.
    """
    count = len(program.vm_functions)
    if not 0 < count <= MAX_FUNCTIONS:
        return None
    return Unit(generator, program, kernels).compile()
