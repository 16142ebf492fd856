"""What a schedule primitive is: a function of the state, with the kinds of its arguments.

    @primitive(loop=LOOP, factors=list_of(EXPR), gives=list_of(LOOP))
    def split(state, loop, factors, *, preserve_unit_iters=True): -> (state, result)

An argument that is not listed in the decorator is plain: numbers, text or lists of them, as its
annotation says (`plain.py`). A `Kind` turns what the user gives (random variables) into what the
function takes, into JSON and back.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

from ....base import NamedTuple, ScheduleError
from ....ir import (
    Add,
    FloatImm,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Node,
    PrimExpr,
    StringImm,
    Sub,
    Var,
    binary,
    children,
)
from .plain import checked, is_plain


class BlockRV:
    """A random variable for a block."""

    __slots__ = ("__weakref__",)


class LoopRV:
    """A random variable for a loop."""

    __slots__ = ("__weakref__",)


ExprRV = Var
"""A random variable for a number is a `Var`; `Schedule.get` gives its value."""

PLACES = ("root", "inline")
"""What stands for a loop where a block is computed at none: given as it is, or named, as a loop is,
by the random variable of a place that was drawn.
"""


class Host(Protocol):
    """What a kind needs of a schedule."""

    def resolve_block(self, rv: Any, what: str) -> Any: ...
    def resolve_loop(self, rv: Any, what: str) -> Any: ...
    def resolve_place(self, rv: Any, what: str) -> Any: ...
    def resolve_expr(self, value: Any, what: str) -> Any: ...
    def new_block(self, block: Any) -> BlockRV: ...
    def new_loop(self, loop: Var | str) -> LoopRV: ...
    def new_expr(self, value: int) -> Var: ...
    def block_given(self, value: Any) -> Any: ...
    def state_now(self) -> Any: ...


class Names(Protocol):
    """Names of random variables in a trace."""

    def name_of(self, rv: Any) -> str | None: ...
    def of_name(self, name: str) -> Any: ...


class Kind:
    """How one argument or result is treated. The base class is for what is data already.

    is_input  whether it may be a random variable
    """

    is_input = False

    def given(self, host: Host, value: Any, what: str) -> Any:
        """The argument as it is recorded: names of blocks become random variables."""
        return value

    def complete(self, host: Host, value: Any, arguments: Mapping[str, Any], what: str) -> Any:
        """The argument as it is recorded, where that depends on the other ones in `arguments`."""
        return value

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        """What the primitive takes."""
        return value

    def wrap(self, host: Host, value: Any) -> Any:
        """What the user gets for a result of the primitive."""
        return value

    def encode(self, names: Names, value: Any) -> Any:
        """The argument as JSON data."""
        return to_data(value)

    def decode(self, names: Names, data: Any) -> Any:
        """The argument from JSON data."""
        return data


def to_data(value: Any) -> Any:
    """Plain data without tuples or constants of the IR."""
    if isinstance(value, (IntImm, FloatImm, StringImm)):
        return value.value
    if isinstance(value, (tuple, list)) or type(value).__name__ == "Array":
        return [to_data(v) for v in value]
    if isinstance(value, dict) or type(value).__name__ == "Map":
        return {str(k): to_data(v) for k, v in value.items()}
    if hasattr(value, "item") and hasattr(value, "dtype") and not isinstance(value, Node):
        return value.item()  # a numpy number
    return value


class _Plain(Kind):
    """Numbers, text, or lists of them."""

    def __init__(self, annotation: str) -> None:
        self.annotation = annotation

    def given(self, host: Host, value: Any, what: str) -> Any:
        return checked(self.annotation, value, what)

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        return checked(self.annotation, value, what)


class _Block(Kind):
    is_input = True

    def given(self, host: Host, value: Any, what: str) -> Any:
        return host.block_given(value)

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        return host.resolve_block(value, what)

    def wrap(self, host: Host, value: Any) -> Any:
        return host.new_block(value)

    def encode(self, names: Names, value: Any) -> Any:
        return names.name_of(value)

    def decode(self, names: Names, data: Any) -> Any:
        return names.of_name(data)


class _Loop(_Block):
    def given(self, host: Host, value: Any, what: str) -> Any:
        return value

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        return host.resolve_loop(value, what)

    def wrap(self, host: Host, value: Any) -> Any:
        return host.new_loop(value)


class _LoopOrPlace(_Loop):
    def resolve(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, str) and value in PLACES:
            return value
        return host.resolve_place(value, what)


class _BlockOrLoop(_Block):
    def resolve(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, LoopRV):
            return host.resolve_loop(value, what)
        return host.resolve_block(value, what)


class _LoopOrBlocks(_Loop):
    """A loop, or a list of blocks."""

    def given(self, host: Host, value: Any, what: str) -> Any:
        return LIST_OF_BLOCKS.given(host, value, what) if _is_list(value) else value

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        kind = LIST_OF_BLOCKS if _is_list(value) else LOOP
        return kind.resolve(host, value, what)

    def encode(self, names: Names, value: Any) -> Any:
        return (LIST_OF_BLOCKS if _is_list(value) else LOOP).encode(names, value)

    def decode(self, names: Names, data: Any) -> Any:
        return (LIST_OF_BLOCKS if _is_list(data) else LOOP).decode(names, data)


def _is_list(value: Any) -> bool:
    return isinstance(value, (list, tuple))


_OPERATIONS: dict[str, Any] = {c.__name__: c for c in (Add, Sub, Mul, FloorDiv, FloorMod, Min, Max)}


class _Expr(Kind):
    is_input = True

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        return None if value is None else host.resolve_expr(value, what)

    def wrap(self, host: Host, value: Any) -> Any:
        return host.new_expr(value)

    def encode(self, names: Names, value: Any) -> Any:
        if isinstance(value, IntImm):
            return value.value
        if isinstance(value, Var):
            return names.name_of(value)
        if isinstance(value, PrimExpr):
            name = type(value).__name__
            if name not in _OPERATIONS:
                raise ScheduleError(f"a factor with {name} cannot be recorded")
            return [name, *(self.encode(names, operand) for operand in children(value))]
        return None if value is None else int(value)

    def decode(self, names: Names, data: Any) -> Any:
        if isinstance(data, str):
            return names.of_name(data)
        if isinstance(data, list):
            known = len(data) == 3 and isinstance(data[0], str) and None not in data
            kind = _OPERATIONS.get(data[0]) if known else None
            if kind is None:
                raise ScheduleError(f"not an expression of a trace: {data!r}")
            return binary(kind, *(_number(self.decode(names, d)) for d in data[1:]))
        return None if data is None else _number(data)


def _number(value: Any) -> Any:
    if isinstance(value, PrimExpr):
        return value
    return checked("int", value, "a number of a trace")


class _Extra(Kind):
    """An annotation: numbers, text, lists and dictionaries that may hold random variables."""

    is_input = True

    def given(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.given(host, v, what) for v in value]
        if isinstance(value, dict):
            return {checked("str", k, what): self.given(host, v, what) for k, v in value.items()}
        value = to_data(value)
        if isinstance(value, (list, dict)):
            return self.given(host, value, what)
        if value is None or isinstance(value, (bool, int, float, str, PrimExpr)):
            return value
        kinds = "numbers, text, lists and dictionaries of them"
        raise ScheduleError(f"{what}: wanted {kinds}, got {type(value).__name__}")

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.resolve(host, v, what) for v in value]
        if isinstance(value, dict):
            return {k: self.resolve(host, v, what) for k, v in value.items()}
        if isinstance(value, PrimExpr) and not isinstance(value, (IntImm, FloatImm, StringImm)):
            return host.resolve_expr(value, what)
        return to_data(value)

    def encode(self, names: Names, value: Any) -> Any:
        if isinstance(value, (list, tuple)):
            return [self.encode(names, v) for v in value]
        if isinstance(value, dict):
            return {"dict": {k: self.encode(names, v) for k, v in value.items()}}
        if isinstance(value, Var):
            return {"rv": names.name_of(value)}
        return to_data(value)

    def decode(self, names: Names, data: Any) -> Any:
        if isinstance(data, list):
            return [self.decode(names, v) for v in data]
        if isinstance(data, dict):
            if data.keys() == {"rv"}:
                return names.of_name(data["rv"])
            if data.keys() == {"dict"} and isinstance(data["dict"], dict):
                return {k: self.decode(names, v) for k, v in data["dict"].items()}
            raise ScheduleError(f"not an annotation of a trace: {data!r}")
        return data


class _List(Kind):
    def __init__(self, element: Kind) -> None:
        self.element, self.is_input = element, element.is_input

    def _each(self, f: Callable[[Any], Any], value: Any, what: str = "") -> Any:
        if value is None:
            return None
        if isinstance(value, (str, Node)) or not isinstance(value, Iterable):
            raise ScheduleError(f"{what or 'the argument'}: wanted a list, got {value!r}")
        return [f(v) for v in value]

    def given(self, host: Host, value: Any, what: str) -> Any:
        return self._each(lambda v: self.element.given(host, v, what), value, what)

    def resolve(self, host: Host, value: Any, what: str) -> Any:
        return self._each(lambda v: self.element.resolve(host, v, what), value, what)

    def wrap(self, host: Host, value: Any) -> Any:
        return [self.element.wrap(host, v) for v in value]

    def encode(self, names: Names, value: Any) -> Any:
        return self._each(lambda v: self.element.encode(names, v), value)

    def decode(self, names: Names, data: Any) -> Any:
        return self._each(lambda v: self.element.decode(names, v), data)


BLOCK: Kind = _Block()
LOOP: Kind = _Loop()
BLOCK_OR_LOOP: Kind = _BlockOrLoop()
EXPR: Kind = _Expr()
LOOP_OR_PLACE: Kind = _LoopOrPlace()
LOOP_OR_BLOCKS: Kind = _LoopOrBlocks()
LIST_OF_BLOCKS: Kind = _List(BLOCK)
EXTRA: Kind = _Extra()


def list_of(kind: Kind) -> Kind:
    """A list of arguments or results."""
    return _List(kind)


class Primitive(NamedTuple):
    """A primitive by the name of its method, with the kinds of its arguments and of its result
    (None: nothing).

    random    it takes `rng` and `decision`, and gives (state, result, decision)
    defaults  of all arguments, in order; nothing is the default of those `required`
    first     how many arguments may be given without their names
    rest      the argument that takes all others without names
    completes  the arguments that are recorded as other ones say
    """

    method: str
    function: Callable[..., Any]
    signature: inspect.Signature
    kinds: dict[str, Kind]
    gives: Kind | None
    random: bool
    defaults: dict[str, Any]
    required: frozenset[str]
    first: int
    rest: str | None
    completes: tuple[str, ...]

    @property
    def name(self) -> str:
        """As TVM calls its instructions: "GetLoops"."""
        words = "".join(word.capitalize() for word in self.method.split("_"))
        return _SPELT.get(self.method, words)

    @staticmethod
    def get(name: str) -> Primitive:
        """The primitive of that name, the method's ("get_loops") or TVM's ("GetLoops"). Raises
        ScheduleError if there is none.
        """
        wanted = str(name).replace("SBlock", "Block")
        for each in PRIMITIVES.values():
            if wanted in (each.method, each.name):
                return each
        raise ScheduleError(f"no schedule primitive is named {name!r}")

    def __repr__(self) -> str:
        return f'InstructionKind.get("{self.name}")'

    @property
    def is_pure(self) -> bool:
        """Whether it only looks, or draws a number."""
        return self.random or self.method.startswith("get_")

    def missing(self, arguments: Mapping[str, Any]) -> list[str]:
        """The arguments that are not given and have no default."""
        return [name for name in self.defaults if name in self.required - arguments.keys()]

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, in order. Raises TypeError for those that do not fit."""
        placed = dict(zip(self.defaults, args[: self.first]))
        rest = args[self.first :]
        if self.rest is not None:
            placed[self.rest], rest = rest, ()
        others = self.defaults.keys() - placed.keys()
        if rest or not self.required & others <= kwargs.keys() <= others:
            self.signature.bind(*args, **kwargs)  # which says what is wrong
        return {**self.defaults, **placed, **kwargs}

    def arguments(self, inputs: Sequence[Any], attrs: Sequence[Any]) -> dict[str, Any]:
        """Arguments by name, from those that may be random variables and the other ones. Raises
        ScheduleError if they are too few or too many.
        """
        blocks_loops, others = list(inputs), list(attrs)
        args: dict[str, Any] = {}
        for p in self.signature.parameters.values():
            kind = self.kinds[p.name]
            if p.name == "decision":
                continue
            if isinstance(kind, _List):
                args[p.name], blocks_loops = blocks_loops, []
            elif (blocks_loops if kind.is_input else others)[:1]:
                args[p.name] = (blocks_loops if kind.is_input else others).pop(0)
            elif p.default is not p.empty:
                args[p.name] = p.default
        wrong = self.missing(args) or [*blocks_loops, *others]
        if wrong:
            raise ScheduleError(
                f"{self.name}: inputs and attrs are the arguments of {self.method}{self.signature}:"
                f" too few or too many, got inputs={list(inputs)!r} and attrs={list(attrs)!r}"
            )
        return args

    @property
    def gives_list(self) -> bool:
        """Whether the result is a list."""
        return isinstance(self.gives, _List)

    def outputs(self, result: Any) -> list[Any]:
        """The random variables in what the user got."""
        if self.gives is None:
            return []
        return list(result) if self.gives_list else [result]


