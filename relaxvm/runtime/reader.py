"""Reading msgpack strictly, and the typed look-ups the loaders share.

Stricter than the format: text keys only, no key twice, no extension types, no bytes left over, and
never more memory than a small multiple of the input. Works with a stack of its own, so depth costs
nothing but is bounded anyway. What this user's key has signed, msgpack reads as fast as it can.
"""

from __future__ import annotations

import struct
from typing import Any

import msgpack

from ..base import LoadError
from .limits import MAX_ITEMS, MAX_NESTING
from .plain import entries_of

_FIXED = {
    0xCA: struct.Struct(">f"),
    0xCB: struct.Struct(">d"),
    0xCC: struct.Struct(">B"),
    0xCD: struct.Struct(">H"),
    0xCE: struct.Struct(">I"),
    0xCF: struct.Struct(">Q"),
    0xD0: struct.Struct(">b"),
    0xD1: struct.Struct(">h"),
    0xD2: struct.Struct(">i"),
    0xD3: struct.Struct(">q"),
}
_SIZED = {
    0xC4: ("bin", struct.Struct(">B")),
    0xC5: ("bin", struct.Struct(">H")),
    0xC6: ("bin", struct.Struct(">I")),
    0xD9: ("str", struct.Struct(">B")),
    0xDA: ("str", struct.Struct(">H")),
    0xDB: ("str", struct.Struct(">I")),
    0xDC: ("array", struct.Struct(">H")),
    0xDD: ("array", struct.Struct(">I")),
    0xDE: ("map", struct.Struct(">H")),
    0xDF: ("map", struct.Struct(">I")),
}
_SIMPLE = {0xC0: None, 0xC2: False, 0xC3: True}
_NO_KEY = object()
# How many bytes msgpack is given at a time.
_AT_ONCE = 1 << 14


