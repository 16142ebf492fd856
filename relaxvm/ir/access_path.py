"""Where a value stands inside another: ``AccessPath.root().attr("body").array_item(0)``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_SHOWN = {
    "attr": ".{}",
    "item": "[{}]",
    "key": "[{!r}]",
    "no attr": ".{}<missing>",
    "no item": "[{}]<missing>",
    "no key": "[{!r}]<missing>",
}


class AccessPath:
    """A chain of steps from a root: fields, elements of sequences, values of maps. Equal if the
    steps are.
    """

    __slots__ = ("kind", "parent", "step")

    def __init__(self, parent: AccessPath | None = None, kind: str = "", step: Any = None) -> None:
        self.parent, self.kind, self.step = parent, kind, step

    @staticmethod
    def root() -> AccessPath:
        """Where nothing has been stepped into yet."""
        return AccessPath()

    def attr(self, attr_key: str) -> AccessPath:
        """The field of that name."""
        return AccessPath(self, "attr", attr_key)

    def array_item(self, index: int) -> AccessPath:
        """That element of a sequence."""
        return AccessPath(self, "item", index)

    def map_item(self, key: Any) -> AccessPath:
        """The value under that key."""
        return AccessPath(self, "key", key)

    def attr_missing(self, attr_key: str) -> AccessPath:
        """A field that is not there."""
        return AccessPath(self, "no attr", attr_key)

    def array_item_missing(self, index: int) -> AccessPath:
        """An element past the end."""
        return AccessPath(self, "no item", index)

    def map_item_missing(self, key: Any) -> AccessPath:
        """A key that is not there."""
        return AccessPath(self, "no key", key)

    def to_steps(self) -> list[AccessPath]:
        """This path and those that lead to it, the first step first; the root is none of them."""
        steps: list[AccessPath] = []
        path: AccessPath = self
        while path.parent is not None:
            steps.append(path)
            path = path.parent
        return steps[::-1]

    def is_prefix_of(self, other: AccessPath) -> bool:
        """Whether `other` is this path or goes on from it."""
        mine, theirs = _plain(self), _plain(other)
        return theirs[: len(mine)] == mine

    def path_equal(self, other: AccessPath) -> bool:
        """Whether both have the same steps."""
        return self == other

    def objects(self, root: Any) -> list[Any] | None:
        """What stands at each step from `root` on, both ends included; None if there is no such
        place.
        """
        objects = [root]
        for each in self.to_steps():
            value = objects[-1]
            try:
                value = (
                    getattr(value, each.step) if each.kind == "attr" else _item(value, each.step)
                )
            except (AttributeError, LookupError, StopIteration, TypeError, ValueError):
                return None
            objects.append(value)
        return objects

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AccessPath) and _plain(self) == _plain(other)

    def __hash__(self) -> int:
        return hash(tuple(kind for kind, _ in _plain(self)))

    def __repr__(self) -> str:
        return "<root>" + "".join(_SHOWN[s.kind].format(s.step) for s in self.to_steps())


def _item(values: Any, key: Any) -> Any:
    if not isinstance(key, str) or not isinstance(values, Mapping) or key in values:
        return values[key]
    # Functions and variables as keys go by their names.
    return next(v for k, v in values.items() if getattr(k, "name_hint", None) == key)


def _plain(path: AccessPath) -> list[tuple[str, Any]]:
    return [(each.kind, each.step) for each in path.to_steps()]
