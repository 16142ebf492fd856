"""Operators by Relay's names: functions that write the operators of `relax.op`.

    dense = spelled("nn.dense", lambda data, weight: ops.matmul(data, ops.permute_dims(weight)))

Nothing else exists of them: a call gives the expression, as soon as it is known what its operands
are. Until then it is a call of a `Spelled` operator, which `InferType` writes out.
"""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, TypeAlias

import numpy as np

from ..base import UNKNOWN, Span, StructInfoError, did_you_mean
from ..ir import Op
from ..relax import (
    Binding,
    Call,
    Expr,
    FuncStructInfo,
    ObjectStructInfo,
    StructInfo,
    TensorStructInfo,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    const,
)
from ..relax.operators import OF_UNTYPED

UNTYPED = ObjectStructInfo()


def let_span(span: Span = UNKNOWN) -> Span:
    """The span of a binding that a `let` wrote: others only say that a value has a variable."""
    return Span(span.source, span.line, span.column, span.end_line, span.end_column, _LET)


def is_let(binding: Binding) -> bool:
    """Whether `binding` was written by a `let`."""
    return binding.span.name == _LET


_LET = "let"


class Said(Span):
    """The span of what an operator of Relay was written out as.

    given  the arguments by name, as they were given; for operands that are in what was written,
           where: a `Place`, or a list of places for a tuple of them
    """

    __slots__ = ("given",)

    def __init__(
        self, name: str, given: Mapping[str, Any], source: str = "", line: int = 0, column: int = 0
    ) -> None:
        super().__init__(source, line, column, name=name)
        self.given = given

    def put(self, source: str, line: int, column: int) -> Said:
        """The same, from a place in a text."""
        return Said(self.name, self.given, source, line, column)


class Place(tuple[int, ...]):
    """Where an expression is in another: the number of an operand, of its operand, ..."""

    __slots__ = ()


# The places of what a call itself reads.
_DIRECT = [Place((i,)) for i in range(8)]


def parts_of(value: Any) -> Sequence[Expr]:
    """The operands of what is computed: what a `Place` counts."""
    if isinstance(value, Call):
        return value.args
    if isinstance(value, Tuple):
        return value.fields
    return (value.tuple_value,) if isinstance(value, TupleGetItem) else ()


def _with_places(written: Expr, given: Mapping[str, Any]) -> Mapping[str, Any]:
    """`given`, with the places of operands in what was written of them."""
    operands = [v for v in given.values() if isinstance(v, Expr)]
    direct = {id(part): _DIRECT[i] for i, part in enumerate(parts_of(written)[: len(_DIRECT)])}
    if all(id(v) in direct for v in operands):
        return {key: direct.get(id(value), value) for key, value in given.items()}
    operands += [f for v in operands if isinstance(v, Tuple) for f in v.fields]
    ends = {id(v) for v in operands}
    places: dict[int, Place] = {}
    rest = [(written, Place())]
    for value, place in rest:
        if id(value) in places:
            continue
        places[id(value)] = place
        if id(value) not in ends:
            rest += [(part, Place((*place, i))) for i, part in enumerate(parts_of(value))]

    def placed(value: Any) -> Any:
        if id(value) in ends and id(value) in places:
            return places[id(value)]
        return [placed(f) for f in value.fields] if isinstance(value, Tuple) else value

    return {key: placed(value) for key, value in given.items()}


Weights: TypeAlias = "Callable[[SimpleNamespace], dict[str, tuple[Any, ...]]]"


class Spelled(Op):
    """An operator by Relay's name, called before the types of its operands are known.

    build      what writes it in operators of `relax.op`
    signature  its arguments, expressions and others, in Relay's order
    weights    the shapes of arguments that follow from the others, as Relay's type relations know
               them: a function from all arguments to {name: shape}, in which None stands for a
               size that does not follow
    """

    __slots__ = ("build", "signature", "weights")
    build: Callable[..., Any]
    signature: inspect.Signature
    weights: Weights | None
    pure = True

    def __init__(self, name: str, build: Callable[..., Any], weights: Weights | None) -> None:
        super().__init__(name)
        object.__setattr__(self, "build", build)
        object.__setattr__(self, "signature", inspect.signature(build))
        object.__setattr__(self, "weights", weights)

    @property
    def label(self) -> str:
        """What messages call it."""
        return f"relay.{self.name}"

    def infer(self, *_: Any) -> StructInfo:
        """It is not known yet."""
        return UNTYPED

    def bound(self, args: Sequence[Any], keywords: dict[str, Any]) -> dict[str, Any]:
        """All arguments by name. Raises StructInfoError for what the operator does not take."""
        try:
            bound = self.signature.bind(*args, **keywords)
        except TypeError as error:
            raise StructInfoError(f"{self.label}: {error}; it takes {self.signature}") from None
        bound.apply_defaults()
        return bound.arguments

    def called(self, args: Sequence[Expr], attrs: Mapping[str, Any]) -> Expr:
        """A call by its operands alone, in their order, and the other arguments by name."""
        rest = iter(args)
        names = [key for key in self.signature.parameters if key not in attrs]
        given = self.bound((), {**dict(zip(names, rest)), **attrs})
        if next(rest, None) is not None:
            raise StructInfoError(
                f"{self.label}: got {len(args)} operands; it takes {self.signature}"
            )
        return self.applied(given)

    def applied(self, given: dict[str, Any]) -> Expr:
        """The expression that a call stands for; a call, if it is not known yet."""
        values = [v for v in given.values() if isinstance(v, Expr)]
        if all(map(is_typed, values)):
            return self.written(given)
        attrs = {key: value for key, value in given.items() if not isinstance(value, Expr)}
        return Call(self, values, attrs, (), UNTYPED)

    def written(self, given: dict[str, Any]) -> Expr:
        """The expression that a call stands for, whose span says how Relay called it."""
        made: Expr = self.build(**given)
        if isinstance(made, Call) and made.span is UNKNOWN:
            if not any(made is value for value in given.values()):
                made = made.replace(span=Said(self.name, _with_places(made, given)))
        return made


