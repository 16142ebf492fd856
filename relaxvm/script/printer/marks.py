"""Underlined and annotated parts of a text, line numbers, and lines left out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from ...ir import AccessPath, IRModule, Node

if TYPE_CHECKING:
    from .core import Printer


class _Frame:
    """A node whose text is being printed."""

    __slots__ = ("met", "node", "nth")

    def __init__(self, node: Any, nth: int) -> None:
        self.node, self.nth = node, nth
        # How often each part of it has been printed.
        self.met: dict[int, int] = {}


class _Chain:
    """The nodes that lead to a place, and the text of the nearest to it that was printed.

    steps  by identity of the nodes: which one it is, and which of those in its parent that are the
           same object
    """

    __slots__ = ("level", "note", "span", "steps")

    def __init__(self, note: str | None) -> None:
        self.note = note
        self.steps: dict[int, tuple[int, int]] = {}
        self.level = -1
        self.span: tuple[int, int] | None = None


class Marks:
    """What is looked for while a text is printed, and the spans of the text where it was.

    A span is (first, last, note), two numbers of pieces of the text; without a note it is
    underlined. What has no text of its own at the end of a path counts as what it is a part of.
    """

    def __init__(self) -> None:
        self._spans: list[tuple[int, int, str | None]] = []
        self._chains: list[_Chain] = []
        self._objects: dict[int, list[tuple[Any, str | None]]] = {}
        self._places: dict[int, list[_Chain]] = {}
        self._open: list[_Frame] = []

    @property
    def is_wanted(self) -> bool:
        """Whether anything is looked for."""
        return bool(self._objects or self._places)

    def add_object(self, what: Any, note: str | None = None) -> None:
        """Look for `what`, wherever it stands."""
        self._objects.setdefault(id(what), []).append((what, note))

    def add_path(self, root: Any, path: AccessPath, note: str | None = None) -> None:
        """Look for what stands at `path` from `root` on; a path that leads nowhere is left out."""
        objects = path.objects(root)
        if objects is None:
            return
        # Tuples and maps have no text of their own.
        nodes = [k for k, each in enumerate(objects) if isinstance(each, (Node, IRModule))]
        if nodes:
            steps = [each.step for each in path.to_steps()]
            chain = _Chain(note)
            for k, parent in zip(nodes, [None, *nodes]):
                nth = (
                    0 if parent is None else _earlier(objects[parent], objects[k], steps[parent:k])
                )
                chain.steps[id(objects[k])] = (len(chain.steps), nth)
                self._places.setdefault(id(objects[k]), []).append(chain)
            self._chains.append(chain)

    def spans(self) -> list[tuple[int, int, str | None]]:
        """What has been found."""
        places = [(*each.span, each.note) for each in self._chains if each.span is not None]
        return [*self._spans, *places]

    def around(self, p: Printer, n: Any, pieces: list[Any]) -> list[Any]:
        """`pieces`, which print `n`, with what notes where they begin and end."""
        met = self._open[-1].met if self._open else {}
        self._open.append(_Frame(n, met.get(id(n), 0)))
        met[id(n)] = met.get(id(n), 0) + 1
        notes = [note for what, note in self._objects.get(id(n), ()) if what is n]
        chains = [each for each in self._places.get(id(n), ()) if self._is_at(each.steps)]
        out, first = p.out, len(p.out)

        def close() -> None:
            self._open.pop()
            # Text that is put together apart has no place yet.
            if p.out is not out:
                return
            self._spans.extend((first, len(out), note) for note in notes)
            for chain in chains:
                level, _ = chain.steps[id(n)]
                if level > chain.level:
                    chain.level, chain.span = level, (first, len(out))

        return [*pieces, close]

    def _is_at(self, chain: dict[int, tuple[int, int]]) -> bool:
        """Whether what is being printed stands on the way that the chain goes."""
        above = -1
        for frame in self._open:
            level, nth = chain.get(id(frame.node), (-1, 0))
            if level < 0 or (level == above + 1 and frame.nth != nth):
                return False
            above = level
        return True


def _earlier(parent: Any, child: Any, steps: list[Any]) -> int:
    """How often `child` stands in `parent` before the place that the steps name."""
    count = 0
    for field in getattr(type(parent), "_fields", ()):
        value = getattr(parent, field)
        if field == steps[0]:
            position = steps[1] if len(steps) > 1 and isinstance(steps[1], int) else 0
            return count + sum(each is child for each in value[:position]) if position else count
        for each in value if isinstance(value, tuple) else (value,):
            count += each is child
    return 0


# -- the finished text


def decorated(
    text: str,
    pieces: list[str],
    shift: int,
    marks: Marks | None,
    *,
    line_numbers: bool,
    context: int,
) -> str:
    """`text` with what was noted while its `pieces` were printed, which begin at `shift` in it.

    context  with underlines: so many lines around them, the others are counted; all if negative
    """
    lines = text.split("\n")
    starts = [0, *accumulate(len(line) + 1 for line in lines)]
    under: dict[int, set[int]] = {}
    notes: dict[int, list[str]] = {}
    for begin, end, note in _in_text(marks, pieces, shift):
        covered = [
            (row, range(max(begin - starts[row], _indent(line)), min(end - starts[row], len(line))))
            for row, line in enumerate(lines)
            if starts[row] < end and begin < starts[row + 1]
        ]
        covered = [(row, columns) for row, columns in covered if columns]
        if note is not None and covered:
            notes.setdefault(covered[0][0], []).append(note)
        elif note is None:
            for row, columns in covered:
                under.setdefault(row, set()).update(columns)
    if not (under or notes or line_numbers):
        return text
    width = len(str(len(lines))) if line_numbers else 0
    out = []
    for row, line in enumerate(lines):
        number = f"{row + 1:>{width}} " if line_numbers else ""
        remark = f"  # {'; '.join(notes[row])}" if row in notes else ""
        shown = [f"{number}{line}{remark}".rstrip()]
        if row in under:
            signs = "".join("^" if c in under[row] else " " for c in range(max(under[row]) + 1))
            shown.append(" " * len(number) + signs)
        out.append("\n".join(shown))
    if context < 0 or not under:
        return "\n".join(out)
    return "\n".join(_near(out, under, context))


def _in_text(
    marks: Marks | None, pieces: list[str], shift: int
) -> Iterable[tuple[int, int, str | None]]:
    if marks is not None:
        offsets = [0, *accumulate(map(len, pieces))]
        for first, last, note in marks.spans():
            begin, end = offsets[first] + shift, offsets[last] + shift
            yield begin, end, note


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _near(lines: list[str], under: Mapping[int, Any], context: int) -> list[str]:
    near = {i for row in under for i in range(row - context, row + context + 1)}
    out: list[str] = []
    skipped = 0
    for row, line in enumerate([*lines, ""]):
        is_end = row == len(lines)
        if row not in near and not is_end:
            skipped += 1
            continue
        if skipped:
            out.append(f"(... {skipped} line{'s' * (skipped > 1)} skipped ...)")
            skipped = 0
        if not is_end:
            out.append(line)
    return out
