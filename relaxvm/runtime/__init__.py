"""Running compiled programs: arrays, registered functions, executables and the virtual machine.

Enters: a file (or an Executable from the compiler) and the functions it may call.
Leaves: results, as NDArrays and plain values; errors that say function, parameter, wanted and got.
Not done here: compiling. Nothing but `base`, numpy and msgpack is imported; llvmlite only when
kernels are linked.
"""

import typing

from ..base import DataType as DataType
from ..base import DataTypeCode as DataTypeCode
from ..base import collecting_seldom as _collecting_seldom
from ..base import submodules as _submodules

with _collecting_seldom():
    from . import vm as vm

from . import bytecode as bytecode
from . import dims as dims
from . import frame as frame
from . import library_linalg as library_linalg
from . import library_vision as library_vision
from . import locks as locks
from . import made_up as made_up
from . import native as native
from . import ops as ops
from . import outputs as outputs
from . import pyabi as pyabi
from . import result_memory as result_memory
from . import sinfo as sinfo
from . import trust as trust
from .arguments import convert as convert
from .builtin import TABLE as TABLE
from .builtin import Builtins as Builtins
from .builtin import Storage as Storage
from .builtin import VMAssertionError as VMAssertionError
from .builtin import VMClosure as VMClosure
from .builtin import builtin_named as builtin_named
from .builtin import register_builtin as register_builtin
from .builtin import rows_replaced as rows_replaced
from .builtin_row import Builtin as Builtin
from .builtin_row import Effect as Effect
from .builtin_row import short_name as short_name
from .compiled_code import INTERPRETER as INTERPRETER
from .compiled_code import NATIVE as NATIVE
from .compiled_code import PYTHON as PYTHON
from .compiled_code import CompiledCode as CompiledCode
from .compiled_code import CompiledInfo as CompiledInfo
from .compiled_frame import FrameLayout as FrameLayout
from .compiled_frame import layout_plain as layout_plain
from .compiled_state import ORIGIN_STEP as ORIGIN_STEP
from .compiled_state import Described as Described
from .constants import DimProgram as DimProgram
from .cpu_budget import side_by_side as side_by_side
from .cpu_budget import usable_cores as usable_cores
from .device import Device as Device
from .device import cpu as cpu
from .device import device as device
from .device import device_kind as device_kind
from .device import device_name as device_name
from .device import enabled as enabled
from .disk_cache import DiskCache as DiskCache
from .disk_cache import identity_of as identity_of
from .executable import Executable as Executable
from .executable import load as load
from .executable import load_executable as load_executable
from .executable import load_module as load_module
from .executable import requirements as requirements
from .fileformat import without_contents as without_contents
from .files import write_atomically as write_atomically
from .heap import MakeCode as MakeCode
from .heap import MatchCode as MatchCode
from .heap import ShapeHeap as ShapeHeap
from .host import data_caches as data_caches
from .kernel import Failure as Failure
from .kernel import KernelInfo as KernelInfo
from .kernel import KernelParam as KernelParam
from .kernel import KernelSection as KernelSection
from .kernel import NativeCode as NativeCode
from .kv_cache import KVCache as KVCache
from .library import LIBRARY as LIBRARY
from .library import library as library
from .library import operator_text as operator_text
from .limits import Limits as Limits
from .linking import address_in_process as address_in_process
from .module import Module as Module
from .native import KernelFunction as KernelFunction
from .native import LinkedKernels as LinkedKernels
from .native import rest_while_forking as rest_while_forking
from .native import set_call_path as set_call_path
from .ndarray import NDArray as NDArray
from .ndarray import ShapeTuple as ShapeTuple
from .ndarray import array as array
from .ndarray import as_ndarray as as_ndarray
from .ndarray import empty as empty
from .ndarray import from_dlpack as from_dlpack
from .ndarray import from_numpy as from_numpy
from .ndarray import numpy_storage_dtype as numpy_storage_dtype
from .ndarray import tensor as tensor
from .ndarray import wrap_unchecked as wrap_unchecked
from .plain import Plain as Plain
from .plain import entries_of as entries_of
from .program import FunctionInfo as FunctionInfo
from .program import Program as Program
from .program import Provenance as Provenance
from .registry import PackedFunc as PackedFunc
from .registry import get_global_func as get_global_func
from .registry import list_global_func_names as list_global_func_names
from .registry import nearest_names as nearest_names
from .registry import register_apart as register_apart
from .registry import register_func as register_func
from .registry import register_global_func as register_global_func
from .registry import remove_global_func as remove_global_func
from .resolve import ResolvedFunction as ResolvedFunction
from .resolve import resolve_program as resolve_program
from .sequence import SEQUENCES as SEQUENCES
from .sequence import VMSequence as VMSequence
from .sinfo import FuncInfo as FuncInfo
from .sinfo import Info as Info
from .sinfo import ObjectInfo as ObjectInfo
from .sinfo import PrimInfo as PrimInfo
from .sinfo import SequenceInfo as SequenceInfo
from .sinfo import ShapeInfo as ShapeInfo
from .sinfo import TensorInfo as TensorInfo
from .sinfo import TupleInfo as TupleInfo
from .sinfo import info_from_plain as info_from_plain
from .sinfo import info_to_plain as info_to_plain
from .strings import numbers_to_strings as numbers_to_strings
from .strings import strings_of as strings_of
from .strings import strings_to_numbers as strings_to_numbers
from .threads_ir import GRAIN as GRAIN
from .trampoline import release_elements as release_elements
from .verify import DYNAMIC as DYNAMIC
from .verify import builtin_args as builtin_args
from .verify import builtin_called as builtin_called
from .verify import static_values as static_values
from .verify import verify_program as verify_program
from .vm import VirtualMachine as VirtualMachine
from .vm import VMInstrumentReturnKind as VMInstrumentReturnKind
from .vm import VMModule as VMModule

