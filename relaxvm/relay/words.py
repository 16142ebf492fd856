"""The words of Relay's text form."""

from __future__ import annotations

import bisect
import enum
import re

from ..base import DiagnosticError, NamedTuple, ParseError


class Kind(enum.Enum):
    """What a word is: the groups of `_TOKENS`."""

    SPACE = "space"
    VERSION = "version"
    METADATA = "metadata"
    GRAPH = "graph"
    LOCAL = "local"
    GLOBAL = "global"
    FIELD = "field"
    NUMBER = "number"
    WORD = "word"
    STRING = "string"
    SIGN = "sign"
    END = "end"


class Token(NamedTuple):
    """A word, and where it begins."""

    kind: Kind
    text: str
    start: int


_TOKENS = re.compile(
    r"""
    (?P<space>    \s+ | //[^\n]* | /\*.*?\*/ )
  | (?P<version>  \#\[version\s*=\s*"[^"\n]*"\s*\] )
  | (?P<metadata> \#\[metadata\] )
  | (?P<graph>    %\d+ )
  | (?P<local>    %[A-Za-z_]\w*(?:[./]\w+|:\d+)* )
  | (?P<global>   @[A-Za-z_][\w.]* )
  | (?P<field>    \.\d+ )
  | (?P<number>   \d+(?:\.\d+)?(?:[eE][+-]?\d+)?(?:bf16|[fiu]\d*)?(?![\w.]) )
  | (?P<word>     [A-Za-z_]\w*(?:\.[A-Za-z_]\w*)* )
  | (?P<string>   "(?:[^"\\\n]|\\.)*" )
  | (?P<sign>     -> | == | != | <= | >= | [][(){}<>,;:=+*/?-] )
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)
_LONGEST_SHOWN = 400


class Text:
    """The words of a text, and where they stand.

    meta  where the metadata section begins, and where its JSON does; None: there is none
    Raises ParseError where no word begins.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name = text, name
        self.breaks = [m.start() for m in re.finditer("\n", text)]
        self.meta: tuple[int, int] | None = None
        self.tokens = self._split()

    def _split(self) -> list[Token]:
        place, tokens = 0, []
        while place < len(self.text):
            m = _TOKENS.match(self.text, place)
            if m is None:
                raise self.error(place, f"no word begins with {self.text[place]!r}")
            kind = Kind(m.lastgroup)
            if kind is Kind.METADATA:
                self.meta = place, m.end()
                break
            if kind not in (Kind.SPACE, Kind.VERSION):
                tokens.append(Token(kind, m[0], place))
            place = m.end()
        tokens.append(Token(Kind.END, "", place))
        return tokens

    def place(self, start: int) -> tuple[int, int]:
        """Line and column, from 1."""
        line = bisect.bisect_left(self.breaks, start)
        return line + 1, start - (self.breaks[line - 1] + 1 if line else 0) + 1

    def error(self, start: int, message: str, width: int = 1) -> ParseError:
        """An error at a place, with its line if that is no long one."""
        error = DiagnosticError(message)
        line, column = self.place(start)
        error.filename, error.lineno, error.offset = self.name, line, column
        error.end_lineno, error.end_offset = line, column + width
        lines = [-1, *self.breaks, len(self.text)]
        if column < _LONGEST_SHOWN:
            error.text = self.text[lines[line - 1] + 1 : lines[line]][:_LONGEST_SHOWN]
        return error
