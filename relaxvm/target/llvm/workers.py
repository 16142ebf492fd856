"""Several units compiled at once, by processes: llvmlite lets one thread of a process use LLVM.

A worker is a new interpreter, not a fork: threads of ours and of others may be running. It takes
some 0.3 s until it is ready, so that few units are compiled here, one after the other. Whatever
goes wrong with a worker (an error, a crash, silence, no Python to start), its unit is compiled
here, where errors are raised with the names the user knows.
"""

from __future__ import annotations

import collections
import contextlib
import pickle
import queue
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context

import msgpack

from ...base import NamedTuple, RelaxvmError, collecting_seldom, config
from ...ir import Call, IRModule, PassContext, load_msgpack, nodes_of, save_msgpack
from ...ir.transform import Pass
from ...runtime import usable_cores
from ...tir import PrimFunc
from ...tir.analysis import called_functions
from ...tir.schedule import builtins_replaced
from ..target import Target
from .at_hand import AtHand, at_hand, start_worker, take
from .machine import llvm, machine_of
from .net import Worker, WorkerLost, has_python, has_worker, in_this_process
from .passes import pipes, receive, send
from .units import (
    CompiledUnit,
    GeneratedUnit,
    Settings,
    Unit,
    compile_unit,
    generate_unit,
    split,
    unit_of,
)

# A unit takes some 0.06 s, the start of a worker as long as five of them.
_UNITS_PER_WORKER = 12
_MAX_WORKERS = 32
# One that is ready is worth it sooner.
_UNITS_FOR_READY = 4
# How many texts may wait for LLVM: a unit that is taken here is one that no worker takes.
_MOST_WAITING = 2
# How many workers one thread may lose.
_MOST_LOST = 3
# How long a worker may take when all others have finished: as long as all the rest took, but this
# at least, for a large unit begun last.
_PATIENCE_SECONDS = 30.0


