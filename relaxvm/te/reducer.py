"""Reductions over axes by a commutative, associative combination with an identity."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..base import DataType, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    Max,
    Min,
    Node,
    PrimExpr,
    Var,
    as_condition,
    as_expr,
    const,
    derive,
    derived,
    match,
    node,
    substitute,
)
from ..tir import IterVar, max_value, min_value

_TRUE = const(True)


@node
class CommReducer(Node):
    """result(lhs, rhs), starting from `identity_element`; all are tuples of one value per reduced
    quantity.
    """

    lhs: tuple[Var, ...]
    rhs: tuple[Var, ...]
    result: tuple[PrimExpr, ...]
    identity_element: tuple[PrimExpr, ...]
    _defs_ = ("lhs", "rhs")

    def apply(
        self, left: tuple[PrimExpr, ...], right: tuple[PrimExpr, ...]
    ) -> tuple[PrimExpr, ...]:
        """The combination of two sets of values."""
        mapping: dict[Any, Any] = {**dict(zip(self.lhs, left)), **dict(zip(self.rhs, right))}
        return tuple(substitute(e, mapping) for e in self.result)


@node(interned=True)
class Reduce(PrimExpr):
    """The reduction of `source` over `axis` where `condition` holds; it must be the whole body of
    a compute.
    """

    combiner: CommReducer
    source: tuple[PrimExpr, ...]
    axis: tuple[IterVar, ...]
    condition: PrimExpr = _TRUE
    value_index: int = 0
    init: tuple[PrimExpr, ...] = ()
    dtype: DataType = derived()

    @staticmethod
    def _normalise_(
        combiner: Any, source: Any, axis: Any, condition: Any, value_index: Any, init: Any
    ) -> tuple[Any, ...]:
        axis = tuple(axis) if isinstance(axis, (tuple, list)) else (axis,)
        for each in axis:
            if not isinstance(each, IterVar) or not each.is_reduce:
                raise TIRError("a reduction runs over reduce_axis(...) axes")
        if not axis:
            raise TIRError("a reduction needs at least one axis")
        return (
            combiner,
            tuple(source),
            axis,
            as_condition(condition),
            value_index,
            tuple(init or ()),
        )

    def _init_derived_(self) -> None:
        derive(self, "dtype", self.source[self.value_index].dtype)


def comm_reducer(
    fcombine: Callable[..., Any], fidentity: Callable[..., Any], name: str = "reduce"
) -> Callable[..., Any]:
    """A reducer for use in `compute`.

    fcombine   (x, y) -> the combination; with tuples for several quantities at once, as for argmax
    fidentity  (dtype, ...) -> the start value(s)

    Returns f(expr, axis, where=None, init=None): a reduction, or a tuple of them for several
    quantities. Of expressions only, f(a, b, ...) is their combination.
    """

    def reducer(expr: Any, *operands: Any, **named: Any) -> Any:
        if operands and "axis" not in named and not isinstance(operands[0], (IterVar, list, tuple)):
            others = [e for e in (*operands, *named.values()) if e is not None]
            return functools.reduce(lambda a, b: fcombine(*match(a, b)), others, as_expr(expr))
        return reduce_over(expr, *operands, **named)

    def reduce_over(expr: Any, axis: Any, where: Any = None, init: Any = None) -> Any:
        several = isinstance(expr, (tuple, list))
        source = tuple(as_expr(e) for e in (expr if several else (expr,)))
        dtypes = [e.dtype for e in source]
        lhs = tuple(Var(f"x{i}" if several else "x", d) for i, d in enumerate(dtypes))
        rhs = tuple(Var(f"y{i}" if several else "y", d) for i, d in enumerate(dtypes))
        if several:
            result, identity = fcombine(lhs, rhs), fidentity(*dtypes)
        else:
            result, identity = (fcombine(lhs[0], rhs[0]),), (fidentity(dtypes[0]),)
        result = tuple(as_expr(e, d) for e, d in zip(result, dtypes))
        identity = tuple(as_expr(e, d) for e, d in zip(identity, dtypes))
        for what, values in (("combination", result), ("identity", identity)):
            got = [e.dtype for e in values]
            if got != dtypes:
                raise TIRError(f"reducer {name}: the {what} has dtypes {got}, wanted {dtypes}")
        combiner = CommReducer(lhs, rhs, result, identity)
        condition = _TRUE if where is None else as_condition(where)
        starts: tuple[Any, ...] = ()
        if init is not None:
            firsts = init if isinstance(init, (tuple, list)) else (init,)
            starts = tuple(as_expr(e, d) for e, d in zip(firsts, dtypes))
        results = tuple(
            Reduce(combiner, source, axis, condition, i, starts) for i in range(len(source))
        )
        return results if several else results[0]

    reducer.__name__ = name
    return reducer


def _sum_identity(dtype: DataType) -> PrimExpr:
    return const(0, as_dtype(dtype))


sum = comm_reducer(lambda x, y: x + y, _sum_identity, "sum")
prod = comm_reducer(lambda x, y: x * y, lambda dtype: const(1, dtype), "prod")
min = comm_reducer(lambda x, y: Min(x, y), lambda dtype: max_value(dtype), "min")
max = comm_reducer(lambda x, y: Max(x, y), lambda dtype: min_value(dtype), "max")
