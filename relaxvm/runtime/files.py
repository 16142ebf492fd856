"""Files on disk: written whole or not at all, read only where they are plain files.

A document may be the whole of a file, or lie behind the last byte of a shared library (see
`shared_library`): then a trailer at the end of the file says how long it is. Or it is one of the
files of a folder or an archive, which hold C as well.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable
from io import BufferedReader
from typing import Any

from ..base import LoadError, VMTypeError, VMValueError, record

# ELF, Mach-O of either byte order, Windows.
_LIBRARY_HEADS = (b"\x7fELF", b"\xcf\xfa\xed\xfe", b"\xfe\xed\xfa\xcf", b"MZ")
_MARK = b"relaxvm document"
DOCUMENT = "library.relaxvm"
_BLOCK = 512
_TRAILER_SIZE = len(_MARK) + 8


def write_atomically(path: str | os.PathLike[str], parts: Iterable[Any]) -> None:
    """Write `parts` beside `path`, then put the whole in its place."""
    if not isinstance(path, (str, os.PathLike)):
        raise VMTypeError(f"export: wanted a path, got {type(path).__name__}")
    target = os.fsdecode(path)
    if not target or "\0" in target:
        raise VMValueError(f"export: wanted the path of a file, got {target!r}")
    draft = f"{target}.{os.getpid()}.{os.urandom(8).hex()}.tmp"
    # Not `tempfile`: this way the file gets the mode that the user's umask gives.
    handle = os.open(
        draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o666
    )
    try:
        with os.fdopen(handle, "wb") as file:
            for part in parts:
                file.write(part)
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


@record
class Document:
    """An open file whose `stream` stands at `start`, where a document of `size` bytes begins."""

    stream: BufferedReader
    start: int
    size: int

    def read(self, most: int | None = None) -> bytes:
        """The document, or its first `most` bytes."""
        return self.stream.read(self.size if most is None else min(most, self.size))

    def __enter__(self) -> Document:
        return self

    def __exit__(self, *exc: object) -> None:
        self.stream.close()


def trailer(size: int) -> bytes:
    """What follows a document of `size` bytes in a shared library."""
    return _MARK + size.to_bytes(8, "little")


def open_document(path: str | os.PathLike[str]) -> Document:
    """The document in a file. Raises LoadError for a shared library that has none, and for anything
    but a plain file: a pipe would block.
    """
    stream = _open_regular(path)
    try:
        size = os.fstat(stream.fileno()).st_size
        start = 0
        if stream.read(4).startswith(_LIBRARY_HEADS):
            stream.seek(max(0, size - _TRAILER_SIZE))
            end = stream.read(_TRAILER_SIZE)
            length = int.from_bytes(end[len(_MARK) :], "little")
            start = size - _TRAILER_SIZE - length
            if not end.startswith(_MARK) or start <= 0:
                raise LoadError(
                    f"{os.fsdecode(path)}: a shared library without a document of relaxvm's; only "
                    "what export_library wrote can be loaded (and `strip` takes the document away)"
                )
            size = length
        else:
            stream.seek(0)
            head = stream.read(_BLOCK)
            if head[257:262] == b"ustar":
                start, size = _in_archive(stream, head, size)
        stream.seek(start)
    except BaseException:
        stream.close()
        raise
    return Document(stream, start, size)


def _in_archive(stream: BufferedReader, head: bytes, size: int) -> tuple[int, int]:
    """(start, size) of the document in an archive of plain files, whose first header is `head`.
    Raises LoadError if there is none.
    """
    place = 0
    while len(head) == _BLOCK and head.strip(b"\0"):
        try:
            length = int(head[124:136].strip(b"\0 ") or b"0", 8)
        except ValueError:
            break
        start = place + _BLOCK
        if head[:100].rstrip(b"\0") == DOCUMENT.encode() and start + length <= size:
            return start, length
        place = start + -(-max(length, 0) // _BLOCK) * _BLOCK
        stream.seek(place)
        head = stream.read(_BLOCK)
    raise LoadError(f"an archive without {DOCUMENT}: export_library did not write it, or it is cut")


def _open_regular(path: str | os.PathLike[str]) -> BufferedReader:
    if not isinstance(path, (str, os.PathLike)):
        raise VMTypeError(f"load: wanted a path or bytes, got {type(path).__name__}")
    name = os.fsdecode(path)
    if "\0" in name:
        raise LoadError(f"wanted the path of a file, got {name!r}")
    inside = os.path.join(name, DOCUMENT)
    if os.path.isfile(inside):
        name = inside
    if not stat.S_ISREG(os.stat(name).st_mode):
        raise LoadError(f"{name}: wanted a plain file, got a folder, pipe or device")
    return open(name, "rb")
