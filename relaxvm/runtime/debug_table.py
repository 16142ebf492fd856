"""Where the instructions of a program come from: nodes of a model, lines of source files.

The table lies beside the bytecode, in the file as an entry that may be absent. Only errors,
listings and profiles read it. Most instructions have the source of their neighbours, and a kernel
that was fused of several calls has several places, so that an instruction names a row of places,
by one byte as long as there are few.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np

from ..base import UNKNOWN, Span, VerifyError, record
from .plain import Plain

_SHOWN_PLACES = 8
_SHOWN_TEXT = 200


@record
class DebugTable(Plain):
    """Where the instructions of a program come from.

    files      names of source files; the first is "", of places that have none
    places     file, line, column (from 1; 0 is unknown) and name of each place
    sources    places that an instruction comes from; the first row is of unknown ones
    functions  function, and for each instruction the number of its row: unsigned, little-endian
    """

    files: tuple[str, ...]
    places: tuple[tuple[int, int, int, str], ...]
    sources: tuple[tuple[int, ...], ...]
    functions: tuple[tuple[str, bytes], ...]

    def __post_init__(self) -> None:
        for file, line, column, _ in self.places:
            if not 0 <= file < len(self.files) or line < 0 or column < 0:
                raise VerifyError("debug table: a place is in no file")
        if not self.sources or self.sources[0]:
            raise VerifyError("debug table: the first source is the unknown one")
        if any(not 0 <= place < len(self.places) for row in self.sources for place in row):
            raise VerifyError("debug table: a source has no such place")
        if len(self._rows) != len(self.functions):
            raise VerifyError("debug table: a function appears twice")

    def verify(self, counts: Mapping[str, int]) -> None:
        """Raise VerifyError unless this is about functions with so many instructions."""
        for name, rows in self._rows.items():
            if len(rows) != counts.get(name):
                raise VerifyError(f"debug table: it does not fit the function {name[:80]!r}")
            if rows.max(initial=0) >= len(self.sources):
                raise VerifyError(f"debug table: {name[:80]!r} names a source that there is not")

    def source_of(self, function: str, pc: int) -> Span:
        """Where an instruction comes from; `UNKNOWN` if nothing says it."""
        rows = self._rows.get(function, ())
        row = rows[pc] if pc < len(rows) else 0
        return self._spans[row] if row else UNKNOWN

    @cached_property
    def _rows(self) -> dict[str, np.ndarray]:
        dtype = _row_dtype(len(self.sources))
        if any(len(rows) % dtype.itemsize for _, rows in self.functions):
            raise VerifyError("debug table: the sources of a function are cut off")
        return {name: np.frombuffer(rows, dtype) for name, rows in self.functions}

    @cached_property
    def _spans(self) -> list[Span]:
        places = [
            Span(self.files[file], line, column, name=name)
            for file, line, column, name in self.places
        ]
        return [
            places[row[0]] if len(row) == 1 else Span(parts=tuple(places[i] for i in row))
            for row in self.sources
        ]


def debug_table(functions: Mapping[str, Sequence[Span]]) -> DebugTable | None:
    """The table of functions with these spans, one per instruction; None if none is known."""
    files: dict[str, int] = {"": 0}
    places: dict[tuple[int, int, int, str], int] = {}
    sources: dict[tuple[int, ...], int] = {(): 0}
    rows: dict[int, int] = {}  # id of a span, which `functions` keeps alive -> its row

    def row_of(span: Span) -> int:
        row = rows.get(id(span))
        if row is None:
            keys = [
                (files.setdefault(p.source, len(files)), p.line, p.column, p.name)
                for p in span.parts or (span,)
                if p.source or p.name
            ]
            numbers = dict.fromkeys(places.setdefault(key, len(places)) for key in keys)
            row = rows[id(span)] = sources.setdefault(tuple(numbers), len(sources))
        return row

    numbered = {name: list(map(row_of, spans)) for name, spans in functions.items()}
    if len(sources) == 1:
        return None
    dtype = _row_dtype(len(sources))
    packed = [(name, np.array(each, dtype).tobytes()) for name, each in numbered.items()]
    return DebugTable(tuple(files), tuple(places), tuple(sources), tuple(packed))


def _row_dtype(count: int) -> np.dtype:
    """The narrowest that numbers `count` rows."""
    return np.min_scalar_type(max(count - 1, 0)).newbyteorder("<")


def source_text(span: Span) -> str:
    """The places of `span` for a line of an error or a listing; empty if unknown."""
    if span is UNKNOWN:
        return ""
    places = [" ".join(str(part).split())[:_SHOWN_TEXT] for part in span.parts or (span,)]
    more = len(places) - _SHOWN_PLACES
    return " + ".join(places[:_SHOWN_PLACES]) + (f" + {more} more" if more > 0 else "")
