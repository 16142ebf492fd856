"""A model's file without the contents of its weights, which are read once, to where they stay.

protobuf copies what it parses, and gives copies of copies. So initializers are found by the wire
format (https://protobuf.dev/programming-guides/encoding): the rest is parsed, and an initializer's
`raw_data` is the bytes of the file from a to b. All of that can be read while the compiler is
loaded, and needs nothing of it.
"""

from __future__ import annotations

import io
import mmap
import os
import pathlib
import stat
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..base import FrontendError
from .cpu_budget import begun_side_by_side
from .linking import libc
from .ndarray import empty
from .storage import Pages

# Of ModelProto, GraphProto and TensorProto.
_GRAPH, _INITIALIZER, _RAW_DATA = 7, 5, 9
# dims, data_type, name, raw_data, doc_string: an initializer with others is left as it is.
_PLAIN = frozenset({1, 2, 8, _RAW_DATA, 12})
_SMALL_BYTES = 4096
_HEAD_BYTES = 32
# Smaller ones are no matter.
_SENT_BYTES = 1 << 18
_FIELDS_AT_MOST = 1 << 20
# Linux's MAP_FIXED: where memory is already, instead of it.
_IN_PLACE = 0x10

# (begin, end) -> these bytes
Read = Callable[[int, int], bytes]
Span = tuple[int, int]


class _Damaged(Exception):
    """Not the wire format, or a part of it that no model has: protobuf shall say what is wrong."""


class _OpenFile(io.FileIO):
    """A file that is open until the last thread has read from it."""

    def __del__(self) -> None:
        self.close()


class OnnxFile:
    """A model's file, whose weights other threads read from now on.

    graph    the file without its larger weights
    weights  waits for those, by number. Raises OSError
    """

    weights: Callable[[], dict[int, np.ndarray]]

    def __init__(self, path: str | os.PathLike[str], unseen: bool = False) -> None:
        """Raises OSError, and FrontendError for a file that is too large.

        unseen  nobody but a build gets the weights, which may use their memory again: processes
                that are made by `fork` have one memory of them. Else each has its own.
        """
        self.path = pathlib.Path(path)
        file = _OpenFile(self.path, "rb")
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            with file:
                self.graph, self.weights = file.readall(), dict
            return
        self.graph, self.weights = self._begun(file, status.st_size, unseen)

    def _begun(
        self, file: Any, size: int, unseen: bool
    ) -> tuple[bytes, Callable[[], dict[int, np.ndarray]]]:
        def read(begin: int, end: int) -> bytes:
            if end - begin >= 1 << 31:
                raise FrontendError(
                    f"{self.path}: besides its weights it is larger than 2 GB, which is more than "
                    "protobuf holds"
                )
            file.seek(begin)
            data: bytes = file.read(end - begin)
            return data

        data, spans = without_weights(read, size)
        # What reads them does not hold this file, which holds it: both go when nobody needs them.
        weights: dict[int, np.ndarray] = {}

        def fill(number: int) -> None:
            weights[number] = _bytes_of(file, *spans[number], unseen)

        # The largest first, of which nobody is to wait for the end.
        finish = begun_side_by_side(fill, sorted(spans, key=lambda n: spans[n][0] - spans[n][1]))

        def finished() -> dict[int, np.ndarray]:
            finish()
            return weights

        return data, finished


def _bytes_of(file: Any, begin: int, end: int, unseen: bool) -> np.ndarray:
    if end - begin >= _SENT_BYTES and hasattr(os, "memfd_create"):
        try:
            return _sent(file, begin, end, unseen)
        except OSError:
            # There may be too many files, or maps; what is wrong with this one is told below.
            pass
    contents: Any = empty((end - begin,), "uint8").numpy()
    view = memoryview(contents)
    while view:
        if hasattr(os, "preadv"):
            count = os.preadv(file.fileno(), [view], begin)
        else:
            with _turn:
                file.seek(begin)
                count = file.readinto(view)
        if not count:
            raise OSError(0, "it shrank while it was read")
        view, begin = view[count:], begin + count
    return contents


