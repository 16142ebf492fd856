"""`python -m relaxvm.relax.op`: the operators and which rules each has."""

from __future__ import annotations

from . import Missing, Op

_RULES = ("numpy", "lower", "grad", "layout")


def table() -> str:
    """One line per operator: its purity, and `yes`, `-` (missing, for a reason) or a blank for each rule."""
    head = f"{'operator':32}{'pure':8}" + "".join(f"{rule:8}" for rule in _RULES)
    lines = [head.rstrip()]
    for name in Op.list_op_names():
        record = Op.get(name)
        if isinstance(record, Op):
            cells = "".join(f"{_cell(getattr(record, rule)):8}" for rule in _RULES)
            lines.append(f"{record.short:32}{'yes' if record.pure else 'no':8}{cells}".rstrip())
    return "\n".join(lines)


def _cell(rule: object) -> str:
    return "" if rule is None else "-" if isinstance(rule, Missing) else "yes"


if __name__ == "__main__":
    print(table())
