"""`print_script`, `show_script`, and the constants that are kept beside the text."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Mapping
from typing import Any

from ...base import LoadError
from ...ir import IRModule, Map, load_json, save_json
from ...relax import Function, If, SeqExpr
from ...tir import Buffer, PrimFunc, Stmt

# Each of these registers the handlers of its nodes.
from . import function, graph, module, prim_func, scalar, stmt, struct_info  # noqa: F401
from .buffer import buffer_arguments, define_buffer
from .core import FREE, Options, Piece, Printer
from .function import function_lines, result_lines
from .prim_func import function_name

__all__ = ["print_script", "read_metadata", "show_script"]

_METADATA = "# metadata = "
_OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."


def print_script(
    what: Any,
    *,
    show_meta: bool = False,
    name: str = "Module",
    syntax_sugar: bool = True,
    ir_prefix: str = "I",
    tir_prefix: str = "T",
    relax_prefix: str = "R",
    module_alias: str = "cls",
    indent_spaces: int = 4,
    show_all_struct_info: bool = True,
) -> str:
    """`what` (a module, function, statement, expression, struct info, buffer, ...) as script text.

    show_meta             end with the large constants that the text only refers to, as a comment
                          that `read_metadata` reads
    name                  the class that a module is printed as
    syntax_sugar          use the short forms: T.grid, T.axis.remap, T.Buffer parameters, ...
    *_prefix              what I, T and R are called
    module_alias          what the module is called inside its functions
    show_all_struct_info  annotate every binding, not only those whose value does not imply it
    Never raises because of what the IR holds; a variable that nothing defines prints by its name.
    """
    p = Printer(
        Options(
            show_meta=show_meta,
            name=name,
            syntax_sugar=syntax_sugar,
            ir_prefix=ir_prefix,
            tir_prefix=tir_prefix,
            relax_prefix=relax_prefix,
            module_alias=module_alias,
            indent_spaces=indent_spaces,
            show_all_struct_info=show_all_struct_info,
        )
    )
    p.run(_root(p, what))
    text = "".join(p.out).lstrip("\n")
    if isinstance(what, (IRModule, PrimFunc, Function)):
        text = f"{_header(p)}\n\n{text}"
    if p.metadata:
        text = f"{text}\n\n{_footer(p)}"
    return text


def _root(p: Printer, what: Any) -> list[Piece]:
    """How a node is printed that stands alone."""
    if isinstance(what, Buffer):
        return [f"{define_buffer(p, what)}: {p.T}.Buffer(", *buffer_arguments(p, what), ")"]
    if isinstance(what, Function):
        return function_lines(p, what, function_name(what))
    if isinstance(what, Stmt):
        return [(what, 1, FREE)]
    if isinstance(what, (If, SeqExpr)):
        return result_lines(p, what, "")
    if isinstance(what, (Mapping, tuple, list)) and not isinstance(what, Map):
        what = Map({"": what})[""]
    if isinstance(what, tuple):
        return ["(", *(piece for item in what for piece in ((item, 0, FREE), ", "))][:-1] + [")"]
    return [(what, 0, FREE)]


def _header(p: Printer) -> str:
    return "\n".join(
        f"# from relaxvm.script import {room} as {getattr(p.options, f'{room}_prefix')}"
        for room in ("ir", "tir", "relax")
        if room in p.used
    )


def _footer(p: Printer) -> str:
    if not p.options.show_meta:
        return _OMITTED
    constants = Map({"relax.expr.Constant": tuple(p.metadata)})
    return _METADATA + save_json(constants, spans=False)


def read_metadata(text: str) -> Map:
    """The constants that ``print_script(..., show_meta=True)`` put after the text, by kind.

    Empty if there are none. Raises LoadError if they are damaged.
    """
    start = text.rfind(f"\n{_METADATA}")
    if start < 0:
        return Map()
    line = text[start + 1 + len(_METADATA) :].split("\n", 1)[0]
    found = load_json(line)
    if not isinstance(found, Map) or not isinstance(found.get("relax.expr.Constant"), tuple):
        raise LoadError("the metadata after the text holds no constants")
    return found


def show_script(
    what: Any, style: str | None = None, black_format: bool | None = None, **options: Any
) -> None:
    """Print the script text, in colour if pygments is installed and the output is a terminal.

    style         a pygments style, or "light", "dark", "ansi"
    black_format  accepted as TVM does; the text is laid out by the printer itself
    """
    text = print_script(what, **options)
    if sys.stdout.isatty() and importlib.util.find_spec("pygments") is not None:
        text = _coloured(text, style)
    print(text)


_STYLES = {"light": "default", "dark": "monokai", "ansi": "default", None: "default"}


def _coloured(text: str, style: str | None) -> str:
    import pygments
    from pygments.formatters import Terminal256Formatter
    from pygments.lexers import PythonLexer

    formatter = Terminal256Formatter(style=_STYLES.get(style, style))
    return str(pygments.highlight(text, PythonLexer(), formatter)).rstrip("\n")
