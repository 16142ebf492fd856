"""Well-formedness of what was parsed, reported as mistakes in the text."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from typing import Any

from ...base import ParseError, VerifyError
from ...ir import BaseFunc, IRModule
from ...relax import Function
from ...relax.analysis import check_well_formed
from ...tir import PrimFunc
from ...tir.analysis import verify_well_formed
from .source import Source

# How the verifiers end their messages: the place, then the source line.
_PLACE = re.compile(r"\n  at (?P<file>[^\n]*):(?P<line>\d+):(?P<column>\d+)(?=\n|$)")


def check_function(source: Source, node: ast.AST, function: BaseFunc) -> None:
    """Raise ParseError, pointing at the statement that breaks a rule, if the function is not well
    formed.
    """
    try:
        if isinstance(function, PrimFunc):
            verify_well_formed(function)
        elif isinstance(function, Function):
            check_well_formed(function)
    except VerifyError as error:
        raise _placed(source, node, error) from error


def check_module(
    source: Source, node: ast.ClassDef, module: IRModule, definitions: Mapping[str, Any]
) -> None:
    """Raise ParseError, pointing at the statement that breaks a rule, if the module is not well
    formed.

    A function whose decorator says check_well_formed=False is not looked at.
    """
    skipped = {
        name
        for name, (_, decorated) in definitions.items()
        if not decorated.options.get("check_well_formed", True)
    }
    try:
        if not skipped:
            verify_well_formed(module)
            check_well_formed(module)
            return
        for gv, function in module.items():
            if gv.name_hint in definitions and gv.name_hint not in skipped:
                check_function(source, definitions[gv.name_hint][0], function)
    except VerifyError as error:
        raise _placed(source, node, error) from error


def _placed(source: Source, node: ast.AST, error: VerifyError) -> ParseError:
    message = str(error)
    located = source.error(node, f"not well formed: {message}")
    places = list(_PLACE.finditer(message))
    place = places[-1] if places else None
    if place is not None and place["file"] == source.filename:
        # The line is shown by the error itself.
        located.msg = f"not well formed: {message[: place.start()]}"
        located.lineno, located.offset = int(place["line"]), int(place["column"])
        located.end_lineno = located.end_offset = None
        located.text = (
            source.lines[located.lineno - 1] if located.lineno <= len(source.lines) else None
        )
    return located
