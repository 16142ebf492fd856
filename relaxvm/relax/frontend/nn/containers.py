"""What lists and dictionaries of modules and of parameters share; `core` makes them of each."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ....base import FrontendError


class Items:
    """Items of one kind."""

    _kind: type = object
    _kind_name = "an item"

    def _checked(self, item: Any) -> Any:
        if not isinstance(item, self._kind):
            raise FrontendError(
                f"{type(self).__name__}: wanted {self._kind_name}, got {type(item).__name__}"
            )
        return item


class ListOf(Items):
    """Items by number."""

    _items: list[Any]

    def _fill(self, items: Any) -> None:
        object.__setattr__(self, "_items", [self._checked(i) for i in items])

    def children(self) -> Iterator[tuple[str, Any]]:
        """The items by number."""
        return iter([(str(i), item) for i, item in enumerate(self._items)])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            kind: Any = type(self)
            return kind(self._items[index])
        return self._items[index]

    def __setitem__(self, index: int, item: Any) -> None:
        self._items[index] = self._checked(item)

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return True

    def append(self, item: Any) -> None:
        """Add an item at the end."""
        self._items.append(self._checked(item))

    def extend(self, items: Any) -> None:
        """Add items at the end."""
        self._items.extend([self._checked(i) for i in items])


class DictOf(Items):
    """Items by name."""

    _items: dict[str, Any]

    def _fill(self, items: Any) -> None:
        object.__setattr__(self, "_items", {})
        self.update(items or {})

    def children(self) -> Iterator[tuple[str, Any]]:
        """The items by name."""
        return iter(list(self._items.items()))

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __getitem__(self, key: str) -> Any:
        return self._items[key]

    def __setitem__(self, key: str, item: Any) -> None:
        if not isinstance(key, str):
            raise FrontendError(f"{type(self).__name__}: wanted a name, got {type(key).__name__}")
        self._items[key] = self._checked(item)

    def __delitem__(self, key: str) -> None:
        del self._items[key]

    def __len__(self) -> int:
        return len(self._items)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, key: object) -> bool:
        return key in self._items

    def keys(self) -> Any:
        """The names."""
        return self._items.keys()

    def values(self) -> Any:
        """The items."""
        return self._items.values()

    def items(self) -> Any:
        """(name, item) pairs."""
        return self._items.items()

    def get(self, key: str, default: Any = None) -> Any:
        """The item of that name, or `default`."""
        return self._items.get(key, default)

    def update(self, items: Any) -> None:
        """Add items from a mapping."""
        for key, item in dict(items).items():
            self[key] = item

    def clear(self) -> None:
        """Take all items out."""
        self._items.clear()

    def pop(self, key: str) -> Any:
        """Take an item out, and give it."""
        return self._items.pop(key)
