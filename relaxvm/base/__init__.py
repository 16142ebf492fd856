"""What every room needs: scalar types, errors, source spans and configuration.

Enters: nothing but numpy. Leaves: `DataType`, the error classes, `Span`, `config`.
Not done here: anything about IR or about running programs.
"""

from . import config
from .cpu import CpuModel
from .dtype import (
    FLOAT8_TYPES,
    DataType,
    DataTypeCode,
    bfloat16_to_float32,
    bits_to_floats,
    dtype,
    float32_to_bfloat16,
    floats_to_bits,
    promote,
    to_numpy_dtype,
)
from .dtype import (
    DTypeLike as DTypeLike,
)
from .errors import (
    BuilderError,
    CodegenError,
    DiagnosticError,
    DTypeError,
    FrontendError,
    InternalError,
    LimitError,
    LinkError,
    LoadError,
    OpNotImplemented,
    ParseError,
    PassError,
    RelaxvmError,
    ScheduleError,
    StructInfoError,
    TIRError,
    TVMError,
    VerifyError,
    VMError,
    VMTypeError,
    VMValueError,
    add_note,
)
from .lazy import Deferred, submodules
from .span import UNKNOWN, Span

__all__ = [
    "BuilderError",
    "FLOAT8_TYPES",
    "bits_to_floats",
    "floats_to_bits",
    "CodegenError",
    "CpuModel",
    "DTypeError",
    "DataType",
    "DataTypeCode",
    "Deferred",
    "DiagnosticError",
    "FrontendError",
    "InternalError",
    "LimitError",
    "LinkError",
    "LoadError",
    "OpNotImplemented",
    "ParseError",
    "PassError",
    "RelaxvmError",
    "ScheduleError",
    "Span",
    "StructInfoError",
    "TIRError",
    "TVMError",
    "UNKNOWN",
    "VMError",
    "VMTypeError",
    "VMValueError",
    "VerifyError",
    "add_note",
    "bfloat16_to_float32",
    "config",
    "dtype",
    "float32_to_bfloat16",
    "promote",
    "submodules",
    "to_numpy_dtype",
]
