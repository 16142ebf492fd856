"""Products of tensors: matmul, linear, dot, outer; of matrices: linalg.det, linalg.inv. `einsum`
has a file of its own.

Sums of float16 and bfloat16 products accumulate in float32 and are rounded once; integers wrap in
the result's dtype.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import UNKNOWN, DataType, Span, StructInfoError, submodules
from ...base import dtype as as_dtype
from ...ir import PrimExpr, Select, cast, const, is_const
from ...runtime import library_linalg as library
from ..derive import common_vdevice, prove_dims
from ..expr import Call, ExternFunc, Tuple
from ..rules import LowerBuilder, Ops, operator_name
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo
from .call import call_dps_packed
from .infer import FLOAT, NUMBER, dtype_of, same_dtype, tensor, tensor_of
from .lower import call_te, rounded, te_lower
from .meaning import value_dtype
from .names import ops
from .record import missing, op
from .sizes import KnownTensor, broadcast_dims, want_equal

_PAIRS = missing("a product pairs axes by position")


def accumulator(dtypes: Sequence[DataType], out: DataType) -> DataType:
    """The dtype that sums of products of `dtypes` are kept in when the result is `out`."""
    floats = [d for d in (*dtypes, out) if d.is_float]
    if not floats:
        return out
    return DataType("float64" if any(d.bits == 64 for d in floats) else "float32")


def product_dtype(
    x1: TensorStructInfo, x2: TensorStructInfo, out_dtype: DataType | None
) -> DataType:
    """The dtype of a sum of products: `out_dtype`, or the one that both operands have."""
    if out_dtype is None:
        return same_dtype((x1, x2), ("x1", "x2"))
    if not (out_dtype.is_float or out_dtype.is_int):
        raise StructInfoError(f"out_dtype: wanted a number's dtype, got {out_dtype}")
    for name, info in (("x1", x1), ("x2", x2)):
        if info.dtype.kind != "void" and info.dtype.is_float and not out_dtype.is_float:
            raise StructInfoError(
                f"out_dtype: {name} is {info.dtype}, so it is a floating dtype; got {out_dtype}"
            )
    return out_dtype


def as_out_dtype(value: Any) -> DataType | None:
    """The attribute out_dtype: None, "" and "void" all mean the operands' own."""
    return None if value in (None, "", "void") else dtype_of(value, "out_dtype")


def np_accumulate(arrays: Sequence[Any], out: Any) -> tuple[list[np.ndarray], np.dtype]:
    """Arrays in the dtype that their products are summed in, and the dtype of the result."""
    arrays = [np.asarray(a) for a in arrays]
    result = value_dtype(out) if out is not None else arrays[0].dtype
    floats = [d for d in (*(a.dtype for a in arrays), result) if d.kind == "f"]
    if not floats:
        return [a.astype(result) for a in arrays], result
    wide = np.dtype("float64" if any(d.itemsize == 8 for d in floats) else "float32")
    return [a.astype(wide) for a in arrays], result


# -- matmul ----------------------------------------------------------------------------------------


def _matmul_numpy(x1: Any, x2: Any, *, out_dtype: Any = None) -> Any:
    (a, b), result = np_accumulate((x1, x2), as_out_dtype(out_dtype))
    total = np.matmul(a, b)
    if a.dtype == np.float32 and 0 < a.shape[-1] <= 1024 and a.shape[-1] * total.size <= 1 << 20:
        # As kernels add up. BLAS gives a row of a wider matrix other digits on some machines.
        left, right = np.atleast_2d(a).astype("float64"), b if b.ndim > 1 else b[:, None]
        sums = np.zeros(1, "float32")
        with np.errstate(all="ignore"):
            for k in range(a.shape[-1]):
                sums = (sums + left[..., k, None] * right[..., k, None, :]).astype("float32")
        total = sums.reshape(total.shape)
    return total.astype(result)


def _inner(second: TensorStructInfo) -> int:
    """The axis of the second operand that is summed over."""
    return -2 if second.ndim > 1 else -1


