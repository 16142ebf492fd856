"""The text form of IR: parser and printer of I / T / R.

Enters: Python classes and functions under ``@I.ir_module``, ``@T.prim_func``, ``@R.function``,
script text, or IR to print. Leaves: IR with spans, or text that reads back as the same IR. Mistakes
are ParseErrors that show the line. Not done here: what the IR means (`tir`, `relax`).
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from ..base import submodules
from . import ir, relax, tir
from .ir import ir_module
from .printer import print_script, read_metadata, show_script
from .reader import parse_object, parse_text

__all__ = [
    "from_source",
    "ir",
    "ir_module",
    "parse",
    "print_script",
    "read_metadata",
    "relax",
    "show_script",
    "tir",
]

_SCRIPT = SimpleNamespace(ir=ir, tir=tir, relax=relax, ir_module=ir_module)
_SCRIPT.parser = SimpleNamespace(ir=ir, tir=tir, relax=relax, ir_module=ir_module)
_PACKAGE = SimpleNamespace(script=_SCRIPT, cpu=relax.cpu, device=relax.device)
# What every text sees, and what its import statements can name.
_NAMES: Mapping[str, Any] = {
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
    program: Any,
    extra_vars: Mapping[str, Any] | None = None,
    check_well_formed: bool = True,
    *,
    metadata: Mapping[str, Any] | None = None,
    filename: str | None = None,
) -> Any:
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
        return parse_object(program, extra, sys._getframe(1), check_well_formed)
    extra.setdefault("metadata", read_metadata(program) if metadata is None else metadata)
    return parse_text(program, _NAMES, extra, filename, check_well_formed)


parse = from_source
__getattr__ = submodules(__name__)
