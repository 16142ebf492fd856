"""Give a variable to what an expression computes more than once.

    B[i * 8 + j] = A[i * 8 + j] + 1             x: T.int32 = i * 8 + j
                                                B[x] = A[x] + 1

Statement by statement, and of numbers only: no loads, nothing that may divide by zero. No part of
the default lowering, as LLVM does the same over whole functions; for reading, and for other code
generators.
"""

from __future__ import annotations

from typing import Any

from ...arith import Analyzer
from ...ir import ArithmeticExpr, IRModule, Let, PassContext, PrimExpr, Var, post_order
from ...ir.transform import prim_func_pass, register_config
from ...ir.walk import transform
from ..stmt import Buffer, BufferStore, Evaluate, LetStmt, PrimFunc, Stmt
from .rewriter import StmtRewriter, is_plain, replace_tuple

register_config("tir.disable_cse_tir", bool, False, "CommonSubexprElimTIR leaves all as it is")
register_config(
    "tir.enable_equiv_terms_in_cse_tir",
    bool,
    False,
    "CommonSubexprElimTIR takes a * 2 + b and b + 2 * a for one term",
)

# Of one statement are looked at; shared ones count each time.
_MOST_TERMS = 20_000


@prim_func_pass(opt_level=0)
def CommonSubexprElimTIR(
    fn: PrimFunc,
    mod: IRModule,
    ctx: PassContext,
    enable_cse_tir: bool = True,
    identify_equiv_terms: bool = False,
) -> PrimFunc:
    """Compute repeated terms of a statement once.

    identify_equiv_terms  whether terms that simplify to one count as one
    """
    if not enable_cse_tir or ctx.get("tir.disable_cse_tir"):
        return fn
    equivalent = identify_equiv_terms or ctx.get("tir.enable_equiv_terms_in_cse_tir")
    return _Share(equivalent).on_function(fn)


class _Share(StmtRewriter):
    def __init__(self, equivalent: bool) -> None:
        super().__init__()
        self.simplify = Analyzer(wrap=True).simplify if equivalent else None

    def on_store(self, stmt: BufferStore) -> Stmt:
        return self._shared(stmt)

    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        return self._shared(stmt)

    def _shared(self, stmt: BufferStore | Evaluate) -> Stmt:
        if self.simplify is not None:
            stmt = _over(stmt, self._simplified)
        lets: list[tuple[Var, PrimExpr]] = []
        while True:
            again = _repeated(stmt)
            if again is None:
                break
            var = Var(f"cse_v{len(lets) + 1}", again.dtype)
            lets.append((var, again))
            stmt = _over(stmt, lambda e, old=again, new=var: _replaced(e, old, new))
        result: Stmt = stmt
        for var, value in reversed(lets):
            result = LetStmt(var, value, result)
        return result

    def _simplified(self, e: PrimExpr) -> PrimExpr:
        def one(n: Any) -> PrimExpr | None:
            return self.simplify(n) if _may_share(n) and self.simplify is not None else None

        return transform(e, one, pre=lambda n: n if isinstance(n, Buffer) else None)


def _over(stmt: Any, f: Any) -> Any:
    if isinstance(stmt, Evaluate):
        return stmt.replace(value=f(stmt.value))
    return stmt.replace(value=f(stmt.value), indices=replace_tuple(stmt.indices, f))


def _replaced(e: PrimExpr, old: PrimExpr, new: PrimExpr) -> PrimExpr:
    return transform(e, None, pre=lambda n: new if n is old else n if type(n) is Buffer else None)


def _may_share(n: Any) -> bool:
    return isinstance(n, ArithmeticExpr) and n.dtype.is_int and n.dtype.lanes == 1 and is_plain(n)


def _repeated(stmt: BufferStore | Evaluate) -> PrimExpr | None:
    """The largest term that is there more than once, each of its parts counted where it stands."""
    counts: dict[PrimExpr, int] = {}
    sizes: dict[PrimExpr, int] = {}
    roots = (stmt.value,) if isinstance(stmt, Evaluate) else (stmt.value, *stmt.indices)
    stack: list[Any] = list(roots)
    for _ in range(_MOST_TERMS):
        if not stack:
            break
        n = stack.pop()
        if isinstance(n, Let):
            return None  # terms of its variable have no place outside
        if _may_share(n):
            counts[n] = counts.get(n, 0) + 1
            if counts[n] > 1:
                continue
            sizes[n] = sum(1 for _ in post_order(n))
        stack += [c for c in n._children_ if isinstance(c, PrimExpr)]
    again = [n for n, count in counts.items() if count > 1]
    return max(again, key=lambda n: sizes[n], default=None)
