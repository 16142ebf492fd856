"""Static types, as older programs ask for them: struct info without sizes, and, as programs for
Relay ask for it (`expr.checked_type`), with sizes.

Nothing in this package reads one.
"""

from __future__ import annotations

from typing import Any

from ..base import DataType, StructInfoError
from ..base import dtype as as_dtype
from ..ir import FuncType as FuncType
from ..ir import IntImm, PrimExpr, PrimType, node
from ..ir import TupleType as TupleType
from ..ir import Type as Type
from .struct_info import (
    INFERRED,
    FuncStructInfo,
    ObjectStructInfo,
    PrimStructInfo,
    ShapeStructInfo,
    StructInfo,
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


@node(interned=True)
class SizedTensorType(TensorType):
    """The type of an array of which the shape is known: it equals the `TensorType` of its rank and
    dtype, and the struct info it comes from, which is its `struct_info`.
    """

    struct_info: TensorStructInfo = INFERRED

    @staticmethod
    def _normalise_(ndim: Any, dtype: Any, struct_info: Any = INFERRED) -> tuple[Any, ...]:
        return ndim, dtype, struct_info

    @property
    def shape(self) -> tuple[PrimExpr, ...]:
        """The sizes."""
        return self.struct_info.dims or ()

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The sizes as ints. Raises StructInfoError if one of them is a symbol."""
        sizes = [d.value for d in self.shape if isinstance(d, IntImm)]
        if len(sizes) < len(self.shape):
            raise StructInfoError(f"concrete_shape: the sizes of {self.struct_info} are not known")
        return tuple(sizes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, SizedTensorType):
            other = other.struct_info
        if isinstance(other, StructInfo):
            return self.struct_info is other
        return TensorType(self.ndim, self.dtype) is other

    def __hash__(self) -> int:
        return hash(TensorType(self.ndim, self.dtype))

    def __str__(self) -> str:
        return str(self.struct_info)


def get_static_type(sinfo: Any, sized: bool = False) -> Type:
    """The static type of a value of `sinfo`; tensors with their sizes if these are asked for."""
    if isinstance(sinfo, TensorStructInfo):
        if sized and sinfo.dims is not None:
            return SizedTensorType(sinfo.ndim, sinfo.dtype, sinfo)
        return TensorType(sinfo.ndim, sinfo.dtype)
    if isinstance(sinfo, ShapeStructInfo):
        return ShapeType(sinfo.ndim)
    if isinstance(sinfo, PrimStructInfo):
        return PrimType(sinfo.dtype)
    if isinstance(sinfo, TupleStructInfo):
        return TupleType(tuple([get_static_type(f, sized) for f in sinfo.fields]))
    if isinstance(sinfo, FuncStructInfo):
        if sinfo.params is None:
            return PackedFuncType()
        params = tuple([get_static_type(p, sized) for p in sinfo.params])
        return FuncType(params, get_static_type(sinfo.ret, sized))
    if isinstance(sinfo, ObjectStructInfo):
        return ObjectType()
    raise StructInfoError(f"get_static_type: wanted struct info, got {type(sinfo).__name__}")


def of_static_type(type_: Any) -> StructInfo:
    """The struct info of values of a static type; of struct info, that itself."""
    if isinstance(type_, StructInfo):
        return type_
    if isinstance(type_, SizedTensorType):
        return type_.struct_info
    if isinstance(type_, TensorType):
        return TensorStructInfo(None, type_.dtype, None, type_.ndim)
    if isinstance(type_, ShapeType):
        return ShapeStructInfo(None, type_.ndim)
    if isinstance(type_, PrimType):
        return PrimStructInfo(type_.dtype)
    if isinstance(type_, TupleType):
        return TupleStructInfo([of_static_type(f) for f in type_.fields])
    if isinstance(type_, FuncType):
        params = [of_static_type(a) for a in type_.arg_types]
        return FuncStructInfo(params, of_static_type(type_.ret_type))
    if isinstance(type_, PackedFuncType):
        return FuncStructInfo.opaque_func()
    if isinstance(type_, ObjectType):
        return ObjectStructInfo()
    raise StructInfoError(f"wanted a type, got {type(type_).__name__}: {type_!r}")
