"""Rewrite rules as text: one identity a line, below what stands at the top of its left side.

A line is ``left -> right`` or ``left -> right if condition``. The names x, y, z, w stand for any
expression, p and q for any condition, c and d for integer constants; a name that repeats stands for
the same expression. Operands of min, max, both, either, +, * and the operators of bits may come in
either order. Those of `_INTS` hold for integers only (wrapping ones too), those of `_ALL` for any
dtype. Rules are read when an expression of their kind is first met.
"""

from __future__ import annotations

import ast
import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ..base import NamedTuple
from ..ir import (
    EQ,
    GE,
    GT,
    LE,
    LT,
    NE,
    Add,
    And,
    Call,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Max,
    Min,
    Mul,
    Not,
    Op,
    Or,
    PrimExpr,
    Select,
    Sub,
    as_expr,
    match,
)

_INTS = {
    "min": """
        min(max(x, y), x) -> x
        min(max(x, y), max(x, z)) -> max(min(y, z), x)
        min(x // c, y // c) -> min(x, y) // c if c > 0
        min(x // c, y // c) -> max(x, y) // c if c < -1
        min(tdiv(x, c), tdiv(y, c)) -> tdiv(min(x, y), c) if c > 0
        min(tdiv(x, c), tdiv(y, c)) -> tdiv(max(x, y), c) if c < -1
        min(select(p, x, y), select(p, z, w)) -> select(p, min(x, z), min(y, w))
    """,
    "max": """
        max(min(x, y), x) -> x
        max(min(x, y), min(x, z)) -> min(max(y, z), x)
        max(x // c, y // c) -> max(x, y) // c if c > 0
        max(x // c, y // c) -> min(x, y) // c if c < -1
        max(tdiv(x, c), tdiv(y, c)) -> tdiv(max(x, y), c) if c > 0
        max(tdiv(x, c), tdiv(y, c)) -> tdiv(min(x, y), c) if c < -1
        max(select(p, x, y), select(p, z, w)) -> select(p, max(x, z), max(y, w))
    """,
    "*": "min(x, y) * max(x, y) -> x * y",
    "+": "select(p, x, y) + select(p, z, w) -> select(p, x + z, y + w)",
    "-": """
        select(p, x, y) - select(p, z, w) -> select(p, x - z, y - w)
        select(p, x, y) - x -> select(p, 0, y - x)
        select(p, x, y) - y -> select(p, x - y, 0)
    """,
    "select": """
        select(x < y, x, y) -> min(x, y)
        select(x < y, y, x) -> max(x, y)
        select(x <= y, x, y) -> min(x, y)
        select(x <= y, y, x) -> max(x, y)
        select(x > y, x, y) -> max(x, y)
        select(x > y, y, x) -> min(x, y)
        select(x >= y, x, y) -> max(x, y)
        select(x >= y, y, x) -> min(x, y)
    """,
    "&": """
        x & x -> x
        x & 0 -> 0
    """,
    "|": """
        x | x -> x
        x | 0 -> x
    """,
    "^": """
        x ^ x -> 0
        x ^ 0 -> x
    """,
}
_ALL = {
    "select": """
        select(no(p), x, y) -> select(p, y, x)
        select(p, select(p, x, y), z) -> select(p, x, z)
        select(p, x, select(p, y, z)) -> select(p, x, z)
        select(p, true, false) -> p
    """,
    "when": """
        when(p, when(q, x, y), y) -> when(both(p, q), x, y)
        when(p, when(p, x, y), z) -> when(p, x, z)
    """,
    "both": """
        both(p, both(p, q)) -> both(p, q)
        both(p, either(p, q)) -> p
    """,
    "either": """
        either(p, either(p, q)) -> either(p, q)
        either(p, both(p, q)) -> p
    """,
    "no": "no(no(p)) -> p",
}

_CALLS = {
    "when": Op.get("tir.if_then_else"),
    "tdiv": Op.get("tir.truncdiv"),
    "&": Op.get("tir.bitwise_and"),
    "|": Op.get("tir.bitwise_or"),
    "^": Op.get("tir.bitwise_xor"),
}
_CLASSES: dict[str, Any] = {
    "min": Min,
    "max": Max,
    "both": And,
    "either": Or,
    "no": Not,
    "select": Select,
}
_SIGNS: dict[str, Any] = {"+": Add, "-": Sub, "*": Mul}
_HEADS = {**_CALLS, **_CLASSES, **_SIGNS}
_OPERATORS: dict[type, Any] = {
    ast.Add: Add,
    ast.Sub: Sub,
    ast.Mult: Mul,
    ast.FloorDiv: FloorDiv,
    ast.Mod: FloorMod,
    ast.BitAnd: _CALLS["&"],
    ast.BitOr: _CALLS["|"],
    ast.BitXor: _CALLS["^"],
    ast.Lt: LT,
    ast.LtE: LE,
    ast.Gt: GT,
    ast.GtE: GE,
    ast.Eq: EQ,
    ast.NotEq: NE,
}
_COMMUTES = (Min, Max, And, Or, Add, Mul, _CALLS["&"], _CALLS["|"], _CALLS["^"])


class _Shape(NamedTuple):
    """An operation (a node class, or the `Op` of a call) on patterns: names, ints or shapes."""

    head: Any
    parts: tuple[Any, ...]


class _Rule(NamedTuple):
    left: _Shape
    right: Any
    condition: Callable[[dict[str, Any]], bool] | None
    ints: bool


def head_of(e: PrimExpr) -> Any:
    """The class of an expression, or the operation that it calls."""
    return e.op if isinstance(e, Call) else type(e)


