"""A compiled program and everything one can do with it: verify, list, save, load, run.

An Executable does not change once made. It is verified before anything runs: by `ExecBuilder.get`,
by `load`, and, if it was put together by hand, by the VM that takes it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .. import base
from ..base import Deferred
from . import fileformat
from .files import open_document
from .module import KERNELS_MAGIC, Module
from .program import Program
from .reader import magic_of
from .verify import verify_program
from .vm import VirtualMachine, VMModule

if TYPE_CHECKING:
    from ..base import Report
    from . import disasm, graph_factory, memory_plan, shared_library
    from .memory_plan import MemoryPlan
else:
    disasm = Deferred("relaxvm.runtime.disasm")
    graph_factory = Deferred("relaxvm.runtime.graph_factory")
    memory_plan = Deferred("relaxvm.runtime.memory_plan")
    shared_library = Deferred("relaxvm.runtime.shared_library")


class Executable(Program):
    """A program for the VM; the fields are those of `Program`."""

    _module: VMModule | None
    report: Report

    def explain(self) -> Report:
        """What the passes of the build that made this decided, and why; to be printed. Files do not
        keep it: for one that was loaded it is empty. `vm.explain` shows what runs where.
        """
        return getattr(self, "report", None) or base.Report()

    def verify(self) -> None:
        """Raise VerifyError, naming function and instruction, unless this can run safely."""
        verify_program(self)

    def as_text(self, sources: bool = False) -> str:
        """A listing of every function and instruction; with `sources`, each ends with the nodes of
        the model or the source lines that it comes from.
        """
        return disasm.as_text(self, sources)

    def as_python(self) -> str:
        """The program as Python-like text that shows what it computes."""
        return disasm.as_python(self)

    def stats(self) -> str:
        """Counts and sizes of what is inside."""
        return disasm.stats(self)

    def memory_plan(self) -> MemoryPlan:
        """What each function will allocate and its peak, known before anything runs."""
        self.verify()
        return memory_plan.plan_memory(self)

    def to_bytes(self, sign: bool = True) -> bytes:
        """The file as bytes; with `sign`, carrying this machine's signature if it has a key."""
        return fileformat.to_bytes(self, sign)

    save_to_bytes = to_bytes

    def export_library(
        self,
        path: str | os.PathLike[str],
        fcompile: Callable[..., object] | None = None,
        sign: bool = True,
        **options: Any,
    ) -> None:
        """Write the file to `path`, or a library that holds it: see `shared_library.export`."""
        pieces = fileformat.pieces(self, sign)
        shared_library.export(path, pieces, self.kernels, fcompile, self.sources, **options)

    save_to_file = write_to_file = export_library

    def save(self) -> tuple[bytes, Module | None]:
        """The file as bytes, and a module of its kernels, which these bytes hold, too."""
        kernels = self.kernels
        lib = None if kernels is None else Module(kernels, sources=self.sources)
        return self.to_bytes(), lib

    @staticmethod
    def load_exec(bytecode: bytes | bytearray, lib: Any = None) -> Executable:
        """What `save` gave as an executable again; as `load`."""
        return load(bytes(bytecode))

    def jit(self, **options: object) -> Executable:
        """What a VirtualMachine takes: this object; kernels are linked when the VM is made."""
        return self

    @property
    def mod(self) -> VMModule:
        """TVM's view: a module whose functions run on a VM of their own."""
        module = getattr(self, "_module", None)
        if module is None:
            module = self._module = VMModule(VirtualMachine(self))
        return module

    def __getitem__(self, name: str) -> Any:
        return self.mod[name]

    def __reduce__(self) -> tuple[Any, ...]:
        # As a file: pickles of another machine, or without its key, are not trusted either.
        return load, (self.to_bytes(),)

    def __repr__(self) -> str:
        kernels = 0 if self.kernels is None else len(self.kernels.infos)
        return (
            f"<Executable: {len(self.globals)} functions ({', '.join(self.globals[:8])}), "
            f"{kernels} kernels, {len(self.constants)} constants>"
        )


def load(
    source: str | os.PathLike[str] | bytes, trust: str | None = None, mmap: bool = False
) -> Executable:
    """The executable in a file or in bytes, checked and verified; nothing of it runs.

    trust  None: its native code is used only if this machine's key signed the file, else kernels
           are rebuilt from their portable form. "native": the caller vouches for the native code.
           "portable": always rebuild.
    mmap   map constants from the file, read-only, instead of reading them into memory. A mapped
           file must not be truncated while in use: that kills the process, so this is for files
           that nobody else writes.

    Raises LoadError or VerifyError for anything but a good file, OSError if it cannot be read.
    """
    return fileformat.read(source, trust, mmap, Executable)


load_executable = load


def requirements(source: str | os.PathLike[str] | bytes | Program) -> tuple[str, ...]:
    """The names of the functions somebody has to register or grant before `source` can run; links
    nothing.
    """
    return source.needs() if isinstance(source, Program) else load(source, "portable").needs()


def load_module(path: str | os.PathLike[str], trust: str | None = None) -> Any:
    """The Executable, Module or GraphExecutorFactoryModule in a file; its first bytes say which.

    `trust` as in `load`.
    """
    with open_document(path) as file:
        magic = magic_of(file.read(128))
    if magic == KERNELS_MAGIC:
        return Module.load(path, trust)
    if magic == "relaxvm.graph":
        return graph_factory.GraphExecutorFactoryModule.load(path, trust)
    return load(path, trust)
