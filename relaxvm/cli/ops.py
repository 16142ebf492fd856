"""`relaxvm ops`: which operators of ONNX are imported."""

from __future__ import annotations

import argparse
import collections
import os
from typing import TYPE_CHECKING, Any

from ..base import Deferred, LoadError
from ..runtime import nearest_names
from .console import Console
from .models import path_of

if TYPE_CHECKING:
    from ..relax.frontend.onnx import table
else:
    table = Deferred("relaxvm.relax.frontend.onnx.table")

HELP = "list the operators of ONNX that are imported, or those of a model"
EXAMPLES = """
    relaxvm ops                   all
    relaxvm ops Conv              one: its versions and attributes
    relaxvm ops model.onnx        those of a model; exit code 3 if some cannot be imported
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of this command."""
    parser.add_argument("what", nargs="?", help="an operator or a model")


def run(arguments: argparse.Namespace, console: Console) -> int:
    """Show the table, a row of it, or a model's operators."""
    path = path_of(arguments.what or "")
    if os.path.exists(path) or path.endswith(".onnx"):
        return _of_model(path, console)
    rows = table.operators()
    if arguments.what:
        chosen = [r for r in rows if r.name.lower() == arguments.what.lower()]
        if not chosen:
            near = nearest_names(arguments.what, sorted({r.name for r in rows}))
            raise LoadError(f"no operator {arguments.what!r}{near}; nor is there such a file")
        rows = chosen
    heads = ("operator", "domain", "versions", "how", *(("attributes",) if arguments.what else ()))
    cells: list[Any] = []
    for r in rows:
        cells.append((r.name, r.domain or "ai.onnx", ", ".join(map(str, r.versions)), r.how))
        if arguments.what:
            cells[-1] = (*cells[-1], ", ".join(r.attributes) or "none")
    console.table(heads, cells, left=5)
    counts = collections.Counter(r.how for r in rows)
    if not arguments.what:
        console.text(", ".join(f"{n} {how}" for how, n in counts.items()))
    console.result([r._asdict() for r in rows])
    return 0


def _of_model(path: str, console: Console) -> int:
    rows = table.operators_of(path)
    console.table(
        ("operator", "domain", "version", "how", "nodes"),
        [(r.name, r.domain or "ai.onnx", r.version, r.how, r.nodes) for r in rows],
        left=4,
    )
    console.result([r._asdict() for r in rows])
    missing = [r.name for r in rows if r.how == "missing"]
    if missing:
        console.warn(f"cannot be imported: {', '.join(missing)}")
    return 3 if missing else 0
