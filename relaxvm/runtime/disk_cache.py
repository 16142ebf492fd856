"""Bytes kept on disk by a key, for things that are slow to make: machine code above all.

An entry is a file named by the hash of its key, in a folder of the user's cache. It carries this
machine's signature over key and content (see `trust`): what is damaged, cut short or put there by
somebody else is not an entry, and is made anew. Writers put a whole file in place at once, so many
processes may share a folder. The folder is kept below a size: the entries not used for longest go
first. RELAXVM_CACHE=0 turns all of it off.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import pathlib
import re
import secrets
import stat
import time

from ..base import config
from . import trust

_PRUNE_EVERY = 64
_SUFFIX = ".entry"
_NAME_LENGTH = 40
# Entries, and drafts of them. Whatever else is in the folder is somebody's.
_OURS = re.compile(rf"[0-9a-f]{{{_NAME_LENGTH}}}\{_SUFFIX}")
_DRAFT = re.compile(rf"\.[0-9a-f]{{{_NAME_LENGTH}}}\{_SUFFIX}\.\d+\.[0-9a-f]{{16}}")
_DRAFT_SECONDS = 3600
# Binary on Windows; and opening a pipe must not wait for a writer.
_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0)


class DiskCache:
    """A folder of entries.

    name            of the folder, within the user's cache folder
    limit_bytes     about how much it may hold
    """

    def __init__(self, name: str, limit_bytes: int) -> None:
        self.name = name
        self.limit_bytes = limit_bytes

    @property
    def folder(self) -> pathlib.Path:
        """Where the entries are; it may not exist yet."""
        return config.cache_dir() / self.name

    def get(self, key: bytes) -> bytes | None:
        """What was put under `key`, or None."""
        if not config.cache_enabled():
            return None
        digest = hashlib.sha256(key).digest()
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

    def put(self, key: bytes, content: bytes) -> None:
        """Keep `content` under `key`. Does nothing where it cannot be kept: it is only a cache."""
        if not config.cache_enabled():
            return
        digest = hashlib.sha256(key).digest()
        signature = trust.sign(digest + content)
        if signature is None or len(content) > self._most:
            return
        path = self._path(digest)
        draft = path.with_name(f".{path.name}.{os.getpid()}.{secrets.token_hex(8)}")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            draft.write_bytes(signature + content)
            os.replace(draft, path)
        except OSError:
            with contextlib.suppress(OSError):
                draft.unlink(missing_ok=True)
            return
        # Now and then, also where every process puts only one.
        if digest[-1] % _PRUNE_EVERY == 0:
            self.prune()

    def prune(self) -> None:
        """Remove the entries not used for longest until the folder is below its limit; and drafts
        that a writer left behind an hour ago.
        """
        files: list[tuple[float, int, str]] = []
        now = time.time()
        try:
            with os.scandir(self.folder) as entries:
                for entry in entries:
                    if not (_OURS.fullmatch(entry.name) or _DRAFT.fullmatch(entry.name)):
                        continue
                    with contextlib.suppress(OSError):
                        status = entry.stat(follow_symlinks=False)
                        # A clock that went back has left times to come, which are no merit.
                        used = min(status.st_mtime, now)
                        files.append((used, status.st_size, entry.path))
        except OSError:
            return
        kept = 0
        for used, size, path in sorted(files, reverse=True):
            abandoned = not path.endswith(_SUFFIX) and used < now - _DRAFT_SECONDS
            kept += size
            if abandoned or kept > self.limit_bytes:
                with contextlib.suppress(OSError):
                    os.unlink(path)

    def clear(self) -> None:
        """Remove every entry."""
        with contextlib.suppress(OSError):
            for path in self.folder.iterdir():
                if _OURS.fullmatch(path.name) or _DRAFT.fullmatch(path.name):
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
