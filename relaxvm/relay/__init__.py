"""Relay's spelling of the graph language.

Enters: programs written for Relay. Leaves: functions and modules of `relax`, which every pass and
build takes. Not done here: meaning, inference, passes, builds: all that is `relax`.
"""

from ..base import submodules as _submodules
from ..relax import Constant as Constant
from ..relax import Expr as Expr
from ..relax import ExternFunc as ExternFunc
from . import annotation as annotation
from . import expr as expr
from . import image as image
from . import nn as nn
from . import op as op
from . import qnn as qnn
from . import transform as transform
from . import ty as ty
from . import vision as vision
from .expr import Call as Call
from .expr import Function as Function
from .expr import GlobalVar as GlobalVar
from .expr import If as If
from .expr import Let as Let
from .expr import ScopeBuilder as ScopeBuilder
from .expr import Tuple as Tuple
from .expr import TupleGetItem as TupleGetItem
from .expr import Var as Var
from .expr import bind as bind
from .expr import const as const
from .expr import var as var
from .parser import fromtext as fromtext
from .parser import parse as parse
from .parser import parse_expr as parse_expr
from .spelling import TupleWrapper as TupleWrapper
from .tensor import *
from .ty import Any as Any
from .ty import FuncType as FuncType
from .ty import TensorType as TensorType
from .ty import TupleType as TupleType
from .ty import scalar_type as scalar_type

_LATER = {
    "build_module": "build optimize",
    "executors": "create_executor",
    "relaxvm.runtime": "load_param_dict save_param_dict",
    "expr_functor": "ExprFunctor ExprMutator ExprVisitor MixedModeMutator MixedModeVisitor",
}
__getattr__ = _submodules(__name__, _LATER)