class Decoder:
    """Reads values out of `data`, one after the other. All errors are LoadError and name the byte.

    position  where the next value begins
    views     give binary data as memoryviews of `data` instead of copies
    spans     where each of these views begins and ends
    ours      whether `data` is surely what we wrote
    tuples    give arrays of what is ours as tuples
    """

    __slots__ = ("_data", "_end", "_items", "_ours", "position", "spans", "tuples", "views")

    def __init__(self, data: memoryview, max_items: int = MAX_ITEMS, ours: bool = False) -> None:
        self._data = data
        self._end = len(data)
        self._items = max_items
        self._ours = ours
        self.position = 0
        self.tuples = self.views = False
        self.spans: list[tuple[int, int]] = []

    def map_header(self) -> int:
        """Enter a map: the number of its entries, which are then read one value at a time."""
        kind, size = self._head()
        if kind != "map":
            raise self._error("wanted a map")
        count: int = size
        return count

    def key(self) -> str:
        """The next value, which must be a text."""
        value = self.value()
        if type(value) is not str:
            raise self._error(f"wanted a text as key, got {type(value).__name__}")
        return value

    def end(self) -> None:
        """Raise LoadError unless everything has been read."""
        if self.position != self._end:
            raise self._error(f"{self._end - self.position} bytes are left over")

    def skip(self) -> None:
        """Go past the next value, whatever it is, and make nothing of it."""
        self._at_once("skip")

    def _at_once(self, method: str) -> Any:
        # What is behind may be a weight, which is not to be touched.
        rest = _Rest(self._data, self.position)
        unpacker = msgpack.Unpacker(
            rest, read_size=_AT_ONCE, max_buffer_size=0, use_list=not self.tuples
        )
        try:
            value = getattr(unpacker, method)()
        except (msgpack.UnpackException, ValueError) as error:
            raise self._error(str(error) or type(error).__name__) from None
        self.position += unpacker.tell()
        return value

    def value(self) -> Any:
        """The next value, whole."""
        if self._ours and not self.views:
            return self._at_once("unpack")
        stack: list[list[Any]] = []  # container, values left, the key that waits for its value
        while True:
            kind, value = self._head()
            if kind == "array" or kind == "map":
                container: Any = [] if kind == "array" else {}
                if value:
                    if len(stack) >= MAX_NESTING:
                        raise self._error(f"values are nested more than {MAX_NESTING} deep")
                    stack.append([container, value, _NO_KEY])
                    continue
                value = container
            while True:
                if not stack:
                    return value
                top = stack[-1]
                container, left, key = top
                if type(container) is list:
                    container.append(value)
                elif key is _NO_KEY:
                    if type(value) is not str:
                        raise self._error(f"wanted a text as key, got {type(value).__name__}")
                    if value in container:
                        raise self._error(f"key {value[:40]!r} appears twice")
                    top[2] = value
                    break
                else:
                    container[key] = value
                    top[2] = _NO_KEY
                if left > 1:
                    top[1] = left - 1
                    break
                stack.pop()
                value = container

    def _head(self) -> tuple[str, Any]:
        """One scalar as ("", value), or the kind and size of a container whose values follow."""
        self._items -= 1
        if self._items < 0:
            raise self._error("too many values")
        position, data = self.position, self._data
        if position >= self._end:
            raise self._error("the data ends in the middle")
        byte = data[position]
        self.position = position = position + 1
        if byte < 0x80:
            return "", byte
        if byte >= 0xE0:
            return "", byte - 256
        if byte in _SIMPLE:
            return "", _SIMPLE[byte]
        fixed = _FIXED.get(byte)
        if fixed is not None:
            if self._end - position < fixed.size:
                raise self._error("the data ends in the middle")
            self.position = position + fixed.size
            return "", fixed.unpack_from(data, position)[0]
        if byte < 0xC0:
            kind, size = ("map", byte & 15) if byte < 0x90 else ("array", byte & 15)
            if byte >= 0xA0:
                kind, size = "str", byte & 31
        else:
            sized = _SIZED.get(byte)
            if sized is None:
                raise self._error(f"type 0x{byte:02x} is not used here")
            kind, number = sized
            if self._end - position < number.size:
                raise self._error("the data ends in the middle")
            size = number.unpack_from(data, position)[0]
            self.position = position = position + number.size
        # Each value of a container takes at least one byte, so this bounds every size by the input.
        if (2 * size if kind == "map" else size) > self._end - position:
            raise self._error(f"a {kind} of {size} goes past the end")
        if kind == "array" or kind == "map":
            return kind, size
        self.position = position + size
        part = data[position : position + size]
        if kind == "bin" and self.views:
            self.spans.append((position, position + size))
            return "", part
        if kind == "bin":
            return "", bytes(part)
        try:
            return "", str(part, "utf-8")
        except UnicodeDecodeError:
            raise self._error("a text is not UTF-8") from None

    def _error(self, message: str) -> LoadError:
        return LoadError(f"not an executable: {message} (byte {self.position})")


class _Rest:
    """What stands in `data` from `position` on, as a file."""

    def __init__(self, data: memoryview, position: int) -> None:
        self._data, self._position = data, position

    def read(self, size: int) -> bytes:
        part = bytes(self._data[self._position : self._position + size])
        self._position += len(part)
        return part


def fields_of(plain: object, wanted: dict[str, type | tuple[type, ...]], what: str) -> list[Any]:
    """The values of the map `plain`, which must have exactly the keys of `wanted`, of exactly those
    types.

    Raises LoadError.
    """
    entries = entries_of(plain, list(wanted), what)
    values = []
    for key, kinds in wanted.items():
        value = entries[key]
        if type(value) not in (kinds if type(kinds) is tuple else (kinds,)):
            raise LoadError(f"{what}: {key} cannot be a {type(value).__name__}")
        values.append(value)
    return values


def magic_of(head: bytes) -> object:
    """The magic that the first bytes of a document give, or None if they are of something else."""
    decoder = Decoder(memoryview(head))
    try:
        # The header's count is compared with what is there, and `head` is cut off.
        first = head[:1]
        if not 0x80 <= (first or b"\0")[0] < 0x90:
            return None
        decoder.position = 1
        return decoder.value() if decoder.value() == "magic" else None
    except LoadError:
        return None