def operands_of(e: Any) -> tuple[PrimExpr, ...]:
    """The operands that a pattern sees."""
    if isinstance(e, Select):
        return e.condition, e.true_value, e.false_value
    return e.args if isinstance(e, Call) else (e.a,) if isinstance(e, Not) else (e.a, e.b)


def rewritten(e: PrimExpr) -> PrimExpr | None:
    """`e` by the first rule that fits, or None."""
    rules = _TABLE.get(e.op if type(e) is Call else type(e))
    if rules is None:
        return None
    parts = operands_of(e)
    for rule in rules.that_may_fit(tuple(map(head_of, parts[:2]))):
        bound: dict[str, Any] = {}
        if rule.ints and not (e.dtype.is_int and parts[-1].dtype.is_int):
            continue
        if _fits(rule.left, e, bound) and (rule.condition is None or rule.condition(bound)):
            return _build(rule.right, bound, e)
    return None


def _fits(pattern: Any, e: PrimExpr, bound: dict[str, Any]) -> bool:
    if isinstance(pattern, _Shape):
        if head_of(e) is not pattern.head and not (
            pattern.head is _CALLS["tdiv"] and isinstance(e, Div)
        ):
            return False
        return all(_fits(p, part, bound) for p, part in zip(pattern.parts, operands_of(e)))
    if isinstance(pattern, (int, bool)):
        same = isinstance(e, IntImm) and e.value == pattern
        return same and e.dtype.is_bool == isinstance(pattern, bool)
    if pattern in ("c", "d") and not isinstance(e, IntImm):
        return False
    return bound.setdefault(pattern, e) is e


def _build(right: Any, bound: dict[str, Any], like: PrimExpr) -> PrimExpr:
    if isinstance(right, str):
        whole: PrimExpr = bound[right]
        return whole
    if not isinstance(right, _Shape):
        return match(right, like)[0] if not isinstance(right, bool) else as_expr(right)
    parts = [_build(p, bound, like) if isinstance(p, _Shape) else p for p in right.parts]
    exprs = [bound[p] if isinstance(p, str) else p for p in parts]
    typed = next((x for x in reversed(exprs) if isinstance(x, PrimExpr)), like)
    exprs = [match(x, typed)[0] if isinstance(x, int) else x for x in exprs]
    if isinstance(right.head, Op):
        return Call(exprs[-1].dtype, right.head, tuple(exprs))
    built: PrimExpr = right.head(*exprs)
    return built


# -- reading the text ------------------------------------------------------------------------------


class _Rules:
    """The rules whose left side has one head, and those of them that can fit operands of the given
    heads: read, and found for a pair of heads, once.
    """

    __slots__ = ("_by_heads", "_name", "_rules")

    def __init__(self, name: str) -> None:
        self._name = name
        self._rules: list[_Rule] | None = None
        self._by_heads: dict[tuple[Any, ...], list[_Rule]] = {}

    def that_may_fit(self, heads: tuple[Any, ...]) -> list[_Rule]:
        fitting = self._by_heads.get(heads)
        if fitting is None:
            if self._rules is None:
                self._rules = [
                    *_read_rules(_INTS.get(self._name, ""), True),
                    *_read_rules(_ALL.get(self._name, ""), False),
                ]
            fitting = [r for r in self._rules if all(map(_may_fit, r.left.parts, heads))]
            self._by_heads[heads] = fitting
        return fitting


_TABLE = {_HEADS[name]: _Rules(name) for name in {**_INTS, **_ALL}}


def _may_fit(pattern: Any, head: Any) -> bool:
    if isinstance(pattern, _Shape):
        return pattern.head is head or (pattern.head is _CALLS["tdiv"] and head is Div)
    return isinstance(pattern, str) or head is IntImm


def _read_rules(text: str, ints: bool) -> Iterator[_Rule]:
    for line in text.strip().splitlines():
        body, _, condition = line.partition(" if ")
        left, _, right = body.partition(" -> ")
        test = _condition(condition) if condition else None
        meaning = _read(ast.parse(right.strip(), mode="eval").body)
        for shape in dict.fromkeys(_orders(_read(ast.parse(left.strip(), mode="eval").body))):
            yield _Rule(shape, meaning, test, ints)


def _condition(text: str) -> Callable[[dict[str, Any]], bool]:
    code = compile(text, "<rule>", "eval")

    def holds(bound: dict[str, Any]) -> bool:
        values = {k: v.value for k, v in bound.items() if isinstance(v, IntImm)}
        return bool(eval(code, {"__builtins__": {}}, values))

    return holds


def _read(n: ast.expr) -> Any:
    if isinstance(n, ast.Name):
        return {"true": True, "false": False}.get(n.id, n.id)
    if isinstance(n, ast.Constant):
        return n.value
    if isinstance(n, ast.BinOp):
        return _Shape(_OPERATORS[type(n.op)], (_read(n.left), _read(n.right)))
    if isinstance(n, ast.Compare):
        return _Shape(_OPERATORS[type(n.ops[0])], (_read(n.left), _read(n.comparators[0])))
    assert isinstance(n, ast.Call)
    assert isinstance(n.func, ast.Name)
    head = _CLASSES.get(n.func.id) or _CALLS[n.func.id]
    return _Shape(head, tuple(_read(a) for a in n.args))


def _orders(pattern: Any) -> list[Any]:
    """The pattern with the operands of what commutes in every order."""
    if not isinstance(pattern, _Shape):
        return [pattern]
    orders = []
    for parts in itertools.product(*map(_orders, pattern.parts)):
        orders.append(_Shape(pattern.head, parts))
        if pattern.head in _COMMUTES:
            orders.append(_Shape(pattern.head, parts[::-1]))
    return orders
