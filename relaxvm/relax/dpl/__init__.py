"""The pattern language: what calls of a graph function look like, where they stand, and what is to
stand there instead.

    x = wildcard()
    pattern = is_op("relax.add")(x, x)
    rewrite_call(pattern, lambda call, found: R.multiply(found[x], R.const(2.0)), fn)

Enters: graph functions and blocks. Leaves: matches, and rewritten functions. Not done here: groups
of bindings made functions of their own (`transform.FuseOpsByPattern`). `docs/patterns.md` is the
tour.
"""

from ...base import submodules as _submodules
from .context import PatternContext as PatternContext
from .match import FAIL as FAIL
from .match import Match as Match
from .match import enter as enter
from .match import enter_all as enter_all
from .pattern import AndPattern as AndPattern
from .pattern import AttrPattern as AttrPattern
from .pattern import CallPattern as CallPattern
from .pattern import ConstantPattern as ConstantPattern
from .pattern import DataflowVarPattern as DataflowVarPattern
from .pattern import DataTypePattern as DataTypePattern
from .pattern import DFConstraint as DFConstraint
from .pattern import DFPattern as DFPattern
from .pattern import ExprPattern as ExprPattern
from .pattern import ExternFuncPattern as ExternFuncPattern
from .pattern import FunctionPattern as FunctionPattern
from .pattern import GlobalVarPattern as GlobalVarPattern
from .pattern import NotPattern as NotPattern
from .pattern import OrPattern as OrPattern
from .pattern import PatternSeq as PatternSeq
from .pattern import PrimArrPattern as PrimArrPattern
from .pattern import SameShapeConstraint as SameShapeConstraint
from .pattern import ShapePattern as ShapePattern
from .pattern import StructInfoPattern as StructInfoPattern
from .pattern import TupleGetItemPattern as TupleGetItemPattern
from .pattern import TuplePattern as TuplePattern
from .pattern import UnorderedTuplePattern as UnorderedTuplePattern
from .pattern import VarPattern as VarPattern
from .pattern import WildcardPattern as WildcardPattern
from .pattern import has_attr as has_attr
from .pattern import has_dtype as has_dtype
from .pattern import is_call_dps_packed as is_call_dps_packed
from .pattern import is_call_packed as is_call_packed
from .pattern import is_call_tir as is_call_tir
from .pattern import is_const as is_const
from .pattern import is_dfv as is_dfv
from .pattern import is_expr as is_expr
from .pattern import is_gv as is_gv
from .pattern import is_op as is_op
from .pattern import is_shape as is_shape
from .pattern import is_tuple as is_tuple
from .pattern import is_tuple_get_item as is_tuple_get_item
from .pattern import is_var as is_var
from .pattern import make_fused_bias_activation_pattern as make_fused_bias_activation_pattern
from .pattern import reject as reject
from .pattern import wildcard as wildcard
from .rewrite import ExprPatternRewriter as ExprPatternRewriter
from .rewrite import OrRewriter as OrRewriter
from .rewrite import PatternMatchingRewriter as PatternMatchingRewriter
from .rewrite import TupleRewriter as TupleRewriter
from .rewrite import rewrite_bindings as rewrite_bindings
from .rewrite import rewrite_call as rewrite_call

__getattr__ = _submodules(__name__)
