"""`relax.vm.*`: what VMBuiltinLower leaves for the code generator of the virtual machine."""

from __future__ import annotations

from ...base import StructInfoError
from ...ir import GlobalVar
from ..expr import ExternFunc
from ..struct_info import Expr, ObjectStructInfo, ShapeStructInfo, StructInfo, TupleStructInfo
from .builtin import allocated
from .record import Dtype, Prim, Shape, Text, missing, op

_MEMORY = missing("memory")
_LOWERED = missing("appears after lowering only")
_BUILTIN = missing("a builtin of the virtual machine")


@op("vm.alloc_storage", _MEMORY, _BUILTIN, _LOWERED, _LOWERED)
def alloc_storage(
    shape: Shape, runtime_device_index: Prim, dtype: Dtype, storage_scope: Text = "global"
) -> StructInfo:
    """Storage of `shape` (in bytes if `dtype` is uint8)."""
    if not isinstance(shape.struct_info, ShapeStructInfo):
        raise StructInfoError(f"shape: wanted a shape, got {shape.struct_info}")
    return ObjectStructInfo()


@op("vm.alloc_tensor", _MEMORY, _BUILTIN, _LOWERED, _LOWERED)
def alloc_tensor(
    storage: Expr,
    offset: Prim,
    shape: Shape,
    dtype: Dtype,
    runtime_device_ind: Prim | None = None,
) -> StructInfo:
    """A tensor in `storage`, `offset` bytes from its start."""
    return allocated(shape, dtype)


@op("vm.kill_object", _MEMORY, _BUILTIN, _LOWERED, _LOWERED, pure=False)
def kill_object(obj: Expr) -> StructInfo:
    """`obj` is not used any more; its register is emptied."""
    return TupleStructInfo(())


@op("vm.call_tir_dyn", missing("runs a loop function"), _BUILTIN, _LOWERED, _LOWERED, pure=False)
def call_tir_dyn(func: Expr, args: Expr) -> StructInfo:
    """Run a loop function on the tuple `args`, the last of which is the shape of its scalar
    parameters.
    """
    if not isinstance(func, (GlobalVar, ExternFunc)):
        raise StructInfoError(f"wanted the GlobalVar of a loop function, got {type(func).__name__}")
    if not isinstance(args.struct_info, TupleStructInfo):
        raise StructInfoError(f"the arguments are a tuple, got {args.struct_info}")
    return TupleStructInfo(())
