"""Relay's types: struct info by Relay's names."""

from __future__ import annotations

import typing
from collections.abc import Callable, Iterable

from ..base import dtype as as_dtype
from ..base import submodules
from ..ir import Var as Symbol
from ..relax import FuncStructInfo, StructInfo, TensorStructInfo, TupleStructInfo, static_type
from ..relax.static_type import of_static_type


class Kind(type):
    """The class of Relay's names of nodes: called, `make` gives a node of the graph language, of
    which `isinstance` says that it is one of these.

    of  the class of the graph language, or several
    """

    of: type | tuple[type, ...]
    make: Callable[..., typing.Any]

    def __call__(cls, *args: typing.Any, **keywords: typing.Any) -> typing.Any:
        return cls.make(*args, **keywords)

    def __instancecheck__(cls, value: typing.Any) -> bool:
        return isinstance(value, cls.of)


class Any(metaclass=Kind):
    """A dimension of unknown size: a new symbol."""

    of = Symbol

    @staticmethod
    def make() -> Symbol:
        return Symbol("any", "int64")


class TensorType(metaclass=Kind):
    """The type of tensors of `shape`, whose sizes are ints, symbols or `relay.Any()`."""

    of = (TensorStructInfo, static_type.TensorType)

    @staticmethod
    def make(shape: Iterable[typing.Any], dtype: typing.Any = "float32") -> TensorStructInfo:
        return TensorStructInfo(tuple(shape), as_dtype(dtype))


def scalar_type(dtype: typing.Any) -> TensorStructInfo:
    """The type of a tensor without axes."""
    return TensorStructInfo((), dtype)


class TupleType(metaclass=Kind):
    """The type of tuples."""

    of = (TupleStructInfo, static_type.TupleType)

    @staticmethod
    def make(fields: Iterable[typing.Any]) -> TupleStructInfo:
        return TupleStructInfo([of_static_type(f) for f in fields])


class FuncType(metaclass=Kind):
    """The type of functions. Type parameters and constraints say nothing that is checked here."""

    of = (FuncStructInfo, static_type.FuncType)

    @staticmethod
    def make(
        arg_types: Iterable[typing.Any],
        ret_type: typing.Any,
        type_params: typing.Any = None,
        type_constraints: typing.Any = None,
    ) -> FuncStructInfo:
        return FuncStructInfo([of_static_type(a) for a in arg_types], of_static_type(ret_type))


Type = (StructInfo, static_type.Type)
"""What types are, for `isinstance`."""

__getattr__ = submodules(__name__)
