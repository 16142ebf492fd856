"""Object code put into memory, so that it can be called.

What our code generator makes for Linux on x86-64 is placed here: ELF with few kinds of relocations
(System V ABI, AMD64 supplement). Whatever else there is, LLVM links. Starting LLVM takes longer
than all else that a saved program needs to run.

The caller vouches for the code (see `native`).
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..base import LinkError, NamedTuple
from .locks import hold_while_forking

_PAGE = mmap.PAGESIZE
# Each part begins at one: how fast a short loop runs follows from where in a line it stands, which
# would be chance. The same code took up to a fifth longer on Zen 3.
_LINE = 64
_PROGBITS, _SYMTAB, _RELA, _NOBITS, _REL, _UNWIND = 1, 2, 4, 8, 9, 0x7000_0001
_WRITE, _ALLOC, _TLS = 1, 2, 0x400
_THREAD_LOCAL, _CHOSEN_AT_RUN_TIME = 6, 10
_ABSOLUTE, _RELATIVE, _BY_SLOT = 1, (2, 4), (9, 41, 42)
# What relative addresses reach.
_MOST_BYTES = 1 << 30
# jmp [rip + 2]; the address follows at 8.
_STUB = b"\xff\x25\x02\0\0\0\0\0"

Imports = Mapping[str, Callable[[], int]]


class LinkedCode:
    """Objects in memory; `addresses` of `symbols` are valid as long as this lives.

    imports  what gives the addresses of symbols that are neither theirs nor the process's

    Raises RuntimeError for what cannot be linked, ImportError if LLVM is wanted and not there.
    """

    __slots__ = ("__weakref__", "_memory", "addresses")

    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str], imports: Imports) -> None:
        try:
            memory: Any = _Pages(objects, imports)
            self.addresses = {symbol: memory.addresses[symbol] for symbol in symbols}
        except (_UnknownError, LookupError, ValueError, OverflowError, struct.error):
            memory = _Engine(objects, symbols, imports)
            self.addresses = memory.addresses
        self._memory = _out_of_sight(memory)

    def __repr__(self) -> str:
        return f"<linked code of {len(self.addresses)} symbols>"


def _out_of_sight(value: object) -> np.ndarray:
    """A holder of `value` that the garbage collector does not look into.

    What it finds unreachable it finalizes in any order, so code would be closed before another
    finalizer calls it. Behind a numpy array, `value` ends with its last reference only.
    """
    holder = np.empty((), object)
    holder[()] = value
    return holder


# -- by LLVM ---------------------------------------------------------------------------------------


def installed_llvmlite() -> Any:
    """The package. Raises LinkError if it is not installed."""
    try:
        import llvmlite
    except ImportError as error:
        raise LinkError(
            f"cannot run the kernels: linking them needs llvmlite: {error}; pip install llvmlite"
        ) from error
    return llvmlite


@functools.lru_cache(maxsize=1)
def started_llvm() -> Any:
    """llvmlite's binding, ready for this machine. Raises LinkError if it is not installed."""
    installed_llvmlite()
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    rest_while_forking(llvm)
    return llvm


def rest_while_forking(llvm: Any) -> None:
    """Let no `os.fork` happen while another thread is in LLVM: what LLVM and llvmlite have locked
    then stays locked in the child for ever.
    """
    # llvmlite's lock of all its calls. It has no public name.
    guard: Any = getattr(getattr(llvm.ffi, "lib", None), "_lock", None)
    if hasattr(guard, "__enter__") and hasattr(guard, "__exit__"):
        hold_while_forking(guard)


def machine_name() -> str:
    """The architecture of this machine, as LLVM calls it."""
    if sys.platform == "linux":
        return os.uname().machine
    triple: str = started_llvm().get_default_triple()
    return triple.split("-")[0]


