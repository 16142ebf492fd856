"""Dimensions that may depend on symbols: an int, or a short postfix program.

``("$n", 2, "*", 1, "+")`` means ``2 * n + 1``; a lone symbol is ``("$n",)``. Values are 64-bit
integers, floats and booleans. ``//`` and ``%`` round towards minus infinity, and dividing by zero
gives 0. A result that does not fit 64 bits is an error, never a wrapped number.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterator
from typing import Any, Protocol, TypeVar

from ..base import VerifyError, VMTypeError, VMValueError

Scalar = int | float | bool
Dim = int | tuple[int | float | str, ...]
_T = TypeVar("_T")


class Symbols(Protocol):
    """What gives symbols values."""

    def get(self, name: str, /) -> Scalar | None: ...

    def __iter__(self) -> Iterator[str]: ...


MAX_LENGTH = 4096
MAX_STACK = 256
_MAX_NAME = 256
_INT_MIN, _INT_MAX = -(1 << 63), (1 << 63) - 1


def _floordiv(a: Any, b: Any) -> Any:
    return a // b if b else 0


def _floormod(a: Any, b: Any) -> Any:
    return a % b if b else 0


def _truncdiv(a: int, b: int) -> int:
    if not b:
        return 0
    quotient = abs(a) // abs(b)
    return quotient if (a < 0) == (b < 0) else -quotient


def _truncmod(a: int, b: int) -> int:
    return a - _truncdiv(a, b) * b if b else 0


def _ceildiv(a: Any, b: Any) -> Any:
    return -(-a // b) if b else 0


def _shift_amount(b: int) -> int:
    if not 0 <= b < 64:
        raise VMValueError(f"shift: wanted an amount of 0 to 63, got {b}")
    return b


# Operator: (operands, meaning, binding strength as infix, whether it needs integers).
# Strength 0 is written as a call.
_OPERATORS: dict[str, tuple[int, Callable[..., Any], int, bool]] = {
    "+": (2, operator.add, 6, False),
    "-": (2, operator.sub, 6, False),
    "*": (2, operator.mul, 7, False),
    "//": (2, _floordiv, 7, False),
    "%": (2, _floormod, 7, False),
    "min": (2, min, 0, False),
    "max": (2, max, 0, False),
    "<": (2, operator.lt, 4, False),
    "<=": (2, operator.le, 4, False),
    ">": (2, operator.gt, 4, False),
    ">=": (2, operator.ge, 4, False),
    "==": (2, operator.eq, 4, False),
    "!=": (2, operator.ne, 4, False),
    "and": (2, lambda a, b: bool(a) and bool(b), 2, False),
    "or": (2, lambda a, b: bool(a) or bool(b), 1, False),
    "not": (1, operator.not_, 3, False),
    "select": (3, lambda c, a, b: a if c else b, 0, False),
    "truncdiv": (2, _truncdiv, 0, True),
    "truncmod": (2, _truncmod, 0, True),
    "shl": (2, lambda a, b: a << _shift_amount(b), 0, True),
    "shr": (2, lambda a, b: a >> _shift_amount(b), 0, True),
    "bitand": (2, operator.and_, 0, True),
    "bitor": (2, operator.or_, 0, True),
    "bitxor": (2, operator.xor, 0, True),
    "neg": (1, operator.neg, 8, False),
    "abs": (1, abs, 0, False),
    "ceildiv": (2, _ceildiv, 0, False),
}
_ATOM = 9


def is_symbol(dim: Dim) -> str | None:
    """The symbol's name if `dim` is a lone symbol, else None."""
    if type(dim) is tuple and len(dim) == 1 and type(dim[0]) is str:
        return dim[0][1:]
    return None


def symbols_of(dim: Dim) -> Iterator[str]:
    """The names of the symbols in `dim`, in order, repeated as they appear."""
    if type(dim) is tuple:
        for item in dim:
            if type(item) is str and item[:1] == "$":
                yield item[1:]


