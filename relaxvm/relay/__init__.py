"""Relay's spelling of the graph language.

Enters: programs written for Relay. Leaves: functions and modules of `relax`, which every pass and
build takes. Not done here: meaning, inference, passes, builds: all that is `relax`.
"""

from ..base import submodules as _submodules
from ..relax import Constant as Constant
from ..relax import Expr as Expr
from ..relax import ExternFunc as ExternFunc
from ..relax import Var as Var
from . import expr as expr
from . import image as image
from . import nn as nn
from . import transform as transform
from .expr import Call as Call
from .expr import Function as Function
from .expr import FuncType as FuncType
from .expr import GlobalVar as GlobalVar
from .expr import If as If
from .expr import Let as Let
from .expr import ScopeBuilder as ScopeBuilder
from .expr import TensorType as TensorType
from .expr import Tuple as Tuple
from .expr import TupleGetItem as TupleGetItem
from .expr import TupleType as TupleType
from .expr import const as const
from .expr import scalar_type as scalar_type
from .expr import var as var
from .spelling import TupleWrapper as TupleWrapper
from .tensor import *

Any = expr.Unknown

__getattr__ = _submodules(__name__)
