"""Statements written one after another: what the parser of script text, `script.ir_builder` and
`tir.ir_builder` share.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from ..ir import const
from .stmt import Evaluate, IfThenElse, SeqStmt, Stmt


class Suite:
    """Statements being collected. `open` starts a statement whose body is all that follows."""

    def __init__(self) -> None:
        self.items: list[Stmt] = []
        self._outer: list[tuple[list[Stmt], Callable[[Stmt], Stmt]]] = []

    def add(self, stmt: Stmt) -> None:
        self.items.append(stmt)

    def open(self, wrap: Callable[[Stmt], Stmt]) -> None:
        self._outer.append((self.items, wrap))
        self.items = []

    @property
    def is_empty(self) -> bool:
        return not self.items and not self._outer

    def close(self) -> Stmt:
        """All of it as one statement."""
        body = _as_stmt(self.items)
        while self._outer:
            before, wrap = self._outer.pop()
            before.append(wrap(body))
            body = _as_stmt(before)
        self.items = []
        return body


def _as_stmt(items: list[Stmt]) -> Stmt:
    if not items:
        return Evaluate(const(0))
    return items[0] if len(items) == 1 else SeqStmt(tuple(items))


class StmtWriter:
    """Suites inside one another; the last one is being written."""

    suites: list[Suite]

    @property
    def suite(self) -> Suite:
        """The innermost suite."""
        return self.suites[-1]

    def emit(self, stmt: Stmt) -> None:
        """Add a statement."""
        self.suite.add(stmt)

    @contextlib.contextmanager
    def under(self, wrap: Callable[[Stmt], Stmt]) -> Iterator[None]:
        """What is written inside becomes one statement, and what `wrap` makes of it is added.

        If the inside raises, nothing is.
        """
        depth = len(self.suites)
        self.suites.append(Suite())
        try:
            yield
        except BaseException:
            del self.suites[depth:]
            raise
        self.emit(wrap(self.suites.pop().close()))

    def last_if(self) -> IfThenElse | None:
        """The statement written last, if it is an `if` without `else`."""
        last = self.suite.items[-1] if self.suite.items else None
        return last if isinstance(last, IfThenElse) and last.else_case is None else None

    def otherwise(self) -> contextlib.AbstractContextManager[None]:
        """What is written inside is the `else` of `last_if`, which there must be."""
        before = self.suite.items.pop()
        assert isinstance(before, IfThenElse)
        return self.under(lambda body: before.replace(else_case=body))
