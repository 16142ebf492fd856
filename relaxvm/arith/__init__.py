"""What can be proved about scalar expressions: simplification, bounds, equality, comparisons.

Enters: `PrimExpr`s, with the ranges of the variables in them. Leaves: simpler expressions,
`ConstIntBound`s, proofs.
Not done here: anything about statements or buffers (`tir`); evaluation of expressions
(`tir/interp.py`).
"""

from ..base import submodules
from .analyzer import Analyzer, can_prove, prove_equal, simplify
from .bound import ConstIntBound
from .iter_map import IterMapper, IterMark, IterSplitExpr, IterSumExpr, detect_iter_map

__getattr__ = submodules(__name__)

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "IterMapper",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "can_prove",
    "detect_iter_map",
    "prove_equal",
    "simplify",
]
