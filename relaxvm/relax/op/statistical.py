"""Reductions: sum, mean, prod, max, min, variance, std, logsumexp; median.

`axis` is an int, several, or None for all; `keepdims` leaves reduced axes with size 1. float16 and
bfloat16 accumulate in float32 and are rounded once; integers wrap in their own dtype. Over no
elements sum is 0, prod 1, max and min the identity (minus and plus infinity, or the ends of an
integer's range), mean, variance and std NaN.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ... import te, tir
from ...base import DataType, StructInfoError
from ...ir import And, IntImm, Max, Min, Or, PrimExpr, Select, cast, const
from ..expr import Call, TupleGetItem
from ..expr import const as constant
from ..rules import LowerBuilder, Ops, operator_name
from ..struct_info import Expr, StructInfo, TupleStructInfo
from .families import reduce, reduced_dims, reduced_info, te_reduce
from .infer import ANY, FLOAT, NUMBER, axes_of, dims_product, tensor
from .lower import call_te, elementwise, te_lower, wide_dtype
from .names import ops as operators
from .record import op

# -- helpers of meanings ---------------------------------------------------------------------------


def _wide(x: Any) -> np.ndarray:
    """`x` in the dtype that numpy accumulates it in here: one width up for floats."""
    x = np.asarray(x)
    up = {"float16": "float32", "float32": "float64"}.get(x.dtype.name)
    return x if up is None else x.astype(up)


def _reduced(f: Callable[..., Any], dtype: bool = False) -> Callable[..., Any]:
    """A meaning: the numpy function `f` over axes, in the wider dtype, rounded once to the dtype of
    x.
    """

    def meaning(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        x = np.asarray(x)
        wide = _wide(x)
        own = {"dtype": wide.dtype} if dtype else {}
        value = np.asarray(f(wide, axis=axis, keepdims=keepdims, **own))
        return _saturated(value, x.dtype)

    return meaning


def _saturated(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    with np.errstate(all="ignore"):
        return x.astype(dtype)


def _lowest(dtype: Any) -> Any:
    if np.dtype(dtype).kind == "b":
        return False
    return -np.inf if np.dtype(dtype).kind == "f" else np.iinfo(dtype).min


def _highest(dtype: Any) -> Any:
    if np.dtype(dtype).kind == "b":
        return True
    return np.inf if np.dtype(dtype).kind == "f" else np.iinfo(dtype).max


def _max_numpy(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    x = np.asarray(x)
    return np.asarray(np.max(x, axis=axis, keepdims=keepdims, initial=_lowest(x.dtype)))


def _min_numpy(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    x = np.asarray(x)
    return np.asarray(np.min(x, axis=axis, keepdims=keepdims, initial=_highest(x.dtype)))


def _average(f: Callable[..., Any]) -> Callable[..., Any]:
    """As `_reduced`, giving NaN rather than a warning for no elements."""
    meaning = _reduced(f)

    def quiet(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
        x = np.asarray(x)
        axes = axes_of(axis, x.ndim)
        if x.size == 0 and any(x.shape[a] == 0 for a in axes):
            shape = np.sum(x, axis=axis, keepdims=keepdims).shape
            return np.full(shape, np.nan, x.dtype)
        return meaning(x, axis=axis, keepdims=keepdims)

    return quiet


def _logsumexp_numpy(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    wide = _wide(x)
    top = _max_numpy(wide, axis=axis, keepdims=True)
    top = np.where(np.isfinite(top), top, 0)
    total = np.log(np.sum(np.exp(wide - top), axis=axis, keepdims=True)) + top
    result = total if keepdims else np.squeeze(total, axes_of(axis, wide.ndim))
    return result.astype(np.asarray(x).dtype)


# -- helpers of legalisations ----------------------------------------------------------------------


def infinite(dtype: DataType, sign: int) -> PrimExpr:
    if dtype.is_float:
        return const(sign * float("inf"), dtype)
    if dtype.is_bool:
        return const(sign > 0, dtype)
    return const(dtype.max_value if sign > 0 else dtype.min_value, dtype)


te_max = te.comm_reducer(
    lambda a, b: (Or if a.dtype.is_bool else Max)(a, b), lambda d: infinite(d, -1), "max"
)
"""As te.max, but it starts from minus infinity, so that this is the maximum of infinities below 0.
"""
te_min = te.comm_reducer(
    lambda a, b: (And if a.dtype.is_bool else Min)(a, b), lambda d: infinite(d, 1), "min"
)


def te_over(
    x: te.Tensor,
    axis: Any,
    keepdims: bool,
    value: Callable[..., PrimExpr],
    reducer: Callable[..., Any],
) -> te.Tensor:
    """The reduction over `axis` of x of ``value(x's index, index with 0 on the reduced axes)``."""
    axes = axes_of(axis, x.ndim)
    over = {a: te.reduce_axis((0, x.shape[a]), f"k{a}") for a in axes}
    dims = reduced_dims(x.shape, over, keepdims)

    def element(*index: PrimExpr) -> PrimExpr:
        rest = iter([i for k, i in enumerate(index) if not (keepdims and k in over)])
        place: list[PrimExpr] = []
        first: list[PrimExpr] = []
        for k in range(x.ndim):
            i = None if k in over else next(rest)
            place.append(over[k].var if i is None else i)
            first.append(const(0, over[k].var.dtype) if i is None else i)
        each = value(place, first)
        return reducer(each, axis=list(over.values())) if over else each

    return te.compute(dims, element, "reduced")


def _count(x: te.Tensor, axis: Any, dtype: DataType) -> PrimExpr:
    return cast(dtype, dims_product([x.shape[a] for a in axes_of(axis, x.ndim)]))


def _mean_te(x: te.Tensor, *, axis: Any, keepdims: bool) -> te.Tensor:
    count = _count(x, axis, wide_dtype(x.dtype))
    return te_reduce(x, axis, keepdims, te.sum, finish=lambda v: v / count, widen=True)


def variance_te(x: te.Tensor, *, axis: Any, keepdims: bool, root: bool = False) -> te.Tensor:
    """Mean of the squared distances from the mean: a pass for the mean, one for the distances."""
    wide = wide_dtype(x.dtype)
    count = _count(x, axis, wide)
    total = te_over(x, axis, True, lambda index, _: cast(wide, x(*index)), te.sum)
    mean = elementwise(total, lambda v: v / count, "mean")

    def squared(index: list[PrimExpr], first: list[PrimExpr]) -> PrimExpr:
        distance = cast(wide, x(*index)) - mean(*first)
        return distance * distance

    squares = te_over(x, axis, keepdims, squared, te.sum)

    def finish(v: PrimExpr) -> PrimExpr:
        return cast(x.dtype, tir.sqrt(v / count) if root else v / count)

    return elementwise(squares, finish, "variance")


def logsumexp_te(x: te.Tensor, *, axis: Any, keepdims: bool) -> te.Tensor:
    """log(sum(exp(x))), with the greatest element taken out first, so that nothing overflows."""
    wide = wide_dtype(x.dtype)
    top = te_over(x, axis, True, lambda i, _: cast(wide, x(*i)), te_max)
    zero = const(0, wide)
    base = elementwise(top, lambda v: Select(tir.isfinite(v), v, zero), "base")
    total = te_over(
        x, axis, True, lambda i, first: tir.exp(cast(wide, x(*i)) - base(*first)), te.sum
    )
    axes = axes_of(axis, x.ndim)

    def value(*index: PrimExpr) -> PrimExpr:
        rest = iter(index)
        i = [const(0, "int64") if k in axes and not keepdims else next(rest) for k in range(x.ndim)]
        return cast(x.dtype, tir.log(total(*i)) + base(*i))

    dims = reduced_dims(x.shape, axes, keepdims)
    return te.compute(dims, value, "logsumexp")


# -- helpers of gradients --------------------------------------------------------------------------


def restored(ops: Ops, call: Call, g: Expr) -> Expr:
    """`g`, of the shape of the reduction `call`, with its reduced axes back as axes of size 1."""
    info: Any = call.args[0].struct_info
    if info.ndim == -1:
        raise StructInfoError(f"{operator_name(call)}: its gradient needs a tensor of known rank")
    if call.attrs["keepdims"]:
        return g
    axes = sorted(axes_of(call.attrs["axis"], info.ndim))
    return ops.expand_dims(g, axis=axes) if axes else g


def _spread(ops: Ops, g: Expr, x: Expr) -> Expr:
    info: Any = x.struct_info
    return ops.broadcast_to(g, info.shape if info.shape is not None else ops.shape_of(x))


def _number_of_elements(ops: Ops, call: Call) -> Expr:
    """How many elements each result reduces, as a constant or a tensor of the reduction's shape
    with axes restored.
    """
    x: Any = call.args[0]
    info = x.struct_info
    axes = axes_of(call.attrs["axis"], info.ndim)
    if info.dims is not None:
        total = dims_product([info.dims[a] for a in axes])
        if isinstance(total, IntImm):
            return constant(float(total.value), info.dtype)
    return ops.sum(ops.ones_like(x), axis=call.attrs["axis"], keepdims=True)


def _sum_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    return (_spread(ops, restored(ops, call, gy), call.args[0]),)


def _mean_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    g: Any = restored(ops, call, gy)
    return (_spread(ops, ops.divide(g, _number_of_elements(ops, call)), call.args[0]),)


def _deviation(ops: Ops, call: Call) -> Any:
    x = call.args[0]
    return ops.subtract(x, ops.mean(x, axis=call.attrs["axis"], keepdims=True))


def _variance_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    g: Any = restored(ops, call, gy)
    scale = ops.divide(ops.multiply(g, 2.0), _number_of_elements(ops, call))
    return (ops.multiply(_deviation(ops, call), scale),)


def _std_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    g = ops.divide(restored(ops, call, gy), restored(ops, call, y))
    return (ops.multiply(_deviation(ops, call), ops.divide(g, _number_of_elements(ops, call))),)


def _extremum_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    """Equal extreme elements share the gradient."""
    x: Any = call.args[0]
    chosen = ops.astype(ops.equal(x, restored(ops, call, y)), x.struct_info.dtype)
    among = ops.sum(chosen, axis=call.attrs["axis"], keepdims=True)
    return (ops.multiply(chosen, ops.divide(restored(ops, call, gy), among)),)


def _prod_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    """The product of the others, without division: right where elements are 0."""
    x: Any = call.args[0]
    g = restored(ops, call, gy)
    axes = axes_of(call.attrs["axis"], x.struct_info.ndim)
    steps = [x]
    for axis in axes[:-1]:
        steps.append(ops.prod(steps[-1], axis=axis, keepdims=True))
    for axis, part in reversed(list(zip(axes, steps))):
        before = ops.cumprod(part, axis=axis, exclusive=True)
        after = ops.flip(
            ops.cumprod(ops.flip(part, axis=axis), axis=axis, exclusive=True), axis=axis
        )
        g = ops.multiply(ops.multiply(before, after), g)
    return (g,)


def _logsumexp_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    share = ops.exp(ops.subtract(call.args[0], restored(ops, call, y)))
    return (ops.multiply(share, restored(ops, call, gy)),)


# -- operators -------------------------------------------------------------------------------------


sum = reduce(
    "sum",
    "The sum over `axis`, in the dtype of x.",
    numpy=_reduced(np.sum, dtype=True),
    reducer=te.sum,
    widen=True,
    grad=_sum_grad,
)
prod = reduce(
    "prod",
    "The product over `axis`, in the dtype of x.",
    numpy=_reduced(np.prod, dtype=True),
    reducer=te.prod,
    widen=True,
    grad=_prod_grad,
)
max = reduce(
    "max",
    "The greatest element over `axis`; NaN if one is NaN. Of bools, whether any is true.",
    numpy=_max_numpy,
    reducer=te_max,
    takes=ANY,
    grad=_extremum_grad,
)
min = reduce(
    "min",
    "The least element over `axis`; NaN if one is NaN. Of bools, whether all are true.",
    numpy=_min_numpy,
    reducer=te_min,
    takes=ANY,
    grad=_extremum_grad,
)


@op("mean", _average(np.mean), te_lower(_mean_te), _mean_grad)
def mean(x: Expr, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> StructInfo:
    """The mean over `axis` of a floating tensor; NaN over no elements."""
    return reduced_info(tensor(x, "x", FLOAT), axis, keepdims)


@op("variance", _average(np.var), te_lower(variance_te), _variance_grad)
def variance(
    x: Expr, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> StructInfo:
    """The variance over `axis` of a floating tensor, divided by the number of elements; in two
    passes.
    """
    return reduced_info(tensor(x, "x", FLOAT), axis, keepdims)


@op(
    "std",
    numpy=_average(np.std),
    lower=te_lower(
        lambda x, axis, keepdims: variance_te(x, axis=axis, keepdims=keepdims, root=True)
    ),
    grad=_std_grad,
)
def std(x: Expr, axis: int | tuple[int, ...] | None = None, keepdims: bool = False) -> StructInfo:
    """The standard deviation over `axis` of a floating tensor: the root of the variance."""
    return reduced_info(tensor(x, "x", FLOAT), axis, keepdims)


@op("logsumexp", _logsumexp_numpy, te_lower(logsumexp_te), _logsumexp_grad)
def logsumexp(
    x: Expr, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> StructInfo:
    """log(sum(exp(x))) over `axis` of a floating tensor, without overflow; minus infinity over no
    elements.
    """
    return reduced_info(tensor(x, "x", FLOAT), axis, keepdims)


# -- median ----------------------------------------------------------------------------------------


def _median_numpy(x: Any, *, axis: Any = None, keepdims: bool = False) -> Any:
    x = np.asarray(x)
    axes = axes_of(axis, x.ndim)
    rest = [k for k in range(x.ndim) if k not in axes]
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    rows = np.transpose(x, (*rest, *axes)).reshape(*(x.shape[k] for k in rest), count)
    if count == 0:
        nothing = np.nan if x.dtype.kind == "f" else 0
        values = np.full(rows.shape[:-1], nothing, x.dtype)
        index = np.full(rows.shape[:-1], -1, np.int64)
    else:
        order = np.argsort(rows, axis=-1, kind="stable")
        index = order[..., (count - 1) // 2]
        last = order[..., -1]
        spoiled = np.isnan(np.take_along_axis(rows, last[..., None], -1)[..., 0].astype("float64"))
        index = np.where(spoiled, last, index).astype(np.int64)
        values = np.take_along_axis(rows, index[..., None], -1)[..., 0]
    if keepdims:
        shape = tuple(1 if k in axes else d for k, d in enumerate(x.shape))
        values, index = values.reshape(shape), index.reshape(shape)
    values = np.asarray(values)
    return (values, np.asarray(index)) if _has_index(axis) else values


def _has_index(axis: Any) -> bool:
    return isinstance(axis, int) or (axis is not None and len(axis) == 1)


def _median_lower(builder: LowerBuilder, call: Call) -> Expr:
    """Sorts the reduced axes, made one axis at the end, and picks from the order."""
    (x,) = call.args
    info: Any = x.struct_info
    axes = axes_of(call.attrs["axis"], info.ndim)
    rows: Any = x
    if axes != (info.ndim - 1,):
        rest = [k for k in range(info.ndim) if k not in axes]
        turned = operators.permute_dims(x, axes=[*rest, *axes]) if info.ndim > 1 else x
        shape = [*(info.dims[k] for k in rest), dims_product([info.dims[a] for a in axes])]
        rows = builder.emit(operators.reshape(builder.emit(turned), shape))
    order = builder.emit(operators.argsort(rows, axis=-1, descending=False, dtype="int64"))
    return call_te(
        builder,
        call,
        _median_te,
        rows,
        order,
        axes=axes,
        ndim=info.ndim,
        keepdims=call.attrs["keepdims"],
        index=_has_index(call.attrs["axis"]),
    )


def _median_te(
    rows: te.Tensor, order: te.Tensor, *, axes: Any, ndim: int, keepdims: bool, index: bool
) -> Any:
    count = rows.shape[-1]
    one = const(1, count.dtype)
    nothing = const(float("nan") if rows.dtype.is_float else 0, rows.dtype)
    none = const(-1, "int64")
    middle = te.floordiv(count - one, const(2, count.dtype))

    def row(outer: Sequence[PrimExpr]) -> list[PrimExpr]:
        return [i for k, i in enumerate(outer) if not (keepdims and k in axes)]

    def place(outer: Sequence[PrimExpr]) -> PrimExpr:
        """Where the median stands in its row."""
        last = order(*outer, count - one)
        picked = order(*outer, middle)
        return Select(tir.isnan(rows(*outer, last)), last, picked)

    rest = [d for k, d in enumerate(rows.shape[:-1])]
    dims: list[Any] = list(rest)
    if keepdims:
        it = iter(rest)
        dims = [const(1, "int64") if k in axes else next(it) for k in range(ndim)]

    def where(*outer: PrimExpr) -> PrimExpr:
        return te.if_then_else(count > 0, place(row(outer)), none)

    places = te.compute(tuple(dims), where, "index")

    def value(*outer: PrimExpr) -> PrimExpr:
        return te.if_then_else(count > 0, rows(*row(outer), places(*outer)), nothing)

    values = te.compute(tuple(dims), value, "median")
    return [values, places] if index else values


def _median_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Expr]:
    """All of it to the elements equal to the median, in equal shares."""
    axis = call.attrs["axis"]
    several = _has_index(axis)
    value, g = (TupleGetItem(e, 0) if several else e for e in (y, gy))
    x: Any = call.args[0]
    chosen = ops.astype(ops.equal(x, restored(ops, call, value)), x.struct_info.dtype)
    among = ops.sum(chosen, axis=axis, keepdims=True)
    return (ops.multiply(chosen, ops.divide(restored(ops, call, g), among)),)


@op("median", _median_numpy, _median_lower, _median_grad)
def median(
    x: Expr, axis: int | tuple[int, ...] | None = None, keepdims: bool = False
) -> StructInfo:
    """The median over `axis`: the lower of two in the middle; NaN if an element is NaN. Over
    nothing NaN (integers: 0).

    For one axis a pair: medians, and their int64 indices along it (-1 over no elements); else the
    medians alone.
    """
    info = tensor(x, "x", NUMBER)
    values = reduced_info(info, axis, keepdims)
    if not _has_index(axis):
        return values
    return TupleStructInfo((values, values.replace(dtype=DataType("int64"))))