class _Engine:
    """An LLVM engine and the library in it, closed when nobody refers to them any more."""

    __slots__ = ("_jit", "_library", "addresses")

    def __init__(self, objects: Sequence[bytes], symbols: Sequence[str], imports: Imports) -> None:
        llvm = started_llvm()
        machine = llvm.Target.from_default_triple().create_target_machine(jit=True)
        # JITLink keeps an object's sections together and is complete for ELF and Mach-O; COFF stays
        # with RuntimeDyld.
        jit = llvm.create_lljit_compiler(
            machine, use_jit_link=sys.platform != "win32", suppress_errors=True
        )
        builder = llvm.JITLibraryBuilder().add_current_process()
        for each in objects:
            builder.add_object_img(each)
        for symbol, address in imports.items():
            if any(symbol.encode() in each for each in objects):
                builder.import_symbol(symbol, address())
        # Equal kernels of several names have one symbol.
        for symbol in dict.fromkeys(symbols):
            builder.export_symbol(symbol)
        self._jit, self._library = jit, builder.link(jit, "relaxvm.code")
        self.addresses: dict[str, int] = {symbol: self._library[symbol] for symbol in symbols}

    def __del__(self) -> None:
        # When Python ends, LLVM's own functions may be gone before this.
        if sys is None or sys.is_finalizing() or not hasattr(self, "_library"):
            return
        # In this order: the library lives inside the engine.
        self._library.close()
        self._jit.close()


# -- by hand ---------------------------------------------------------------------------------------


class _UnknownError(Exception):
    """Something that only LLVM knows how to link."""


class _Section(NamedTuple):
    name: int
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    link: int
    info: int
    align: int
    entry_size: int


class _Fix(NamedTuple):
    """A relocation: at `place` of the image stands what depends on a symbol, which is known by its
    name, or by its own place.
    """

    kind: int
    place: int
    symbol: str | int
    addend: int


class _Image:
    """Where everything of some objects goes: first what is written to, from `code` on the rest; at
    the end, for each symbol of the process a jump to it, with its address.
    """

    def __init__(self, objects: Sequence[bytes]) -> None:
        self.places: dict[tuple[int, int], int] = {}
        self.symbols: dict[str, int] = {}
        self.fixes: list[_Fix] = []
        self.size = self.code = 0
        tables = [_sections(data) for data in objects]
        for writable in (_WRITE, 0):
            self._lay_out(tables, writable)
            if writable:
                self.size += -self.size % _PAGE
                self.code = self.size
        for number, (data, sections) in enumerate(zip(objects, tables)):
            self._relocate(number, data, sections)
        if self.size > _MOST_BYTES:
            raise _UnknownError
        self.slots: dict[str | int, int] = {}
        for fix in self.fixes:
            foreign = type(fix.symbol) is str and fix.symbol not in self.symbols
            if (foreign or fix.kind in _BY_SLOT) and fix.symbol not in self.slots:
                self.size += -self.size % 16
                self.slots[fix.symbol] = self.size
                self.size += 16

    def _lay_out(self, tables: Sequence[Sequence[_Section]], writable: int) -> None:
        for number, sections in enumerate(tables):
            for index, section in enumerate(sections):
                if not section.flags & _ALLOC or section.flags & _WRITE != writable:
                    continue
                if section.kind == _UNWIND:
                    # Nothing is thrown through this code.
                    continue
                known = section.kind in (_PROGBITS, _NOBITS) and not section.flags & _TLS
                if not known or section.align > _PAGE:
                    raise _UnknownError
                self.size += -self.size % max(_LINE, section.align)
                self.places[number, index] = self.size
                self.size += section.size

    def _relocate(self, number: int, data: bytes, sections: Sequence[_Section]) -> None:
        rows: list[str | int | None] = []
        for table in sections:
            if table.kind == _SYMTAB:
                rows = self._symbols(number, data, table, sections[table.link])
        for table in sections:
            place = self.places.get((number, table.info))
            if table.kind == _REL and place is not None:
                raise _UnknownError
            if table.kind != _RELA or place is None:
                continue
            for offset, info, addend in struct.iter_unpack("<QQq", _content(data, table)):
                kind, symbol = info & 0xFFFF_FFFF, rows[info >> 32]
                width = 8 if kind == _ABSOLUTE else 4
                if symbol is None or offset + width > sections[table.info].size:
                    raise _UnknownError
                self.fixes.append(_Fix(kind, place + offset, symbol, addend))

    def _symbols(
        self, number: int, data: bytes, table: _Section, strings: _Section
    ) -> list[str | int | None]:
        rows: list[str | int | None] = []
        for row in struct.iter_unpack("<IBBHQQ", _content(data, table)):
            name, info, _, section, value, _ = row
            begin = strings.offset + name
            text = data[begin : data.index(b"\0", begin)].decode() if name else ""
            place = self.places.get((number, section))
            if info & 15 in (_THREAD_LOCAL, _CHOSEN_AT_RUN_TIME):
                place = None
            own = None if place is None else place + value
            if info >> 4 and section:
                # Of two of one name LLVM knows which counts.
                if own is None or text in self.symbols:
                    raise _UnknownError
                self.symbols[text] = own
            rows.append(text if info >> 4 else own)
        return rows


