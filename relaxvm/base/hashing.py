"""BLAKE2b, as `hashlib` has it. To import that loads OpenSSL, which takes 2.5 ms of the 30 in which
a program is loaded.

Some Pythons have no BLAKE2b that takes keys (those of systems in FIPS mode): there it is SHA-512,
with a key HMAC of it, cut to size. Nobody else reads what is signed or found by these hashes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hashlib import blake2b as blake2b
else:
    try:
        from _blake2 import blake2b

        blake2b(key=b"a", digest_size=32)
    except (ImportError, ValueError):
        import hashlib
        import hmac

        class blake2b:
            def __init__(self, data=b"", *, digest_size=64, key=b""):
                self._hash = hmac.new(key, data, "sha512") if key else hashlib.sha512(data)
                self._size = digest_size

            def update(self, data):
                self._hash.update(data)

            def digest(self):
                return self._hash.digest()[: self._size]


def digest_of(data: bytes, size_bytes: int = 32) -> bytes:
    """The BLAKE2b hash (RFC 7693) of `data`."""
    return blake2b(data, digest_size=size_bytes).digest()
