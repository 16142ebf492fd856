"""`KVCache`: rows that a program appends to and reads back, such as the keys a decoder has seen.

    append  copies new rows behind the old ones; the buffer doubles when it is full, so that n rows
            cost O(n) copying in all, however they come
    view    the rows as a tensor over the cache's own memory, without a copy

A row that a view may still show is never overwritten: where that would happen (a row was taken
back, a window rolled on), and somebody holds such a view, the cache moves to a new buffer first.
"""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from ..base import DataType, VMError, VMTypeError, VMValueError, to_numpy_dtype
from .check import got, shape_text
from .constants import integer
from .limits import MAX_NDIM, Account, counted_empty
from .locks import lock
from .ndarray import NDArray, wrap_unchecked
from .result_memory import held_once
from .storage import aligned_copy

_MAX_ROWS = 1 << 40


class KVCache:
    """Rows of one shape and dtype, as a value of a program.

    dtype  `DataType` of the elements
    name   for messages
    A cache is changed in place: whoever holds it sees what a program appends to it. `copy` makes
    another one. Calls from several threads are safe, but their order is up to the caller.
    """

    __slots__ = ("__weakref__", "_buffer", "_length", "_lock", "_next", "_shown", "dtype", "name")

    def __init__(self, buffer: np.ndarray, dtype: DataType, length: int, name: str = "") -> None:
        """Rows in `buffer` [capacity, ...] (of `aligned_empty`), the first `length` filled."""
        self._buffer = buffer
        self._length = length
        self._next = -1  # where a rolled window goes on; -1: it has not rolled
        self._shown = 0  # rows of the buffer that a view may show
        self._lock = lock()
        self.dtype = dtype
        self.name = name

    def __len__(self) -> int:
        return self._length

    @property
    def shape(self) -> tuple[int, ...]:
        """(rows, *shape of a row)"""
        return (self._length, *self._buffer.shape[1:])

    @property
    def capacity(self) -> int:
        """Rows that fit before the buffer has to grow."""
        return self._buffer.shape[0]

    @property
    def nbytes(self) -> int:
        """Bytes of the buffer, filled or not."""
        return self._buffer.nbytes

    def numpy(self) -> np.ndarray:
        """A numpy copy of the rows."""
        with self._lock:
            rows = self._buffer[: self._length].copy()
        return wrap_unchecked(rows, self.dtype).numpy()

    def copy(self) -> KVCache:
        """A cache of its own with the same rows."""
        with self._lock:
            cache = KVCache(aligned_copy(self._buffer), self.dtype, self._length, self.name)
            cache._next = self._next
        return cache

    def truncate(self, length: int) -> None:
        """Take back all rows behind the first `length`."""
        with self._lock:
            if not 0 <= length <= self._length:
                self._refuse("truncate", f"wanted 0 to {self._length} rows, got {length}")
            if length and length < self._length and self._next >= 0:
                text = "the window has rolled on, so its last rows are not its newest"
                self._refuse("truncate", text)
            self._length = length
            if not length:
                self._next = -1

    def _named(self, what: str) -> str:
        return f"kv_cache {self.name}: {what}" if self.name else f"kv_cache {what}"

    def _refuse(self, what: str, text: str, kind: type[VMError] = VMValueError) -> NoReturn:
        raise kind(f"{self._named(what)}: {text}")

    # -- what the builtins do, with the lock held -------------------------------------------------

    def _append(self, account: Account | None, rows: np.ndarray) -> None:
        needed = self._length + rows.shape[0]
        if needed > self._buffer.shape[0]:
            self._move(account, max(needed, 2 * self._buffer.shape[0]))
        self._write(account, slice(self._length, needed), rows)
        self._length = needed

    def _write(self, account: Account | None, where: Any, rows: np.ndarray) -> None:
        """Overwrite the rows `where`: a slice, or an array of row numbers."""
        first = where.start if isinstance(where, slice) else int(where.min(initial=self.capacity))
        memory = self._buffer.base
        if first < self._shown and rows.shape[0] and not held_once(memory):
            self._move(account, self._buffer.shape[0])
        self._buffer[where] = rows

    def _move(self, account: Account | None, capacity: int) -> None:
        """Go to a new buffer of `capacity` rows, and take the filled ones along."""
        if capacity > _MAX_ROWS:
            self._refuse("append", f"wanted fewer rows than {capacity}")
        buffer = counted_empty(account, (capacity, *self._buffer.shape[1:]), self._buffer.dtype)
        buffer[: self._length] = self._buffer[: self._length]
        self._buffer = buffer
        self._shown = 0

    def _roll(self, account: Account | None, rows: np.ndarray, size: int, sinks: int) -> None:
        """Append while there are fewer than `size` rows; the rest goes over the oldest rows but the
        first `sinks`.
        """
        fitting = min(max(size - self._length, 0), rows.shape[0])
        if fitting:
            self._append(account, rows[:fitting])
        rest = rows[fitting:]
        if not rest.shape[0]:
            return
        window = size - sinks
        start = self._next if self._next >= 0 else sinks
        # Of more rows than the window has, only the last are left in the end.
        kept = min(rest.shape[0], window)
        offsets = np.arange(rest.shape[0] - kept, rest.shape[0])
        places = sinks + (start - sinks + offsets) % window
        self._write(account, places, rest[-kept:])
        self._next = sinks + (start - sinks + rest.shape[0]) % window

    def __repr__(self) -> str:
        name = f" {self.name}" if self.name else ""
        return f"<KVCache{name} {self.shape} {self.dtype}, room for {self.capacity}>"


# -- checks --------------------------------------------------------------------------------------


def _cache(value: object, what: str) -> KVCache:
    if type(value) is not KVCache:
        raise VMTypeError(f"{what}: wanted a KVCache, got {got(value)}")
    return value


