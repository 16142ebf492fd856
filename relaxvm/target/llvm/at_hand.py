"""A worker that is started before it is needed, and what it compiles while passes still run.

What comes out of a pass is often a kernel as it will be. The worker at hand compiles such ones
ahead; where the kernel that is wanted in the end is another one, that was for nothing.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgpack

from ...base import config
from ...runtime import DiskCache, usable_cores
from ...runtime.locks import lock
from ...tir.schedule import builtins_replaced
from .net import Worker, has_python, idle_core
from .units import CompiledUnit

# It sees the modules that this process sees, and none of the folder it is started in. It multiplies
# nothing: the threads that numpy would start for that turn round for a twentieth of a second.
_START = (
    "import os, sys; sys.path[:] = sys.argv[1:]; os.putenv('OPENBLAS_NUM_THREADS', '1'); "
    "from {0}.workers import serve; serve()"
)
# Modules of so many calls have kernels for one, mostly.
_MANY_CALLS = 48


def start_worker() -> Worker:
    """One that serves units. Raises OSError if it cannot be started."""
    return Worker("-S", "-c", _START.format(__package__))


class AtHand:
    """A worker, and what it made ahead.

    units    the compiled ones, by stem and document
    at_work  the name of the kernel that it works on, as far as is known
    """

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.units: dict[tuple[str, bytes], CompiledUnit] = {}
        self.at_work: str | None = None
        self._pool = ThreadPoolExecutor(1)

    def put(self, name: str, job: Callable[[], bytes]) -> None:
        """Have a kernel compiled, after those that were put before.

        job  gives the request, to which the answer is (stem, document, compiled unit)
        """
        # There may be too many threads, or no more as Python is ending.
        with contextlib.suppress(RuntimeError):
            self._pool.submit(self._make, name, job)

    def _make(self, name: str, job: Callable[[], bytes]) -> None:
        # Whatever it was, what is missing is compiled later.
        with contextlib.suppress(Exception):
            if self.worker.is_alive():
                self.at_work = name
                (answer,) = self.worker.ask(job())
                if answer:
                    stem, document, code = msgpack.unpackb(answer)
                    self.units[stem, document] = CompiledUnit.from_bytes(code)
        self.at_work = None

    def stop(self, wait: bool = False) -> None:
        """Have nothing more compiled that was not begun; wait for what was."""
        self._pool.shutdown(wait, cancel_futures=True)


_ready: AtHand | None = None
_ready_lock = lock()
# Of modules whose kernels were all compiled once.
_outlines = DiskCache("outlines", 1 << 17)


@contextlib.contextmanager
def worker_at_hand(outline: Sequence[str]) -> Iterator[None]:
    """Around a build of a module that calls these operators. If there are many, a core has nothing
    to do and no such module was built before, have a worker started while the passes run; end it
    if nobody needed it.
    """
    global _ready
    begun, key = None, None
    if len(outline) >= _MANY_CALLS and (config.build_jobs() or usable_cores()) > 1:
        key = "\n".join(outline).encode()
    if key is not None and _outlines.get(key) is None:
        if has_python() and not builtins_replaced() and idle_core():
            with _ready_lock, contextlib.suppress(OSError, ValueError):
                if _ready is None:
                    begun = _ready = AtHand(start_worker())
    else:
        key = None
    try:
        yield
        if key is not None:
            _outlines.put(key, b"built")
    finally:
        with _ready_lock:
            unneeded = begun if _ready is begun else None
            if unneeded is not None:
                _ready = None
        if unneeded is not None:
            unneeded.worker.kill()
            unneeded.stop(wait=True)
            unneeded.worker.end()


def at_hand() -> AtHand | None:
    """The worker that was started, if nobody took it."""
    return _ready


def take() -> AtHand | None:
    """The same, for good. Whoever takes it stops it."""
    global _ready
    with _ready_lock:
        taken, _ready = _ready, None
    return taken if taken is not None and taken.worker.owner == os.getpid() else None
