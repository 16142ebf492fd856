"""What text from elsewhere may do while it is read.

A decorated class or function is the user's own Python, and its plain sub-expressions evaluate as
Python does. Text given to `from_source` may come from anyone: it sees the script languages, the
names it was given and a few harmless builtins. `VALUES` lists every type that may be passed around
in text and the attributes that may be read of it; a call gives one of these or is refused; and all
that a text builds is charged to one budget, in proportion to the text's length.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, ItemsView, Iterable, KeysView, Mapping, ValuesView
from types import (
    BuiltinMethodType,
    FunctionType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any

import numpy as np

from ...base import DataType, TIRError
from ...ir import EnvFunc, FloatImm, IntImm, Map, Node, PrimExpr, Range
from ...ir import Var as TirVar
from ...relax import (
    Axes,
    DataflowVar,
    DataTypeImm,
    DtypeParts,
    Expr,
    FuncStructInfo,
    PrimStructInfo,
    PrimValue,
    SequenceStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StringImm,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
    Var,
)
from ...runtime import Device, NDArray
from ...tir import Buffer, BufferLoad, BufferRegion, IterVar
from .outer import MISSING
from .proxies import BufferFunction, DTypeFunction, Lambda
from .records import Record

# What one text may make or visit in Python: so much, and so much more per character.
_BUDGET = 1_000_000
_BUDGET_PER_CHARACTER = 64
_VISIT = 10
_LIMIT_BITS = 4096
_DEEPEST = 60
_WIDE = re.compile(r"\d{5,}")

SAFE_BUILTINS: Mapping[str, Any] = {
    f.__name__: f
    for f in (
        abs, all, any, bool, dict, enumerate, float, int, len, list, max, min, range, reversed,
        round, set, sorted, str, sum, tuple, zip,
    )
}  # fmt: skip

_TENSOR = "struct_info shape dtype ndim strides byte_offset elem_offset astype"
# Every type whose values text may pass around, with what it may read of them; a class stands for
# its subclasses too, the nearest one counts. Nothing here may lead to a type that is not here.
VALUES: dict[type, str] = {
    bool: "",
    int: "",
    float: "",
    complex: "",
    str: "endswith lower startswith upper",
    bytes: "",
    type(None): "",
    type(...): "",
    slice: "",
    tuple: "count index",
    list: "count index",
    dict: "get items keys values",
    set: "",
    frozenset: "",
    **dict.fromkeys((range, enumerate, zip, reversed), ""),
    **dict.fromkeys((type(reversed([])), type(iter(range(0))), type(reversed({}))), ""),
    **dict.fromkeys((type({}.keys()), type({}.values()), type({}.items())), ""),
    **dict.fromkeys((KeysView, ValuesView, ItemsView), ""),
    DataType: "bits lanes kind",
    Map: "get items keys values",
    # Arrays that the caller gave: to be made constants of.
    np.generic: "",
    np.ndarray: "",
    NDArray: "",
    Device: "",
    # IR
    Node: "",
    PrimExpr: "dtype astype",
    TirVar: "dtype astype name",
    IntImm: "dtype astype value",
    Range: "min extent",
    IterVar: "var dom",
    Buffer: "data shape dtype strides elem_offset name ndim scope vload vstore",
    BufferLoad: "dtype astype buffer indices",
    BufferRegion: "buffer region",
    Expr: _TENSOR,
    Axes: "",
    DtypeParts: "bits code lanes type_code",
    ShapeExpr: f"{_TENSOR} values",
    PrimValue: f"{_TENSOR} value",
    StringImm: f"{_TENSOR} value",
    DataTypeImm: f"{_TENSOR} value",
    TensorStructInfo: "shape dtype ndim",
    ShapeStructInfo: "values ndim",
    PrimStructInfo: "dtype value",
    TupleStructInfo: "fields",
    SequenceStructInfo: "element",
    FuncStructInfo: "params ret",
    # The script languages' own
    Record: "",
    DTypeFunction: "dtype",
    BufferFunction: "",
    Lambda: "",
}

_CONTAINERS = frozenset((tuple, list, dict, set, frozenset, str, bytes))
# Values that count as one and lead nowhere.
_SINGLE: frozenset[type] = frozenset(
    (bool, int, float, type(None), slice, TirVar, IntImm, FloatImm, Buffer, Var, DataflowVar)
)
_READABLE: dict[type, frozenset[str] | None] = {}
# The types met so far that are in the table.
_KNOWN: set[type] = set()
# What the script languages were asked for so far and offer.
_OFFERED: dict[tuple[ModuleType, str], Any] = {}


def _readable(kind: type) -> frozenset[str] | None:
    """What text may read of values of that type; None if they are no values of text."""
    try:
        return _READABLE[kind]
    except KeyError:
        base = next((base for base in kind.__mro__ if base in VALUES), None)
        names = None if base is None else frozenset(VALUES[base].split())
        if base is kind or kind.__module__.startswith("relaxvm"):
            # Types of the caller's own are not kept alive for ever.
            _READABLE[kind] = names
            if names is not None:
                _KNOWN.add(kind)
        return names


# Types of which no values count, when a name is used.
UNCOUNTED: set[type] = {*_SINGLE, ModuleType, FunctionType, type}


def is_value(value: Any) -> bool:
    """Whether text may pass `value` around."""
    return _readable(type(value)) is not None


def is_decorator(func: Any) -> bool:
    """Whether `func` makes functions or modules of Python's definitions, as R.function does."""
    return isinstance(getattr(func, "script_language", None), str)


