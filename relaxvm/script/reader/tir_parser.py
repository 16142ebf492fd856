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
    IntImm,
    Map,
    PrimExpr,
    PrimType,
    Range,
    StringImm,
    Var,
    const,
    walk,
)
from ...tir import (
    Allocate,
    AssertStmt,
    AttrStmt,
    Block,
    BlockRealize,
    Buffer,
    BufferStore,
    DeclBuffer,
    Evaluate,
    For,
    IfThenElse,
    IterVar,
    LetStmt,
    PrimFunc,
    Stmt,
    Suite,
    While,
    ceildiv,
    decl_buffer,
    if_then_else,
    ret,
    seq,
)
from ...tir.analysis import get_block_read_write_region
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
from .tir_suite import Frame, Jumps, between, region_of, with_memory


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
        if isinstance(body, BlockRealize):
            needs = bool(buffers) or bool(body.block.iter_vars)
        else:
            needs = bool(buffers) or self.has_block
        if not needs:
            return body
        span = self.span(self.node)
        root = Block((), (), (), "root", body, None, tuple(buffers), (), Map(), span)
        return BlockRealize((), const(True), root, span)

    # -- statements

    def statement(self, node: ast.stmt) -> None:
        """Parse one statement; what follows a jump runs only if the jump was not made."""
        jumps = self.jumps[-1] if self.jumps else None
        before = 0 if jumps is None else jumps.count
        super().statement(node)
        if jumps is not None and jumps.count != before:
            self.suite.open(jumps.guarded)

    def _jump(self, node: ast.AST, value: rec.Jump | None = None) -> None:
        leaves = isinstance(node, ast.Break) if value is None else value.leaves
        what = "break" if leaves else "continue"
        if not self.jumps:
            self.fail(node, f"{what} stands inside a loop")
        jumps = self.jumps[-1]
        if jumps.frames != len(self.frames):
            self.fail(node, f"{what} does not leave a block; put the loop inside the block")
        jumps.count += 1
        jumps.leaves = jumps.leaves or leaves
        self.emit(jumps.set(Jumps.LEAVE if leaves else Jumps.NEXT, self.span(node)))

    def _expression_statement(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Call):
            func = self.eval(node.value.func)
            if isinstance(func, Macro):
                self.expand(node.value, func, *self.arguments(node.value))
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
        if value.predicate is not None:
            stored = self.expression(node, value.value, value.buffer.dtype)
            mask = self.expression(node, value.predicate)
            self.emit(value.buffer.vstore(indices, stored, mask).replace(span=self.span(node)))
            return
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
        if isinstance(value, rec.LaunchThread):
            thread, extent = value.thread, self.expression(node, value.extent)
            if isinstance(thread, str):
                thread = IterVar(
                    None, Var(thread.replace(".", "_"), extent.dtype), "thread", thread
                )
            if isinstance(thread, IterVar):
                return self._launched(thread, extent, node)
        if isinstance(value, rec.LetSpec):
            return self._let_unnamed(value, node)
        if isinstance(value, rec.Realize):
            buffer, held = value.region.buffer, value.condition
            condition = const(held) if isinstance(held, bool) else self._condition(node, held)
            if value.scope not in ("", buffer.scope()):
                self.fail(node, f"buffer {buffer.name} is declared in scope {buffer.scope()!r}")
            return lambda body: Allocate(
                buffer.data, buffer.dtype, buffer.shape, condition, DeclBuffer(buffer, body, span),
                Map(), span,
            )  # fmt: skip
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
        value: PrimExpr = const(0)
        if node.value is not None:
            value = self.expression(node.value, self.eval(node.value))
        elif self.node.returns is not None and self.return_type() is not None:
            self.fail(node, "return needs a value: the function is declared to give one")
        self.emit(Evaluate(ret(value), self.span(node)))

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
        branch = node
        while True:
            condition = self.operand(self.eval(branch.test))
            if not isinstance(condition, PrimExpr):
                # Known while parsing: only the side that is taken is there.
                if condition:
                    otherwise = self._suite_of(branch.body)
                    break
            else:
                checked = self._condition(branch.test, condition)
                arms.append((branch, checked, self.body(branch.body)))
            if not branch.orelse:
                break
            if len(branch.orelse) == 1 and isinstance(branch.orelse[0], ast.If):
                branch = branch.orelse[0]
                continue
            otherwise = self._suite_of(branch.orelse)
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
        span, jumps = self.span(node), Jumps(len(self.frames))

        def wrap(body: Stmt) -> Stmt:
            if not jumps.count:
                return While(condition, body, span)
            body = jumps.iteration(body)
            if not jumps.leaves:
                return While(condition, with_memory(jumps.state, body, span), span)
            # The condition is not looked at any more once the loop has been left.
            holds = if_then_else(jumps.goes_on(), condition, const(False))
            loop = seq(jumps.set(Jumps.GO_ON), While(holds, body, span))
            return with_memory(jumps.state, loop, span)

        with self.under(wrap), self.scope(), self.jumping(jumps):
            for stmt in node.body:
                self.statement(stmt)

    def _for(self, node: ast.For) -> None:
        if node.orelse:
            self.fail(node.orelse[0], "else after for is not in the language")
        loops = self._loops(node.iter)
        names = self._loop_names(node.target, len(loops))
        with self.nest(node.iter, names, loops, self.span(node)) as values:
            self._name_parts(node.target, values, self._name_loop)
            for stmt in node.body:
                self.statement(stmt)

    @contextlib.contextmanager
    def nest(
        self, node: ast.AST, names: Sequence[str], loops: Sequence[rec.Loop], span: Span
    ) -> Iterator[list[PrimExpr]]:
        """Loops around what is written inside; gives what their names stand for."""
        variables: list[Var] = []
        values: list[PrimExpr] = []
        jumps = Jumps(len(self.frames))

        def wrap(body: Stmt) -> Stmt:
            if jumps.leaves:
                return self._left_early(node, loops, variables, jumps.iteration(body), jumps, span)
            if jumps.count:
                body = with_memory(jumps.state, jumps.iteration(body), span)
            for var, loop in zip(reversed(variables), reversed(loops)):
                dom = self.loops.pop(var)
                thread = None
                if loop.kind == "thread_binding":
                    thread = IterVar(None, Var("", var.dtype), "thread", loop.thread)
                notes = Map(self.attributes(node, loop.annotations or {}, "annotations"))
                body = For(var, dom.min, dom.extent, loop.kind, body, thread, notes, span)
            return body

        with self.under(wrap), self.scope(), self.jumping(jumps):
            for name, loop in zip(names, loops):
                var, value = self._loop(node, name, loop)
                variables.append(var)
                values.append(value)
            yield values

    @contextlib.contextmanager
    def jumping(self, jumps: Jumps) -> Iterator[None]:
        """Inside, ``break`` and ``continue`` are of that loop."""
        self.jumps.append(jumps)
        try:
            yield
        finally:
            self.jumps.pop()

    def _left_early(
        self,
        node: ast.AST,
        loops: Sequence[rec.Loop],
        variables: list[Var],
        body: Stmt,
        jumps: Jumps,
        span: Span,
    ) -> Stmt:
        """A loop with ``break``: how far it has come is kept in memory."""
        doms = [self.loops.pop(var) for var in variables]
        if len(loops) != 1 or loops[0].kind != "serial" or loops[0].annotations:
            self.fail(node, "break leaves one serial loop: use range(...), and T.grid loop by loop")
        (var,), (dom,) = variables, doms
        if any(isinstance(n, Block) for n in walk(body)):
            self.fail(node, "a loop around blocks runs to its end: no break")
        done = decl_buffer((1,), var.dtype, f"{var.name}_done")
        step = BufferStore(done, done[0] + const(1, var.dtype), (const(0),), span)
        once = LetStmt(var, dom.min + done[0], body, span)
        start = BufferStore(done, const(0, var.dtype), (const(0),), span)
        holds = if_then_else(jumps.goes_on(), done[0] < dom.extent, const(False))
        loop = seq(jumps.set(Jumps.GO_ON), start, While(holds, seq(once, step), span))
        return with_memory(jumps.state, with_memory(done, loop, span), span)

    def _loop_names(self, target: ast.expr, count: int) -> list[str]:
        """What the variables of nested loops are called: one name for all of them stands for the
        tuple.
        """
        names = [""] * count

        def note(name: ast.Name, places: Any) -> None:
            for k, i in enumerate(places if isinstance(places, list) else [places]):
                names[i] = f"{name.id}_{k}" if isinstance(places, list) else name.id

        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        for part in parts:
            inner = part.value if isinstance(part, ast.Starred) else part
            if not isinstance(inner, ast.Name):
                self.fail(part, "a loop variable is a name")
        if len(parts) != count and parts[0] is not target:
            if not any(isinstance(part, ast.Starred) for part in parts):
                self.fail(target, f"{count} loops need {count} variables, got {len(parts)}")
        self._name_parts(target, list(range(count)), note)
        if len(set(names)) != len(names):
            self.fail(target, "a loop variable appears twice")
        return names

    def _name_loop(self, name: ast.Name, value: Any) -> None:
        self.define(name.id, tuple(value) if isinstance(value, list) else value)

    def _name_parts(
        self, target: ast.expr, values: list[Any], bind: Callable[[ast.Name, Any], None]
    ) -> None:
        one = isinstance(target, ast.Name) and len(values) == 1
        self.unpack(target, values[0] if one else values, bind)

    def _loops(self, node: ast.expr) -> tuple[rec.Loop, ...]:
        if isinstance(node, ast.Call):
            func = self.eval(node.func)
            args, keywords = self.arguments(node)
            if func is range:
                if keywords or not 1 <= len(args) <= 3:
                    self.fail(node, "a loop is range(end), range(begin, end) or with a step")
                start, stop, *step = (0, args[0]) if len(args) == 1 else args
                return (rec.Loop(start, stop, "serial", step=step[0] if step else None),)
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

    def _loop(self, node: ast.AST, name: str, loop: rec.Loop) -> tuple[Var, PrimExpr]:
        """A loop's variable, and what its name stands for."""
        start, stop = self.operand(loop.start), self.operand(loop.stop)
        for end in (start, stop):
            expr = self.expression(node, end)
            if not expr.dtype.is_int or expr.dtype.lanes != 1:
                self.fail(node, f"the bounds of a loop are integers, got {expr.dtype}")
        low, extent = between(start, stop)
        step = 1 if loop.step is None else loop.step
        step = step.value if isinstance(step, IntImm) else step
        if not isinstance(step, int) or isinstance(step, bool) or step == 0:
            self.fail(node, "the step of a loop is a constant number other than 0")
        if step != 1:
            # So many steps from the beginning; the name stands for where that is.
            count = ceildiv(extent, step) if step > 0 else ceildiv(-extent, -step)
            var = Var(name, extent.dtype)
            self.loops[var] = Range.from_min_extent(const(0, var.dtype), count)
            self.define(name, var)
            return var, low + var * step
        var = Var(name, extent.dtype)
        self.loops[var] = Range.from_min_extent(low, extent)
        self.define(name, var)
        return var, var

    # -- with

    def _with(self, node: ast.With) -> None:
        self._with_items(node, 0)

    def _with_items(self, node: ast.With, first: int) -> None:
        if first == len(node.items):
            for stmt in node.body:
                self.statement(stmt)
            return
        item = node.items[first]
        value = self.eval(item.context_expr)
        if isinstance(value, rec.BlockSpec):
            self._no_target(item)
            with self.block(item.context_expr, value, self.span(node)):
                self._with_items(node, first + 1)
            return
        if isinstance(value, rec.Init):
            self._no_target(item)
            with self.init(item.context_expr):
                self._with_items(node, first + 1)
            return
        names = NAMED.get(type(value))
        if isinstance(value, rec.LaunchThread) and isinstance(value.thread, str):
            names = TIRBindings._launched_as
        if isinstance(value, (rec.LaunchThread, rec.LetSpec)) and item.optional_vars is None:
            names = None
        if names is None:
            wrap = self.wrapper(item.context_expr, value)
            self._no_target(item)
            with self.under(wrap), self.scope():
                self._with_items(node, first + 1)
            return
        with self.scope():
            name = self._target_name(item)
            with self.under(names(self, name, value, item.context_expr)), self.scope():
                self._with_items(node, first + 1)

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
    rec.LetSpec: TIRParser._do_wrap,
    rec.Jump: TIRParser._jump,
    rec.Realize: TIRParser._do_wrap,
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
    ast.Break: TIRParser._jump,
    ast.Continue: TIRParser._jump,
    ast.Nonlocal: TIRParser.captured,
    ast.Global: TIRParser.captured,
    ast.FunctionDef: TIRParser._macro_definition,
}
