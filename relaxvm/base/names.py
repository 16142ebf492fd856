"""Names that nothing else has, and names that are nearly those meant."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from .lazy import Deferred

if TYPE_CHECKING:
    import difflib
else:
    difflib = Deferred("difflib")  # for errors only


def did_you_mean(name: Any, known: Iterable[Any]) -> str:
    """``; did you mean a, b?``: the names nearest to a misspelled one, or nothing."""
    texts = dict.fromkeys(k for k in known if isinstance(k, str))
    near = difflib.get_close_matches(str(name)[:200], texts, n=3)
    return f"; did you mean {', '.join(near)}?" if near else ""


class NameSupply:
    """Names that are not in use: a hint itself, then the hint with a number.

    taken  gives the names in use; asked only when the first name is wanted
    joint  stands between hint and number; without one, "_" stands after a digit
    """

    def __init__(self, taken: Callable[[], Iterable[str]] = tuple, joint: str = "") -> None:
        self._seed: Callable[[], Iterable[str]] | None = taken
        self._joint = joint
        self._used: set[str] = set()
        self._next: dict[str, int] = {}

    def fresh(self, hint: str) -> str:
        """A name not given before."""
        self._load()
        if hint not in self._used:
            self._used.add(hint)
            return hint
        prefix = hint + (self._joint or ("_" if hint[-1:].isdigit() else ""))
        number = self._next.get(prefix, 1)
        while f"{prefix}{number}" in self._used:
            number += 1
        self._next[prefix] = number + 1
        self._used.add(f"{prefix}{number}")
        return f"{prefix}{number}"

    def reserve(self, name: str) -> None:
        """Mark `name` as used."""
        self._load()
        self._used.add(name)

    def _load(self) -> None:
        if self._seed is not None:
            self._used.update(self._seed())
            self._seed = None
