"""`print_script`, `show_script`, and the constants that are kept beside the text."""

from __future__ import annotations

import html
import importlib.util
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from ...base import LoadError, TIRError, notebook
from ...ir import AccessPath, GlobalVar, IRModule, Map, PrimExpr, Var, load_json, save_json, walk
from ...relax import Function, If, SeqExpr
from ...tir import Buffer, BufferRegion, PrimFunc, Stmt

# Each of these registers the handlers of its nodes.
from . import function, graph, module, prim_func, scalar, stmt, struct_info  # noqa: F401
from .buffer import buffer_arguments, declare_buffer, declare_symbols, define_buffer
from .core import FREE, NL, Options, Piece, Printer
from .function import function_lines, result_lines
from .marks import Marks, decorated
from .names import identifier
from .prim_func import function_name, prim_func_lines

_METADATA = "# metadata = "
_OMITTED = "# Metadata omitted. Use show_meta=True in script() method to show it."


def print_script(
    what: Any,
    *,
    show_meta: bool = False,
    name: str | None = None,
    syntax_sugar: bool = True,
    ir_prefix: str = "I",
    tir_prefix: str = "T",
    relax_prefix: str = "R",
    module_alias: str = "cls",
    indent_spaces: int = 4,
    show_all_struct_info: bool = True,
    int_dtype: str = "int32",
    float_dtype: str = "void",
    buffer_dtype: str = "void",
    verbose_expr: bool = False,
    print_line_numbers: bool = False,
    num_context_lines: int = -1,
    obj_to_underline: Iterable[Any] | None = None,
    path_to_underline: Iterable[AccessPath] | None = None,
    obj_to_annotate: Mapping[Any, str] | None = None,
    path_to_annotate: Mapping[AccessPath, str] | None = None,
    extra_config: Mapping[str, Any] | None = None,
) -> str:
    """`what` (a module, function, statement, expression, struct info, buffer, ...) as script text.

    show_meta             end with the large constants that the text only refers to, as a comment
                          that `read_metadata` reads
    name                  the class that a module, the name that a function is printed as
    syntax_sugar          use the short forms: T.grid, T.axis.remap, T.Buffer parameters, ...
    *_prefix              what I, T and R are called
    module_alias          what the module is called inside its functions
    show_all_struct_info  annotate every binding, not only those whose value does not imply it
    int_dtype             integers of that dtype are plain numbers in loop functions
    float_dtype           floats of that dtype are plain numbers in loop functions; "void": none are
    buffer_dtype          the dtype that is left out of buffers; "void": none is
    verbose_expr          before an expression or statement, the variables and buffers in it
    print_line_numbers    number the lines
    obj_to_underline      nodes to put ^^^ under, wherever they stand
    path_to_underline     places to put ^^^ under, as `get_first_structural_mismatch` gives them
    num_context_lines     with underlines: print so many lines around them only
    *_to_annotate         nodes or places -> comments for their lines
    extra_config          TVM's other way to give options: {"relax.show_all_struct_info": False}

    Text of another int_dtype, float_dtype or buffer_dtype than the usual one need not read back as
    the same IR: these drop what the reader needs to know.
    Never raises because of what the IR holds; a variable that nothing defines prints by its name.
    Raises TIRError for an option of `extra_config` that there is not.
    """
    for key, value in (extra_config or {}).items():
        if key != "relax.show_all_struct_info":
            raise TIRError(f"extra_config: wanted relax.show_all_struct_info, got {key!r}")
        show_all_struct_info = bool(value)
    p = Printer(
        Options(
            show_meta=show_meta,
            name=name or "Module",
            syntax_sugar=syntax_sugar,
            ir_prefix=ir_prefix,
            tir_prefix=tir_prefix,
            relax_prefix=relax_prefix,
            module_alias=module_alias,
            indent_spaces=indent_spaces,
            show_all_struct_info=show_all_struct_info,
            int_dtype=int_dtype,
            float_dtype=float_dtype,
            buffer_dtype=buffer_dtype,
        )
    )
    p.marks = _marks(
        what,
        [(each, None) for each in _several(obj_to_underline)],
        [(each, None) for each in _several(path_to_underline)],
        (obj_to_annotate or {}).items(),
        (path_to_annotate or {}).items(),
    )
    if verbose_expr and isinstance(what, (PrimExpr, Stmt, BufferRegion)):
        p.run(_definitions(p, what))
        p.run([] if isinstance(what, Stmt) else [NL])
    p.run(p.marked(what, _root(p, what, name)))
    raw = "".join(p.out)
    text = raw.lstrip("\n")
    shift = len(text) - len(raw)
    if isinstance(what, (IRModule, PrimFunc, Function)):
        header = f"{_header(p)}\n\n"
        text, shift = header + text, shift + len(header)
    if p.metadata:
        text = f"{text}\n\n{_footer(p)}"
    return decorated(
        text, p.out, shift, p.marks, line_numbers=print_line_numbers, context=num_context_lines
    )


