"""Where a piece of IR came from: a place in a Python file, a script text, an ONNX node or a torch
line.
"""

from __future__ import annotations

import linecache

_MOST_PARTS = 64


class Span:
    """A source position. Lines and columns count from 1; `name` describes sources that have no
    lines.

    `parts` holds the spans of everything that was fused into one node.
    """

    __slots__ = ("column", "end_column", "end_line", "line", "name", "parts", "source")

    def __init__(
        self,
        source: str = "",
        line: int = 0,
        column: int = 0,
        end_line: int = 0,
        end_column: int = 0,
        name: str = "",
        parts: tuple[Span, ...] = (),
    ) -> None:
        self.source = source
        self.line = line
        self.column = column
        self.end_line = end_line or line
        self.end_column = end_column or column
        self.name = name
        self.parts = parts

    @staticmethod
    def merge(*spans: Span) -> Span:
        """One span for a node made out of several; unknown ones and repeats are dropped, and what
        is more than 64.
        """
        known = [span for span in spans if span is not UNKNOWN]
        if len(known) < 2:
            return known[0] if known else UNKNOWN
        parts: dict[tuple[str, int, int, str], Span] = {}
        for span in known:
            for part in span.parts or (span,):
                parts.setdefault((part.source, part.line, part.column, part.name), part)
        # One that has them all stays the same object.
        for span in known:
            if len(span.parts or (span,)) == len(parts):
                return span
        return Span(parts=tuple(parts.values())[:_MOST_PARTS])

    def source_line(self) -> str | None:
        """The text of the first line, if its file can be read."""
        text = linecache.getline(self.source, self.line) if self.source and self.line else ""
        return text.rstrip("\n") if text else None

    def pointer(self) -> str:
        """The source line with a caret under the position, or an empty string."""
        text = self.source_line()
        if text is None:
            return ""
        width = (
            self.end_column - self.column
            if self.end_line == self.line
            else len(text) - self.column + 1
        )
        return f"    {text}\n    {' ' * (self.column - 1)}{'^' * max(1, width)}"

    def __str__(self) -> str:
        if self.parts:
            return " + ".join(str(part) for part in self.parts)
        place = f"{self.source}:{self.line}:{self.column}" if self.source else ""
        return " ".join(text for text in (place, self.name) if text) or "unknown place"

    def __repr__(self) -> str:
        return f"Span({self})"


UNKNOWN = Span()
