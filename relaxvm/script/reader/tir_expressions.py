"""Expressions of loop functions: elements of buffers, calls, and the suites they stand in."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from ...base import DataType, TIRError
from ...base import dtype as as_dtype
from ...ir import (
    Call,
    GlobalVar,
    IntImm,
    PrimExpr,
    Ramp,
    Range,
    Var,
    as_expr,
    const,
)
from ...tir import (
    Buffer,
    BufferLoad,
    BufferRegion,
    IterVar,
    PrimFunc,
    Stmt,
    StmtWriter,
    Suite,
)
from ...tir import op as tir_op
from . import records as rec
from .guards import Guard
from .outer import Outer
from .proxies import (
    Macro,
)
from .source import Source
from .statements import FunctionParser, ModuleNames
from .tir_suite import Frame, Jumps, between, vector_indices


class TIRExpressions(FunctionParser, StmtWriter):
    """The state of one loop function being parsed, and the expressions in it."""

    language = "T"

    def __init__(
        self,
        source: Source,
        outer: Outer,
        guard: Guard | None,
        node: ast.FunctionDef,
        module: ModuleNames | None,
    ) -> None:
        super().__init__(source, outer, guard, node, module)
        self.params: list[Var] = []
        self.buffer_map: dict[Var, Buffer] = {}
        self.suites: list[Suite] = []
        self.frames: list[Frame] = []
        self.loops: dict[Var, Range] = {}
        # Views of pointers made by T.allocate, for programs that index the pointer itself.
        self.views: dict[Var, Buffer] = {}
        # Loops around the place.
        self.jumps: list[Jumps] = []
        self._seen: dict[int, Any] = {}
        self.has_block = False

    # -- suites

    def body(self, stmts: list[ast.stmt]) -> Stmt:
        """The statements of a nested suite, in a scope of their own."""
        return self._suite_of(stmts).close()

    def _suite_of(self, stmts: list[ast.stmt]) -> Suite:
        self.suites.append(Suite())
        with self.scope():
            for stmt in stmts:
                self.statement(stmt)
        return self.suites.pop()

    # -- expressions

    def subscript(self, node: ast.Subscript, value: Any, index: Any) -> Any:
        """An element, a vector or a region of a buffer; otherwise what Python says."""
        if isinstance(value, Var) and value in self.views:
            value = self.views[value]
        if not isinstance(value, Buffer):
            if isinstance(value, PrimExpr):
                self.fail(
                    node, f"a {type(value).__name__} cannot be indexed; declare a buffer of it"
                )
            return super().subscript(node, value, index)
        indices = index if isinstance(index, tuple) else (index,)
        return self.access(node, value, indices)

    def access(self, node: ast.AST, buffer: Buffer, index: tuple[Any, ...]) -> Any:
        """``buffer[index]``"""
        if len(index) != buffer.ndim:
            self.fail(
                node, f"buffer {buffer.name} has {buffer.ndim} dimensions, got {len(index)} indices"
            )
        indices: list[Any] = []
        for i in index:
            if isinstance(i, slice) and i.step is not None:
                indices.append(self._stepped(node, i))
            else:
                indices.append(i if isinstance(i, slice) else self.operand(i))
        if not any(isinstance(i, slice) for i in indices):
            return BufferLoad(buffer, tuple(indices))
        ranges = []
        for i, extent in zip(indices, buffer.shape):
            if isinstance(i, slice):
                stop = extent if i.stop is None else i.stop
                ranges.append(
                    Range.from_min_extent(*between(0 if i.start is None else i.start, stop))
                )
            else:
                expr = as_expr(i)
                ranges.append(Range.from_min_extent(expr, const(1, expr.dtype)))
        return BufferRegion(buffer, tuple(ranges))

    def _stepped(self, node: ast.AST, part: slice) -> Any:
        start, step, stop = 0 if part.start is None else part.start, part.step, part.stop
        if isinstance(step, int) and step == 1:
            return slice(part.start, stop)
        if stop is None or not isinstance(step, int):
            self.fail(node, "a slice with a step has a constant step and an end, as in A[0:16:2]")
        _, extent = between(start, stop)
        if not isinstance(extent, IntImm) or step == 0:
            self.fail(node, "a slice with a step has a constant length")
        return Ramp(start, step, -(-extent.value // step))

    def operand(self, value: Any) -> Any:
        """A region in arithmetic is a vector of its elements."""
        if isinstance(value, BufferRegion):
            return BufferLoad(value.buffer, vector_indices(value))
        if isinstance(value, IterVar):
            return value.var
        return value

    def call(self, node: ast.Call, func: Any, args: list[Any], keywords: dict[str, Any]) -> Any:
        """A call of a function of Python, of a record, of another loop function, or of a macro."""
        if isinstance(func, GlobalVar):
            return self._call_global(node, func, args, keywords)
        if isinstance(func, Macro):
            self.fail(
                node, f"macro {func.node.name} stands alone as a statement, not inside another"
            )
        if isinstance(func, PrimFunc):
            name = func.get_attr("global_symbol", "the function")
            self.fail(
                node,
                f"{name} is a function from outside; define it in the same class, call it by name",
            )
        if "dtype" in keywords and getattr(func, "__module__", "") == tir_op.__name__:
            return self._call_with_dtype(node, func, args, keywords)
        if getattr(func, "takes_regions", False):
            result = super().call(node, func, args, keywords)
        else:
            converted = [self._argument(a) for a in args]
            result = super().call(
                node, func, converted, {k: self._argument(v) for k, v in keywords.items()}
            )
        return result

    def _call_with_dtype(
        self, node: ast.Call, func: Any, args: list[Any], keywords: dict[str, Any]
    ) -> Any:
        """``T.exp(x, dtype="float32")``, as scripts were once printed: the dtype of the result."""
        keywords = dict(keywords)
        wanted = keywords.pop("dtype")
        names = list(inspect.signature(func).parameters)
        if names[:1] == ["dtype"]:
            return self.call(node, func, [wanted, *args], keywords)
        if "dtype" in names:
            return super().call(node, func, args, {**keywords, "dtype": wanted})
        call = self.call(node, func, args, keywords)
        wanted_dtype = as_dtype(getattr(wanted, "dtype", wanted))
        if call.dtype is not wanted_dtype:
            self.fail(node, f"this is {call.dtype}, not {wanted_dtype}; use T.cast to convert it")
        return call

    def _argument(self, value: Any) -> Any:
        if isinstance(value, BufferRegion):
            try:
                return self.operand(value)
            except TIRError:
                return value
        if isinstance(value, list) and any(isinstance(v, BufferRegion) for v in value):
            return [self._argument(v) for v in value]
        return value

    def _call_global(
        self, node: ast.Call, gv: GlobalVar, args: list[Any], keywords: dict[str, Any]
    ) -> PrimExpr:
        if keywords:
            self.fail(node, f"{gv.name_hint} takes its arguments by position")
        dtype = self.module.return_dtypes.get(gv.name_hint) if self.module is not None else None
        if self.module is not None and gv.name_hint not in self.module.return_dtypes:
            if self.module.global_vars.get(gv.name_hint) is gv:
                self.fail(
                    node, f"{gv.name_hint} is a graph function; a loop function cannot call it"
                )
        values = [a.data if isinstance(a, Buffer) else as_expr(self.operand(a)) for a in args]
        return Call(dtype or as_dtype("void"), gv, tuple(values))

    def expression(self, node: ast.AST, value: Any, dtype: DataType | None = None) -> PrimExpr:
        """`value` as a scalar expression; numbers take `dtype`. Raises ParseError if it is none."""
        value = self.operand(value)
        if isinstance(value, rec.Record):
            self.misplaced(node, value)
        if isinstance(value, Buffer):
            self.fail(node, f"buffer {value.name} needs indices here, as in {value.name}[i]")
        try:
            return as_expr(value, dtype)
        except (TIRError, OverflowError) as error:
            raise self.wrap(node, error) from error
