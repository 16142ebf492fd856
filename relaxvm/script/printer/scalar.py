"""Scalar expressions. Handlers take (printer, node, precedence needed, how constants are written).

An operator is written with Python's own sign only where Python's operator on the written operands
gives back this very node: it may fold constants, drop neutral elements or swap the sides.
Elsewhere the node's constructor is written.
"""

from __future__ import annotations

import math
import operator
from typing import Any

from ...base import RelaxvmError
from ...ir import (
    EQ,
    GE,
    GT,
    INTRINSICS,
    LE,
    LT,
    NE,
    Add,
    And,
    BinaryExpr,
    Broadcast,
    Call,
    Cast,
    Div,
    FloatImm,
    FloorDiv,
    FloorMod,
    GlobalVar,
    IntImm,
    Intrinsic,
    Let,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Op,
    Or,
    PointerType,
    PrimExpr,
    PrimType,
    Ramp,
    Range,
    Select,
    Shuffle,
    SizeVar,
    StringImm,
    Sub,
    Var,
    binary,
)
from ...tir import op as tir_op
from .core import ARG, ATTR, DIM, FREE, Piece, Printer, comma, prints
from .literal import float_text, python_float, quote

OR, AND, NOT, COMPARE, SUM, PRODUCT, UNARY, ATOM = 1, 2, 3, 4, 9, 10, 11, 13

_OPERAND = (FREE, DIM, DIM, FREE)
_ARGUMENT = (FREE, ARG, ARG, FREE)

# Class -> (sign, precedence, Python's operator, precedences needed left and right).
_BINARY: dict[type, tuple[str, int, Any, int, int]] = {
    Add: (" + ", SUM, operator.add, SUM, SUM + 1),
    Sub: (" - ", SUM, operator.sub, SUM, SUM + 1),
    Mul: (" * ", PRODUCT, operator.mul, PRODUCT, PRODUCT + 1),
    Div: (" / ", PRODUCT, operator.truediv, PRODUCT, PRODUCT + 1),
    FloorDiv: (" // ", PRODUCT, operator.floordiv, PRODUCT, PRODUCT + 1),
    FloorMod: (" % ", PRODUCT, operator.mod, PRODUCT, PRODUCT + 1),
    EQ: (" == ", COMPARE, operator.eq, COMPARE + 1, COMPARE + 1),
    NE: (" != ", COMPARE, operator.ne, COMPARE + 1, COMPARE + 1),
    LT: (" < ", COMPARE, operator.lt, COMPARE + 1, COMPARE + 1),
    LE: (" <= ", COMPARE, operator.le, COMPARE + 1, COMPARE + 1),
    GT: (" > ", COMPARE, operator.gt, COMPARE + 1, COMPARE + 1),
    GE: (" >= ", COMPARE, operator.ge, COMPARE + 1, COMPARE + 1),
}


def _is_plain(p: Printer, n: Any, how: int) -> bool:
    if type(n) is FloatImm:
        return how == FREE and n.dtype == p.options.float_dtype and math.isfinite(n.value)
    return type(n) is IntImm and (
        (how == FREE and n.dtype == p.options.int_dtype) or (how == DIM and n.dtype == "int64")
    )


def _written(p: Printer, n: Any, how: int) -> Any:
    """What the parser has in hand for an operand: the number itself where it is written plainly."""
    return n.value if _is_plain(p, n, how) else n


def _gives_back(function: Any, n: PrimExpr, *args: Any) -> bool:
    """Whether `function` of the arguments, as the parser has them in hand, is this very node."""
    try:
        return function(*args) is n
    except (RelaxvmError, TypeError, ValueError, ArithmeticError):
        return False


def dtype_name(p: Printer, dtype: Any) -> str:
    """The function of the loop language named after a dtype, such as ``T.float32``."""
    return f"{p.T}.{dtype}"


@prints(*_BINARY)
def _binary(p: Printer, n: BinaryExpr, need: int, how: int) -> list[Piece]:
    sign, precedence, op, left, right = _BINARY[type(n)]
    inner = _OPERAND[how]
    a, b = _written(p, n.a, inner), _written(p, n.b, inner)
    if _gives_back(op, n, a, b):
        pieces = [(n.a, left, inner), sign, (n.b, right, inner)]
        return ["(", *pieces, ")"] if precedence < need else pieces
    if type(n) is Div:
        return _named_or_constructor(p, n, "truncdiv", tir_op.truncdiv, how)
    return _constructor(p, type(n).__name__, (n.a, n.b), how)


