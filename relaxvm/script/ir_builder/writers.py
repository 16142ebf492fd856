"""What an `IRBuilder` writes into: a loop function, a graph function, a module."""

from __future__ import annotations

import ast
import contextlib
import linecache
from collections.abc import Iterator
from typing import Any

from ...base import BuilderError, NameSupply
from ...ir import BaseFunc, GlobalVar, IRModule, Map, PrimType
from ...ir import Var as TirVar
from ...relax import (
    BlockBuilder,
    DataflowVar,
    Expr,
    Function,
    If,
    SeqExpr,
    StructInfo,
    Var,
    VarBinding,
    as_relax,
)
from ...relax.analysis import is_base_of
from ...relax.expr import joined_branches
from ...tir import Buffer, IfThenElse, IterVar, Stmt, While
from ..reader import records as rec
from ..reader.checks import check_module
from ..reader.outer import MISSING, Outer
from ..reader.proxies import DTypeFunction
from ..reader.source import Source
from ..reader.struct_info import as_struct_info
from ..reader.tir_bindings import BINDINGS, NAMED
from ..reader.tir_parser import TIRParser

Entered = contextlib.AbstractContextManager[Any]


def named(name: str, value: Any) -> Any:
    """`value`, a variable or buffer just made, under that name."""
    if not isinstance(name, str):
        raise BuilderError(f"IRBuilder.name: the name is a string, got {name!r}")
    # Nobody else has seen these nodes yet, and a name is no part of what they mean.
    if isinstance(value, IterVar):
        named(name, value.var)
    elif isinstance(value, Buffer):
        object.__setattr__(value, "name", name)
        named(name, value.data)
    elif isinstance(value, TirVar):
        object.__setattr__(value, "name", name)
    elif isinstance(value, Var):
        object.__setattr__(value, "name_hint", name)
    else:
        raise BuilderError(
            f"IRBuilder.name: wanted a variable or a buffer, got {type(value).__name__}"
        )
    return value


class Place(ast.Pass):
    """A line of the user's Python, for spans and errors."""

    def __init__(self, filename: str, line: int) -> None:
        super().__init__()
        lines = linecache.getlines(filename)
        self.source = Source(filename, lines)
        text = lines[line - 1] if 0 < line <= len(lines) else ""
        self.lineno = self.end_lineno = line
        self.col_offset = len(text.encode()) - len(text.lstrip().encode())
        self.end_col_offset = len(text.rstrip().encode())


