"""What a notebook shows in place of text: HTML, which may change while it is shown."""

from __future__ import annotations

import html
import sys
import uuid


def is_notebook() -> bool:
    """Whether this process is the kernel of a notebook: IPython with somebody who shows HTML."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


class Shown:
    """A place in a notebook. Use only where `is_notebook()`."""

    def __init__(self) -> None:
        self._id = ""

    def show(self, page: str, text: str) -> None:
        """Show HTML there, in place of what was there; `text` is for those who see no HTML."""
        from IPython.display import display

        begun, self._id = bool(self._id), self._id or uuid.uuid4().hex
        data = {"text/html": page, "text/plain": text}
        display(data, raw=True, display_id=self._id, update=begun)


def table_page(title: str, rows: list[tuple[str, ...]], left: tuple[int, ...] = (0,)) -> str:
    """A table as HTML: heads, then rows; the columns `left` stand at the left."""

    def line(row: tuple[str, ...], kind: str) -> str:
        sides = ("left" if k in left else "right" for k in range(len(row)))
        return "".join(
            f'<{kind} style="text-align:{side}">{html.escape(cell)}</{kind}>'
            for cell, side in zip(row, sides)
        )

    heads, *rest = rows
    body = "".join(f"<tr>{line(row, 'td')}</tr>" for row in rest)
    head = f"<thead><tr>{line(heads, 'th')}</tr></thead>"
    return f"<table><caption>{html.escape(title)}</caption>{head}<tbody>{body}</tbody></table>"
