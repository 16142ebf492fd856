"""Reads script text: Python classes and functions, or strings, to IR.

Enters: source text and the Python names around it. Leaves: `IRModule`, `PrimFunc`,
`relax.Function`, with spans, or a ParseError that points at the mistake. Not done here: the names
that users write (`script.ir`, `script.tir`, `script.relax`), printing (`script.printer`).
"""

from .entry import decorate_class, decorate_function, decorate_macro, parse_object, parse_text
from .guards import VALUES
from .proxies import BufferFunction, DTypeFunction, HandleFunction, make_buffer
from .struct_info import MAKERS, Maker

__all__ = [
    "MAKERS",
    "VALUES",
    "BufferFunction",
    "DTypeFunction",
    "HandleFunction",
    "Maker",
    "decorate_class",
    "decorate_function",
    "decorate_macro",
    "make_buffer",
    "parse_object",
    "parse_text",
]