class LoopWriter(TIRParser):
    """A loop function whose statements come from calls, not from text."""

    letter = "T."

    def __init__(self, place: Place) -> None:
        node: Any = place
        super().__init__(place.source, Outer(), None, node, None)
        self.name: str | None = None
        self.private = False
        self.ret: PrimType | None = None
        self.in_function = False
        self._names = NameSupply(joint="_")
        # The condition of the `T.If` being written, where its arms may stand; what they made last.
        self._test: Any = None
        self._choice: Stmt | None = None

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        self.in_function = True
        self.begin()
        yield
        self.function = self.finish(None if self.private else self.name, self.ret)

    def loose_statement(self) -> Stmt:
        """What has been written in no function."""
        frame = self.frames[-1]
        if (
            frame.buffers
            or frame.attrs is not None
            or self.name is not None
            or self.ret is not None
        ):
            raise BuilderError(
                "T.alloc_buffer, T.func_attr, T.func_name and T.func_ret stand inside "
                "`with T.prim_func():`, the first inside `with T.block(...):` too"
            )
        return self.suites.pop().close()

    def _fresh(self, hint: str) -> str:
        name = self._names.fresh(hint)
        return name if self.find(name) is MISSING else self._fresh(hint)

    def take(self, record: rec.Record, place: Place) -> Any:
        """Write a statement, or bind what it gives."""
        self.source = place.source
        if isinstance(record, rec.Step):
            return getattr(self, record.method)(place, *record.args)
        if isinstance(record, rec.Remap):
            axes = [
                self._axis(self._fresh("v"), axis, place) for axis in self._remapped(place, record)
            ]
            return axes[0] if len(axes) == 1 else axes
        if type(record) in BINDINGS:
            is_buffer = isinstance(record, (rec.AllocBuffer, rec.MatchBuffer))
            name = self._fresh("buffer" if is_buffer else "v")
            self.bind_name(name, record, place)
            return self.find(name)
        return self.effect(place, record)

    def within(self, record: Any, place: Place) -> Entered:
        """What puts the statements inside under `record`."""
        self.source = place.source
        if isinstance(record, rec.Step):
            return getattr(self, record.method)(place, *record.args)
        if isinstance(record, rec.BlockSpec):
            return self.block(place, record, self.span(place))
        if isinstance(record, rec.Init):
            return self.init(place)
        if isinstance(record, rec.Loops):
            return self._loops_of(place, record)
        return self._wrapped(place, record)

    @contextlib.contextmanager
    def _loops_of(self, place: Place, record: rec.Loops) -> Iterator[Any]:
        names = [self._fresh("v") for _ in record.loops]
        with self.nest(place, names, record.loops, self.span(place)) as variables:
            yield variables[0] if len(variables) == 1 else variables

    @contextlib.contextmanager
    def _wrapped(self, place: Place, record: Any) -> Iterator[Any]:
        named = NAMED.get(type(record))
        if isinstance(record, rec.LaunchThread) and isinstance(record.thread, str):
            named = TIRParser._launched_as
        with self.scope():
            name = self._fresh("buffer" if isinstance(record, rec.DeclBuffer) else "v")
            wrap = (
                self.wrapper(place, record) if named is None else named(self, name, record, place)
            )
            value = None if named is None else self.find(name)
            if isinstance(record, rec.LaunchThread):
                value = value if named is not None else record.thread.var
            with self.under(wrap), self.scope():
                yield value

    def _jump(self, node: ast.AST, value: rec.Jump | None = None) -> None:
        self.fail(node, "break and continue stand in script text; here, write T.While and T.If")

    # -- what has no statement in text: the methods of `records.Step`

    def arg(self, place: Place, name: Any, value: Any) -> Any:
        if len(self.frames) != 1 or not self.in_function:
            self.fail(place, "T.arg stands at the top of `with T.prim_func():`")
        self.parameter(place, self.string(place, name, "T.arg"), value)
        return self.find(name)

    def func_name(self, place: Place, name: Any) -> None:
        if self.name is not None:
            self.fail(place, f"the function is called {self.name} already")
        self.name = self.string(place, name, "T.func_name")

    def func_ret(self, place: Place, ret: Any) -> None:
        ret = ret.dtype if isinstance(ret, DTypeFunction) else ret
        self.ret = ret if isinstance(ret, PrimType) else PrimType(ret)

    def while_(self, place: Place, condition: Any) -> Entered:
        test, span = self._condition(place, condition), self.span(place)
        return self.under(lambda body: While(test, body, span))

    @contextlib.contextmanager
    def if_(self, place: Place, condition: Any) -> Iterator[None]:
        test, span = self._condition(place, condition), self.span(place)

        def choice(body: Stmt) -> Stmt:
            if not isinstance(body, IfThenElse) or body is not self._choice:
                self.fail(place, "T.If holds `with T.Then():`, then `with T.Else():`, nothing else")
            return body

        former, self._test = self._test, (test, span)
        with self.under(choice):
            yield
        self._test = former

    def then(self, place: Place) -> Entered:
        if self._test is None or not self.suite.is_empty:
            self.fail(place, "T.Then stands at the beginning of `with T.If(...):`")
        test, span = self._test
        return self._arm(self.under(lambda body: IfThenElse(test, body, None, span)))

    def otherwise_(self, place: Place) -> Entered:
        if self.last_if() is None or self.last_if() is not self._choice:
            self.fail(place, "T.Else follows `with T.Then():` inside `with T.If(...):`")
        return self._arm(self.otherwise())

    @contextlib.contextmanager
    def _arm(self, body: Entered) -> Iterator[None]:
        test, self._test = self._test, None
        with body:
            yield
        self._test, self._choice = test, self.suite.items[-1]


