"""The thread pool of the process: who works on `T.parallel` loops, and how many.

Kernels call the native `relaxvm_parallel_for` (see `threads_ir`). The first region that wants
workers calls back here to start them. They are daemon threads that stay in native code without the
GIL and park when idle. A child made by `fork` has none and starts its own when it needs them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
import sys
import threading

from ..base import VMTypeError, VMValueError
from . import threads_ir as layout
from .cpu_budget import usable_cores
from .linking import LinkedCode, machine_name
from .locks import lock
from .pyabi import never_let_go
from .trampoline import object_code

MAX_THREADS = 256

POOL_SYMBOL = layout.SYMBOLS[0]
_lock = lock()
_default: int | None = None


def check_num_threads(count: object, where: str) -> int:
    """`count` as a number of threads, 0 for None. Raises VMTypeError or VMValueError."""
    if count is None:
        return 0
    if isinstance(count, bool) or not isinstance(count, int):
        raise VMTypeError(f"{where}: wanted a number of threads, got {type(count).__name__}")
    if not 1 <= count <= MAX_THREADS:
        raise VMValueError(f"{where}: wanted 1 to {MAX_THREADS} threads, got {count}")
    return int(count)


def pool_size() -> int:
    """The threads that a parallel loop may use, its caller included, where no VM or module says
    otherwise: the cores this process may use, or what `set_num_threads` said.
    """
    global _default
    if _default is None:
        _default = min(MAX_THREADS, usable_cores())
    return _default


def set_num_threads(count: int | None) -> int:
    """Change `pool_size` (None: back to the cores this process may use); returns the former one.

    Kernels that run now keep what they have.
    """
    global _default
    chosen = check_num_threads(count, "set_num_threads")
    with _lock:
        former = pool_size()
        _default = chosen or None
        if _library.cache_info().currsize:
            _library().set_word(layout.DEFAULT, pool_size())
    return former


def worker_count() -> int:
    """The workers started so far in this process; callers of parallel loops are not among them."""
    return _library().word(layout.STARTED) if _library.cache_info().currsize else 0


def parallel_for_address() -> int:
    """The address of ``int32 parallel_for(body, ctx, n, budget, work)``.

    Runs ``int32 body(ctx, begin, end)`` over pieces of range(n) and returns 0 or the first number
    other than 0 that it gave. budget: most threads, 0 for `pool_size()`. work: about how many
    operations all of it takes; few are not shared out.
    """
    with _lock:
        return _library().addresses[POOL_SYMBOL]


class _Pool:
    """The native part: its functions, and its state as words in memory."""

    def __init__(self, addresses: dict[str, int], parking: str) -> None:
        self.addresses = addresses
        self.parking = parking
        self._state = addresses["relaxvm_pool_state"]
        self._work = ctypes.CFUNCTYPE(None)(addresses["relaxvm_pool_worker"])
        self._init = ctypes.CFUNCTYPE(None)(addresses["relaxvm_pool_init"])
        self._starter = ctypes.CFUNCTYPE(None, ctypes.c_int64)(self._start)
        self._init()
        self.set_word(layout.DEFAULT, pool_size())
        starter = ctypes.cast(self._starter, ctypes.c_void_p).value or 0
        self.set_word(layout.STARTER, 0 if parking == "serial" else starter)

    def word(self, offset: int) -> int:
        return int(ctypes.c_int64.from_address(self._state + offset).value)

    def set_word(self, offset: int, value: int) -> None:
        ctypes.c_int64.from_address(self._state + offset).value = value

    def _start(self, wanted: int) -> None:
        """Called by the region that has the pool, so by one thread at a time."""
        started = self.word(layout.STARTED)
        try:
            while started < min(wanted, MAX_THREADS - 1):
                name = f"relaxvm worker {started + 1}"
                threading.Thread(target=self._work, name=name, daemon=True).start()
                started += 1
        except (RuntimeError, MemoryError):
            # No more threads (a limit, or the interpreter is ending): fewer will do.
            pass
        self.set_word(layout.STARTED, started)

    def after_fork(self) -> None:
        """In a child: nobody works here yet."""
        kept = [self.word(offset) for offset in (layout.DEFAULT, layout.STARTER)]
        ctypes.memset(self._state, 0, layout.SIZE)
        self._init()
        for offset, value in zip((layout.DEFAULT, layout.STARTER), kept):
            self.set_word(offset, value)


@functools.lru_cache(maxsize=1)
def _library() -> _Pool:
    architecture = machine_name()
    usable = struct.calcsize("P") == 8
    parking = layout.parking_of(architecture) if usable else "serial"
    pool = _build(architecture, parking)
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=pool.after_fork)
    return pool


def _in_this_process(symbols: tuple[str, ...]) -> bool:
    """Whether the C libraries that Python runs on have all these functions."""
    process = ctypes.CDLL(None)
    return all(hasattr(process, symbol) for symbol in symbols)


def _build(architecture: str, parking: str) -> _Pool:
    """A pool of its own; the process uses the one of `_library`."""
    places = sys.platform == "linux" and _in_this_process(layout.PLACING_SYMBOLS)
    code = object_code(layout.pool_ir, architecture, parking, places)
    library = LinkedCode((code,), layout.SYMBOLS, {})
    pool = _Pool(library.addresses, parking)
    # Parked workers are inside this code until the process ends: never let it go.
    never_let_go(library, pool._starter, pool._work)
    return pool