def _several(values: Any) -> Iterable[Any]:
    return values if isinstance(values, (list, tuple)) else () if values is None else (values,)


def _marks(
    root: Any, objects: Any, paths: Any, remarks: Iterable[Any], places: Iterable[Any]
) -> Marks | None:
    marks = Marks()
    for each, note in (*objects, *remarks):
        marks.add_object(each, note)
    for path, note in (*paths, *places):
        marks.add_path(root, path, note)
    return marks if marks.is_wanted else None


def _definitions(p: Printer, what: Any) -> list[Piece]:
    """Lines that make the variables and buffers of an expression."""
    inside: set[Any] = set()
    free: dict[Any, None] = {}
    for n in walk(what):
        if isinstance(n, (Var, Buffer)):
            free[n] = None
        for field in type(n)._defs_:
            if not isinstance(n, Buffer):
                own = getattr(n, field)
                inside.update(own if isinstance(own, tuple) else (own,))
    buffers = [n for n in free if isinstance(n, Buffer) and n not in inside]
    data = {b.data for b in buffers}
    variables = [n for n in free if isinstance(n, Var) and n not in inside and n not in data]
    out = declare_symbols(p, variables)
    for buffer in buffers:
        out += [lambda buffer=buffer: declare_buffer(p, buffer)]
    return out


def _root(p: Printer, what: Any, name: str | None) -> list[Piece]:
    """How a node is printed that stands alone."""
    if isinstance(what, Buffer):
        return [f"{define_buffer(p, what)}: {p.T}.Buffer(", *buffer_arguments(p, what), ")"]
    if isinstance(what, Function):
        p.itself = _name_for_itself(what)
        if p.itself is not None:
            p.names.reserve(identifier(p.itself))
        return function_lines(p, what, name or p.itself or function_name(what))
    if isinstance(what, PrimFunc):
        return prim_func_lines(p, what, name or function_name(what))
    if isinstance(what, Stmt):
        return [(what, 1, FREE)]
    if isinstance(what, (If, SeqExpr)):
        return result_lines(p, what, "")
    if isinstance(what, (Mapping, tuple, list)) and not isinstance(what, Map):
        what = Map({"": what})[""]
    if isinstance(what, tuple):
        return ["(", *(piece for item in what for piece in ((item, 0, FREE), ", "))][:-1] + [")"]
    return [(what, 0, FREE)]


def _name_for_itself(fn: Function) -> str | None:
    """What a function calls itself, if it does: a private one is known by its parameters."""
    symbol = fn.attrs.get("global_symbol")
    params = tuple(v.struct_info for v in fn.params)
    for n in walk(fn.body):
        if isinstance(n, GlobalVar):
            known = getattr(n.struct_info, "params", None)
            if n.name_hint == symbol if symbol is not None else known == params:
                return n.name_hint
    return None


def _header(p: Printer) -> str:
    known = p.options
    rooms = {"ir": known.ir_prefix, "tir": known.tir_prefix, "relax": known.relax_prefix}
    return "\n".join(
        f"# from relaxvm.script import {room} as {prefix}"
        for room, prefix in rooms.items()
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
    metadata = load_json(line)
    if not isinstance(metadata, Map) or not isinstance(metadata.get("relax.expr.Constant"), tuple):
        raise LoadError("the metadata after the text holds no constants")
    return metadata


def show_script(
    what: Any, style: str | None = None, black_format: bool | None = None, **options: Any
) -> None:
    """Print the script text, in colour if pygments is installed and a terminal or a notebook shows
    it.

    style         a pygments style, or "light", "dark", "ansi"
    black_format  accepted as TVM does; the text is laid out by the printer itself
    """
    text = print_script(what, **options)
    colours = importlib.util.find_spec("pygments") is not None
    if notebook.is_notebook():
        page = _coloured(text, style, True) if colours else f"<pre>{html.escape(text)}</pre>"
        notebook.Shown().show(page, text)
        return
    if colours and sys.stdout.isatty():
        text = _coloured(text, style, False)
    print(text)


_STYLES = {"light": "default", "dark": "monokai", "ansi": "default", None: "default"}


def _coloured(text: str, style: str | None, as_html: bool) -> str:
    import pygments
    from pygments.formatters import HtmlFormatter, Terminal256Formatter
    from pygments.lexers import PythonLexer

    style = _STYLES.get(style, style)
    formatter = (
        HtmlFormatter(noclasses=True, style=style) if as_html else Terminal256Formatter(style=style)
    )
    return str(pygments.highlight(text, PythonLexer(), formatter)).rstrip("\n")
