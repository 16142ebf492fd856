"""Shared parts of inference rules: what an argument must be, and how shapes combine.

Every check raises StructInfoError saying wanted and got; the record adds operator, arguments and
source line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from ...base import FLOAT8_TYPES, DataType, StructInfoError
from ...ir import IntImm, PrimExpr, const
from ..derive import plain_text, prove_dims
from ..expr import Var
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    StructInfo,
    TensorStructInfo,
    TupleStructInfo,
)

FLOAT = frozenset({"float", "bfloat"})
"""float16, bfloat16, float32, float64: what is computed with"""
INTEGER = frozenset({"int", "uint"})
BITS = INTEGER | {"bool"}
NUMBER = FLOAT | INTEGER
ANY = NUMBER | {"bool", *FLOAT8_TYPES}
_WORDS = {
    FLOAT: "a floating dtype",
    INTEGER: "an integer dtype",
    BITS: "an integer dtype or bool",
    NUMBER: "a number's dtype (bool is none; astype it first)",
    ANY: "a scalar dtype",
}


def tensor(
    x: Expr, name: str, takes: Collection[str] = ANY, ndim: int | None = None
) -> TensorStructInfo:
    """The struct info of the argument `x`, which must be a tensor.

    takes  the kinds of dtype it may have; an unknown dtype passes
    ndim   the rank it must have; an unknown rank passes
    """
    info = x.struct_info
    if not isinstance(info, TensorStructInfo):
        raise StructInfoError(f"{name}: wanted a tensor, got {info}")
    check_kind(info.dtype, name, takes)
    if ndim is not None and info.ndim not in (-1, ndim):
        raise StructInfoError(f"{name}: wanted {ndim} dimensions, got {info.ndim}")
    return info


def check_kind(dtype: DataType, name: str, takes: Collection[str]) -> None:
    """Raise StructInfoError unless `dtype` is of one of the kinds `takes`, or unknown."""
    if dtype.kind not in takes and dtype.kind != "void":
        wanted = _WORDS.get(frozenset(takes)) or " or ".join(sorted(takes))
        raise StructInfoError(f"{name}: wanted {wanted}, got {dtype}")


def array_dtype(dtype: DataType, name: str = "dtype") -> DataType:
    """The attribute `dtype`, which must be one that arrays have. Raises StructInfoError."""
    if dtype.lanes != 1 or dtype.kind not in ANY:
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


def tensors(x: Expr, name: str, takes: Collection[str] = ANY) -> list[TensorStructInfo]:
    """The struct infos of the fields of the argument `x`, which must be a tuple of tensors."""
    info = x.struct_info
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"{name}: wanted a tuple of tensors, got {info}")
    made = []
    for i, field in enumerate(info.fields):
        if not isinstance(field, TensorStructInfo):
            raise StructInfoError(f"{name}: field {i}: wanted a tensor, got {field}")
        check_kind(field.dtype, f"{name}: field {i}", takes)
        made.append(field)
    return made


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
    given = tuple(axes) if isinstance(axes, (list, tuple)) else (axes,)
    made = tuple(axis_of(a, ndim, name) for a in given)
    if len(set(made)) != len(made):
        raise StructInfoError(f"{name}: an axis stands twice in {list(given)}")
    return made


def broadcast_dims(
    shapes: Sequence[Sequence[PrimExpr]], names: Sequence[str], checked: bool = False
) -> tuple[PrimExpr, ...] | None:
    """numpy's broadcast of several shapes; None where it depends on what symbols turn out to be.

    checked  whether the program checks that the broadcast exists: then a size other than 1 decides
    Raises StructInfoError naming the two arguments if dimensions certainly do not fit.
    """
    ndim = max((len(s) for s in shapes), default=0)
    result: list[PrimExpr | None] = []
    for k in range(ndim):
        at = k - ndim
        have = [(s[at], name) for s, name in zip(shapes, names) if len(s) >= -at]
        result.append(_broadcast_dim(have, at, checked))
    return None if any(d is None for d in result) else tuple(d for d in result if d is not None)


def _broadcast_dim(have: list[tuple[PrimExpr, str]], at: int, checked: bool) -> PrimExpr | None:
    chosen, whose = have[0]
    doubtful = False
    for dim, name in have[1:]:
        if _is_one(dim):
            continue
        if _is_one(chosen):
            chosen, whose = dim, name
            continue
        same = prove_dims(chosen, dim)
        if checked and same is None and isinstance(dim, IntImm):
            chosen, whose = dim, name
        if checked and same is None and isinstance(chosen, IntImm):
            continue
        if same is False and no_broadcast(chosen, dim) and no_broadcast(dim, chosen):
            raise StructInfoError(
                f"the shapes do not broadcast: dimension {at} is {plain_text(chosen)} in {whose} "
                f"and {plain_text(dim)} in {name}; wanted equal ones, or 1"
            )
        doubtful = doubtful or same is not True
    return None if doubtful else chosen


def differ(a: PrimExpr, b: PrimExpr) -> bool:
    """Whether two sizes are certainly not equal, whatever the symbols are."""
    return prove_dims(a, b) is False


def no_multiple(size: PrimExpr, of: int) -> bool:
    """Whether a size is certainly no multiple of `of`."""
    return differ(size % of, const(0, "int64"))


def no_broadcast(size: PrimExpr, target: PrimExpr) -> bool:
    """Whether an axis of `size` certainly does not broadcast to `target`."""
    return differ(size, target) and differ(size, const(1, "int64"))


def _is_one(dim: PrimExpr) -> bool:
    return isinstance(dim, IntImm) and dim.value == 1


def shape_dims(shape: Expr, name: str = "shape") -> tuple[tuple[PrimExpr, ...] | None, int]:
    """The dimensions that the argument `shape` gives (None if unknown), and how many there are (-1
    if unknown).
    """
    if type(shape) is ShapeExpr and not shape.open:
        return shape.values, len(shape.values)
    info = shape.struct_info
    if not isinstance(info, ShapeStructInfo):
        raise StructInfoError(f"{name}: wanted a shape, got {info}")
    return info.values, info.ndim


def shape_field(shape: Expr) -> Expr | None:
    """What the struct info of a tensor of the shape `shape` says: its dimensions, or the variable
    that holds it; None if that is not known.
    """
    if type(shape) is ShapeExpr:
        return shape
    info: Any = shape.struct_info
    if info.values is not None:
        return ShapeExpr(info.values)
    return shape if isinstance(shape, Var) else None


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


def scalar_or_tensor(x: Expr, name: str, takes: Collection[str] = ANY) -> StructInfo:
    """The struct info of an argument that is a tensor or a scalar value."""
    info = x.struct_info
    if isinstance(info, PrimStructInfo):
        check_kind(info.dtype, name, takes)
        return info
    return tensor(x, name, takes)