if typing.TYPE_CHECKING:
    from . import graph_json as graph_json
    from .disasm import instruction_text as instruction_text
    from .exec_builder import ExecBuilder as ExecBuilder
    from .exec_builder import Label as Label
    from .gaps import is_given_away as is_given_away
    from .graph_executor import GraphExecutor as GraphExecutor
    from .graph_executor import GraphModule as GraphModule
    from .graph_executor import check_graph as check_graph
    from .graph_factory import GraphExecutorFactoryModule as GraphExecutorFactoryModule
    from .graph_json import Graph as Graph
    from .graph_json import read_graph as read_graph
    from .memory_plan import FunctionPlan as FunctionPlan
    from .memory_plan import MemoryPlan as MemoryPlan
    from .memory_plan import StoragePlan as StoragePlan
    from .onnx_file import OnnxFile as OnnxFile
    from .onnx_file import without_weights as without_weights
    from .params import load_param_dict as load_param_dict
    from .params import load_param_dict_from_file as load_param_dict_from_file
    from .params import save_param_dict as save_param_dict
    from .params import save_param_dict_to_file as save_param_dict_to_file
    from .profile import ProfileReport as ProfileReport
    from .profile import ProfileRow as ProfileRow
    from .timing import BenchmarkResult as BenchmarkResult
    from .timing import time_evaluator as time_evaluator

# What running a program does not need, loaded when it is first asked for: the imports above again.
_LATER = {
    "disasm": "instruction_text",
    "exec_builder": "ExecBuilder Label",
    "gaps": "is_given_away",
    "graph_executor": "GraphExecutor GraphModule check_graph",
    "graph_factory": "GraphExecutorFactoryModule",
    "graph_json": "Graph read_graph",
    "memory_plan": "FunctionPlan MemoryPlan StoragePlan",
    "onnx_file": "OnnxFile without_weights",
    "params": """
        load_param_dict load_param_dict_from_file save_param_dict save_param_dict_to_file
    """,
    "profile": "ProfileReport ProfileRow",
    "timing": "BenchmarkResult time_evaluator",
}
__getattr__ = _submodules(
    __name__,
    _LATER,
    "bytecode dims frame graph_json library_linalg library_vision locks machine_roof made_up "
    "native ops outputs pyabi result_memory sinfo trust vm",
)

String = str
"""TVM's name for a text."""
Tensor = NDArray
"""TVM's newer name for an array."""
