"""Split loops where the conditions in them begin to fail, so that the first part has none.

    for i in range(10, "loop_partition_hint"):      for i in range(9):
        for j in range(13):                             for j in range(13):
            if i * 13 + j < 128:            →               A[i * 13 + j] = 0.0
                A[i * 13 + j] = 0.0                 for i in range(9, 10):
                                                        for j in range(13):
                                                            if i * 13 + j < 128:
                                                                A[i * 13 + j] = 0.0

Only loops annotated with "loop_partition_hint" are split, and those that the options name: the
body is there twice afterwards, and iterations in which nothing can happen any more are left out. A
loop with the hint inside another is split where that has conditions left. The conditions looked at
are ``c * i + rest < limit`` with a constant c > 0; how far they hold for certain is solved for,
also where the limit is known only when the kernel runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...arith import Analyzer, Domains, conjuncts, interval_of, linear_in, range_of
from ...base import NamedTuple
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
    PassContext,
    PrimExpr,
    Sub,
    Var,
    binary,
    cast,
    const,
    descend,
    walk,
)
from ...ir.transform import prim_func_pass, register_config
from ..copies import fresh_copy
from ..stmt import (
    Allocate,
    DeclBuffer,
    Evaluate,
    For,
    ForKind,
    IfThenElse,
    PrimFunc,
    SeqStmt,
    Stmt,
    seq,
    statements_below,
    statements_in,
)
from .rewriter import ScopedRewriter, Steps, StmtRewriter

PARTITION_HINT = "loop_partition_hint"

_KEY = "tir.LoopPartition"
for _name, _doc in (
    ("partition_const_loop", "split loops of constant extent without the hint too"),
    ("no_unroll_loop_with_extent_one", "leave loops of one iteration that come of it"),
    (
        "unroll_loop_with_partition_hint_no_interval",
        "mark serial loops with the hint in which nothing can be split T.unroll",
    ),
):
    register_config(f"{_KEY}.{_name}", bool, False, f"LoopPartition: {_doc}")


@prim_func_pass(opt_level=0)
def LoopPartition(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Split the loops marked so. Blocks must be lowered."""
    partition = _Partition(fn, ctx)
    any_chosen = any(partition.chooses(s) for s in statements_in(fn.body) if type(s) is For)
    return partition.on_function(fn) if any_chosen else fn


class _Partition(ScopedRewriter):
    """Loops are split from outside in: in the last tiles of an outer loop, whose conditions are
    left, loops inside can be split once more.
    """

    def __init__(self, fn: PrimFunc, ctx: PassContext) -> None:
        super().__init__(fn)
        self.constant_loops = ctx.get(f"{_KEY}.partition_const_loop")
        self.keeps_single = ctx.get(f"{_KEY}.no_unroll_loop_with_extent_one")
        self.unrolls_whole = ctx.get(f"{_KEY}.unroll_loop_with_partition_hint_no_interval")

    def chooses(self, loop: For) -> bool:
        """Whether the loop is to be split, if there is anything to split it at."""
        return PARTITION_HINT in loop.annotations or (
            self.constant_loops and isinstance(loop.extent, IntImm)
        )

    def on_for(self, stmt: For) -> Steps:
        if not self.chooses(stmt):
            return (yield from super().on_for(stmt))
        loop = stmt.replace(annotations=stmt.annotations.without(PARTITION_HINT))
        parts = [loop]
        if loop.kind in (ForKind.SERIAL, ForKind.PARALLEL):
            parts = _split(loop, self.analyzer)
        hinted = PARTITION_HINT in stmt.annotations
        if self.unrolls_whole and hinted and parts == [loop] and loop.kind == ForKind.SERIAL:
            parts = [loop.replace(kind=ForKind.UNROLLED)]
        results: list[Stmt] = []
        for part in parts:
            if part is not loop and _is_constant(part.extent, 1) and not self.keeps_single:
                body = yield fresh_copy(part.body, {part.loop_var: part.min})
                results.append(body)
            else:
                rewritten = yield from super().on_for(part)
                results.append(rewritten)
        return seq(*results) if results else Evaluate(const(0, "int32"))


