"""From the kernel section of a file to functions that can be called.

Object code is handed to LLVM only if the caller vouches for it (`trust`): LLVM may abort the
process on a malformed object, and machine code has all the rights of the process. Otherwise, or
where no variant fits this machine, the compiler rebuilds the kernels from their portable form; that
is the one door from the runtime to the compiler.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import struct
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ..base import InternalError, LinkError, LoadError, record
from .compiled_code import CompiledCode
from .host import cpu_facts
from .kernel import KernelInfo, KernelSection, NativeCode
from .kernel_function import KernelFunction as KernelFunction
from .kernel_function import call_path as call_path
from .kernel_function import set_call_path as set_call_path
from .linking import LinkedCode, installed_llvmlite, started_llvm
from .linking import rest_while_forking as rest_while_forking
from .program import Program
from .threads import POOL_SYMBOL, parallel_for_address
from .trampoline import entries as small_entries

_COMPILER = "relaxvm.target"
_ARCHITECTURES = {
    "amd64": "x86_64",
    "x64": "x86_64",
    "arm64": "aarch64",
    "i386": "i686",
    "i586": "i686",
}
_SYSTEMS = {"macosx": "darwin", "macos": "darwin", "win32": "windows"}
_SYSTEM_NAMES = "linux darwin windows freebsd netbsd openbsd android macosx macos win32".split()
_PLAIN_CPUS = ("", "generic", "x86-64", "i686", "pentium4", "generic-rv64", "ppc64le")
# Features that no user writes down, but that every CPU has: where they are listed, all are.
_WHOLE_LISTS = (("64bit", "cx8", "fxsr"), ("fp-armv8", "neon"))
_ELF_MACHINES = {
    "x86_64": 62,
    "aarch64": 183,
    "i686": 3,
    "riscv64": 243,
    "ppc64le": 21,
    "s390x": 22,
}


@record
class Host:
    """This machine, as LLVM names it. `features` holds what the CPU has and may use."""

    triple: str
    cpu: str
    features: frozenset[str]

    @property
    def features_text(self) -> str:
        """Canonical text: "+a,+b", sorted."""
        return ",".join(f"+{name}" for name in sorted(self.features))


@functools.lru_cache(maxsize=1)
def host() -> Host:
    """What LLVM says about this machine. Asked once, and kept in the user's cache under what is
    known of the CPU without it.
    """

    def ask(llvm: Any) -> list[str]:
        features = llvm.get_host_cpu_features()
        present = sorted(name for name, enabled in features.items() if enabled)
        return [llvm.get_default_triple(), llvm.get_host_cpu_name(), *present]

    facts = cpu_facts() if sys.platform == "linux" else None
    triple, cpu, *names = _told_once(facts and ("host", os.uname(), facts), ask)
    return Host(triple, cpu, frozenset(names))


@functools.lru_cache(maxsize=1)
def llvm_version() -> tuple[int, ...]:
    """Of the LLVM in llvmlite. Asked once, and kept like `host`, for what is installed."""
    package, key = installed_llvmlite(), None
    with contextlib.suppress(OSError):
        status = os.stat(package.__file__)
        key = "LLVM", package.__version__, package.__file__, status.st_mtime_ns, status.st_size
    numbers = _told_once(key, lambda llvm: list(map(str, llvm.llvm_version_info)))
    return tuple(map(int, numbers))


def _told_once(key: Any, ask: Callable[[Any], list[str]]) -> list[str]:
    """What `ask` gets from LLVM, which is not loaded if the user's cache has it under `key`."""

    def answer() -> bytes:
        return "\0".join(ask(started_llvm())).encode()

    told = answer() if key is None else small_entries.kept(repr(key).encode(), answer)
    return told.decode().split("\0")


