"""A net under LLVM: its passes run in a process of their own.

LLVM has faults that end the process, and inputs for which it takes for ever. So a worker, which is
started when something has to be compiled and stays for what comes next, gets the text and returns
the code. If it dies or takes too long, another one compiles the text with fewer passes, and a
warning says so. The start takes some 50 ms, while this process prepares the text.

Where no process can be started (a system that forbids it, a browser, Python inside of another
program), LLVM runs in this process, without a net.
"""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...base import CodegenError, config
from ...runtime import usable_cores
from ...runtime.locks import lock
from .passes import Recipe, receive, send, work

_PROGRAM = pathlib.Path(__file__).with_name("passes.py")
_START_SECONDS = 60.0
# The last recipe is nearly free of passes: what it needs for large functions, it gets.
_LAST_FACTOR = 3
_MOST_NOISE = 4000
_OWN_GROUP: dict[str, Any] = (
    {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}
)


class WorkerLost(Exception):
    """A worker died, or was ended because it took too long.

    late   whether it took too long
    noise  what it wrote to stderr
    """

    def __init__(self, reason: str, noise: str, late: bool) -> None:
        super().__init__(reason)
        self.noise = noise
        self.late = late


def has_python() -> bool:
    """Whether `sys.executable` is Python: within another program it may be that program."""
    name = os.path.basename(sys.executable or "").lower()
    return name.startswith("py") and not getattr(sys, "frozen", False)


def paths() -> list[str]:
    """Where a worker finds modules: where this process does, but not in the folder it is in."""
    root = str(pathlib.Path(__file__).parents[3])
    return [root, *(p for p in sys.path if isinstance(p, str) and p not in ("", root))]


class Worker:
    """A process that answers requests, one after the other. Only one thread may ask at a time.

    Raises OSError if it cannot be started.
    """

    def __init__(self, *options: str) -> None:
        self._noise = _memory_file()
        self._noise_read = 0
        self.owner = os.getpid()
        self.asked = 0
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-I", *options, *paths()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL if self._noise is None else self._noise,
                # A buffer has a lock, which a child of `fork` may find taken.
                bufsize=0,
                # Ctrl-C in a terminal is for whoever asks.
                **_OWN_GROUP,
            )
        except BaseException:
            if self._noise is not None:
                self._noise.close()
            raise

    def ask(self, request: bytes | None, answers: int = 1, seconds: float = 0) -> list[bytes]:
        """Send `request` (None: nothing) and receive so many messages.

        seconds  after which the worker is ended, if not 0

        Raises WorkerLost.
        """
        process, late = self._process, threading.Event()

        def end() -> None:
            late.set()
            process.kill()

        watch = threading.Timer(seconds, end) if seconds else None
        try:
            if watch is not None:
                watch.daemon = True
                # Without it the worker ends by itself, only later.
                with contextlib.suppress(RuntimeError):
                    watch.start()
            assert process.stdin is not None
            assert process.stdout is not None
            if request is not None:
                send(process.stdin, request)
            self.asked += 1
            return [receive(process.stdout) for _ in range(answers)]
        except (OSError, EOFError, ValueError):
            process.kill()
            code, noise = process.wait(), self.noise()
            self.end()
            reason = f"took more than {seconds:g} s" if late.is_set() else _reason(code)
            raise WorkerLost(reason, noise, late.is_set()) from None
        except BaseException:
            # An interrupt: the answer to this request must not become that to the next one.
            self.end()
            raise
        finally:
            if watch is not None:
                watch.cancel()

    def noise(self) -> str:
        """What it has written to stderr since this was called last."""
        if self._noise is None:
            return ""
        data = os.pread(self._noise.fileno(), 1 << 20, self._noise_read)
        self._noise_read += len(data)
        return data.decode(errors="replace").strip()

    def is_alive(self) -> bool:
        """Whether it can be asked: it is ours, and runs."""
        return self.owner == os.getpid() and self._process.poll() is None

    def kill(self) -> None:
        """End it, whoever may be waiting for an answer. It holds nothing that would have to be put
        away.
        """
        self._process.kill()

    def end(self) -> None:
        """Kill it, and close the pipes to it."""
        if self.owner == os.getpid():
            self._process.kill()
            self._process.wait()
        for file in (self._process.stdin, self._process.stdout, self._noise):
            # What could not be written is not missed.
            with contextlib.suppress(OSError):
                if file is not None:
                    file.close()
        if self.owner != os.getpid():
            # A child of `fork` has no such child.
            self._process.returncode = 0


