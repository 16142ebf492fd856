"""What every room needs: scalar types, errors, source spans and configuration.

Enters: nothing but numpy. Leaves: `DataType`, the error classes, `Span`, `config`.
Not done here: anything about IR or about running programs.
"""

from . import config as config
from .components import callees_first as callees_first
from .components import components as components
from .components import reachable as reachable
from .cpu import CpuModel as CpuModel
from .dtype import FLOAT8_TYPES as FLOAT8_TYPES
from .dtype import DataType as DataType
from .dtype import DataTypeCode as DataTypeCode
from .dtype import (
    DTypeLike as DTypeLike,
)
from .dtype import bfloat16_to_float32 as bfloat16_to_float32
from .dtype import bits_to_floats as bits_to_floats
from .dtype import dtype as dtype
from .dtype import float32_to_bfloat16 as float32_to_bfloat16
from .dtype import floats_to_bits as floats_to_bits
from .dtype import promote as promote
from .dtype import to_numpy_dtype as to_numpy_dtype
from .errors import *
from .lazy import Deferred as Deferred
from .lazy import submodules as submodules
from .names import NameSupply as NameSupply
from .span import UNKNOWN as UNKNOWN
from .span import Span as Span

__getattr__ = submodules(__name__, files="config")
