"""Shared parts of inference rules: what an argument must be, and how shapes combine.

Every check raises StructInfoError saying wanted and got; the record adds operator, arguments and
source line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, cast

from ...base import SMALL_FLOATS, DataType, StructInfoError
from ...ir import IntImm, PrimExpr, const
from ..derive import prove_dims
from ..expr import Call
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TensorStructInfo,
    TupleStructInfo,
    as_dims,
)
from .sizes import KnownTensor, simplified

FLOAT = frozenset({"float", "bfloat"})
"""float16, bfloat16, float32, float64: what is computed with"""
INTEGER = frozenset({"int", "uint"})
BITS = INTEGER | {"bool"}
NUMBER = FLOAT | INTEGER
ANY = NUMBER | {"bool", *SMALL_FLOATS}
ELEMENT = ANY | {"string"}
"""of what is moved and compared, whatever it is"""
ORDERED = NUMBER | {"string"}
"""of what is put into order"""
_WORDS = {
    FLOAT: "a floating dtype",
    INTEGER: "an integer dtype",
    BITS: "an integer dtype or bool",
    NUMBER: "a number's dtype (bool is none; astype it first)",
    ANY: "a scalar dtype",
    ELEMENT: "the dtype of an array",
    ORDERED: "a number's dtype (bool is none; astype it first) or string",
}


def tensor(
    x: Expr, name: str, takes: Collection[str] = ELEMENT, ndim: int | None = None
) -> KnownTensor:
    """The struct info of the argument `x`, which must be a tensor.

    takes  the kinds of dtype it may have; an unknown dtype passes
    ndim   the rank it must have
    """
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"{name}: wanted a tensor, got {info}")
    check_kind(info.dtype, name, takes)
    if ndim is not None and info.ndim not in (-1, ndim):
        raise StructInfoError(f"{name}: wanted {ndim} dimensions, got {info.ndim}")
    return cast(KnownTensor, info)


def check_kind(dtype: DataType, name: str, takes: Collection[str]) -> None:
    """Raise StructInfoError unless `dtype` is of one of the kinds `takes`, or unknown."""
    if dtype.kind not in takes and dtype.kind != "void":
        wanted = _WORDS.get(frozenset(takes)) or " or ".join(sorted(takes))
        raise StructInfoError(f"{name}: wanted {wanted}, got {dtype}")


def array_dtype(dtype: DataType, name: str = "dtype") -> DataType:
    """The attribute `dtype`, which must be one that arrays have. Raises StructInfoError."""
    if dtype.lanes != 1 or dtype.kind not in ELEMENT:
        raise StructInfoError(f"{name}: wanted the dtype of an array, got {str(dtype)!r}")
    return dtype


def dtype_of(value: Any, name: str, takes: Collection[str] = ANY) -> DataType:
    """What an attribute says is a dtype, which must be one of arrays and of the kinds `takes`.

    Raises StructInfoError.
    """
    try:
        dtype = DataType(value)
    except (TypeError, ValueError) as error:
        raise StructInfoError(f"{name}: {error}") from None
    check_kind(array_dtype(dtype, name), name, takes)
    return dtype


def tensors(x: Expr, name: str, takes: Collection[str] = ELEMENT) -> list[KnownTensor]:
    """The struct infos of the fields of the argument `x`, which must be a tuple of tensors."""
    info = x.struct_info
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"{name}: wanted a tuple of tensors, got {info}")
    fields = []
    for i, field in enumerate(info.fields):
        if not isinstance(field, TensorStructInfo):
            raise StructInfoError(f"{name}: field {i}: wanted a tensor, got {field}")
        check_kind(field.dtype, f"{name}: field {i}", takes)
        fields.append(field)
    return cast(list[KnownTensor], fields)


def same_dtype(infos: Sequence[Any], names: Sequence[str]) -> DataType:
    """The one dtype of several tensors (or scalars); "void" if none is known."""
    first: DataType | None = None
    whose = ""
    for info, name in zip(infos, names):
        if info.dtype.kind == "void":
            continue
        if first is None:
            first, whose = info.dtype, name
        elif info.dtype is not first:
            raise StructInfoError(
                f"the dtypes differ: {whose} is {first}, {name} is {info.dtype}; astype one of them"
            )
    return first if first is not None else DataType("void")


def axis_of(axis: Any, ndim: int, name: str = "axis", extra: int = 0) -> int:
    """`axis` counted from the front; `extra` more positions are allowed (as for expand_dims).

    With an unknown rank (-1) it is returned as it is.
    """
    if isinstance(axis, bool) or not isinstance(axis, int):
        raise StructInfoError(f"{name}: wanted an int, got {type(axis).__name__}: {axis!r}")
    if ndim == -1:
        return axis
    count = ndim + extra
    if not -count <= axis < count:
        raise StructInfoError(
            f"{name}: wanted {-count} to {count - 1} for {ndim} dimensions, got {axis}"
            if count
            else f"{name}: a tensor of no dimensions has no axis {axis}"
        )
    return axis + count if axis < 0 else axis


def axes_of(axes: Any, ndim: int, name: str = "axis") -> tuple[int, ...]:
    """Several axes counted from the front, in the order given; one int is one axis, None is all of
    them.

    Raises StructInfoError if one stands twice. The rank must be known.
    """
    if axes is None:
        return tuple(range(ndim))
    several = tuple(axes) if isinstance(axes, (list, tuple)) else (axes,)
    result = tuple(axis_of(a, ndim, name) for a in several)
    if len(set(result)) != len(result):
        raise StructInfoError(f"{name}: an axis stands twice in {list(several)}")
    return result


def differ(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two sizes are certainly not equal, whatever the symbols are."""
    return prove_dims(a, b) is False


