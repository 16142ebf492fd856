"""Assignments of loop functions: what a name may stand for, stores, and the axes of blocks."""

from __future__ import annotations

import ast
from collections.abc import Callable
from typing import Any

from ...base import DataType
from ...base import dtype as as_dtype
from ...ir import (
    Broadcast,
    Map,
    PointerType,
    PrimExpr,
    PrimType,
    Range,
    Var,
    cast,
    const,
)
from ...tir import (
    Allocate,
    AttrStmt,
    Buffer,
    BufferLoad,
    BufferRegion,
    BufferStore,
    DeclBuffer,
    IterVar,
    LetStmt,
    MatchBufferRegion,
    Stmt,
    decl_buffer,
)
from ...tir import AllocateConst as AllocateConstStmt
from . import records as rec
from .proxies import (
    UNNAMED,
    DTypeFunction,
    Lambda,
    renamed_buffer,
    renamed_var,
)
from .statements import ModuleNames
from .tir_expressions import TIRExpressions
from .tir_suite import Frame, between, flat_numbers, region_of, vector_indices, with_memory


class TIRBindings(TIRExpressions):
    """Binds names and stores elements."""

    # -- names

    def define(self, name: str, value: Any) -> None:
        """Bind `name` in the innermost scope."""
        super().define(name, value)
        self._seen[id(value)] = value

    def is_bound(self, value: Any) -> bool:
        """Whether a name of the script stands for this very object."""
        return id(value) in self._seen

    def bind(self, target: ast.expr, value: Any, node: ast.stmt) -> None:
        """``target = value`` for the value of an expression."""
        if isinstance(target, ast.Name):
            self.bind_name(target.id, value, target)
        elif isinstance(target, (ast.Tuple, ast.List)):
            if isinstance(value, rec.Remap):
                value = self._remapped(node, value)
            if not isinstance(value, (tuple, list)):
                self.fail(
                    target, f"wanted {len(target.elts)} values, got one {type(value).__name__}"
                )
            if len(value) != len(target.elts):
                self.fail(
                    target, f"wanted {len(target.elts)} values for these names, got {len(value)}"
                )
            for each, item in zip(target.elts, value):
                self.bind(each, item, node)
        elif isinstance(target, ast.Subscript):
            self._store(target, value)
        else:
            self.fail(
                target, "wanted a name, a tuple of names or an element of a buffer on the left"
            )

    def bind_name(self, name: str, value: Any, node: ast.AST) -> None:
        """Bind one name by what the value is."""
        self._refuse_shadowing(name, value, node)
        handler = BINDINGS.get(type(value))
        if handler is not None:
            handler(self, name, value, node)
            return
        if isinstance(value, Buffer):
            if value.name == UNNAMED["buffer"] and not self._known_buffer(value):
                value = renamed_buffer(value, name, self.span(node))
            self.define(name, value)
        elif isinstance(value, Var) and value.name == UNNAMED["var"]:
            self.define(name, renamed_var(value, name))
        elif isinstance(value, Var) and not self.is_bound(value):
            self.define(name, value)
        elif isinstance(value, (str, ModuleNames, Lambda)):
            self.define(name, value)
        elif isinstance(value, (PrimExpr, int, float, BufferRegion, IterVar)) or hasattr(
            value, "__prim_expr__"
        ):
            self._let(name, self.expression(node, value), node)
        elif isinstance(value, (tuple, list)):
            # As in TVM: the name stands for the tuple, its elements are variables.
            for i, item in enumerate(value):
                self.bind_name(f"{name}_{i}", item, node)
            self.define(name, tuple(self.find(f"{name}_{i}") for i in range(len(value))))
        else:
            self.misplaced(node, value)

    def _refuse_shadowing(self, name: str, value: Any, node: ast.AST) -> None:
        """A second buffer or axis of one name would take over what the script says of the first."""
        prior = self.scopes[-1].get(name)
        if isinstance(prior, Buffer) and not (isinstance(value, Buffer) and self.is_bound(value)):
            self.fail(node, f"{name} is a buffer already; give this another name")
        if isinstance(prior, Var) and type(value) is rec.Axis:
            self.fail(node, f"{name} is a variable already; give this axis another name")

    def _known_buffer(self, buffer: Buffer) -> bool:
        return self.is_bound(buffer) or self.outer.lookup(UNNAMED["buffer"]) is buffer

    def _let(self, name: str, value: PrimExpr, node: ast.AST, var: Var | None = None) -> None:
        self._refuse_rebinding(name, node)
        if var is None:
            annotation: Any = getattr(value, "type_annotation", None)
            var = Var(name, annotation if isinstance(annotation, PointerType) else value.dtype)
        span = self.span(node)
        bound = var
        self.suite.open(lambda body: LetStmt(bound, value, body, span))
        self.define(name, var)

    def _refuse_rebinding(self, name: str, node: ast.AST) -> None:
        if isinstance(self.scopes[-1].get(name), Var):
            self.fail(
                node,
                f"{name} is bound already, and a variable does not change: use a new name, "
                f"or a buffer, as in {name} = T.alloc_buffer((1,), ...)",
            )

    # -- assignments

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail(node, "assign to one target at a time")
        target = node.targets[0]
        if isinstance(target, ast.Name):
            self._refuse_update(target.id, node.value, node)
        self.bind(target, self.eval(node.value), node)

    def _refuse_update(self, name: str, value: ast.expr, node: ast.stmt) -> None:
        """``x = x + 1`` would make a second x and leave the first as it is, which nobody means."""
        if isinstance(self.find(name), Var) and not isinstance(self.scopes[-1].get(name), Var):
            if any(isinstance(n, ast.Name) and n.id == name for n in ast.walk(value)):
                self._update_error(name, node)

    def _update_error(self, name: str, node: ast.AST) -> None:
        self.fail(
            node,
            f"{name} does not change once it is bound; to update a value, keep it in a "
            f"buffer, as in {name} = T.alloc_buffer((1,), ...) and {name}[0] = ...",
        )

    def _annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.fail(node.target, "an annotated assignment has one name on the left")
        if node.value is None:
            self.fail(node, f"{node.target.id} needs a value, as in {node.target.id}: T.int32 = 0")
        name = node.target.id
        annotation = self.eval(node.annotation)
        self._refuse_update(name, node.value, node)
        value = self.eval(node.value)
        if isinstance(annotation, DTypeFunction):
            var = Var(name, annotation.dtype)
        elif isinstance(annotation, Var):
            var = renamed_var(annotation, name)
        else:
            self.fail(node.annotation, "wanted a type such as T.int32 or T.handle(...) here")
        expr = self.expression(node.value, value, var.dtype)
        if expr.dtype is not var.dtype:
            self.fail(
                node,
                f"{name} is declared {var.dtype}, the value is {expr.dtype}; "
                f'cast it, as in T.Cast("{var.dtype}", ...)',
            )
        self._let(name, expr, node, var)

    def _augmented(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            self.find(target.id)
            self._update_error(target.id, node)
        if not isinstance(target, ast.Subscript):
            self.fail(node, "wanted an element of a buffer on the left, as in A[i] += 1")
        buffer, index = self._place(target)
        old = self.operand(self.access(target, buffer, index))
        new = self.operate(type(node.op), old, self.operand(self.eval(node.value)))
        self._emit_store(target, buffer, index, new)

    def _place(self, target: ast.Subscript) -> tuple[Buffer, tuple[Any, ...]]:
        buffer = self.eval(target.value)
        if isinstance(buffer, Var):
            buffer = self.views.get(buffer, buffer)
        if not isinstance(buffer, Buffer):
            self.fail(target, f"wanted a buffer to store into, got {type(buffer).__name__}")
        index = self.eval(target.slice)
        return buffer, index if isinstance(index, tuple) else (index,)

    def _store(self, target: ast.Subscript, value: Any) -> None:
        buffer, index = self._place(target)
        self._emit_store(target, buffer, index, value)

    def _emit_store(
        self, node: ast.AST, buffer: Buffer, index: tuple[Any, ...], value: Any
    ) -> None:
        place = self.access(node, buffer, index)
        indices = vector_indices(place) if isinstance(place, BufferRegion) else place.indices
        wanted = BufferLoad(buffer, indices).dtype
        expr = self.expression(node, value, buffer.dtype)
        if expr.dtype is not wanted:
            expr = self._stored(node, buffer, expr, wanted)
        self.emit(BufferStore(buffer, expr, indices, self.span(node)))

    def _stored(self, node: ast.AST, buffer: Buffer, expr: PrimExpr, wanted: DataType) -> PrimExpr:
        """`expr` converted for a store where nothing is lost by it."""
        lossy = expr.dtype.is_float and not wanted.is_float
        if lossy or "handle" in (expr.dtype.kind, wanted.kind):
            self.fail(
                node,
                f"buffer {buffer.name} holds {wanted}, the value is {expr.dtype}; "
                f'cast it, as in T.Cast("{wanted}", ...)',
            )
        if expr.dtype.lanes not in (1, wanted.lanes):
            self.fail(
                node,
                f"{wanted.lanes} elements of buffer {buffer.name} are stored, the value has "
                f"{expr.dtype.lanes} lanes",
            )
        expr = cast(wanted.element.with_lanes(expr.dtype.lanes), expr)
        return expr if expr.dtype is wanted else Broadcast(expr, wanted.lanes)

    # -- what a name may be bound to

    def _bind_meta(self, name: str, value: rec.MetaVar, node: ast.AST) -> None:
        self.define(name, value.value)

    def _bind_match_buffer(self, name: str, value: rec.MatchBuffer, node: ast.AST) -> None:
        buffer = renamed_buffer(value.buffer, name, self.span(node))
        source = value.source
        if isinstance(source, Var):
            if source not in self.params:
                self.fail(node, f"T.match_buffer: {source.name} is no parameter of the function")
            if source.dtype != "handle":
                self.fail(
                    node, f"T.match_buffer: parameter {source.name} is {source.dtype}, not T.handle"
                )
            if source in self.buffer_map:
                self.fail(node, f"T.match_buffer: parameter {source.name} is matched already")
            self.buffer_map[source] = buffer
        else:
            frame = self._block(node, "T.match_buffer of a region")
            frame.matches.append(MatchBufferRegion(buffer, region_of(source)))
        self.define(name, buffer)

    def _bind_alloc_buffer(self, name: str, value: rec.AllocBuffer, node: ast.AST) -> None:
        buffer = renamed_buffer(value.buffer, name, self.span(node))
        frame = self.frames[-1]
        if frame.spec is None and len(self.suites) > 1:
            self.fail(node, "T.alloc_buffer stands at the top of the function or inside a block")
        frame.buffers.append(buffer)
        self.define(name, buffer)

    def _bind_decl_buffer(self, name: str, value: rec.DeclBuffer, node: ast.AST) -> None:
        self.suite.open(self._declare(name, value, node))

    def _declare(self, name: str, value: rec.DeclBuffer, node: ast.AST) -> Callable[[Stmt], Stmt]:
        span = self.span(node)
        buffer = renamed_buffer(value.buffer, name, span)
        self.define(name, buffer)

        def wrap(body: Stmt) -> Stmt:
            if value.allocates:
                return with_memory(buffer, body, span)
            return DeclBuffer(buffer, body, span)

        return wrap

    def _bind_allocate(self, name: str, value: rec.Allocate, node: ast.AST) -> None:
        self.suite.open(self._allocated(name, value, node))

    def _pointer(self, name: str, dtype: DataType, scope: str, extents: Any) -> Var:
        var = Var(name, PointerType(PrimType(dtype), scope))
        self.views[var] = decl_buffer(extents, dtype, name, var, scope=scope)
        self.define(name, var)
        return var

    def _allocated(self, name: str, value: rec.Allocate, node: ast.AST) -> Callable[[Stmt], Stmt]:
        span, dtype = self.span(node), as_dtype(value.dtype)
        condition = const(True) if value.condition is None else value.condition
        annotations = self.attributes(node, value.annotations or {}, "annotations")
        var = self._pointer(name, dtype, value.scope, value.extents)
        return lambda body: Allocate(
            var, dtype, value.extents, condition, body, Map(annotations), span
        )

    def _bind_allocate_const(self, name: str, value: rec.AllocateConst, node: ast.AST) -> None:
        self.suite.open(self._allocated_const(name, value, node))

    def _allocated_const(
        self, name: str, value: rec.AllocateConst, node: ast.AST
    ) -> Callable[[Stmt], Stmt]:
        span, dtype = self.span(node), as_dtype(value.dtype)
        annotations = self.attributes(node, value.annotations or {}, "annotations")
        data = flat_numbers(value.data)
        var = self._pointer(name, dtype, "", value.extents)
        return lambda body: AllocateConstStmt(
            var, dtype, value.extents, data, body, Map(annotations), span
        )

    def _bind_let(self, name: str, value: rec.LetSpec, node: ast.AST) -> None:
        self.suite.open(self._let_spec(name, value, node))

    def _let_spec(self, name: str, value: rec.LetSpec, node: ast.AST) -> Callable[[Stmt], Stmt]:
        self._refuse_rebinding(name, node)
        span = self.span(node)
        if isinstance(value.var, DTypeFunction):
            var = Var(name, value.var.dtype)
        elif isinstance(value.var, Var):
            var = renamed_var(value.var, name)
        else:
            inferred = self.expression(node, value.value)
            annotation: Any = getattr(inferred, "type_annotation", None)
            var = Var(name, annotation if isinstance(annotation, PointerType) else inferred.dtype)
        expr = self.expression(node, value.value, var.dtype)
        self.define(name, var)
        return lambda body: LetStmt(var, expr, body, span)

    def _let_unnamed(self, value: rec.LetSpec, node: ast.AST) -> Callable[[Stmt], Stmt]:
        """The value of a variable that has been made before, or of one that nothing names."""
        if isinstance(value.var, Var) and value.var.name != UNNAMED["var"]:
            var, span = value.var, self.span(node)
            expr = self.expression(node, value.value, var.dtype)
            return lambda body: LetStmt(var, expr, body, span)
        if value.var is not None and not isinstance(value.var, (Var, DTypeFunction)):
            self.fail(node, f"T.LetStmt: var is a variable, got {type(value.var).__name__}")
        with self.scope():
            return self._let_spec("v", value, node)

    def _bind_env_thread(self, name: str, value: rec.EnvThread, node: ast.AST) -> None:
        self.define(name, IterVar(None, Var(name, value.dtype), "thread", value.tag))

    def _bind_launch(self, name: str, value: rec.LaunchThread, node: ast.AST) -> None:
        self.suite.open(self._launched_as(name, value, node))

    def _launched_as(
        self, name: str, value: rec.LaunchThread, node: ast.AST
    ) -> Callable[[Stmt], Stmt]:
        if not isinstance(value.thread, str):
            self.fail(node, "T.launch_thread of a thread variable has no result to bind")
        extent = self.expression(node, value.extent)
        var = IterVar(None, Var(name, extent.dtype), "thread", value.thread)
        self.define(name, var.var)
        return self._launched(var, extent, node)

    def _launched(self, var: IterVar, extent: Any, node: ast.AST) -> Callable[[Stmt], Stmt]:
        span = self.span(node)
        ranged = var.replace(
            dom=Range.from_min_extent(const(0, var.var.dtype), cast(var.var.dtype, extent))
        )
        return lambda body: AttrStmt(ranged, "thread_extent", extent, body, span)

    def _bind_axis(self, name: str, value: rec.Axis, node: ast.AST) -> None:
        self.define(name, self._axis(name, value, node))

    def _bind_remap(self, name: str, value: rec.Remap, node: ast.AST) -> None:
        axes = self._remapped(node, value)
        if len(axes) != 1:
            self.fail(
                node, f"T.axis.remap gives {len(axes)} variables; name each of them on the left"
            )
        self.bind_name(name, axes[0], node)

    # -- axes

    def _block(self, node: ast.AST, what: str) -> Frame:
        frame = self.frames[-1]
        if frame.spec is None or frame.depth != len(self.suites):
            self.fail(node, f"{what} stands directly inside a block (with T.block(...))")
        return frame

    def _remapped(self, node: ast.AST, value: rec.Remap) -> list[rec.Axis]:
        kinds = self.string(node, value.kinds, "T.axis.remap")
        values = value.values
        if not isinstance(values, (tuple, list)):
            self.fail(node, "T.axis.remap: wanted a list of loop variables")
        if len(kinds) != len(values):
            self.fail(
                node, f"T.axis.remap: {len(kinds)} kinds in {kinds!r} for {len(values)} loops"
            )
        axes = []
        for kind, loop in zip(kinds, values):
            if kind not in "SR":
                self.fail(node, f'T.axis.remap: wanted the kinds "S" and "R", got {kind!r}')
            if not isinstance(loop, Var) or loop not in self.loops:
                self.fail(node, "T.axis.remap: wanted variables of enclosing loops")
            name = "spatial" if kind == "S" else "reduce"
            axes.append(rec.Axis(name, self.loops[loop], loop, str(loop.dtype)))
        return axes

    def _axis(self, name: str, axis: rec.Axis, node: ast.AST) -> Var:
        frame = self._block(node, "T.axis")
        if axis.value is None:
            self.fail(node, f"T.axis.{axis.kind} needs the value the axis is bound to")
        value = self.expression(node, axis.value)
        dtype = value.dtype if axis.dtype is None else as_dtype(axis.dtype)
        dom = self._domain(node, axis.dom, dtype)
        if axis.dtype is None:
            dtype = dom.extent.dtype
        if not dtype.is_int or dtype.lanes != 1:
            self.fail(node, f"an axis is an integer, got {dtype}")
        if dom.extent.dtype is not dtype:
            dom = Range.from_min_extent(cast(dtype, dom.min), cast(dtype, dom.extent))
        var = Var(name, dtype)
        frame.iter_vars.append(IterVar(dom, var, axis.kind, "", self.span(node)))
        frame.iter_values.append(value)
        return var

    def _domain(self, node: ast.AST, dom: Any, dtype: DataType) -> Range:
        if isinstance(dom, Range):
            return dom
        if isinstance(dom, (tuple, list)):
            if len(dom) != 2:
                self.fail(
                    node, f"an axis runs over an extent or (begin, end), got {len(dom)} values"
                )
            start, stop = dom
        else:
            start, stop = 0, dom
        # Plain numbers take the dtype of the loop; expressions say theirs.
        if isinstance(start, int) and isinstance(stop, int) and dtype.is_int:
            return Range.from_min_extent(const(start, dtype), const(stop - start, dtype))
        return Range.from_min_extent(*between(self.operand(start), self.operand(stop)))


BINDINGS: dict[type, Callable[[TIRBindings, str, Any, ast.AST], None]] = {
    rec.MetaVar: TIRBindings._bind_meta,
    rec.MatchBuffer: TIRBindings._bind_match_buffer,
    rec.AllocBuffer: TIRBindings._bind_alloc_buffer,
    rec.DeclBuffer: TIRBindings._bind_decl_buffer,
    rec.Allocate: TIRBindings._bind_allocate,
    rec.AllocateConst: TIRBindings._bind_allocate_const,
    rec.LetSpec: TIRBindings._bind_let,
    rec.EnvThread: TIRBindings._bind_env_thread,
    rec.LaunchThread: TIRBindings._bind_launch,
    rec.Axis: TIRBindings._bind_axis,
    rec.Remap: TIRBindings._bind_remap,
}

# Records that give a name to a `with`: they define it and return what puts the body under it.
NAMED: dict[type, Callable[[TIRBindings, str, Any, ast.AST], Callable[[Stmt], Stmt]]] = {
    rec.DeclBuffer: TIRBindings._declare,
    rec.Allocate: TIRBindings._allocated,
    rec.AllocateConst: TIRBindings._allocated_const,
    rec.LetSpec: TIRBindings._let_spec,
}
