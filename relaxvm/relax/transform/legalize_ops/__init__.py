"""LegalizeOps: operators become calls of loop functions.

Enters: modules whose functions call operators. Leaves: the same with the loop functions that stand
for them.
Not done here: how an operator is legalised, which its record says (`relax/op`).
"""

from .common import register_legalize
from .legalize import LegalizeOps, why_not_legal

__all__ = ["LegalizeOps", "register_legalize", "why_not_legal"]