def _memory_file() -> Any:
    """A file that needs no folder, or a temporary one; None where there is neither."""
    if not hasattr(os, "pread"):
        return None
    try:
        if hasattr(os, "memfd_create"):
            return open(os.memfd_create("relaxvm"), "r+b", buffering=0)
        return tempfile.TemporaryFile(buffering=0)
    except OSError:
        return None


def _reason(returncode: int | None) -> str:
    if returncode is not None and returncode < 0:
        return f"ended its process with signal {-returncode}"
    return "ended its process"


# -- LLVM ------------------------------------------------------------------------------------------

# One thread asks at a time.
_lock = lock()
_worker: Worker | None = None
_here = _alone = False
# Whether a worker that was only expected to be needed was not: then so is the next.
_in_vain = False


def has_worker() -> bool:
    """Whether LLVM runs in a process of its own, as far as is known."""
    return _worker is not None and not _here


def in_this_process() -> None:
    """Let LLVM run in this process from now on: it is one of ours, that nobody would miss."""
    global _here, _alone
    _here = _alone = True


@contextlib.contextmanager
def llvm_at_hand() -> Iterator[None]:
    """Around a build. Where its kernels are surely to be compiled, or a core has nothing to do,
    have a worker started before the passes find out whether it is needed; end one that was not.
    """
    global _in_vain
    if _worker is None and not _in_vain and (not config.cache_enabled() or idle_core()):
        prepare()
    try:
        yield
    finally:
        if _worker is not None and not _worker.asked and _lock.acquire(blocking=False):
            try:
                if _worker is not None and not _worker.asked:
                    _end()
                    _in_vain = True
            finally:
                _lock.release()


def idle_core() -> bool:
    """Whether the machine has a core with nothing to do but for this process, as far as it says:
    now, or on the average of a minute, which is slow to forget.
    """
    free = usable_cores() - 1
    with contextlib.suppress(OSError, ValueError, IndexError):
        running = int(pathlib.Path("/proc/loadavg").read_text().split()[3].partition("/")[0])
        # Of other threads of this process, such as read a model's weights.
        tasks = pathlib.Path("/proc/self/task").glob("*/stat") if running > free else ()
        states = [task.read_text().rpartition(")")[2].split()[0] for task in tasks]
        if running - max(0, states.count("R") - 1) <= free:
            return True
    with contextlib.suppress(AttributeError, OSError):
        return os.getloadavg()[0] <= free
    return False


def prepare() -> None:
    """Have a worker started, if there can be one, so that it is ready when it is needed."""
    if _lock.acquire(blocking=False):
        try:
            _ready_worker(wait=False)
        finally:
            _lock.release()


def _ready_worker(wait: bool = True) -> Worker | None:
    """The worker, or None if there can be none. The lock is held."""
    global _worker, _here
    if _here or not has_python():
        return None
    if _worker is not None and _worker.is_alive():
        fresh = False
    else:
        _end()
        try:
            _worker, fresh = Worker("-S", str(_PROGRAM)), True
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    if not wait or (_worker.asked and not fresh):
        return _worker
    try:
        _worker.ask(None, seconds=_START_SECONDS)
    except WorkerLost:
        # No such Python, no llvmlite for it: that will not change.
        _worker, _here = None, True
    return _worker


@atexit.register
def _end() -> None:
    global _worker
    former, _worker = _worker, None
    if former is not None:
        former.end()


if hasattr(os, "register_at_fork"):
    # Else the worker would live as long as the child.
    os.register_at_fork(after_in_child=_end)