def check(dim: object, symbols: Collection[str] | None = None) -> None:
    """Raise VerifyError unless `dim` is a well-formed dimension (over `symbols`, if given)."""
    if type(dim) is int:
        _check_int(dim)
        return
    if type(dim) is not tuple:
        raise VerifyError(f"dimension: wanted an int or a postfix tuple, got {type(dim).__name__}")
    if not 1 <= len(dim) <= MAX_LENGTH:
        raise VerifyError(f"dimension: wanted 1 to {MAX_LENGTH} items, got {len(dim)}")
    depth = 0
    for position, item in enumerate(dim):
        if type(item) is int:
            _check_int(item)
            depth += 1
        elif type(item) is float:
            depth += 1
        elif type(item) is not str:
            raise VerifyError(
                f"dimension item {position}: wanted int, float or str, got {type(item).__name__}"
            )
        elif item[:1] == "$":
            if not 2 <= len(item) <= _MAX_NAME:
                raise VerifyError(
                    f"dimension item {position}: a symbol name is 1 to {_MAX_NAME} characters"
                )
            if symbols is not None and item[1:] not in symbols:
                raise VerifyError(
                    f"dimension item {position}: symbol {item[1:]!r} is not bound anywhere"
                )
            depth += 1
        else:
            known = _OPERATORS.get(item)
            if known is None:
                raise VerifyError(f"dimension item {position}: unknown operator {item[:40]!r}")
            if depth < known[0]:
                raise VerifyError(
                    f"dimension item {position}: {item!r} wants {known[0]} operands, got {depth}"
                )
            depth += 1 - known[0]
        if depth > MAX_STACK:
            raise VerifyError(f"dimension item {position}: more than {MAX_STACK} values wait")
    if depth != 1:
        raise VerifyError(f"dimension: wanted one value at the end, got {depth}")


def _check_int(value: int) -> None:
    if not _INT_MIN <= value <= _INT_MAX:
        raise VerifyError("dimension: an integer does not fit 64 bits")


def evaluate(dim: Dim, symbols: Symbols) -> Scalar:
    """The value of `dim`, which `check` has accepted.

    Raises VMValueError for an unbound symbol or a result outside 64 bits, VMTypeError for a float
    where only an integer makes sense.
    """
    if not isinstance(dim, tuple):
        return dim
    if len(dim) == 1 and type(dim[0]) is str:
        return _load(dim[0], symbols)
    stack: list[Any] = []
    for item in dim:
        if type(item) is not str:
            stack.append(item)
        elif item[0] == "$":
            stack.append(_load(item, symbols))
        else:
            stack.append(_apply(item, stack))
    result: Scalar = stack[0]
    return result


def _load(item: str, symbols: Symbols) -> Scalar:
    value = symbols.get(item[1:])
    if value is None:
        raise VMValueError(
            f"symbol {item[1:]!r} has no value yet; bound: {', '.join(symbols) or 'none'}"
        )
    return value


def _apply(name: str, stack: list[Any]) -> Any:
    count, meaning, _, integers = _OPERATORS[name]
    operands = stack[-count:]
    del stack[-count:]
    if integers and any(type(x) is float for x in operands):
        raise VMTypeError(f"{name}: wanted integers, got {operands}")
    result = meaning(*operands)
    if type(result) is int and not _INT_MIN <= result <= _INT_MAX:
        raise VMValueError(f"{name} of {operands} does not fit 64 bits")
    return result


def fold(
    dim: Dim,
    number: Callable[[Scalar], _T],
    symbol: Callable[[str], _T],
    apply: Callable[[str, list[_T]], _T],
) -> _T:
    """What `dim` means elsewhere, by the meanings of its numbers, of its symbols and of an operator
    on what its operands mean.
    """
    stack: list[_T] = []
    for item in dim if isinstance(dim, tuple) else (dim,):
        if not isinstance(item, str):
            stack.append(number(item))
        elif item[0] == "$":
            stack.append(symbol(item[1:]))
        else:
            start = len(stack) - _OPERATORS[item][0]
            stack[start:] = [apply(item, stack[start:])]
    return stack[0]


def format_dim(dim: Dim) -> str:
    """`dim` as infix text, such as ``2 * n + 1``, with no more brackets than needed."""
    if not isinstance(dim, tuple):
        return str(dim)
    text, _ = fold(
        dim,
        lambda value: (str(value), _ATOM if value >= 0 else 8),
        lambda name: (name, _ATOM),
        _format_operator,
    )
    return text


def _format_operator(name: str, operands: list[tuple[str, int]]) -> tuple[str, int]:
    count, _, strength, _ = _OPERATORS[name]
    if strength == 0:
        return f"{name}({', '.join(text for text, _ in operands)})", _ATOM
    if count == 1:
        return {"not": "not ", "neg": "-"}[name] + _bracket(operands[0], strength), strength
    # Comparisons do not chain, so both their sides bind tighter; the others group to the left.
    left = _bracket(operands[0], strength + 1 if strength == 4 else strength)
    return f"{left} {name} {_bracket(operands[1], strength + 1)}", strength


def _bracket(operand: tuple[str, int], wanted: int) -> str:
    text, strength = operand
    return text if strength >= wanted else f"({text})"


def dim_to_plain(dim: Dim) -> int | list[int | float | str]:
    """`dim` as msgpack stores it."""
    return list(dim) if isinstance(dim, tuple) else dim


def dim_from_plain(plain: object, symbols: Collection[str] | None = None) -> Dim:
    """The inverse of `dim_to_plain`, checked. Raises VerifyError."""
    dim: Any = tuple(plain) if type(plain) is list else plain
    check(dim, symbols)
    checked: Dim = dim
    return checked
