"""Take `if_then_else` out of innermost loops that store one element a time: padding, concatenation.

    for i in range(58):                         if 0 <= j - 1 and j - 1 < 56:
        P[i] = T.if_then_else(                      for i in range(1):
          0 <= j - 1 and j - 1 < 56 and                 P[i] = 0.0
          0 <= i - 1 and i - 1 < 56,                for i in range(1, 57):
          A[(j - 1) * 56 + i - 1], 0.0)  →              P[i] = A[(j - 1) * 56 + i - 1]
                                                    for i in range(57, 58):
                                                        P[i] = 0.0
                                                else:
                                                    for i in range(58):
                                                        P[i] = 0.0

Conditions that the loop does not change are asked once. Those that hold from one iteration to
another, ``c * i + rest < limit`` with a constant c > 0, split the loop, and what they split off is
looked at again: concatenation of many is a choice in a choice. What is left are loops without a
branch, which LLVM turns into vectors and copies. A store under conditions alone is done in the
iterations where they hold. Only conditions over numbers are moved: none that
reads memory or may divide by zero.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer, conjuncts, linear_in
from ...base import NamedTuple, TIRError
from ...ir import (
    GE,
    GT,
    INTRINSICS,
    LE,
    LT,
    Add,
    And,
    Call,
    IntImm,
    IRModule,
    Max,
    Min,
    PassContext,
    PrimExpr,
    Sub,
    binary,
    cast,
    const,
    substitute,
    walk,
)
from ...ir.transform import prim_func_pass, register_config
from ..copies import renew
from ..op import if_then_else
from ..stmt import BufferStore, For, ForKind, IfThenElse, PrimFunc, Stmt, seq, statements_in
from .hoist_expression import HoistedConditionals, HoistedLetBindings, hoisted
from .rewriter import ScopedRewriter, Steps, is_plain

register_config(
    "tir.HoistIfThenElse.support_block_scope_hoisting",
    bool,
    False,
    "HoistIfThenElse takes conditions out of loops that are bound to threads, too",
)


@prim_func_pass(opt_level=0)
def HoistIfThenElse(
    fn: PrimFunc, mod: IRModule, ctx: PassContext, variant: str | None = None
) -> PrimFunc:
    """Take conditions out of serial loops.

    variant  "innermost": only what is shown above; None or "basic": before it, every `if` out of
             the loops that do not change its condition (`HoistExpression`)
    """
    if variant not in (None, "basic", "innermost"):
        raise TIRError(f'HoistIfThenElse: variant is None, "basic" or "innermost", got {variant!r}')
    if variant != "innermost":
        chosen = HoistedConditionals.IfElseStmt
        if ctx.get("tir.HoistIfThenElse.support_block_scope_hoisting"):
            chosen |= HoistedConditionals.UsingBlockVar
        fn = hoisted(fn, chosen, HoistedLetBindings.Never)
    inside = statements_in(fn.body)
    possible = IfThenElse in map(type, inside) or any(map(_is_choice, inside))
    return _Hoist(fn).on_function(fn) if possible else fn


def _is_choice(s: Stmt) -> bool:
    return type(s) is BufferStore and _choice(s.value) is not None


# Parts that one loop becomes at most: both sides of a bound may have more bounds, and so on.
_MOST_PARTS = 64


class _Hoist(ScopedRewriter):
    def __init__(self, fn: PrimFunc) -> None:
        super().__init__(fn)
        # How often the loop at hand has been parted; None: it was not.
        self._parted: int | None = None

    def on_for(self, stmt: For) -> Steps:
        self.enter(stmt)
        body = yield stmt.body
        loop = stmt if body is stmt.body else stmt.replace(body=body)
        if stmt.kind != ForKind.SERIAL or stmt.annotations:
            return loop
        times = self._parted or 0
        parts: Stmt = loop
        if times >= _MOST_PARTS:
            return loop
        if isinstance(body, BufferStore):
            parts = _hoisted(loop, body, self.analyzer)
        elif (
            isinstance(body, IfThenElse)
            and isinstance(body.then_case, BufferStore)
            and not body.else_case
        ):
            parts = _shortened(loop, body, self.analyzer)
        if parts is loop:
            return loop
        outermost = self._parted is None
        self._parted = times + 1
        parts = yield parts
        if outermost:
            self._parted = None
        return parts


def _hoisted(loop: For, store: BufferStore, analyzer: Analyzer) -> Stmt:
    parts = _choice(store.value)
    if parts is None:
        return loop
    conditions, inside, outside = parts
    where = _where(conditions, loop, analyzer)
    if where is None:
        return loop
    fixed, rest = where.fixed, where.rest
    kept = inside if not rest else if_then_else(_all(rest), inside, outside)
    result: Stmt = _with_value(loop, store, kept)
    if where.span is not None:
        low, high = where.span
        result = seq(
            *_part(loop, store.replace(value=outside), const(0, low.dtype), low, analyzer),
            *_part(loop, store.replace(value=kept), low, high, analyzer),
            *_part(loop, store.replace(value=outside), high, loop.extent, analyzer),
        )
    if fixed:
        result = IfThenElse(_all(fixed), result, _renewed(_with_value(loop, store, outside)))
    return result


def _shortened(loop: For, body: IfThenElse, analyzer: Analyzer) -> Stmt:
    """A loop over what is done under conditions, made to run only where they hold."""
    where = _where(conjuncts(body.condition), loop, analyzer)
    if where is None:
        return loop
    then = IfThenElse(_all(where.rest), body.then_case) if where.rest else body.then_case
    result: Stmt = loop.replace(body=then)
    if where.span is not None:
        result = seq(*_part(loop, then, *where.span, analyzer))
    return IfThenElse(_all(where.fixed), result) if where.fixed else result


class _Where(NamedTuple):
    """What conditions come to for a loop.

    fixed  those that it does not change
    span   the iterations, counted from the first one, where others hold: from the one number to
           before the other; None if there are no such conditions
    rest   those that stay in it
    """

    fixed: list[PrimExpr]
    span: tuple[PrimExpr, PrimExpr] | None
    rest: list[PrimExpr]


def _where(conditions: list[PrimExpr], loop: For, analyzer: Analyzer) -> _Where | None:
    """None if nothing can be taken out of the loop."""
    fixed: list[PrimExpr] = []
    rest: list[PrimExpr] = []
    bounded = False
    low: PrimExpr = const(0, loop.loop_var.dtype)
    high: PrimExpr = cast(loop.loop_var.dtype, loop.extent)
    for each in conditions:
        if rest or not is_plain(each):
            # What comes after a condition that stays must not be asked before it.
            rest.append(each)
        elif loop.loop_var not in walk(each):
            fixed.append(each)
        else:
            span = _holds_from_to(each, loop, analyzer)
            if span is None:
                rest.append(each)
                continue
            bounded = True
            first, end = span
            low = low if first is None else binary(Max, low, first)
            high = high if end is None else binary(Min, high, end)
    if not bounded:
        return _Where(fixed, None, rest) if fixed else None
    end = analyzer.simplify(binary(Max, high, const(0, high.dtype)))
    return _Where(fixed, (analyzer.simplify(binary(Min, low, end)), end), rest)


def _choice(value: PrimExpr) -> tuple[list[PrimExpr], PrimExpr, PrimExpr] | None:
    """(conditions, value if all hold, value else) of nested choices with one other value."""
    conditions: list[PrimExpr] = []
    other: PrimExpr | None = None
    while isinstance(value, Call) and value.op is INTRINSICS["if_then_else"]:
        condition, inside, outside = value.args
        if condition.dtype.lanes != 1 or (other is not None and outside is not other):
            break
        other = outside
        conditions += conjuncts(condition)
        value = inside
    return None if other is None else (conditions, value, other)


def _holds_from_to(
    condition: Any, loop: For, analyzer: Analyzer
) -> tuple[PrimExpr | None, PrimExpr | None] | None:
    """The iterations, counted from the first one, in which the condition holds: from the one
    number to before the other, None where there is no such bound. None if that is not known.
    """
    kind = type(condition)
    if kind not in (LT, LE, GT, GE) or not condition.a.dtype.is_int:
        return None
    small, large = condition.a, condition.b
    if kind in (GT, GE):
        small, large = large, small
    strict = kind in (LT, GT)
    dtype = loop.loop_var.dtype
    if small.dtype is not dtype or large.dtype is not dtype:
        return None
    # small - large is c * i + rest; it holds if that is < 0, or <= 0.
    difference = substitute(Sub(small, large), {loop.loop_var: Add(loop.loop_var, loop.min)})
    terms = linear_in(analyzer.simplify(difference), loop.loop_var)
    if terms is None or terms[0] == 0:
        return None
    factor, rest = terms
    top = rest + (0 if strict else -1)
    if factor > 0:
        # c * i + top < 0: i < ceil(-top / c)
        return None, analyzer.simplify((factor - 1 - top) // factor)
    # top < -c * i: i > top / -c
    return analyzer.simplify(top // -factor + 1), None


def _part(loop: For, body: Stmt, begin: PrimExpr, end: PrimExpr, analyzer: Analyzer) -> list[Stmt]:
    """The iterations from `begin` to before `end`, of `body`."""
    extent = analyzer.simplify(Sub(cast(begin.dtype, end), begin))
    if isinstance(extent, IntImm) and extent.value <= 0:
        return []
    first = analyzer.simplify(Add(cast(begin.dtype, loop.min), begin))
    return [_renewed(loop.replace(body=body, min=first, extent=extent))]


def _with_value(loop: For, store: BufferStore, value: PrimExpr) -> For:
    return loop.replace(body=store.replace(value=value))


def _renewed(loop: For) -> For:
    own = renew(loop.loop_var)
    return loop.replace(loop_var=own, body=substitute(loop.body, {loop.loop_var: own}))


def _all(conditions: list[PrimExpr]) -> PrimExpr:
    joined = conditions[0]
    for each in conditions[1:]:
        joined = And(joined, each)
    return joined
