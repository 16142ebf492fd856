"""Questions about variables: which are undefined, and whether each is defined once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import UNKNOWN
from ...ir import PrimExpr, Var, as_expr, const
from ..stmt import Block, BlockRealize, Buffer, PrimFunc
from .scope import Place, ScopeWalker


class _Undefined(ScopeWalker):
    def __init__(self) -> None:
        super().__init__()
        self.missing: dict[Var, None] = {}

    def on_undefined(self, what: Any, place: Place) -> None:
        if isinstance(what, Buffer):
            self.missing[what.data] = None
            self.layout(what, place)
        else:
            self.missing[what] = None


def undefined_vars(node: Any, defs: Sequence[Var] = ()) -> list[Var]:
    """The variables used in a function, statement or expression without a definition in it, in
    order of use.

    defs  variables to take as defined
    """
    walker = _Undefined()
    for var in defs:
        walker.scope[id(var)] = var
    if isinstance(node, PrimFunc):
        walker.walk_function(node, "main")
    elif isinstance(node, PrimExpr):
        walker.use(node, Place("expression", None, UNKNOWN, 0))
    elif isinstance(node, Block):
        walker.walk_stmt(BlockRealize(tuple(a.var for a in node.iter_vars), const(True), node))
    else:
        walker.walk_stmt(node)
    return list(walker.missing)


class _Definitions(ScopeWalker):
    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[int, Any] = {}
        self.twice = False

    def on_defined(self, what: Any, place: Place, again: bool) -> None:
        self.twice = self.twice or again or id(what) in self.seen
        self.seen[id(what)] = what


def verify_ssa(func: PrimFunc) -> bool:
    """Whether every variable and buffer has one definition in the whole function."""
    walker = _Definitions()
    walker.walk_function(func, "main")
    return not walker.twice


def expr_deep_equal(a: Any, b: Any) -> bool:
    """Whether two expressions are written the same over the same variables. Costs nothing: they are
    interned.
    """
    return as_expr(a) is as_expr(b)
