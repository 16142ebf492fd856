"""Operators that are expressions of others.

    @compound("demo.halves")
    def halves(x: Expr) -> Expr:
        return ops.multiply(x, const(0.5, x.struct_info.dtype))

The expression says all: struct info is its, in numpy it means what its operators mean, and the
operator is legalised to it (`LegalizeQnn` does that early, so that its constants are folded). Where
a dtype is not known, neither is the result.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..expr import Call, Tuple, const
from ..rules import LowerBuilder
from ..struct_info import Expr, StructInfo, TensorStructInfo, parts
from .meaning import evaluate
from .record import Missing, Operator, P, op


def compound(
    name: str, grad: Missing, layout: Missing
) -> Callable[[Callable[P, Expr]], Operator[P]]:
    """Decorator: an operator named ``relax.<name>`` that stands for the expression which the
    decorated function makes of its arguments and attributes. It raises StructInfoError for wrong
    ones.
    """

    def make(body: Callable[P, Expr]) -> Operator[P]:
        expression: Callable[..., Expr] = body

        @functools.wraps(body)
        def rule(*args: P.args, **attrs: P.kwargs) -> StructInfo:
            return UNKNOWN_TENSOR if _lacks_dtype(args) else body(*args, **attrs).struct_info

        def meaning(*values: Any, **attrs: Any) -> Any:
            return evaluate(expression(*map(_constant, values), **attrs))

        def lower(builder: LowerBuilder, call: Call) -> Expr:
            return expression(*call.args, **dict(call.attrs))

        return op(name, meaning, lower, grad, layout)(rule)

    return make


UNKNOWN_TENSOR = TensorStructInfo(None, "void")


def _lacks_dtype(args: Iterable[Any]) -> bool:
    infos = (getattr(a, "struct_info", None) for a in args)
    return any(getattr(p, "dtype", None) == "void" for i in infos if i for p in parts(i))


def _constant(value: Any) -> Expr:
    if isinstance(value, (tuple, list)):
        return Tuple([_constant(v) for v in value])
    return const(value)
