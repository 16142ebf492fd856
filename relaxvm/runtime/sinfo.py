"""What a VM function wants and gives, as plain data: for messages, for converting arguments, for
listing.

The compiler's StructInfo without the compiler. Dimensions are those of `dims`.
"""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

from ..base import DataType, LoadError, VerifyError, record
from .dims import Dim, check, format_dim, symbols_of
from .limits import MAX_NDIM, MAX_NESTING
from .plain import Plain, codec_of


@record
class TensorInfo(Plain, form="tensor"):
    """An array. dtype None: any; ndim -1: any; shape None: any sizes."""

    dtype: DataType | None = None
    ndim: int = -1
    shape: tuple[Dim, ...] | None = None

    def __post_init__(self) -> None:
        _check_dims(self, self.shape, self.ndim)
        dtype = self.dtype
        wrong = type(dtype) is not DataType or dtype.lanes != 1 or dtype.kind in ("handle", "void")
        if dtype is not None and wrong:
            raise VerifyError(f"Tensor: no array has dtype {dtype!r}")

    def __str__(self) -> str:
        parts = [_format_shape(self.shape)] if self.shape is not None else []
        if self.dtype is not None:
            parts.append(str(self.dtype) if parts else f"dtype={self.dtype}")
        if self.shape is None and self.ndim >= 0:
            parts.append(f"ndim={self.ndim}")
        return f"Tensor({', '.join(parts)})"


@record
class ShapeInfo(Plain, form="shape"):
    """A shape as a value. ndim -1: any length; values None: any sizes."""

    ndim: int = -1
    values: tuple[Dim, ...] | None = None

    def __post_init__(self) -> None:
        _check_dims(self, self.values, self.ndim)

    def __str__(self) -> str:
        if self.values is not None:
            return f"Shape({_format_shape(self.values)})"
        return f"Shape(ndim={self.ndim})" if self.ndim >= 0 else "Shape()"


@record
class PrimInfo(Plain, form="prim"):
    """A scalar; `value` if it is known."""

    dtype: DataType
    value: Dim | None = None

    def __post_init__(self) -> None:
        if type(self.dtype) is not DataType:
            raise VerifyError(f"Prim: wanted a DataType, got {self.dtype!r}")
        if self.value is not None:
            check(self.value)

    def __str__(self) -> str:
        value = "" if self.value is None else f", value={format_dim(self.value)}"
        return f"Prim({self.dtype}{value})"


@record
class TupleInfo(Plain, form="tuple"):
    """A tuple of what `fields` say."""

    fields: tuple[Info, ...]

    def __post_init__(self) -> None:
        _check_infos(self.fields, "Tuple")

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.fields))})"


@record
class SequenceInfo(Plain, form="sequence"):
    """Any number of values, each of which is an `element`."""

    element: Info

    def __post_init__(self) -> None:
        _check_infos((self.element,), "Sequence")

    def __str__(self) -> str:
        return f"Sequence({self.element})"


@record
class ObjectInfo(Plain, form="object"):
    """Anything."""

    def __str__(self) -> str:
        return "Object()"


@record
class FuncInfo(Plain, form="func"):
    """A function; params None: any."""

    params: tuple[Info, ...] | None = None
    ret: Info | None = None

    def __post_init__(self) -> None:
        if self.params is not None:
            _check_infos(self.params, "Func")
        if self.ret is not None:
            _check_infos((self.ret,), "Func")

    def __str__(self) -> str:
        if self.params is None:
            return "Func()"
        return f"Func(({', '.join(map(str, self.params))}) -> {self.ret or ObjectInfo()})"


Info = TensorInfo | ShapeInfo | PrimInfo | TupleInfo | SequenceInfo | ObjectInfo | FuncInfo
INFO_TYPES = typing.get_args(Info)
_KINDS = ", ".join(t.__name__.removesuffix("Info") for t in INFO_TYPES)


def _check_dims(info: Any, dims: Any, ndim: Any) -> None:
    what = type(info).__name__
    if type(ndim) is not int or not -1 <= ndim <= MAX_NDIM:
        raise VerifyError(f"{what}: wanted -1 to {MAX_NDIM} dimensions, got {ndim!r}")
    if dims is None:
        return
    if type(dims) is not tuple or len(dims) > MAX_NDIM:
        raise VerifyError(f"{what}: wanted a tuple of at most {MAX_NDIM} dimensions")
    for dim in dims:
        check(dim)
    if ndim == -1:
        object.__setattr__(info, "ndim", len(dims))
    elif ndim != len(dims):
        raise VerifyError(f"{what}: {len(dims)} dimensions but ndim={ndim}")


def _check_infos(infos: Any, what: str) -> None:
    if type(infos) is not tuple or not all(isinstance(info, INFO_TYPES) for info in infos):
        raise VerifyError(f"{what}: wanted a tuple of {_KINDS}")


def _format_shape(dims: tuple[Dim, ...]) -> str:
    return f"({', '.join(map(format_dim, dims))}{',' if len(dims) == 1 else ''})"


def dims_of(info: Any) -> tuple[Dim, ...]:
    """The dimensions that a struct info says, of a scalar its value."""
    if type(info) is TensorInfo:
        return info.shape or ()
    if type(info) is ShapeInfo:
        return info.values or ()
    return (info.value,) if type(info) is PrimInfo and info.value is not None else ()


def symbols_in(info: Info) -> Iterator[str]:
    """The names of the symbols in a struct info, repeated as they appear."""
    for dim in dims_of(info):
        yield from symbols_of(dim)
    for field in info.fields if type(info) is TupleInfo else ():
        yield from symbols_in(field)


def info_to_plain(info: Info) -> list[Any]:
    """`info` as msgpack stores it. Raises VerifyError if it is nested too deeply."""
    if type(info) not in INFO_TYPES:
        raise VerifyError(f"wanted a struct info description, got {type(info).__name__}")
    _check_nesting(info)
    plain: list[Any] = info.to_plain()
    return plain


def info_from_plain(plain: object) -> Info:
    """The inverse of `info_to_plain`. Raises LoadError for anything else."""
    try:
        info: Info = codec_of(Info).read(plain)
        _check_nesting(info)
    except (LoadError, VerifyError) as error:
        raise LoadError(f"struct info: {error}") from None
    return info


def _check_nesting(info: Info) -> None:
    level: list[Info] = [info]
    for _ in range(MAX_NESTING // 4 + 1):
        level = [inner for outer in level for inner in _inside(outer)]
        if not level:
            return
    raise VerifyError(f"struct info is nested more than {MAX_NESTING // 4} deep")


def _inside(info: Info) -> tuple[Info, ...]:
    if isinstance(info, FuncInfo):
        return (*(info.params or ()), *(() if info.ret is None else (info.ret,)))
    if isinstance(info, SequenceInfo):
        return (info.element,)
    return info.fields if isinstance(info, TupleInfo) else ()
