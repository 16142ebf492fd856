"""The printing engine: an explicit stack of pieces, expanded in text order.

A piece is a string, a layout mark (`NL`, `IN`, `OUT`), a node with two arguments for its handler,
or a function called when its turn comes (to open and close scopes, or to give more pieces). A
handler turns one node into pieces, so nothing recurses, and names are given in text order.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ...base import NameSupply
from .marks import Marks
from .names import Names, identifier


class _Mark:
    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        self.text = text


NL = _Mark("a new line")
IN = _Mark("indent the lines that follow")
OUT = _Mark("undo one IN")

# How an integer constant may be written where it stands (second argument of scalar handlers).
FREE = 0  # loop language: int32 (or Options.int_dtype) is a plain literal
DIM = 1  # a dimension of the graph language: int64 is a plain literal
ARG = 2  # inside a call in a dimension: no plain literal
ATTR = 3  # a value of an attribute map: no plain literal here, but below as in FREE

Piece = Any
Handler = Callable[..., list[Piece]]
_HANDLERS: dict[type, Handler] = {}


def prints(*classes: type) -> Callable[[Handler], Handler]:
    """Register the handler of node classes: (printer, node, first, second) -> pieces."""

    def mark(handler: Handler) -> Handler:
        for cls in classes:
            _HANDLERS[cls] = handler
        return handler

    return mark


def handler_of(cls: type) -> Handler | None:
    """The handler of a class or of the nearest of its bases."""
    for base in cls.__mro__:
        handler = _HANDLERS.get(base)
        if handler is not None:
            if base is not cls:
                _HANDLERS[cls] = handler
            return handler
    return None


class Options:
    """What the caller of `print_script` chose."""

    __slots__ = (
        "buffer_dtype",
        "float_dtype",
        "indent_spaces",
        "int_dtype",
        "ir_prefix",
        "module_alias",
        "name",
        "relax_prefix",
        "show_all_struct_info",
        "show_meta",
        "syntax_sugar",
        "tir_prefix",
    )

    def __init__(
        self,
        show_meta: bool = False,
        name: str = "Module",
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
    ) -> None:
        self.show_meta = show_meta
        self.name = name
        self.syntax_sugar = syntax_sugar
        self.ir_prefix = ir_prefix
        self.tir_prefix = tir_prefix
        self.relax_prefix = relax_prefix
        self.module_alias = module_alias
        self.indent_spaces = indent_spaces
        self.show_all_struct_info = show_all_struct_info
        self.int_dtype = int_dtype
        self.float_dtype = float_dtype
        self.buffer_dtype = buffer_dtype


class Printer:
    """The state of one printing: the text so far, the names, what the text refers to."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.out: list[str] = []
        self.level = 0
        self.names = Names(
            (
                options.ir_prefix,
                options.tir_prefix,
                options.relax_prefix,
                options.module_alias,
                options.name,
            )
        )
        self.used: set[str] = set()
        self.metadata: list[Any] = []
        self.metadata_index: dict[int, int] = {}
        # Extents of the loops around the place, for T.axis.remap: loop variable -> (min, extent).
        self.loops: dict[int, tuple[Any, Any]] = {}
        # Buffers used but declared nowhere, by the identity of their data variable.
        self.undeclared: dict[int, list[Any]] = {}
        self.keep: list[Any] = []
        # What functions of the module are called in the text.
        self.functions: dict[str, str] = {}
        # The function that is printed alone.
        self.itself: str | None = None
        # What calls of the module's loop functions give.
        self.return_dtypes: dict[str, str] = {}
        # Symbols that have a line of their own, so that plain text may refer to them.
        self.declared: set[int] = set()
        self.vdevices: tuple[Any, ...] = ()
        # What is underlined or annotated, if anything is.
        self.marks: Marks | None = None

    def is_declared(self, symbol: Any) -> bool:
        """Whether a scalar variable may be named in plain text here."""
        return id(symbol) in self.declared

    def module_functions(self, names: Iterable[str]) -> None:
        """Choose what each function of a module is called: its name, if that can be written."""
        texts = NameSupply(joint="_")
        for name in names:
            self.functions[name] = texts.fresh(identifier(name))

    def function_text(self, name: str) -> str:
        """What the function `name` of the module is called in the text."""
        return self.functions.get(name) or identifier(name)

    @property
    def I(self) -> str:  # noqa: E743
        """The prefix of module-level names."""
        self.used.add("ir")
        return self.options.ir_prefix

    @property
    def T(self) -> str:
        """The prefix of the loop language."""
        self.used.add("tir")
        return self.options.tir_prefix

    @property
    def R(self) -> str:
        """The prefix of the graph language."""
        self.used.add("relax")
        return self.options.relax_prefix

    def run(self, pieces: Iterable[Piece]) -> None:
        """Expand `pieces` onto the text."""
        out = self.out
        stack = list(pieces)
        stack.reverse()
        handlers = _HANDLERS
        while stack:
            piece = stack.pop()
            kind = type(piece)
            if kind is str:
                out.append(piece)
            elif kind is tuple:
                n, first, second = piece
                handler = handlers.get(type(n)) or handler_of(type(n))
                expansion = [_unknown(n)] if handler is None else handler(self, n, first, second)
                if self.marks is not None:
                    expansion = self.marks.around(self, n, expansion)
                expansion.reverse()
                stack.extend(expansion)
            elif kind is _Mark:
                if piece is NL:
                    out.append("\n" + " " * (self.options.indent_spaces * self.level))
                elif piece is IN:
                    self.level += 1
                else:
                    self.level -= 1
            else:
                expansion = piece()
                if expansion:
                    expansion.reverse()
                    stack.extend(expansion)

    def text(self, pieces: Iterable[Piece]) -> str:
        """The text of `pieces`, apart from the text so far. Only for parts of bounded depth."""
        saved, self.out = self.out, []
        try:
            self.run(pieces)
            return "".join(self.out)
        finally:
            self.out = saved

    def marked(self, n: Any, pieces: list[Piece]) -> list[Piece]:
        """`pieces`, which are how `n` is printed where no handler of it is asked."""
        return pieces if self.marks is None else self.marks.around(self, n, pieces)

    def suite(self, pieces: list[Piece]) -> list[Piece]:
        """`pieces` indented, in a scope of names of their own."""
        return [IN, self.names.push, *pieces, self.names.pop, OUT]


def _unknown(n: Any) -> str:
    # A node of a room the text form does not know, or no node at all: show it, never fail.
    return repr(n)


def comma(groups: Iterable[list[Piece]]) -> list[Piece]:
    """The groups of pieces with commas between them."""
    out: list[Piece] = []
    for group in groups:
        if out:
            out.append(", ")
        out.extend(group)
    return out


def parens(groups: list[list[Piece]]) -> list[Piece]:
    """A Python tuple of the groups."""
    return ["(", *comma(groups), ",)" if len(groups) == 1 else ")"]
