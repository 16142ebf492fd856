"""Bytes kept on disk by a key, for things that are slow to make: machine code above all.

An entry is a file named by the hash of its key, in a folder of the user's cache. It carries this
machine's signature over key and content (see `trust`): what is damaged, cut short or put there by
somebody else is not an entry, and is made anew. Writers put a whole file in place at once, so many
processes may share a folder. The folder is kept below a size: the entries not used for longest go
first. RELAXVM_CACHE=0 turns all of it off.

What is too large to be signed and read lies in a file beside its entry, which knows it by
`identity_of`; it goes when the entry goes.
"""

from __future__ import annotations

import contextlib
import os
import pathlib
import re
import stat
import time
from collections.abc import Callable
from typing import BinaryIO

from ..base import blake2b, config, digest_of
from . import trust

_PRUNE_EVERY = 64
_SUFFIX = ".entry"
_NAME_LENGTH = 40
_BESIDE = ".data"
# Entries, what lies beside them, drafts of them. Whatever else is in the folder is somebody's.
_OURS = (
    rf"(\.?[0-9a-f]{{{_NAME_LENGTH}}})"
    rf"(\{_SUFFIX}|\.[0-9a-f]{{16}}\{_BESIDE}|\{_SUFFIX}\.\d+\.[0-9a-f]{{16}})"
)
_DRAFT_SECONDS = 3600
# Binary on Windows; and opening a pipe must not wait for a writer.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


