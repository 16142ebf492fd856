"""What every room needs: scalar types, errors, source spans, what passes tell, configuration, and
the builder of LLVM IR, which is loaded when it is asked for.

Enters: nothing but numpy. Leaves: `DataType`, the error classes, `Span`, `config`.
Not done here: anything about IR or about running programs.
"""

import typing

from . import config as config
from .collector import collecting_seldom as collecting_seldom
from .components import callees_first as callees_first
from .components import components as components
from .components import reachable as reachable
from .dtype import FLOAT8_TYPES as FLOAT8_TYPES
from .dtype import SMALL_FLOATS as SMALL_FLOATS
from .dtype import DataType as DataType
from .dtype import DataTypeCode as DataTypeCode
from .dtype import (
    DTypeLike as DTypeLike,
)
from .dtype import bfloat16_to_float32 as bfloat16_to_float32
from .dtype import bits_to_floats as bits_to_floats
from .dtype import bits_to_values as bits_to_values
from .dtype import dtype as dtype
from .dtype import dtype_of_code as dtype_of_code
from .dtype import float32_to_bfloat16 as float32_to_bfloat16
from .dtype import floats_to_bits as floats_to_bits
from .dtype import promote as promote
from .dtype import to_numpy_dtype as to_numpy_dtype
from .dtype import values_to_bits as values_to_bits
from .errors import *
from .hashing import blake2b as blake2b
from .hashing import digest_of as digest_of
from .lazy import Deferred as Deferred
from .lazy import submodules as submodules
from .lazy import warn_older as warn_older
from .names import NameSupply as NameSupply
from .names import did_you_mean as did_you_mean
from .record import NamedTuple as NamedTuple
from .record import made_of_tuples as made_of_tuples
from .record import record as record
from .span import UNKNOWN as UNKNOWN
from .span import Span as Span
from .steps import Steps as Steps
from .steps import run_steps as run_steps

if typing.TYPE_CHECKING:
    from .cpu import CpuModel as CpuModel
    from .cpu import Rates as Rates
    from .report import Decision as Decision
    from .report import Report as Report
    from .report import collected as collected
    from .report import decided as decided
    from .report import declined as declined
    from .report import in_function as in_function
    from .report import in_pass as in_pass
    from .report import tell as tell
    from .report import telling as telling
    from .tables import table as table

# What running a program does not need: the imports above again.
_LATER = {
    "cpu": "CpuModel Rates",
    "report": "Decision Report collected decided declined in_function in_pass tell telling",
    "tables": "table",
}
__getattr__ = submodules(__name__, _LATER, "config llvm notebook")
