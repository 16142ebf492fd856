"""Take conditions and T.let out of the loops that do not change them.

    for i in range(8):                          if n < 4:
        if n < 4:                                   for i in range(8):
            A[i] = 1.0                                  A[i] = 1.0
        else:                              →    else:
            A[i] = 2.0                              for i in range(8):
                                                        A[i] = 2.0

Only over numbers: none that reads memory or may divide by zero. What is moved is chosen by
`PassContext(config={"tir.HoistExpression": {"hoisted_conditionals": ..., "hoisted_let_bindings":
...}})`, as sums of the two enumerations' values. A loop is copied for each outcome of at most four
conditions.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from typing import Any

from ...ir import (
    INTRINSICS,
    And,
    Call,
    IntImm,
    IRModule,
    Let,
    Not,
    Or,
    PassContext,
    PrimExpr,
    Select,
    Var,
    as_expr,
    const,
    substitute,
    walk,
)
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..copies import fresh_copy
from ..stmt import Block, For, ForKind, IfThenElse, LetStmt, PrimFunc, Stmt, is_no_op, seq
from .rewriter import Steps, StmtRewriter, is_plain


class HoistedConditionals(enum.IntFlag):
    """Which conditions leave a loop.

    UsingBlockVar  those inside loops that are bound to threads
    """

    Never = 0
    IfElseStmt = 1
    IfElseExpr = 2
    BooleanExpression = 4
    UsingBlockVar = 8
    All = 15


class HoistedLetBindings(enum.IntFlag):
    """Which variables leave a loop: those that a condition needs, that statements or that
    expressions define.
    """

    Never = 0
    RequiredByConditional = 1
    LetStmt = 2
    LetExpr = 4
    All = 7


_KEY = "tir.HoistExpression"
register_config(
    f"{_KEY}.hoisted_conditionals",
    int,
    int(HoistedConditionals.All),
    "HoistExpression: the sum of HoistedConditionals that leave a loop",
    lambda value: 0 <= value <= 15,
)
register_config(
    f"{_KEY}.hoisted_let_bindings",
    int,
    int(HoistedLetBindings.All),
    "HoistExpression: the sum of HoistedLetBindings that leave a loop",
    lambda value: 0 <= value <= 7,
)
_MOST_CONDITIONS = 4
_IF = INTRINSICS["if_then_else"]


@prim_func_pass(opt_level=0)
def HoistExpression(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Take conditions and variables out of loops, as far out as they are the same."""
    conditionals = HoistedConditionals(ctx.get(f"{_KEY}.hoisted_conditionals"))
    return hoisted(fn, conditionals, HoistedLetBindings(ctx.get(f"{_KEY}.hoisted_let_bindings")))


def hoisted(fn: PrimFunc, conditionals: HoistedConditionals, lets: HoistedLetBindings) -> PrimFunc:
    """`fn` with these taken out of its loops."""
    return _Hoist(conditionals, lets).on_function(fn)


