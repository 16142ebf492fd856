"""What can be proved about scalar expressions: simplification, bounds, equality, comparisons.

Enters: `PrimExpr`s, with the ranges of the variables in them. Leaves: simpler expressions, bounds,
sets, residues, solutions, proofs. `Analyzer` says which integers are meant: wrapping or not.
Not done here: anything about statements or buffers (`tir`); evaluation of expressions
(`tir/interp.py`).
"""

from ..base import submodules as _submodules
from . import int_set as int_set
from .analyzer import Analyzer as Analyzer
from .analyzer import Extension as Extension
from .analyzer import ProofStrength as ProofStrength
from .analyzer import can_prove as can_prove
from .analyzer import prove_equal as prove_equal
from .analyzer import simplify as simplify
from .bound import ConstIntBound as ConstIntBound
from .detect import deduce_bound as deduce_bound
from .detect import detect_clip_bound as detect_clip_bound
from .detect import detect_common_subexpr as detect_common_subexpr
from .detect import detect_linear_equation as detect_linear_equation
from .int_set import IntervalSet as IntervalSet
from .int_set import IntSet as IntSet
from .int_set import estimate_region_lower_bound as estimate_region_lower_bound
from .int_set import estimate_region_strict_bound as estimate_region_strict_bound
from .int_set import estimate_region_upper_bound as estimate_region_upper_bound
from .iter_map import IterMapExpr as IterMapExpr
from .iter_map import IterMapper as IterMapper
from .iter_map import IterMark as IterMark
from .iter_map import IterSplitExpr as IterSplitExpr
from .iter_map import IterSumExpr as IterSumExpr
from .iter_map import detect_iter_map as detect_iter_map
from .iter_rewrite import inverse_affine_iter_map as inverse_affine_iter_map
from .iter_rewrite import iter_map_simplify as iter_map_simplify
from .iter_rewrite import normalize_iter_map_to_expr as normalize_iter_map_to_expr
from .iter_rewrite import normalize_to_iter_sum as normalize_to_iter_sum
from .iter_rewrite import subspace_divide as subspace_divide
from .modular import ModularSet as ModularSet
from .number import Number as Number
from .number import number_of as number_of
from .solve import IntConstraints as IntConstraints
from .solve import IntConstraintsTransform as IntConstraintsTransform
from .solve import solve_linear_equations as solve_linear_equations
from .solve import solve_linear_inequalities as solve_linear_inequalities
from .tree import conjuncts as conjuncts

__getattr__ = _submodules(__name__, files="int_set")
