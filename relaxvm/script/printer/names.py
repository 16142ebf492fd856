"""Names in the text: one per variable or buffer, unique among those alive where it stands."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable
from typing import Any

_NOT_WORD = re.compile(r"\W", re.ASCII)
# What the text itself refers to; "buffer" is what the parser calls buffers it has no name for yet.
_ALWAYS_TAKEN = ("buffer", "float", "metadata", "range")


def identifier(text: str) -> str:
    """`text` as a Python identifier: other characters become underscores; no keyword."""
    if text.isascii():
        name = _NOT_WORD.sub("_", text) or "v"
    else:
        # As Python itself reads names.
        wide = unicodedata.normalize("NFKC", text)
        name = "".join(c if f"_{c}".isidentifier() else "_" for c in wide)
    if not name.isidentifier():
        name = f"v{name}"
    return f"{name}_" if keyword.iskeyword(name) or name == "__debug__" else name


class Names:
    """Scopes of names: `define` picks the hint, or it and a number; `pop` frees a scope's names.

    Nodes are known by identity; the caller keeps them alive. Constant time per name, however often
    a hint is used.
    """

    def __init__(self, reserved: Iterable[str] = ()) -> None:
        self._taken: set[str] = {*_ALWAYS_TAKEN, *reserved}
        self._text: dict[int, str] = {}
        self._alias: dict[int, str] = {}
        self._next: dict[str, int] = {}
        self._scopes: list[list[tuple[int, str | None, str, int]]] = [[]]

    def push(self) -> None:
        """Open a scope."""
        self._scopes.append([])

    def pop(self) -> None:
        """Close the innermost scope; its names may be used again."""
        for key, name, base, number in reversed(self._scopes.pop()):
            if name is None:
                self._alias.pop(key, None)
            else:
                self._text.pop(key, None)
                self._taken.discard(name)
                if base:
                    self._next[base] = number

    def get(self, node: Any) -> str | None:
        """The text that stands for `node`, or None if it has none here."""
        key = id(node)
        return self._text.get(key) or self._alias.get(key)

    def define(self, node: Any, hint: str, outermost: bool = False) -> str:
        """A new name for `node` in the innermost scope (or the outermost one)."""
        base = identifier(hint)
        name, before = base, 0
        if name in self._taken:
            before = self._next.get(base, 0)
            number = before
            while name in self._taken:
                number += 1
                name = f"{base}_{number}"
            self._next[base] = number
        else:
            base = ""
        self._taken.add(name)
        self._text[id(node)] = name
        self._scopes[0 if outermost else -1].append((id(node), name, base, before))
        return name

    def alias(self, node: Any, text: str) -> None:
        """Let `text` (such as ``A.data``) stand for `node` until the innermost scope closes."""
        if self.get(node) is None:
            self._alias[id(node)] = text
            self._scopes[-1].append((id(node), None, "", 0))

    def reserve(self, name: str) -> None:
        """Keep `name` from being given to a variable until the innermost scope closes."""
        if name not in self._taken:
            self._taken.add(name)
            self._scopes[-1].append((0, name, "", 0))