def compile_units(units: Sequence[Unit], settings: Settings) -> list[CompiledUnit]:
    """`compile_unit` of each, in order. Raises what the first that fails raises."""
    jobs = config.build_jobs() or usable_cores()
    workers = min(jobs - 1, len(units) // _UNITS_PER_WORKER, _MAX_WORKERS)
    if at_hand() is not None and len(units) >= _UNITS_FOR_READY:
        workers = max(workers, 1)
    if workers < 1 or not has_python() or builtins_replaced():
        alone: list[CompiledUnit | None] = [None] * len(units)
        numbers = iter(range(len(units)))
        _compile_in_turn(numbers, units, settings, alone, _Texts())
        return [unit_code for unit_code in alone if unit_code is not None]
    compiled = _Shared(units, settings, take()).run(workers)
    # What no worker could compile is tried here, in order.
    return [
        compile_unit(unit, settings) if one is None else one for unit, one in zip(units, compiled)
    ]


def compile_ahead(
    name: str,
    fn: PrimFunc,
    target: Target,
    schedule: Pass | None,
    prepare: Callable[[PrimFunc], PrimFunc],
) -> None:
    """Have the worker at hand, if there is one, compile what `prepare` makes of a loop function,
    for a build that compiles such a kernel later.

    prepare  can be pickled
    """
    ahead = at_hand()
    if ahead is None or target.kind_name != "llvm" or called_functions(fn):
        return
    context = PassContext.current()

    # What is wrong with the target is told where the kernel is compiled.
    def job() -> bytes:
        settings = Settings(machine_of(target), schedule=schedule, context=context)
        functions = save_msgpack(IRModule({name: fn}), spans=False)
        return pickle.dumps(_Job(name, functions, settings, prepare))

    ahead.put(name, job)


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
                waiting.popleft().result()
        texts.close()
        while waiting:
            waiting.popleft().result()
    except RelaxvmError:
        while waiting:
            waiting.popleft().result()
        raise
    finally:
        texts.close()
        pool.shutdown(wait=False, cancel_futures=True)


class _Shared:
    """The units that this process and its workers take in turn, the longest first.

    ahead  a worker that is there already, and what it made
    """

    def __init__(
        self, units: Sequence[Unit], settings: Settings, ahead: AtHand | None = None
    ) -> None:
        self.units = units
        self.settings = settings
        self.made: list[CompiledUnit | None] = [None] * len(units)
        self.texts = _Texts()
        self.workers: list[Worker] = []
        self.lock = threading.Lock()
        self.ahead = ahead
        # What is made ahead when all is known what is wanted.
        self.begun: int | None = None
        if ahead is not None:
            self.workers.append(ahead.worker)
            ahead.stop()
            at_work = ahead.at_work
            for i, unit in enumerate(units):
                self._receive_ahead(i, ahead)
                if at_work in unit.called and self.made[i] is None:
                    self.begun = i
        left = [i for i in range(len(units)) if self.made[i] is None and i != self.begun]
        self.waiting = sorted(left, key=lambda i: _length(units[i]))

    def run(self, workers: int) -> list[CompiledUnit | None]:
        begun, pool, started = time.monotonic(), ThreadPoolExecutor(workers), []
        try:
            # There may be too many threads, or no more as Python is ending.
            with contextlib.suppress(RuntimeError):
                for _ in range(workers):
                    started.append(pool.submit(self._work_elsewhere))
            try:
                mine = iter(self._next, None)
                _compile_in_turn(mine, self.units, self.settings, self.made, self.texts)
            except RelaxvmError:
                # Raised again in order, when the workers have finished.
                with self.lock:
                    self.waiting.clear()
            wait(started, max(_PATIENCE_SECONDS, time.monotonic() - begun))
        finally:
            # Without patience if something else was raised, such as KeyboardInterrupt.
            self.texts.close()
            with self.lock:
                self.waiting.clear()
                left = list(self.workers)
            for worker in left:
                worker.kill()
            pool.shutdown()
        return self.made

    def _receive_ahead(self, i: int, ahead: AtHand) -> None:
        unit = self.units[i]
        self._receive(i, ahead.units.get((unit.stem, unit.document)))

    def _worker(self) -> Worker:
        """The one that is there already, when it has done what it had begun; then others."""
        with self.lock:
            ahead, self.ahead = self.ahead, None
        if ahead is None:
            worker = start_worker()
            with self.lock:
                self.workers.append(worker)
            return worker
        ahead.stop(wait=True)
        if self.begun is not None:
            self._receive_ahead(self.begun, ahead)
            with self.lock:
                if self.made[self.begun] is None:
                    self.waiting.append(self.begun)
        return ahead.worker

    def _ask(self, i: int, worker: Worker, request: _Job | GeneratedUnit) -> None:
        (answer,) = worker.ask(pickle.dumps(request))
        self._receive(i, CompiledUnit.from_bytes(answer) if answer else None)

    def _receive(self, i: int, unit_code: CompiledUnit | None) -> None:
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
                worker = self._worker()
                try:
                    while (i := self._next()) is not None:
                        unit = self.units[i]
                        self._ask(i, worker, _Job(unit.stem, unit.document, self.settings))
                    while (taken := self.texts.take(wait=True)) is not None:
                        self._ask(taken[0], worker, taken[1])
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


class _Job(NamedTuple):
    """What a worker is asked for.

    name      of the unit's symbols; of the kernel, where it is prepared
    document  the unit's; the module of the function to be prepared
    prepare   what makes the function the unit's
    """

    name: str
    document: bytes
    settings: Settings
    prepare: Callable[[PrimFunc], PrimFunc] | None = None


def serve() -> None:
    """What a worker does: requests from standard input, compiled units to standard output; b"" for
    one that cannot be compiled.
    """
    source, sink = pipes()
    in_this_process()
    with contextlib.suppress(Exception):
        # LLVM is loaded while nobody waits.
        llvm()
    with collecting_seldom(), contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            request = pickle.loads(receive(source))
            answer = b""
            with contextlib.suppress(Exception):
                answer = _answer(request)
            send(sink, answer)


def _answer(request: _Job | GeneratedUnit) -> bytes:
    """The unit that a job asks for, or one of which only LLVM's part is left to do."""
    if isinstance(request, GeneratedUnit):
        return request.compiled().to_bytes()
    settings = request.settings
    if request.prepare is None:
        return compile_unit(unit_of(request.name, request.document), settings).to_bytes()
    functions = load_msgpack(request.document)
    with settings.context.again():
        prepared = {gv: request.prepare(fn) for gv, fn in functions.items()}
    (unit,) = split(IRModule(prepared))
    answer: bytes = msgpack.packb(
        (unit.stem, unit.document, compile_unit(unit, settings).to_bytes()), use_bin_type=True
    )
    return answer
