"""`relax.memory.*`: planned storage, and tensors placed in it."""

from __future__ import annotations

from typing import Any

from ...base import DataType, StructInfoError
from ...ir import IntImm, PrimExpr, cast, const
from ..derive import plain_text
from ..expr import DataTypeImm, Tuple, as_relax, get_shape_of
from ..struct_info import (
    Expr,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)
from .builtin import allocated
from .faces import prepared
from .infer import array_dtype, dims_product, shape_argument, tensor
from .record import Dtype, Prim, Shape, Text, missing, op, plain_value
from .sizes import simplified, size_analyzer

_MEMORY = missing("memory")
_LOWERED = missing("appears after lowering only")
_BUILTIN = missing("a builtin of the virtual machine")


@op("memory.alloc_storage", _MEMORY, _BUILTIN, _LOWERED, _LOWERED)
def alloc_storage(
    size: Shape, virtual_device_index: Prim, storage_scope: Text, dtype: Dtype
) -> StructInfo:
    """Storage of `size` bytes (a shape of one dimension)."""
    if not isinstance(size.struct_info, ShapeStructInfo):
        raise StructInfoError(f"size: wanted a shape of one dimension, got {size.struct_info}")
    return ObjectStructInfo()


@op("memory.alloc_tensor", _MEMORY, _BUILTIN, _LOWERED, _LOWERED)
def alloc_tensor(
    storage: Expr,
    offset: Prim,
    shape: Shape,
    dtype: Dtype,
    runtime_device_ind: Prim | None = None,
) -> StructInfo:
    """A tensor in `storage`, `offset` bytes from its start."""
    return allocated(shape, dtype)


@op("memory.kill_storage", _MEMORY, _BUILTIN, _LOWERED, _LOWERED, pure=False)
def kill_storage(storage: Expr) -> StructInfo:
    """`storage` is not used any more."""
    return TupleStructInfo(())


@op("memory.kill_tensor", _MEMORY, _BUILTIN, _LOWERED, _LOWERED, pure=False)
def kill_tensor(tensor: Expr) -> StructInfo:
    """`tensor` is not used any more."""
    if not isinstance(tensor.struct_info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {tensor.struct_info}")
    return TupleStructInfo(())


def _whole_view(values: dict[str, Any]) -> None:
    """A part left out (None, or the empty tuple that TVM prints for it) is that of `data`."""
    data = values["data"] = as_relax(values["data"])
    for name, part in values.items():
        if isinstance(part, Tuple) and not part.fields:
            values[name] = None
    info = data.struct_info
    if not isinstance(info, TensorStructInfo):
        return
    if values["relative_byte_offset"] is not None:
        start = _offset(as_relax(plain_value(values["relative_byte_offset"])))
        if isinstance(start, IntImm) and values["shape"] is None and values["dtype"] is None:
            if start.value:
                raise StructInfoError(
                    f"all of data from byte {start.value} on would end beyond data; give shape"
                )
            values["relative_byte_offset"] = None
        elif values["dtype"] is None:
            if info.dtype == "void":
                raise StructInfoError("dtype: wanted one, since that of data is not known")
            values["dtype"] = DataTypeImm(info.dtype)
    if values["dtype"] is not None and values["shape"] is None:
        values["shape"] = get_shape_of(data)


@prepared(_whole_view)
@op("memory.view", _MEMORY, _BUILTIN, _LOWERED, _LOWERED)
def view(
    data: Expr,
    shape: Shape | None = None,
    dtype: Dtype | None = None,
    relative_byte_offset: Prim | None = None,
) -> StructInfo:
    """The memory of the tensor `data`, from a byte of it on, as a tensor of another shape and
    dtype; parts left out are those of `data`.

    Raises StructInfoError if it would certainly reach beyond `data` or not be aligned; the program
    checks the rest.
    """
    info = tensor(data, "data")
    new_dtype = info.dtype
    if dtype is not None:
        new_dtype = array_dtype(dtype.value) if isinstance(dtype, DataTypeImm) else DataType("void")
    result = TensorStructInfo(info.shape, new_dtype, None, info.ndim)
    if shape is not None:
        result = TensorStructInfo(shape_argument(shape), new_dtype)
    offset = const(0, "int64") if relative_byte_offset is None else _offset(relative_byte_offset)
    if isinstance(offset, IntImm) and new_dtype != "void" and offset.value % new_dtype.itemsize:
        raise StructInfoError(
            f"relative_byte_offset: wanted a multiple of the {new_dtype.itemsize} bytes of "
            f"{new_dtype}, got {offset.value}"
        )
    room, needed = _size_bytes(info), _size_bytes(result)
    if room is not None and needed is not None and offset is not None:
        needed = needed + offset
        if size_analyzer(room, needed).can_prove(needed > room):
            raise StructInfoError(
                f"wanted at most {plain_text(room)} bytes, as data has; "
                f"the view ends at {plain_text(simplified(needed))}"
            )
    return result


def _offset(x: Expr) -> PrimExpr | None:
    info = x.struct_info
    if not isinstance(info, PrimStructInfo) or not info.dtype.is_int:
        raise StructInfoError(f"relative_byte_offset: wanted an integer scalar, got {info}")
    if isinstance(info.value, IntImm) and info.value.value < 0:
        raise StructInfoError(f"relative_byte_offset: wanted at least 0, got {info.value.value}")
    return None if info.value is None else cast("int64", info.value)


def _size_bytes(info: TensorStructInfo) -> PrimExpr | None:
    if info.dims is None or info.dtype == "void":
        return None
    return simplified(dims_product(info.dims) * const(info.dtype.itemsize, "int64"))


@op("memory.ensure_zero_offset", numpy=lambda x: x, lower=_BUILTIN, grad=_LOWERED, layout=_LOWERED)
def ensure_zero_offset(data: Expr) -> StructInfo:
    """`data` itself if it starts where its storage does, else a copy."""
    if not isinstance(data.struct_info, TensorStructInfo):
        raise StructInfoError(f"wanted a tensor, got {data.struct_info}")
    return data.struct_info
