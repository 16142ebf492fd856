"""`python -m relaxvm.relax.frontend.onnx.table`: the operators of ONNX and how each is imported.
``--markdown FILE`` writes the table of docs/onnx.md anew.
"""

from __future__ import annotations

import argparse
import pathlib
from collections.abc import Sequence
from typing import Any

from ....base import NamedTuple
from .graph import all_nodes, has_body
from .model import Model, canonical_domain, imported_opsets, library
from .registry import find, schema_of, translations

BEGIN, END = "<!-- operators -->", "<!-- end of operators -->"


class Operator(NamedTuple):
    """An operator of ONNX.

    versions    of its domain, at which its definition changed
    how         "translated", "function" (its own definition is imported) or "missing"
    attributes  that its translation heeds, those of the newest version
    """

    domain: str
    name: str
    versions: tuple[int, ...]
    how: str
    attributes: tuple[str, ...]


class Used(NamedTuple):
    """An operator of a model: how often, and how it is imported (as in `Operator`; "local
    function": the model defines it).
    """

    domain: str
    name: str
    version: int
    how: str
    nodes: int


def operators() -> list[Operator]:
    """Every operator that the installed onnx knows, and those that only this importer knows."""
    versions: dict[tuple[str, str], set[int]] = {}
    for schema in library().defs.get_all_schemas_with_history():
        versions.setdefault((canonical_domain(schema.domain), schema.name), set()).add(
            schema.since_version
        )
    for entry in translations():
        versions.setdefault((entry.domain, entry.name), set()).add(entry.since)
    return [
        Operator(
            domain,
            name,
            tuple(sorted(since)),
            _how(domain, name, max(since)),
            tuple(sorted(getattr(find(domain, name, max(since)), "attributes", ()))),
        )
        for (domain, name), since in sorted(versions.items())
    ]


def operators_of(source: Any) -> list[Used]:
    """The operators of a model, its functions' included, by domain and name."""
    model = source if isinstance(source, Model) else Model(source)
    functions = {(canonical_domain(f.domain), f.name): f for f in model.proto.functions}
    counts: dict[tuple[str, str, int], int] = {}
    bodies = [(model.proto.graph.node, model.opsets())]
    bodies += [(f.node, imported_opsets(f) or model.opsets()) for f in model.proto.functions]
    for protos, opsets in bodies:
        for proto in all_nodes(protos):
            domain = canonical_domain(proto.domain)
            key = domain, proto.op_type, opsets.get(domain, 0)
            counts[key] = counts.get(key, 0) + 1
    return [
        Used(d, n, v, "local function" if (d, n) in functions else _how(d, n, v), count)
        for (d, n, v), count in sorted(counts.items())
    ]


def _how(domain: str, name: str, version: int) -> str:
    if find(domain, name, version) is not None:
        return "translated"
    schema = schema_of(domain, name, version) if version else None
    return "function" if schema is not None and has_body(schema) else "missing"


def markdown() -> str:
    """The table for readers, by domain."""
    rows = operators()
    lines = [f"As of onnx {library().__version__}.", ""]
    for domain in sorted({r.domain for r in rows}):
        of_domain = [r for r in rows if r.domain == domain]
        lines += [
            f"### `{domain or 'ai.onnx'}`",
            "",
            "| operator | versions | how |",
            "|---|---|---|",
            *(f"| {r.name} | {', '.join(map(str, r.versions))} | {r.how} |" for r in of_domain),
            "",
        ]
    return "\n".join(lines)


def written_into(text: str) -> str:
    """`text` with the table between its marks as it is now."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n\n{markdown()}\n{END}{tail}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", metavar="FILE", help="write the table between its marks")
    arguments = parser.parse_args(argv)
    if arguments.markdown is None:
        print(markdown())
        return 0
    path = pathlib.Path(arguments.markdown)
    path.write_text(written_into(path.read_text()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
