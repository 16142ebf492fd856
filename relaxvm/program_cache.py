"""Programs built from models, kept on disk: a model that was built is loaded without the compiler.

An entry of the cache holds the program as a file would, but for its larger tensors. Those that the
program shares with files beside the model are mapped from there again; the others, which passes
made or packed, lie in a file beside the entry and are mapped, too. An entry counts only where all
of these files are what they were (`disk_cache.identity_of`), and where compiler, machine, options
and pass context are those that it was built with. Whatever else there is leads to a build.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import hashlib
import os
import pathlib
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import msgpack
import numpy as np

from . import __version__
from .base import DataType, Decision, RelaxvmError, Report, config
from .runtime import (
    DiskCache,
    Executable,
    NDArray,
    fileformat,
    identity_of,
    native,
    numpy_storage_dtype,
    usable_cores,
    wrap_unchecked,
)
from .runtime.constants import ALIGNMENT

_APART_BYTES = 1 << 16
_LIBRARIES = ("numpy", "onnx", "llvmlite", "msgpack", "ml_dtypes")
_PLAIN = (type(None), bool, int, float, str)

# What was mapped, and how it was recognised then: (path, identity, its bytes).
Mapped = tuple[str, object, np.ndarray]
Build = Callable[[], tuple[Executable, Iterable[Mapped], list[str]]]


def cached(
    path: str | os.PathLike[str],
    options: Any,
    settings: str | None,
    build: Build,
) -> tuple[Executable, list[str]]:
    """The program of the model at `path`, out of the cache, or of `build`, and kept; and the names
    of the model's outputs.

    options   what the build is given, in a plain form: if it is not one, nothing is cached
    settings  what it follows besides, None: nothing is cached
    build     gives the program, the files that were mapped for it, and the names
    """
    limit = config.program_cache_bytes()
    key = None
    if limit and settings is not None and config.cache_enabled() and _is_plain(options):
        key = _key(os.path.abspath(path), (options, settings))
    if key is None:
        program, _, outputs = build()
        return program, outputs
    cache = DiskCache("programs", limit, config.cache_dir() / "programs")
    settle(key)
    kept = _found(cache, key, build)
    if kept is not None:
        return kept
    before = _node(path)
    program, mapped, outputs = build()
    # What was written to while it was read must not be taken for what it is now, nor what took the
    # place of a file that is there again.
    if _key(os.path.abspath(path), (options, settings)) == key and _node(path) == before:
        _keep_meanwhile(cache, key, program, mapped, outputs)
    return program, outputs


def _node(path: str | os.PathLike[str]) -> tuple[int, ...]:
    """Which file is at `path`, and when it was changed; () if there is none."""
    try:
        status = os.stat(path)
    except OSError:
        return ()
    return status.st_dev, status.st_ino, status.st_mtime_ns, status.st_ctime_ns


_keeping: dict[bytes, threading.Thread] = {}


def settle(key: bytes | None = None) -> None:
    """Wait until the program with this key (None: every program) that this process is putting into
    the cache is there.
    """
    for each in list(_keeping) if key is None else [key]:
        thread = _keeping.pop(each, None)
        if thread is not None:
            thread.join()


def _keep_meanwhile(cache: DiskCache, key: bytes, program: Executable, *facts: Any) -> None:
    """`_keep` in a thread, for which Python waits when it ends: writing the weights of BERT-base
    takes a quarter of the time to its first result.
    """
    if program.needs() or not program.trusted:
        # Another process could not run it as well.
        return
    for value in program.constants:
        if type(value) is NDArray:
            # As in a program out of the cache; what is being written, nobody changes.
            value.array.flags.writeable = False

    def keep() -> None:
        with contextlib.suppress(MemoryError):
            _keep(cache, key, program, *facts)

    def keep_meanwhile() -> None:
        if sys.platform == "linux":
            # There priorities are of threads: those that run the program come first.
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 19)
        keep()

    thread = threading.Thread(target=keep_meanwhile, name="relaxvm program cache")
    try:
        thread.start()
    except RuntimeError:
        # There can be no more threads.
        keep()
    else:
        _keeping[key] = thread


def _is_plain(value: Any) -> bool:
    if type(value) is dict:
        return all(type(k) is str and _is_plain(v) for k, v in value.items())
    return type(value) in _PLAIN or (type(value) in (list, tuple) and all(map(_is_plain, value)))


def _key(path: str, options: Any) -> bytes | None:
    """What a program of the model at `path` is found by; None if that cannot be told for sure."""
    compiler = _compiler()
    try:
        with open(path, "rb") as stream:
            model = identity_of(stream)
    except OSError:
        return None
    if compiler is None or model is None:
        return None
    here = native.host()
    machine = here.triple, here.cpu, here.features_text, usable_cores(), sys.version
    return repr(("program", __version__, compiler, machine, path, model, options)).encode()


@functools.lru_cache(maxsize=1)
def _compiler() -> str | None:
    """What stands for the sources of relaxvm and of what it compiles with: names, sizes, places and
    times of files. None if one changed since this process began, which runs what was there before.
    """
    files: list[tuple[str, int, int, int]] = []
    latest = 0.0
    try:
        for folder, folders, names in os.walk(os.path.dirname(__file__)):
            folders[:] = [name for name in folders if name != "__pycache__"]
            for name in names:
                if name.endswith((".py", ".pyc")):
                    status = os.stat(os.path.join(folder, name))
                    latest = max(latest, status.st_mtime)
                    files.append(_stamp(os.path.join(folder, name), status))
        for library in _LIBRARIES:
            places = (os.path.join(folder, library, "__init__.py") for folder in sys.path)
            place = next(filter(os.path.isfile, places), None)
            if place is not None:
                files.append(_stamp(place, os.stat(place)))
    except OSError:
        return None
    if config.LOADED_AT <= latest <= time.time():
        return None
    return hashlib.sha256(repr(sorted(files)).encode()).hexdigest()


def _stamp(path: str, status: os.stat_result) -> tuple[str, int, int, int]:
    return path, status.st_size, status.st_mtime_ns, status.st_ctime_ns


# -- entries ---------------------------------------------------------------------------------------


def _keep(
    cache: DiskCache,
    key: bytes,
    program: Executable,
    mapped: Iterable[Mapped],
    outputs: Sequence[str],
) -> None:
    """Put a program into the cache."""
    files = [[path, identity] for path, identity, _ in mapped]
    places = [(_address(data), data.nbytes) for _, _, data in mapped]
    constants: list[Any] = list(program.constants)
    references: list[list[Any]] = []
    own: list[np.ndarray] = []
    end = 0
    for number, value in enumerate(constants):
        if type(value) is not NDArray or value.dtype.is_string or value.nbytes < _APART_BYTES:
            continue
        array = np.ascontiguousarray(value.array)
        if not array.dtype.isnative or sys.byteorder != "little":
            continue
        place = _place(array, places)
        if place is None:
            place = [-1, end]
            own.append(array)
            end += array.nbytes + -array.nbytes % ALIGNMENT
        references.append([number, str.__str__(value.dtype), list(value.shape), *place])
        constants[number] = 0
    if end > cache.limit_bytes // 2 or any(identity is None for _, identity in files):
        return
    beside = None
    try:
        if own:
            beside = cache.new_file_beside(key)
            files.append([beside.name, _written(beside, own)])
        left = Executable(program.functions, constants, program.code, program.kernels,
                          program.provenance, True, program.debug)  # fmt: skip
        facts = files, references, list(program.sources), outputs
        head = msgpack.packb(facts, use_bin_type=True)
        content = b"".join([len(head).to_bytes(8, "little"), head, *fileformat.pieces(left, False)])
        kept = cache.put(key, content, beside)
    except OSError:
        kept = False
    if beside is not None and not kept:
        beside.unlink(missing_ok=True)


def _address(array: np.ndarray) -> int:
    address: int = array.ctypes.data
    return address


def _place(array: np.ndarray, places: Iterable[tuple[int, int]]) -> list[int] | None:
    """(number of the mapped file, offset in it) of memory that is mapped, else None."""
    begin = _address(array)
    for number, (start, size) in enumerate(places):
        if start <= begin and begin + array.nbytes <= start + size:
            return [number, begin - start]
    return None


def _written(path: pathlib.Path, arrays: Iterable[np.ndarray]) -> list[object]:
    """Write arrays, each at a multiple of 64 bytes; what the file is recognised by. Raises OSError
    if that cannot be told.
    """
    try:
        with open(
            os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _BINARY, 0o600), "r+b"
        ) as file:
            for array in arrays:
                file.write(array.reshape(-1).view(np.uint8).data)
                file.write(bytes(-array.nbytes % ALIGNMENT))
            file.flush()
            for _ in range(3):
                # Whoever changes it from now on leaves another time.
                time.sleep(0.021)
                identity = identity_of(file)
                if identity is not None:
                    return identity
    except OSError:
        path.unlink(missing_ok=True)
        raise
    path.unlink(missing_ok=True)
    raise OSError("the clock of the file system is too coarse")


_BINARY = getattr(os, "O_BINARY", 0)


def _found(cache: DiskCache, key: bytes, build: Build) -> tuple[Executable, list[str]] | None:
    """The program under `key` and the names of outputs, if all that it consists of is there."""
    content = cache.get(key)
    if content is None:
        return None
    size = int.from_bytes(content[:8], "little")
    files, references, sources, outputs = msgpack.unpackb(content[8 : 8 + size])
    mapped = []
    for name, identity in files:
        data = _mapped(cache.folder / name, identity)
        if data is None:
            return None
        mapped.append(data)
    elsewhere = {}
    for number, text, shape, file, offset in references:
        dtype = DataType(text)
        storage = numpy_storage_dtype(dtype)
        array = np.ndarray(tuple(shape), storage, mapped[file], offset)
        elsewhere[number] = wrap_unchecked(array, dtype)
    try:
        document = memoryview(content)[8 + size :]
        program = fileformat.read(document, "native", False, Executable, elsewhere)
    except RelaxvmError:
        return None
    again = _Again(build)
    program.report, program.sources = _Report(again), _Sources(sources, again)
    return program, outputs


def _mapped(path: pathlib.Path, identity: object) -> np.ndarray | None:
    """The bytes of a file, mapped, if it is the one that was meant."""
    try:
        with open(path, "rb") as stream:
            if identity_of(stream) != identity:
                return None
            return np.memmap(stream, np.uint8, "r").view(np.ndarray)
    except (OSError, ValueError):
        return None


# -- what only a build knows -----------------------------------------------------------------------


class _Again:
    """The program built again, when somebody asks for what entries of the cache do not hold."""

    def __init__(self, build: Build) -> None:
        context = contextvars.copy_context()
        self._build = lambda: context.run(build)[0]

    @functools.cached_property
    def program(self) -> Executable:
        return self._build()


class _Report(Report):
    def __init__(self, again: _Again) -> None:
        self._again = again

    def __getattr__(self, name: str) -> Any:
        # Of what a report has, this lacks the decisions, until they are asked for.
        if name != "_decisions":
            raise AttributeError(name)
        self._decisions = list[Decision](self._again.program.explain())
        return self._decisions


class _Sources(Mapping[str, str]):
    def __init__(self, names: Iterable[str], again: _Again) -> None:
        self._names, self._again = tuple(names), again

    def __getitem__(self, name: str) -> str:
        if name not in self._names:
            raise KeyError(name)
        return self._again.program.sources[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)