def _matmul_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr, Expr]:
    x1, x2 = call.args
    one, two = _known_ranks(call)
    a = ops.expand_dims(x1, axis=0) if one == 1 else x1
    b = ops.expand_dims(x2, axis=1) if two == 1 else x2
    g = ops.expand_dims(gy, axis=-1) if two == 1 else gy
    g = ops.expand_dims(g, axis=-2) if one == 1 else g
    ga = ops.matmul(g, _swapped(ops, b), out_dtype=_dtype_of(x1))
    gb = ops.matmul(_swapped(ops, a), g, out_dtype=_dtype_of(x2))
    return _to_shape_of(ops, ga, a, x1), _to_shape_of(ops, gb, b, x2)


def _known_ranks(call: Call) -> list[int]:
    ranks: list[int] = [tensor_of(x).ndim for x in call.args]
    if -1 in ranks:
        short = operator_name(call)
        raise StructInfoError(f"{short}: its gradient needs operands of known rank")
    return ranks


def _dtype_of(x: Expr) -> str:
    return str(tensor_of(x).dtype)


def _swapped(ops: Ops, x: Expr) -> Expr:
    ndim = tensor_of(x).ndim
    order = [*range(ndim - 2), ndim - 1, ndim - 2]
    return ops.permute_dims(x, axes=order)


def _to_shape_of(ops: Ops, g: Expr, padded: Expr, x: Expr) -> Expr:
    """`g` summed over broadcast batch axes to the shape of `padded`, and without its axis of size 1
    if `x` has none.
    """
    have: Any = g.struct_info
    want: Any = padded.struct_info
    same = have.dims is not None and want.dims is not None and len(have.dims) == len(want.dims)
    if not (same and all(prove_dims(p, q) for p, q in zip(have.dims, want.dims))):
        g = ops.collapse_sum_to(g, want.shape if want.shape is not None else ops.shape_of(padded))
    if padded is x:
        return g
    info: Any = x.struct_info
    return ops.reshape(g, info.shape if info.shape is not None else ops.shape_of(x))


def _own_index(
    dims: Sequence[PrimExpr], index: Sequence[PrimExpr], out: Sequence[PrimExpr]
) -> list[PrimExpr]:
    """The index into axes `dims` (the last ones of `out`) at `index` of the axes `out`."""
    start = len(out) - len(dims)
    own: list[PrimExpr] = []
    for dim, i, d in zip(dims, index[start:], out[start:]):
        zero = const(0, i.dtype)
        if is_const(dim, 1):
            own.append(zero)
        elif prove_dims(dim, d):
            own.append(i)
        else:
            own.append(Select(dim.equal(const(1, dim.dtype)), zero, i))
    return own


def matmul_te(
    dims: Sequence[PrimExpr], a: te.Tensor, b: te.Tensor, *, out_dtype: Any, prepare: Any = None
) -> te.Tensor:
    """The tensor of shape `dims` that is the matrix product of `a` and `b`.

    prepare  (which, value, index) -> value, applied to elements before they are multiplied
    """
    out = as_dtype(out_dtype)
    wide = accumulator((a.dtype, b.dtype), out)
    batch = len(dims) - (a.ndim > 1) - (b.ndim > 1)
    k = te.reduce_axis((0, a.shape[-1]), "k")

    def element(which: int, x: te.Tensor, place: list[PrimExpr]) -> PrimExpr:
        value = cast(wide, x(*place))
        return value if prepare is None else prepare(which, value, place)

    def value(*index: PrimExpr) -> PrimExpr:
        own_a = _own_index(a.shape[:-2], index[:batch], dims[:batch])
        own_b = _own_index(b.shape[:-2], index[:batch], dims[:batch])
        row = [index[batch]] if a.ndim > 1 else []
        column = [index[-1]] if b.ndim > 1 else []
        left = element(0, a, [*own_a, *row, k.var])
        right = element(1, b, [*own_b, k.var, *column])
        return te.sum(left * right, axis=k)

    return rounded(te.compute(tuple(dims), value, "matmul"), out)


