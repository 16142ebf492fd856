"""LegalizeOps: operators become calls of loop functions.

Enters: modules whose functions call operators. Leaves: the same with the loop functions that stand
for them.
Not done here: how an operator is legalised, which its record says (`relax/op`).
"""

from ....base import submodules as _submodules
from .common import register_legalize as register_legalize
from .legalize import LegalizeOps as LegalizeOps
from .legalize import why_not_legal as why_not_legal

__getattr__ = _submodules(__name__)
