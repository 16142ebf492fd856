"""What can be proved about scalar expressions: simplification, bounds, equality, comparisons.

Enters: `PrimExpr`s, with the ranges of the variables in them. Leaves: simpler expressions, bounds,
sets, residues, solutions, proofs. `Analyzer` says which integers are meant: wrapping or not.
Not done here: anything about statements or buffers (`tir`); evaluation of expressions
(`tir/interp.py`).
"""

import typing

from ..base import submodules as _submodules
from .affine import Number as Number
from .affine import Numbers as Numbers
from .affine import Span as Span
from .affine import as_number as as_number
from .affine import linear_in as linear_in
from .affine import number_of as number_of
from .affine import stride as stride
from .analyzer import Analyzer as Analyzer
from .analyzer import Extension as Extension
from .analyzer import ProofStrength as ProofStrength
from .analyzer import can_prove as can_prove
from .analyzer import prove_equal as prove_equal
from .analyzer import simplify as simplify
from .bound import ConstIntBound as ConstIntBound
from .interval import Domains as Domains
from .interval import Ends as Ends
from .interval import Interval as Interval
from .interval import interval_of as interval_of
from .interval import range_of as range_of
from .iter_map import IterMapExpr as IterMapExpr
from .iter_map import IterMapper as IterMapper
from .iter_map import IterMark as IterMark
from .iter_map import IterSplitExpr as IterSplitExpr
from .iter_map import IterSumExpr as IterSumExpr
from .iter_map import detect_iter_map as detect_iter_map
from .modular import ModularSet as ModularSet
from .tree import conjuncts as conjuncts
from .tree import scalar_post_order as scalar_post_order
from .tree import summands as summands
from .tree import value_of as value_of

if typing.TYPE_CHECKING:
    from . import int_set as int_set
    from .detect import deduce_bound as deduce_bound
    from .detect import detect_clip_bound as detect_clip_bound
    from .detect import detect_common_subexpr as detect_common_subexpr
    from .detect import detect_linear_equation as detect_linear_equation
    from .int_set import IntervalSet as IntervalSet
    from .int_set import IntSet as IntSet
    from .int_set import estimate_region_lower_bound as estimate_region_lower_bound
    from .int_set import estimate_region_strict_bound as estimate_region_strict_bound
    from .int_set import estimate_region_upper_bound as estimate_region_upper_bound
    from .iter_rewrite import inverse_affine_iter_map as inverse_affine_iter_map
    from .iter_rewrite import iter_map_simplify as iter_map_simplify
    from .iter_rewrite import normalize_iter_map_to_expr as normalize_iter_map_to_expr
    from .iter_rewrite import normalize_to_iter_sum as normalize_to_iter_sum
    from .iter_rewrite import subspace_divide as subspace_divide
    from .solve import IntConstraints as IntConstraints
    from .solve import IntConstraintsTransform as IntConstraintsTransform
    from .solve import solve_linear_equations as solve_linear_equations
    from .solve import solve_linear_inequalities as solve_linear_inequalities

# What no build needs, loaded when it is first asked for: the imports above again.
_LATER = {
    "detect": "deduce_bound detect_clip_bound detect_common_subexpr detect_linear_equation",
    "int_set": """
        IntervalSet IntSet estimate_region_lower_bound estimate_region_strict_bound
        estimate_region_upper_bound
    """,
    "iter_rewrite": """
        inverse_affine_iter_map iter_map_simplify normalize_iter_map_to_expr
        normalize_to_iter_sum subspace_divide
    """,
    "solve": """
        IntConstraints IntConstraintsTransform solve_linear_equations
        solve_linear_inequalities
    """,
}
__getattr__ = _submodules(__name__, _LATER, files="int_set")
