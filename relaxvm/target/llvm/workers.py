"""Several units compiled at once, by processes: llvmlite lets one thread of a process use LLVM.

A worker is a new interpreter, not a fork: threads of ours and of others may be running. It takes
some 0.7 s until it is ready, so that few units are compiled here, one after the other. Whatever
goes wrong with a worker (an error, a crash, silence, no Python to start), its unit is compiled
here, where errors are raised with the names the user knows.
"""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import queue
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from ...base import RelaxvmError, collecting_seldom, config
from ...ir import Call, PassContext, nodes_of
from ...ir.transform import registered_passes
from ...runtime import DiskCache, usable_cores
from ...runtime.locks import lock
from ...tir.schedule import builtins_replaced
from .machine import host_machine
from .net import Worker, WorkerLost, has_python, has_worker, idle_core, in_this_process
from .passes import pipes, receive, send
from .units import (
    CompiledUnit,
    GeneratedUnit,
    Settings,
    Unit,
    compile_unit,
    generate_unit,
    unit_of,
)

# A unit takes some 0.1 s, the start of a worker as long as seven of them.
_UNITS_PER_WORKER = 12
_MAX_WORKERS = 32
# One that is ready is worth it sooner. Modules of so many calls have kernels for one, mostly.
_UNITS_FOR_READY, _MANY_CALLS = 4, 48
# How many texts may wait for LLVM: a unit that is taken here is one that no worker takes.
_MOST_WAITING = 2
# How many workers one thread may lose.
_MOST_LOST = 3
# It sees the modules that this process sees, and none of the folder it is started in.
_START = "import sys; sys.path[:] = sys.argv[1:]; from {0} import serve; serve()"
# How long a worker may take when all others have finished: as long as all the rest took, but this
# at least, for a large unit begun last.
_PATIENCE_SECONDS = 30.0


