"""`tvm.ffi`, later `tvm_ffi`: functions by name and the values that they pass, under those names.

There is no boundary to another language here: an Array is a tuple, a String a text.
"""

from .base import DataType as dtype
from .base import submodules
from .ir import AccessPath, Array, Map
from .runtime import (
    Device,
    Module,
    PackedFunc,
    String,
    Tensor,
    convert,
    device,
    from_dlpack,
    get_global_func,
    list_global_func_names,
    load_module,
    register_func,
    register_global_func,
    remove_global_func,
)
from .runtime import ShapeTuple as Shape

__all__ = [
    "AccessPath",
    "Array",
    "Device",
    "Function",
    "Map",
    "Module",
    "PackedFunc",
    "Shape",
    "String",
    "Tensor",
    "convert",
    "device",
    "dtype",
    "from_dlpack",
    "get_global_func",
    "list_global_func_names",
    "load_module",
    "register_func",
    "register_global_func",
    "remove_global_func",
]

Function = PackedFunc

__getattr__ = submodules(__name__)

# A package to the import system: its parts (`tvm_ffi.registry`) are aliases.
__path__: list[str] = []