def matmul_info(
    x1: KnownTensor,
    x2: KnownTensor,
    dtype: DataType,
    names: tuple[str, str] = ("x1", "x2"),
) -> TensorStructInfo:
    """The struct info of a matrix product by numpy's rules. Raises StructInfoError if shapes do not
    fit.
    """
    for info, name in ((x1, names[0]), (x2, names[1])):
        if info.ndim == 0:
            raise StructInfoError(f"{name}: wanted at least 1 dimension, got a scalar")
    vdevice = common_vdevice((x1, x2))
    want_equal(
        x1.dims[-1],
        x2.dims[_inner(x2)],
        "inner dimensions differ: the last one of {x} is {a}, dimension {n} of {y} is {b}",
        x=names[0],
        y=names[1],
        n=_inner(x2),
    )
    batch = broadcast_dims([x1.dims[:-2], x2.dims[:-2]], names)
    lines = (*x1.dims[-2:-1], *(x2.dims[-1:] if x2.ndim > 1 else ()))
    if batch is None:
        ndim = max(x1.ndim, x2.ndim) - 2 + len(lines)
        return TensorStructInfo(None, dtype, vdevice, ndim)
    return TensorStructInfo((*batch, *lines), dtype, vdevice)


def _matmul_lower(builder: LowerBuilder, call: Call) -> Expr:
    info: Any = call.struct_info
    dims = ShapeExpr(info.dims)
    return call_te(builder, call, matmul_te, dims, *call.args, out_dtype=str(info.dtype))


@op("matmul", _matmul_numpy, _matmul_lower, _matmul_grad, _PAIRS)
def matmul(x1: Expr, x2: Expr, out_dtype: str | DataType | None = None) -> StructInfo:
    """Matrix product by numpy's rules: the last axis of `x1` against the last but one of `x2`;
    leading axes broadcast.

    x1, x2   [..., m, k] and [..., k, n], or [k]; the result is [..., m, n] without the axes that a
             vector lacks
    Raises StructInfoError if an operand is a scalar, the inner dimensions differ, or the dtypes do
    and out_dtype is None.
    """
    a, b = tensor(x1, "x1", NUMBER), tensor(x2, "x2", NUMBER)
    return matmul_info(a, b, product_dtype(a, b, as_out_dtype(out_dtype)))


def linear(
    data: Expr,
    weight: Expr,
    bias: Expr | None = None,
    out_dtype: str | DataType | None = None,
    span: Span = UNKNOWN,
) -> Call:
    """data @ weight.T + bias: `data` [..., k], `weight` [n, k] or [k], `bias` [n]. An expression of
    several operators.
    """
    info = tensor(weight, "linear: weight", NUMBER)
    if info.ndim not in (-1, 1, 2):
        raise StructInfoError(f"linear: weight: wanted 1 or 2 dimensions, got {info.ndim}")
    turned = ops.permute_dims(weight, span=span)
    product: Call = ops.matmul(data, turned, out_dtype=out_dtype, span=span)
    return product if bias is None else ops.add(product, bias, span=span)


# -- dot and outer ---------------------------------------------------------------------------------


def _dot_numpy(x1: Any, x2: Any) -> Any:
    (a, b), result = np_accumulate((x1, x2), None)
    return np.asarray(np.dot(a, b)).astype(result)


def _dot_lower(builder: LowerBuilder, call: Call) -> Expr:
    x1, x2 = call.args
    if 0 in (tensor_of(x).ndim for x in call.args):
        return ops.multiply(x1, x2)
    return call_te(builder, call, _dot_te, x1, x2)


def _dot_te(a: te.Tensor, b: te.Tensor) -> te.Tensor:
    wide = accumulator((a.dtype, b.dtype), a.dtype)
    k = te.reduce_axis((0, a.shape[-1]), "k")
    rest = b.shape[:-2] + b.shape[-1:] if b.ndim > 1 else ()

    def value(*index: PrimExpr) -> PrimExpr:
        own = list(index[a.ndim - 1 :])
        own.insert(max(len(own) - 1, 0), k.var)
        left, right = a(*index[: a.ndim - 1], k.var), b(*own)
        return te.sum(cast(wide, left) * cast(wide, right), axis=k)

    return rounded(te.compute((*a.shape[:-1], *rest), value, "dot"), a.dtype)


