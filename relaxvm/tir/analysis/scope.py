"""A walk over statements that knows what is defined where. The checks and questions about scopes
are built on it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...base import UNKNOWN, NamedTuple, Span
from ...ir import BinaryExpr, IntImm, Let, Node, Var, post_order
from ..stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    statements_below,
)


class Place(NamedTuple):
    """Where a statement stands: its label, what it stands in, and how deep."""

    label: str
    inside: Place | None
    span: Span
    depth: int

    def below(self, label: str, span: Span = UNKNOWN, deeper: int = 1) -> Place:
        """The place of something inside this one."""
        return Place(label, self, span, self.depth + deeper)

    def __str__(self) -> str:
        labels: list[str] = []
        place: Place | None = self
        while place is not None:
            labels.append(place.label)
            place = place.inside
        if len(labels) > 9:
            labels = [*labels[:4], "…", *labels[-4:]]
        return " / ".join(reversed(labels))

    def nearest_span(self) -> Span:
        """The innermost source position that is known."""
        place: Place | None = self
        while place is not None:
            if place.span is not UNKNOWN:
                return place.span
            place = place.inside
        return UNKNOWN


def operands(n: Any) -> Sequence[Any]:
    """The expressions directly below an expression; a load's are its indices, a let's leave out its
    variable.
    """
    return (n.value, n.body) if type(n) is Let else n._operands_


def post_order_expr(root: Any) -> list[Any]:
    """The expressions of `root`, operands first, each shared one once."""
    return post_order(root, operands)


class ScopeWalker:
    """Visits a function or statement in order, keeping `scope`: everything defined at the current
    place, by identity.

    Subclasses override the hooks below. Nothing here recurses.
    """

    def __init__(self) -> None:
        self.scope: dict[int, Node] = {}
        self._stack: list[tuple[str, Any, Any]] = []

    # -- hooks -------------------------------------------------------------------------------------

    def on_undefined(self, what: Any, place: Place) -> None:
        """`what` (a variable, or a buffer whose memory is not known) is used but not in scope."""

    def on_defined(self, what: Any, place: Place, again: bool) -> None:
        """`what` is defined here; `again`: it is in scope already."""

    def on_expr(self, n: Any, place: Place, root: bool) -> None:
        """An expression node is met; `root`: the statement evaluates it directly."""

    def on_used(self, var: Any, place: Place) -> None:
        """A variable in scope is used."""

    def on_stmt(self, s: Any, place: Place) -> None:
        """A statement is met, before what is in it."""

    def on_block_body(self, entering: bool, realize: BlockRealize) -> None:
        """From here on (until left) things are inside the block, where its axes are bound."""

    # -- scope -------------------------------------------------------------------------------------

    def define(self, what: Any, place: Place) -> list[int]:
        """Put `what` in scope; returns what to take out again later."""
        again = id(what) in self.scope
        self.on_defined(what, place, again)
        self.scope[id(what)] = what
        return [] if again else [id(what)]

    def use(self, expr: Any, place: Place) -> None:
        """Visit an expression that is evaluated here."""
        if type(expr) is IntImm:
            return  # nothing is used, and nothing can be wrong
        order = [expr] if type(expr) is Var else post_order_expr(expr)
        free = self._free_with_lets(order, place) if Let in map(type, order) else None
        for n in order:
            if isinstance(n, Var):
                if free is not None and id(n) not in free:
                    continue
                self._use_var(n, place)
            elif type(n) is BufferLoad:
                self.use_buffer(n.buffer, place)
            elif not isinstance(n, BinaryExpr):
                for child in n._children_:
                    if isinstance(child, Buffer):
                        self.use_buffer(child, place)
            self.on_expr(n, place, n is expr)

    def _use_var(self, var: Any, place: Place) -> None:
        if id(var) in self.scope:
            self.on_used(var, place)
        else:
            self.on_undefined(var, place)

    def _free_with_lets(self, order: list[Any], place: Place) -> set[int]:
        free: dict[int, frozenset[int]] = {}
        for n in order:
            if isinstance(n, Var):
                free[id(n)] = frozenset((id(n),))
            elif type(n) is Let:
                self.on_defined(n.var, place, id(n.var) in self.scope)
                free[id(n)] = free[id(n.value)] | (free[id(n.body)] - {id(n.var)})
            else:
                free[id(n)] = frozenset().union(*[free[id(c)] for c in operands(n)])
        return set(free[id(order[-1])])

    def use_buffer(self, buffer: Buffer, place: Place) -> None:
        """Visit a use of a buffer: it is in scope, or at least its memory is."""
        if id(buffer) in self.scope:
            return
        if id(buffer.data) not in self.scope:
            self.on_undefined(buffer, place)
            return
        self.layout(buffer, place)

    def layout(self, buffer: Buffer, place: Place) -> None:
        """Visit the shape, strides and offset of a buffer."""
        for e in (*buffer.shape, *buffer.strides, buffer.elem_offset):
            self.use(e, place)

    # -- functions ---------------------------------------------------------------------------------

    def walk_function(self, func: PrimFunc, name: str) -> None:
        """Visit a function."""
        place = Place(name, None, func.span, 0)
        for p in func.params:
            self.define(p, place)
        buffers = [func.buffer_map[p] for p in func.params if p in func.buffer_map]
        for b in buffers:
            self.define(b.data, place)
            for e in (*b.shape, *b.strides, b.elem_offset):
                if isinstance(e, Var) and id(e) not in self.scope:
                    self.define(e, place)
        for b in buffers:
            self.layout(b, place)
            self.define(b, place)
        self.walk_stmt(func.body, place)

    def walk_stmt(self, root: Stmt, place: Place | None = None) -> None:
        """Visit a statement and all below it."""
        self._stack.append(("stmt", root, place or Place("statement", None, UNKNOWN, 0)))
        while self._stack:
            what, item, where = self._stack.pop()
            if what == "stmt":
                self.on_stmt(item, where)
                handler = _VISITS.get(type(item))
                if handler is not None:
                    handler(self, item, where)
            elif what == "leave":
                for key in item:
                    del self.scope[key]
            elif what == "call":
                item(*where)

    def _then(self, undo: list[int], *stmts: tuple[Stmt | None, Place]) -> None:
        self._stack.append(("leave", undo, None))
        for s, place in reversed(stmts):
            if s is not None:
                self._stack.append(("stmt", s, place))

    def _seq(self, s: SeqStmt, place: Place) -> None:
        self._stack.extend(("stmt", each, place) for each in reversed(s.seq))

    def _store(self, s: BufferStore, place: Place) -> None:
        here = place.below(f"store to {s.buffer.name}", s.span)
        self.use_buffer(s.buffer, here)
        for e in (*s.indices, s.value):
            self.use(e, here)

    def _for(self, s: For, place: Place) -> None:
        here = place.below(f"for {s.loop_var.name}", s.span)
        self.use(s.min, here)
        self.use(s.extent, here)
        undo = self.define(s.loop_var, here)
        axis = s.thread_binding
        if axis is not None and axis.var is not s.loop_var and id(axis.var) not in self.scope:
            undo += self.define(axis.var, here)
        self._then(undo, (s.body, here))

    def _while(self, s: While, place: Place) -> None:
        here = place.below("while", s.span)
        self.use(s.condition, here)
        self._then([], (s.body, here))

    def _if(self, s: IfThenElse, place: Place) -> None:
        here = place.below("if", s.span)
        self.use(s.condition, here)
        # A chain of else-if is as long as it likes without getting deeper.
        self._then([], (s.then_case, here), (s.else_case, place.below("else", s.span, 0)))

    def _let(self, s: LetStmt, place: Place) -> None:
        here = place.below(f"let {s.var.name}", s.span, 0)
        self.use(s.value, here)
        self._then(self.define(s.var, here), (s.body, place))

    def _evaluate(self, s: Evaluate, place: Place) -> None:
        self.use(s.value, place.below("evaluate", s.span))

    def _assert(self, s: AssertStmt, place: Place) -> None:
        here = place.below("assert", s.span, 0)
        self.use(s.condition, here)
        self.use(s.message, here)
        self._then([], (s.body, place))

    def _attr(self, s: AttrStmt, place: Place) -> None:
        here = place.below(f"attr {s.attr_key}", s.span, 0)
        self.use(s.value, here)
        undo: list[int] = []
        if isinstance(s.node, IterVar) and id(s.node.var) not in self.scope:
            undo = self.define(s.node.var, here)
        self._then(undo, (s.body, place.below(f"attr {s.attr_key}", s.span) if undo else place))

    def _allocate(self, s: Allocate, place: Place) -> None:
        here = place.below(f"allocate {s.buffer_var.name}", s.span, 0)
        for e in (*s.extents, s.condition):
            self.use(e, here)
        self._then(self.define(s.buffer_var, here), (s.body, place))

    def _allocate_const(self, s: AllocateConst, place: Place) -> None:
        here = place.below(f"allocate_const {s.buffer_var.name}", s.span, 0)
        for e in s.extents:
            self.use(e, here)
        self._then(self.define(s.buffer_var, here), (s.body, place))

    def _declare(self, s: DeclBuffer, place: Place) -> None:
        here = place.below(f"decl_buffer {s.buffer.name}", s.span, 0)
        undo: list[int] = []
        if id(s.buffer.data) not in self.scope:
            undo += self.define(s.buffer.data, here)
        self.layout(s.buffer, here)
        undo += self.define(s.buffer, here)
        self._then(undo, (s.body, place))

    def _block(self, s: BlockRealize, place: Place) -> None:
        block = s.block
        here = place.below(
            f"block {block.name_hint}", block.span if block.span is not UNKNOWN else s.span
        )
        for e in (*s.iter_values, s.predicate):
            self.use(e, here)
        for axis in block.iter_vars:
            if axis.dom is not None:
                self.use(axis.dom.min, here)
                self.use(axis.dom.extent, here)
        self.on_block_body(True, s)
        undo: list[int] = []
        for axis in block.iter_vars:
            undo += self.define(axis.var, here)
        for b in block.alloc_buffers:
            self.layout(b, here)
            undo += self.define(b.data, here)
            undo += self.define(b, here)
        for m in block.match_buffers:
            self._region(m.source, here)
            undo += self.define(m.buffer.data, here)
            for e in (*m.buffer.shape, *m.buffer.strides, m.buffer.elem_offset):
                if isinstance(e, Var) and id(e) not in self.scope:
                    undo += self.define(e, here)
            self.layout(m.buffer, here)
            undo += self.define(m.buffer, here)
        for region in (*block.reads, *block.writes):
            self._region(region, here)
        self._stack.append(("call", self.on_block_body, (False, s)))
        self._then(undo, (block.init, here), (block.body, here))

    def _region(self, region: Any, place: Place) -> None:
        self.use_buffer(region.buffer, place)
        for r in region.region:
            self.use(r.min, place)
            self.use(r.extent, place)


def shared_size(root: Stmt) -> int:
    """How many statements `root` means, when one that stands in several places counts each time."""
    size: dict[int, int] = {}
    for s in post_order(root, statements_below):
        size[id(s)] = 1 + sum(map(size.__getitem__, map(id, statements_below(s))))
    return size[id(root)]


_VISITS: dict[type, Any] = {
    SeqStmt: ScopeWalker._seq,
    BufferStore: ScopeWalker._store,
    For: ScopeWalker._for,
    While: ScopeWalker._while,
    IfThenElse: ScopeWalker._if,
    LetStmt: ScopeWalker._let,
    Evaluate: ScopeWalker._evaluate,
    AssertStmt: ScopeWalker._assert,
    AttrStmt: ScopeWalker._attr,
    Allocate: ScopeWalker._allocate,
    AllocateConst: ScopeWalker._allocate_const,
    DeclBuffer: ScopeWalker._declare,
    BlockRealize: ScopeWalker._block,
}
