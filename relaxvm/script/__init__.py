"""The text form of IR: parser and printer of I / T / R.

Enters: Python classes and functions under ``@I.ir_module``, ``@T.prim_func``, ``@R.function``,
script text, or IR to print. Leaves: IR with spans, or text that reads back as the same IR. Mistakes
are ParseErrors that show the line. Not done here: what the IR means (`tir`, `relax`).
"""

import collections.abc
import sys
import types
import typing

from ..base import submodules as _submodules
from . import ir as ir
from . import relax as relax
from . import tir as tir
from .ir import ir_module as ir_module
from .printer import print_script as print_script
from .printer import read_metadata as read_metadata
from .printer import show_script as show_script
from .reader import parse_object as _parse_object
from .reader import parse_text as _parse_text

_SCRIPT = types.SimpleNamespace(ir=ir, tir=tir, relax=relax, ir_module=ir_module)
_SCRIPT.parser = types.SimpleNamespace(ir=ir, tir=tir, relax=relax, ir_module=ir_module)
_PACKAGE = types.SimpleNamespace(script=_SCRIPT, cpu=relax.cpu, device=relax.device)
# What every text sees, and what its import statements can name.
_NAMES: collections.abc.Mapping[str, typing.Any] = {
    "I": ir,
    "T": tir,
    "R": relax,
    "ir": ir,
    "tir": tir,
    "relax": relax,
    "tvm": _PACKAGE,
    "relaxvm": _PACKAGE,
}


def from_source(
    program: typing.Any,
    extra_vars: collections.abc.Mapping[str, typing.Any] | None = None,
    check_well_formed: bool = True,
    *,
    metadata: collections.abc.Mapping[str, typing.Any] | None = None,
    filename: str | None = None,
) -> typing.Any:
    """The module or function that `program` defines.

    program            script text with one class or function in it, or a Python class or function
    extra_vars         names that the text may use besides I, T and R
    check_well_formed  check what was read; decorators of the text may leave it out too
    metadata           the large constants the text refers to; by default those that stand after it
    filename           what errors and spans call the text
    Text may come from anyone: it cannot reach files, modules or private attributes, and what it may
    compute is bounded.
    Raises ParseError, pointing at the first mistake.
    """
    extra = dict(extra_vars or {})
    if not isinstance(program, str):
        return _parse_object(program, extra, sys._getframe(1), check_well_formed)
    extra.setdefault("metadata", read_metadata(program) if metadata is None else metadata)
    return _parse_text(program, _NAMES, extra, filename, check_well_formed)


parse = from_source
__getattr__ = _submodules(__name__, files="ir relax tir")
