"""Operators of the graph language: one record (`Op`) each, in one place.

Enters: expressions. Leaves: checked calls. `Op.get("relax.<name>")` finds a record, and `R.<name>`
in script text is `relax.op.<name>`. A family is a file of this folder, and it is listed here.
"""

from ...base import submodules as _submodules
from ...tir import IndexMap as IndexMap
from . import builtin as builtin
from . import grad as grad
from . import image as image
from . import inspect as inspect
from . import linalg as linalg
from . import memory as memory
from . import nn as nn
from . import qnn as qnn
from . import random as random
from . import sequence as sequence
from . import signal as signal
from . import strings as strings
from . import vision as vision
from . import vm as vm
from .basic import *
from .binary import *
from .call import call_builtin_with_ctx as call_builtin_with_ctx
from .call import call_dps_packed as call_dps_packed
from .call import call_inplace_packed as call_inplace_packed
from .call import call_packed as call_packed
from .call import call_pure_packed as call_pure_packed
from .call import call_tir as call_tir
from .call import call_tir_inplace as call_tir_inplace
from .call import invoke_closure as invoke_closure
from .call import invoke_pure_closure as invoke_pure_closure
from .call import make_closure as make_closure
from .coupling import pairwise_coupling as pairwise_coupling
from .create import *
from .datatype import astype as astype
from .datatype import reinterpret as reinterpret
from .datatype import wrap_param as wrap_param
from .einsum import einsum as einsum
from .fixed_point import fixed_point_multiplier as fixed_point_multiplier
from .fixed_point import fixed_point_rescale as fixed_point_rescale
from .grad import call_tir_with_grad as call_tir_with_grad
from .index import dynamic_strided_slice as dynamic_strided_slice
from .index import gather_elements as gather_elements
from .index import gather_nd as gather_nd
from .index import index_tensor as index_tensor
from .index import strided_slice as strided_slice
from .index import take as take
from .inspect import size as size
from .linalg import dot as dot
from .linalg import linear as linear
from .linalg import matmul as matmul
from .linalg import outer as outer
from .manipulate import broadcast_to as broadcast_to
from .manipulate import collapse_sum_like as collapse_sum_like
from .manipulate import collapse_sum_to as collapse_sum_to
from .manipulate import concat as concat
from .manipulate import expand_dims as expand_dims
from .manipulate import flatten as flatten
from .manipulate import permute_dims as permute_dims
from .manipulate import reshape as reshape
from .manipulate import split as split
from .manipulate import squeeze as squeeze
from .manipulate import stack as stack
from .qdq import dequantize as dequantize
from .qdq import quantize as quantize
from .qdq import requantize as requantize
from .qdq_conv import conv2d_integer as conv2d_integer
from .qdq_conv import qlinear_conv2d as qlinear_conv2d
from .qdq_matmul import matmul_integer as matmul_integer
from .qdq_matmul import matmul_nbits as matmul_nbits
from .qdq_matmul import qlinear_matmul as qlinear_matmul
from .random import multinomial_from_uniform as multinomial_from_uniform
from .rearrange import flip as flip
from .rearrange import layout_transform as layout_transform
from .rearrange import meshgrid as meshgrid
from .rearrange import one_hot as one_hot
from .rearrange import repeat as repeat
from .rearrange import reverse_sequence as reverse_sequence
from .rearrange import roll as roll
from .rearrange import tile as tile
from .record import Missing as Missing
from .record import Op as Op
from .record import Param as Param
from .record import missing as missing
from .record import op as op
from .scan import cumprod as cumprod
from .scan import cumsum as cumsum
from .scatter import index_put as index_put
from .scatter import scatter_elements as scatter_elements
from .scatter import scatter_nd as scatter_nd
from .scatter import slice_scatter as slice_scatter
from .search import argmax as argmax
from .search import argmin as argmin
from .setops import nonzero as nonzero
from .setops import unique as unique
from .sorting import argsort as argsort
from .sorting import bucketize as bucketize
from .sorting import searchsorted as searchsorted
from .sorting import sort as sort
from .sorting import topk as topk
from .statistical import logsumexp as logsumexp
from .statistical import max as max
from .statistical import mean as mean
from .statistical import median as median
from .statistical import min as min
from .statistical import prod as prod
from .statistical import std as std
from .statistical import sum as sum
from .statistical import variance as variance
from .ternary import clip as clip
from .ternary import ewise_fma as ewise_fma
from .ternary import masked_fill as masked_fill
from .ternary import where as where
from .trees import tree_ensemble as tree_ensemble
from .unary import *

__getattr__ = _submodules(
    __name__,
    files="builtin grad image inspect linalg memory nn qnn random sequence signal vision vm",
)
