"""`relay.dataflow_pattern`: patterns of the graph language, of operators by Relay's names.

is_op("nn.relu")(is_op("nn.dense")(wildcard(), wildcard()) + wildcard())
"""

from ...base import submodules as _submodules
from ...relax.dpl import CallPattern as CallPattern
from ...relax.dpl import DFPattern as DFPattern
from ...relax.dpl import has_attr as has_attr
from ...relax.dpl import has_dtype as has_dtype
from ...relax.dpl import is_const as _is_const
from ...relax.dpl import is_expr as is_expr
from ...relax.dpl import is_tuple as is_tuple
from ...relax.dpl import is_tuple_get_item as is_tuple_get_item
from ...relax.dpl import is_var as is_var
from ...relax.dpl import wildcard as wildcard
from .operators import SpelledPattern as SpelledPattern
from .operators import any_call as any_call
from .operators import is_op as is_op
from .rewrite import DFPatternCallback as DFPatternCallback
from .rewrite import partition as partition
from .rewrite import rewrite as rewrite

is_constant = _is_const
__getattr__ = _submodules(__name__)