def _dot_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr, ...]:
    x1, x2 = call.args
    one, two = _known_ranks(call)
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
    first, second = letters[:one], letters[one : one + two]
    if one and two:
        place = max(two - 2, 0)
        second = second[:place] + first[-1] + second[place + 1 :]
        out = first[:-1] + second.replace(first[-1], "")
    else:
        out = first + second
    return (
        ops.einsum((gy, x2), subscripts=f"{out},{second}->{first}"),
        ops.einsum((x1, gy), subscripts=f"{first},{out}->{second}"),
    )


@op("dot", _dot_numpy, _dot_lower, _dot_grad, _PAIRS)
def dot(x1: Expr, x2: Expr) -> StructInfo:
    """numpy's dot: sums over the last axis of `x1` and the last but one of `x2`; all other axes
    stay, x1's first.

    A scalar multiplies. Raises StructInfoError if the dtypes or the inner dimensions differ.
    """
    a, b = tensor(x1, "x1", NUMBER), tensor(x2, "x2", NUMBER)
    dtype = same_dtype((a, b), ("x1", "x2"))
    if a.ndim == 0 or b.ndim == 0:
        return TensorStructInfo((*a.dims, *b.dims), dtype, a.vdevice)
    text = "inner dimensions differ: {a} in x1 and {b} in x2"
    want_equal(a.dims[-1], b.dims[_inner(b)], text)
    rest = (*b.dims[:-2], b.dims[-1]) if b.ndim > 1 else ()
    return TensorStructInfo((*a.dims[:-1], *rest), dtype, a.vdevice)


def _outer_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr, ...]:
    x1, x2 = call.args
    return ops.matmul(gy, x2), ops.matmul(x1, gy)


@op(
    "outer",
    numpy=lambda x1, x2: np.multiply(x1[:, None], x2[None, :]),
    lower=te_lower(
        lambda x1, x2: te.compute((x1.shape[0], x2.shape[0]), lambda i, j: x1(i) * x2(j), "outer")
    ),
    grad=_outer_grad,
    layout=_PAIRS,
)
def outer(x1: Expr, x2: Expr) -> StructInfo:
    """All products of an element of the vector `x1` [n] and one of `x2` [m]: [n, m]."""
    a, b = tensor(x1, "x1", NUMBER, ndim=1), tensor(x2, "x2", NUMBER, ndim=1)
    dtype = same_dtype((a, b), ("x1", "x2"))
    return TensorStructInfo((a.dims[0], b.dims[0]), dtype, a.vdevice)


# -- det and inv -----------------------------------------------------------------------------------

_MATRICES = missing("rows and columns are the last two axes")


def _in_library(name: str) -> Any:
    def lower(builder: LowerBuilder, call: Call) -> Expr:
        function = ExternFunc(f"vm.library.{name}")
        return call_dps_packed(function, Tuple(call.args), call.struct_info, span=call.span)

    return lower


def _square(x: Expr) -> KnownTensor:
    info = tensor(x, "x", FLOAT)
    if info.ndim < 2:
        raise StructInfoError(f"x: wanted 2 or more dimensions, got {info.ndim}")
    want_equal(info.dims[-1], info.dims[-2], "x: wanted square matrices, got {b} rows of {a}")
    return info


def _det_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    """Of a matrix that has an inverse."""
    scale = ops.expand_dims(ops.multiply(gy, y), axis=[-2, -1])
    return (ops.multiply(scale, _swapped(ops, ops.linalg.inv(call.args[0]))),)


@op("linalg.det", library.det_values, _in_library("det"), _det_grad, _MATRICES)
def det(x: Expr) -> StructInfo:
    """The determinants of the matrices `x` [..., n, n]."""
    info = _square(x)
    return TensorStructInfo(info.dims[:-2], info.dtype, info.vdevice)


def _inv_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    turned = _swapped(ops, y)
    return (ops.negative(ops.matmul(ops.matmul(turned, gy), turned)),)


@op("linalg.inv", library.inv_values, _in_library("inv"), _inv_grad, _MATRICES)
def inv(x: Expr) -> StructInfo:
    """The inverses of the matrices `x` [..., n, n]. A singular one stops the program."""
    return _square(x)


__getattr__ = submodules(__name__)
