"""`PyStmtExprVisitor` and `PyStmtExprMutator`: users' own walks over statements and scalar
expressions, one method per kind of node.

    @functor.mutator
    class AddToSub(PyStmtExprMutator):
        def visit_add_(self, op):
            return self.visit_expr(op.a) - self.visit_expr(op.b)

    body = AddToSub().visit_stmt(func.body)

``visit_for_``, ``visit_buffer_load_``, ``visit_add_``: the class's name in small letters.
Overridden methods recurse; what is below a node that nobody looks at is walked with a stack, so
that long sums need no deep one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from ..base import TIRError
from ..ir import Let, PrimExpr, Range, derived_from, descend, node_types
from ..ir.walk import transform
from .stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    SeqStmt,
    Stmt,
    While,
)

C = TypeVar("C", bound=type)

# What is visited below a node, in order; of other nodes, all expressions. Variables where they are
# bound, buffers and annotations are not.
_PARTS: dict[type, str] = {
    Allocate: "extents condition body",
    AllocateConst: "extents body",
    AssertStmt: "condition message body",
    AttrStmt: "value body",
    Block: "iter_vars reads writes match_buffers init body",
    BlockRealize: "iter_values predicate block",
    BufferLoad: "indices",
    BufferStore: "value indices",
    DeclBuffer: "body",
    Evaluate: "value",
    For: "min extent body",
    IfThenElse: "condition then_case else_case",
    Let: "value body",
    LetStmt: "value body",
    SeqStmt: "seq",
    While: "condition body",
    # Nodes that are neither.
    BufferRegion: "region",
    IterVar: "dom",
    MatchBufferRegion: "source",
    Range: "min extent",
}


def visitor(cls: C) -> C:
    """Marks a class derived from `PyStmtExprVisitor` (TVM needs the mark; here it only checks)."""
    return derived_from(cls, PyStmtExprVisitor, TIRError)


def mutator(cls: C) -> C:
    """Marks a class derived from `PyStmtExprMutator` (TVM needs the mark; here it only checks)."""
    return derived_from(cls, PyStmtExprMutator, TIRError)


def _method(kind: type) -> str:
    """visit_buffer_load_ for BufferLoad, visit_eq_ for EQ."""
    return f"visit_{re.sub('(?<=[a-z])(?=[A-Z])', '_', kind.__name__).lower()}_"


class _Functor:
    """What both have: the choice of the method."""

    # By kind of node: whether the class has a method of its own for it.
    _seen: dict[type, bool]

    def __init_subclass__(cls) -> None:
        cls._seen = {}

    def visit_stmt(self, stmt: Any) -> Any:
        """Visit a statement by the method for its kind."""
        return self._by_kind(stmt, Stmt, "a statement")

    def visit_expr(self, expr: Any) -> Any:
        """Visit a scalar expression by the method for its kind."""
        return self._by_kind(expr, PrimExpr, "a scalar expression")

    def _by_kind(self, n: Any, base: type, what: str) -> Any:
        if not isinstance(n, base):
            raise TIRError(f"{type(self).__name__}: wanted {what}, got {type(n).__name__}")
        return getattr(self, _method(type(n)), self._default)(n)

    def _default(self, n: Any) -> Any:
        raise AssertionError  # both classes have it

    def _sees(self, kind: type) -> bool:
        """Whether the user's class may do something of its own with nodes of `kind`."""
        seen = self._seen.get(kind)
        if seen is None:
            cls, base, name = type(self), _base_of(type(self)), _method(kind)
            door = "visit_stmt" if issubclass(kind, Stmt) else "visit_expr"
            seen = any(getattr(cls, m, None) is not getattr(base, m, None) for m in (name, door))
            self._seen[kind] = seen
        return seen

    def _visit(self, n: Any) -> Any:
        return self.visit_stmt(n) if isinstance(n, Stmt) else self.visit_expr(n)


class PyStmtExprVisitor(_Functor):
    """Visits every statement and expression, parents first. Override the methods of interest; what
    is below a node is visited only if its method asks for it, as ``super().visit_for_(op)`` does.
    """

    def _default(self, n: Any) -> None:
        """Visit what is below `n`."""

        def is_seen(child: Any) -> bool:
            return child is not n and self._sees(type(child))

        for child in descend(n, lambda child: () if is_seen(child) else tuple(_below(child))):
            if is_seen(child):
                self._visit(child)


class PyStmtExprMutator(_Functor):
    """Rebuilds statements and expressions; methods return the new node. What nobody changed stays
    the same object.
    """

    def _default(self, n: Any) -> Any:
        """`n` with what is below it visited."""
        if type(n) in _PARTS:
            return _with_parts(n, self._rebuilt)
        return transform(n, None, pre=lambda below: None if below is n else self._replaced(below))

    def _rebuilt(self, n: Any) -> Any:
        return self._visit(n) if self._sees(type(n)) else self._default(n)

    def _replaced(self, n: Any) -> Any:
        """What stands for `n`, or None to go on below it."""
        if isinstance(n, PrimExpr):
            return self._rebuilt(n) if self._sees(type(n)) or type(n) in _PARTS else None
        return n


def _base_of(cls: type) -> type:
    return PyStmtExprVisitor if issubclass(cls, PyStmtExprVisitor) else PyStmtExprMutator


def _below(n: Any) -> Iterator[Any]:
    """The statements and expressions right below `n`."""
    names = _PARTS.get(type(n))
    if names is None:
        yield from (c for c in n._children_ if isinstance(c, PrimExpr))
        return
    for name in names.split():
        yield from _flat(getattr(n, name))


def _flat(value: Any) -> Iterator[Any]:
    if isinstance(value, (Stmt, PrimExpr)):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _flat(each)
    elif value is not None:
        yield from _below(value)


def _with_parts(n: Any, change: Callable[[Any], Any]) -> Any:
    """`n` with its parts changed; itself if none is."""
    old = {name: getattr(n, name) for name in _PARTS[type(n)].split()}
    new = {name: _changed(value, change) for name, value in old.items()}
    return n if all(new[name] is value for name, value in old.items()) else n.replace(**new)


def _changed(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, (Stmt, PrimExpr)):
        return change(value)
    if isinstance(value, tuple):
        changed = tuple(_changed(each, change) for each in value)
        return value if all(a is b for a, b in zip(changed, value)) else changed
    return value if value is None else _with_parts(value, change)


def _define_methods() -> None:
    """A method for every kind of node, so that users can see them and call super()."""
    kinds = [k for k in node_types().values() if issubclass(k, (Stmt, PrimExpr))]
    for cls in (PyStmtExprVisitor, PyStmtExprMutator):
        for kind in kinds:
            default = cls._default

            def visit(self: Any, op: Any, _default: Any = default) -> Any:
                return _default(self, op)

            visit.__name__ = _method(kind)
            visit.__doc__ = f"Visit a {kind.__name__}; as it is, what is below it."
            setattr(cls, visit.__name__, visit)


_define_methods()
