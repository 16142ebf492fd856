"""The doors of the parser: decorators applied to Python classes and functions, and text."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Mapping
from functools import partial
from types import FrameType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

from ...base import DiagnosticError, ParseError
from ...ir import BaseFunc, IRModule
from .evaluate import Evaluator
from .guards import SAFE_BUILTINS, Guard
from .module_parser import parse_class, parse_definition, parse_macro
from .outer import MISSING, Outer, closure
from .proxies import Macro
from .source import Source, class_source, function_source, text_source
from .statements import Decorated, decoration


def _plain_function(function: Any, name: str) -> FunctionType:
    if not isinstance(function, FunctionType):
        raise DiagnosticError(f"{name} decorates a function, got {type(function).__name__}")
    return function


def decorate_function(
    function: Any, frame: FrameType, language: str, options: dict[str, Any]
) -> Any:
    """What ``@T.prim_func`` or ``@R.function`` makes of a function.

    Inside a class decorated with ``@I.ir_module`` the function itself: the class is parsed as a
    whole.
    """
    name = "T.prim_func" if language == "tir" else "R.function"
    plain = _plain_function(function, name)
    source, node, parent = function_source(plain.__code__, plain.__globals__)
    if parent is not None and _is_module_class(parent, source, frame):
        return function
    outer = Outer.of_function(plain).inside(_locals(frame))
    outer = outer.inside(closure(plain))
    return parse_definition(source, node, outer, None, Decorated(language, options))


def _locals(frame: FrameType) -> Mapping[str, Any]:
    return {} if frame.f_locals is frame.f_globals else dict(frame.f_locals)


def _is_module_class(node: ast.ClassDef, source: Source, frame: FrameType) -> bool:
    """Whether a class being defined is going to be parsed as a module."""
    layers: list[Mapping[str, Any]] = []
    caller: FrameType | None = frame
    while caller is not None and len(layers) < 3:
        layers.append(dict(caller.f_locals))
        caller = caller.f_back
    outer = Outer(*layers, frame.f_globals, vars(builtins))
    for each in node.decorator_list:
        target = each.func if isinstance(each, ast.Call) else each
        try:
            value = Evaluator(source, outer, None).eval(target)
        except ParseError:
            # Not a name this frame can see: judge by how it is called.
            last = target.attr if isinstance(target, ast.Attribute) else getattr(target, "id", "")
            if last == "ir_module":
                return True
            continue
        if getattr(value, "script_language", None) == "module":
            return True
    return False


def decorate_class(cls: Any, frame: FrameType, options: dict[str, Any]) -> IRModule:
    """What ``@I.ir_module`` makes of a class."""
    if not isinstance(cls, type):
        raise DiagnosticError(f"I.ir_module decorates a class, got {type(cls).__name__}")
    source, node = class_source(cls, frame)
    closures = {name: closure(f) for name, f in vars(cls).items() if isinstance(f, FunctionType)}
    module = parse_class(
        source, node, Outer.of_frame(frame), None, Decorated("module", options), closures
    )
    module.__name__ = cls.__name__
    return module


def decorate_macro(function: Any, options: dict[str, Any]) -> Macro:
    """What ``@T.macro`` makes of a function."""
    plain = _plain_function(function, "T.macro")
    source, node, _ = function_source(plain.__code__, plain.__globals__)
    return parse_macro(source, node, Outer.of_function(plain), None, options)


def parse_object(
    program: Any, extra: Mapping[str, Any], frame: FrameType, check_well_formed: bool = True
) -> Any:
    """Parse an undecorated or decorated Python class or function as its decorator would."""
    if isinstance(program, (IRModule, BaseFunc)):
        return program
    if isinstance(program, type):
        module_globals = (
            vars(sys.modules[program.__module__]) if program.__module__ in sys.modules else {}
        )
        source, node = class_source(program, _frame_of(program, frame))
        outer = Outer.of_frame(frame).inside(module_globals).inside(extra)
        closures = {n: closure(f) for n, f in vars(program).items() if isinstance(f, FunctionType)}
        decorated = decoration(Evaluator(source, outer, None), node) or Decorated("module")
        decorated.skip_checks(not check_well_formed)
        return parse_class(source, node, outer, None, decorated, closures)
    if isinstance(program, FunctionType):
        source, definition, _ = function_source(program.__code__, program.__globals__)
        outer = Outer.of_function(program).inside(extra)
        decorator = decoration(Evaluator(source, outer, None), definition)
        if decorator is None:
            raise source.error(
                definition, "wanted a function decorated with @T.prim_func or @R.function"
            )
        decorator.skip_checks(not check_well_formed)
        return parse_definition(source, definition, outer, None, decorator)
    raise DiagnosticError(
        f"wanted script text, a class or a function, got {type(program).__name__}: {program!r}"
    )


def _frame_of(cls: type, frame: FrameType) -> FrameType:
    """The nearest calling frame in the file that defines `cls`, or `frame`."""
    for f in vars(cls).values():
        if isinstance(f, FunctionType):
            caller: FrameType | None = frame
            while caller is not None:
                if caller.f_code.co_filename == f.__code__.co_filename:
                    return caller
                caller = caller.f_back
    return frame


# -- text


def parse_text(
    text: str,
    names: Mapping[str, Any],
    extra: Mapping[str, Any],
    filename: str | None,
    check_well_formed: bool = True,
) -> Any:
    """The one module or function that `text` defines. Raises ParseError for anything else.

    names  what import statements may bring in, by dotted name, and the languages by their usual
           letters
    extra  names the text may use besides
    """
    source, tree = text_source(text, filename)
    known: dict[str, Any] = {**SAFE_BUILTINS, **names, **extra}
    guard = Guard(len(text), extra.values())
    evaluator = Evaluator(source, Outer(known), guard)
    parsed: list[Any] = []
    for stmt in tree.body:
        read = partial(_top_level, evaluator, source, stmt, known, parsed, not check_well_formed)
        evaluator.at(stmt, read)
    if len(parsed) != 1:
        where = tree.body[0] if tree.body else ast.Pass(lineno=1, col_offset=0)
        raise source.error(where, f"wanted one module or function, the text defines {len(parsed)}")
    return parsed[0]


def _top_level(
    evaluator: Evaluator,
    source: Source,
    stmt: ast.stmt,
    known: dict[str, Any],
    parsed: list[Any],
    unchecked: bool,
) -> None:
    if isinstance(stmt, (ast.Import, ast.ImportFrom)):
        _import(evaluator, stmt, known)
        return
    if isinstance(stmt, ast.Expr) and isinstance(stmt.value, ast.Constant):
        return
    if not isinstance(stmt, (ast.ClassDef, ast.FunctionDef)):
        evaluator.fail(
            stmt,
            "wanted a class or a function decorated with @I.ir_module, @T.prim_func or @R.function",
        )
    decorator = decoration(evaluator, stmt)
    if decorator is not None and decorator.language != "macro":
        decorator.skip_checks(unchecked)
    outer = Outer(known)
    if isinstance(stmt, ast.ClassDef):
        if decorator is None or decorator.language != "module":
            evaluator.fail(stmt, f"class {stmt.name} is not decorated with @I.ir_module")
        parsed.append(parse_class(source, stmt, outer, evaluator.guard, decorator))
    elif decorator is not None and decorator.language == "macro":
        known[stmt.name] = parse_macro(source, stmt, outer, evaluator.guard, decorator.options)
    elif decorator is None or decorator.language not in ("tir", "relax"):
        evaluator.fail(stmt, f"{stmt.name} is decorated with neither @T.prim_func nor @R.function")
    else:
        parsed.append(parse_definition(source, stmt, outer, evaluator.guard, decorator))


def _import(evaluator: Evaluator, stmt: ast.Import | ast.ImportFrom, known: dict[str, Any]) -> None:
    for each in stmt.names:
        if isinstance(stmt, ast.Import):
            path, name = each.name.split("."), each.asname or each.name.split(".")[0]
            if each.asname is None:
                path = path[:1]
        else:
            path, name = [*(stmt.module or "").split("."), each.name], each.asname or each.name
        value = known.get(path[0], MISSING)
        for part in path[1:]:
            is_package = isinstance(value, (SimpleNamespace, ModuleType))
            value = evaluator.attribute(value, part) if is_package else MISSING
        if value is MISSING or not (len(path) > 1 or isinstance(value, SimpleNamespace)):
            where = ".".join(path)
            evaluator.fail(stmt, f"text cannot import {where}; give its names as extra_vars")
        known[name] = value