_turn = threading.Lock()


def _sent(file: Any, begin: int, end: int, unseen: bool) -> np.ndarray:
    """The bytes of a file, put into memory by the system (Linux). A thread that writes to memory
    for the first time keeps all others from asking for any: it takes the compiler twice as long to
    be loaded beside one.
    """
    size, memory = end - begin, os.memfd_create("relaxvm weights")
    try:
        while (done := os.fstat(memory).st_size) < size:
            if not os.sendfile(memory, file.fileno(), begin + done, size - done):
                raise OSError(0, "it shrank while it was read")
        contents = np.ndarray((size,), np.uint8, (Pages if unseen else mmap.mmap)(-1, size))
        # Python's own mmap of a file keeps it open, and a model may have more weights than a
        # process may have files.
        place, access = contents.ctypes.data, mmap.PROT_READ | mmap.PROT_WRITE
        flags = _IN_PLACE | (mmap.MAP_SHARED if unseen else mmap.MAP_PRIVATE)
        if libc().mmap(place, size, access, flags, memory, 0) != place:
            raise OSError(0, "it cannot be mapped")
        return contents
    finally:
        os.close(memory)


def without_weights(read: Read, size: int) -> tuple[bytes, dict[int, Span]]:
    """A serialised ModelProto of `size` bytes without the `raw_data` of its larger initializers,
    and where that is: number of the initializer -> (begin, end).
    """
    try:
        graphs = [f for f in _fields(read, 0, size) if f[0] == _GRAPH]
        # Several are merged into one.
        if len(graphs) != 1:
            return read(0, size), {}
        _, key, begin, end = graphs[0]
        pieces, weights = _graph(read, begin, end)
    except _Damaged:
        return read(0, size), {}
    graph = b"".join(pieces)
    head = read(0, key) + _header(_GRAPH, len(graph))
    return head + graph + read(end, size), weights


def _graph(read: Read, begin: int, end: int) -> tuple[list[bytes], dict[int, Span]]:
    pieces: list[bytes] = []
    weights: dict[int, Span] = {}
    count = 0
    for number, key, value, after in _fields(read, begin, end):
        if number != _INITIALIZER:
            continue
        if after - value > _SMALL_BYTES:
            parts = list(_fields(read, value, after))
            raw = [p for p in parts if p[0] == _RAW_DATA]
            if len(raw) == 1 and _PLAIN.issuperset(p[0] for p in parts):
                _, raw_key, *span = raw[0]
                tensor = read(value, raw_key) + read(span[1], after)
                pieces += read(begin, key), _header(_INITIALIZER, len(tensor)), tensor
                weights[count] = span[0], span[1]
                begin = after
        count += 1
    return [*pieces, read(begin, end)], weights


def _fields(read: Read, begin: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """(number, where its key begins, where its value begins, where that ends) of each field."""
    count = 0
    while begin < end:
        head = read(begin, min(begin + _HEAD_BYTES, end))
        key, used = _varint(head, 0)
        number, wire = key >> 3, key & 7
        count += 1
        if not number or count > _FIELDS_AT_MOST:
            raise _Damaged
        value = begin + used
        if wire == 0:
            after = begin + _varint(head, used)[1]
        elif wire == 2:
            length, used = _varint(head, used)
            value = begin + used
            after = value + length
        elif wire in (1, 5):
            after = value + (8 if wire == 1 else 4)
        else:
            raise _Damaged
        if after > end:
            raise _Damaged
        yield number, begin, value, after
        begin = after


def _varint(data: bytes, begin: int) -> tuple[int, int]:
    """The number that begins there, and where it ends."""
    number = shift = 0
    for place in range(begin, min(begin + 10, len(data))):
        number |= (data[place] & 127) << shift
        if data[place] < 128:
            return number, place + 1
        shift += 7
    raise _Damaged


def _header(number: int, length: int) -> bytes:
    """Before a value of `length` bytes."""
    header, left = bytearray([number << 3 | 2]), length
    while left > 127:
        header.append(left & 127 | 128)
        left >>= 7
    return bytes([*header, left])
