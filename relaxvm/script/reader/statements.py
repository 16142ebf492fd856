"""What the parsers of both languages share: statement dispatch, signatures, decorators, names of
functions.
"""

from __future__ import annotations

import ast
from collections.abc import Callable
from dataclasses import field
from typing import Any, ClassVar, NoReturn

from ...base import ParseError, did_you_mean, record
from ...ir import GlobalVar
from ...relax import BlockBuilder
from .evaluate import Evaluator
from .guards import Guard
from .outer import MISSING, Outer
from .proxies import Macro, bound_arguments
from .records import MetaVar, Record
from .source import Source

# Macros put in place by one function, nested or not; a macro that calls itself stops here.
_MOST_MACROS = 10_000
_DEEPEST_MACRO = 40

_UNSUPPORTED = {
    ast.Try: "try",
    ast.ClassDef: "a class inside a function",
    ast.Delete: "del",
    ast.Import: "import",
    ast.ImportFrom: "import",
    ast.Raise: "raise (use assert)",
    ast.Break: "break",
    ast.Continue: "continue",
    ast.AsyncFor: "async for",
    ast.AsyncWith: "async with",
    ast.AsyncFunctionDef: "async def",
    ast.Match: "match",
    ast.For: "for",
    ast.While: "while",
    ast.Assert: "assert",
    ast.AugAssign: "an augmented assignment",
}


@record(frozen=False)
class Decorated:
    """The decorator of a function: its language ("tir", "relax", "macro") and its options."""

    language: str
    options: dict[str, Any] = field(default_factory=dict)
    node: ast.expr | None = None

    def skip_checks(self, skip: bool) -> None:
        """What is made is not checked, whatever the decorator says."""
        if skip:
            self.options["check_well_formed"] = False


def decoration(
    evaluator: Evaluator, definition: ast.FunctionDef | ast.ClassDef
) -> Decorated | None:
    """The script decorator of a definition, or None if it has none. Raises ParseError for options
    it cannot read.
    """
    for node in definition.decorator_list:
        target = node.func if isinstance(node, ast.Call) else node
        language = getattr(evaluator.eval(target), "script_language", None)
        if not isinstance(language, str):
            continue
        options: dict[str, Any] = {}
        if isinstance(node, ast.Call):
            args, options = evaluator.arguments(node)
            if args:
                evaluator.fail(node, "a decorator takes options by name, as in private=True")
        return Decorated(language, options, node)
    return None


