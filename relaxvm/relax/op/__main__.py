"""`python -m relaxvm.relax.op`: the operators and which rules each has. ``--markdown [FILE]``
writes docs/ops.md.
"""

from __future__ import annotations

import argparse
import inspect
import pathlib
import sys
from collections.abc import Sequence
from typing import Any

from ..transform.layout_rules import rule_of
from . import Missing, Op

RULES = ("numpy", "lower", "grad", "layout", "decompose")
_HEAD = """# Operators

Every operator of the graph language: `relax.op.<name>`, `R.<name>` in script text. This file is
made by `python -m relaxvm.relax.op --markdown`; a test holds it up to date.

- **numpy**: what it means, on numpy arrays; tests and constant folding use it.
- **lower**: how `LegalizeOps` turns it into a loop function.
- **grad**: its gradient. **layout**: how it follows a change of layout.
- **decompose**: how `DecomposeOpsForInference` and `DecomposeOpsForTraining` write it in simpler
  operators.

`yes` there is a rule; `-` there is none, for the reason given below the tables; blank: does not
apply.
"""


def records() -> list[Op]:
    """Every operator of the graph language, by name."""
    ops = [Op.get(name) for name in Op.list_op_names() if name.startswith("relax.")]
    # Tests make operators of their own.
    return [r for r in ops if isinstance(r, Op) and not r.name.startswith("relax.test.")]


def rule_for(record: Op, name: str) -> Any:
    """The rule that an operator has: as declared, or, of layouts, as follows from the rest."""
    return rule_of(record) if name == "layout" else getattr(record, name)


def _cell(rule: Any) -> str:
    return "" if rule is None else "-" if isinstance(rule, Missing) else "yes"


def as_text() -> str:
    """One line per operator: its purity, and `yes`, `-` (missing, for a reason) or a blank for each
    rule.
    """
    head = f"{'operator':40}{'pure':6}" + "".join(f"{rule:10}" for rule in RULES)
    lines = [head.rstrip()]
    for record in records():
        cells = "".join(f"{_cell(rule_for(record, rule)):10}" for rule in RULES)
        lines.append(f"{record.short:40}{'yes' if record.pure else 'no':6}{cells}".rstrip())
    return "\n".join(lines)


def _signature(record: Op) -> str:
    parts = []
    for p in inspect.signature(record.function).parameters.values():
        name = f"*{p.name}" if p.kind is p.VAR_POSITIONAL else p.name
        if p.name not in ("span", "sinfo_args"):
            parts.append(name if p.default is p.empty else f"{name}={_default(p.default)}")
    return f"{record.short}({', '.join(parts)})"


def _default(value: Any) -> str:
    return repr(str(value)) if isinstance(value, str) else repr(value)


def _meaning(record: Op) -> str:
    text = (record.rule.__doc__ or "").strip().split("\n\n")[0]
    return " ".join(text.split()).replace("|", "\\|")


def as_markdown() -> str:
    """The text of docs/ops.md."""
    lines = [_HEAD]
    families: dict[str, list[Op]] = {}
    for record in records():
        families.setdefault(record.short.rpartition(".")[0], []).append(record)
    for family, members in sorted(families.items()):
        lines.append(f"## {family or 'relax'}\n")
        lines.append(f"| operator | meaning | {' | '.join(RULES)} |")
        lines.append(f"| --- | --- |{' --- |' * len(RULES)}")
        for r in members:
            cells = " | ".join(_cell(rule_for(r, rule)) for rule in RULES)
            effect = "" if r.pure else " *(has effects)*"
            lines.append(f"| `{_signature(r)}` | {_meaning(r)}{effect} | {cells} |")
        lines.append("")
    lines.append("## Why a rule is missing\n")
    reasons: dict[tuple[str, str], list[str]] = {}
    for r in records():
        for rule in RULES:
            stated = rule_for(r, rule)
            if isinstance(stated, Missing):
                reasons.setdefault((rule, stated.why), []).append(f"`{r.short}`")
    for (rule, why), names in sorted(reasons.items()):
        lines.append(f"- **{rule}**: {why}: {', '.join(names)}.")
    return "\n".join(lines) + "\n"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table, or write it as Markdown."""
    parser = argparse.ArgumentParser(prog="python -m relaxvm.relax.op", description=__doc__)
    parser.add_argument(
        "--markdown",
        nargs="?",
        const="docs/ops.md",
        metavar="FILE",
        help="write Markdown there (default docs/ops.md)",
    )
    options = parser.parse_args(argv)
    if options.markdown is None:
        sys.stdout.write(as_text() + "\n")
    else:
        page = pathlib.Path(options.markdown)
        before = page.read_text(encoding="utf-8") if page.exists() else ""
        # Figures that bench/accuracy.py has measured stay.
        measured = "".join(before.partition("\n## Accuracy\n")[1:])
        page.write_text(as_markdown() + measured, encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