def _constructor(p: Printer, name: str, args: tuple[Any, ...], how: int) -> list[Piece]:
    inner = _ARGUMENT[how]
    return [f"{p.T}.{name}(", *comma([(a, 0, inner)] for a in args), ")"]


# Division that rounds toward zero goes by the names of C, min and max by Python's.
_NAMED: dict[type, tuple[str, Any]] = {
    Min: ("min", tir_op.min),
    Max: ("max", tir_op.max),
    Mod: ("truncmod", tir_op.truncmod),
}


@prints(*_NAMED)
def _named(p: Printer, n: BinaryExpr, need: int, how: int) -> list[Piece]:
    name, function = _NAMED[type(n)]
    return _named_or_constructor(p, n, name, function, how)


def _named_or_constructor(
    p: Printer, n: BinaryExpr, name: str, function: Any, how: int
) -> list[Piece]:
    inner = _OPERAND[how]
    if _gives_back(function, n, _written(p, n.a, inner), _written(p, n.b, inner)):
        return [f"{p.T}.{name}(", (n.a, 0, inner), ", ", (n.b, 0, inner), ")"]
    return _constructor(p, type(n).__name__, (n.a, n.b), how)


@prints(And, Or)
def _logical(p: Printer, n: BinaryExpr, need: int, how: int) -> list[Piece]:
    if isinstance(n.a, IntImm) or isinstance(n.b, IntImm) or n.dtype.lanes != 1:
        return _constructor(p, type(n).__name__, (n.a, n.b), how)
    sign, precedence = (" and ", AND) if type(n) is And else (" or ", OR)
    inner = _ARGUMENT[how]
    pieces = [(n.a, precedence, inner), sign, (n.b, precedence + 1, inner)]
    return ["(", *pieces, ")"] if precedence < need else pieces


@prints(Not)
def _not(p: Printer, n: Not, need: int, how: int) -> list[Piece]:
    if isinstance(n.a, IntImm) or n.dtype.lanes != 1:
        return _constructor(p, "Not", (n.a,), how)
    pieces = ["not ", (n.a, NOT, _ARGUMENT[how])]
    return ["(", *pieces, ")"] if need > NOT else pieces


@prints(IntImm)
def _int(p: Printer, n: IntImm, need: int, how: int) -> list[Piece]:
    if _is_plain(p, n, how):
        text = str(n.value)
        return [f"({text})" if n.value < 0 and need > UNARY else text]
    value = str(bool(n.value)) if n.dtype.is_bool else str(n.value)
    return [f"{dtype_name(p, n.dtype)}({value})"]


@prints(FloatImm)
def _float(p: Printer, n: FloatImm, need: int, how: int) -> list[Piece]:
    if _is_plain(p, n, how):
        text = python_float(n.value, n.dtype)
        return [f"({text})" if text[0] == "-" and need > UNARY else text]
    return [f"{dtype_name(p, n.dtype)}({float_text(n.value, n.dtype)})"]


@prints(StringImm)
def _string(p: Printer, n: StringImm, need: int, how: int) -> list[Piece]:
    return [f"{p.T}.StringImm({quote(n.value)})" if how == ATTR else quote(n.value)]


@prints(Var)
def _var(p: Printer, n: Var, need: int, how: int) -> list[Piece]:
    return [p.names.get(n) or p.names.define(n, n.name, outermost=True)]


@prints(Cast)
def _cast(p: Printer, n: Cast, need: int, how: int) -> list[Piece]:
    return [f"{p.T}.Cast({quote(n.dtype)}, ", (n.value, 0, _ARGUMENT[how]), ")"]


@prints(Select)
def _select(p: Printer, n: Select, need: int, how: int) -> list[Piece]:
    return _constructor(p, "Select", (n.condition, n.true_value, n.false_value), how)


