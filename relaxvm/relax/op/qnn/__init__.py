"""Operators of quantised tensors: real = (stored - zero_point) * scale. `relax.op.qnn.conv2d`, in
script text `R.qnn.conv2d`.

Their names and arguments are those of Relay's `qnn`. Each is an expression of integer operators
"""

from ....base import submodules as _submodules
from .elementwise import add as add
from .elementwise import concatenate as concatenate
from .elementwise import mul as mul
from .elementwise import requantize as requantize
from .elementwise import softmax as softmax
from .elementwise import subtract as subtract
from .parameters import dequantize as dequantize
from .parameters import quantize as quantize
from .pooling import avg_pool2d as avg_pool2d
from .pooling import mean as mean
from .products import batch_matmul as batch_matmul
from .products import conv1d as conv1d
from .products import conv2d as conv2d
from .products import conv2d_transpose as conv2d_transpose
from .products import conv3d as conv3d
from .products import dense as dense
from .tables import *

__getattr__ = _submodules(__name__)
