"""Expressions of script text: an interpreter of Python's expression syntax over Python values and
IR.

Sub-expressions of plain Python values mean what Python says; operators on IR build IR. Nothing is
compiled or executed by Python itself. Long sums are evaluated in a loop; everything else nests no
deeper than Python's own parentheses.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import operator
from collections.abc import Callable, Iterator, Mapping
from types import ModuleType
from typing import Any, NoReturn, TypeVar

import numpy as np

from ...base import InternalError, ParseError, Span, did_you_mean
from ...ir import (
    EQ,
    NE,
    And,
    BaseFunc,
    GlobalInfo,
    Map,
    Node,
    Not,
    Or,
    PrimExpr,
    Range,
    Var,
    binary,
    walk,
)
from ...relax import Expr, ExternFunc, StructInfo
from ...target import Target
from ...te import CommReducer
from ...tir import Buffer, BufferRegion, IndexMap, IterVar, if_then_else
from ...tir import max as tir_max
from ...tir import min as tir_min
from .guards import UNCOUNTED, Guard, is_decorator
from .outer import MISSING, Outer
from .proxies import DTypeFunction, Lambda, signature_of
from .source import Source

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.LShift: operator.lshift,
    ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.BitXor: operator.xor,
    ast.MatMult: operator.matmul,
}

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Invert: operator.invert,
}


def _equal(a: Any, b: Any) -> Any:
    # `PrimExpr.__eq__` answers False for operands it cannot compare; here that is a mistake.
    return binary(EQ, a, b) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr) else a == b


def _not_equal(a: Any, b: Any) -> Any:
    return binary(NE, a, b) if isinstance(a, PrimExpr) or isinstance(b, PrimExpr) else a != b


_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: _equal,
    ast.NotEq: _not_equal,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Is: operator.is_,
    ast.IsNot: operator.is_not,
    ast.In: lambda a, b: a in b,
    ast.NotIn: lambda a, b: a not in b,
}

_WHAT = {
    ast.NamedExpr: "an assignment inside an expression",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.Starred: "a starred expression here",
}


T = TypeVar("T")


class Hidden:
    """Stands for a name that exists but may not be used; `why` says so in an error."""

    def __init__(self, why: str) -> None:
        self.why = why


class Evaluator:
    """Evaluates expressions in scopes of script names over a layer of Python names.

    guard  what the text may do, if it may come from anyone; None for the user's own Python
    """

    def __init__(self, source: Source, outer: Outer, guard: Guard | None) -> None:
        self.source = source
        self.outer = outer
        self.guard = guard
        self.scopes: list[dict[str, Any]] = [{}]

    # -- names and places

    @contextlib.contextmanager
    def scope(self) -> Iterator[dict[str, Any]]:
        """Names bound inside are gone afterwards."""
        names: dict[str, Any] = {}
        self.scopes.append(names)
        try:
            yield names
        finally:
            self.scopes.pop()

    def define(self, name: str, value: Any) -> None:
        """Bind `name` in the innermost scope."""
        self.scopes[-1][name] = value

    def find(self, name: str) -> Any:
        """What the script itself has bound to `name`, or `MISSING`."""
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        return MISSING

    def span(self, node: ast.AST) -> Span:
        """The place of a syntax node."""
        return self.source.span(node)

    def fail(self, node: ast.AST, message: str) -> NoReturn:
        """Raise a ParseError that points at `node`."""
        raise self.source.error(node, message)

    def wrap(self, node: ast.AST, error: Exception) -> Exception:
        """`error`, raised while `node` was evaluated, as a ParseError that points there."""
        if isinstance(error, InternalError):
            return error
        if isinstance(error, ParseError):
            return error if error.lineno else self.source.error(node, error.msg)
        if isinstance(error, RecursionError):
            return self.source.error(node, "this is nested too deeply")
        known = type(error).__module__.startswith("relaxvm")
        text = str(error) if known else f"{type(error).__name__}: {error}"
        return self.source.error(node, text)

    def at(self, node: ast.AST, parse: Callable[[], T]) -> T:
        """``parse()``, with mistakes that have no place yet pointing at `node`."""
        try:
            return parse()
        except Exception as error:
            # Whatever goes wrong while IR is built is a mistake at this place of the text.
            placed = self.wrap(node, error)
            if placed is error:
                raise
            raise placed from error

    # -- the walk

    def eval(self, node: ast.expr) -> Any:
        """The value of an expression. Raises ParseError at the innermost part that fails."""
        handler = _TABLE.get(type(node))
        if handler is None:
            what = _WHAT.get(type(node), type(node).__name__)
            self.fail(node, f"{what} is not in the language")
        try:
            return handler(self, node)
        except ParseError:
            raise
        except Exception as error:
            # Whatever goes wrong while an expression is built is a mistake at this place of the
            # text.
            raise self.wrap(node, error) from error

    def _constant(self, node: ast.Constant) -> Any:
        return node.value

    def _name(self, node: ast.Name) -> Any:
        value = self.find(node.id)
        if value is MISSING:
            value = self.outer.lookup(node.id)
        if value is MISSING:
            names = [name for scope in self.scopes for name in scope] + self.outer.names()
            self.fail(node, f"unknown name {node.id}{did_you_mean(node.id, names)}")
        if isinstance(value, Hidden):
            self.fail(node, value.why)
        if self.guard is None or type(value) in UNCOUNTED:
            return value
        return self.guard.used(value)

    def _attribute(self, node: ast.Attribute) -> Any:
        value = self.eval(node.value)
        attribute = self.attribute(value, node.attr)
        if attribute is MISSING:
            self._no_attribute(node, value)
        return attribute

    def attribute(self, value: Any, name: str) -> Any:
        """``value.name``, or MISSING"""
        if self.guard is not None:
            return self.guard.attribute(value, name)
        return getattr(value, name, MISSING)

    def _no_attribute(self, node: ast.Attribute, value: Any) -> NoReturn:
        what = f"a {type(value).__name__}"
        if isinstance(node.value, ast.Name):
            is_room = isinstance(value, ModuleType)
            what = node.value.id if is_room else f"{node.value.id} ({what})"
        guard = self.guard
        known = [n for n in dir(value) if n[0] != "_"] if guard is None else guard.names_of(value)
        self.fail(node, f"{what} has no {node.attr}{did_you_mean(node.attr, known)}")

    def _subscript(self, node: ast.Subscript) -> Any:
        value = self.eval(node.value)
        return self.subscript(node, value, self.eval(node.slice))

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """``value[index]``"""
        return value[index] if self.guard is None else self.guard.subscript(value, index)

    def _slice(self, node: ast.Slice) -> slice:
        parts = (node.lower, node.upper, node.step)
        return slice(*(None if part is None else self.eval(part) for part in parts))

    def _elements(self, nodes: list[ast.expr]) -> list[Any]:
        values: list[Any] = []
        for each in nodes:
            if isinstance(each, ast.Starred):
                values.extend(self.iterate(each, self.eval(each.value)))
            else:
                values.append(self.eval(each))
        return values

    def _held(self, items: Any) -> Any:
        """A container that was written or computed."""
        return items if self.guard is None else self.guard.held(items)

    def _tuple(self, node: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self._held(self._elements(node.elts)))

    def _list(self, node: ast.List) -> list[Any]:
        return self._held(self._elements(node.elts))

    def _set(self, node: ast.Set) -> set[Any]:
        return set(self._held(self._elements(node.elts)))

    def _dict(self, node: ast.Dict) -> dict[Any, Any]:
        entries: dict[Any, Any] = {}
        written = set()
        for key, value in zip(node.keys, node.values):
            if key is None:
                entries.update(self.eval(value))
                continue
            name = self.eval(key)
            if name in written:
                self.fail(key, f"the key {name!r} stands twice in one dict")
            written.add(name)
            entries[name] = self.eval(value)
        return self._held(entries)

    # -- calls

    def _call(self, node: ast.Call) -> Any:
        func = self.eval(node.func)
        args, keywords = self.arguments(node)
        return self.call(node, func, args, keywords)

    def arguments(self, node: ast.Call) -> tuple[list[Any], dict[str, Any]]:
        """The evaluated arguments of a call."""
        args = self._elements(node.args)
        keywords: dict[str, Any] = {}
        for each in node.keywords:
            value = self.eval(each.value)
            named: Mapping[str, Any] = value if each.arg is None else {each.arg: value}
            for name in named:
                if name in keywords:
                    self.fail(node, f"argument {name} is given twice")
            keywords.update(named)
        return args, keywords

    def apply(self, node: ast.Call, func: Any, args: list[Any], keywords: dict[str, Any]) -> Any:
        """As `call`, with mistakes pointing at the call."""
        try:
            return self.call(node, func, args, keywords)
        except ParseError:
            raise
        except Exception as error:
            # Whatever goes wrong while a call is built is a mistake at this place of the text.
            raise self.wrap(node, error) from error

    def call(self, node: ast.Call, func: Any, args: list[Any], keywords: dict[str, Any]) -> Any:
        """``func(*args, **keywords)``"""
        if not callable(func):
            self.fail(node, f"{type(func).__name__} cannot be called")
        if getattr(func, "__module__", "") == builtins.__name__:
            if func in (min, max) and any(isinstance(a, PrimExpr) for a in args):
                func = tir_min if func is min else tir_max
            # Python would index such a value for ever.
            for value in args:
                self._check_iterable(node, value, only_indexed=True)
        elif is_decorator(func):
            self.fail(node, f"{func.__name__} decorates a definition; it is no function to call")
        if self.guard is not None:
            return self.guard.call(func, args, keywords)
        return func(*args, **keywords)

    def _check_iterable(self, node: ast.AST, value: Any, only_indexed: bool) -> None:
        kind = type(value)
        if getattr(kind, "__iter__", None) is None and (
            not only_indexed or hasattr(kind, "__getitem__")
        ):
            self.fail(node, f"a {kind.__name__} cannot be iterated over in Python")

    def iterate(self, node: ast.AST, value: Any) -> Iterator[Any]:
        """The elements of a Python collection."""
        self._check_iterable(node, value, only_indexed=False)
        for item in value:
            if self.guard is not None:
                self.guard.visit()
            yield item

    # -- operators

    def operand(self, value: Any) -> Any:
        """`value` as it takes part in arithmetic."""
        return value

    def _binary(self, node: ast.expr) -> Any:
        # A long sum is a long spine to the left.
        spine: list[ast.BinOp] = []
        while isinstance(node, ast.BinOp):
            spine.append(node)
            node = node.left
        value = self.operand(self.eval(node))
        while spine:
            each = spine.pop()
            right = self.operand(self.eval(each.right))
            try:
                value = self.operate(type(each.op), value, right)
            except ParseError:
                raise
            except Exception as error:
                raise self.wrap(each, error) from error
        return value

    def operate(self, op: type[ast.operator], left: Any, right: Any) -> Any:
        """``left op right``"""
        if self.guard is not None:
            self.guard.operands(op, left, right)
        return _BINARY[op](left, right)

    def _unary(self, node: ast.expr) -> Any:
        signs: list[ast.UnaryOp] = []
        while isinstance(node, ast.UnaryOp):
            signs.append(node)
            node = node.operand
        value = self.operand(self.eval(node))
        while signs:
            op = signs.pop().op
            if isinstance(op, ast.Not):
                value = Not(value) if self.is_expression(value) else not value
            else:
                value = _UNARY[type(op)](value)
        return value

    def is_expression(self, value: Any) -> bool:
        """Whether the truth of `value` is not known before the program runs."""
        return isinstance(value, PrimExpr)

    def _logical(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        result: Any = MISSING
        for each in node.values:
            value = self.operand(self.eval(each))
            if result is MISSING:
                result = value
            elif self.is_expression(result) or self.is_expression(value):
                result = (And if is_and else Or)(result, value)
            else:
                result = value
            if not self.is_expression(result) and bool(result) is not is_and:
                return result
        return result

    def _compare(self, node: ast.Compare) -> Any:
        left = self.operand(self.eval(node.left))
        result: Any = MISSING
        for op, each in zip(node.ops, node.comparators):
            right = self.operand(self.eval(each))
            if self.guard is not None:
                self.guard.compared(left, right)
            value = _COMPARE[type(op)](left, right)
            if result is MISSING:
                result = value
            elif self.is_expression(result) or self.is_expression(value):
                result = And(result, value)
            else:
                result = value
            if not self.is_expression(result) and not result:
                return result
            left = right
        return result

    def _if_expression(self, node: ast.IfExp) -> Any:
        condition = self.eval(node.test)
        if not self.is_expression(condition):
            return self.eval(node.body if condition else node.orelse)
        return if_then_else(
            condition, self.operand(self.eval(node.body)), self.operand(self.eval(node.orelse))
        )

    def _lambda(self, node: ast.Lambda) -> Lambda:
        former = (self.source, self.outer, [*self.scopes], self.guard)
        steps = sum(1 for _ in ast.walk(node.body))

        def evaluate(values: Mapping[str, Any]) -> Any:
            if self.guard is not None:
                self.guard.charge(steps)
                self.guard.visit()
            now = (self.source, self.outer, self.scopes, self.guard)
            self.source, self.outer, scopes, self.guard = former
            self.scopes = [*scopes, dict(values)]
            try:
                return self.eval(node.body)
            finally:
                self.source, self.outer, self.scopes, self.guard = now

        return Lambda(signature_of(node.args, self.eval), evaluate)

    # -- text and comprehensions

    def _joined(self, node: ast.JoinedStr) -> str:
        return "".join(self._held([str(self.eval(part)) for part in node.values]))

    def _formatted(self, node: ast.FormattedValue) -> str:
        value = self.eval(node.value)
        spec = "" if node.format_spec is None else self.eval(node.format_spec)
        if self.guard is not None:
            self.guard.text(value, spec)
        return format(_CONVERSIONS[node.conversion](value), spec)

    def _generate(self, generators: list[ast.comprehension], make: Callable[[], None]) -> None:
        if not generators:
            make()
            return
        first, *rest = generators
        if first.is_async:
            self.fail(first.target, "an async comprehension is not in the language")
        for item in self.iterate(first.iter, self.eval(first.iter)):
            self.unpack(first.target, item, lambda target, value: self.define(target.id, value))
            for condition in first.ifs:
                if not self.eval(condition):
                    break
            else:
                self._generate(rest, make)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> list[Any]:
        out: list[Any] = []
        with self.scope():
            self._generate(node.generators, lambda: out.append(self.eval(node.elt)))
        return self._held(out)

    def _set_comprehension(self, node: ast.SetComp) -> set[Any]:
        out: set[Any] = set()
        with self.scope():
            self._generate(node.generators, lambda: out.add(self.eval(node.elt)))
        return self._held(out)

    def _dict_comprehension(self, node: ast.DictComp) -> dict[Any, Any]:
        out: dict[Any, Any] = {}

        def make() -> None:
            out[self.eval(node.key)] = self.eval(node.value)

        with self.scope():
            self._generate(node.generators, make)
        return self._held(out)

    def unpack(self, target: ast.expr, value: Any, bind: Callable[[ast.Name, Any], None]) -> None:
        """Give `value` to the names of `target`, a name or a pattern of them.

        Raises ParseError where the numbers differ or the target is something else.
        """
        if isinstance(target, ast.Name):
            bind(target, value)
            return
        if not isinstance(target, (ast.Tuple, ast.List)):
            self.fail(target, "wanted a name or a tuple of names here")
        items = list(self.iterate(target, value))
        names = target.elts
        starred = [i for i, each in enumerate(names) if isinstance(each, ast.Starred)]
        if starred:
            star, after = starred[0], len(names) - starred[0] - 1
            if len(starred) > 1 or len(items) < len(names) - 1:
                self.fail(target, f"cannot unpack {len(items)} values into {len(names)} names")
            middle = items[star : len(items) - after]
            items = [*items[:star], middle, *items[len(items) - after :]]
        elif len(items) != len(names):
            self.fail(target, f"wanted {len(names)} values for these names, got {len(items)}")
        for each, item in zip(names, items):
            inner = each.value if isinstance(each, ast.Starred) else each
            self.unpack(inner, item, bind)

    # -- helpers for the languages

    def string(self, node: ast.AST, value: Any, what: str) -> str:
        """`value` if it is a string. Raises ParseError otherwise."""
        if not isinstance(value, str):
            self.fail(node, f"{what}: wanted a string, got {type(value).__name__}")
        return value

    def attributes(self, node: ast.AST, value: Any, what: str) -> dict[str, Any]:
        """`value` as an attribute map with string keys; bool constants as Python's. Raises
        ParseError otherwise.
        """
        if not isinstance(value, Mapping):
            self.fail(node, f"{what}: wanted a dict, got {type(value).__name__}")
        attributes = {}
        for key, item in value.items():
            name = self.string(node, key, f"{what}: a key")
            attributes[name] = self.remark(node, item, f"{what}: {name!r}")
        return attributes

    def remark(self, node: ast.AST, value: Any, what: str) -> Any:
        """`value` as an attribute: numbers, text, None, IR, and lists and dicts of these.

        Constants of dtype bool become Python's, names of dtypes text. Raises ParseError for
        anything else: it could not be printed and read back.
        """
        if value is None or isinstance(value, (bool, int, float)):
            return value
        if isinstance(value, DTypeFunction):
            value = value.dtype
        if isinstance(value, str):
            return str.__str__(value)
        if isinstance(value, (list, tuple)):
            return tuple(self.remark(node, v, what) for v in value)
        if isinstance(value, Mapping):
            return Map(self.attributes(node, value, what))
        if isinstance(value, np.generic):
            return self.remark(node, value.item(), what)
        if isinstance(value, PrimExpr) and value.dtype.is_bool and hasattr(value, "value"):
            return bool(value.value)
        is_body = isinstance(value, BaseFunc) and not isinstance(value, ExternFunc)
        if not isinstance(value, _REMARKS) or is_body:
            name = getattr(value, "__name__", "")
            self.fail(
                node,
                f"{what}: wanted a number, text, IR, or a list or dict of these, "
                f"got {type(value).__name__} {name}".rstrip(),
            )
        self._check_symbols(node, value, what)
        return value

    def _check_symbols(self, node: ast.AST, value: Node, what: str) -> None:
        """Refuse scalar variables that no name of the script leads to: text cannot say which."""
        nodes = walk(value)
        free = {v: None for v in nodes if isinstance(v, Var)}
        for n in nodes:
            if isinstance(n, (CommReducer, IndexMap)):
                for own in (getattr(n, field) for field in n._defs_):
                    for v in own:
                        free.pop(v, None)
        if free:
            for scope in self.scopes:
                for known in scope.values():
                    for each in known if isinstance(known, tuple) else (known,):
                        if isinstance(each, Node):
                            for v in walk(each):
                                if isinstance(v, Var):
                                    free.pop(v, None)
        if free and not isinstance(value, IterVar):
            self.fail(node, f"{what}: the variable {next(iter(free)).name!r} is bound nowhere")


# What `!r`, `!s` and `!a` in an f-string do, and nothing.
_CONVERSIONS: Mapping[int, Callable[[Any], Any]] = {
    -1: lambda value: value,
    ord("r"): repr,
    ord("s"): str,
    ord("a"): ascii,
}

# IR that the text form can write as the value of an attribute.
_REMARKS = (
    PrimExpr, Range, IterVar, Buffer, BufferRegion, Target, GlobalInfo, StructInfo, Expr,
    CommReducer, IndexMap,
)  # fmt: skip

_TABLE: dict[type[ast.AST], Callable[[Evaluator, Any], Any]] = {
    ast.Constant: Evaluator._constant,
    ast.Name: Evaluator._name,
    ast.Attribute: Evaluator._attribute,
    ast.Subscript: Evaluator._subscript,
    ast.Slice: Evaluator._slice,
    ast.Tuple: Evaluator._tuple,
    ast.List: Evaluator._list,
    ast.Set: Evaluator._set,
    ast.Dict: Evaluator._dict,
    ast.Call: Evaluator._call,
    ast.BinOp: Evaluator._binary,
    ast.UnaryOp: Evaluator._unary,
    ast.BoolOp: Evaluator._logical,
    ast.Compare: Evaluator._compare,
    ast.IfExp: Evaluator._if_expression,
    ast.Lambda: Evaluator._lambda,
    ast.JoinedStr: Evaluator._joined,
    ast.FormattedValue: Evaluator._formatted,
    ast.ListComp: Evaluator._comprehension,
    ast.GeneratorExp: Evaluator._comprehension,
    ast.SetComp: Evaluator._set_comprehension,
    ast.DictComp: Evaluator._dict_comprehension,
}