class GraphWriter:
    """A graph function, written by `BlockBuilder`."""

    letter = "R."

    def __init__(self, place: Place) -> None:
        self.name: str | None = None
        self.private, self.pure = False, True
        self.attrs: dict[str, Any] = {}
        self.params: list[Var] = []
        self.ret: StructInfo | None = None
        self.graphs: BlockBuilder
        self._body: SeqExpr | None = None
        self._last: list[Var | None] = [None]
        self._arms: list[list[Any]] = []
        self._span = place.source.span(place)

    @contextlib.contextmanager
    def writing(self) -> Iterator[None]:
        with self.graphs.nested_function():
            yield
            if self._body is None:
                raise BuilderError(f"function {self.name or ''}: R.func_ret_value is missing")
        attrs = dict(self.attrs)
        if not self.private and self.name is not None:
            attrs = {"global_symbol": self.name, **attrs}
        inferred = self._body.struct_info
        if self.ret is not None and not is_base_of(self.ret, inferred):
            raise BuilderError(
                f"function {self.name or ''} is declared to return\n  {self.ret}\nbut it gives\n"
                f"  {inferred}\nuse R.emit_match_cast where more is known than can be inferred"
            )
        self.function = Function(
            tuple(self.params), self._body, self.ret, self.pure, Map(attrs), self._span
        )

    def take(self, record: Any, place: Place) -> Any:
        """Write a statement, or bind what it gives."""
        if isinstance(record, rec.Step):
            return getattr(self, record.method)(*record.args)
        if isinstance(record, rec.FuncAttr):
            self.attrs.update(record.attrs)
        elif isinstance(record, rec.Output):
            self._dataflow.output_vars = self.graphs.as_outputs(*record.values)
        elif isinstance(record, rec.MatchCastSpec):
            return self.emit_match_cast(record.value, record.struct_info)
        elif isinstance(record, rec.EmitTe):
            return self.emit(self.graphs.call_te(record.func, *record.args, **record.keywords))
        else:
            raise BuilderError(f"{record.shown} does not stand in a graph function")
        return None

    def within(self, record: Any, place: Place) -> Entered:
        """What puts the bindings inside under `record`."""
        if isinstance(record, rec.Dataflow):
            return self._in_dataflow(record)
        if isinstance(record, rec.Step):
            return getattr(self, record.method)(*record.args)
        raise BuilderError(f"{record.shown} does not stand in a graph function")

    @contextlib.contextmanager
    def _in_dataflow(self, record: rec.Dataflow) -> Iterator[rec.Dataflow]:
        self._dataflow = record
        with self.graphs.dataflow():
            yield record
        if record.output_vars:
            self._last[-1] = record.output_vars[-1]

    # -- the methods of `records.Step`

    def arg(self, name: str, struct_info: Any) -> Var:
        param = Var(name, as_struct_info(struct_info))
        self.graphs.add_params(param)
        self.params.append(param)
        return param

    def func_name(self, name: str) -> None:
        if self.name is not None:
            raise BuilderError(f"the function is called {self.name} already")
        self.name = name

    def func_ret_struct_info(self, ret: Any) -> None:
        self.ret = as_struct_info(ret)

    def func_ret_value(self, value: Any) -> None:
        self._body = self.graphs.finish_nested(as_relax(value))

    def emit(self, value: Any, struct_info: Any = None) -> Var:
        info = None if struct_info is None else as_struct_info(struct_info)
        value = as_relax(value)
        if info is None:
            var = self.graphs.emit(value)
        elif not is_base_of(info, value.struct_info):
            var = self.graphs.match_cast(value, info)
        else:
            kind = DataflowVar if self.graphs.current_block_is_dataflow() else Var
            name = self.graphs.get_unique_name("lv" if kind is DataflowVar else "gv")
            binding = VarBinding(kind(name, info), self.graphs.normalize(value))
            var = self.graphs.emit_normalized(binding)
        self._last[-1] = var
        return var

    def emit_match_cast(self, value: Any, struct_info: Any) -> Var:
        self._last[-1] = var = self.graphs.match_cast(value, as_struct_info(struct_info))
        return var

    def emit_var_binding(self, binding: Any) -> Var:
        self._last[-1] = var = self.graphs.emit_normalized(binding)
        return var

    @contextlib.contextmanager
    def if_(self, condition: Any) -> Iterator[Any]:
        result = _Choice()
        test = self.graphs.normalize(as_relax(condition))
        self._arms.append([])
        yield result
        arms = self._arms.pop()
        if len(arms) != 2:
            raise BuilderError("R.If holds `with R.Then():` and `with R.Else():`")
        (name, true), (_, false) = arms
        info = joined_branches(true, false, self.graphs.is_bound_symbol)
        result.var = self.emit(If(test, true, false, info))
        named(name, result.var)

    @contextlib.contextmanager
    def then(self) -> Iterator[None]:
        yield from self._arm("R.Then", 0)

    @contextlib.contextmanager
    def otherwise_(self) -> Iterator[None]:
        yield from self._arm("R.Else", 1)

    def _arm(self, shown: str, nth: int) -> Iterator[None]:
        if not self._arms or len(self._arms[-1]) != nth:
            raise BuilderError(f"{shown} does not stand here: an R.If holds R.Then, then R.Else")
        arms = self._arms[-1]
        self._last.append(None)
        self.graphs.begin_scope()
        yield
        last = self._last.pop()
        if last is None:
            raise BuilderError(f"{shown} binds nothing; its last variable is what the R.If gives")
        arms.append((last.name_hint, self.graphs.end_scope(last)))


