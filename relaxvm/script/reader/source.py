"""Where script text comes from: files, cells, strings; spans into it and errors pointing there."""

from __future__ import annotations

import ast
import collections
import hashlib
import linecache
import sys
import textwrap
import threading
from types import CodeType, FrameType
from typing import Any

from ...base import DiagnosticError, ParseError, Span

_Definition = ast.ClassDef | ast.FunctionDef

# Text given as a string is kept readable for spans; this many texts, the oldest dropped first.
_KEPT_TEXTS = 256
_kept: collections.deque[str] = collections.deque()
_trees: collections.OrderedDict[str, tuple[list[str], ast.Module]] = collections.OrderedDict()
_KEPT_TREES = 32

# A syntax tree deeper than this (a sum of that many terms) is refused.
_DEEPEST = 30_000
_STACK_BYTES = 256 << 20


class Source:
    """A file or text, as lines."""

    __slots__ = ("filename", "lines")

    def __init__(self, filename: str, lines: list[str]) -> None:
        self.filename = filename
        self.lines = lines

    def _column(self, line: int, offset: int) -> int:
        if not 0 < line <= len(self.lines):
            return offset + 1
        text = self.lines[line - 1]
        if text.isascii():
            return offset + 1
        # `ast` counts bytes of UTF-8, people count characters.
        return len(text.encode()[:offset].decode(errors="ignore")) + 1

    def span(self, node: ast.AST) -> Span:
        """The place of a syntax node."""
        line = getattr(node, "lineno", 0)
        end_line = getattr(node, "end_lineno", None) or line
        end_offset = getattr(node, "end_col_offset", None) or 0
        return Span(
            self.filename,
            line,
            self._column(line, getattr(node, "col_offset", 0)),
            end_line,
            self._column(end_line, end_offset),
        )

    def error(self, node: ast.AST, message: str) -> ParseError:
        """A ParseError that points at `node`."""
        span = self.span(node)
        error = DiagnosticError(message)
        error.filename, error.lineno, error.offset = span.source, span.line, span.column
        error.end_lineno, error.end_offset = span.end_line, span.end_column
        if 0 < span.line <= len(self.lines):
            error.text = self.lines[span.line - 1]
        return error


def syntax_tree(text: str, filename: str, lines: list[str]) -> ast.Module:
    """The syntax tree of `text`. Raises ParseError pointing at the first mistake."""
    try:
        try:
            return ast.parse(text, filename)
        except RecursionError:
            return _parse_deep(text, filename)
    except SyntaxError as error:
        fault = DiagnosticError(error.msg)
        fault.filename, fault.lineno, fault.offset = (
            filename,
            error.lineno or 1,
            error.offset or 1,
        )
        fault.end_lineno, fault.end_offset, fault.text = (
            error.end_lineno,
            error.end_offset,
            error.text,
        )
        raise fault from None
    except (RecursionError, MemoryError, ValueError, OverflowError) as error:
        reason = "nested too deeply" if not isinstance(error, ValueError) else str(error)
        fault = DiagnosticError(f"this is no program text: {reason}")
        fault.filename, fault.lineno, fault.offset = filename, 1, 1
        fault.text = lines[0] if lines else ""
        raise fault from None


def _parse_deep(text: str, filename: str) -> ast.Module:
    """Parse with a deep stack: CPython builds the tree of a long sum by recursion."""
    outcome: list[Any] = []

    def work() -> None:
        try:
            outcome.append(ast.parse(text, filename))
        except (SyntaxError, RecursionError, MemoryError, ValueError, OverflowError) as error:
            outcome.append(error)

    with _deep_lock:
        former_limit, former_size = sys.getrecursionlimit(), threading.stack_size(_STACK_BYTES)
        sys.setrecursionlimit(max(former_limit, _DEEPEST))
        try:
            worker = threading.Thread(target=work)
            worker.start()
            worker.join()
        finally:
            sys.setrecursionlimit(former_limit)
            threading.stack_size(former_size)
    if isinstance(outcome[0], ast.Module):
        return outcome[0]
    raise outcome[0]


_deep_lock = threading.Lock()