class ModuleNames:
    """The functions of the module being parsed: ``cls`` and the class's own name stand for it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.global_vars: dict[str, GlobalVar] = {}
        # What a call of a loop function gives, by name.
        self.return_dtypes: dict[str, Any] = {}
        self.global_infos: dict[str, Any] = {}
        # Packed functions that have a name in the class.
        self.externs: dict[str, Any] = {}
        # Loop functions that the text of graph functions adds to the module.
        self.added: BlockBuilder | None = None

    def builder(self) -> BlockBuilder:
        """Where functions are added that no definition of the class is; it knows their names."""
        if self.added is None:
            self.added = BlockBuilder()
            for name in self.global_vars:
                self.added.get_unique_name(name)
        return self.added

    def __getattr__(self, name: str) -> GlobalVar:
        gv = self.__dict__.get("global_vars", {}).get(name)
        if gv is None:
            raise AttributeError(name)
        return gv

    def __dir__(self) -> list[str]:
        return list(self.global_vars)


class FunctionParser(Evaluator):
    """Parses the statements of one function; subclasses say what each means."""

    language: ClassVar[str]
    statements: ClassVar[dict[type[ast.stmt], Callable[..., None]]] = {}

    def __init__(
        self,
        source: Source,
        outer: Outer,
        guard: Guard | None,
        node: ast.FunctionDef,
        module: ModuleNames | None,
    ) -> None:
        super().__init__(source, outer, guard)
        self.node = node
        self.module = module
        self._macros = 0
        self._macro_depth = 0
        if module is not None:
            self.scopes[0].update(module.global_vars)
            self.scopes[0]["cls"] = module
            self.scopes[0].setdefault(module.name, module)

    def statement(self, node: ast.stmt) -> None:
        """Parse one statement."""
        handler = self.statements.get(type(node))
        if handler is None:
            what = _UNSUPPORTED.get(type(node), type(node).__name__)
            self.fail(node, f"{what} is not in the language of {self.language}")
        try:
            handler(self, node)
        except ParseError as error:
            if error.lineno:
                raise
            raise self.wrap(node, error) from error
        except Exception as error:
            # Whatever goes wrong while a statement is built is a mistake at this place of the text.
            raise self.wrap(node, error) from error

    def check_signature(self) -> None:
        """Refuse parameter kinds that no script function has."""
        a = self.node.args
        for extra in (a.vararg, a.kwarg):
            if extra is not None:
                self.fail(extra, "a function takes a fixed list of parameters, no * or **")
        for default in (*a.defaults, *(d for d in a.kw_defaults if d is not None)):
            self.fail(default, "a parameter has no default value")
        if a.kwonlyargs:
            self.fail(a.kwonlyargs[0], "a parameter cannot be keyword-only")
        seen: set[str] = set()
        for arg in (*a.posonlyargs, *a.args):
            if arg.arg in seen:
                self.fail(arg, f"parameter {arg.arg} appears twice")
            seen.add(arg.arg)
            if arg.annotation is None:
                self.fail(
                    arg, f"parameter {arg.arg} needs an annotation, such as {self._example()}"
                )

    def _example(self) -> str:
        return (
            'T.Buffer((16,), "float32")' if self.language == "T" else 'R.Tensor((16,), "float32")'
        )

    @property
    def parameters(self) -> list[ast.arg]:
        """The parameters as written."""
        return [*self.node.args.posonlyargs, *self.node.args.args]

    def body_without_docstring(self) -> list[ast.stmt]:
        """The statements, a leading string dropped."""
        body = self.node.body
        first = body[0]
        if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            if isinstance(first.value.value, str):
                return body[1:]
        return body

    def attribute(self, value: Any, name: str) -> Any:
        """``value.name``; of the module, only its functions."""
        if isinstance(value, ModuleNames):
            return value.global_vars.get(name, value.externs.get(name, MISSING))
        return super().attribute(value, name)

    def captured(self, node: ast.Nonlocal | ast.Global) -> None:
        """``nonlocal x`` makes Python keep x for annotations; here x is visible anyway."""
        for name in node.names:
            self.eval(ast.copy_location(ast.Name(name, ast.Load()), node))

    def expand(
        self, node: ast.Call, macro: Macro, args: list[Any], keywords: dict[str, Any]
    ) -> Any:
        """Put the statements of a macro in place. Gives what its last statement returns, if that is
        a return of the graph language.
        """
        self._macros += 1
        if self._macros > _MOST_MACROS or self._macro_depth >= _DEEPEST_MACRO:
            self.fail(
                node, f"macro {macro.node.name} is put in place too often; does it call itself?"
            )
        try:
            values = bound_arguments(macro.signature, [*macro.first, *args], keywords)
        except TypeError as error:
            self.fail(node, f"macro {macro.node.name}: {error}")
        former = (self.source, self.outer, self.scopes, self.guard)
        self._macro_depth += 1
        self.source, self.guard = macro.source, macro.guard
        if macro.hygienic:
            self.outer, self.scopes = macro.outer, [dict(self.scopes[0])]
        try:
            with self.scope():
                for name, value in values.items():
                    self.define(name, value)
                *most, last = macro.node.body
                for stmt in most:
                    self.statement(stmt)
                if isinstance(last, ast.Return) and self.language == "R":
                    return None if last.value is None else self.eval(last.value)
                self.statement(last)
        finally:
            self.source, self.outer, self.scopes, self.guard = former
            self._macro_depth -= 1
        return None

    def misplaced(self, node: ast.AST, record: Any) -> NoReturn:
        """Refuse a record where it means nothing."""
        if isinstance(record, MetaVar):
            self.fail(node, "T.meta_var must be assigned to a name")
        if isinstance(record, Record):
            self.fail(node, f"{record.shown} does not stand here")
        self.fail(node, f"a {type(record).__name__} means nothing here")

    def options(self, decorated: Decorated, known: dict[str, Any]) -> dict[str, Any]:
        """The decorator's options over their defaults. Raises ParseError for unknown ones."""
        for name in decorated.options:
            if name not in known:
                where = decorated.node if decorated.node is not None else self.node
                self.fail(where, f"unknown option {name}{did_you_mean(name, known)}")
        return {**known, **decorated.options}
