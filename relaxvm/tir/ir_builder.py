"""`tir.ir_builder`: statements written by Python code, with arrays that are stored into by ``[]``.

    ib = tir.ir_builder.create()
    A = ib.buffer_ptr(a)
    with ib.for_range(0, n, name="i") as i:
        with ib.if_scope(i % 2 == 0):
            A[i] = A[i] + 1.0
        with ib.else_scope():
            A[i] = 0.0
    body = ib.get()

The suites are those of `stmt_writer`. Whole functions and blocks with axes: `script.ir_builder`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..base import BuilderError, TIRError
from ..base import dtype as as_dtype
from ..ir import (
    Call,
    Map,
    Node,
    PointerType,
    PrimExpr,
    PrimType,
    Ramp,
    StringImm,
    Var,
    as_expr,
    cast,
    const,
)
from .op import likely
from .op import max as tir_max
from .stmt import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferStore,
    Evaluate,
    For,
    IfThenElse,
    LetStmt,
    Stmt,
    While,
    decl_buffer,
)
from .stmt_writer import StmtWriter, Suite

_KINDS = {"vectorize": "vectorized", "unroll": "unroll"}
# How many elements a bare pointer is taken to have; nothing checks it.
_UNBOUNDED = 1 << 30


class BufferVar:
    """An array of an `IRBuilder`: ``x[i]`` is a load, ``x[i] = v`` writes a store.

    An index is one number per dimension, or one that counts the elements row by row. With a vector
    dtype such as "float32x4" it counts vectors.
    """

    def __init__(self, builder: IRBuilder, buffer: Buffer, dtype: Any) -> None:
        self._builder = builder
        self._buffer = buffer
        self.dtype = as_dtype(dtype)

    def asobject(self) -> Var:
        """The pointer."""
        return self._buffer.data

    # An argument of a call is the pointer.
    __prim_expr__ = asobject

    @property
    def buffer(self) -> Buffer:
        """The buffer that is loaded from and stored into."""
        return self._buffer

    def _indices(self, index: Any) -> tuple[PrimExpr, ...]:
        shape = self._buffer.shape
        indices = [as_expr(i) for i in (index if isinstance(index, tuple) else (index,))]
        lanes = self.dtype.lanes
        if len(indices) == 1 and len(shape) > 1:
            rest, indices = indices[0] * lanes, []
            for extent in reversed(shape[1:]):
                size = cast(rest.dtype, extent)
                indices.insert(0, rest % size)
                rest = rest // size
            indices.insert(0, rest)
        elif len(indices) != len(shape):
            raise TIRError(
                f"{self._buffer.name} has {len(shape)} dimensions, got {len(indices)} indices"
            )
        elif lanes > 1 and indices:
            indices[-1] = indices[-1] * lanes
        if lanes > 1:
            indices[-1] = Ramp(indices[-1], const(1, indices[-1].dtype), lanes)
        return tuple(indices)

    def __getitem__(self, index: Any) -> BufferLoad:
        return BufferLoad(self._buffer, self._indices(index))

    # Without this, Python would iterate by indexing, for ever.
    __iter__ = None

    def __setitem__(self, index: Any, value: Any) -> None:
        value = as_expr(value, None if isinstance(value, Node) else self.dtype)
        if value.dtype is not self.dtype:
            raise TIRError(
                f"{self._buffer.name} holds {self.dtype}, the value is {value.dtype}; cast it"
            )
        self._builder.emit(BufferStore(self._buffer, value, self._indices(index)))


class IRBuilder(StmtWriter):
    """Writes a statement (see the top of this file). Made by `create`."""

    def __init__(self) -> None:
        self.suites = [Suite()]
        self._loops = 0

    def get(self) -> Stmt:
        """The statement. Raises BuilderError inside a scope."""
        if len(self.suites) != 1:
            raise BuilderError("IRBuilder.get: a scope is still open")
        return self.suite.close()

    def emit(self, stmt: Any) -> None:
        """Add a statement, a call, or a function from the rest of the scope to a statement."""
        if isinstance(stmt, Call):
            stmt = Evaluate(stmt)
        if isinstance(stmt, Stmt):
            super().emit(stmt)
        elif callable(stmt) and not isinstance(stmt, Node):
            self.suite.open(stmt)
        else:
            raise TIRError(f"emit: wanted a statement or a call, got {type(stmt).__name__}")

    # -- for the rest of the scope

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """A remark about `node` for the rest of the scope."""
        if isinstance(node, BufferVar):
            node = node.asobject()
        node = StringImm(node) if isinstance(node, str) else node
        expr = StringImm(value) if isinstance(value, str) else as_expr(value)
        if attr_key == "thread_extent":
            expr = tir_max(const(1, expr.dtype), expr)
        self.suite.open(lambda body: AttrStmt(node, attr_key, expr, body))

    def let(self, var_name: str, value: Any) -> Var:
        """A variable with that value, for the rest of the scope."""
        expr = as_expr(value)
        var = Var(var_name, expr.dtype)
        self.suite.open(lambda body: LetStmt(var, expr, body))
        return var

    def allocate(self, dtype: Any, shape: Any, name: str = "buf", scope: str = "") -> BufferVar:
        """Memory for an array, for the rest of the scope.

        shape  its dimensions, or one number
        """
        extents = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
        array = self._array(dtype, extents, name, scope)
        data, element = array.asobject(), array.buffer.dtype
        size = array.buffer.shape
        self.suite.open(lambda body: Allocate(data, element, size, const(True), body, Map()))
        return array

    # -- arrays

    def pointer(self, content_type: Any, name: str = "ptr", scope: str = "") -> BufferVar:
        """An array of unknown length behind a new pointer variable."""
        return self._array(content_type, (_UNBOUNDED,), name, scope)

    def buffer_ptr(self, buf: Buffer, shape: Any = None) -> BufferVar:
        """The array of `buf`; with `shape`, its memory taken to be of that shape."""
        if shape is not None:
            buf = decl_buffer(shape, buf.dtype, buf.name, buf.data, scope=buf.scope())
        return BufferVar(self, buf, buf.dtype)

    def _array(self, dtype: Any, shape: Any, name: str, scope: str) -> BufferVar:
        kind = as_dtype(dtype)
        data = Var(name, PointerType(PrimType(kind.element), scope))
        if kind.lanes > 1:
            shape = (*shape[:-1], as_expr(shape[-1]) * kind.lanes)
        return BufferVar(self, decl_buffer(shape, kind.element, name, data, scope=scope), kind)

    # -- scopes

    @contextlib.contextmanager
    def for_range(
        self, begin: Any, end: Any, name: str = "i", dtype: str | None = None, kind: str = "serial"
    ) -> Iterator[Var]:
        """``with ib.for_range(0, n) as i:`` a loop.

        name   without one: i, j, k, i_0, ...
        dtype  of the variable; default: of `end`
        kind   "serial", "parallel", "vectorize" or "unroll"
        """
        if kind not in ("serial", "parallel", *_KINDS):
            raise TIRError(
                f'for_range: wanted "serial", "parallel", "vectorize" or "unroll", got {kind!r}'
            )
        if name == "i":
            name = "ijk"[self._loops] if self._loops < 3 else f"i_{self._loops - 3}"
            self._loops += 1
        last = as_expr(end)
        of = as_dtype(dtype) if dtype is not None else last.dtype
        first = cast(of, as_expr(begin))
        extent = cast(of, last) - first
        var = Var(name, of)
        with self.under(lambda body: For(var, first, extent, _KINDS.get(kind, kind), body)):
            yield var

    def while_loop(self, condition: Any) -> contextlib.AbstractContextManager[None]:
        """A loop as long as `condition` holds."""
        return self.under(lambda body: While(_truth(condition), body))

    def if_scope(self, cond: Any) -> contextlib.AbstractContextManager[None]:
        """What happens if `cond` holds."""
        return self.under(lambda body: IfThenElse(_truth(cond), body, None))

    def else_scope(self) -> contextlib.AbstractContextManager[None]:
        """What happens if it does not; right after an `if_scope`."""
        if self.last_if() is None:
            raise BuilderError("else_scope: it can only follow an if_scope")
        return self.otherwise()

    def new_scope(self) -> contextlib.AbstractContextManager[None]:
        """A scope that ends what is open for the rest of it: attributes, memory, variables."""
        return self.under(lambda body: body)

    def likely(self, expr: Any) -> PrimExpr:
        """`expr`, marked as almost always true."""
        return likely(expr)


def _truth(condition: Any) -> PrimExpr:
    expr = as_expr(condition)
    return expr if expr.dtype.is_bool else expr != const(0, expr.dtype)


def create() -> IRBuilder:
    """A new builder."""
    return IRBuilder()