def fits(code: NativeCode) -> bool:
    """Whether `code` can run here: architecture and system agree, and no CPU feature is missing."""
    if _machine_of(code.triple) != _machine_of(host().triple):
        return False
    here = host()
    wanted = {f[1:] for f in code.features.split(",") if f.startswith("+")}
    if not wanted <= here.features:
        return False
    # A CPU's name alone implies features; without a list of them only this very CPU is known to
    # have them.
    if code.cpu == here.cpu or code.cpu in _PLAIN_CPUS:
        return True
    return any(wanted.issuperset(marks) for marks in _WHOLE_LISTS)


def _machine_of(triple: str) -> tuple[str, str]:
    """Architecture and system of a triple such as "x86_64-unknown-linux-gnu"."""
    parts = triple.lower().split("-")
    architecture = _ARCHITECTURES.get(parts[0], parts[0])
    for part in parts[1:]:
        for name in _SYSTEM_NAMES:
            if part.startswith(name):
                return architecture, _SYSTEMS.get(name, name)
    return architecture, "-".join(parts[1:])


def _reject_malformed(data: bytes, code: NativeCode) -> None:
    """Raise LoadError for bytes that are plainly no object file for this machine.

    LLVM trusts objects; this catches other formats and cut files, not malice (that is what trust is
    for).
    """
    where = f"native code for {code.triple}"
    architecture, system = _machine_of(code.triple)
    if system in ("darwin", "windows"):
        magic = {"darwin": (b"\xcf\xfa\xed\xfe",), "windows": (b"\x64\x86", b"\x64\xaa")}[system]
        if not data.startswith(magic):
            raise LoadError(
                f"{where}: wanted an object file of that system, got other bytes; rebuild the file"
            )
        return
    if data[:4] != b"\x7fELF" or len(data) < 64 or data[4] != 2 or data[5] not in (1, 2):
        raise LoadError(f"{where}: wanted a 64-bit ELF object, got other bytes; rebuild the file")
    order = "<" if data[5] == 1 else ">"
    kind, machine = struct.unpack_from(f"{order}HH", data, 16)
    (table,) = struct.unpack_from(f"{order}Q", data, 40)
    entry_size, count, names = struct.unpack_from(f"{order}HHH", data, 58)
    if kind != 1 or machine != _ELF_MACHINES.get(architecture, machine):
        raise LoadError(
            f"{where}: wanted a relocatable object for {architecture}, got ELF type "
            f"{kind}/{machine}"
        )
    if entry_size != 64 or not 0 < count or table + count * 64 > len(data) or names >= count:
        raise LoadError(f"{where}: the object file is cut short or damaged; rebuild the file")
    for i in range(count):
        section = struct.unpack_from(f"{order}IIQQQQIIQQ", data, table + i * 64)
        _, kind, _, _, offset, size, link_to, _, align, _ = section
        inside = kind == 8 or offset + size <= len(data)
        if not inside or link_to >= count or align & (align - 1):
            raise LoadError(f"{where}: section {i} of the object file is damaged; rebuild the file")


@record(values=False, frozen=False)
class LinkedKernels(Mapping[str, "KernelFunction"]):
    """Kernels by name.

    source   "native" if the code came from the file, "rebuilt" if the compiler made it now
    seconds  how long that took
    section  the section the code came from (for rebuilt kernels, the new one)
    reason   why the file's code was not used ("" if it was)
    compiled the VM functions compiled with them, whose entries are in `owner.addresses`
    """

    _functions: dict[str, KernelFunction]
    source: str
    seconds: float
    section: KernelSection
    reason: str
    owner: Any = None
    num_threads: int = 0
    compiled: CompiledCode | None = None

    def __getitem__(self, name: str) -> KernelFunction:
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._functions)

    def __len__(self) -> int:
        return len(self._functions)

    def __repr__(self) -> str:
        return f"<{len(self)} kernels, {self.source} in {self.seconds * 1e3:.1f} ms>"