class _Hoist(StmtRewriter):
    def __init__(self, conditionals: HoistedConditionals, lets: HoistedLetBindings) -> None:
        super().__init__()
        self.conditionals, self.lets = conditionals, lets
        self.taken: set[PrimExpr] = set()  # conditions that have left a loop, and go on

    def on_for(self, stmt: For) -> Steps:
        body = yield stmt.body
        loop = stmt.replace(body=body)
        bound = loop.kind == ForKind.THREAD_BINDING
        if bound and not self.conditionals & HoistedConditionals.UsingBlockVar:
            return loop
        moved = dict(self._movable(loop))
        if moved:
            loop = loop.replace(body=_Without(moved).run(loop.body))
        result = self._parted(loop, _MOST_CONDITIONS)
        for var, value in reversed(moved.items()):
            result = LetStmt(var, value, result)
        return result

    def _movable(self, loop: For) -> Iterator[tuple[Var, PrimExpr]]:
        """The variables that `loop` does not change, the first ones first."""
        inside, seen = _defined(loop), set()
        for n in walk(loop.body):
            kind = HoistedLetBindings.LetStmt if type(n) is LetStmt else HoistedLetBindings.LetExpr
            if not isinstance(n, (LetStmt, Let)) or not self.lets & kind or n.var in seen:
                continue
            seen.add(n.var)
            if is_plain(n.value) and not any(v in inside for v in walk(n.value)):
                inside.discard(n.var)
                yield n.var, n.value

    def _parted(self, loop: For, left: int) -> Stmt:
        """`loop` under the conditions in it that it does not change, of at most `left`."""
        conditions = self._condition(loop) if left else None
        if conditions is None:
            return loop
        inner, outer = conditions
        self.taken |= {outer, Not(outer)}
        arms: list[Stmt] = []
        for value in (True, False):
            body = _Decided(inner, value).run(loop.body)
            part = seq() if is_no_op(body) else self._parted(loop.replace(body=body), left - 1)
            arms.append(fresh_copy(part) if arms else part)
        if is_no_op(arms[0]):
            return arms[1] if is_no_op(arms[1]) else IfThenElse(Not(outer), arms[1])
        return IfThenElse(outer, arms[0], None if is_no_op(arms[1]) else arms[1])

    def _condition(self, loop: For) -> tuple[PrimExpr, PrimExpr] | None:
        """A condition in the loop, and what it is outside."""
        inside, values = _defined(loop), {}
        if self.lets & HoistedLetBindings.RequiredByConditional:
            values = {
                n.var: n.value
                for n in walk(loop.body)
                if isinstance(n, (LetStmt, Let)) and is_plain(n.value)
            }
        for n in walk(loop.body):
            for each in self._conditions(n):
                outer = each
                for _ in values:
                    outer = substitute(outer, values)
                plain = each.dtype.lanes == 1 and is_plain(outer)
                if plain and not any(v in inside for v in walk(outer)):
                    if not isinstance(outer, IntImm):
                        return each, outer
        return None

    def _conditions(self, n: Any) -> tuple[PrimExpr, ...]:
        wanted = self.conditionals
        if isinstance(n, IfThenElse):
            if wanted & HoistedConditionals.IfElseStmt or n.condition in self.taken:
                return (n.condition,)
            return ()
        choice = isinstance(n, Select) or (isinstance(n, Call) and n.op is _IF)
        if choice and wanted & HoistedConditionals.IfElseExpr:
            return (n.condition if isinstance(n, Select) else n.args[0],)
        if isinstance(n, (And, Or)) and wanted & HoistedConditionals.BooleanExpression:
            self.taken |= {n.a, n.b}  # the one is all that is left where the other is known
            return (n.a, n.b)
        return ()


def _defined(loop: For) -> set[Any]:
    """What is defined in a loop."""
    defined: set[Any] = {loop.loop_var}
    for n in walk(loop.body):
        if isinstance(n, For):
            defined.add(n.loop_var)
        elif isinstance(n, (LetStmt, Let)):
            defined.add(n.var)
        elif isinstance(n, Block):
            defined.update(axis.var for axis in n.iter_vars)
    return defined


class _Without(StmtRewriter):
    """Statements without the definitions of variables."""

    def __init__(self, moved: dict[Var, PrimExpr]) -> None:
        super().__init__()
        self.moved = moved

    def expr(self, e: PrimExpr) -> PrimExpr:
        return transform(e, lambda n: n.body if type(n) is Let and self._has(n) else None)

    def _has(self, n: Any) -> bool:
        return n.var in self.moved and self.moved[n.var] is n.value

    def on_let(self, stmt: LetStmt) -> Steps:
        if self._has(stmt):
            body = yield stmt.body
            return body
        return (yield from super().on_let(stmt))


class _Decided(StmtRewriter):
    """Statements in which a condition is known."""

    def __init__(self, condition: PrimExpr, value: bool) -> None:
        super().__init__()
        self.condition, self.value = condition, const(value, "bool")

    def expr(self, e: PrimExpr) -> PrimExpr:
        return transform(e, _folded, pre=lambda n: self.value if n is self.condition else None)

    def on_if(self, stmt: IfThenElse) -> Steps:
        condition = self.expr(stmt.condition)
        if isinstance(condition, IntImm):
            taken = stmt.then_case if condition.value else stmt.else_case
            chosen = seq() if taken is None else (yield taken)
            return chosen
        return (yield from super().on_if(stmt))


def _folded(n: Any) -> PrimExpr | None:
    """A choice or a condition with a constant in it, without."""
    if isinstance(n, Select) or (isinstance(n, Call) and n.op is _IF):
        condition, yes, no = n._children_ if isinstance(n, Select) else n.args
        if isinstance(condition, IntImm):
            return as_expr(yes if condition.value else no)
    elif isinstance(n, Not) and isinstance(n.a, IntImm):
        return const(not n.a.value, "bool")
    elif isinstance(n, (And, Or)):
        for known, other in ((n.a, n.b), (n.b, n.a)):
            if isinstance(known, IntImm):
                return other if bool(known.value) == isinstance(n, And) else known
    return None
