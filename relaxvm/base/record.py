"""Dataclasses and named tuples whose classes cost little until they are used.

`dataclass(frozen=True)` writes six functions for a class and compiles each when the module is
imported: 0.5 ms, of which a process that loads one program would pay for every class there is. Of a
record `__init__` is compiled when more than a few are made, and all share the others. What
`dataclasses` does with instances (`fields`, `replace`, `asdict`) it does with these. And
`typing.NamedTuple` compiles every annotation, which nobody asks it for.
"""

from __future__ import annotations

import functools
import inspect
import operator
from collections import namedtuple
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any, TypeVar, cast, overload

if TYPE_CHECKING:
    from typing import NamedTuple as NamedTuple

    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: object) -> Callable[[Any], Any]:
        return lambda f: f

    class _NamedTuples(type):
        def __new__(cls, name: str, bases: tuple[type, ...], space: dict[str, Any]) -> type:
            if not bases:
                return super().__new__(cls, name, bases, space)
            hints = space.pop("__annotations__", {})
            defaults = [space.pop(field) for field in hints if field in space]
            kind = namedtuple(name, hints, defaults=defaults, module=space.pop("__module__"))
            kind.__annotations__ = hints
            for key, value in space.items():
                setattr(kind, key, value)
            return kind

    class NamedTuple(metaclass=_NamedTuples):
        """`typing.NamedTuple`, in a third of its time."""


_T = TypeVar("_T")
_Row = TypeVar("_Row", bound=tuple[Any, ...])


def made_of_tuples(kind: type[_Row]) -> Callable[[tuple[Any, ...]], _Row]:
    """`kind`, which is a class of named tuples, of a tuple that has all of its fields: quickly, as
    no Python is entered and nothing is looked at.
    """
    return functools.partial(tuple.__new__, kind)


_set = object.__setattr__
_FEW = 16


@overload
def record(cls: type[_T]) -> type[_T]: ...


@overload
def record(*, values: bool = True, frozen: bool = True) -> Callable[[type[_T]], type[_T]]: ...


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def record(cls: Any = None, *, values: bool = True, frozen: bool = True) -> Any:
    """``@record`` instead of ``@dataclass(frozen=True)``.

    values  False: each is equal to itself alone, and shown as the class it comes from says
    frozen  False: its fields may be assigned to
    """
    methods: dict[str, Any] = _FROZEN if frozen else {}
    if values:
        methods = {**methods, **_VALUES, "__hash__": _hash if frozen else None}

    def decorate(cls: type[_T]) -> type[_T]:
        kind: Any = dataclass(init=False, repr=False, eq=False)(cls)
        names = [f.name for f in fields(kind) if f.compare]

        def completed() -> Any:
            kind.__init__ = _init(kind, frozen)
            return kind.__init__

        rows, left = fields(kind), _FEW

        def __init__(self: Any, *args: Any, **named: Any) -> None:
            nonlocal left
            left -= 1
            if left < 0 or not _filled(self, rows, args, named):
                completed()(self, *args, **named)

        kind.__init__ = __init__
        kind.__init__.completed = completed
        kind.__signature__ = _SIGNATURE
        kind._values_ = operator.attrgetter(*(names or ["__class__"]))
        for name, method in methods.items():
            if name not in vars(cls):
                setattr(kind, name, method)
        return cast("type[_T]", kind)

    return decorate if cls is None else decorate(cls)


def _filled(
    self: Any, rows: Sequence[Field[Any]], args: tuple[Any, ...], named: dict[str, Any]
) -> bool:
    """Give `self` its values as the function of its class would, which takes longer to compile than
    a few instances to make. False for arguments of which that has to say what is wrong.
    """
    in_order = []
    for f in rows:
        if f.init and not f.kw_only:
            in_order.append(f.name)
    values, taken = {}, dict(zip(in_order, args), **named)
    if len(taken) != len(args) + len(named):
        return False
    for f in rows:
        if f.init and f.name in taken:
            values[f.name] = taken.pop(f.name)
        elif f.default_factory is not MISSING:
            values[f.name] = f.default_factory()
        elif f.default is not MISSING:
            values[f.name] = f.default
        elif f.init:
            return False
    if taken:
        return False
    for name, value in values.items():
        _set(self, name, value)
    if hasattr(self, "__post_init__"):
        self.__post_init__()
    return True


def _init(cls: Any, frozen: bool) -> Any:
    """The function that takes the values of the fields."""
    line = "_set(self, {!r}, {})" if frozen else "self.{} = {}"
    scope: dict[str, Any] = {"_set": _set, "_new": object()}
    params, lines = ["self"], []
    named: list[str] = []
    for f in fields(cls):
        value, default = f.name, ""
        if f.default is not MISSING:
            scope[f"_{f.name}"], default = f.default, f"=_{f.name}"
        elif f.default_factory is not MISSING:
            scope[f"_{f.name}"], default = f.default_factory, "=_new"
            value = f"_{f.name}() if {f.name} is _new else {f.name}"
        if f.init:
            (named if f.kw_only else params).append(f.name + default)
        else:
            value = f"_{f.name}()" if default == "=_new" else default[1:]
        if value:
            lines.append(line.format(f.name, value))
    if hasattr(cls, "__post_init__"):
        lines.append("self.__post_init__()")
    text = f"def __init__({', '.join([*params, *(['*'] if named else []), *named])}):\n "
    exec(text + "\n ".join(lines or ["pass"]), scope)
    init = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


class _Signature:
    """What a class takes, for who asks before an instance is made."""

    def __get__(self, instance: object, cls: Any) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        init = cls.__init__
        takes = inspect.signature(getattr(init, "completed", lambda: init)())
        return takes.replace(parameters=list(takes.parameters.values())[1:])


_SIGNATURE = _Signature()


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
_VALUES = {"__eq__": _eq, "__repr__": _repr}
