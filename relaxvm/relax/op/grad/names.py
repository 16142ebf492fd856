"""Names for scalar expressions that a statement uses more than once."""

from __future__ import annotations

from typing import Any

from ....ir import PrimExpr
from ....ir import Var as TirVar
from ....tir import LetStmt, Stmt
from ..sampling import f64


class Names:
    """Names for expressions, in the order in which they are asked for.

    names = Names()
    x = names.of(a * b)
    names.within(store(out, x * x, i))      let t0 = a * b in out[i] = t0 * t0
    """

    def __init__(self, prefix: str = "t") -> None:
        self.prefix = prefix
        self.bound: list[tuple[TirVar, PrimExpr]] = []

    def of(self, value: Any) -> PrimExpr:
        """A variable that stands for `value`; a Python number is one of float64."""
        value = value if isinstance(value, PrimExpr) else f64(value)
        var = TirVar(f"{self.prefix}{len(self.bound)}", value.dtype)
        self.bound.append((var, value))
        return var

    def within(self, body: Stmt) -> Stmt:
        """`body`, where the names are bound."""
        for var, value in reversed(self.bound):
            body = LetStmt(var, value, body)
        return body