def spelled(
    name: str,
    build: Callable[..., Any],
    results: int | Callable[[SimpleNamespace], int] = 0,
    weights: Weights | None = None,
) -> Callable[..., Any]:
    """What users call for the operator that Relay calls `name`.

    results  how many it gives as a `TupleWrapper`, or what says it, given all arguments
    weights  see `Spelled`
    """
    op = Spelled(name, build, weights)

    @functools.wraps(build)
    def call_(*args: Any, **keywords: Any) -> Any:
        given = {key: operand(value) for key, value in op.bound(args, keywords).items()}
        made = op.applied(given)
        count = results if isinstance(results, int) else results(SimpleNamespace(**given))
        return TupleWrapper(made, count) if count else made

    call: Any = call_
    call.__name__ = call.__qualname__ = name.rpartition(".")[2]
    call.op = op  # what `relay.op.get` gives
    call.__module__ = sys._getframe(1).f_globals["__name__"]
    CALLS[name] = call
    return call


# What `spelled` made, by Relay's names.
CALLS: dict[str, Callable[..., Any]] = {}


def get(op_name: str) -> Spelled:
    """The operator of that name, for ``relay.Call(relay.op.get("nn.dense"), [x, w])``.

    Raises StructInfoError if there is none.
    """
    call: Any = CALLS.get(op_name)
    if call is None:
        hint = did_you_mean(op_name, CALLS)
        raise StructInfoError(f"no operator of Relay is named {op_name!r}{hint}")
    op: Spelled = call.op
    return op


def _of_untyped(name: str, operands: tuple[Any, ...]) -> Any:
    """Python's operators on values whose types are not known yet."""
    waits = any(isinstance(x, Expr) and not is_typed(x) for x in operands)
    return CALLS[name](*operands) if waits and name in CALLS else None


OF_UNTYPED.append(_of_untyped)


def arguments(call: Call) -> dict[str, Any]:
    """All arguments of a call of a `Spelled` operator by their names."""
    op, rest = call.op, iter(call.args)
    assert isinstance(op, Spelled)
    names = op.signature.parameters
    return {key: call.attrs[key] if key in call.attrs else next(rest) for key in names}


def unknown_argument(call: Call) -> str:
    """What to say of an operand of a call of a `Spelled` operator that has no type; "" if all of
    them have.
    """
    op: Any = call.op
    for key, value in arguments(call).items():
        if isinstance(value, Expr) and not is_typed(value):
            who = getattr(value, "name_hint", "")
            return (
                f"{op.label}: the type of its argument {key}{f' ({who})' * bool(who)} is not known"
                "; declare it: relay.var(name, shape=..., dtype=...)"
            )
    return ""


def written_out(call: Call) -> Expr:
    """The expression that a call of a `Spelled` operator stands for, as all operands have types."""
    op = call.op
    assert isinstance(op, Spelled)
    return op.written(arguments(call))


def determined(call: Call) -> dict[str, StructInfo]:
    """The types of operands that follow from the other arguments of a call of a `Spelled` operator
    and are not known, by the names of the arguments. The elements are as those of the first.
    """
    op = call.op
    assert isinstance(op, Spelled)
    given = arguments(call)
    first = next(iter(given.values()), None)
    if op.weights is None or not isinstance(first, Expr):
        return {}
    info = first.struct_info
    open_ = [k for k, v in given.items() if isinstance(v, Expr) and not is_typed(v)]
    if not open_ or not isinstance(info, TensorStructInfo) or info.dims is None:
        return {}
    shapes = op.weights(SimpleNamespace(**given))
    return {
        key: TensorStructInfo(shapes[key], info.dtype)
        for key in open_
        if key in shapes and None not in shapes[key]
    }


def is_typed(value: Expr) -> bool:
    """Whether it is known what `value` is."""
    return not waits(value.struct_info)


def waits(info: StructInfo) -> bool:
    """Whether `info` says nothing of what it describes, or of a part of that."""
    infos = [info]
    for each in infos:
        if isinstance(each, TupleStructInfo):
            infos.extend(each.fields)
        elif isinstance(each, FuncStructInfo):
            infos.extend((*(each.params or ()), each.ret))
    return any(isinstance(each, ObjectStructInfo) for each in infos)


def operand(value: Any) -> Any:
    """What is an expression in Relay as one: wrapped tuples, arrays, lists of expressions."""
    if isinstance(value, TupleWrapper):
        return value.tuple_value
    if isinstance(value, np.ndarray) and value.ndim:
        return const(value)
    if isinstance(value, (list, tuple)) and any(isinstance(v, Expr) for v in value):
        return Tuple([operand(v) for v in value])
    return value


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
