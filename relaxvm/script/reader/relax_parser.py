"""The parser of ``@R.function``: statements of script text to bindings of the graph language, in
normal form.

A value inside a value is bound to a fresh variable. The last statement of both branches of an `if`
binds one name, which the `if` then gives: ``y = f(x)`` there is a binding whose variable is the
branch's result, ``y = x`` of a name is the result x itself.
"""

from __future__ import annotations

import ast
import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from ...ir import Map, walk
from ...ir import Var as TirVar
from ...relax import (
    Expr,
    FuncStructInfo,
    Function,
    If,
    ObjectStructInfo,
    SeqExpr,
    Tuple,
    TupleGetItem,
    TupleStructInfo,
    Var,
    VarBinding,
    erase_unbound,
    is_leaf,
)
from ...relax.analysis import BaseCheckResult, declared_check, is_base_of
from ...relax.expr import joined_branches
from . import records as rec
from .evaluate import Hidden
from .outer import MISSING
from .proxies import UNNAMED, Lambda, renamed_var
from .relax_values import Body, FunctionSymbols, RelaxValues, called_name
from .statements import Decorated, ModuleNames, decoration
from .struct_info import as_struct_info


class RelaxParser(RelaxValues):
    """Parses one graph function: first `signature`, then `parse`."""

    # -- the signature

    def signature(self, decorated: Decorated) -> FuncStructInfo:
        """Read the parameters and the return annotation. Without the latter the result is taken to
        be any object.
        """
        options = self.options(
            decorated,
            {"pure": True, "private": False, "keep_ret": False, "check_well_formed": True},
        )
        self.pure, self.private = bool(options["pure"]), bool(options["private"])
        self.keeps_ret = bool(options["keep_ret"])
        self.check_signature()
        self.scopes.append({})
        # Names may be used before the parameter that binds them: two looks.
        self.symbols = FunctionSymbols(self, collects=True)
        for arg in self.parameters:
            assert arg.annotation is not None
            self.struct_info(arg.annotation)
        self.symbols = FunctionSymbols(self)
        for arg in self.parameters:
            assert arg.annotation is not None
            self.params.append(Var(arg.arg, self.struct_info(arg.annotation), self.span(arg)))
        if self.node.returns is not None:
            self.ret = self.struct_info(self.node.returns)
        for arg, param in zip(self.parameters, self.params):
            if isinstance(self.scopes[-1].get(arg.arg), TirVar):
                self.fail(arg, f"parameter {arg.arg} has the name of a symbol of the signature")
            self.define(arg.arg, param)
        ret = ObjectStructInfo() if self.ret is None else self.ret
        return FuncStructInfo(tuple(p.struct_info for p in self.params), ret, self.pure)

    # -- the function

    def parse(self) -> Function:
        """The function. Raises ParseError at the first mistake."""
        self.bodies.append(Body())
        result = self._statements(self.body_without_docstring())
        body = self._close(result)
        attrs = self.attrs
        if self.private:
            if "global_symbol" in attrs:
                self.fail(self.node, "a private function has no global_symbol; drop one of the two")
        else:
            attrs = {"global_symbol": self.node.name, **attrs}
        return self._function(body, attrs)

    def _function(self, body: SeqExpr, attrs: dict[str, Any]) -> Function:
        inferred = body.struct_info
        if self.itself is not None and any(n is self.itself for n in walk(body)):
            # Its calls of itself were told no more than that.
            self.keeps_ret = True
            self.ret = ObjectStructInfo() if self.ret is None else self.ret
        ret = self.ret
        if ret is not None and self.private and not self.keeps_ret and is_base_of(ret, inferred):
            ret = None  # only this module calls it: its callers may know what the body gives
        if ret is None and self._around is not None:
            # Who can call it knows what it captures.
            infos = [p.struct_info for p in self.params]
            ret = erase_unbound(inferred, infos, self._around.is_bound_symbol)
        span = self.span(self.node)
        return Function(tuple(self.params), body, ret, self.pure, Map(attrs), span)

    def _statements(self, stmts: list[ast.stmt]) -> Any:
        """Parse a function's statements and give what it returns."""
        for k, stmt in enumerate(stmts):
            if isinstance(stmt, ast.Return):
                if k + 1 < len(stmts):
                    self.fail(stmts[k + 1], "this is never reached: it stands after return")
                return self.at(stmt, partial(self._result, stmt))
            self.statement(stmt)
        self.fail(self.node, f"{self.node.name} has no return; a graph function ends with one")

    def _result(self, stmt: ast.Return) -> Expr:
        if stmt.value is None:
            self.fail(stmt, "return needs a value; R.tuple() is the empty one")
        value: Any = self.flat(self.value(stmt.value, self.eval(stmt.value)), stmt)
        value = value if is_leaf(value) else self.emit(self.names.fresh("gv"), value, stmt)
        sure = BaseCheckResult.PASS
        if self.ret is not None:
            sure = declared_check(self.ret, value.struct_info)
        if sure is BaseCheckResult.FAIL_L0:
            self.fail(
                self.node.returns or stmt,
                f"{self.node.name} is declared to return\n  {self.ret}\n"
                f"but its body gives\n  {value.struct_info}",
            )
        if sure is not BaseCheckResult.PASS:
            assert self.ret is not None
            value = self.cast(self.names.fresh("gv"), value, self.ret, stmt)
        return value

    def _close(self, result: Any) -> SeqExpr:
        body = self.bodies.pop()
        body.flush(False, self.span(self.node))
        return SeqExpr(tuple(body.blocks), result, self.span(self.node))

    # -- bindings

    def bind(self, target: ast.expr, value: Any, node: ast.stmt, annotation: Any = None) -> None:
        """``target = value`` for the value of an expression."""
        if isinstance(target, (ast.Tuple, ast.List)):
            self._unpack(target, value, node)
            return
        if not isinstance(target, ast.Name):
            self.fail(target, "wanted a name or a tuple of names on the left")
        name = target.id
        if isinstance(value, (ModuleNames, Lambda)):
            self.define(name, value)
            return
        if isinstance(value, TirVar) and (value.name == UNNAMED["var"] or _is_new_symbol(node)):
            self.define(name, self._declared_symbol(target, value))
            return
        if isinstance(value, rec.MatchCastSpec):
            self.define(name, self._match_cast(name, value, node, annotation))
            return
        if isinstance(value, rec.MetaVar):
            self.define(name, value.value)
            return
        expr = self.flat(self.value(node, value), node)
        self.define(name, self.emit(name, expr, node, annotation))

    def _declared_symbol(self, target: ast.Name, value: TirVar) -> TirVar:
        known = self.find(target.id)
        if isinstance(known, TirVar):
            if known.dtype is not value.dtype:
                self.fail(
                    target, f"symbol {target.id} is {known.dtype} already, here it is {value.dtype}"
                )
            return known
        return renamed_var(value, target.id)

    def _unpack(self, target: ast.Tuple | ast.List, value: Any, node: ast.stmt) -> None:
        names = target.elts
        if isinstance(value, (tuple, list)):
            items = list(value)
        else:
            expr = self.flat(self.value(node, value), node)
            info = expr.struct_info
            if not isinstance(info, TupleStructInfo):
                self.fail(target, f"wanted a tuple of {len(names)} values, got {info}")
            if isinstance(expr, Tuple):
                items = list(expr.fields)
            else:
                if not is_leaf(expr):
                    prefix = "gv" if self.bodies[-1].outputs is None else "lv"
                    expr = self.emit(self.names.fresh(prefix), expr, node)
                span = self.span(node)
                items = [TupleGetItem(expr, i, span=span) for i in range(len(info.fields))]
        if len(items) != len(names):
            self.fail(target, f"wanted {len(names)} values for these names, got {len(items)}")
        for each, item in zip(names, items):
            self.bind(each, item, node)

    def _match_cast(
        self, name: str, spec: rec.MatchCastSpec, node: ast.AST, annotation: Any
    ) -> Var:
        value = self.flat(self.value(node, spec.value), node)
        info = as_struct_info(spec.struct_info)
        if annotation is not None and not is_base_of(annotation, info):
            self.fail(node, f"{name} is annotated\n  {annotation}\nbut is cast to\n  {info}")
        return self.cast(name, value, info, node, annotation)

    # -- statements

    @contextlib.contextmanager
    def _defining(self, value: ast.expr | None) -> Iterator[None]:
        """Inside ``R.match_cast(...)`` strings may name new symbols."""
        is_cast = isinstance(value, ast.Call) and called_name(value) == "match_cast"
        former = self.symbols
        if is_cast:
            self.symbols = FunctionSymbols(self, defines=True)
        try:
            yield
        finally:
            self.symbols = former

    def _assign(self, node: ast.Assign) -> None:
        if len(node.targets) != 1:
            self.fail(node, "assign to one target at a time")
        with self._defining(node.value):
            value = self.eval(node.value)
        self.bind(node.targets[0], value, node)

    def _annotated(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            self.fail(node.target, "an annotated assignment has one name on the left")
        if node.value is None:
            self.fail(node, f"{node.target.id} needs a value")
        with self._defining(node.value):
            value = self.eval(node.value)
            annotation = self.struct_info(node.annotation)
        if isinstance(value, TirVar) and value.name == UNNAMED["var"]:
            self.fail(node.annotation, "a symbol has no annotation")
        self.bind(node.target, value, node, annotation)

    def _expression_statement(self, node: ast.Expr) -> None:
        with self._defining(node.value):
            value = self.eval(node.value)
        if isinstance(value, rec.FuncAttr):
            if len(self.bodies) != 1 or self.bodies[0].outputs is not None:
                self.fail(node, "R.func_attr stands at the top of the function")
            more = self.attributes(node, value.attrs, "R.func_attr")
            for key in more:
                if key in self.attrs:
                    self.fail(node, f"R.func_attr: {key!r} has a value already")
            self.attrs.update(more)
        elif isinstance(value, rec.MatchCastSpec):
            self._match_cast("_", value, node, None)
        elif isinstance(value, rec.Output):
            self.fail(node, "R.output stands at the end of a dataflow block")
        elif isinstance(value, Expr):
            self.emit("_", self.flat(value, node), node)
        elif isinstance(value, rec.Record):
            self.misplaced(node, value)
        elif value is not None and not isinstance(value, str) and value is not Ellipsis:
            self.fail(node, f"a {type(value).__name__} means nothing here")

    def _pass(self, node: ast.Pass) -> None:
        """Nothing."""

    def _return(self, node: ast.Return) -> None:
        self.fail(node, "return stands at the end of the function, not inside an if or a with")

    def _nested(self, node: ast.FunctionDef) -> None:
        decorated = decoration(self, node)
        if decorated is None or decorated.language != "relax":
            self.fail(node, "a function inside a function is decorated with @R.function")
        inner = RelaxParser(self.source, self.outer, self.guard, node, self.module)
        inner.scopes = list(self.scopes)
        info = inner.signature(decorated)
        # The function may call itself by its name.
        inner.scopes.insert(-1, {node.name: Var(node.name, info, self.span(node))})
        itself = inner.scopes[-2][node.name]
        inner._around, inner.names = self, self.names
        inner.bodies.append(Body())
        result = inner._statements(inner.body_without_docstring())
        function = inner._function(inner._close(result), inner.attrs)
        if inner.ret is None and not _mentions(function, itself):
            info = function.struct_info
        elif inner.ret is None:
            # It was told no more than that of itself.
            function = function.replace(ret_struct_info=info.ret)
        var = self._variable(node.name, info, node)
        if _mentions(function, itself) and type(var) is Var:
            var = itself
        elif _mentions(function, itself):
            self.fail(node, "a function inside a dataflow block cannot call itself")
        self.bodies[-1].bindings.append(VarBinding(var, function, self.span(node)))
        self.define(node.name, var)

    # -- control flow

    def _if(self, node: ast.If) -> None:
        if self.bodies[-1].outputs is not None:
            self.fail(node, "if does not stand inside a dataflow block")
        condition = self.eval(node.test)
        if isinstance(condition, bool):
            # Known while parsing: only the side that is taken is there.
            for stmt in node.body if condition else node.orelse:
                self.statement(stmt)
            return
        condition = self.flat(self.value(node.test, condition), node)
        if not is_leaf(condition):
            condition = self.emit(self.names.fresh("gv"), condition, node.test)
        if not node.orelse:
            self.fail(node, "an if of the graph language needs an else: it gives a value")
        then_name, then_case = self._branch(node, node.body)
        else_name, else_case = self._branch(node, node.orelse)
        if then_name != else_name:
            self.fail(
                node,
                f"both branches end by binding the same variable; the first binds {then_name}, "
                f"the second {else_name}",
            )
        info = joined_branches(then_case, else_case, self.is_bound_symbol)
        choice = If(condition, then_case, else_case, info, self.span(node))
        self.define(then_name, self.emit(then_name, choice, node))

    def _branch(self, node: ast.If, stmts: list[ast.stmt]) -> tuple[str, SeqExpr]:
        last = stmts[-1]
        name = self._last_name(last)
        self.bodies.append(Body())
        with self.scope() as names:
            for stmt in stmts[:-1]:
                self.statement(stmt)
            if isinstance(last, (ast.Assign, ast.AnnAssign)) and last.value is not None:
                self._branch_result(name, last, last.value)
            else:
                self.statement(last)
            result = names.get(name)
        if not isinstance(result, Expr):
            self.fail(last, f"{name} is no value of the graph language")
        body = self.bodies.pop()
        span = self.span(node)
        body.flush(False, span)
        return name, SeqExpr(tuple(body.blocks), result, span)

    def _branch_result(self, name: str, last: ast.Assign | ast.AnnAssign, node: ast.expr) -> None:
        """The last assignment of a branch: a leaf is the result itself, anything else is bound."""
        with self._defining(node):
            value = self.eval(node)
            annotation = (
                self.struct_info(last.annotation) if isinstance(last, ast.AnnAssign) else None
            )
        if isinstance(value, Expr) and is_leaf(value):
            if annotation is None or annotation is value.struct_info:
                self.define(name, value)
                return
        target = last.target if isinstance(last, ast.AnnAssign) else last.targets[0]
        self.bind(target, value, last, annotation)

    def _last_name(self, last: ast.stmt) -> str:
        """The variable that the last statement of a branch binds."""
        if isinstance(last, ast.Assign) and len(last.targets) == 1:
            if isinstance(last.targets[0], ast.Name):
                return last.targets[0].id
        if isinstance(last, ast.AnnAssign) and isinstance(last.target, ast.Name):
            return last.target.id
        if isinstance(last, ast.FunctionDef):
            return last.name
        if isinstance(last, ast.If) and last.orelse:
            # The inner if binds a variable of its own; both of its branches are checked when it is
            # parsed.
            innermost = last.body[-1]
            while isinstance(innermost, ast.If):
                innermost = innermost.body[-1]
            return self._last_name(innermost)
        if isinstance(last, ast.With):
            outputs = self._outputs(last)
            if outputs:
                return outputs[-1]
        if isinstance(last, ast.Return):
            self._return(last)
        self.fail(last, "a branch ends by binding the variable that the if gives")

    # -- dataflow

    def _output_call(self, node: ast.With) -> ast.Call | None:
        last = node.body[-1]
        if isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            if called_name(last.value) == "output":
                return last.value
        return None

    def _outputs(self, node: ast.With) -> list[str]:
        call = self._output_call(node)
        if call is None:
            return []
        if call.keywords:
            self.fail(call, "R.output takes variables by position")
        names = []
        for arg in call.args:
            if not isinstance(arg, ast.Name):
                self.fail(arg, "R.output takes variables of this block")
            names.append(arg.id)
        return names

    def _with(self, node: ast.With) -> None:
        if len(node.items) != 1 or node.items[0].optional_vars is not None:
            self.fail(node, "wanted `with R.dataflow():`")
        value = self.eval(node.items[0].context_expr)
        if not isinstance(value, rec.Dataflow):
            self.fail(node.items[0].context_expr, "wanted R.dataflow() after with")
        body = self.bodies[-1]
        if body.outputs is not None:
            self.fail(node, "a dataflow block does not stand inside another")
        names = self._outputs(node)
        statements = node.body[:-1] if self._output_call(node) is not None else node.body
        last_binding: dict[str, int] = {}
        for k, stmt in enumerate(statements):
            for name in _bound_names(stmt):
                last_binding[name] = k
        body.flush(False, self.span(node))
        body.outputs = {name: last_binding[name] for name in names if name in last_binding}
        with self.scope() as inner:
            for k, stmt in enumerate(statements):
                body.at = k
                self.statement(stmt)
            call = self._output_call(node)
            if call is not None:
                self.eval(call.func)
            for name in names:
                if name not in last_binding:
                    self.fail(
                        node.body[-1], f"R.output: {name} is not bound in this dataflow block"
                    )
        body.flush(True, self.span(node))
        body.outputs = None
        for name, var in inner.items():
            if name in names or not isinstance(var, Expr):
                self.define(name, var)
            elif self.find(name) is MISSING:
                hidden = f"{name} is visible only inside its dataflow block; add it to R.output"
                self.define(name, Hidden(hidden))


def _bound_names(stmt: ast.stmt) -> list[str]:
    if isinstance(stmt, ast.FunctionDef):
        return [stmt.name]
    targets: list[ast.expr] = []
    if isinstance(stmt, ast.Assign):
        targets = list(stmt.targets)
    elif isinstance(stmt, ast.AnnAssign):
        targets = [stmt.target]
    return [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]


def _is_new_symbol(node: ast.stmt) -> bool:
    """Whether a statement is ``n = T.Var("n", "int64")``."""
    value = getattr(node, "value", None)
    return isinstance(value, ast.Call) and called_name(value) in ("Var", "SizeVar")


def _mentions(function: Function, var: Var) -> bool:
    return any(n is var for n in walk(function.body))


RelaxParser.statements = {
    ast.Assign: RelaxParser._assign,
    ast.AnnAssign: RelaxParser._annotated,
    ast.Expr: RelaxParser._expression_statement,
    ast.If: RelaxParser._if,
    ast.With: RelaxParser._with,
    ast.Return: RelaxParser._return,
    ast.Pass: RelaxParser._pass,
    ast.Nonlocal: RelaxParser.captured,
    ast.Global: RelaxParser.captured,
    ast.FunctionDef: RelaxParser._nested,
}
