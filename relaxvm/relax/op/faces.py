"""What operators on shapes and indices share: faces that prepare arguments, scalars in tuples,
sizes that are computed from symbols, and indices that count from either end.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ...base import UNKNOWN, RelaxvmError, StructInfoError, VMValueError
from ...ir import And, PrimExpr, Select, cast
from ..expr import Call, PrimValue, Tuple
from ..rules import Ops
from ..struct_info import (
    Expr,
    PrimStructInfo,
    ShapeExpr,
    ShapeStructInfo,
    TupleStructInfo,
)
from .infer import dims_product, known_sizes, tensor_of
from .record import Operator, P, attribute_value, face_of, plain_value
from .sizes import ZERO, simplified


def prepared(
    prepare: Callable[[dict[str, Any]], object],
) -> Callable[[Operator[P]], Operator[P]]:
    """Decorator over `@op`: the face of an operator, which lets `prepare` change the arguments by
    name first. It sees attributes as plain values, such as tuples for lists.
    """

    def wrap(build: Operator[P]) -> Operator[P]:
        record = build.op
        checked: Callable[..., Call] = build

        @functools.wraps(build)
        def face(*args: Any, **keywords: Any) -> Call:
            span = keywords.pop("span", UNKNOWN)
            try:
                bound = record.signature.bind(*args, **keywords)
            except TypeError:
                # The operator's own complaint is the better one.
                return checked(*args, span=span, **keywords)
            bound.apply_defaults()
            values = dict(bound.arguments)
            for p in record.params:
                if p.form is None:
                    values[p.name] = attribute_value(p, values[p.name])
            try:
                prepare(values)
            except RelaxvmError as error:
                raise StructInfoError(f"{record.short}: {error}") from None
            return checked(span=span, **values)

        return face_of(build)(face)

    return wrap


# -- scalars --------------------------------------------------------------------------------------


def as_scalars(values: Any) -> Any:
    """A sequence of numbers and scalar expressions as a tuple expression; one scalar is a tuple of
    it.
    """
    if isinstance(values, (Expr, type(None))) and not isinstance(values, PrimValue):
        return values
    values = plain_value(values)
    if isinstance(values, (int, PrimExpr, PrimValue)):
        values = (values,)
    if isinstance(values, (str, bytes, type)) or not isinstance(values, Iterable):
        raise StructInfoError(f"wanted a sequence of integers, got {values!r}")
    return Tuple(tuple(v if isinstance(v, Expr) else PrimValue(v) for v in values))


def scalars(x: Expr, name: str) -> list[PrimExpr]:
    """The int64 values of an argument that is a tuple of scalars or a shape."""
    info = x.struct_info
    if isinstance(info, ShapeStructInfo) and info.values is not None:
        return list(info.values)
    if not isinstance(info, TupleStructInfo):
        raise StructInfoError(f"{name}: wanted a tuple of integers, got {info}")
    values = []
    for i, field in enumerate(info.fields):
        if not isinstance(field, PrimStructInfo) or not field.dtype.is_int:
            raise StructInfoError(f"{name}: field {i}: wanted an integer, got {field}")
        if field.value is None:
            raise StructInfoError(f"{name}: field {i}: wanted an integer that is known")
        values.append(cast("int64", field.value))
    return values


# -- indices --------------------------------------------------------------------------------------


def from_end(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """An int64 index into an axis of `size`; a negative one counts from the end."""
    wide = cast("int64", index)
    if not index.dtype.is_signed:
        return wide
    return Select(wide < ZERO, wide + cast("int64", size), wide)


def inside(index: PrimExpr, size: PrimExpr) -> PrimExpr:
    """Whether an int64 index that is counted from the front lies in an axis of `size`."""
    return And(index >= ZERO, index < cast("int64", size))


def bounded(index: Any, size: int, what: str) -> np.ndarray:
    """Indices counted from the front. Raises VMValueError for one outside an axis of `size`."""
    raw = np.asarray(index)
    wide = raw.astype("int64")
    wide = np.where(wide < 0, wide + size, wide) if raw.dtype.kind == "i" else wide
    if wide.size and (wide.min() < 0 or wide.max() >= size):
        raise VMValueError(f"{what}: an index is out of bounds for size {size}")
    return wide


def ravel(index: Sequence[PrimExpr], dims: Sequence[PrimExpr]) -> PrimExpr:
    """The position of `index` in a row-major array of `dims`."""
    flat: PrimExpr = ZERO
    for i, d in zip(index, dims):
        flat = i if flat is ZERO else flat * cast("int64", d) + i
    return flat


def unravel(flat: PrimExpr, dims: Sequence[PrimExpr]) -> list[PrimExpr]:
    """The index at the position `flat` of a row-major array of `dims`."""
    index: list[PrimExpr] = []
    for k, d in enumerate(reversed(dims)):
        last = k == len(dims) - 1
        index.append(flat if last else flat % d)
        flat = flat // d
    return index[::-1]


# -- gradients ------------------------------------------------------------------------------------


def dims_of(x: Expr) -> Any:
    """The shape of a tensor as an argument: its dimensions, or what computes them."""
    info: Any = x.struct_info
    return ShapeExpr(info.dims) if info.dims is not None else None


def reshaped_to(ops: Ops, gradient: Expr, x: Expr) -> Expr:
    """`gradient` in the shape of `x`."""
    shape = dims_of(x)
    result: Expr = ops.reshape(gradient, ops.shape_of(x) if shape is None else shape)
    return result


def numbered(ops: Ops, x: Expr) -> tuple[Expr, PrimExpr]:
    """The numbers 0, 1, ... of the elements of `x` in row-major order, in its shape, and how many.

    What moves elements moves them too, and so tells where gradients go back. Raises StructInfoError
    if the shape of `x` is not known.
    """
    dims = known_sizes(x, "the gradient: the tensor")
    count = simplified(dims_product(dims))
    result: Expr = ops.reshape(ops.arange(0, PrimValue(count)), ShapeExpr(dims))
    return result, count


# -- axes -----------------------------------------------------------------------------------------


def at_axis(x: Any, axis: int) -> int:
    """`axis` of the tensor `x`, counted from the front; as it is if the rank is not known."""
    ndim = tensor_of(x).ndim if isinstance(x, Expr) else x.ndim
    return axis + ndim if axis < 0 and ndim >= 0 else axis
