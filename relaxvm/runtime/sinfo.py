"""What a VM function wants and gives, as plain data: for messages, for converting arguments, for
listing.

The compiler's StructInfo without the compiler. Dimensions are those of `dims`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..base import DataType, LoadError, VerifyError
from .dims import Dim, check, dim_from_plain, dim_to_plain, format_dim
from .limits import MAX_NDIM, MAX_NESTING


@dataclass(frozen=True)
class TensorInfo:
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


@dataclass(frozen=True)
class ShapeInfo:
    """A shape as a value. ndim -1: any length; values None: any sizes."""

    ndim: int = -1
    values: tuple[Dim, ...] | None = None

    def __post_init__(self) -> None:
        _check_dims(self, self.values, self.ndim)

    def __str__(self) -> str:
        if self.values is not None:
            return f"Shape({_format_shape(self.values)})"
        return f"Shape(ndim={self.ndim})" if self.ndim >= 0 else "Shape()"


@dataclass(frozen=True)
class PrimInfo:
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


@dataclass(frozen=True)
class TupleInfo:
    """A tuple of what `fields` say."""

    fields: tuple[Info, ...]

    def __post_init__(self) -> None:
        _check_infos(self.fields, "Tuple")

    def __str__(self) -> str:
        return f"Tuple({', '.join(map(str, self.fields))})"


@dataclass(frozen=True)
class ObjectInfo:
    """Anything."""

    def __str__(self) -> str:
        return "Object()"


@dataclass(frozen=True)
class FuncInfo:
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


Info = TensorInfo | ShapeInfo | PrimInfo | TupleInfo | ObjectInfo | FuncInfo
INFO_TYPES = (TensorInfo, ShapeInfo, PrimInfo, TupleInfo, ObjectInfo, FuncInfo)


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
        raise VerifyError(f"{what}: wanted a tuple of Tensor, Shape, Prim, Tuple, Object, Func")


def _format_shape(dims: tuple[Dim, ...]) -> str:
    return f"({', '.join(map(format_dim, dims))}{',' if len(dims) == 1 else ''})"


def info_to_plain(info: Info, depth: int = 0) -> list[Any]:
    """`info` as msgpack stores it. Raises VerifyError if it is nested too deeply."""
    if depth > MAX_NESTING // 4:
        raise VerifyError(f"struct info is nested more than {MAX_NESTING // 4} deep")
    inner = depth + 1
    if isinstance(info, TensorInfo):
        dtype = None if info.dtype is None else str.__str__(info.dtype)
        return ["tensor", dtype, info.ndim, _dims_to_plain(info.shape)]
    if isinstance(info, ShapeInfo):
        return ["shape", info.ndim, _dims_to_plain(info.values)]
    if isinstance(info, PrimInfo):
        value = None if info.value is None else dim_to_plain(info.value)
        return ["prim", str.__str__(info.dtype), value]
    if isinstance(info, TupleInfo):
        return ["tuple", [info_to_plain(field, inner) for field in info.fields]]
    if isinstance(info, FuncInfo):
        params = None if info.params is None else [info_to_plain(p, inner) for p in info.params]
        return ["func", params, None if info.ret is None else info_to_plain(info.ret, inner)]
    if isinstance(info, ObjectInfo):
        return ["object"]
    raise VerifyError(f"wanted a struct info description, got {type(info).__name__}")


def _dims_to_plain(dims: tuple[Dim, ...] | None) -> list[Any] | None:
    return None if dims is None else [dim_to_plain(dim) for dim in dims]


def info_from_plain(plain: object, depth: int = 0) -> Info:
    """The inverse of `info_to_plain`. Raises LoadError for anything else."""
    try:
        return _from_plain(plain, depth)
    except VerifyError as error:
        raise LoadError(f"struct info: {error}") from None


_FIELDS = {"tensor": 4, "shape": 3, "prim": 3, "tuple": 2, "object": 1, "func": 3}


def _from_plain(plain: object, depth: int) -> Info:
    if depth > MAX_NESTING // 4:
        raise LoadError(f"struct info is nested more than {MAX_NESTING // 4} deep")
    if type(plain) is not list or not plain or type(plain[0]) is not str:
        raise LoadError("struct info: wanted a list that begins with its kind")
    kind, inner = plain[0], depth + 1
    if _FIELDS.get(kind) != len(plain):
        raise LoadError(f"struct info: {kind[:40]!r} with {len(plain) - 1} fields is not known")
    if kind == "tensor":
        dtype = None if plain[1] is None else dtype_from_plain(plain[1])
        return TensorInfo(dtype, _ndim(plain[2]), _dims_from_plain(plain[3]))
    if kind == "shape":
        return ShapeInfo(_ndim(plain[1]), _dims_from_plain(plain[2]))
    if kind == "prim":
        value = None if plain[2] is None else dim_from_plain(plain[2])
        return PrimInfo(dtype_from_plain(plain[1]), value)
    if kind == "tuple":
        return TupleInfo(_infos_from_plain(plain[1], inner))
    if kind == "func":
        params = None if plain[1] is None else _infos_from_plain(plain[1], inner)
        return FuncInfo(params, None if plain[2] is None else _from_plain(plain[2], inner))
    return ObjectInfo()


def _ndim(plain: object) -> int:
    if type(plain) is not int:
        raise LoadError("struct info: wanted the number of dimensions")
    return plain


def _dims_from_plain(plain: object) -> tuple[Dim, ...] | None:
    if plain is None:
        return None
    if type(plain) is not list or len(plain) > MAX_NDIM:
        raise LoadError(f"struct info: wanted a list of at most {MAX_NDIM} dimensions")
    return tuple(map(dim_from_plain, plain))


def _infos_from_plain(plain: object, depth: int) -> tuple[Info, ...]:
    if type(plain) is not list:
        raise LoadError("struct info: wanted a list of struct infos")
    return tuple(_from_plain(item, depth) for item in plain)


def dtype_from_plain(plain: object) -> DataType:
    """The dtype named `plain`, in its canonical spelling. Raises LoadError."""
    if type(plain) is not str or len(plain) > 32:
        raise LoadError("wanted the name of a dtype")
    try:
        made = DataType(plain)
    except ValueError as error:
        raise LoadError(str(error)) from None
    if str.__str__(made) != plain:
        raise LoadError(f"wanted the canonical dtype {str.__str__(made)!r}, got {plain!r}")
    return made
