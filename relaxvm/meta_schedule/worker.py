"""What a worker process does: it builds candidates, runs them, checks their results, times them.

Requests and answers are msgpack documents; modules come as the saved IR or as signed kernels. The
process that asks (`processes.py`) survives whatever happens here.
"""

from __future__ import annotations

import collections
import contextlib
import faulthandler
import math
import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from ..base import DataType, RelaxvmError, bits_to_values, config, to_numpy_dtype, values_to_bits
from ..ir import PassContext, load_msgpack
from ..runtime import Module, data_caches, wrap_unchecked
from ..target import Target, build, in_this_process, pipes, receive, send

try:
    import fcntl as _fcntl
    import resource as _resource
except ImportError:  # Windows
    fcntl: Any = None
    resource: Any = None
else:
    fcntl, resource = _fcntl, _resource

# An idle worker goes; one whose owner is gone, at the latest so long after its time was over.
_IDLE_SECONDS = 300.0
_ORPHAN_SECONDS = 5.0
_MOST_NOISE_BYTES = 1 << 24
_GUARD_BYTES = 4096
_GUARD = 0xA5
# A slower reference kernel than this means that a neighbour was at work.
_CALM = 1.15
# How much longer than planned is measured in order to have calm samples.
_PATIENCE = 3.0
_SHORTEST_SAMPLE = 2e-4
# How often a part of a sample is taken again while others are put before this process.
_ATTEMPTS = 4
# By how much what the system says of a wait may differ from our clock.
_SWITCH_SECONDS = 1e-4


def serve() -> None:
    """Answer requests from standard input until it is closed."""
    source, sink = pipes()
    in_this_process()
    # Thousands of candidates are no use to later builds.
    config.turn_cache_off()
    # Ctrl-C in a terminal is for the owner to hear, who ends this process if it should end.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # Where the machine runs out of memory, this process goes first.
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
        score.write("1000")
    work = _Work()
    send(sink, b"ready")
    with open(os.devnull, "w") as nowhere, contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            faulthandler.dump_traceback_later(_IDLE_SECONDS, exit=True, file=nowhere)
            request = msgpack.unpackb(receive(source), strict_map_key=False)
            faulthandler.dump_traceback_later(
                request["seconds"] + _ORPHAN_SECONDS, exit=True, file=nowhere
            )
            with _ends_with_owner(source.fileno()):
                answer = work.answer(request)
            send(sink, msgpack.packb(answer))


