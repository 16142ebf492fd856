"""Split loops where the conditions in them begin to fail, so that the first part has none.

    for i in range(10, "loop_partition_hint"):      for i in range(9):
        for j in range(13):                             for j in range(13):
            if i * 13 + j < 128:            →               A[i * 13 + j] = 0.0
                A[i * 13 + j] = 0.0                 for i in range(9, 10):
                                                        for j in range(13):
                                                            if i * 13 + j < 128:
                                                                A[i * 13 + j] = 0.0

Only loops annotated with "loop_partition_hint" are split: the body is there twice afterwards. The
conditions looked at are ``c * i + rest < limit`` with a constant c > 0; how far they hold for
certain is solved for, also where the limit is known only when the kernel runs.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...arith.tree import conjuncts
from ...ir import (
    GE,
    GT,
    LE,
    LT,
    Add,
    And,
    IntImm,
    IRModule,
    Max,
    Min,
    Mul,
    PassContext,
    PrimExpr,
    Sub,
    Var,
    const,
    walk,
)
from ...ir.expr import binary, cast
from ...ir.transform import prim_func_pass
from ..analysis.intervals import interval_of
from ..copies import fresh_copy
from ..stmt import For, ForKind, IfThenElse, PrimFunc, SeqStmt, Stmt, seq
from .rewriter import ScopedRewriter, Steps, StmtRewriter

__all__ = ["PARTITION_HINT", "LoopPartition", "linear_in"]

PARTITION_HINT = "loop_partition_hint"


@prim_func_pass(opt_level=0)
def LoopPartition(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Split the loops marked so. Blocks must be lowered."""
    hinted = any(isinstance(n, For) and PARTITION_HINT in n.annotations for n in walk(fn.body))
    return _Partition(fn).on_function(fn) if hinted else fn


class _Partition(ScopedRewriter):
    def on_for(self, stmt: For) -> Steps:
        with self.loop_range(stmt):
            body = yield stmt.body
        if PARTITION_HINT not in stmt.annotations:
            return stmt.replace(body=body)
        made = stmt.replace(body=body, annotations=stmt.annotations.without(PARTITION_HINT))
        if made.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
            return made
        return _split(made, self.analyzer)


def _split(loop: For, analyzer: Analyzer) -> Stmt:
    found = _conditions(loop, analyzer)
    if not found:
        return loop
    dtype = loop.loop_var.dtype
    full: PrimExpr = loop.extent
    for first_failing in found.values():
        reach = binary(Sub, cast(dtype, first_failing), cast(dtype, loop.min))
        full = analyzer.simplify(binary(Min, cast(dtype, full), reach))
    full = analyzer.simplify(binary(Max, full, const(0, dtype)))
    rest = analyzer.simplify(Sub(cast(dtype, loop.extent), full))
    parts: list[Stmt] = []
    if not (isinstance(full, IntImm) and full.value == 0):
        parts.append(loop.replace(extent=full, body=_Dropped(found).run(loop.body)))
    if not (isinstance(rest, IntImm) and rest.value == 0):
        start = analyzer.simplify(Add(cast(dtype, loop.min), full))
        tail = loop.replace(min=start, extent=rest)
        parts.append(fresh_copy(tail) if parts else tail)
    return seq(*parts)


def _conditions(loop: For, analyzer: Analyzer) -> dict[PrimExpr, PrimExpr]:
    """{condition: the first iteration at which it may fail}."""
    found: dict[PrimExpr, PrimExpr] = {}
    stack: list[tuple[Any, dict[Any, Any]]] = [(loop.body, {})]
    while stack:
        s, known = stack.pop()
        if isinstance(s, For):
            low = interval_of(s.min, known, analyzer)
            high = interval_of(s.min + s.extent - 1, known, analyzer)
            if any(v is loop.loop_var for e in (s.min, s.extent) for v in walk(e)):
                low = None
            inner = None if low is None or high is None else (low[0], high[1])
            stack.append((s.body, {**known, s.loop_var: inner}))
        elif isinstance(s, IfThenElse):
            for each in conjuncts(s.condition):
                limit = _first_failing(each, loop.loop_var, known, analyzer)
                if limit is not None:
                    found[each] = limit
            stack += [(c, known) for c in (s.then_case, s.else_case) if c is not None]
        elif isinstance(s, SeqStmt):
            stack += [(c, known) for c in s.seq]
        else:
            stack += [(c, known) for c in s._children_() if isinstance(c, Stmt)]
    return found


def _first_failing(
    condition: Any, var: Var, known: dict[Any, Any], analyzer: Analyzer
) -> PrimExpr | None:
    """The least value of `var` for which the condition may fail for some values of inner loops."""
    kind = type(condition)
    if kind not in (LT, LE, GT, GE) or not condition.a.dtype.is_int:
        return None
    small, large = condition.a, condition.b
    if kind in (GT, GE):
        small, large = large, small
    # small - large < 0, or <= 0.
    dtype = var.dtype if var.dtype.bits >= small.dtype.bits else small.dtype
    terms = linear_in(analyzer.simplify(Sub(cast(dtype, small), cast(dtype, large))), var)
    if terms is None:
        return None
    factor, rest = terms
    span = interval_of(rest, known, analyzer)
    if factor <= 0 or span is None:
        return None
    top = span[1] if kind in (LT, GT) else span[1] - 1
    # factor * i + top < 0 for i up to (-top - 1) // factor
    return analyzer.simplify((const(0, dtype) - top - 1) // factor + 1)


def linear_in(e: PrimExpr, var: Var) -> tuple[int, PrimExpr] | None:
    """(c, rest) with e = c * var + rest, or None."""
    factor = 0
    rest: PrimExpr = const(0, e.dtype)
    stack: list[tuple[Any, int]] = [(e, 1)]
    while stack:
        n, sign = stack.pop()
        if isinstance(n, (Add, Sub)):
            stack += [(n.a, sign), (n.b, sign if isinstance(n, Add) else -sign)]
        elif not any(v is var for v in walk(n)):
            rest = binary(Add if sign > 0 else Sub, rest, n)
        elif _is_var(n, var):
            factor += sign
        elif isinstance(n, Mul) and _is_var(n.a, var) and isinstance(n.b, IntImm):
            factor += sign * n.b.value
        else:
            return None
    return factor, rest


def _is_var(n: Any, var: Var) -> bool:
    return n is var or (getattr(n, "value", None) is var and n.dtype.bits >= var.dtype.bits)


class _Dropped(StmtRewriter):
    """Statements without conditions that hold."""

    def __init__(self, holds: dict[PrimExpr, PrimExpr]) -> None:
        super().__init__()
        self.holds = holds

    def on_if(self, stmt: IfThenElse) -> Steps:
        left = [c for c in conjuncts(stmt.condition) if c not in self.holds]
        then_case = yield stmt.then_case
        if not left:
            return then_case
        else_case = stmt.else_case
        if else_case is not None:
            else_case = yield else_case
        condition = left[0]
        for each in left[1:]:
            condition = And(condition, each)
        return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)
