"""Known identities of integer arithmetic: `identities.txt`, expanded by families.

A line is ``lhs -> rhs if conditions ; CONSTANT=values``, after marks that make more lines of it:

    dual:   also with min and max exchanged; DUAL(a, b) is a in the one and b in the other
    comm:   also with the operands of each +, *, min, max, both, either exchanged, in all ways
    trunc:  also with tdiv and tmod for // and %, where all variables are at least 0

The text is read twice: as expressions, for the simplifier, and over numpy arrays, which says what
is right: nothing in the table is taken on trust.
"""

from __future__ import annotations

import ast
import itertools
from pathlib import Path
from typing import NamedTuple

TABLE = Path(__file__).with_suffix(".txt").read_text()


class Identity(NamedTuple):
    section: str
    lhs: str
    rhs: str
    conditions: tuple[str, ...]

    def __str__(self) -> str:
        tail = f"  if {', '.join(self.conditions)}" if self.conditions else ""
        return f"{self.lhs}  ->  {self.rhs}{tail}"


DUAL = {"min": "max", "max": "min"}
COMMUTES = {"min", "max", "both", "either"}


class _Rename(ast.NodeTransformer):
    """Calls under other names, and // and % as calls."""

    def __init__(self, names: dict[str, str], trunc: bool = False) -> None:
        self.names, self.trunc = names, trunc

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if isinstance(node.func, ast.Name):
            node.func.id = self.names.get(node.func.id, node.func.id)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        name = {ast.FloorDiv: "tdiv", ast.Mod: "tmod"}.get(type(node.op)) if self.trunc else None
        if name is None:
            return node
        return ast.Call(ast.Name(name), [node.left, node.right], [])


def _renamed(text: str, names: dict[str, str], trunc: bool = False) -> str:
    return ast.unparse(_Rename(names, trunc).visit(ast.parse(text, mode="eval")))


def _pairs(tree: ast.AST) -> list[tuple[ast.AST, str, str]]:
    """The places where two operands may be exchanged, with the names of the two fields."""
    found = []
    for n in ast.walk(tree):
        if isinstance(n, ast.BinOp) and isinstance(n.op, (ast.Add, ast.Mult)):
            if ast.dump(n.left) != ast.dump(n.right):
                found.append(n)
        elif isinstance(n, ast.Call) and isinstance(n.func, ast.Name) and n.func.id in COMMUTES:
            found.append(n)
    return found[:3]


def _commuted(text: str) -> list[str]:
    texts = []
    count = len(_pairs(ast.parse(text, mode="eval")))
    for flips in itertools.product((False, True), repeat=count):
        tree = ast.parse(text, mode="eval")
        for place, flip in zip(_pairs(tree), flips):
            if flip and isinstance(place, ast.Call):
                place.args.reverse()
            elif flip:
                place.left, place.right = place.right, place.left
        texts.append(ast.unparse(tree))
    return texts


def _with_constants(line: str, given: str) -> list[str]:
    """The line for each of the values in ``K,L=1,2 3,4`` or ``K=1,2``."""
    if not given:
        return [line]
    names, _, rest = given.partition("=")
    keys = names.strip().split(",")
    rows = rest.split()
    values = [r.split(",") for r in rows] if len(keys) > 1 else [[v] for v in rest.split(",")]
    lines = []
    for row in values:
        table = {k: f"({v})" if v[0] == "-" else v for k, v in zip(keys, map(str.strip, row))}
        lines.append("".join(table.get(t, t) for t in _tokens(line)))
    return lines


def _tokens(line: str) -> list[str]:
    out, word = [], ""
    for c in line:
        if c.isalnum() or c == "_":
            word += c
            continue
        if word:
            out.append(word)
            word = ""
        out.append(c)
    return [*out, word] if word else out


def _choose(text: str, least: bool) -> str:
    """DUAL(a, b) is a in the line with min and b in the one with max."""
    tree = ast.parse(text, mode="eval")

    class Pick(ast.NodeTransformer):
        def visit_Call(self, node: ast.Call) -> ast.AST:
            self.generic_visit(node)
            if isinstance(node.func, ast.Name) and node.func.id == "DUAL":
                return node.args[0 if least else 1]
            return node

    return ast.unparse(Pick().visit(tree))


def expand() -> list[Identity]:
    """Every line of the table, with what its marks make of it; each once."""
    found: dict[Identity, None] = {}
    section = ""
    for raw in TABLE.strip().splitlines():
        if raw.startswith("#"):
            section = raw[1:].strip()
        elif raw:
            for each in _expand_line(section, raw):
                found.setdefault(each)
    return list(found)


def _expand_line(section: str, raw: str) -> list[Identity]:
    marks = set()
    while (mark := raw.partition(":")[0]) in ("dual", "comm", "trunc"):
        marks.add(mark)
        raw = raw.partition(":")[2].strip()
    body, _, constants = raw.partition(";")
    out = []
    for line in _with_constants(body, constants.strip()):
        text, _, condition = line.partition(" if ")
        lhs, _, rhs = (part.strip() for part in text.partition("->"))
        conditions = tuple(c.strip() for c in condition.split(",") if c.strip())
        for flipped in (False, True) if "dual" in marks else (False,):
            left, right = lhs, rhs
            if flipped:
                left, right = _renamed(left, DUAL), _renamed(right, DUAL)
            right = _choose(right, not flipped)
            for trunc in (False, True) if "trunc" in marks else (False,):
                names = sorted({n.id for n in ast.walk(ast.parse(left)) if isinstance(n, ast.Name)})
                known = tuple(f"{v} >= 0" for v in names if v in "xyz") if trunc else ()
                forms = [_renamed(t, {}, trunc) for t in (left, right)]
                lefts = _commuted(forms[0]) if "comm" in marks else [forms[0]]
                out += [Identity(section, t, forms[1], (*known, *conditions)) for t in lefts]
    return out
