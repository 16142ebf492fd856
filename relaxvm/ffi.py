"""`tvm.ffi`, later `tvm_ffi`: functions by name and the values that they pass, under those names.

There is no boundary to another language here: an Array is a tuple, a String a text.
"""

from .base import DataType as _DataType
from .base import submodules as _submodules
from .ir import AccessPath as AccessPath
from .ir import Array as Array
from .ir import Map as Map
from .runtime import Device as Device
from .runtime import Module as Module
from .runtime import PackedFunc as PackedFunc
from .runtime import ShapeTuple as _ShapeTuple
from .runtime import String as String
from .runtime import Tensor as Tensor
from .runtime import convert as convert
from .runtime import device as device
from .runtime import from_dlpack as from_dlpack
from .runtime import get_global_func as get_global_func
from .runtime import list_global_func_names as list_global_func_names
from .runtime import load_module as load_module
from .runtime import register_func as register_func
from .runtime import register_global_func as register_global_func
from .runtime import remove_global_func as remove_global_func

Function = PackedFunc
Shape = _ShapeTuple
dtype = _DataType

__getattr__ = _submodules(__name__)

# A package to the import system: its parts (`tvm_ffi.registry`) are aliases.
__path__: list[str] = []