def no_multiple(size: PrimExpr, of: int) -> bool:
    """Whether a size is certainly no multiple of `of`."""
    return differ(size % of, const(0, "int64"))


def shaped(
    info: TensorStructInfo, dims: Iterable[Any], dtype: DataType | None = None
) -> KnownTensor:
    """The struct info of a tensor of `dims`, which are simplified, where `info` is; of its dtype if
    none is given.
    """
    simple = tuple([simplified(d) if isinstance(d, PrimExpr) else d for d in dims])
    return KnownTensor(simple, info.dtype if dtype is None else dtype, info.vdevice)


def want_word(name: str, value: Any, known: Collection[str]) -> None:
    """Raises StructInfoError for a `value` that is not one of the words `known`."""
    if value not in known:
        words = ", ".join(filter(None, known))
        raise StructInfoError(f"{name}: wanted one of {words}, got {value!r}")


def shape_argument(shape: Expr, name: str = "shape") -> ShapeExpr:
    """The shape that the argument `shape` is."""
    if type(shape) is ShapeExpr:
        if shape.open:
            as_dims(shape.values)
        return shape
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo) or info.values is None:
        raise StructInfoError(f"{name}: wanted a shape, got {info}")
    return ShapeExpr(info.values)


def tensor_of(x: Expr) -> KnownTensor:
    """The struct info of an argument that inference took for a tensor. Legalisation knows rank and
    dimensions; for a gradient some may be missing.
    """
    info = x.struct_info
    assert isinstance(info, KnownTensor)
    return info


def scalar_of(x: Expr) -> PrimExpr:
    """The value of a scalar argument that is known."""
    info = x.struct_info
    assert isinstance(info, PrimStructInfo)
    assert info.value is not None
    return info.value


def result_sizes(call: Call) -> tuple[PrimExpr, ...]:
    """The dimensions of the tensor that a call to be legalised gives."""
    return known_sizes(call, "the result")


def known_sizes(x: Expr, name: str = "data") -> tuple[PrimExpr, ...]:
    """The dimensions of the tensor `x`, for gradients. Raises StructInfoError if they are not
    known.
    """
    info = x.struct_info
    if not isinstance(info, TensorStructInfo) or info.dims is None:
        raise StructInfoError(f"{name}: wanted known dimensions; match_cast them first")
    return info.dims


_MOST = (1 << 63) - 1


def dims_product(dims: Iterable[PrimExpr]) -> PrimExpr:
    """How many elements a shape has. Raises StructInfoError if the constants are more than int64
    counts: wrapped, they would describe another shape.
    """
    total: PrimExpr = const(1, "int64")
    exact = 1
    for d in dims:
        total = total * d
        exact = exact * d.value if isinstance(d, IntImm) else exact
    if exact > _MOST:
        raise StructInfoError(f"{exact} elements are more than int64 counts")
    return total
