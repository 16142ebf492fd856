"""What can be proved about scalar expressions: simplification, bounds, equality, comparisons.

Enters: `PrimExpr`s, with the ranges of the variables in them. Leaves: simpler expressions, bounds,
sets, residues, solutions, proofs. `Analyzer` says which integers are meant: wrapping or not.
Not done here: anything about statements or buffers (`tir`); evaluation of expressions
(`tir/interp.py`).
"""

from ..base import submodules
from . import int_set
from .analyzer import Analyzer, Extension, ProofStrength, can_prove, prove_equal, simplify
from .bound import ConstIntBound
from .detect import (
    deduce_bound,
    detect_clip_bound,
    detect_common_subexpr,
    detect_linear_equation,
)
from .int_set import (
    IntervalSet,
    IntSet,
    estimate_region_lower_bound,
    estimate_region_strict_bound,
    estimate_region_upper_bound,
)
from .iter_map import (
    IterMapExpr,
    IterMapper,
    IterMark,
    IterSplitExpr,
    IterSumExpr,
    detect_iter_map,
)
from .iter_rewrite import (
    inverse_affine_iter_map,
    iter_map_simplify,
    normalize_iter_map_to_expr,
    normalize_to_iter_sum,
    subspace_divide,
)
from .modular import ModularSet
from .solve import (
    IntConstraints,
    IntConstraintsTransform,
    solve_linear_equations,
    solve_linear_inequalities,
)

__getattr__ = submodules(__name__)

__all__ = [
    "Analyzer",
    "ConstIntBound",
    "Extension",
    "IntConstraints",
    "IntConstraintsTransform",
    "IntSet",
    "IntervalSet",
    "IterMapExpr",
    "IterMapper",
    "IterMark",
    "IterSplitExpr",
    "IterSumExpr",
    "ModularSet",
    "ProofStrength",
    "can_prove",
    "deduce_bound",
    "detect_clip_bound",
    "detect_common_subexpr",
    "detect_iter_map",
    "detect_linear_equation",
    "estimate_region_lower_bound",
    "estimate_region_strict_bound",
    "estimate_region_upper_bound",
    "int_set",
    "inverse_affine_iter_map",
    "iter_map_simplify",
    "normalize_iter_map_to_expr",
    "normalize_to_iter_sum",
    "prove_equal",
    "simplify",
    "solve_linear_equations",
    "solve_linear_inequalities",
    "subspace_divide",
]