def offered(room: ModuleType, name: str) -> bool:
    """Whether a module offers text that name: the script languages and the families of operators
    do, no other module does.
    """
    if room.__name__.startswith("relaxvm.relax.op."):
        member = vars(room).get(name)
        if (
            not isinstance(member, FunctionType)
            or not hasattr(member, "op")
            or name.startswith("_")
        ):
            return False
        # A package is a face; what a file imports is not its own.
        return "__path__" in vars(room) or member.__module__ == room.__name__
    if not room.__name__.startswith("relaxvm.script."):
        return False
    more: Callable[[str], bool] | None = vars(room).get("_offers")
    return name in vars(room).get("__all__", ()) or (more is not None and more(name))


class Guard:
    """What one text from elsewhere may still do."""

    __slots__ = ("_granted", "_left", "_sizes")

    def __init__(self, characters: int, granted: Iterable[Any] = ()) -> None:
        self._left = _BUDGET + _BUDGET_PER_CHARACTER * characters
        # What the caller gave to the text, kept alive.
        self._granted = {id(value): value for value in granted}
        # Size of an expression written out, by identity; the expression is kept alive.
        self._sizes: dict[int, tuple[Any, int]] = {}

    # -- how much

    def charge(self, count: int) -> None:
        """Raise TIRError if `count` more elements are more than the text may ask for."""
        self._left -= count
        if self._left < 0:
            raise TIRError("text asks for too many elements (of lists, strings, expressions)")

    def visit(self) -> None:
        """One more element of a collection is gone through."""
        self.charge(_VISIT)

    def size(self, value: Any, depth: int = 0) -> int:
        """The elements of `value`, written out. Raises TIRError if it is nested too deeply."""
        kind = type(value)
        if kind in _SINGLE:
            return 1
        if kind is str or kind is bytes or kind is range:
            return len(value)
        if kind in _CONTAINERS:
            if depth > _DEEPEST:
                raise TIRError("this is nested too deeply")
            # Paid before it is gone through: what is written out may be far more than is stored.
            self.charge(len(value))
            total = 1 + len(value)
            for item in value:
                if type(item) not in _SINGLE:
                    total += self.size(item, depth + 1)
            if kind is dict:
                for item in value.values():
                    total += self.size(item, depth + 1)
            return total
        if isinstance(value, Expr):
            value = value.struct_info
        return self._written(value) if isinstance(value, (PrimExpr, StructInfo)) else 1

    def _written(self, root: Node) -> int:
        sizes = self._sizes
        stack = [root]
        while stack:
            each = stack[-1]
            if id(each) in sizes:
                stack.pop()
                continue
            parts = each._children_
            missing = [part for part in parts if id(part) not in sizes]
            if missing:
                stack.extend(missing)
            else:
                sizes[id(each)] = (each, 1 + sum(sizes[id(part)][1] for part in parts))
        return sizes[id(root)][1]

    def used(self, value: Any) -> Any:
        """`value`, of which text makes use once more: an expression under a name counts in full
        each time, so that what is built stays in proportion to the text.
        """
        kind = type(value)
        if kind not in UNCOUNTED:
            if isinstance(value, (PrimExpr, StructInfo, Expr)):
                self.charge(self.size(value))
            elif kind.__module__.startswith("relaxvm"):
                UNCOUNTED.add(kind)
        return value

    def held(self, items: Any) -> Any:
        """`items`, a container that text has made. Raises TIRError for what text cannot hold."""
        total = 1 + len(items)
        for each in (items, items.values()) if type(items) is dict else (items,):
            for item in each:
                if type(item) not in _SINGLE:
                    self.check(item)
                    total += self.size(item, 1)
        self.charge(total)
        return items

    def _held_deeply(self, items: Any) -> None:
        """As `held`, for a container that was made elsewhere."""
        self.held(items)
        for each in (items, items.values()) if type(items) is dict else (items,):
            for item in each:
                if type(item) in (list, tuple, dict, set, frozenset):
                    self._held_deeply(item)

    # -- what

    def check(self, value: Any) -> None:
        """Raise TIRError if text may not pass `value` around."""
        if (
            type(value) not in _KNOWN
            and _readable(type(value)) is None
            and id(value) not in self._granted
        ):
            raise TIRError(f"{_described(value)} is no value; text cannot pass it around")

    def gives(self, value: Any) -> Any:
        """`value`, which a call or an attribute gave. Raises TIRError if it is neither IR nor plain
        data.
        """
        kind = type(value)
        if kind not in _KNOWN and _readable(kind) is None and id(value) not in self._granted:
            raise TIRError(f"this gives {_described(value)}, which is no value of script text")
        if kind in _CONTAINERS:
            self.charge(len(value))
        return value

    def attribute(self, value: Any, name: str) -> Any:
        """``value.name``, or MISSING. Raises TIRError for what text may not read."""
        kind = type(value)
        if kind is ModuleType:
            known = _OFFERED.get((value, name))
            if known is not None:
                return known
            if name.startswith("_"):
                raise TIRError(f"the private attribute {name} cannot be read by text")
            if not offered(value, name):
                return MISSING
            attribute = getattr(value, name, MISSING)
            if name in vars(value):
                _OFFERED[value, name] = attribute
            return attribute
        allowed = _readable(kind)
        if allowed is not None and name in allowed:
            if kind in _CONTAINERS:
                self.charge(len(value))
            attribute = getattr(value, name, MISSING)
            if attribute is MISSING or isinstance(
                attribute, (MethodType, BuiltinMethodType, FunctionType)
            ):
                return attribute
            if type(attribute) not in _SINGLE:
                self.charge(self.size(self.gives(attribute)))
            return attribute
        if name.startswith("_"):
            raise TIRError(f"the private attribute {name} cannot be read by text")
        if kind is SimpleNamespace:
            return vars(value).get(name, MISSING)
        if allowed is not None and not hasattr(kind, name):
            return MISSING
        what = getattr(value, "__name__", kind.__name__) if allowed is None else kind.__name__
        offers = f"; it may use {', '.join(sorted(allowed))}" if allowed else ""
        raise TIRError(f"text cannot use {what}.{name}{offers}")

    def names_of(self, value: Any) -> Iterable[str]:
        """What text may read of `value`, for suggestions."""
        if isinstance(value, ModuleType):
            return [name for name in dir(value) if offered(value, name)]
        return vars(value) if type(value) is SimpleNamespace else _readable(type(value)) or ()

    def subscript(self, value: Any, index: Any) -> Any:
        """``value[index]``. Raises TIRError for what text may not look into."""
        self.check(value)
        if type(index) in _CONTAINERS:
            self.charge(self.size(index))
        return self.used(self.gives(value[index]))

    def call(self, func: Any, args: list[Any], keywords: dict[str, Any]) -> Any:
        """``func(*args, **keywords)``. Raises TIRError if text may not make that call, or not have
        what it gives.
        """
        for value in (*args, *keywords.values()) if keywords else args:
            kind = type(value)
            if kind in _SINGLE:
                continue
            if kind not in _KNOWN:
                self.check(value)
            if kind is str:
                self._left -= len(value)
            elif kind in _CONTAINERS or func is str:
                self.charge(self.size(value))
            elif kind is range and func is not range:
                self.charge(len(value))
        if type(func) is not FunctionType and id(func) in _COSTLY:
            _COSTLY[id(func)](*args, *keywords.values())
        result = func(*args, **keywords)
        if type(result) not in _KNOWN or type(result) in _CONTAINERS:
            self.gives(result)
        if id(func) in self._granted and type(result) in (list, tuple, dict, set, frozenset):
            # What the caller's own function put in may be anything.
            self._held_deeply(result)
        if type(result) is FuncStructInfo and result.derive_func is not None:
            self._runs(result.derive_func)
        return result

    def _runs(self, registered: EnvFunc) -> None:
        """Calls of what text gives this type to run the function while the text is read."""
        if id(registered.func) not in self._granted:
            raise TIRError(
                f"derive_func={registered.name!r}: reading text runs no registered function that "
                "was not given to it; put it into extra_vars"
            )

    def operands(self, op: type[ast.operator], left: Any, right: Any) -> None:
        """Raise TIRError if text asks Python's operators for something too large."""
        if isinstance(left, int) and isinstance(right, int):
            if op is ast.Pow and abs(right) * max(1, left.bit_length()) > _LIMIT_BITS:
                raise TIRError(f"{left} ** {right} is too large")
            if op is ast.LShift and right > _LIMIT_BITS:
                raise TIRError(f"a shift by {right} is too large")
            if op is ast.Mult and left.bit_length() + right.bit_length() > _LIMIT_BITS:
                raise TIRError("the product is too large")
            return
        if op is ast.Mult:
            for value, times in ((left, right), (right, left)):
                if type(value) in _CONTAINERS and isinstance(times, int):
                    self.charge(self.size(value) * max(0, times))
        elif op is ast.Mod and isinstance(left, (str, bytes)):
            raise TIRError("% formatting is not allowed in text; use an f-string")
        elif op is ast.Add and type(left) in _CONTAINERS:
            self.charge(self.size(left) + self.size(right))
        self.check(left)
        self.check(right)

    def compared(self, left: Any, right: Any) -> None:
        """Raise TIRError if text compares too much."""
        for value in (left, right):
            if type(value) in _CONTAINERS:
                self.charge(self.size(value))

    def text(self, value: Any, spec: str) -> None:
        """Raise TIRError if text may not write `value` in a string like that."""
        self.check(value)
        self.charge(self.size(value))
        if _WIDE.search(spec):
            raise TIRError(f"the format {spec!r} is too wide")


def _int(text: Any, *_: Any) -> None:
    if isinstance(text, str) and len(text) > _LIMIT_BITS:
        raise TIRError("the number is too long")


def _round(_: Any, digits: Any = 0) -> None:
    if isinstance(digits, int) and abs(digits) > _LIMIT_BITS:
        raise TIRError(f"round to {digits} digits is too much")


def _sum(_: Any, start: Any = 0) -> None:
    if type(start) in _CONTAINERS:
        raise TIRError("sum adds numbers and expressions, not sequences")


# Builtins that could take very long over few arguments, by identity.
_COSTLY: Mapping[int, Callable[..., None]] = {id(int): _int, id(round): _round, id(sum): _sum}


def _described(value: Any) -> str:
    name = getattr(value, "__name__", None)
    kind = "a module" if isinstance(value, ModuleType) else f"a {type(value).__name__}"
    return f"{name} ({kind})" if isinstance(name, str) else kind