def _sections(data: bytes) -> list[_Section]:
    (table,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    return [
        _Section(*struct.unpack_from("<IIQQQQIIQQ", data, table + 64 * i)) for i in range(count)
    ]


def _content(data: bytes, section: _Section) -> bytes:
    if section.offset + section.size > len(data):
        raise _UnknownError
    return data[section.offset : section.offset + section.size]


class _Pages:
    """Memory with the code of some objects. Raises _UnknownError, ValueError or struct.error for
    what it cannot link.
    """

    __slots__ = ("_base", "_size", "addresses")

    def __init__(self, objects: Sequence[bytes], imports: Imports) -> None:
        self._base = self._size = 0
        if sys.platform != "linux" or os.uname().machine != "x86_64" or _PAGE % 4096:
            raise _UnknownError
        if struct.calcsize("P") != 8 or any(d[:6] != b"\x7fELF\2\1" for d in objects):
            raise _UnknownError
        image = _Image(objects)
        foreign = {
            s: _address_of(s, imports)
            for s in image.slots
            if isinstance(s, str) and s not in image.symbols
        }
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        size = max(image.size, 1)
        base = libc().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if base in (None, (1 << 64) - 1):
            raise _UnknownError
        self._base, self._size = base, size
        content = self._content(objects, image, foreign)
        ctypes.memmove(base, bytes(content), len(content))
        protected = libc().mprotect(
            base + image.code, size - image.code, mmap.PROT_READ | mmap.PROT_EXEC
        ) if size > image.code else 0  # fmt: skip
        if protected:
            raise _UnknownError
        self.addresses = {name: base + place for name, place in image.symbols.items()}

    def _content(
        self, objects: Sequence[bytes], image: _Image, foreign: Mapping[Any, int]
    ) -> bytearray:
        content, base = bytearray(image.size), self._base
        for number, data in enumerate(objects):
            for index, section in enumerate(_sections(data)):
                place = image.places.get((number, index))
                if place is not None and section.kind == _PROGBITS:
                    content[place : place + section.size] = _content(data, section)
        own: dict[Any, int] = {**image.symbols}
        for symbol, place in image.slots.items():
            address = foreign.get(symbol, base + own.get(symbol, _as_place(symbol)))
            content[place : place + 16] = _STUB + struct.pack("<Q", address)
        for kind, place, symbol, addend in image.fixes:
            if kind in _BY_SLOT:
                there = image.slots[symbol] + 8
            elif symbol in foreign:
                there = image.slots[symbol]
            else:
                there = own.get(symbol, _as_place(symbol))
            if kind == _ABSOLUTE:
                struct.pack_into("<Q", content, place, base + there + addend)
            elif kind in _RELATIVE or kind in _BY_SLOT:
                struct.pack_into("<i", content, place, there + addend - place)
            else:
                raise _UnknownError
        return content

    def __del__(self) -> None:
        # When Python ends, other threads may still be in this code.
        if self._base and sys is not None and not sys.is_finalizing():
            libc().munmap(self._base, self._size)


def _as_place(symbol: str | int) -> int:
    return symbol if isinstance(symbol, int) else 0


def _address_of(symbol: str, imports: Imports) -> int:
    """The address of a symbol that no object has."""
    if symbol in imports:
        return imports[symbol]()
    address = address_in_process(symbol)
    if not address:
        raise _UnknownError
    return address


def address_in_process(symbol: str) -> int | None:
    """Where this process has a C function, None if it has none, or where only LLVM can tell."""
    if os.name != "posix":
        return None
    try:
        return ctypes.cast(libc()[symbol], ctypes.c_void_p).value
    except AttributeError:
        return None


@functools.lru_cache(maxsize=1)
def libc() -> Any:
    """The functions of this process."""
    libc = ctypes.CDLL(None)
    word = ctypes.c_size_t
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, word, *[ctypes.c_int] * 3, ctypes.c_int64]
    libc.mprotect.argtypes = [word, word, ctypes.c_int]
    libc.munmap.argtypes = [word, word]
    return libc