PRIMITIVES: dict[str, Primitive] = {}
"""Every primitive by the name of its method."""
# Where TVM's name is not the method's.
_SPELT = {"rfactor": "RFactor", "reindex": "ReIndex", "unsafe_set_dtype": "UnsafeSetDType"}


def primitive(
    *, gives: Kind | None = None, random: bool = False, **kinds: Kind
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Declare a schedule primitive (see the top of this file)."""

    def declare(f: Callable[..., Any]) -> Callable[..., Any]:
        parameters = list(inspect.signature(f).parameters.values())[1:]
        if random:
            parameters = [p for p in parameters if p.name != "rng"]
        unknown = set(kinds) - {p.name for p in parameters}
        if unknown:
            raise ScheduleError(f"{f.__name__} has no argument {', '.join(unknown)}")
        for p in parameters:
            if p.name not in kinds:
                if not is_plain(p.annotation):
                    raise ScheduleError(f"{f.__name__}: the kind of {p.name} is not declared")
                kinds[p.name] = _Plain(p.annotation)
        rest = next((p.name for p in parameters if p.kind is p.VAR_POSITIONAL), None)
        PRIMITIVES[f.__name__] = Primitive(
            f.__name__,
            f,
            inspect.Signature(parameters),
            kinds,
            gives,
            random,
            {p.name: () if p.name == rest else p.default for p in parameters},
            frozenset(p.name for p in parameters if p.default is p.empty and p.name != rest),
            sum(p.kind is p.POSITIONAL_OR_KEYWORD for p in parameters),
            rest,
            tuple(k for k, kind in kinds.items() if type(kind).complete is not Kind.complete),
        )
        return f

    return declare