def _split(loop: For, analyzer: Analyzer) -> list[For]:
    """Iterations in which the conditions hold, those in which some may, and no others if nothing
    happens in them.
    """
    conditions = _conditions(loop, analyzer)
    if not conditions:
        return [loop]
    dtype = loop.loop_var.dtype

    def iterations(bounds: Iterable[PrimExpr], combine: type) -> PrimExpr:
        """How many iterations there are before all of, or before any of the bounds."""
        reach = None
        for bound in bounds:
            each = binary(Sub, cast(dtype, bound), cast(dtype, loop.min))
            reach = each if reach is None else analyzer.simplify(binary(combine, reach, each))
        count = binary(Min, cast(dtype, loop.extent), reach)
        return analyzer.simplify(binary(Max, count, const(0, dtype)))

    full = iterations((c.first_failing for c in conditions.values()), Min)
    end = analyzer.simplify(cast(dtype, loop.extent))
    if _is_idle(loop.body, conditions):
        end = iterations((c.never_again for c in conditions.values()), Max)
    rest = analyzer.simplify(Sub(end, full))
    parts: list[For] = []
    if not _is_constant(full, 0):
        parts.append(loop.replace(extent=full, body=_Dropped(conditions).run(loop.body)))
    if not _is_constant(rest, 0):
        start = analyzer.simplify(Add(cast(dtype, loop.min), full))
        tail = loop.replace(min=start, extent=rest)
        parts.append(fresh_copy(tail) if parts else tail)
    return parts


def _is_constant(e: PrimExpr, value: int) -> bool:
    return isinstance(e, IntImm) and e.value == value


def _is_idle(body: Stmt, conditions: Mapping[PrimExpr, Any]) -> bool:
    """Whether nothing happens where all the conditions fail."""

    def below(s: Stmt) -> Sequence[Stmt]:
        if isinstance(s, IfThenElse) and any(c in conditions for c in conjuncts(s.condition)):
            return () if s.else_case is None else (s.else_case,)
        return statements_below(s)

    passes = (IfThenElse, SeqStmt, For, Allocate, DeclBuffer)
    return all(isinstance(s, passes) for s in descend(body, below))


class _Reach(NamedTuple):
    """How far a condition of a loop holds.

    first_failing  the first iteration at which it may fail, for some values of inner loops
    never_again    the first from which on it fails for all of them
    """

    first_failing: PrimExpr
    never_again: PrimExpr


def _conditions(loop: For, analyzer: Analyzer) -> dict[PrimExpr, _Reach]:
    """The conditions on `loop` in its body, and how far they hold."""
    reaches: dict[PrimExpr, _Reach] = {}

    def below(visit: tuple[Stmt, Domains]) -> list[tuple[Stmt, Domains]]:
        s, known = visit
        if isinstance(s, For):
            moves = any(v is loop.loop_var for e in (s.min, s.extent) for v in walk(e))
            inner = None if moves else range_of(s.min, s.extent, known, analyzer)
            known = {**known, s.loop_var: inner}
        return [(c, known) for c in statements_below(s)]

    start: tuple[Stmt, Domains] = (loop.body, {})
    for s, known in descend(start, below):
        if isinstance(s, IfThenElse):
            for each in conjuncts(s.condition):
                reach = _reach(each, loop.loop_var, known, analyzer)
                if reach is not None:
                    reaches[each] = reach
    return reaches


def _reach(condition: Any, var: Var, known: Domains, analyzer: Analyzer) -> _Reach | None:
    """How far the condition holds; None if that is not known, or it is no bound on `var`."""
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
    low, top = span if kind in (LT, GT) else (span[0] - 1, span[1] - 1)
    # factor * i + rest < 0 for i up to (-rest - 1) // factor
    first_failing, never_again = (
        analyzer.simplify((const(0, dtype) - rest - 1) // factor + 1) for rest in (top, low)
    )
    return _Reach(first_failing, never_again)


class _Dropped(StmtRewriter):
    """Statements without conditions that hold."""

    def __init__(self, holds: Mapping[PrimExpr, Any]) -> None:
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