@contextlib.contextmanager
def _ends_with_owner(fd: int) -> Iterator[None]:
    """Inside, the process ends when the other end of the pipe `fd` is closed. Nothing is written
    into it then, so that a signal means just that; its default is to end the process.
    """
    if fcntl is None:  # Windows: it ends when its time is over
        yield
        return
    flags = fcntl.fcntl(fd, fcntl.F_GETFL)
    fcntl.fcntl(fd, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(fd, fcntl.F_SETFL, flags | os.O_ASYNC)
    try:
        yield
    finally:
        fcntl.fcntl(fd, fcntl.F_SETFL, flags)


def _address_space() -> int:
    """Bytes of address space in use; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _limit_memory(further: int) -> None:
    """Allow `further` bytes beyond what is in use."""
    used = _address_space()
    if resource is None:  # Windows
        return
    if used:
        _, hard = resource.getrlimit(resource.RLIMIT_AS)
        soft = used + further
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    # What is printed goes into a file in memory.
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_NOISE_BYTES, hard))
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))


class _Work:
    """The state between requests: the task whose candidates are run."""

    def __init__(self) -> None:
        self._task: _Task | None = None
        self._began = _address_space()

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """What to send back; {"kind", "reason"} for what went wrong."""
        begun = time.perf_counter()
        try:
            _limit_memory(request["memory"])
            answer: dict[str, Any] = self._done(request)
        except MemoryError:
            answer = {"kind": "memory", "reason": "out of the memory it may have"}
        except _Refused as refused:
            answer = {"kind": refused.kind, "reason": str(refused)}
        except Exception as error:  # whatever a candidate makes them raise
            kind = "build" if request["do"] == "build" else "error"
            if "memory" in str(error) and not isinstance(error, RelaxvmError):
                kind = "memory"
            answer = {"kind": kind, "reason": f"{type(error).__name__}: {error}"[:2000]}
        answer["spent"] = time.perf_counter() - begun
        answer["grown"] = _address_space() - self._began
        return answer

    def _done(self, request: Mapping[str, Any]) -> dict[str, Any]:
        if request["do"] == "build":
            return {"module": _built(request)}
        if request["do"] == "prepare":
            self._task = None
            self._task = _Task(request)
            self._began = _address_space()
            return {"arguments": self._task.attempt}
        if self._task is None:
            raise _Refused("error", "no task was prepared")
        if request["do"] == "compare":
            return self._task.compare(request)
        return self._task.run(request)


class _Refused(Exception):
    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind


def _built(request: Mapping[str, Any]) -> bytes:
    level, required, disabled, options = request["context"]
    with PassContext(level, required, disabled, None, options):
        module = build(load_msgpack(request["mod"]), Target(request["target"]), schedule=False)
    return module.to_bytes()


# -- a task ----------------------------------------------------------------------------------------


class _Array:
    """An argument between guards, which show whether anybody wrote past its ends."""

    def __init__(self, dtype: str, shape: Sequence[int]) -> None:
        self.dtype = DataType(dtype)
        stored = to_numpy_dtype(dtype)
        size = math.prod(shape) * stored.itemsize
        self._whole = np.full(size + 2 * _GUARD_BYTES + 64, _GUARD, np.uint8)
        start = _GUARD_BYTES + -(self._whole.ctypes.data + _GUARD_BYTES) % 64
        self._ends = self._whole[:start], self._whole[start + size :]
        self.bytes = self._whole[start : start + size]
        self.array = self.bytes.view(stored).reshape(shape)
        self.tensor = wrap_unchecked(self.array, self.dtype)

    def is_intact(self) -> bool:
        return all((end == _GUARD).all() for end in self._ends)

    def values(self) -> np.ndarray:
        """As numbers that numpy can compare."""
        if self.dtype.is_bits:
            return bits_to_values(self.array, self.dtype).reshape(self.array.shape)
        return self.array.copy()


class _Scalar:
    """An argument that is a number: one of some, by the attempt."""

    def __init__(self, values: Sequence[int | float]) -> None:
        self._values = values
        self.tensor = values[0]

    def attempt(self, number: int) -> None:
        self.tensor = self._values[min(number, len(self._values) - 1)]

    def is_intact(self) -> bool:
        return True


class _Task:
    """The arguments of a kernel, and what the default schedule makes of them.

    request  "module"   the kernel with its default schedule
             "args"     of each argument, as `argument_specs` gives them
             "threads"  most threads of a parallel loop
             "exact"    whether results must be the same to the bit; else
             "bound"    how far they may differ, relative to the largest
    """

    def __init__(self, request: Mapping[str, Any]) -> None:
        self.request = request
        self.arrays: list[Any] = [
            _Scalar(values) if shape is None else _Array(dtype, shape)
            for dtype, shape, values, _ in request["args"]
        ]
        _, module = self._linked(request["module"])
        kernel = next(info for info in module.section.infos if info.name == module.entry_name)
        self.written = [i for i, p in enumerate(kernel.params) if p.written]
        self._read = [p.access != "w" for p in kernel.params]
        self.initial: dict[int, np.ndarray] = {}
        for self.attempt in range(3):
            rng = np.random.default_rng(request["seed"])
            for i, (array, spec) in enumerate(zip(self.arrays, request["args"])):
                if isinstance(array, _Scalar):
                    array.attempt(self.attempt)
                elif self._read[i]:
                    _fill(array, spec, rng, self.attempt)
                else:
                    array.bytes[...] = 0x11
            self.initial = {i: self.arrays[i].bytes.copy() for i in self.written}
            # Scalars are handed over by value.
            call, _ = self._linked(request["module"])
            try:
                call()
            except MemoryError:
                raise
            except RelaxvmError:
                # Its indices may not be for any number.
                if self.attempt == 2:
                    raise
                continue
            self.wanted = {i: self.arrays[i].values() for i in self.written}
            if all(_says_something(values) for values in self.wanted.values()):
                break
        self._clock = _Clock(call, request["threads"] == 1)

    def _linked(self, data: bytes) -> tuple[Callable[[], object], Module]:
        """A call of a kernel with the arguments, without their checks."""
        module = Module.from_bytes(data, "native")
        if module.linked.source != "native":
            raise _Refused("error", f"it is code for another machine: {module.linked.reason}")
        module.num_threads = self.request["threads"]
        function = module.entry_func
        tensors = [array.tensor for array in self.arrays]
        converted = function.convert((*tensors, *function.place()))
        raw = function.call

        def call() -> None:
            # The raw entry says by a number that it failed; the other says why.
            if raw(*converted) is not None:
                function(*tensors)

        return call, module

    def _reset(self) -> None:
        for i, before in self.initial.items():
            self.arrays[i].bytes[...] = before

    def _check(self, call: Callable[[], object]) -> None:
        """Raises _Refused unless the results of `call` are right."""
        self._reset()
        call()
        for i, array in enumerate(self.arrays):
            if not array.is_intact():
                raise _Refused("wrong", f"it writes past the ends of argument {i}")
        for i, wanted in self.wanted.items():
            reason = _difference(
                wanted, self.arrays[i].values(), self.request["exact"], self.request["bound"]
            )
            if reason:
                raise _Refused("wrong", f"argument {i}: {reason}")

    def run(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Check a candidate, then time it.

        request  "module", and of an `EvaluatorConfig` "number", "repeat", "min_repeat_ms", "cold";
                 "enough": seconds beyond which one sample will do
        """
        call, _module = self._linked(request["module"])
        self._check(call)
        with self._pinned():
            return self._clock.measure(call, request, self._before(request["cold"]))

    def compare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Two candidates by turns, "for_seconds" long: {"pairs": [[seconds, seconds], ...]}"""
        calls = [self._linked(data)[0] for data in request["modules"]]
        for call in calls:
            self._check(call)
        with self._pinned():
            return {"pairs": self._clock.compare(calls, request, self._before(request["cold"]))}

    def _before(self, cold: bool) -> Callable[[], object] | None:
        """What comes ahead of a sample: what is read and written becomes as it was; and nothing is
        left in the caches, if that is wanted.
        """
        steps: list[Callable[[], object]] = []
        if any(self._read[i] for i in self.written):
            steps.append(self._reset)
        if cold:
            other = np.zeros(min(2 * max(data_caches().values(), default=1 << 25), 1 << 28), "u1")
            steps.append(lambda: other.__iadd__(1))
        if not steps:
            return None
        return lambda: [step() for step in steps]

    @contextlib.contextmanager
    def _pinned(self) -> Iterator[None]:
        """Inside, one thread stays on the core that it is on."""
        if self.request["threads"] != 1 or not hasattr(os, "sched_setaffinity"):
            yield
            return
        before = os.sched_getaffinity(0)
        with contextlib.suppress(OSError, ValueError, IndexError):
            with open("/proc/self/stat") as file:
                core = int(file.read().rpartition(")")[2].split()[36])
            if core in before:
                os.sched_setaffinity(0, {core})
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                os.sched_setaffinity(0, before)


def _fill(array: _Array, spec: Sequence[Any], rng: np.random.Generator, attempt: int) -> None:
    """Random numbers; the second time floats that are positive, the third time only zeros."""
    _, shape, least, beyond = spec
    if attempt == 2:
        array.bytes[...] = 0
        return
    if least is not None:
        numbers: np.ndarray = rng.integers(least, beyond, shape, np.int64)
    else:
        numbers = rng.random(shape, np.float32)
        numbers = numbers * 2 - 1 if attempt == 0 else numbers * 0.9 + 0.1
    if array.dtype.is_bits:
        array.array[...] = values_to_bits(numbers.astype("f4"), array.dtype).reshape(shape)
    else:
        array.array[...] = numbers


def _says_something(values: np.ndarray) -> bool:
    return not np.issubdtype(values.dtype, np.floating) or bool(
        not values.size or np.isfinite(values).any()
    )


def _difference(want: np.ndarray, have: np.ndarray, exact: bool, bound: float) -> str:
    """In what results differ, "" if in nothing that matters.

    Where sums may be added up in another order, integers (rounded from such sums) may differ by 1
    in one of a thousand places.
    """
    if not np.issubdtype(want.dtype, np.floating):
        wrong = want != have
        if not exact and 1000 * int(wrong.sum()) <= max(1000, wrong.size):
            off = want[wrong].astype(object) - have[wrong].astype(object)
            if all(abs(int(x)) <= 1 for x in off):
                return ""
    else:
        with np.errstate(all="ignore"):
            wrong = ~((want == have) | np.isnan(want) & np.isnan(have))
            if exact:
                wrong |= (want == 0) & (np.signbit(want) != np.signbit(have))
            else:
                a, b = want.astype("f8"), have.astype("f8")
                finite = np.isfinite(a) & np.isfinite(b)
                largest = float(np.abs(a[finite]).max(initial=0.0))
                wrong &= ~(finite & (np.abs(a - b) <= bound * largest))
    if not wrong.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{int(wrong.sum())} of {wrong.size} values differ, first at {list(place)}: wanted "
        f"{want[place]!s}, got {have[place]!s}"
        + ("" if exact else f" (up to {bound:.1e} of the largest may differ)")
    )


# -- time ------------------------------------------------------------------------------------------


class _Clock:
    """Times calls between runs of a reference kernel, which shows whether the core is ours alone:
    the default schedule's, which a neighbour slows down in the same way as other schedules of the
    same kernel. How fast it is in calm is what it took at best lately.

    Nothing is taken off for what the reference lost: neighbours come and go within a millisecond.
    What is told is never less than a run without them takes.

    alone  whether calls run in this thread only
    """

    def __init__(self, reference: Callable[[], object], alone: bool) -> None:
        self._alone = alone
        self._lately: collections.deque[float] = collections.deque(maxlen=256)
        self._reference = self._sampler(reference, 1, _SHORTEST_SAMPLE)

    def _sampler(
        self,
        call: Callable[[], object],
        number: int,
        least: float,
        before: Callable[[], object] | None = None,
        cold: bool = False,
    ) -> Callable[[], tuple[float, bool]]:
        """What takes a sample, of so many calls and seconds at least: seconds a call, and whether
        nobody was in the way. It is made of short parts, which are taken again where somebody was.

        cold  a sample is one call
        """

        def timed(number: int) -> tuple[float, bool]:
            disturbed = []
            for _ in range(_ATTEMPTS):
                if before is not None:
                    before()
                took, fine = _timed(call, number, self._alone)
                if fine:
                    return took, True
                disturbed.append(took)
            return min(disturbed), False

        part = parts = 1
        took, _ = timed(part)
        while took < _SHORTEST_SAMPLE and part < 1 << 30 and not cold:
            wanted = math.ceil(1.1 * part * _SHORTEST_SAMPLE / max(took, 1e-9))
            part = min(max(part + 1, wanted), part * 64)
            took, _ = timed(part)
        if not cold:
            parts = max(math.ceil(number / part), math.ceil(least / took))

        def sample() -> tuple[float, bool]:
            ones = [timed(part) for _ in range(parts)]
            return sum(took for took, _ in ones) / (parts * part), all(fine for _, fine in ones)

        return sample

    def _look(self) -> tuple[float, bool]:
        """A sample of the reference kernel."""
        seconds, fine = self._reference()
        self._lately.append(seconds)
        return seconds, fine

    def measure(
        self,
        call: Callable[[], object],
        request: Mapping[str, Any],
        before: Callable[[], object] | None,
    ) -> dict[str, Any]:
        """{"samples": seconds a call, "noise": how much slower the reference kernel was at least,
        "calm"}.

        Samples that a neighbour disturbed are taken again for a while, half of the time that the
        request has at most; where too few are calm, the lowest of all are told.
        """
        sample = self._sampler_of(call, request, before)
        begun = time.perf_counter()
        earlier = [self._look() for _ in range(4)][-1][0]
        # Seconds, whether nobody was in the way, how slow the reference was.
        samples: list[tuple[float, bool, float]] = []
        planned = None
        while True:
            took, fine = sample()
            later, _ = self._look()
            samples.append((took, fine, max(earlier, later)))
            earlier = later
            now = time.perf_counter() - begun
            if planned is None:
                planned = now * request["repeat"]
            best = min(self._lately)
            calm = [s for s, fine, slower in samples if fine and slower <= _CALM * best]
            if len(calm) >= request["repeat"]:
                break
            slow = took * best / samples[-1][2] > request["enough"] > 0
            # Of the time after which this process is ended, checking took some, too.
            slow = slow or now > request.get("seconds", math.inf) / 2
            if slow or (len(samples) >= request["repeat"] and now > _PATIENCE * planned + 0.02):
                break
        is_calm = 2 * len(calm) >= min(request["repeat"], len(samples)) > 0
        kept = calm if is_calm else sorted(s for s, _, _ in samples)
        noise = min(slower for _, _, slower in samples) / best
        return {"samples": kept[: request["repeat"]], "noise": noise, "calm": is_calm}

    def _sampler_of(
        self,
        call: Callable[[], object],
        request: Mapping[str, Any],
        before: Callable[[], object] | None,
    ) -> Callable[[], tuple[float, bool]]:
        least = max(request["min_repeat_ms"] / 1e3, _SHORTEST_SAMPLE)
        return self._sampler(call, int(request["number"]), least, before, request["cold"])

    def compare(
        self,
        calls: Sequence[Callable[[], object]],
        request: Mapping[str, Any],
        before: Callable[[], object] | None,
    ) -> list[list[float]]:
        """Pairs of seconds a call, one candidate before the other by turns."""
        samplers = [self._sampler_of(call, request, before) for call in calls]
        until = time.perf_counter() + request["for_seconds"]
        pairs: list[list[float]] = []
        while len(pairs) < request["least"] or (
            time.perf_counter() < until and len(pairs) < request["most"]
        ):
            pair = [0.0, 0.0]
            for i in (0, 1) if len(pairs) % 2 else (1, 0):
                pair[i], _ = samplers[i]()
            pairs.append(pair)
        return pairs


def _timed(call: Callable[[], object], number: int, alone: bool) -> tuple[float, bool]:
    """Seconds of so many calls, and whether no thread of this process was put aside meanwhile. What
    the only thread waited for its core then is taken off, as far as the system tells.
    """
    runs = range(number)
    switches = _switches()
    begun = time.perf_counter()
    waited = _waited() if alone else 0.0
    first = time.perf_counter()
    for _ in runs:
        call()
    took = time.perf_counter() - first
    if switches == _switches():
        return took, True
    if alone:
        # The wait may have been outside of `took`.
        waited = _waited() - waited
        whole = time.perf_counter() - begun
        took = min(took, whole - waited + (_switches() - switches) * _SWITCH_SECONDS)
    return took, False


def _switches() -> int:
    """How often this process was put aside."""
    return 0 if resource is None else int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw)


def _waited() -> float:
    """Seconds that this thread waited for a core while it could have run; 0 where the system does
    not say.
    """
    try:
        with open("/proc/thread-self/schedstat", "rb", buffering=0) as file:
            return int(file.read().split()[1]) * 1e-9
    except (OSError, ValueError, IndexError):
        return 0.0
