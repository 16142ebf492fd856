"""Frozen dataclasses whose methods cost nothing until they are needed.

`dataclass(frozen=True)` writes six functions for a class and compiles each when the module is
imported: 0.6 ms, of which a process that loads one program would pay for every class there is. Of a
record `__init__` is compiled when the first one is made, and all share the other five. What
`dataclasses` does with instances (`fields`, `replace`, `asdict`) it does with these.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import MISSING, FrozenInstanceError, dataclass, field, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda f: f


_T = TypeVar("_T")
_set = object.__setattr__


@overload
def record(cls: type[_T]) -> type[_T]: ...


@overload
def record(*, values: bool) -> Callable[[type[_T]], type[_T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, *, values: bool = True) -> Any:
    """``@record`` instead of ``@dataclass(frozen=True)``.

    values  False: each is equal to itself alone, and shown as the class it comes from says
    """
    if cls is None:
        return lambda cls: _record(cls, _SHARED if values else _FROZEN)
    return _record(cls, _SHARED)


def _record(cls: type[_T], methods: dict[str, Any]) -> type[_T]:
    kind: Any = dataclass(init=False, repr=False, eq=False)(cls)
    names = kind.__match_args__

    def __init__(self: Any, *args: Any, **named: Any) -> None:
        kind.__init__ = _init(kind)
        kind.__init__(self, *args, **named)

    kind.__init__ = __init__
    kind._values_ = operator.attrgetter(*(names or ["__class__"]))
    for name, method in methods.items():
        if name not in vars(cls):
            setattr(kind, name, method)
    return cast("type[_T]", kind)


def _init(cls: Any) -> Any:
    """The function that takes the values of the fields."""
    scope: dict[str, Any] = {"_set": _set, "_new": object()}
    params, lines = [], []
    for f in fields(cls):
        value, default = f.name, ""
        if f.default is not MISSING:
            scope[f"_{f.name}"], default = f.default, f"=_{f.name}"
        elif f.default_factory is not MISSING:
            scope[f"_{f.name}"], default = f.default_factory, "=_new"
            value = f"_{f.name}() if {f.name} is _new else {f.name}"
        params.append(f.name + default)
        lines.append(f"_set(self, {f.name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__(self, {', '.join(params)}):\n "
    exec(text + "\n ".join(lines or ["pass"]), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _eq(self: Any, other: Any) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return self._values_(self) == self._values_(other)


def _hash(self: Any) -> int:
    return hash(self._values_(self))


@recursive_repr()
def _repr(self: Any) -> str:
    shown = ", ".join(f"{f.name}={getattr(self, f.name)!r}" for f in fields(self) if f.repr)
    return f"{self.__class__.__qualname__}({shown})"


def _setattr(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _delattr(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


_FROZEN = {"__setattr__": _setattr, "__delattr__": _delattr}
_SHARED = {**_FROZEN, "__eq__": _eq, "__hash__": _hash, "__repr__": _repr}
