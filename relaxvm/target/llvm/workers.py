"""Several units compiled at once, by processes: llvmlite lets one thread of a process use LLVM.

A worker is a new interpreter, not a fork: threads of ours and of others may be running. It takes
some 0.7 s until it is ready, so that few units are compiled here, one after the other. Whatever
goes wrong with a worker (an error, a crash, silence, no Python to start), its unit is compiled
here, where errors are raised with the names the user knows.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, BinaryIO

from ...base import RelaxvmError, config
from ...ir import PassContext
from ...runtime.cpu_budget import usable_cores
from ...tir.schedule import builtins_replaced
from .units import CompiledUnit, Settings, Unit, compile_unit, unit_of

__all__ = ["compile_units", "serve"]

# A unit takes some 0.1 s, the start of a worker as long as seven of them.
_UNITS_PER_WORKER = 12
_MAX_WORKERS = 32
_LENGTH = 8
_MOST_BYTES = 1 << 32
# It sees the modules that this process sees, and none of the folder it is started in.
_START = "import sys; sys.path[:] = sys.argv[1:]; from {0} import serve; serve()"
# How long a worker may take when all others have finished: as long as all the rest took, but this
# at least, for a large unit begun last.
_PATIENCE_SECONDS = 30.0


def compile_units(units: Sequence[Unit], settings: Settings) -> list[CompiledUnit]:
    """`compile_unit` of each, in order. Raises what the first that fails raises."""
    jobs = config.build_jobs() or usable_cores()
    workers = min(jobs - 1, len(units) // _UNITS_PER_WORKER, _MAX_WORKERS)
    if workers < 1 or not _has_python() or builtins_replaced():
        return [compile_unit(unit, settings) for unit in units]
    made = _Shared(units, settings).run(workers)
    # What no worker could compile is tried here, in order.
    return [compile_unit(unit, settings) if one is None else one for unit, one in zip(units, made)]


def _has_python() -> bool:
    """Whether `sys.executable` is Python: within another program it may be that program."""
    return bool(sys.executable) and os.path.basename(sys.executable).lower().startswith("py")


class _Shared:
    """The units that this process and its workers take in turn, the longest first."""

    def __init__(self, units: Sequence[Unit], settings: Settings) -> None:
        self.units = units
        self.settings = settings
        self.made: list[CompiledUnit | None] = [None] * len(units)
        order = sorted(range(len(units)), key=lambda i: len(units[i].document))
        self.waiting = order
        self.processes: list[Any] = []
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
                while (i := self._next()) is not None:
                    self.made[i] = compile_unit(self.units[i], self.settings)
            except RelaxvmError:
                # Raised again in order, when the workers have finished.
                with self.lock:
                    self.waiting.clear()
            patience = max(_PATIENCE_SECONDS, time.monotonic() - begun)
            self._wait(started, patience)
        finally:
            # Without patience if something else was raised, such as KeyboardInterrupt.
            with self.lock:
                self.waiting.clear()
                left = list(self.processes)
            for process in left:
                process.kill()
            for thread in started:
                thread.join()
        return self.made

    def _wait(self, threads: Sequence[threading.Thread], seconds: float) -> None:
        until = time.monotonic() + seconds
        for thread in threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _next(self) -> int | None:
        with self.lock:
            return self.waiting.pop() if self.waiting else None

    def _work_elsewhere(self) -> None:
        """Feed one worker until nothing waits, or it fails."""
        # Whatever it was, this process compiles what is missing.
        with contextlib.suppress(Exception), _worker() as at:
            with self.lock:
                self.processes.append(at)
            while (i := self._next()) is not None:
                _send(at.stdin, _job(self.units[i], self.settings))
                answer = _receive(at.stdout)
                made = CompiledUnit.from_bytes(answer) if answer else None
                if made is not None and made.runs_here():
                    self.made[i] = made


@contextlib.contextmanager
def _worker() -> Iterator[Any]:
    root = str(pathlib.Path(__file__).parents[3])
    # "" is the folder this process happens to be in.
    paths = [root, *(p for p in sys.path if isinstance(p, str) and p not in ("", root))]
    process = subprocess.Popen(
        [sys.executable, "-I", "-c", _START.format(__name__), *paths],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        # It holds nothing that would have to be put away.
        process.kill()
        process.communicate()


def _job(unit: Unit, settings: Settings) -> bytes:
    context = settings.context
    return pickle.dumps(
        (
            unit.stem,
            unit.document,
            (settings.machine, settings.confined, settings.cpu),
            (context.opt_level, context.required_pass, context.disabled_pass, context.config),
        )
    )


def serve() -> None:
    """What a worker does: units from standard input, compiled ones to standard output; b"" for one
    that cannot be compiled.
    """
    source, sink = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    # What anything prints must not come between the answers.
    os.dup2(2, 1)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            stem, document, (machine, confined, cpu), given = pickle.loads(_receive(source))
            level, required, disabled, options = given
            context = PassContext(level, required, disabled, None, options)
            answer = b""
            with contextlib.suppress(Exception):
                settings = Settings(machine, confined, cpu, context)
                answer = compile_unit(unit_of(stem, document), settings).to_bytes()
            _send(sink, answer)


def _send(file: BinaryIO, data: bytes) -> None:
    file.write(len(data).to_bytes(_LENGTH, "little") + data)
    file.flush()


def _receive(file: BinaryIO) -> bytes:
    head = file.read(_LENGTH)
    size = int.from_bytes(head, "little")
    if len(head) < _LENGTH or size > _MOST_BYTES:
        raise EOFError
    data = file.read(size)
    if len(data) < size:
        raise EOFError
    return data