def link(
    section: KernelSection,
    trust: bool,
    num_threads: int = 0,
    program: Program | None = None,
    functions_wanted: bool = False,
) -> LinkedKernels:
    """Make the kernels of `section` callable.

    trust        whether its object code may run: the caller made it, or its signature was verified
    num_threads  most threads of a parallel loop; 0 for the pool's size
    program      the program they belong to: its functions are compiled with kernels that have to
                 be rebuilt
    functions_wanted  whether a file without code for them is reason enough to rebuild

    Raises LoadError for damaged object code or a portable form that does not give these kernels,
    LinkError if the kernels must be rebuilt and the compiler is not there.
    """
    start = time.perf_counter()
    source, reason = "native", ""
    if not section.infos and not section.native and not functions_wanted:
        return LinkedKernels({}, source, time.perf_counter() - start, section, "")
    chosen = _best_fit(section.native) if trust else None
    uncompiled = functions_wanted and (chosen is None or chosen.functions is None)
    if chosen is None or (uncompiled and (section.portable or not section.infos)):
        source, reason = "rebuilt", "its functions are not compiled"
        if not trust:
            reason = "the file is not vouched for"
        elif chosen is None and (section.native or not functions_wanted):
            variants = ", ".join(sorted({f"{c.triple}/{c.cpu}" for c in section.native})) or "none"
            reason = f"no native code fits this machine (the file has: {variants})"
        section = _rebuild(section, reason, program)
        chosen = _best_fit(section.native)
    if chosen is None:
        raise InternalError(
            f"the compiler rebuilt kernels that do not fit {host().triple}, cpu {host().cpu}"
        )
    functions, owner = _link_code(section.infos, chosen, num_threads)
    seconds = time.perf_counter() - start
    return LinkedKernels(
        functions, source, seconds, section, reason, owner, num_threads, chosen.functions
    )


def _best_fit(variants: Sequence[NativeCode]) -> NativeCode | None:
    """The fitting variant made for this very CPU, else the one that uses most of its features."""
    able = [code for code in variants if fits(code)]
    return max(able, key=lambda c: (c.cpu == host().cpu, c.features.count("+")), default=None)


def _link_code(
    infos: Sequence[KernelInfo], code: NativeCode, num_threads: int
) -> tuple[dict[str, KernelFunction], LinkedCode]:
    for data in code.objects:
        _reject_malformed(data, code)
    entries = () if code.functions is None else code.functions.symbols
    symbols = [*(info.symbol for info in infos), *entries]
    try:
        owner = LinkedCode(code.objects, symbols, {POOL_SYMBOL: parallel_for_address})
    except RuntimeError as error:
        raise LoadError(f"native code for {code.triple}: LLVM cannot link it: {error}") from None
    return {
        info.name: KernelFunction(info, owner.addresses[info.symbol], owner, num_threads)
        for info in infos
    }, owner


def _rebuild(section: KernelSection, reason: str, program: Program | None) -> KernelSection:
    if section.infos and not section.portable:
        raise LoadError(
            f"cannot run the kernels: {reason}, and the file holds no portable form to rebuild "
            "them from; a build for the target c makes code where it finds a C compiler: install "
            "gcc or clang, or name one in CC"
        )
    try:
        compiler = importlib.import_module(_COMPILER)
    except ImportError as error:
        raise LinkError(
            f"cannot run the kernels: {reason}, and rebuilding them needs the compiler "
            f"({_COMPILER}): {error}"
        ) from error
    functions = () if program is None else (program,)
    rebuilt: KernelSection = compiler.rebuild_kernels(section.portable, section.names, *functions)
    if rebuilt.names != section.names:
        raise LoadError("the portable form does not give the kernels that the file lists")
    for old, new in zip(section.infos, rebuilt.infos):
        if _interface(old) != _interface(new):
            raise LoadError(
                f"kernel {old.name}: the file says {old}, its portable form gives {new}"
            )
    return rebuilt


def _interface(info: KernelInfo) -> list[tuple[object, ...]]:
    return [(p.kind, p.dtype, len(p.shape), p.written, p.access == "ret") for p in info.params]
