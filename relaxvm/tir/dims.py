"""Which operation of dimension programs (`runtime.dims`) a scalar expression is."""

from __future__ import annotations

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
    Intrinsic,
    Max,
    Min,
    Mod,
    Mul,
    Not,
    Or,
    PrimExpr,
    Select,
    Sub,
)

_OPERATORS: dict[type, str] = {
    Add: "+",
    Sub: "-",
    Mul: "*",
    FloorDiv: "//",
    FloorMod: "%",
    Div: "truncdiv",
    Mod: "truncmod",
    Min: "min",
    Max: "max",
    LT: "<",
    LE: "<=",
    GT: ">",
    GE: ">=",
    EQ: "==",
    NE: "!=",
    And: "and",
    Or: "or",
    Not: "not",
    Select: "select",
}
_CALLS = {
    "tir.shift_left": "shl",
    "tir.shift_right": "shr",
    "tir.bitwise_and": "bitand",
    "tir.bitwise_or": "bitor",
    "tir.bitwise_xor": "bitxor",
    "tir.fabs": "abs",
    "tir.if_then_else": "select",
    "tir.truncdiv": "truncdiv",
    "tir.truncmod": "truncmod",
}


def dim_operator(e: PrimExpr) -> str | None:
    """The operation that combines the operands of `e`; None where there is none."""
    if isinstance(e, Call) and isinstance(e.op, Intrinsic):
        return _CALLS.get(e.op.name)
    return _OPERATORS.get(type(e))
