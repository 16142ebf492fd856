"""Dimension programs (`runtime.dims`) as 64-bit integer code. Where the true result does not fit
64 bits, or a shift is out of range, the function leaves, so that the interpreter says so.
"""

from __future__ import annotations

from collections.abc import Callable

from ...runtime.dims import Dim
from .vm_body import Body
from .vm_values import Size

_MIN = -(1 << 63)
_MAX = (1 << 63) - 1
# Every operation is a branch: LLVM's time grows faster than their number.
_MAX_ITEMS = 256
_COMPARE = {"<": "slt", "<=": "sle", ">": "sgt", ">=": "sge", "==": "eq", "!=": "ne"}
_BITS = {"bitand": "and", "bitor": "or", "bitxor": "xor"}


def dim_value(body: Body, dim: Dim, symbol: Callable[[str], Size]) -> Size:
    """The value of a program whose symbols are given by `symbol`."""
    if isinstance(dim, int):
        return dim
    if len(dim) > _MAX_ITEMS:
        body.leave("a very long dimension is computed")
    stack: list[Size] = []
    for item in dim:
        if isinstance(item, int):
            stack.append(int(item))
        elif isinstance(item, float):
            body.leave("a dimension is computed with floats")
        elif item[0] == "$":
            stack.append(symbol(item[1:]))
        else:
            _apply(body, item, stack)
    return stack[0]


def product(body: Body, sizes: tuple[Size, ...]) -> Size:
    """The product; leaves where it does not fit."""
    total: Size = 1
    for size in sizes:
        total = _arithmetic(body, "smul", total, size)
    return total


def _apply(body: Body, name: str, stack: list[Size]) -> None:
    if name == "select":
        c, a, b = stack[-3:]
        del stack[-3:]
        chosen = body.text.op(f"select i1 {_truth(body, c)}, i64 {a}, i64 {b}")
        stack.append(chosen)
        return
    if name in ("not", "neg", "abs"):
        a = stack.pop()
        if name == "not":
            stack.append(_bool(body, body.not_(_truth(body, a))))
            return
        negative = _arithmetic(body, "ssub", 0, a)
        if name == "abs":
            below = body.text.op(f"icmp slt i64 {a}, 0")
            negative = body.text.op(f"select i1 {below}, i64 {negative}, i64 {a}")
        stack.append(negative)
        return
    b, a = stack.pop(), stack.pop()
    stack.append(_binary(body, name, a, b))


def _binary(body: Body, name: str, a: Size, b: Size) -> Size:
    text = body.text
    if name in ("+", "-", "*"):
        return _arithmetic(body, {"+": "sadd", "-": "ssub", "*": "smul"}[name], a, b)
    if name in _COMPARE:
        return _bool(body, text.op(f"icmp {_COMPARE[name]} i64 {a}, {b}"))
    if name in ("and", "or"):
        return _bool(body, text.op(f"{name} i1 {_truth(body, a)}, {_truth(body, b)}"))
    if name in ("min", "max"):
        first = text.op(f"icmp {'sle' if name == 'min' else 'sge'} i64 {a}, {b}")
        return text.op(f"select i1 {first}, i64 {a}, i64 {b}")
    if name in _BITS:
        return text.op(f"{_BITS[name]} i64 {a}, {b}")
    if name in ("shl", "shr"):
        return _shift(body, name, a, b)
    return _divide(body, name, a, b)


def _arithmetic(body: Body, name: str, a: Size, b: Size) -> Size:
    if isinstance(a, int) and isinstance(b, int):
        exact = {"sadd": a + b, "ssub": a - b, "smul": a * b}[name]
        if _MIN <= exact <= _MAX:
            return exact
        body.leave("a dimension does not fit 64 bits")
    if name == "smul" and 1 in (a, b):
        return b if a == 1 else a
    if name == "sadd" and 0 in (a, b):
        return b if a == 0 else a
    key = (name, a, b)
    known = body.known(key)
    if known is not None:
        return known
    body.unit.declare_overflow(name)
    pair = body.text.op(f"call {{ i64, i1 }} @llvm.{name}.with.overflow.i64(i64 {a}, i64 {b})")
    result = body.text.op(f"extractvalue {{ i64, i1 }} {pair}, 0")
    body.guard(body.text.op(f"extractvalue {{ i64, i1 }} {pair}, 1"))
    body.learn(key, result)
    return result


def _shift(body: Body, name: str, a: Size, b: Size) -> Size:
    text = body.text
    body.guard(text.op(f"icmp ugt i64 {b}, 63"))
    if name == "shr":
        return text.op(f"ashr i64 {a}, {b}")
    shifted = text.op(f"shl i64 {a}, {b}")
    back = text.op(f"ashr i64 {shifted}, {b}")
    body.guard(text.op(f"icmp ne i64 {back}, {a}"))
    return shifted


def _divide(body: Body, name: str, a: Size, b: Size) -> Size:
    """Dividing by zero gives 0; the least int by -1 does not fit."""
    text = body.text
    key = (name, a, b)
    known = body.known(key)
    if known is not None:
        return known
    zero = text.op(f"icmp eq i64 {b}, 0")
    least = text.op(f"icmp eq i64 {a}, {_MIN}")
    minus = text.op(f"icmp eq i64 {b}, -1")
    body.guard(text.op(f"and i1 {least}, {minus}"))
    divisor = text.op(f"select i1 {zero}, i64 1, i64 {b}")
    quotient = text.op(f"sdiv i64 {a}, {divisor}")
    rest = text.op(f"srem i64 {a}, {divisor}")
    if name in ("//", "%", "ceildiv"):
        uneven = text.op(f"icmp ne i64 {rest}, 0")
        signs = text.op(f"xor i64 {rest}, {divisor}")
        differ = text.op(f"icmp slt i64 {signs}, 0")
        if name == "ceildiv":
            differ = body.not_(differ)
        fix = text.op(f"and i1 {uneven}, {differ}")
        one = text.op(f"zext i1 {fix} to i64")
        if name == "//":
            quotient = text.op(f"sub i64 {quotient}, {one}")
        elif name == "ceildiv":
            quotient = text.op(f"add i64 {quotient}, {one}")
        else:
            fixed = text.op(f"add i64 {rest}, {divisor}")
            rest = text.op(f"select i1 {fix}, i64 {fixed}, i64 {rest}")
    result = rest if name in ("%", "truncmod") else quotient
    result = text.op(f"select i1 {zero}, i64 0, i64 {result}")
    body.learn(key, result)
    return result


def _truth(body: Body, value: Size) -> str:
    return body.text.op(f"icmp ne i64 {value}, 0")


def _bool(body: Body, condition: str) -> str:
    return body.text.op(f"zext i1 {condition} to i64")