def compile_units(units: Sequence[Unit], settings: Settings) -> list[CompiledUnit]:
    """`compile_unit` of each, in order. Raises what the first that fails raises."""
    jobs = config.build_jobs() or usable_cores()
    workers = min(jobs - 1, len(units) // _UNITS_PER_WORKER, _MAX_WORKERS)
    if _ready is not None and len(units) >= _UNITS_FOR_READY:
        workers = max(workers, 1)
    if workers < 1 or not has_python() or builtins_replaced():
        alone: list[CompiledUnit | None] = [None] * len(units)
        numbers = iter(range(len(units)))
        _compile_in_turn(numbers, units, settings, alone, _Texts())
        return [unit_code for unit_code in alone if unit_code is not None]
    compiled = _Shared(units, settings).run(workers)
    # What no worker could compile is tried here, in order.
    return [
        compile_unit(unit, settings) if one is None else one for unit, one in zip(units, compiled)
    ]


_ready: Worker | None = None
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
    worker, key = None, None
    if len(outline) >= _MANY_CALLS and (config.build_jobs() or usable_cores()) > 1:
        key = "\n".join(outline).encode()
    if key is not None and _outlines.get(key) is None:
        if has_python() and not builtins_replaced() and idle_core():
            with _ready_lock, contextlib.suppress(OSError, ValueError):
                if _ready is None:
                    worker = _ready = Worker("-c", _START.format(__name__))
    else:
        key = None
    try:
        yield
        if key is not None:
            _outlines.put(key, b"built")
    finally:
        with _ready_lock:
            if worker is not None and _ready is worker:
                _ready = None
                worker.end()


def _started_worker() -> Worker:
    """The one that was started before, or another."""
    global _ready
    with _ready_lock:
        worker, _ready = _ready, None
    if worker is not None and worker.owner == os.getpid():
        return worker
    return Worker("-c", _START.format(__name__))


class _Texts:
    """Units whose text waits for LLVM: whoever takes one compiles it, the longest first."""

    def __init__(self) -> None:
        self._waiting: queue.PriorityQueue[tuple[int, int, GeneratedUnit | None]]
        self._waiting = queue.PriorityQueue()

    def put(self, i: int, generated: GeneratedUnit) -> None:
        self._waiting.put((-len(generated.text or ""), i, generated))

    def close(self) -> None:
        """There will be no more."""
        self._waiting.put((1, 0, None))

    def take(self, wait: bool) -> tuple[int, GeneratedUnit] | None:
        """One of them; None if there is none, or will be none."""
        try:
            _, i, generated = self._waiting.get(wait)
        except queue.Empty:
            return None
        if generated is None:
            self.close()
            return None
        return i, generated


def _compile_in_turn(
    numbers: Iterator[int],
    units: Sequence[Unit],
    settings: Settings,
    compiled: list[CompiledUnit | None],
    texts: _Texts,
) -> None:
    """Compile the units `numbers` into `compiled`. While LLVM, in its own process, is at work on
    one, the next is scheduled and lowered. Raises what the first that fails raises.
    """
    waiting: collections.deque[Future[None]] = collections.deque()

    def receive_first() -> None:
        waiting.popleft().result()

    def compile_first() -> None:
        # None: a worker had nothing else to do.
        if (taken := texts.take(wait=False)) is not None:
            i, generated = taken
            compiled[i] = generated.compiled()

    pool = ThreadPoolExecutor(1)
    try:
        for i in numbers:
            generated = generate_unit(units[i], settings)
            if not has_worker():
                compiled[i] = generated.compiled()
                continue
            texts.put(i, generated)
            try:
                waiting.append(pool.submit(copy_context().run, compile_first))
            except RuntimeError:
                # No thread can be started.
                compile_first()
            while len(waiting) > _MOST_WAITING:
                receive_first()
        texts.close()
        while waiting:
            receive_first()
    except RelaxvmError:
        while waiting:
            receive_first()
        raise
    finally:
        texts.close()
        pool.shutdown(wait=False, cancel_futures=True)


class _Shared:
    """The units that this process and its workers take in turn, the longest first."""

    def __init__(self, units: Sequence[Unit], settings: Settings) -> None:
        self.units = units
        self.settings = settings
        self.made: list[CompiledUnit | None] = [None] * len(units)
        order = sorted(range(len(units)), key=lambda i: _length(units[i]))
        self.waiting = order
        self.texts = _Texts()
        self.workers: list[Worker] = []
        self.lock = threading.Lock()

    def run(self, workers: int) -> list[CompiledUnit | None]:
        threads = [
            threading.Thread(target=self._work_elsewhere, daemon=True) for _ in range(workers)
        ]
        begun = time.monotonic()
        started = []
        patience = 0.0
        try:
            for thread in threads:
                # There may be too many threads, or no more as Python is ending.
                with contextlib.suppress(RuntimeError):
                    thread.start()
                    started.append(thread)
            try:
                mine = iter(self._next, None)
                _compile_in_turn(mine, self.units, self.settings, self.made, self.texts)
            except RelaxvmError:
                # Raised again in order, when the workers have finished.
                with self.lock:
                    self.waiting.clear()
            patience = max(_PATIENCE_SECONDS, time.monotonic() - begun)
            self._wait(started, patience)
        finally:
            # Without patience if something else was raised, such as KeyboardInterrupt.
            self.texts.close()
            with self.lock:
                self.waiting.clear()
                left = list(self.workers)
            for worker in left:
                worker.kill()
            for thread in started:
                thread.join()
        return self.made

    def _wait(self, threads: Sequence[threading.Thread], seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _receive(self, i: int, answers: list[bytes]) -> None:
        unit_code = CompiledUnit.from_bytes(answers[0]) if answers[0] else None
        if unit_code is not None and unit_code.runs_here():
            self.made[i] = unit_code

    def _next(self) -> int | None:
        with self.lock:
            return self.waiting.pop() if self.waiting else None

    def _work_elsewhere(self) -> None:
        """Feed a worker until nothing waits; another one if it is lost."""
        # Whatever it was, this process compiles what is missing.
        with contextlib.suppress(Exception):
            for _ in range(_MOST_LOST):
                worker = _started_worker()
                with self.lock:
                    self.workers.append(worker)
                try:
                    while (i := self._next()) is not None:
                        self._receive(i, worker.ask(_job(self.units[i], self.settings)))
                    while (taken := self.texts.take(wait=True)) is not None:
                        self._receive(taken[0], worker.ask(pickle.dumps(taken[1])))
                    return
                except WorkerLost:
                    if not worker.asked:
                        return
                finally:
                    worker.end()


def _length(unit: Unit) -> int:
    """About how long it takes: what is called becomes formulas, once in each unrolled copy."""
    calls = sum(1 for fn in unit.functions.functions.values() for _ in nodes_of(fn, Call))
    return len(unit.document) * (1 + calls)


def _job(unit: Unit, settings: Settings) -> bytes:
    context, schedule = settings.context, settings.schedule
    named = None if schedule is None else (schedule.info.name, schedule.options)
    return pickle.dumps(
        (
            unit.stem,
            unit.document,
            (settings.machine, settings.confined, named),
            (context.opt_level, context.required_pass, context.disabled_pass, context.config),
        )
    )


def serve() -> None:
    """What a worker does: units from standard input, compiled ones to standard output; b"" for one
    that cannot be compiled.
    """
    source, sink = pipes()
    in_this_process()
    with contextlib.suppress(Exception):
        # LLVM is loaded while nobody waits.
        host_machine()
    with collecting_seldom(), contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            request = pickle.loads(receive(source))
            answer = b""
            with contextlib.suppress(Exception):
                answer = _answer(request).to_bytes()
            send(sink, answer)


def _answer(request: Any) -> CompiledUnit:
    """The unit that `_job` asks for, or one of which only LLVM's part is left to do."""
    if isinstance(request, GeneratedUnit):
        return request.compiled()
    stem, document, (machine, confined, named), (level, required, disabled, options) = request
    schedule = None
    if named is not None:
        name, chosen = named
        schedule = registered_passes()[name].configured(**chosen)
    context = PassContext(level, required, disabled, None, options)
    return compile_unit(unit_of(stem, document), Settings(machine, confined, schedule, context))