class DiskCache:
    """A folder of entries.

    name            of the folder, within the user's cache folder
    limit_bytes     about how much it may hold
    folder          where it is; None: wherever the user's cache folder is when it is used
    """

    def __init__(self, name: str, limit_bytes: int, folder: pathlib.Path | None = None) -> None:
        self.name = name
        self.limit_bytes = limit_bytes
        self._folder = folder

    @property
    def folder(self) -> pathlib.Path:
        """Where the entries are; it may not exist yet."""
        return self._folder or config.cache_dir() / self.name

    def get(self, key: bytes) -> bytes | None:
        """What was put under `key`, or None."""
        if not config.cache_enabled():
            return None
        digest = digest_of(key)
        path = self._path(digest)
        try:
            whole = self._read(path)
        except OSError:
            return None
        signature, content = whole[: trust.SIGNATURE_SIZE], whole[trust.SIGNATURE_SIZE :]
        if not trust.vouches(digest + content, signature):
            return None
        # The time says when it was used last. A read-only folder serves as well.
        with contextlib.suppress(OSError):
            os.utime(path)
        return content

    def kept(self, key: bytes, make: Callable[[], bytes]) -> bytes:
        """What is under `key`, or was made and put there now."""
        content = self.get(key)
        if content is None:
            content = make()
            self.put(key, content)
        return content

    def put(self, key: bytes, content: bytes, beside: pathlib.Path | None = None) -> bool:
        """Keep `content` under `key`; whether it was. Where it cannot be kept nothing else happens:
        it is only a cache.

        beside  a file of `new_file_beside` that belongs to it; those of older entries go
        """
        if not config.cache_enabled():
            return False
        digest = digest_of(key)
        signature = trust.sign(digest + content)
        if signature is None or len(content) > self._most:
            return False
        path = self._path(digest)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(8).hex()}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(signature + content)
            os.replace(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            return False
        with contextlib.suppress(OSError):
            for older in path.parent.glob(f"{path.stem}.*{_BESIDE}") if beside else ():
                if older.name != getattr(beside, "name", ""):
                    older.unlink()
        # Now and then, also where every process puts only one.
        if beside is not None or digest[-1] % _PRUNE_EVERY == 0:
            self.prune()
        return True

    def new_file_beside(self, key: bytes) -> pathlib.Path:
        """Where to write a new file that is to lie beside the entry of `key`. Raises OSError."""
        path = self._path(digest_of(key))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.with_name(f"{path.stem}.{os.urandom(8).hex()}{_BESIDE}")

    def prune(self) -> None:
        """Remove the entries not used for longest until the folder is below its limit, with what is
        beside them; and drafts and files that a writer left behind an hour ago.
        """
        # Name -> when it was used, its size, its files; 0 for what has no entry.
        entries: dict[str, tuple[float, int, list[str]]] = {}
        now = time.time()
        try:
            with os.scandir(self.folder) as files:
                for file in files:
                    ours = re.fullmatch(_OURS, file.name)
                    if ours is None:
                        continue
                    with contextlib.suppress(OSError):
                        status = file.stat(follow_symlinks=False)
                        used, size, paths = entries.get(ours[1], (0.0, 0, []))
                        # A clock that went back has left times to come, which are no merit.
                        time_used = min(status.st_mtime, now)
                        if ours[2] == _SUFFIX or time_used > now - _DRAFT_SECONDS:
                            used = max(used, time_used)
                        entries[ours[1]] = used, size + status.st_size, [*paths, file.path]
        except OSError:
            return
        kept = 0
        for used, size, paths in sorted(entries.values(), reverse=True):
            kept += size
            if not used or kept > self.limit_bytes:
                # The entry first: without it nobody looks for the rest.
                for path in sorted(paths, key=lambda p: not p.endswith(_SUFFIX)):
                    with contextlib.suppress(OSError):
                        os.unlink(path)

    def clear(self) -> None:
        """Remove every entry."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if re.fullmatch(_OURS, path.name):
                    with contextlib.suppress(OSError):
                        path.unlink()

    @property
    def _most(self) -> int:
        """The size of an entry, at most: none may drive out all others."""
        return self.limit_bytes // 4

    def _read(self, path: pathlib.Path) -> bytes:
        """A whole file; b"" for what is no entry by its kind or size. Raises OSError."""
        with open(os.open(path, _FLAGS), "rb") as file:
            status = os.fstat(file.fileno())
            most = self._most + trust.SIGNATURE_SIZE
            if not stat.S_ISREG(status.st_mode) or status.st_size > most:
                return b""
            return file.read(most)

    def _path(self, digest: bytes) -> pathlib.Path:
        return self.folder / f"{digest.hex()[:_NAME_LENGTH]}{_SUFFIX}"


_WHOLE_BYTES = 1 << 22
_SAMPLES, _SAMPLE_BYTES = 64, 4096
# Of clocks of file systems: most tick with the kernel, those that show no fractions may in seconds.
_FINE_NS, _COARSE_NS = 20_000_000, 2_100_000_000


def identity_of(stream: BinaryIO) -> list[object] | None:
    """What an open file is recognised by; None if it is no plain file, or if it was written just
    now: it may be written once more without a trace.

    Of a small file, its contents. Of a large one which file it is, its size, when it was changed
    (the times of contents and of the node, which nobody can set back), and samples of its contents.
    """
    status = os.fstat(stream.fileno())
    size = status.st_size
    if not stat.S_ISREG(status.st_mode):
        return None
    digest, here = blake2b(digest_size=32), stream.tell()
    if size <= _WHOLE_BYTES:
        stream.seek(0)
        digest.update(stream.read(_WHOLE_BYTES + 1))
        stream.seek(here)
        return [size, digest.digest()]
    for i in range(_SAMPLES):
        stream.seek((size - _SAMPLE_BYTES) * i // (_SAMPLES - 1))
        digest.update(stream.read(_SAMPLE_BYTES))
    stream.seek(here)
    changed = max(status.st_ctime_ns, status.st_mtime_ns)
    fine = status.st_ctime_ns % 10_000_000
    if time.time_ns() - changed < (_FINE_NS if fine else _COARSE_NS):
        return None
    times = status.st_mtime_ns, status.st_ctime_ns
    return [size, digest.digest(), status.st_dev, status.st_ino, *times]
