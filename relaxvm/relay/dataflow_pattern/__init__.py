"""`relay.dataflow_pattern`: patterns of the graph language, of operators by Relay's names.

is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard()) + wildcard())
"""

from ...base import submodules as _submodules
from ...relax.dpl import AttrPattern as AttrPattern
from ...relax.dpl import CallPattern as CallPattern
from ...relax.dpl import ConstantPattern as ConstantPattern
from ...relax.dpl import DataTypePattern as DataTypePattern
from ...relax.dpl import DFPattern as DFPattern
from ...relax.dpl import ExprPattern as ExprPattern
from ...relax.dpl import FunctionPattern as FunctionPattern
from ...relax.dpl import OrPattern as _OrPattern
from ...relax.dpl import ShapePattern as ShapePattern
from ...relax.dpl import StructInfoPattern as _StructInfoPattern
from ...relax.dpl import TupleGetItemPattern as TupleGetItemPattern
from ...relax.dpl import TuplePattern as TuplePattern
from ...relax.dpl import VarPattern as VarPattern
from ...relax.dpl import WildcardPattern as WildcardPattern
from ...relax.dpl import has_attr as has_attr
from ...relax.dpl import has_dtype as has_dtype
from ...relax.dpl import is_const as _is_const
from ...relax.dpl import is_expr as is_expr
from ...relax.dpl import is_tuple as is_tuple
from ...relax.dpl import is_tuple_get_item as is_tuple_get_item
from ...relax.dpl import is_var as is_var
from ...relax.dpl import wildcard as wildcard
from ..operator_patterns import SpelledPattern as SpelledPattern
from ..operator_patterns import any_call as any_call
from ..operator_patterns import is_op as is_op
from .expressions import DominatorPattern as DominatorPattern
from .expressions import IfPattern as IfPattern
from .expressions import LetPattern as LetPattern
from .expressions import dominates as dominates
from .expressions import has_shape as has_shape
from .expressions import has_type as has_type
from .expressions import is_if as is_if
from .expressions import is_let as is_let
from .rewrite import DFPatternCallback as DFPatternCallback
from .rewrite import partition as partition
from .rewrite import rewrite as rewrite

AltPattern, TypePattern, is_constant = _OrPattern, _StructInfoPattern, _is_const
__getattr__ = _submodules(__name__)
