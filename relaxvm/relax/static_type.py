"""Static types: struct info without sizes, as older programs ask for it.

`static_type` is all there is to them; nothing in this package reads one.
"""

from __future__ import annotations

from typing import Any

from ..base import DataType, StructInfoError
from ..base import dtype as as_dtype
from ..ir import FuncType as FuncType
from ..ir import PrimType, node
from ..ir import TupleType as TupleType
from ..ir import Type as Type
from .struct_info import (
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
)


@node(interned=True)
class ObjectType(Type):
    """The type of anything."""


@node(interned=True)
class PackedFuncType(Type):
    """The type of a function of which no signature is known."""


@node(interned=True)
class ShapeType(Type):
    """The type of a shape; `ndim` is -1 if it is not known."""

    ndim: int = -1


@node(interned=True)
class TensorType(Type):
    """The type of an array; `ndim` is -1 and `dtype` "void" if they are not known."""

    ndim: int = -1
    dtype: DataType = as_dtype("float32")

    @staticmethod
    def _normalise_(ndim: Any, dtype: Any) -> tuple[int, DataType]:
        return ndim, as_dtype("void" if dtype is None or dtype == "" else dtype)


def get_static_type(sinfo: Any) -> Type:
    """The static type of a value of `sinfo`."""
    if isinstance(sinfo, TensorStructInfo):
        return TensorType(sinfo.ndim, sinfo.dtype)
    if isinstance(sinfo, ShapeStructInfo):
        return ShapeType(sinfo.ndim)
    if isinstance(sinfo, PrimStructInfo):
        return PrimType(sinfo.dtype)
    if isinstance(sinfo, TupleStructInfo):
        return TupleType(tuple(map(get_static_type, sinfo.fields)))
    if isinstance(sinfo, FuncStructInfo):
        if sinfo.params is None:
            return PackedFuncType()
        params = tuple(map(get_static_type, sinfo.params))
        return FuncType(params, get_static_type(sinfo.ret))
    if isinstance(sinfo, ObjectStructInfo):
        return ObjectType()
    raise StructInfoError(f"get_static_type: wanted struct info, got {type(sinfo).__name__}")