def text_source(text: str, filename: str | None = None) -> tuple[Source, ast.Module]:
    """Source and tree of a text given as a string; common indentation is removed.

    Raises ParseError if it is not Python's syntax.
    """
    text = textwrap.dedent(text)
    lines = text.splitlines(keepends=True)
    if filename is None:
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
        filename = f"<script {digest}>"
        if filename not in linecache.cache:
            _kept.append(filename)
            if len(_kept) > _KEPT_TEXTS:
                linecache.cache.pop(_kept.popleft(), None)
        # No modification time: `linecache.checkcache` leaves the entry alone.
        linecache.cache[filename] = (len(text), None, lines, filename)
    source = Source(filename, [line.rstrip("\r\n") for line in lines])
    return source, syntax_tree(text, filename, source.lines)


def _file(
    filename: str, module_globals: dict[str, Any] | None, what: str
) -> tuple[Source, ast.Module]:
    linecache.checkcache(filename)
    lines = linecache.getlines(filename, module_globals)
    if not lines:
        raise DiagnosticError(
            f"wanted the source text of {what}, but {filename} has none that Python can read; "
            "put the definition in a file or a notebook cell, or give its text to from_source"
        )
    cached = _trees.get(filename)
    if cached is not None and (cached[0] is lines or cached[0] == lines):
        return Source(filename, [line.rstrip("\r\n") for line in lines]), cached[1]
    source = Source(filename, [line.rstrip("\r\n") for line in lines])
    tree = syntax_tree("".join(lines), filename, source.lines)
    _trees[filename] = (lines, tree)
    if len(_trees) > _KEPT_TREES:
        _trees.popitem(last=False)
    return source, tree


def _definitions(
    tree: ast.Module,
) -> list[tuple[tuple[_Definition | ast.AsyncFunctionDef, ...], Any]]:
    """Every class and function with those that enclose it, in order of text."""
    out = []
    stack: list[tuple[tuple[Any, ...], ast.AST]] = [((), tree)]
    while stack:
        parents, n = stack.pop()
        inner = parents
        if isinstance(n, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            out.append((parents, n))
            inner = (*parents, n)
        # Definitions stand in statements only; expressions are not entered.
        for child in ast.iter_child_nodes(n):
            if isinstance(child, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                stack.append((inner, child))
    out.sort(key=lambda pair: _first_line(pair[1]))
    return out


def _first_line(definition: Any) -> int:
    return min([definition.lineno, *(d.lineno for d in definition.decorator_list)])


def function_source(
    code: CodeType, module_globals: dict[str, Any]
) -> tuple[Source, ast.FunctionDef, ast.ClassDef | None]:
    """Source and definition of a Python function, and the class it stands in, if any.

    Raises ParseError if its source cannot be read.
    """
    source, tree = _file(code.co_filename, module_globals, f"function {code.co_name}")
    for parents, n in _definitions(tree):
        if n.name == code.co_name and _first_line(n) == code.co_firstlineno:
            if isinstance(n, ast.AsyncFunctionDef):
                raise source.error(n, "an async function is not in the language; use a plain def")
            if isinstance(n, ast.FunctionDef):
                parent = parents[-1] if parents and isinstance(parents[-1], ast.ClassDef) else None
                return source, n, parent
    raise DiagnosticError(
        f"found no definition of {code.co_name} at {code.co_filename}:{code.co_firstlineno}; "
        "has the file changed since it was loaded? (a lambda is not in the language)"
    )


def class_source(cls: type, frame: FrameType) -> tuple[Source, ast.ClassDef]:
    """Source and definition of a class, given the frame in which it was decorated.

    Raises ParseError if its source cannot be read.
    """
    filename = frame.f_code.co_filename
    source, tree = _file(filename, frame.f_globals, f"class {cls.__name__}")
    line = frame.f_lineno
    named = [
        (parents, n)
        for parents, n in _definitions(tree)
        if isinstance(n, ast.ClassDef) and n.name == cls.__name__
    ]
    for _, n in named:
        if n.decorator_list and _first_line(n) <= line <= n.lineno:
            return source, n
    # Not used as a decorator: the definition of that qualified name that stands last before the
    # call.
    path = [part for part in cls.__qualname__.split(".") if part != "<locals>"]
    matching = [n for parents, n in named if [*(p.name for p in parents), n.name] == path]
    before = [n for n in matching if n.lineno <= line] or matching
    if not before:
        raise DiagnosticError(
            f"found no definition of class {cls.__qualname__} in {filename}; "
            "has the file changed since it was loaded?"
        )
    return source, before[-1]