class _Choice:
    """``with R.If(...) as i:``; afterwards `i.var` is the result."""

    var: Expr


class ModuleWriter:
    """The module that ``with I.ir_module():`` writes."""

    def __init__(self) -> None:
        self.builder = BlockBuilder()
        self._declared: dict[str, GlobalVar] = {}
        self._functions: dict[str, BaseFunc] = {}
        self._attrs: dict[str, Any] = {}
        self._infos: dict[str, Any] = {}

    def take(self, record: Any, place: Place) -> Any:
        if isinstance(record, rec.ModuleAttrs):
            self._attrs.update(record.attrs)
        elif isinstance(record, rec.ModuleGlobalInfos):
            self._infos.update({key: tuple(infos) for key, infos in record.infos.items()})
        else:
            return getattr(self, record.method)(*record.args)
        return None

    def decl_function(self, name: str, signature: BaseFunc) -> GlobalVar:
        if name in self._declared:
            raise BuilderError(f"I.decl_function: {name} is declared already")
        info = signature.struct_info if isinstance(signature, Function) else None
        self._declared[name] = GlobalVar(name, info)
        self.builder.get_unique_name(name)
        return self._declared[name]

    def def_function(self, name: str, function: BaseFunc) -> None:
        if name not in self._declared:
            self.decl_function(name, function)
        self.add(name, function)

    def add(self, name: str | None, function: BaseFunc) -> None:
        """A function that is complete."""
        if name is None:
            raise BuilderError("a function of a module needs T.func_name or R.func_name")
        if name in self._functions:
            raise BuilderError(f"the module has a function {name} already")
        if name not in self._declared:
            self.decl_function(name, function)
        self._functions[name] = function

    def finish(self, place: Place) -> IRModule:
        missing = [name for name in self._declared if name not in self._functions]
        if missing:
            raise BuilderError(f"declared but not defined: {', '.join(missing)}")
        functions = {self._declared[name]: fn for name, fn in self._functions.items()}
        functions.update(self.builder.get().functions)
        module = IRModule(functions, self._attrs, self._infos)
        node: Any = place
        check_module(place.source, node, module, {})
        return module
