"""`topi.utils`: constants and indices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arith import simplify
from ..base import TIRError, submodules
from ..ir import FloatImm, IntImm, PrimExpr, const
from ..relax import op as ops
from ..relax.op.nn.layout import Layout
from ..relax.op.record import plain_value
from ..te import Tensor

__all__ = [
    "ceil_div",
    "equal_const_int",
    "get_const_float",
    "get_const_int",
    "get_const_tuple",
    "get_max_power2_factor",
    "is_empty_shape",
    "prod",
    "ravel_index",
    "simplify",
    "unravel_index",
    "within_index",
]


def get_const_int(expr: Any) -> int:
    """The value of a constant integer expression. Raises TIRError if it is none."""
    value = simplify(expr) if isinstance(expr, PrimExpr) else expr
    value = plain_value(value)
    if not isinstance(value, int):
        raise TIRError(f"wanted a constant integer, got {expr}")
    return value


def get_const_float(expr: Any) -> float:
    """The value of a constant float expression. Raises TIRError if it is none."""
    value = simplify(expr) if isinstance(expr, PrimExpr) else expr
    if isinstance(value, FloatImm):
        return float(value.value)
    if not isinstance(value, float):
        raise TIRError(f"wanted a constant float, got {expr}")
    return value


def get_const_tuple(in_tuple: Any) -> tuple[Any, ...]:
    """Dimensions as Python ints; those that are not constant stay expressions."""
    dims = []
    for e in in_tuple:
        value = simplify(e) if isinstance(e, PrimExpr) else e
        dims.append(value.value if isinstance(value, IntImm) else value)
    return tuple(dims)


def equal_const_int(expr: Any, value: int) -> bool:
    """Whether an expression is the constant `value`."""
    e = simplify(expr) if isinstance(expr, PrimExpr) else expr
    return bool(plain_value(e) == value) if isinstance(e, (int, IntImm)) else False


def prod(x: Sequence[Any]) -> Any:
    """The product; 1 of none."""
    product: Any = const(1, "int32")
    for e in x:
        product = product * e
    return product


def ravel_index(indices: Sequence[Any], shape: Sequence[Any]) -> Any:
    """The place of an element of an array of `shape` in row-major order."""
    flat: Any = None
    for i, d in zip(indices, shape):
        flat = i if flat is None else flat * d + i
    return flat


def unravel_index(idx: Any, shape: Sequence[Any]) -> list[Any]:
    """The indices of the element at a place in row-major order."""
    indices: list[Any] = []
    for d in reversed(list(shape)):
        indices.insert(0, idx % d)
        idx = idx // d
    return indices


def within_index(b: Any, e: Any, s: Any, i: Any) -> PrimExpr:
    """Whether `i` is one of b, b + s, ... before `e`."""
    inside = (i >= b) & (i < e) if get_const_int(s) > 0 else (i <= b) & (i > e)
    return inside & ((i - b) % s).equal(0)


def get_max_power2_factor(n: int, max_value: int | None = None) -> int:
    """The greatest power of two that divides `n` (and is at most `max_value`)."""
    x = 1
    while n % 2 == 0 and n and not (max_value is not None and max_value < x * 2):
        x, n = x * 2, n // 2
    return x


def ceil_div(a: Any, b: Any) -> Any:
    """a / b rounded up."""
    return (a + (b - 1)) // b


def is_empty_shape(shape: Sequence[Any]) -> bool:
    """Whether an array of `shape` has no elements."""
    return any(equal_const_int(d, 0) for d in shape)


# -- for the tables of this room -------------------------------------------------------------------


def plain(value: Any) -> Any:
    """Constant expressions as Python numbers, in sequences too."""
    return plain_value(value)


def sizes_of(x: Any) -> Sequence[PrimExpr]:
    """The dimensions of a graph expression or a tensor."""
    return x.shape if isinstance(x, Tensor) else x.struct_info.dims


def transposed(x: Any, wanted: bool = True) -> Any:
    """A graph expression with its last two axes exchanged."""
    if not wanted:
        return x
    ndim = x.struct_info.ndim
    return ops.permute_dims(x, (*range(ndim - 2), ndim - 1, ndim - 2))


def change_layout(x: Any, src_layout: str, dst_layout: str) -> Any:
    """A graph expression in another layout, such as NCHW16c."""
    source, wanted = Layout(src_layout), Layout(dst_layout)
    if len(source.parts) != x.struct_info.ndim or sorted(source.plain) != sorted(wanted.plain):
        raise TIRError(
            f"layout_transform: no way from {src_layout} to {dst_layout} for {x.struct_info}"
        )
    order = "".join(source.plain)
    by_name: Any = ops
    plain_order = source.plain_expr(by_name, x, order)
    return wanted.from_plain_expr(by_name, plain_order, order)


__getattr__ = submodules(__name__)
