"""Tensor expressions: arrays described by formulas, turned into loop functions.

Enters: ``compute(shape, lambda i, j: ...)`` over `placeholder`s, statements (`extern`) and formulas
of row after row (`scan`). Leaves: `PrimFunc`s, by `create_prim_func`.
Not done here: schedules (`tir/schedule`), graph calls (`relax`: `BlockBuilder.emit_te`).
"""

from ..base import submodules as _submodules
from ..tir import abs as abs
from ..tir import acos as acos
from ..tir import acosh as acosh
from ..tir import all as all
from ..tir import any as any
from ..tir import asin as asin
from ..tir import asinh as asinh
from ..tir import atan as atan
from ..tir import atanh as atanh
from ..tir import ceil as ceil
from ..tir import cos as cos
from ..tir import cosh as cosh
from ..tir import div as div
from ..tir import erf as erf
from ..tir import exp as exp
from ..tir import floor as floor
from ..tir import floordiv as floordiv
from ..tir import floormod as floormod
from ..tir import fmod as fmod
from ..tir import if_then_else as if_then_else
from ..tir import indexdiv as indexdiv
from ..tir import indexmod as indexmod
from ..tir import infinity as infinity
from ..tir import isfinite as isfinite
from ..tir import isinf as isinf
from ..tir import isnan as isnan
from ..tir import log as log
from ..tir import log2 as log2
from ..tir import log10 as log10
from ..tir import max_value as max_value
from ..tir import min_value as min_value
from ..tir import nearbyint as nearbyint
from ..tir import power as power
from ..tir import round as round
from ..tir import rsqrt as rsqrt
from ..tir import sigmoid as sigmoid
from ..tir import sin as sin
from ..tir import sinh as sinh
from ..tir import sqrt as sqrt
from ..tir import tan as tan
from ..tir import tanh as tanh
from ..tir import trunc as trunc
from ..tir import truncdiv as truncdiv
from ..tir import truncmod as truncmod
from .attention import attention as attention
from .create_prim_func import create_prim_func as create_prim_func
from .extern import extern as extern
from .extern import extern_primfunc as extern_primfunc
from .operation import compute as compute
from .operation import const as const
from .operation import placeholder as placeholder
from .operation import reduce_axis as reduce_axis
from .operation import size_var as size_var
from .operation import tag_scope as tag_scope
from .operation import thread_axis as thread_axis
from .operation import var as var
from .reducer import CommReducer as CommReducer
from .reducer import Reduce as Reduce
from .reducer import comm_reducer as comm_reducer
from .reducer import max as max
from .reducer import min as min
from .reducer import prod as prod
from .reducer import sum as sum
from .scan import scan as scan
from .tensor import ComputeOp as ComputeOp
from .tensor import ExternOp as ExternOp
from .tensor import Operation as Operation
from .tensor import PlaceholderOp as PlaceholderOp
from .tensor import ProducerLoad as ProducerLoad
from .tensor import ScanOp as ScanOp
from .tensor import Tensor as Tensor
from .tensor import TensorSlice as TensorSlice
from .tensor import broadcast_value as broadcast_value

__getattr__ = _submodules(__name__, {"relaxvm.tir.index_map": "AXIS_SEPARATOR"})
