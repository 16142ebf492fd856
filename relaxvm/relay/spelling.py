"""Operators by Relay's names: functions that write the operators of `relax.op`.

    dense = spelled("nn.dense", lambda data, weight: ops.matmul(data, ops.permute_dims(weight)))

Nothing else exists of them: a call gives the expression, as soon as it is known what its operands
are. Until then it is a call of a `Spelled` operator, which `InferType` writes out.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from ..base import StructInfoError
from ..ir import Op
from ..relax import (
    Call,
    Expr,
    ObjectStructInfo,
    StructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    const,
)
from ..relax.operators import OF_UNTYPED

UNTYPED = ObjectStructInfo()


class Spelled(Op):
    """An operator by Relay's name, called before the types of its operands are known.

    build      what writes it in operators of `relax.op`
    signature  its arguments, expressions and others, in Relay's order
    """

    __slots__ = ("build", "signature")
    build: Callable[..., Any]
    signature: inspect.Signature
    pure = True

    def __init__(self, name: str, build: Callable[..., Any]) -> None:
        super().__init__(f"relay.{name}")
        object.__setattr__(self, "build", build)
        object.__setattr__(self, "signature", inspect.signature(build))

    def infer(self, *_: Any) -> StructInfo:
        """It is not known yet."""
        return UNTYPED

    def bound(self, args: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """All arguments by name. Raises StructInfoError for what the operator does not take."""
        try:
            bound = self.signature.bind(*args, **keywords)
        except TypeError as error:
            raise StructInfoError(f"{self.name}: {error}; it takes {self.signature}") from None
        bound.apply_defaults()
        return bound.arguments


def spelled(name: str, build: Callable[..., Any], results: int = 0) -> Callable[..., Any]:
    """What users call for the operator that Relay calls `name`.

    results  how many it gives as a `TupleWrapper` (or the keyword `outputs` of a call says so)
    """
    op = Spelled(name, build)

    @functools.wraps(build)
    def call(*args: Any, outputs: int = results, **keywords: Any) -> Any:
        given = {key: operand(value) for key, value in op.bound(args, keywords).items()}
        known = all(map(is_typed, _expressions(given.values())))
        made = op.build(**given) if known else _later(op, given)
        return TupleWrapper(made, outputs) if outputs else made

    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.__module__ = sys._getframe(1).f_globals["__name__"]
    CALLS[name] = call
    return call


# What `spelled` made, by Relay's names.
CALLS: dict[str, Callable[..., Any]] = {}


def _of_untyped(name: str, operands: tuple[Any, ...]) -> Any:
    """Python's operators on values whose types are not known yet."""
    waits = any(isinstance(x, Expr) and not is_typed(x) for x in operands)
    return CALLS[name](*operands) if waits and name in CALLS else None


OF_UNTYPED.append(_of_untyped)


def written_out(call: Call) -> Expr:
    """The expression that a call of a `Spelled` operator stands for.

    Raises StructInfoError if an operand has no type still.
    """
    op, rest = call.op, iter(call.args)
    assert isinstance(op, Spelled)
    given = {
        key: call.attrs[key] if key in call.attrs else next(rest) for key in op.signature.parameters
    }
    for key, value in given.items():
        if isinstance(value, Expr) and not is_typed(value):
            who = getattr(value, "name_hint", "")
            raise StructInfoError(
                f"{op.name}: the type of its argument {key}{f' ({who})' * bool(who)} is not known; "
                "declare it: relay.var(name, shape=..., dtype=...)"
            )
    made: Expr = op.build(**given)
    return made


def is_typed(value: Expr) -> bool:
    """Whether it is known what `value` is."""
    infos: list[StructInfo] = [value.struct_info]
    for info in infos:
        if isinstance(info, TupleStructInfo):
            infos.extend(info.fields)
    return not any(isinstance(info, ObjectStructInfo) for info in infos)


def operand(value: Any) -> Any:
    """What is an expression in Relay as one: wrapped tuples, arrays, lists of expressions."""
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, np.ndarray) and value.ndim:
        return const(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Expr) for v in value):
        return Tuple([operand(v) for v in value])
    return value


def _expressions(values: Iterable[Any]) -> Iterator[Expr]:
    return (v for v in values if isinstance(v, Expr))


def _later(op: Spelled, given: dict[str, Any]) -> Call:
    attrs = {key: value for key, value in given.items() if not isinstance(value, Expr)}
    return Call(op, tuple(_expressions(given.values())), attrs, (), UNTYPED)


class TupleWrapper:
    """A tuple of a known length as a Python sequence: ``out, mean, var = batch_norm(...)``."""

    def __init__(self, tuple_value: Expr, size: int) -> None:
        self.tuple_value = tuple_value
        self.size = size

    def astuple(self) -> Expr:
        """The tuple itself."""
        return self.tuple_value

    astext = property(lambda self: self.tuple_value.astext)

    def __getitem__(self, index: int) -> Expr:
        if not -self.size <= index < self.size:
            raise IndexError(f"a tuple of {self.size} fields has no field {index}")
        return TupleGetItem(self.tuple_value, index % self.size)

    def __len__(self) -> int:
        return self.size

    def __iter__(self) -> Iterator[Expr]:
        return (self[i] for i in range(self.size))

    def __repr__(self) -> str:
        return f"TupleWrapper({self.tuple_value!r}, {self.size})"
