"""The parser of ``@T.prim_func``: statements of script text to statements of the loop language.

A function whose body is not itself one block with axes, but contains blocks or allocates buffers at
its top, gets the root block that TVM gives it. Declared reads and writes are kept; those left out
are found from the accesses.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ...base import Span
from ...ir import (
    Map,
    PrimExpr,
    PrimType,
    Range,
    StringImm,
    Var,
    const,
)
from ...tir import (
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    PrimFunc,
    Stmt,
    While,
    ret,
)
from ...tir.analysis import get_block_read_write_region
from ...tir.stmt_writer import Suite
from . import records as rec
from .proxies import (
    BufferFunction,
    DTypeFunction,
    Macro,
    renamed_buffer,
    renamed_var,
)
from .statements import Decorated
from .tir_bindings import NAMED, TIRBindings
from .tir_suite import Frame, between, region_of

__all__ = ["TIRParser"]

# Macros put in place by one function, nested or not; a macro that calls itself stops here.
_MOST_MACROS = 10_000
_DEEPEST_MACRO = 40


class TIRParser(TIRBindings):
    """Parses one loop function."""

    # -- the function

    def parse(self, decorated: Decorated) -> PrimFunc:
        """The function. Raises ParseError at the first mistake."""
        options = self.options(
            decorated, {"private": False, "check_well_formed": True, "s_tir": True}
        )
        self.check_signature()
        self.begin()
        for arg in self.parameters:
            assert arg.annotation is not None
            self.parameter(arg, arg.arg, self.eval(arg.annotation))
        for stmt in self.body_without_docstring():
            self.statement(stmt)
        name = None if options["private"] else self.node.name
        return self.finish(name, self.return_type())

    def begin(self) -> None:
        """Begin the function: what follows, up to `finish`, is its own."""
        self.frames.append(Frame(None, 0))
        self.suites.append(Suite())
        self.scopes.append({})

    def finish(self, name: str | None, ret: PrimType | None) -> PrimFunc:
        """The function; without a `name` it is private."""
        self.scopes.pop()
        body = self.suites.pop().close()
        frame = self.frames.pop()
        attrs = dict(frame.attrs or {})
        if name is not None:
            attrs = {"global_symbol": name, **attrs}
        elif "global_symbol" in attrs:
            self.fail(self.node, "a private function has no global_symbol; drop one of the two")
        return PrimFunc(
            tuple(self.params),
            self._with_root(body, frame.buffers),
            ret,
            Map(self.buffer_map),
            Map(attrs),
            self.span(self.node),
        )

    def return_type(self) -> PrimType | None:
        """The annotated return type."""
        if self.node.returns is None:
            return None
        value = self.eval(self.node.returns)
        if value is None:
            return None
        if not isinstance(value, DTypeFunction):
            self.fail(self.node.returns, "wanted a scalar type such as T.int32 as the return type")
        return PrimType(value.dtype)

    def parameter(self, node: ast.AST, name: str, value: Any) -> None:
        """One more parameter, as its annotation says."""
        if isinstance(value, Buffer):
            buffer = renamed_buffer(value, name, self.span(node))
            handle = Var(name, "handle")
            self.params.append(handle)
            self.buffer_map[handle] = buffer
            self.define(name, buffer)
            return
        if isinstance(value, DTypeFunction):
            var = Var(name, value.dtype)
        elif isinstance(value, Var):
            var = renamed_var(value, name)
        elif isinstance(value, BufferFunction):
            self.fail(node, 'T.Buffer needs a shape, as in T.Buffer((16,), "float32")')
        else:
            self.fail(
                node,
                f"parameter {name}: wanted T.Buffer(...), T.handle or a scalar such as T.int32",
            )
        self.params.append(var)
        self.define(name, var)

    def _with_root(self, body: Stmt, buffers: list[Buffer]) -> Stmt:
        is_block = isinstance(body, BlockRealize)
        # type: ignore[attr-defined]
        needs = bool(buffers) or (is_block and bool(body.block.iter_vars))
        if not needs and not is_block:
            needs = self.has_block
        if not needs:
            return body
        span = self.span(self.node)
        root = Block((), (), (), "root", body, None, tuple(buffers), (), Map(), span)
        return BlockRealize((), const(True), root, span)

    # -- statements

    def _expression_statement(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            func = self.eval(node.value.func)
            if isinstance(func, Macro):
                self._expand(node.value, func)
                return
            args, keywords = self.arguments(node.value)
            value = self.apply(node.value, func, args, keywords)
        else:
            value = self.eval(node.value)
        self.effect(node, value)

    def effect(self, node: ast.stmt, value: Any) -> None:
        """A value standing alone as a statement."""
        handler = _EFFECTS.get(type(value))
        if handler is not None:
            handler(self, node, value)
        elif isinstance(value, PrimExpr):
            self.emit(Evaluate(value, self.span(node)))
        elif isinstance(value, Stmt):
            self.emit(value)
        elif isinstance(value, (tuple, list)):
            for item in value:
                self.effect(node, item)
        elif value is not None and not isinstance(value, str) and value is not Ellipsis:
            self.misplaced(node, value)

    def _do_reads(self, node: ast.AST, value: rec.Reads | rec.Writes) -> None:
        frame = self._block(node, value.shown)
        regions = value.regions
        if len(regions) == 1 and isinstance(regions[0], (tuple, list)):
            regions = tuple(regions[0])
        field = "reads" if isinstance(value, rec.Reads) else "writes"
        if getattr(frame, field) is not None:
            self.fail(node, f"{value.shown} is given twice in this block")
        setattr(frame, field, tuple(region_of(r) for r in regions))

    def _do_where(self, node: ast.AST, value: rec.Where) -> None:
        frame = self._block(node, "T.where")
        if frame.predicate is not None:
            self.fail(node, "T.where is given twice in this block")
        predicate = value.predicate
        frame.predicate = (
            const(predicate) if isinstance(predicate, bool) else self.expression(node, predicate)
        )

    def _do_block_attr(self, node: ast.AST, value: rec.BlockAttr) -> None:
        self._add_attrs(node, self._block(node, "T.block_attr"), value.attrs, "T.block_attr")

    def _do_func_attr(self, node: ast.AST, value: rec.FuncAttr) -> None:
        if len(self.suites) != 1:
            self.fail(node, "T.func_attr stands at the top of the function")
        self._add_attrs(node, self.frames[0], value.attrs, "T.func_attr")

    def _add_attrs(self, node: ast.AST, frame: Frame, attrs: Any, what: str) -> None:
        said, more = frame.attrs or {}, self.attributes(node, attrs, what)
        for key in more:
            if key in said:
                self.fail(node, f"{what}: {key!r} has a value already")
        frame.attrs = {**said, **more}

    def _do_eval(self, node: ast.AST, value: rec.Eval) -> None:
        self.emit(Evaluate(self.expression(node, value.value), self.span(node)))

    def _do_store(self, node: ast.AST, value: rec.Store) -> None:
        if not isinstance(value.buffer, Buffer):
            self.fail(node, f"T.buffer_store: wanted a buffer, got {type(value.buffer).__name__}")
        indices = value.indices if isinstance(value.indices, (tuple, list)) else (value.indices,)
        self._emit_store(node, value.buffer, tuple(indices), value.value)

    def _do_wrap(self, node: ast.AST, value: rec.Attr | rec.Assert | rec.LaunchThread) -> None:
        self.suite.open(self.wrapper(node, value))

    def wrapper(self, node: ast.AST, value: Any) -> Callable[[Stmt], Stmt]:
        """What puts a body under `value`, a record that binds no name."""
        span = self.span(node)
        if isinstance(value, rec.Attr):
            key = self.string(node, value.key, "T.attr")
            about = self.remark(node, value.node, "T.attr")
            expr = self.expression(node, value.value)
            return lambda body: AttrStmt(about, key, expr, body, span)
        if isinstance(value, rec.Assert):
            condition, message = (
                self._condition(node, value.condition),
                self._message(node, value.message),
            )
            return lambda body: AssertStmt(condition, message, body, span)
        if isinstance(value, rec.LaunchThread) and isinstance(value.thread, IterVar):
            return self._launched(value.thread, self.expression(node, value.extent), node)
        self.misplaced(node, value)

    def _condition(self, node: ast.AST, value: Any) -> PrimExpr:
        value = const(value) if isinstance(value, bool) else self.expression(node, value)
        if not value.dtype.is_bool:
            self.fail(node, f"wanted a bool condition, got {value.dtype}; compare it, as in x != 0")
        return value

    def _message(self, node: ast.AST, value: Any) -> PrimExpr:
        if isinstance(value, StringImm):
            return value
        return StringImm(self.string(node, value, "the message"))

    def _assert(self, node: ast.Assert) -> None:
        condition = self._condition(node.test, self.eval(node.test))
        message = StringImm("") if node.msg is None else self._message(node, self.eval(node.msg))
        span = self.span(node)
        self.suite.open(lambda body: AssertStmt(condition, message, body, span))

    def _return(self, node: ast.Return) -> None:
        if node.value is None:
            self.fail(node, "return needs a value; a loop function that ends gives none")
        self.emit(
            Evaluate(ret(self.expression(node.value, self.eval(node.value))), self.span(node))
        )

    def _pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def _macro_definition(self, node: ast.FunctionDef) -> None:
        self.fail(
            node, "a function inside a T.prim_func is not in the language; use T.macro outside"
        )

    # -- control flow

    def _if(self, node: ast.If) -> None:
        # elif chains are long in generated text: no recursion.
        arms: list[tuple[ast.If, PrimExpr, Stmt]] = []
        otherwise: Suite | None = None
        at = node
        while True:
            condition = self.operand(self.eval(at.test))
            if not isinstance(condition, PrimExpr):
                # Known while parsing: only the side that is taken is there.
                if condition:
                    otherwise = self._suite_of(at.body)
                    break
            else:
                checked = self._condition(at.test, condition)
                arms.append((at, checked, self.body(at.body)))
            if not at.orelse:
                break
            if len(at.orelse) == 1 and isinstance(at.orelse[0], ast.If):
                at = at.orelse[0]
                continue
            otherwise = self._suite_of(at.orelse)
            break
        if not arms:
            if otherwise is not None and not otherwise.is_empty:
                self.emit(otherwise.close())
            return
        rest = None if otherwise is None else otherwise.close()
        for each, condition, body in reversed(arms):
            rest = IfThenElse(condition, body, rest, self.span(each))
        assert rest is not None
        self.emit(rest)

    def _while(self, node: ast.While) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "else after while is not in the language")
        condition = self._condition(node.test, self.eval(node.test))
        self.emit(While(condition, self.body(node.body), self.span(node)))

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "else after for is not in the language")
        loops = self._loops(node.iter)
        targets = (
            list(node.target.elts)
            if isinstance(node.target, (ast.Tuple, ast.List))
            else [node.target]
        )
        names = []
        for target in targets:
            if not isinstance(target, ast.Name):
                self.fail(target, "a loop variable is a name")
            names.append(target.id)
        if len(names) != len(loops):
            self.fail(
                node.target, f"{len(loops)} loops need {len(loops)} variables, got {len(names)}"
            )
        if len(set(names)) != len(names):
            self.fail(node.target, "a loop variable appears twice")
        with self.nest(node.iter, names, loops, self.span(node)):
            for stmt in node.body:
                self.statement(stmt)

    @contextlib.contextmanager
    def nest(
        self, node: ast.AST, names: Sequence[str], loops: Sequence[rec.Loop], span: Span
    ) -> Iterator[list[Var]]:
        """Loops around what is written inside; gives their variables."""

        def wrap(body: Stmt) -> Stmt:
            for var, loop in zip(reversed(made), reversed(loops)):
                dom = self.loops.pop(var)
                thread = None
                if loop.kind == "thread_binding":
                    thread = IterVar(None, Var("", var.dtype), "thread", loop.thread)
                notes = Map(self.attributes(node, loop.annotations or {}, "annotations"))
                body = For(var, dom.min, dom.extent, loop.kind, body, thread, notes, span)
            return body

        made: list[Var] = []
        with self.under(wrap), self.scope():
            for name, loop in zip(names, loops):
                made.append(self._loop(node, name, loop))
            yield made

    def _loops(self, node: ast.expr) -> tuple[rec.Loop, ...]:
        if isinstance(node, ast.Call):
            func = self.eval(node.func)
            args, keywords = self.arguments(node)
            if func is range:
                if keywords or not 1 <= len(args) <= 2:
                    self.fail(node, "a loop is range(end) or range(begin, end)")
                start, stop = (0, args[0]) if len(args) == 1 else args
                return (rec.Loop(start, stop, "serial"),)
            value = self.apply(node, func, args, keywords)
        else:
            value = self.eval(node)
        if not isinstance(value, rec.Loops):
            self.fail(
                node,
                "wanted range(...), T.serial, T.parallel, T.vectorized, T.unroll, T.thread_binding "
                "or T.grid",
            )
        return value.loops

    def _loop(self, node: ast.AST, name: str, loop: rec.Loop) -> Var:
        start, stop = self.operand(loop.start), self.operand(loop.stop)
        for end in (start, stop):
            expr = self.expression(node, end)
            if not expr.dtype.is_int or expr.dtype.lanes != 1:
                self.fail(node, f"the bounds of a loop are integers, got {expr.dtype}")
        low, extent = between(start, stop)
        var = Var(name, extent.dtype)
        self.loops[var] = Range.from_min_extent(low, extent)
        self.define(name, var)
        return var

    # -- with

    def _with(self, node: ast.With) -> None:
        self._with_items(node, 0)

    def _with_items(self, node: ast.With, at: int) -> None:
        if at == len(node.items):
            for stmt in node.body:
                self.statement(stmt)
            return
        item = node.items[at]
        value = self.eval(item.context_expr)
        if isinstance(value, rec.BlockSpec):
            self._no_target(item)
            with self.block(item.context_expr, value, self.span(node)):
                self._with_items(node, at + 1)
            return
        if isinstance(value, rec.Init):
            self._no_target(item)
            with self.init(item.context_expr):
                self._with_items(node, at + 1)
            return
        names = NAMED.get(type(value))
        if isinstance(value, rec.LaunchThread) and isinstance(value.thread, str):
            names = TIRBindings._launched_as
        if names is None:
            wrap = self.wrapper(item.context_expr, value)
            self._no_target(item)
            with self.under(wrap), self.scope():
                self._with_items(node, at + 1)
            return
        with self.scope():
            name = self._target_name(item)
            with self.under(names(self, name, value, item.context_expr)), self.scope():
                self._with_items(node, at + 1)

    def _no_target(self, item: ast.withitem) -> None:
        if item.optional_vars is not None:
            self.fail(item.optional_vars, "this gives nothing to bind; drop `as ...`")

    def _target_name(self, item: ast.withitem) -> str:
        if not isinstance(item.optional_vars, ast.Name):
            self.fail(item.context_expr, "wanted a name for this, as in `with ... as x:`")
        return item.optional_vars.id

    @contextlib.contextmanager
    def init(self, node: ast.AST) -> Iterator[None]:
        """What is written inside is what the block does first."""
        frame = self._block(node, "T.init")
        if frame.init is not None:
            self.fail(node, "T.init is given twice in this block")
        self.suites.append(Suite())
        with self.scope():
            yield
        frame.init = self.suites.pop().close()

    @contextlib.contextmanager
    def block(self, node: ast.AST, spec: rec.BlockSpec, span: Span) -> Iterator[None]:
        """A block of what is written inside."""
        name = self.string(node, spec.name, "T.block")
        frame = Frame(spec, len(self.suites) + 1)
        self.frames.append(frame)
        with self.under(lambda body: self._block_of(node, frame, name, body, span)), self.scope():
            yield

    def _block_of(self, node: ast.AST, frame: Frame, name: str, body: Stmt, span: Span) -> Stmt:
        self.frames.remove(frame)
        block = Block(
            tuple(frame.iter_vars),
            frame.reads or (),
            frame.writes or (),
            name,
            body,
            frame.init,
            tuple(frame.buffers),
            tuple(frame.matches),
            Map(frame.attrs),
            span,
        )
        if frame.reads is None or frame.writes is None:
            reads, writes = get_block_read_write_region(block)
            block = block.replace(
                reads=tuple(reads) if frame.reads is None else frame.reads,
                writes=tuple(writes) if frame.writes is None else frame.writes,
            )
        if frame.spec is not None and frame.spec.no_realize:
            if frame.iter_vars or frame.predicate is not None:
                self.fail(node, "a block without realize has no axes and no T.where")
            return block
        self.has_block = True
        predicate = const(True) if frame.predicate is None else frame.predicate
        return BlockRealize(tuple(frame.iter_values), predicate, block, span)

    # -- macros

    def _expand(self, node: ast.Call, macro: Macro) -> None:
        self.macros += 1
        if self.macros > _MOST_MACROS or self.macro_depth >= _DEEPEST_MACRO:
            self.fail(
                node, f"macro {macro.node.name} is put in place too often; does it call itself?"
            )
        args, keywords = self.arguments(node)
        values = _bind_arguments(self, node, macro.node, args, keywords)
        former = (self.source, self.outer, self.scopes, self.guard)
        self.macro_depth += 1
        self.source, self.guard = macro.source, macro.guard
        if macro.hygienic:
            self.outer, self.scopes = macro.outer, [dict(self.scopes[0])]
        try:
            with self.scope():
                for name, value in values.items():
                    self.define(name, value)
                for stmt in macro.node.body:
                    self.statement(stmt)
        finally:
            self.source, self.outer, self.scopes, self.guard = former
            self.macro_depth -= 1


def _bind_arguments(
    parser: TIRParser,
    node: ast.Call,
    definition: ast.FunctionDef,
    args: list[Any],
    keywords: dict[str, Any],
) -> dict[str, Any]:
    a = definition.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.kw_defaults:
        parser.fail(
            node, f"macro {definition.name}: parameters are plain names, no *, ** or defaults"
        )
    names = [each.arg for each in (*a.posonlyargs, *a.args)]
    if len(args) > len(names):
        parser.fail(node, f"macro {definition.name} takes {len(names)} arguments, got {len(args)}")
    values = dict(zip(names, args))
    for name, value in keywords.items():
        if name not in names or name in values:
            parser.fail(node, f"macro {definition.name}: unexpected argument {name}")
        values[name] = value
    missing = [name for name in names if name not in values]
    if missing:
        parser.fail(node, f"macro {definition.name}: {', '.join(missing)} not given")
    return values


_EFFECTS: dict[type, Callable[[TIRParser, Any, Any], None]] = {
    rec.Reads: TIRParser._do_reads,
    rec.Writes: TIRParser._do_reads,
    rec.Where: TIRParser._do_where,
    rec.BlockAttr: TIRParser._do_block_attr,
    rec.FuncAttr: TIRParser._do_func_attr,
    rec.Eval: TIRParser._do_eval,
    rec.Store: TIRParser._do_store,
    rec.Attr: TIRParser._do_wrap,
    rec.Assert: TIRParser._do_wrap,
    rec.LaunchThread: TIRParser._do_wrap,
}

TIRParser.statements = {
    ast.Assign: TIRParser._assign,
    ast.AnnAssign: TIRParser._annotated,
    ast.AugAssign: TIRParser._augmented,
    ast.Expr: TIRParser._expression_statement,
    ast.For: TIRParser._for,
    ast.While: TIRParser._while,
    ast.If: TIRParser._if,
    ast.With: TIRParser._with,
    ast.Assert: TIRParser._assert,
    ast.Return: TIRParser._return,
    ast.Pass: TIRParser._pass,
    ast.FunctionDef: TIRParser._macro_definition,
}
