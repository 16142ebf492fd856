"""Rebuilding statements in program order with a scope, without recursion.

`ir.walk.transform` suits rewrites that need no context. `StmtRewriter` is for those that do
(ranges of loop variables, values of axes): a handler of a statement with others inside is a
generator that yields those and is sent what became of them; of one without, a plain function.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

from ...arith import Analyzer, ConstIntBound, conjuncts
from ...base import TIRError
from ...ir import (
    And,
    ArithmeticExpr,
    CompareExpr,
    Div,
    FloorDiv,
    FloorMod,
    IntImm,
    Mod,
    Node,
    Not,
    Or,
    PrimExpr,
    Range,
    Var,
    as_expr,
    binary,
    const,
    map_children,
    walk,
)
from ...ir.walk import holds, transform
from ..stmt import (
    Allocate,
    AllocateConst,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferLoad,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    PrimFunc,
    SeqStmt,
    Stmt,
    While,
    seq,
)

Steps = Generator[Stmt, Stmt, Stmt]
T = TypeVar("T")
N = TypeVar("N", bound=Node)

MAX_STATEMENTS = 1_000_000


def constant(e: Any) -> int | None:
    """The value of an integer constant, or None."""
    return e.value if isinstance(e, IntImm) else None


def replace_tuple(old: tuple[T, ...], f: Callable[[T], T]) -> tuple[T, ...]:
    """`f` of every element; the same tuple if nothing changed."""
    if not old:
        return old
    new = tuple(map(f, old))
    for a, b in zip(old, new):
        if a is not b:
            return new
    return old


class StmtRewriter:
    """Rebuilds a statement. Override `expr` and the handlers; unchanged statements stay the same
    objects.
    """

    _table: dict[type, str] = {
        BufferStore: "on_store",
        For: "on_for",
        While: "on_while",
        IfThenElse: "on_if",
        LetStmt: "on_let",
        SeqStmt: "on_seq",
        Evaluate: "on_evaluate",
        AssertStmt: "on_assert",
        AttrStmt: "on_attr",
        Allocate: "on_allocate",
        AllocateConst: "on_allocate_const",
        DeclBuffer: "on_decl",
        BlockRealize: "on_realize",
        Block: "on_block",
    }

    def __init__(self) -> None:
        self._visited = 0
        self._before: Callable[[Stmt], Stmt] | None = None  # is done to each statement

    def run(self, root: Stmt) -> Stmt:
        """What `root` becomes."""
        stack: list[Steps] = []
        stmt: Stmt | None = root
        before, table = self._before, self._table
        while True:
            if stmt is not None:
                self._visited += 1
                if self._visited > MAX_STATEMENTS:
                    raise TIRError(
                        f"a function of more than {MAX_STATEMENTS} statements (shared ones counted "
                        f"each time)"
                    )
                stmt = stmt if before is None else before(stmt)
                name = table.get(type(stmt))
                if name is None:
                    kind = type(stmt).__name__
                    raise TIRError(f"{type(self).__name__}: unknown statement {kind}")
                outcome: Any = getattr(self, name)(stmt)
            sent = outcome
            if not isinstance(outcome, Stmt):
                stack.append(outcome)
                sent = None
            elif not stack:
                return outcome
            try:
                stmt = stack[-1].send(sent)
            except StopIteration as done:
                stack.pop()
                stmt, outcome = None, done.value

    def on_function(self, fn: PrimFunc) -> PrimFunc:
        """The function with its body rewritten."""
        return fn.replace(body=self.run(fn.body))

    # -- what to override --------------------------------------------------------------------------

    def expr(self, e: PrimExpr) -> PrimExpr:
        """What an expression of the statement becomes."""
        return e

    def buffer(self, b: Buffer) -> Buffer:
        """What a buffer that is stored to, declared or allocated becomes."""
        return b

    def on_store(self, stmt: BufferStore) -> Stmt:
        value, indices = self.expr(stmt.value), replace_tuple(stmt.indices, self.expr)
        buffer = self.buffer(stmt.buffer)
        if value is stmt.value and indices is stmt.indices and buffer is stmt.buffer:
            return stmt
        return stmt.replace(buffer=buffer, value=value, indices=indices)

    def on_evaluate(self, stmt: Evaluate) -> Stmt:
        return stmt.replace(value=self.expr(stmt.value))

    def with_range(self, stmt: For) -> For:
        """The loop with its range rewritten. (What is constant stays.)"""
        if type(stmt.min) is type(stmt.extent) is IntImm:
            return stmt
        return stmt.replace(min=self.expr(stmt.min), extent=self.expr(stmt.extent))

    def on_for(self, stmt: For) -> Steps:
        loop = self.with_range(stmt)
        body = yield stmt.body
        return loop if body is loop.body else loop.replace(body=body)

    def on_while(self, stmt: While) -> Steps:
        condition = self.expr(stmt.condition)
        body = yield stmt.body
        return stmt.replace(condition=condition, body=body)

    def on_if(self, stmt: IfThenElse) -> Steps:
        condition = self.expr(stmt.condition)
        then_case = yield stmt.then_case
        else_case = stmt.else_case
        if else_case is not None:
            else_case = yield else_case
        return stmt.replace(condition=condition, then_case=then_case, else_case=else_case)

    def on_let(self, stmt: LetStmt) -> Steps:
        value = self.expr(stmt.value)
        body = yield stmt.body
        return stmt.replace(value=value, body=body)

    def on_seq(self, stmt: SeqStmt) -> Steps:
        parts = []
        for each in stmt.seq:
            parts.append((yield each))
        if all(map(operator.is_, parts, stmt.seq)):
            return stmt
        return seq(*parts)

    def on_assert(self, stmt: AssertStmt) -> Steps:
        condition = self.expr(stmt.condition)
        body = yield stmt.body
        return stmt.replace(condition=condition, body=body)

    def on_attr(self, stmt: AttrStmt) -> Steps:
        value = self.expr(stmt.value)
        body = yield stmt.body
        return stmt.replace(value=value, body=body)

    def on_allocate(self, stmt: Allocate) -> Steps:
        extents, condition = replace_tuple(stmt.extents, self.expr), self.expr(stmt.condition)
        body = yield stmt.body
        return stmt.replace(extents=extents, condition=condition, body=body)

    def on_allocate_const(self, stmt: AllocateConst) -> Steps:
        body = yield stmt.body
        return stmt.replace(body=body)

    def on_decl(self, stmt: DeclBuffer) -> Steps:
        buffer = self.buffer(stmt.buffer)
        body = yield stmt.body
        if buffer is stmt.buffer and body is stmt.body:
            return stmt
        return stmt.replace(buffer=buffer, body=body)

    def on_realize(self, stmt: BlockRealize) -> Steps:
        values, predicate = replace_tuple(stmt.iter_values, self.expr), self.expr(stmt.predicate)
        block = yield stmt.block
        return stmt.replace(iter_values=values, predicate=predicate, block=block)

    def on_block(self, stmt: Block) -> Steps:
        buffers = replace_tuple(stmt.alloc_buffers, self.buffer)
        init = stmt.init
        if init is not None:
            init = yield init
        body = yield stmt.body
        return stmt.replace(init=init, body=body, alloc_buffers=buffers)


class ScopedRewriter(StmtRewriter):
    """A rewriter that knows what variables stand for (`env`) and, through `analyzer`, the ranges
    of loop variables.
    """

    def __init__(self, fn: PrimFunc | None = None) -> None:
        super().__init__()
        self.analyzer = Analyzer(wrap=True)
        self.env: dict[int, tuple[Node, Node]] = {}  # by identity: what stands for what
        self._memo: dict[int, tuple[Node, Node]] = {}
        self._buffers: dict[Buffer, Buffer] = {}
        if fn is not None:
            bind_sizes(self.analyzer, fn)

    def expr(self, e: PrimExpr) -> PrimExpr:
        return e if type(e) is IntImm or not self.env else self.resolve(e)

    def resolve(self, n: N) -> N:
        """An expression or a region with what is known in it."""
        if not self.env:
            return n

        def buffer(n: Any) -> Buffer | None:
            return self.buffer(n) if type(n) is Buffer else None

        return transform(n, fold, buffer, self._memo, _FOLDED)

    def buffer(self, b: Buffer) -> Buffer:
        """The buffer with what is known in its shape, strides and offset; decided once, where it
        is first met.
        """
        resolved = self._buffers.get(b)
        if resolved is None:
            resolved = b
            if self.env:
                memo = dict(self.env)
                resolved = map_children(b, lambda c: transform(c, None, memo=memo))
            self._buffers[b] = resolved
        return resolved

    def define(self, values: Mapping[Any, Any]) -> None:
        """Let variables (or buffers) stand for values from here on."""
        for key, value in values.items():
            new = as_expr(value, key.dtype) if isinstance(value, int) else value
            self.env[id(key)] = (key, new)
        self._memo = dict(self.env)

    def enter(self, stmt: For) -> None:
        """Let the variable of a loop be in the loop's range (if that does not wrap). Of a range
        that was read from memory only the constant bounds: the body may write there.
        """
        first, extent, var = stmt.min, stmt.extent, stmt.loop_var
        bound, (_, most) = self.analyzer.const_int_bound, ConstIntBound.of_dtype(var.dtype)
        if type(first) is type(extent) is IntImm:
            top = first.value + extent.value - 1
            if first.value <= top <= most:
                self.analyzer.let_range(var, first.value, top)
                return
        else:
            top = bound(first).max_value + bound(extent).max_value - 1
            if reads_memory(first) or reads_memory(extent):
                low = bound(first).min_value
                count = max(0, top - low + 1)
                first, extent = const(low, var.dtype), const(min(count, most), var.dtype)
                top = max(top, count)
        if top <= most:
            dom = Range.from_min_extent(first, extent)
            self.analyzer.bind(var, dom, allow_override=True)

    def on_for(self, stmt: For) -> Steps:
        loop = self.with_range(stmt)
        self.enter(loop)
        body = yield stmt.body
        return loop if body is loop.body else loop.replace(body=body)


def reads_memory(e: Any) -> bool:
    """Whether `e` depends on what buffers hold."""
    return type(e) is not IntImm and holds(e, BufferLoad)


_LOADS = frozenset({Buffer, BufferLoad})


def with_loads(
    e: N, load: Callable[[Any], Node | None], memo: dict[int, tuple[Node, Node]] | None = None
) -> N:
    """`e` with every load in it replaced by what `load` gives for it (None: it stays), those in
    its indices first. Buffers are not entered.
    """
    if type(e) in (Var, IntImm):
        return e
    return transform(e, load, lambda n: n if type(n) is Buffer else None, memo, _LOADS)


_PLAIN = (Var, IntImm, ArithmeticExpr, CompareExpr, And, Or, Not)


def is_plain(e: PrimExpr) -> bool:
    """Whether `e` may be asked at any time."""
    for n in walk(e):
        if isinstance(n, (FloorDiv, FloorMod)):
            if not isinstance(n.b, IntImm) or n.b.value == 0:
                return False
        elif not isinstance(n, _PLAIN) or isinstance(n, (Div, Mod)):
            return False
    return True


def stable(condition: PrimExpr) -> PrimExpr:
    """What a condition says that is not about memory: after the next store that may not hold."""
    if not reads_memory(condition):
        return condition
    kept: PrimExpr = const(True, "bool")
    for each in conjuncts(condition):
        if not reads_memory(each):
            kept = And(kept, each)
    return kept


def fold(n: Any) -> PrimExpr | None:
    """An integer operation on constants, or on a neutral one, without it."""
    if (
        isinstance(n, ArithmeticExpr)
        and n.dtype.is_int
        and (isinstance(n.b, IntImm) or isinstance(n.a, IntImm))
    ):
        return binary(type(n), n.a, n.b)
    return None


_FOLDED: frozenset[type] = frozenset({Buffer, *ArithmeticExpr.__subclasses__()})
MAX_SIZE = 1 << 40


def size_bounds(fn: PrimFunc) -> dict[Var, int]:
    """The greatest value of each symbol that the parameters' shapes bind. The least is 0.

    Code may rely on it: a caller's array whose size is above is refused when the function is
    entered.
    """
    declared = fn.get_attr("tir_var_upper_bound", {}) or {}
    bounds: dict[Var, int] = {}
    for buffer in fn.buffers:
        for e in buffer.shape:
            if isinstance(e, Var) and e not in bounds and e not in fn.params:
                top = declared.get(e.name) if isinstance(declared, Mapping) else None
                least = min(MAX_SIZE, int(e.dtype.max_value))
                bounds[e] = min(top, least) if isinstance(top, int) and top >= 0 else least
    return bounds


def bind_sizes(analyzer: Analyzer, fn: PrimFunc) -> None:
    """Tell the analyzer the bounds of the symbols."""
    for var, top in size_bounds(fn).items():
        analyzer.update(var, ConstIntBound(0, top))
