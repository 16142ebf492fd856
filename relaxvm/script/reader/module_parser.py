"""The parser of ``@I.ir_module`` classes and of whole texts."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from typing import Any

from ...base import callees_first
from ...ir import BaseFunc, GlobalVar, IRModule
from ...relax import ExternFunc, ObjectStructInfo
from .checks import check_function, check_module
from .evaluate import Evaluator
from .guards import Guard
from .outer import Outer
from .proxies import Macro, signature_of
from .records import ModuleAttrs, ModuleGlobalInfos, only_describing
from .relax_parser import RelaxParser
from .source import Source
from .statements import Decorated, ModuleNames, decoration
from .tir_parser import TIRParser


def parse_macro(
    source: Source,
    node: ast.FunctionDef,
    outer: Outer,
    guard: Guard | None,
    options: Mapping[str, Any],
) -> Macro:
    """A macro from its definition. Raises ParseError for unknown options."""
    unknown = options.keys() - {"hygienic"}
    if unknown:
        raise source.error(node, f"T.macro has no option {', '.join(unknown)}; it has hygienic")
    signature = signature_of(node.args, Evaluator(source, outer, guard).eval)
    return Macro(source, node, outer, guard, bool(options.get("hygienic", True)), signature)


@only_describing()
def parse_definition(
    source: Source, node: ast.FunctionDef, outer: Outer, guard: Guard | None, decorated: Decorated
) -> BaseFunc:
    """A function that stands alone. Raises ParseError at the first mistake."""
    function: BaseFunc
    if decorated.language == "tir":
        loops = TIRParser(source, outer, guard, node, None)
        function = loops.at(node, lambda: loops.parse(decorated))
    else:
        parser = RelaxParser(source, outer, guard, node, None)
        info = parser.at(node, lambda: parser.signature(decorated))
        # A function that calls itself does so by its own name.
        parser.itself = GlobalVar(node.name, info, source.span(node))
        parser.scopes.insert(1, {node.name: parser.itself})
        function = parser.at(node, parser.parse)
    if decorated.options.get("check_well_formed", True):
        check_function(source, node, function)
    return function


@only_describing()
def parse_class(
    source: Source,
    node: ast.ClassDef,
    outer: Outer,
    guard: Guard | None,
    decorated: Decorated,
    closures: Mapping[str, Mapping[str, Any]] | None = None,
) -> IRModule:
    """The module a class describes. Raises ParseError at the first mistake.

    closures  by function of the class: the variables of enclosing Python functions that it uses
    """
    unknown = decorated.options.keys() - {"check_well_formed", "s_tir"}
    if unknown:
        where = decorated.node if decorated.node is not None else node
        raise source.error(where, f"I.ir_module has no option {', '.join(sorted(unknown))}")
    parser = _ModuleParser(source, outer, guard, node, closures or {})
    check = bool(decorated.options.get("check_well_formed", True))
    return parser.at(node, lambda: parser.parse(check))


class _ModuleParser(Evaluator):
    """Parses the body of one class."""

    def __init__(
        self,
        source: Source,
        outer: Outer,
        guard: Guard | None,
        node: ast.ClassDef,
        closures: Mapping[str, Mapping[str, Any]],
    ) -> None:
        super().__init__(source, outer, guard)
        self.node = node
        self.closures = closures
        self.names = ModuleNames(node.name)
        self.attrs: dict[str, Any] = {}
        self.global_infos: dict[str, Any] = {}
        self.definitions: dict[str, tuple[ast.FunctionDef, Decorated]] = {}

    def parse(self, check_well_formed: bool) -> IRModule:
        """The module. Raises ParseError at the first mistake."""
        for base in (*self.node.bases, *(k.value for k in self.node.keywords)):
            self.fail(base, "a module class has no bases")
        for stmt in self.node.body:
            self._collect(stmt)
        self.names.global_infos = self.global_infos
        for name, (definition, decorated) in self.definitions.items():
            self.names.global_vars[name] = GlobalVar(name, None, self.span(definition))
            if decorated.language == "tir":
                self.names.return_dtypes[name] = None
        for name, extern in self.names.externs.items():
            self.names.global_vars[name] = GlobalVar(name, extern.struct_info, extern.span)
        self._return_dtypes()
        functions = self._functions()
        by_var: dict[GlobalVar, BaseFunc]
        by_var = {self.names.global_vars[k]: extern for k, extern in self.names.externs.items()}
        by_var |= {self.names.global_vars[name]: functions[name] for name in self.definitions}
        if self.names.added is not None:
            by_var.update(self.names.added.get().functions)
        module = IRModule(by_var, self.attrs, self.global_infos)
        if check_well_formed:
            check_module(self.source, self.node, module, self.definitions)
        return module

    # -- the class's own statements

    def _collect(self, stmt: ast.stmt) -> None:
        if isinstance(stmt, ast.Pass):
            return
        if isinstance(stmt, ast.FunctionDef):
            self._definition(stmt)
            return
        if isinstance(stmt, ast.Expr):
            self._declaration(stmt)
            return
        if isinstance(stmt, ast.Assign) and isinstance(stmt.targets[0], ast.Name):
            value = self.eval(stmt.value)
            if isinstance(value, ExternFunc) and len(stmt.targets) == 1:
                name = stmt.targets[0].id
                if name in self.definitions or name in self.names.externs:
                    self.fail(stmt, f"the module has a function {name} already")
                self.names.externs[name] = value
                self.define(name, value)
                return
        self.fail(
            stmt,
            "a module class holds functions decorated with @T.prim_func or @R.function, "
            "I.module_attrs, I.module_global_infos and names of R.ExternFunc",
        )

    def _definition(self, node: ast.FunctionDef) -> None:
        decorated = decoration(self, node)
        if decorated is None:
            self.fail(node, f"{node.name} is decorated with neither @T.prim_func nor @R.function")
        if decorated.language == "macro":
            outer = self._outer_of(node)
            macro = parse_macro(self.source, node, outer, self.guard, decorated.options)
            self.define(node.name, macro)
            return
        if decorated.language not in ("tir", "relax"):
            self.fail(node, f"{node.name}: a class is no function")
        if node.name in self.definitions or node.name in self.names.externs:
            self.fail(node, f"the module has a function {node.name} already")
        self.definitions[node.name] = (node, decorated)

    def _declaration(self, node: ast.Expr) -> None:
        value = self.eval(node.value)
        if isinstance(value, ModuleAttrs):
            self.attrs.update(self.attributes(node, value.attrs, "I.module_attrs"))
        elif isinstance(value, ModuleGlobalInfos):
            if not isinstance(value.infos, Mapping):
                self.fail(node, "I.module_global_infos: wanted a dict of lists")
            for key, infos in value.infos.items():
                if not isinstance(infos, (list, tuple)):
                    self.fail(node, f"I.module_global_infos: {key!r}: wanted a list")
                name = self.string(node, key, "a key")
                self.global_infos[name] = self.remark(node, infos, "I.module_global_infos")
        elif not isinstance(value, str) and value is not Ellipsis:
            self.fail(node, "this means nothing in a module class")

    # -- its functions

    def _outer_of(self, node: ast.FunctionDef) -> Outer:
        outer = self.outer.inside(self.closures.get(node.name, {}))
        # Macros of the class.
        return outer.inside(self.scopes[0])

    def _return_dtypes(self) -> None:
        for name, (definition, decorated) in self.definitions.items():
            if decorated.language == "tir" and definition.returns is not None:
                parser = TIRParser(
                    self.source, self._outer_of(definition), self.guard, definition, self.names
                )
                wanted = parser.return_type()
                self.names.return_dtypes[name] = None if wanted is None else wanted.dtype

    def _functions(self) -> dict[str, BaseFunc]:
        parsers: dict[str, RelaxParser] = {}
        # Signatures first: functions may call each other in any order.
        for name, (definition, decorated) in self.definitions.items():
            if decorated.language != "relax":
                continue
            parser = RelaxParser(
                self.source, self._outer_of(definition), self.guard, definition, self.names
            )
            parsers[name] = parser
            self._declare(name, parser.signature(decorated))
        functions: dict[str, BaseFunc] = {}
        for name, (definition, decorated) in self.definitions.items():
            if decorated.language == "tir":
                functions[name] = TIRParser(
                    self.source, self._outer_of(definition), self.guard, definition, self.names
                ).parse(decorated)
        # A private function's callers see what its body gives, where that is finer.
        open_ended = [
            name for name, p in parsers.items() if p.ret is None or (p.private and not p.keeps_ret)
        ]
        # Who refers to a function whose result is known only when it is parsed.
        users = {name: _mentioned(parsers[name].node, open_ended) for name in parsers}
        used: set[str] = set()
        for name in callees_first(parsers, users):
            parser = parsers[name]
            parser.scopes[0].update(self.names.global_vars)
            used.update(users[name])
            if name in used:
                # Who called it, itself maybe, was told no more than that.
                parser.keeps_ret = True
                parser.ret = ObjectStructInfo() if parser.ret is None else parser.ret
            function = parser.parse()
            functions[name] = function
            if name in open_ended and name not in used:
                self._declare(name, function.struct_info)
        return functions

    def _declare(self, name: str, info: Any) -> None:
        old = self.names.global_vars[name]
        self.names.global_vars[name] = old.replace(struct_info=info)


def _mentioned(node: ast.AST, names: list[str]) -> list[str]:
    """Which functions of that name the text under `node` refers to."""
    if not names:
        return []
    plain: set[str] = set()
    own: set[str] = set()
    through_module: set[str] = set()
    for n in ast.walk(node):
        if isinstance(n, ast.Name):
            (plain if isinstance(n.ctx, ast.Load) else own).add(n.id)
        elif isinstance(n, ast.arg):
            own.add(n.arg)
        elif isinstance(n, ast.Attribute):
            through_module.add(n.attr)
    return [name for name in names if name in through_module or name in plain - own]
