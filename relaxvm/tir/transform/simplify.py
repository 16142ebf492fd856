"""Simplify expressions with what is known where they stand, and drop conditions that are decided.

for i in range(16):                         for i in range(16):
    if i < 16:                                  A[i] = 0.0
        A[(i * 4 + 3) // 4] = 0.0

With "propagate_knowns_to_prove_conditional" conditions on what stores before have left are decided
too; with "propagate_knowns_to_simplify_expressions" their values replace loads:

for i in range(16):                         for i in range(16):
    A[i] = i                                    A[i] = i
for i in range(16):                         for i in range(16):
    if A[i] < 20:                               B[i] = i
        B[i] = A[i]
"""

from __future__ import annotations

import contextlib
from typing import Any

from ...arith import conjuncts
from ...ir import And, FloatImm, IntImm, IRModule, Not, Or, PassContext, PrimExpr, substitute
from ...ir.transform import prim_func_pass, register_config
from ..stmt import (
    AssertStmt,
    For,
    ForKind,
    IfThenElse,
    LetStmt,
    PrimFunc,
    While,
    seq,
)
from .known_values import KnowingRewriter
from .rewriter import Steps, constant, is_plain, reads_memory, stable, with_loads

_KEY = "tir.Simplify"
for _name, _default, _doc in (
    ("transitively_prove_inequalities", True, "from a < b and b < c follows a < c; always done"),
    (
        "apply_constraints_to_boolean_branches",
        False,
        "in `a and b` either holds in the other",
    ),
    ("convert_boolean_to_and_of_ors", False, "a form that `simplify` needs nowhere; no effect"),
    (
        "propagate_knowns_to_prove_conditional",
        False,
        "conditions are decided with what buffers are known to hold",
    ),
    (
        "propagate_knowns_to_simplify_expressions",
        False,
        "loads are replaced by what buffers are known to hold",
    ),
    ("enable_simplify_let_inline", False, "integers and numbers take the place of T.let variables"),
):
    register_config(f"{_KEY}.{_name}", bool, _default, f"Simplify: {_doc}")


@prim_func_pass(opt_level=0)
def Simplify(fn: PrimFunc, mod: IRModule, ctx: PassContext) -> PrimFunc:
    """Simplify every expression under the ranges of the loops and the conditions around it."""
    return _Simplify(fn, ctx).on_function(fn)


class _Simplify(KnowingRewriter):
    def __init__(self, fn: PrimFunc, ctx: PassContext) -> None:
        self.proves = ctx.get(f"{_KEY}.propagate_knowns_to_prove_conditional")
        self.replaces = ctx.get(f"{_KEY}.propagate_knowns_to_simplify_expressions")
        self.inlines = ctx.get(f"{_KEY}.enable_simplify_let_inline")
        self.constrains = ctx.get(f"{_KEY}.apply_constraints_to_boolean_branches")
        super().__init__(fn, on=self.proves or self.replaces)

    def expr(self, e: PrimExpr) -> PrimExpr:
        if type(e) is IntImm:
            return e
        e = self._with_known(e) if self.replaces else e
        return self._constrained(e) if self.constrains else self.analyzer.simplify(e)

    def _constrained(self, e: PrimExpr, depth: int = 8) -> PrimExpr:
        """`e`, each of its conditions simplified where the others hold (in an `or`: do not)."""
        kind: Any = type(e)
        if kind not in (And, Or) or depth == 0:
            return self.analyzer.simplify(e)
        parts = conjuncts(e, kind)
        # What guards a load has to stay in front of it.
        guards = any(map(reads_memory, parts))
        for k in range(len(parts)):
            others = parts[:k] if guards else parts[:k] + parts[k + 1 :]
            with contextlib.ExitStack() as scopes:
                for each in others:
                    fact = stable(each if kind is And else Not(each))
                    scopes.enter_context(self.analyzer.constraint_scope(fact))
                parts[k] = self._constrained(parts[k], depth - 1)
        joined = parts[0]
        for each in parts[1:]:
            joined = kind(joined, each)
        return self.analyzer.simplify(joined)

    def _with_known(self, e: PrimExpr) -> PrimExpr:
        if not self.known.facts:
            return e
        return with_loads(e, lambda n: self.known.value_at(n.buffer, n.indices))

    def condition(self, e: PrimExpr) -> PrimExpr:
        """A condition, decided if it can be."""
        simplified = self.expr(e)
        decided = self.expr(self._with_known(simplified)) if self.proves else simplified
        return decided if isinstance(decided, IntImm) else simplified

    def on_for(self, stmt: For) -> Steps:
        loop = self.with_range(stmt)
        count = constant(loop.extent)
        if count is not None and count <= 0:
            return seq()
        if count == 1 and stmt.kind != ForKind.THREAD_BINDING and not stmt.annotations:
            body = yield substitute(stmt.body, {stmt.loop_var: loop.min})
            return body
        self.enter(loop)
        if not self.known.on:
            body = yield stmt.body
            return loop if body is loop.body else loop.replace(body=body)
        with self.known.loop(loop):
            body = yield stmt.body
        return loop.replace(body=body)

    def on_if(self, stmt: IfThenElse) -> Steps:
        condition = self.condition(stmt.condition)
        if isinstance(condition, IntImm):
            taken = stmt.then_case if condition.value else stmt.else_case
            if taken is None:
                return seq()
            return (yield taken)
        return (yield from self.arms(stmt, condition))

    def on_assert(self, stmt: AssertStmt) -> Steps:
        condition = self.expr(stmt.condition)
        if isinstance(condition, IntImm) and condition.value:
            body = yield stmt.body
            return body
        with self.analyzer.constraint_scope(stable(condition)):
            body = yield stmt.body
        return stmt.replace(condition=condition, body=body)

    def on_while(self, stmt: While) -> Steps:
        with self.known.apart(stmt):
            condition = self.condition(stmt.condition)
            if isinstance(condition, IntImm) and not condition.value:
                return seq()
            body = yield stmt.body
        return stmt.replace(condition=condition, body=body)

    def on_let(self, stmt: LetStmt) -> Steps:
        value = self.expr(stmt.value)
        plain = isinstance(value, FloatImm) or (value.dtype.is_int and is_plain(value))
        if self.inlines and plain and value.dtype is stmt.var.dtype:
            body = yield substitute(stmt.body, {stmt.var: value})
            return body
        return (yield from super().on_let(stmt))