@prints(Let)
def _let(p: Printer, n: Let, need: int, how: int) -> list[Piece]:
    inner = _ARGUMENT[how]
    name = p.names.get(n.var) or p.names.define(n.var, n.var.name, outermost=True)
    return [
        f"{p.T}.Let(",
        (n.body, 0, inner),
        f", where={{{name}: ",
        (n.value, 0, inner),
        "})",
    ]


@prints(Ramp)
def _ramp(p: Printer, n: Ramp, need: int, how: int) -> list[Piece]:
    inner = _ARGUMENT[how]
    return [f"{p.T}.Ramp(", (n.base, 0, inner), ", ", (n.stride, 0, inner), f", {n.lanes})"]


@prints(Broadcast)
def _broadcast(p: Printer, n: Broadcast, need: int, how: int) -> list[Piece]:
    return [f"{p.T}.Broadcast(", (n.value, 0, _ARGUMENT[how]), f", {n.lanes})"]


@prints(Shuffle)
def _shuffle(p: Printer, n: Shuffle, need: int, how: int) -> list[Piece]:
    inner = _ARGUMENT[how]
    vectors = comma([(v, 0, inner)] for v in n.vectors)
    indices = comma([(i, 0, inner)] for i in n.indices)
    return [f"{p.T}.Shuffle([", *vectors, "], [", *indices, "])"]


@prints(Call)
def _call(p: Printer, n: Call, need: int, how: int) -> list[Piece]:
    inner = _ARGUMENT[how]
    args = comma([(a, 0, inner)] for a in n.args)
    op = n.op
    if isinstance(op, Intrinsic):
        name = op.name.removeprefix("tir.")
        function = getattr(tir_op, name, None) if INTRINSICS.get(name) is op else None
        if function is not None:
            written = [_written(p, a, inner) for a in n.args]
            if _gives_back(function, n, *written):
                return [f"{p.T}.{name}(", *args, ")"]
            if _gives_back(function, n, n.dtype, *written):
                return [f"{p.T}.{name}({quote(n.dtype)}", *([", ", *args] if args else []), ")"]
    if isinstance(op, GlobalVar) and _is_plain_call(p, op, n):
        return [(op, ATOM, FREE), "(", *args, ")"]
    callee = [quote(op.name)] if isinstance(op, Op) else [(op, 0, FREE)]
    return [f"{p.T}.Call({quote(n.dtype)}, ", *callee, ", [", *args, "])"]


def _is_plain_call(p: Printer, func: GlobalVar, n: Call) -> bool:
    """Whether the signature of the loop function that is called says the dtype of the call."""
    result = p.return_dtypes.get(func.name_hint)
    return n.dtype == result if result is not None else n.dtype in ("int32", "void")


@prints(Range)
def _range(p: Printer, n: Range, need: int, how: int) -> list[Piece]:
    return [f"{p.I}.Range(", *range_ends(n, how), ")"]


def range_ends(n: Any, how: int = FREE) -> list[Piece]:
    """``begin, end`` of a range, or of anything with a `min` and an `extent`."""
    return [(n.min, 0, how), ", ", *range_end(n, how)]


def range_end(n: Any, how: int = FREE) -> list[Piece]:
    """The first element after the range."""
    try:
        return [(binary(Add, n.min, n.extent), 0, how)]
    except RelaxvmError:
        # Not of integers: no range at all, but it is shown.
        return [(n.min, SUM, how), " + ", (n.extent, SUM + 1, how)]


@prints(PrimType)
def _prim_type(p: Printer, n: PrimType, need: int, how: int) -> list[Piece]:
    return [dtype_name(p, n.dtype)]


@prints(PointerType)
def _pointer_type(p: Printer, n: PointerType, need: int, how: int) -> list[Piece]:
    scope = f", {quote(n.storage_scope)}" if n.storage_scope else ""
    return [f"{p.T}.handle({quote(n.element_type.dtype)}{scope})"]


def var_annotation(p: Printer, n: Var) -> str:
    """What a variable is: ``T.int32``, ``T.handle("float32", "global")``, ..."""
    if isinstance(n, SizeVar):
        return f"{dtype_name(p, n.dtype)}(is_size_var=True)"
    if isinstance(n.type_annotation, PointerType):
        return p.text([(n.type_annotation, 0, FREE)])
    return dtype_name(p, n.dtype)
