"""`nn.op`: what can be applied to tensors of a method that is being exported.

Each operator binds one variable (its last argument `name` is a hint for it) and gives a `Tensor`,
or a tuple of them. Numbers beside tensors take their dtype.
"""

from .....base import submodules as _submodules
from ..tensor import wrap_nested as wrap_nested
from .call import debug_func as debug_func
from .call import extern as extern
from .call import print_ as print_
from .call import tensor_expr_op as tensor_expr_op
from .call import tensor_ir_inplace_op as tensor_ir_inplace_op
from .call import tensor_ir_op as tensor_ir_op
from .elementwise import *
from .manipulate import *
from .neural import *
from .search import *

__getattr__ = _submodules(__name__)
