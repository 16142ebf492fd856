"""TVM's names for walks and rewrites of statements; the machinery is `ir.walk`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import TIRError
from ..ir import Node, PrimExpr, Var, as_expr, children, descend, post_order
from ..ir import substitute as substitute_nodes
from ..ir.walk import transform
from .stmt import PrimFunc, SeqStmt, Stmt


def post_order_visit(stmt: Node, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on every node below `stmt`, children first, each shared node once."""
    for n in post_order(stmt):
        fvisit(n)


def pre_order_visit(stmt: Node, fvisit: Callable[[Any], Any]) -> None:
    """Call `fvisit` on every node below `stmt`, parents first, each shared node once.

    Where it returns False, the node's children are not entered.
    """
    for _ in descend(stmt, lambda n: () if fvisit(n) is False else children(n), once=id):
        pass


def substitute(node: Any, vmap: Mapping[Any, Any]) -> Any:
    """`node` with variables (or buffers) replaced; numbers as values become constants of the
    variable's dtype.
    """
    mapping = {}
    for key, value in vmap.items():
        if isinstance(key, Var) and not isinstance(value, Node):
            value = as_expr(value, key.dtype)
        if isinstance(key, Var) and isinstance(value, PrimExpr) and value.dtype is not key.dtype:
            raise TIRError(
                f"substitute: {key.name} is {key.dtype}, the value for it is {value.dtype}; cast it"
            )
        mapping[key] = value
    return substitute_nodes(node, mapping)


def ir_transform(
    stmt: Any,
    preorder: Callable[[Any], Any] | None,
    postorder: Callable[[Any], Any] | None,
    only_enable: Sequence[str] | None = None,
) -> Any:
    """Rewrite `stmt`: `preorder` sees a node before its children and may replace it (not None)
    unentered, `postorder` sees it after and may replace it.

    only_enable  the classes the two see, by name ("tir.For" or "For"); default: all
    """
    names = None if only_enable is None else {name.rsplit(".", 1)[-1] for name in only_enable}

    def limited(f: Callable[[Any], Any] | None) -> Callable[[Any], Any]:
        if f is None:
            return lambda n: None
        return lambda n: f(n) if names is None or type(n).__name__ in names else None

    return transform(stmt, limited(postorder), pre=limited(preorder))


def renew_defs(func: PrimFunc) -> PrimFunc:
    """A copy of `func` in which every variable and buffer is a new one."""
    mapping = {
        id(n): type(n)(n.name, n.dtype, n.type_annotation)
        for n in post_order(func)
        if isinstance(n, Var)
    }
    return transform(func, lambda n: None, pre=lambda n: mapping.get(id(n)))


def stmt_list(stmt: Stmt) -> list[Stmt]:
    """The statements that run one after the other in `stmt`; itself if there is one."""
    inside = descend(stmt, lambda each: each.seq if isinstance(each, SeqStmt) else ())
    return [each for each in inside if not isinstance(each, SeqStmt)]
