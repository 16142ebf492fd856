"""The key by which this machine knows the files it made itself.

Machine code in a file runs with all the rights of the process, so it is used unasked only if the
file carries this key's signature. The key is 32 random bytes in the user's cache folder, readable
by the user alone. Where it cannot be kept so, there is no key, nothing is vouched for, and files
are rebuilt from their portable form instead.
"""

from __future__ import annotations

import os
import pathlib
import stat
from _operator import _compare_digest as compare_digest

from ..base import blake2b, config
from .locks import lock

SIGNATURE_SIZE = 32
_KEY_SIZE = 32
_KEY_NAME = "trust.key"
_lock = lock()
_keys: dict[pathlib.Path, bytes] = {}


def sign(data: bytes) -> bytes | None:
    """The signature of `data` by this machine's key (32 bytes), or None if there is no key: keyed
    BLAKE2b (RFC 7693, 2.9), which needs no HMAC around it.
    """
    key = _key(create=True)
    return None if key is None else _signature(key, data)


def vouches(data: bytes, signature: object) -> bool:
    """Whether `signature` was made by `sign(data)` on this machine, for this user."""
    if type(signature) is not bytes or len(signature) != SIGNATURE_SIZE:
        return False
    key = _key(create=False)
    return key is not None and compare_digest(_signature(key, data), signature)


def _signature(key: bytes, data: bytes) -> bytes:
    return blake2b(data, key=key, digest_size=SIGNATURE_SIZE).digest()


def _key(create: bool) -> bytes | None:
    path = config.cache_dir() / _KEY_NAME
    with _lock:
        key = _keys.get(path)
        if key is not None:
            return key
        try:
            key = _read(path)
            if key is None and create and not os.path.lexists(path):
                _create(path)
                key = _read(path)
        except OSError:
            # No folder, no permission, no disk: the meaning is "no key", which is safe.
            return None
        if key is not None:
            _keys[path] = key
        return key


def _read(path: pathlib.Path) -> bytes | None:
    """The key in `path`, or None if there is none or others could have read or written it."""
    try:
        handle = os.open(
            path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        )
    except FileNotFoundError:
        return None
    with os.fdopen(handle, "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_size != _KEY_SIZE:
            return None
        if hasattr(os, "getuid") and (status.st_uid != os.getuid() or status.st_mode & 0o077):
            return None
        if _others_may_write(path.parent):
            return None
        key = file.read(_KEY_SIZE + 1)
    return key if len(key) == _KEY_SIZE else None


def _others_may_write(folder: pathlib.Path) -> bool:
    """Whether another user could put a key of theirs into the folder."""
    if not hasattr(os, "getuid"):
        return False
    status = os.stat(folder)
    return status.st_uid not in (os.getuid(), 0) or bool(status.st_mode & 0o022)


def _create(path: pathlib.Path) -> None:
    """Write a new key so that of several processes exactly one wins, and nobody sees half a key."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    draft = path.with_name(f".{_KEY_NAME}.{os.getpid()}.{os.urandom(8).hex()}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(os.urandom(_KEY_SIZE))
            file.flush()
            os.fsync(file.fileno())
        try:
            os.link(draft, path)
        except FileExistsError:
            pass
        except OSError:
            # No hard links here. `open` with O_EXCL is the next best: a reader may see a short file
            # and say "no key".
            _copy_exclusively(draft, path)
    finally:
        os.unlink(draft)


def _copy_exclusively(draft: pathlib.Path, path: pathlib.Path) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(handle, "wb") as file:
        file.write(draft.read_bytes())
