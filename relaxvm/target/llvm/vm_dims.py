"""Dimension programs (`runtime.dims`) as 64-bit integer code. Where the true result does not fit
64 bits, or a shift is out of range, the function leaves, so that the interpreter says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial

from ...base import llvm
from ...runtime.dims import Dim, Scalar, fold
from .vm_body import Body
from .vm_values import Size

_MIN = -(1 << 63)
_MAX = (1 << 63) - 1
# Every operation is a branch: LLVM's time grows faster than their number.
_MAX_ITEMS = 256
_CHECKED = {"+": "sadd", "-": "ssub", "*": "smul"}
_COMPARE = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_BITS = {"bitand": "and", "bitor": "or", "bitxor": "xor"}


def dim_value(body: Body, dim: Dim, symbol: Callable[[str], Size]) -> Size:
    """The value of a program whose symbols are given by `symbol`."""
    if isinstance(dim, tuple) and len(dim) > _MAX_ITEMS:
        body.leave("a very long dimension is computed")

    def number(value: Scalar) -> Size:
        if isinstance(value, float):
            body.leave("a dimension is computed with floats")
        return int(value)

    return fold(dim, number, symbol, partial(_apply, body))


def product(body: Body, sizes: Iterable[Size], fits: bool = False) -> Size:
    """The product; leaves where it does not fit. fits: it does, as that of memory that exists"""
    total: Size = 1
    for size in sizes:
        total = _arithmetic(body, "smul", total, size, fits)
    return total


def sum_of(body: Body, sizes: Iterable[Size]) -> Size:
    """The sum of sizes of memory that exists."""
    total: Size = 0
    for size in sizes:
        total = _arithmetic(body, "sadd", total, size, True)
    return total


def _apply(body: Body, name: str, operands: list[Size]) -> Size:
    text = body.text
    if name in _CHECKED:
        return _arithmetic(body, _CHECKED[name], operands[0], operands[1])
    a, *others = (llvm.constant(each, "i64") for each in operands)
    if name == "select":
        return text.select(_truth(body, a), *others)
    if name == "not":
        return _bool(body, text.not_(_truth(body, a)))
    if name in ("neg", "abs"):
        negative = _arithmetic(body, "ssub", 0, operands[0])
        return negative if name == "neg" else text.select(text.op("icmp slt", a, 0), negative, a)
    (b,) = others
    if name in _COMPARE:
        return _bool(body, text.op(f"icmp {_COMPARE[name]}", a, b))
    if name in ("and", "or"):
        return _bool(body, text.op(name, _truth(body, a), _truth(body, b)))
    if name in ("min", "max"):
        return text.select(text.op("icmp sle" if name == "min" else "icmp sge", a, b), a, b)
    if name in _BITS:
        return text.op(_BITS[name], a, b)
    return _shift(body, name, a, b) if name in ("shl", "shr") else _divide(body, name, a, b)


def _arithmetic(body: Body, name: str, a: Size, b: Size, fits: bool = False) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        exact = {"sadd": a + b, "ssub": a - b, "smul": a * b}[name]
        if _MIN <= exact <= _MAX:
            return exact
        body.leave("a dimension does not fit 64 bits")
    if name == "smul" and 1 in (a, b):
        return b if a == 1 else a
    if name == "sadd" and 0 in (a, b):
        return b if a == 0 else a
    key, made_of = f"{name} {a} {b}", None
    if name == "smul":
        # However the factors come together, the product is the same, and fits or does not.
        (c, some), (d, others) = _factors(body, a), _factors(body, b)
        made_of = c * d, tuple(sorted(some + others))
        key = f"smul {made_of}"
    if key in body.known:
        return body.known[key]
    both = (llvm.constant(each, "i64") for each in (a, b))
    if fits:
        result = body.text.op(name[1:], *both)
    else:
        pair = body.text.extern("{ i64, i1 }", f"llvm.{name}.with.overflow.i64", *both)
        result = body.text.field(pair, 0)
        body.guard(body.text.field(pair, 1))
    body.known[key] = result
    if made_of is not None:
        body.factors[result] = made_of
    return result


def _factors(body: Body, size: Size) -> tuple[int, tuple[Size, ...]]:
    """A number and what else a size is the product of."""
    return (size, ()) if isinstance(size, int) else body.factors.get(size, (1, (size,)))


def _shift(body: Body, name: str, a: llvm.Value, b: llvm.Value) -> Size:
    text = body.text
    body.guard(text.op("icmp ugt", b, 63))
    if name == "shr":
        return text.op("ashr", a, b)
    shifted = text.op("shl", a, b)
    back = text.op("ashr", shifted, b)
    body.guard(text.op("icmp ne", back, a))
    return shifted


def _divide(body: Body, name: str, a: llvm.Value, b: llvm.Value) -> Size:
    """Dividing by zero gives 0; the least int by -1 does not fit."""
    text = body.text
    zero = text.op("icmp eq", b, 0)
    least = text.op("icmp eq", a, _MIN)
    minus = text.op("icmp eq", b, -1)
    body.guard(text.op("and", least, minus))
    divisor = text.select(zero, 1, b)
    quotient = text.op("sdiv", a, divisor)
    rest = text.op("srem", a, divisor)
    if name in ("//", "%", "ceildiv"):
        uneven = text.op("icmp ne", rest, 0)
        signs = text.op("xor", rest, divisor)
        differ = text.op("icmp slt", signs, 0)
        if name == "ceildiv":
            differ = body.text.not_(differ)
        fix = text.op("and", uneven, differ)
        one = text.cast("zext", fix, "i64")
        if name == "//":
            quotient = text.op("sub", quotient, one)
        elif name == "ceildiv":
            quotient = text.op("add", quotient, one)
        else:
            fixed = text.op("add", rest, divisor)
            rest = text.select(fix, fixed, rest)
    result = rest if name in ("%", "truncmod") else quotient
    return text.select(zero, 0, result)


def _truth(body: Body, value: Size) -> llvm.Value:
    return body.text.op("icmp ne", llvm.constant(value, "i64"), 0)


def _bool(body: Body, condition: llvm.Value) -> llvm.Value:
    return body.text.cast("zext", condition, "i64")
