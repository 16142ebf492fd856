"""`relax.memory.*`: planned storage, and tensors placed in it."""

from __future__ import annotations

from ...base import StructInfoError
from ...ir.expr import IntImm
from ..derive import prove_dims
from ..expr import DataTypeImm
from ..struct_info import (
    Expr,
    ObjectStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .builtin import allocated
from .record import Dtype, Prim, Shape, Text, missing, op

__all__ = [
    "alloc_storage",
    "alloc_tensor",
    "ensure_zero_offset",
    "kill_storage",
    "kill_tensor",
    "view",
]

_MEMORY = missing("memory")
_LOWERED = missing("appears after lowering only")
_BUILTIN = missing("a builtin of the virtual machine")


@op("memory.alloc_storage", numpy=_MEMORY, lower=_BUILTIN, grad=_LOWERED, layout=_LOWERED)
def alloc_storage(
    size: Shape, virtual_device_index: Prim, storage_scope: Text, dtype: Dtype
) -> StructInfo:
    """Storage of `size` bytes (a shape of one dimension)."""
    if not isinstance(size.struct_info, ShapeStructInfo):
        raise StructInfoError(f"size: wanted a shape of one dimension, got {size.struct_info}")
    return ObjectStructInfo()


@op("memory.alloc_tensor", numpy=_MEMORY, lower=_BUILTIN, grad=_LOWERED, layout=_LOWERED)
def alloc_tensor(
    storage: Expr,
    offset: Prim,
    shape: Shape,
    dtype: Dtype,
    runtime_device_ind: Prim | None = None,
) -> StructInfo:
    """A tensor in `storage`, `offset` bytes from its start."""
    return allocated(shape, dtype)


@op(
    "memory.kill_storage", numpy=_MEMORY, lower=_BUILTIN, pure=False, grad=_LOWERED, layout=_LOWERED
)
def kill_storage(storage: Expr) -> StructInfo:
    """`storage` is not used any more."""
    return TupleStructInfo(())


@op("memory.kill_tensor", numpy=_MEMORY, lower=_BUILTIN, pure=False, grad=_LOWERED, layout=_LOWERED)
def kill_tensor(tensor: Expr) -> StructInfo:
    """`tensor` is not used any more."""
    if not isinstance(tensor.struct_info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {tensor.struct_info}")
    return TupleStructInfo(())


@op("memory.view", numpy=_MEMORY, lower=_BUILTIN, grad=_LOWERED, layout=_LOWERED)
def view(
    data: Expr,
    shape: Shape | None = None,
    dtype: Dtype | None = None,
    relative_byte_offset: Prim | None = None,
) -> StructInfo:
    """The memory of the tensor `data` as another tensor. Raises StructInfoError if it would
    certainly not fit.
    """
    info = data.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {info}")
    new_dtype = dtype.value if isinstance(dtype, DataTypeImm) else info.dtype
    if isinstance(shape, Expr) and isinstance(shape.struct_info, ShapeStructInfo):
        made = TensorStructInfo(shape, new_dtype)
    else:
        made = TensorStructInfo(info.shape, new_dtype, None, info.ndim)
    old_bytes, new_bytes = _size_bytes(info), _size_bytes(made)
    if old_bytes is not None and new_bytes is not None and new_bytes > old_bytes:
        raise StructInfoError(f"wanted at most {old_bytes} bytes, the view has {new_bytes}")
    if relative_byte_offset is None and new_dtype is info.dtype:
        _want_same_count(info, made)
    return made


def _size_bytes(info: TensorStructInfo) -> int | None:
    if info.dims is None or info.dtype == "void":
        return None
    total: int = info.dtype.itemsize
    for dim in info.dims:
        if not isinstance(dim, IntImm):
            return None
        total *= dim.value
    return total


def _want_same_count(old: TensorStructInfo, new: TensorStructInfo) -> None:
    if old.dims is None or new.dims is None:
        return
    counts = []
    for dims in (old.dims, new.dims):
        count = IntImm("int64", 1)
        for dim in dims:
            count = count * dim
        counts.append(count)
    if prove_dims(*counts) is False:
        raise StructInfoError(f"the view has another number of elements: {old} and {new}")


@op("memory.ensure_zero_offset", numpy=lambda x: x, lower=_BUILTIN, grad=_LOWERED, layout=_LOWERED)
def ensure_zero_offset(data: Expr) -> StructInfo:
    """`data` itself if it starts where its storage does, else a copy."""
    if not isinstance(data.struct_info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {data.struct_info}")
    return data.struct_info
