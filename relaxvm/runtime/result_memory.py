"""Memory of large results goes round: what a program gives back is taken again by a later call, so
that the system is not asked for pages at every call.

A block is free when nobody but the table below holds it: results, their views, DLPack exports and
whoever borrows them all hold the block. Machine code looks through the table itself (the IR is in
`target/llvm/vm_support.py`); where nothing fits it asks `make`. Everything happens under the GIL.

Small results go round with the header that numpy has for each: every place of a program that makes
one remembers the last two arrays, in a pair of addresses (`header_pair`). One that nobody else
holds, weakly neither, is the next result if dtype and shape are the same.

The table holds at most `MOST_BYTES`. What nobody took for some seconds is let go, so an idle
process holds nothing; a child of `fork` begins with nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
import time
from typing import Any

import numpy as np

from .locks import lock
from .ndarray import NDArray
from .storage import Pages

FROM_BYTES = 1 << 16
"""Smaller memory comes from the allocator, which serves it as fast."""
AGAIN_BYTES = 1 << 13
"""Results of up to so many bytes are kept with their headers."""
SLACK_SHIFT = 3
"""A block may be larger than what is wanted by that shifted right."""
SLOTS = 256
MOST_BYTES = 1 << 28
_IDLE_SECONDS = 5.0

# The table: 64-bit words. No slot from END on is used. For each slot, from FIRST on: an object, its
# bytes (0: none), and its last use. The first that fits is taken: it is likely to be in a cache.
END, NOW, FIRST = 0, 1, 2
OBJECT, CAPACITY, USED, SLOT_WORDS = 0, 1, 2, 3

_words = (ctypes.c_int64 * (FIRST + SLOT_WORDS * SLOTS))()
_PAIRS = 256
_headers = (ctypes.c_int64 * (2 * _PAIRS))()
_pairs_used = 0
_blocks: list[np.ndarray | None] = [None] * SLOTS
_sizes = [0] * SLOTS
_lock = lock()
_tended = False
_turn = 0
_UINT8 = np.dtype("uint8")
_MEMORY = (np.ndarray, NDArray, Pages)
# Elsewhere a count says nothing about who else holds a block.
COUNTS_TELL = (
    sys.implementation.name == "cpython" and getattr(sys, "_is_gil_enabled", lambda: True)()
)


def table_address() -> int:
    """Where the table lies, for machine code."""
    return ctypes.addressof(_words)


def header_pair() -> int:
    """Where machine code may keep two arrays, each a reference. When all pairs are in use, places
    share them: no array is taken again without a look at what it is.
    """
    global _pairs_used
    _pairs_used += 1
    return ctypes.addressof(_headers) + 16 * (_pairs_used % _PAIRS)


def held_bytes() -> int:
    """Bytes of all blocks in the table, of those in use too."""
    return sum(_sizes)


def held_once(memory: Any) -> bool:
    """Whether `memory`, an array of ours or numpy's, is held by one object besides the caller's
    variable, and each array that it is a view of by one object. (Another thread that asks holds it,
    too.)
    """
    mine = _MINE
    while type(memory) in _MEMORY:
        others = _holders(memory) - _ONE - mine
        if others and not (others == 1 and any(each is memory for each in _blocks)):
            return False
        if type(memory) is Pages:
            return COUNTS_TELL
        if type(memory) is np.ndarray and memory.base is None:
            return COUNTS_TELL and memory.flags.owndata
        mine, memory = 0, memory.array if type(memory) is NDArray else memory.base
    return False


def take(size_bytes: int) -> np.ndarray:
    """A block of at least `size_bytes` that nobody else holds. Raises MemoryError, ValueError."""
    if size_bytes >= FROM_BYTES and COUNTS_TELL:
        slack = size_bytes >> SLACK_SHIFT
        for i, have in enumerate(_sizes):
            if 0 <= have - size_bytes <= slack:
                block = _blocks[i]
                if block is not None and _unheld(block):
                    _words[_slot(i) + USED] = _words[NOW]
                    return block
    return make(size_bytes)


def make(size_bytes: int) -> np.ndarray:
    """A new block of at least `size_bytes`, kept for later calls if it is of a size for that."""
    if size_bytes < FROM_BYTES or size_bytes > MOST_BYTES // 2 or not COUNTS_TELL:
        return np.empty(size_bytes, _UINT8)
    # Rounded up, so that a result that grows by a row does not need a new block each time.
    step = 1 << (size_bytes.bit_length() - SLACK_SHIFT - 1)
    capacity = -(-size_bytes // step) * step
    try:
        block = np.empty(capacity, _UINT8)
    except MemoryError:
        with _lock:
            _drop_all()
        block = np.empty(size_bytes, _UINT8)
    with _lock:
        _keep(block)
    return block


def sweep() -> bool:
    """Let go of what was not taken since the last but one sweep; whether anything is left."""
    global _tended
    with _lock:
        _words[NOW] += 1
        for i in range(_words[END]):
            if _words[_slot(i) + USED] < _words[NOW] - 1:
                _drop(i)
        _words[END] = max((i + 1 for i in range(SLOTS) if _sizes[i]), default=0)
        _tended = _words[END] > 0
        return _tended


def _slot(i: int) -> int:
    return FIRST + SLOT_WORDS * i


def _unheld(block: np.ndarray) -> bool:
    return sys.getrefcount(block) == _UNHELD


def _holders(memory: object) -> int:
    return sys.getrefcount(memory)


def _counted() -> tuple[int, int, int]:
    """What `_unheld` sees of a block that the table and one variable hold, `held_once` of what one
    object holds, and what the caller's variable adds to that (nothing, where calls borrow it).
    """
    blocks = [np.empty(1, _UINT8)]
    counts: list[int] = []

    def count(block: np.ndarray) -> None:
        counts.append(sys.getrefcount(block))

    def look(memory: Any) -> int:
        return _holders(memory)

    once = look(blocks[0])
    block = blocks[0]
    count(block)
    return counts[0], once, look(block) - once


_UNHELD, _ONE, _MINE = _counted()


def _keep(block: np.ndarray) -> None:
    """Put `block` into the table, in place of the blocks next in turn if there is no room."""
    global _tended, _turn
    room = MOST_BYTES - held_bytes()
    while room < block.size or 0 not in _sizes:
        room += _sizes[_turn]
        _drop(_turn)
        _turn = (_turn + 1) % SLOTS
    i = _sizes.index(0)
    _blocks[i], _sizes[i] = block, block.size
    _words[_slot(i) + OBJECT], _words[_slot(i) + USED] = id(block), _words[NOW]
    _words[_slot(i) + CAPACITY] = block.size  # last: from here on the slot counts
    _words[END] = max(_words[END], i + 1)
    if not _tended:
        try:
            threading.Thread(target=_tend, name="relaxvm results", daemon=True).start()
            _tended = True
        except RuntimeError:
            pass  # no thread to be had; the table is bounded all the same


def _drop(i: int) -> None:
    _words[_slot(i) + CAPACITY] = 0
    _blocks[i], _sizes[i] = None, 0


def _drop_all() -> None:
    for i in range(SLOTS):
        _drop(i)


def _tend() -> None:
    time.sleep(_IDLE_SECONDS)
    while sweep():
        time.sleep(_IDLE_SECONDS)


def _in_child() -> None:
    global _tended
    _tended = False
    _drop_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
