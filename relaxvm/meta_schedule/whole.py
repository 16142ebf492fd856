"""`Whole`: what tuning did for a model as a whole."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from ..base import record, submodules
from .measure import Comparison


@record(frozen=False)
class Whole:
    """What was tried on the whole model, by turns with what was best until then.

    chosen  in words
    tried   (what, how it compares)
    final   all that was tuned, compared with the default build; None if it was not measured
    """

    chosen: str = "the default build"
    tried: list[tuple[str, Comparison]] = field(default_factory=list)
    final: Comparison | None = None

    def to_plain(self) -> dict[str, Any]:
        """For JSON."""
        tried = [{"what": what, "speedup": c.speedup, "taken": c.holds} for what, c in self.tried]
        final = None if self.final is None else self.final.speedup
        return {"chosen": self.chosen, "tried": tried, "speedup": final}

    def __str__(self) -> str:
        lines = [
            f"  {what}: {compared}; {'taken' if compared.holds else 'not taken'}"
            for what, compared in self.tried
        ]
        lines += [] if self.final is None else [f"  tuned: {self.final}"]
        return "\n".join([f"the whole model: {self.chosen}", *lines])


__getattr__ = submodules(__name__)