def _rows(cache: KVCache, value: object, what: str) -> np.ndarray:
    """New rows for `cache`, checked."""
    row = cache._buffer.shape[1:]
    if type(value) is not NDArray:
        cache._refuse(what, f"wanted a tensor, got {got(value)}", VMTypeError)
    if value.dtype is not cache.dtype:
        cache._refuse(what, f"wanted dtype {cache.dtype}, got {got(value)}", VMTypeError)
    array = value.array
    if array.ndim != len(row) + 1 or array.shape[1:] != row:
        wanted = ", ".join(["n", *map(str, row)])
        cache._refuse(what, f"wanted rows of ({wanted}), got {got(value)}")
    return array


# -- vm.builtin.attention_kv_cache_* -------------------------------------------------------------


def create(
    account: Account | None, init: object, shape: object, length: object = -1, name: object = ""
) -> KVCache:
    """A cache that begins with rows of the tensor `init`.

    shape   (rows to reserve, *shape of a row)
    length  how many rows of `init` are taken, -1: all
    """
    what = f"kv_cache {name}: create" if isinstance(name, str) and name else "kv_cache create"
    if type(init) is not NDArray:
        raise VMTypeError(f"{what}: wanted a tensor to begin with, got {got(init)}")
    if not isinstance(shape, tuple) or not all(type(d) is int and d >= 0 for d in shape):
        raise VMTypeError(f"{what}: wanted a shape to reserve, got {got(shape)}")
    array = init.array
    if not 1 <= len(shape) <= MAX_NDIM or array.shape[1:] != shape[1:] or array.ndim != len(shape):
        raise VMValueError(
            f"{what}: wanted a shape of one axis more than a row has, with the rows' shape, "
            f"got {shape_text(shape)} for {got(init)}"
        )
    count = integer(length, f"{what}: length")
    count = array.shape[0] if count == -1 else count
    if not 0 <= count <= array.shape[0]:
        raise VMValueError(f"{what}: wanted 0 to {array.shape[0]} rows, got {count}")
    if shape[0] > _MAX_ROWS:
        raise VMValueError(f"{what}: wanted fewer rows than {shape[0]}")
    reserved = (max(shape[0], count), *shape[1:])
    buffer = counted_empty(account, reserved, to_numpy_dtype(init.dtype))
    buffer[:count] = array[:count]
    return KVCache(buffer, init.dtype, count, name if isinstance(name, str) else "")


def append(account: Account | None, cache: object, rows: object) -> KVCache:
    """The same cache with `rows` [n, ...] behind the others."""
    target = _cache(cache, "kv_cache append")
    with target._lock:
        array = _rows(target, rows, "append")
        if target._next >= 0:
            text = "the window has rolled on; go on with window_override, or clear it"
            target._refuse("append", text)
        target._append(account, array)
    return target


def view(cache: object, shape: object) -> NDArray:
    """The rows as a tensor over the cache's memory. `shape` says what the program expects."""
    source = _cache(cache, "kv_cache view")
    with source._lock:
        if not isinstance(shape, tuple):
            source._refuse("view", f"wanted a shape, got {got(shape)}", VMTypeError)
        if tuple(shape) != source.shape:
            held = shape_text(source.shape)
            source._refuse("view", f"wanted {shape_text(shape)}, the cache holds {held}")
        source._shown = max(source._shown, source._length)
        return wrap_unchecked(source._buffer[: source._length], source.dtype)


def update(account: Account | None, cache: object, rows: object) -> KVCache:
    """The same cache with all its rows replaced by as many new ones."""
    target = _cache(cache, "kv_cache update")
    with target._lock:
        array = _rows(target, rows, "update")
        if array.shape[0] != target._length:
            target._refuse("update", f"wanted {target._length} rows, got {array.shape[0]}")
        target._write(account, slice(0, target._length), array)
    return target


def override_window(
    account: Account | None, cache: object, rows: object, max_rows: object, sinks: object = 0
) -> KVCache:
    """The same cache with `rows` appended, and never more than `max_rows`: the oldest are
    overwritten, but the first `sinks`.
    """
    target = _cache(cache, "kv_cache window_override")
    what = target._named("window_override")
    size, kept = integer(max_rows, f"{what}: size"), integer(sinks, f"{what}: sinks")
    if not 0 <= kept < size:
        raise VMValueError(f"{what}: wanted a size above {kept} sinks of at least 0, got {size}")
    with target._lock:
        if target._length > size:
            raise VMValueError(f"{what}: wanted at most {size} rows, there are {target._length}")
        target._roll(account, _rows(target, rows, "window_override"), size, kept)
    return target


def popn(cache: object, count: object) -> KVCache:
    """The same cache without its last `count` rows."""
    target = _cache(cache, "kv_cache popn")
    number = integer(count, target._named("popn: count"))
    if not 0 <= number <= len(target):
        target._refuse("popn", f"wanted 0 to {len(target)} rows, got {number}")
    target.truncate(len(target) - number)
    return target


def clear(cache: object) -> KVCache:
    """The same cache without rows; its memory is kept."""
    target = _cache(cache, "kv_cache clear")
    target.truncate(0)
    return target


def _caches(value: object, what: str) -> list[KVCache]:
    if not isinstance(value, tuple):
        raise VMTypeError(f"{what}: wanted a tuple of KVCaches, got {got(value)}")
    return [_cache(each, what) for each in value]


def array_popn(caches: object, count: object) -> None:
    """Take the last `count` rows back from each cache of a tuple."""
    for each in _caches(caches, "kv_cache array_popn"):
        popn(each, count)


def array_clear(caches: object) -> None:
    """Take all rows back from each cache of a tuple."""
    for each in _caches(caches, "kv_cache array_clear"):
        clear(each)
