"""Running compiled programs: arrays, registered functions, executables and the virtual machine.

Enters: a file (or an Executable from the compiler) and the functions it may call.
Leaves: results, as NDArrays and plain values; errors that say function, parameter, wanted and got.
Not done here: compiling. Nothing but `base`, numpy and msgpack is imported; llvmlite only when
kernels are linked.
"""

from typing import TYPE_CHECKING

from ..base import DataType, DataTypeCode, submodules
from . import bytecode, dims, native, sinfo, trust, vm
from . import library_vision as library_vision
from .arguments import convert
from .builtin import TABLE, Builtin, Storage, VMAssertionError, VMClosure
from .constants import DimProgram
from .device import Device, cpu, device, enabled
from .executable import Executable, load, load_executable, load_module, requirements
from .heap import MakeCode, MatchCode, ShapeHeap
from .kernel import Failure, KernelInfo, KernelParam, KernelSection, NativeCode
from .kv_cache import KVCache
from .library import LIBRARY, library
from .limits import Limits
from .module import Module
from .native import KernelFunction, LinkedKernels, set_call_path
from .ndarray import (
    NDArray,
    ShapeTuple,
    array,
    as_ndarray,
    empty,
    from_dlpack,
    from_numpy,
    numpy_storage_dtype,
    tensor,
)
from .program import FunctionInfo, Program, Provenance
from .registry import (
    PackedFunc,
    get_global_func,
    list_global_func_names,
    register_func,
    register_global_func,
    remove_global_func,
)
from .sinfo import (
    FuncInfo,
    Info,
    ObjectInfo,
    PrimInfo,
    ShapeInfo,
    TensorInfo,
    TupleInfo,
    info_from_plain,
    info_to_plain,
)
from .vm import VirtualMachine, VMInstrumentReturnKind, VMModule

if TYPE_CHECKING:
    from .exec_builder import ExecBuilder, Label
    from .memory_plan import FunctionPlan, MemoryPlan, StoragePlan
    from .params import (
        load_param_dict,
        load_param_dict_from_file,
        save_param_dict,
        save_param_dict_to_file,
    )
    from .profile import ProfileReport, ProfileRow
    from .timing import BenchmarkResult, time_evaluator

# What running a program does not need, loaded when it is first asked for: the imports above again.
_LATER = {
    "exec_builder": "ExecBuilder Label",
    "memory_plan": "FunctionPlan MemoryPlan StoragePlan",
    "params": """
        load_param_dict load_param_dict_from_file save_param_dict save_param_dict_to_file
    """,
    "profile": "ProfileReport ProfileRow",
    "timing": "BenchmarkResult time_evaluator",
}
__getattr__ = submodules(__name__, _LATER)

String = str
"""TVM's name for a text."""
Tensor = NDArray
"""TVM's newer name for an array."""

__all__ = [
    # arrays and devices
    "DataType",
    "DataTypeCode",
    "Device",
    "NDArray",
    "ShapeTuple",
    "String",
    "Tensor",
    "array",
    "as_ndarray",
    "convert",
    "cpu",
    "device",
    "empty",
    "enabled",
    "from_dlpack",
    "from_numpy",
    "numpy_storage_dtype",
    "tensor",
    # registered functions
    "PackedFunc",
    "get_global_func",
    "list_global_func_names",
    "register_func",
    "LIBRARY",
    "library",
    "register_global_func",
    "remove_global_func",
    # programs
    "DimProgram",
    "ExecBuilder",
    "Executable",
    "FuncInfo",
    "FunctionInfo",
    "Info",
    "Label",
    "ObjectInfo",
    "PrimInfo",
    "Program",
    "Provenance",
    "ShapeInfo",
    "TensorInfo",
    "TupleInfo",
    "info_from_plain",
    "info_to_plain",
    "load",
    "load_executable",
    "load_module",
    "load_param_dict",
    "load_param_dict_from_file",
    "save_param_dict",
    "save_param_dict_to_file",
    "requirements",
    # running
    "BenchmarkResult",
    "FunctionPlan",
    "Limits",
    "MemoryPlan",
    "ProfileReport",
    "ProfileRow",
    "StoragePlan",
    "TABLE",
    "Builtin",
    "MakeCode",
    "MatchCode",
    "ShapeHeap",
    "Storage",
    "VMAssertionError",
    "KVCache",
    "VMClosure",
    "VMInstrumentReturnKind",
    "VMModule",
    "VirtualMachine",
    "time_evaluator",
    # kernels
    "Failure",
    "KernelFunction",
    "KernelInfo",
    "KernelParam",
    "KernelSection",
    "LinkedKernels",
    "Module",
    "NativeCode",
    "set_call_path",
    # files of the room that are used as such
    "bytecode",
    "dims",
    "native",
    "sinfo",
    "trust",
    "vm",
]