def llvm_answer(request: dict[str, Any], here: Callable[[], Any] | None) -> tuple[Any, ...]:
    """(object, LLVM text, assembly, what was written to stderr), as `passes.work` makes them.

    here  gives the binding of LLVM for this process; None: it must not be done here

    Raises RuntimeError for what LLVM refuses, WorkerLost, and OSError if there can be no worker
    and `here` is None.
    """
    global _worker
    with _lock:
        while (worker := _ready_worker()) is not None:
            first = worker.asked == 1
            worker.noise()
            try:
                refusal, *parts = worker.ask(pickle.dumps(request), 4, request["seconds"])
            except WorkerLost as lost:
                if lost.late or first:
                    raise
                # It had waited, and may have been ended for another reason than this text.
                continue
            if refusal:
                raise RuntimeError(refusal.decode(errors="replace"))
            return (*parts, worker.noise())
        if here is None:
            raise OSError("no process can be started")
        return (*work(here(), request, _alone), "")


def compile_safely(
    request: dict[str, Any],
    recipes: Sequence[Recipe],
    name: str,
    seconds: float,
    here: Callable[[], Any],
) -> tuple[bytes, bytes, bytes]:
    """What `passes.work` makes of a request by the first of `recipes` that LLVM survives.

    name     of the kernel, for the warning        seconds  for each recipe but the last; 0: no end

    Raises CodegenError if it survives none, or refuses the text.
    """
    lost: list[tuple[Recipe, WorkerLost]] = []
    trial, last = 0, len(recipes) - 1
    while True:
        recipe = recipes[trial]
        patience = seconds * (_LAST_FACTOR if trial == last else 1)
        try:
            *parts, _ = llvm_answer({**request, "recipe": tuple(recipe), "seconds": patience}, here)
        except RuntimeError as error:
            raise CodegenError(f"LLVM refuses the generated module: {error}") from None
        except WorkerLost as reason:
            lost.append((recipe, reason))
            if trial == last:
                break
            # What takes too long will do so with few passes less.
            trial = min(trial + (2 if reason.late else 1), last)
            continue
        if lost:
            warnings.warn(
                f"{_story(name, request, lost)}; it was compiled with {recipe} instead and may "
                "run more slowly",
                RuntimeWarning,
                stacklevel=2,
            )
        return tuple(parts)
    raise CodegenError(
        f"{_story(name, request, lost)}; there is nothing safer to try. Split the function"
        + (
            ", or allow more time: PassContext(config={'target.llvm_seconds': ...})"
            if lost[-1][1].late
            else ""
        )
    )


def _story(name: str, request: dict[str, Any], lost: list[tuple[Recipe, WorkerLost]]) -> str:
    tried = ", ".join(f"with {recipe} it {reason}" for recipe, reason in lost)
    return f"{name}: LLVM failed: {tried}. To report it, attach {_repro(name, request, lost)}"


def _repro(name: str, request: dict[str, Any], lost: list[tuple[Recipe, WorkerLost]]) -> str:
    """A file with all that is needed to see it again; or why there is none."""
    noise = lost[0][1].noise[-_MOST_NOISE:]
    machine = f"{request['triple']} {request['cpu']} {request['features']}"
    about = [f"kernel {name}", f"machine {machine}", *(f"{r}: {why}" for r, why in lost)]
    head = "".join(f"; {line}\n" for line in (*about, *noise.splitlines()))
    text = f"{head}\n{request['text']}\n"
    stem = "".join(c if c.isalnum() else "_" for c in name)[:60]
    file = f"{stem}-{hashlib.sha256(request['text'].encode()).hexdigest()[:12]}.ll"
    for folder in (config.cache_dir() / "failures", pathlib.Path(tempfile.gettempdir())):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            # Not through a link that somebody may have put there.
            path = folder / file
            path.unlink(missing_ok=True)
            with open(path, "x", encoding="utf-8") as out:
                out.write(text)
        except OSError:
            continue
        return str(path)
    return "its script (no folder for the LLVM text can be written)"
