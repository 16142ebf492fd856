"""Reads script text: Python classes and functions, or strings, to IR.

Enters: source text and the Python names around it. Leaves: `IRModule`, `PrimFunc`,
`relax.Function`, with spans, or a ParseError that points at the mistake. Not done here: the names
that users write (`script.ir`, `script.tir`, `script.relax`), printing (`script.printer`).
"""

from ...base import submodules as _submodules
from .entry import decorate_class as decorate_class
from .entry import decorate_function as decorate_function
from .entry import decorate_macro as decorate_macro
from .entry import parse_object as parse_object
from .entry import parse_text as parse_text
from .guards import VALUES as VALUES
from .proxies import BufferArguments as BufferArguments
from .proxies import BufferFunction as BufferFunction
from .proxies import DTypeFunction as DTypeFunction
from .proxies import HandleFunction as HandleFunction
from .proxies import buffer_arguments as buffer_arguments
from .proxies import of_buffer as of_buffer
from .struct_info import MAKERS as MAKERS
from .struct_info import Maker as Maker

__getattr__ = _submodules(__name__)
