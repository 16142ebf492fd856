"""TVM's operator library: functions from `te.Tensor`s to `te.Tensor`s, with TVM's names.

Enters: tensors, numbers, scalar expressions. Leaves: tensors, as formulas. Each is what an operator
of `relax.op` legalises to (see `derive`); nothing is computed in a way of its own here.
Not done here: schedules (`tir/schedule`), other targets than the CPU.
"""

from __future__ import annotations

from typing import Any

from ..base import DataType, TIRError, submodules
from ..base import dtype as as_dtype
from ..ir import INT32, And, IntImm, Max, Min, Or, PrimExpr, Select, const, match
from ..ir import cast as ir_cast
from ..relax import Tuple
from ..relax import op as ops
from ..relax.op.families import te_reduce
from ..relax.op.lower import elementwise
from ..te import Tensor, comm_reducer, compute
from ..tir import op as scalar_ops
from . import image as image
from . import nn as nn
from . import utils as utils
from .derive import named, of
from .ordering import argsort, searchsorted, sort, topk

# -- element by element ----------------------------------------------------------------------------

identity = of(lambda x: x)
abs = of(lambda x: ops.abs(x))
acos = of(lambda x: ops.acos(_floating(x)))
acosh = of(lambda x: ops.acosh(_floating(x)))
asin = of(lambda x: ops.asin(_floating(x)))
asinh = of(lambda x: ops.asinh(_floating(x)))
atan = of(lambda x: ops.atan(_floating(x)))
atanh = of(lambda x: ops.atanh(_floating(x)))
ceil = of(lambda x: ops.ceil(x))
cos = of(lambda x: ops.cos(_floating(x)))
cosh = of(lambda x: ops.cosh(_floating(x)))
erf = fast_erf = of(lambda x: ops.erf(_floating(x)))
exp = fast_exp = of(lambda x: ops.exp(_floating(x)))
floor = of(lambda x: ops.floor(x))
isfinite = of(lambda x: ops.isfinite(x))
isinf = of(lambda x: ops.isinf(x))
isnan = of(lambda x: ops.isnan(x))
log = of(lambda x: ops.log(_floating(x)))
log2 = of(lambda x: ops.log2(_floating(x)))
log10 = of(lambda x: ops.log10(_floating(x)))
log1p = of(lambda x: ops.log1p(_floating(x)))
negative = of(lambda x: ops.negative(x))
round = of(lambda x: ops.round(x))
rsqrt = of(lambda x: ops.rsqrt(_floating(x)))
sigmoid = of(lambda x: ops.sigmoid(_floating(x)))
sign = of(lambda x: ops.sign(x))
sin = of(lambda x: ops.sin(_floating(x)))
sinh = of(lambda x: ops.sinh(_floating(x)))
sqrt = of(lambda x: ops.sqrt(_floating(x)))
tan = of(lambda x: ops.tan(_floating(x)))
tanh = fast_tanh = of(lambda x: ops.tanh(_floating(x)))
trunc = of(lambda x: ops.trunc(x))
bitwise_not = of(lambda data: ops.bitwise_not(data))
logical_not = of(lambda data: ops.logical_not(data))
clip = of(lambda x, a_min, a_max: ops.clip(x, a_min, a_max))
cast = of(lambda x, dtype, span=None: ops.astype(x, dtype))


def _floating(x: Any) -> Any:
    """Integers as float32, for functions of real numbers."""
    info = x.struct_info if hasattr(x, "struct_info") else None
    is_int = info is not None and (info.dtype.is_int or info.dtype.is_bool)
    return ops.astype(x, as_dtype("float32")) if is_int else x


def reinterpret(x: Tensor, dtype: Any) -> Tensor:
    """The bits of each element as those of `dtype`, which is of the same width."""
    return elementwise(x, lambda v: scalar_ops.reinterpret(dtype, v))


def elemwise_sum(xs: Any) -> Any:
    """The sum of tensors of one shape."""
    total, *others = xs
    for x in others:
        total = add(total, x)
    return total


# -- two operands that broadcast -------------------------------------------------------------------


def _binary(operator: Any) -> Any:
    """A function of two operands; if their dtypes differ, both are cast to what holds either."""

    def pair(lhs: Any, rhs: Any) -> Any:
        return operator(*_of_one_dtype(lhs, rhs))

    function = of(pair)
    function.__name__ = function.__qualname__ = operator.op.short
    function.__doc__ = operator.__doc__
    return function


def _of_one_dtype(a: Any, b: Any) -> tuple[Any, Any]:
    a, b = (utils.plain(x) for x in (a, b))
    kinds = [_dtype_beside(x, y) for x, y in ((a, b), (b, a))]
    if None in kinds or kinds[0] is kinds[1]:
        return a, b
    common = match(*(const(0, k) for k in kinds))[0].dtype
    return _in_dtype(a, kinds[0], common), _in_dtype(b, kinds[1], common)


def _in_dtype(x: Any, kind: Any, common: DataType) -> Any:
    if isinstance(x, (int, float)) or kind is common:
        return x
    return x.astype(common) if isinstance(x, PrimExpr) else ops.astype(x, common)


def _dtype_beside(x: Any, other: Any) -> Any:
    """The dtype of an operand; None for a number that takes that of the other."""
    if not isinstance(x, (bool, int, float)):
        return getattr(getattr(x, "struct_info", x), "dtype", None)
    of_other = getattr(getattr(other, "struct_info", other), "dtype", None)
    if isinstance(x, float) and of_other is not None and not of_other.is_float:
        return as_dtype("float32")
    return None


add = _binary(ops.add)
subtract = _binary(ops.subtract)
multiply = _binary(ops.multiply)
divide = _binary(ops.divide)
floor_divide = _binary(ops.floor_divide)
mod = _binary(ops.mod)
floor_mod = _binary(ops.floor_mod)
maximum = _binary(ops.maximum)
minimum = _binary(ops.minimum)
power = _binary(ops.power)
log_add_exp = _binary(ops.log_add_exp)
left_shift = _binary(ops.left_shift)
right_shift = _binary(ops.right_shift)
bitwise_and = _binary(ops.bitwise_and)
bitwise_or = _binary(ops.bitwise_or)
bitwise_xor = _binary(ops.bitwise_xor)
equal = _binary(ops.equal)
not_equal = _binary(ops.not_equal)
greater = _binary(ops.greater)
greater_equal = _binary(ops.greater_equal)
less = _binary(ops.less)
less_equal = _binary(ops.less_equal)
logical_and = _binary(ops.logical_and)
logical_or = _binary(ops.logical_or)
logical_xor = _binary(ops.logical_xor)

# -- reductions ------------------------------------------------------------------------------------

sum = of(lambda data, axis=None, keepdims=False: ops.sum(data, axis, keepdims))
prod = of(lambda data, axis=None, keepdims=False: ops.prod(data, axis, keepdims))
max = of(lambda data, axis=None, keepdims=False: ops.max(data, axis, keepdims))
min = of(lambda data, axis=None, keepdims=False: ops.min(data, axis, keepdims))
collapse_sum = of(lambda data, target_shape: ops.collapse_sum_to(data, target_shape))
argmax = of(
    lambda data, axis=None, keepdims=False, select_last_index=False: _place(
        ops.argmax, data, axis, keepdims, select_last_index
    )
)
argmin = of(
    lambda data, axis=None, keepdims=False, select_last_index=False: _place(
        ops.argmin, data, axis, keepdims, select_last_index
    )
)
_ALL = comm_reducer(And, lambda dtype: const(True), "all")
_ANY = comm_reducer(Or, lambda dtype: const(False), "any")


def _place(operator: Any, data: Any, axis: Any, keepdims: bool, last: bool) -> Any:
    """The int32 index of the first (`select_last_index`: last) greatest or least element along
    `axis`; None: of all.
    """
    if not last:
        return ops.astype(operator(data, axis, keepdims), INT32)
    if axis is None:
        data, axis = ops.flatten(data), 0
    place = ops.astype(operator(ops.flip(data, axis), axis, keepdims), INT32)
    size = data.struct_info.shape.values[axis]
    return ops.subtract(ops.astype(ops.full((), size - 1, "int64"), INT32), place)


def all(data: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether all bools along `axis` are true."""
    return te_reduce(data, axis, keepdims, _ALL)


def any(data: Tensor, axis: Any = None, keepdims: bool = False) -> Tensor:
    """Whether one of the bools along `axis` is true."""
    return te_reduce(data, axis, keepdims, _ANY)


cumsum = of(
    lambda data, axis=None, dtype=None, exclusive=None: ops.cumsum(
        data, axis, dtype, bool(exclusive)
    )
)
cumprod = of(
    lambda data, axis=None, dtype=None, exclusive=None: ops.cumprod(
        data, axis, dtype, bool(exclusive)
    )
)

# -- shapes and places -----------------------------------------------------------------------------

broadcast_to = of(lambda data, shape: ops.broadcast_to(data, shape))
expand_dims = of(
    lambda a, axis, num_newaxis=1: ops.expand_dims(a, tuple(axis + k for k in range(num_newaxis)))
)
squeeze = of(lambda a, axis=None: ops.squeeze(a, axis))
reshape = of(lambda a, newshape: ops.reshape(a, newshape))
transpose = of(lambda a, axes=None: ops.permute_dims(a, axes))
flip = of(lambda a, axis=0: ops.flip(a, axis))
reverse_sequence = of(
    lambda a, seq_lengths, seq_axis=1, batch_axis=0: ops.reverse_sequence(
        a, seq_lengths, seq_axis, batch_axis
    )
)
concatenate = of(lambda a_tuple, axis=0: ops.concat(a_tuple, axis))
stack = of(lambda tensors, axis=0: ops.stack(tensors, axis))
split = of(lambda ary, indices_or_sections, axis=0: ops.split(ary, indices_or_sections, axis))
repeat = of(lambda a, repeats, axis: ops.repeat(a, repeats, axis))
tile = of(lambda a, reps: ops.tile(a, reps))
meshgrid = of(lambda a_tuple, indexing: ops.meshgrid(a_tuple, indexing))
strided_slice = of(
    lambda a, begin, end, strides=None, axes=None, slice_mode="end", assume_inbound=True: _slice(
        a, begin, end, strides, axes, slice_mode
    )
)
slice_scatter = of(
    lambda a, src, start, end, step=1, axis=0: ops.slice_scatter(a, src, start, end, step, axis)
)
layout_transform = of(
    lambda array, src_layout, dst_layout, schedule_rule="None": utils.change_layout(
        array, src_layout, dst_layout
    )
)
trilu = of(lambda data, k, upper: (ops.triu if upper else ops.tril)(data, k))


def strided_set(a: Tensor, v: Tensor, begin: Any, end: Any, strides: Any = None) -> Tensor:
    """``a`` with ``a[begin:end:strides] = v``, as numpy counts: from the end where negative.

    begin, end, strides  one integer for each of the first axes, as numbers or as tensors of one
                         axis, which may be known only when it runs; a stride is not 0
    """
    inside_of = scalar_ops.all

    def numbers(bound: Any) -> list[Any]:
        if not isinstance(bound, Tensor):
            return list(bound)
        if bound.ndim != 1 or not isinstance(bound.shape[0], IntImm):
            raise TIRError(f"strided_set: wanted a tensor of one known axis, got {bound.shape}")
        return [bound(k) for k in range(bound.shape[0].value)]

    begins, ends = numbers(begin), numbers(end)
    steps = [1] * len(begins) if strides is None else numbers(strides)
    steps += [1] * (len(begins) - len(steps))
    if not len(begins) == len(ends) == len(steps) <= a.ndim == v.ndim:
        raise TIRError(
            f"strided_set: wanted as many ends as begins, at most {a.ndim}, and a value of "
            f"{a.ndim} axes, got {len(begins)} begins, {len(ends)} ends, {v.ndim} axes"
        )

    def place(x: PrimExpr, size: PrimExpr, first: Any, stop: Any, step: Any) -> Any:
        """Whether `x` is in the slice, and where there."""
        first, stop, step = (ir_cast(x.dtype, e) for e in (first, stop, step))
        up = step > 0
        low, high = Select(up, 0 * size, 0 * size - 1), Select(up, size, size - 1)
        first, stop = (Max(low, Min(high, Select(e < 0, e + size, e))) for e in (first, stop))
        far, pace = Select(up, x - first, first - x), Max(step, -step)
        before = Select(up, x < stop, x > stop)
        inside = inside_of(far >= 0, before, scalar_ops.floormod(far, pace).equal(0))
        return inside, scalar_ops.floordiv(far, pace)

    def element(*index: PrimExpr) -> PrimExpr:
        places = [place(*each) for each in zip(index, a.shape, begins, ends, steps)]
        chosen = v(*(offset for _, offset in places), *index[len(places) :])
        return scalar_ops.if_then_else(
            inside_of(*(inside for inside, _ in places)), chosen, a(*index)
        )

    if not begins:
        return v
    return compute(a.shape, element, "strided_set")


def _slice(a: Any, begin: Any, end: Any, strides: Any, axes: Any, mode: str) -> Any:
    """Every `strides`-th element from `begin` to before `end` along `axes` (None: the first ones).

    slice_mode  "end", or "size": `end` holds sizes, -1 for all that follow
    """
    axes = list(range(len(begin))) if axes is None else list(axes)
    strides = [1] * len(begin) if strides is None else list(strides)
    strides += [1] * (len(begin) - len(strides))
    if mode == "size":
        sizes = a.struct_info.shape.values
        end = [
            sizes[x] if isinstance(n, int) and n < 0 else b + n for x, b, n in zip(axes, begin, end)
        ]
        strides = []
    stepped = [s for s in strides if not isinstance(s, int) or s != 1]
    return ops.strided_slice(a, axes, begin, end, strides if stepped else None)


# -- elements by indices ---------------------------------------------------------------------------

gather = of(lambda data, axis, indices: ops.gather_elements(data, indices, axis))
gather_nd = of(lambda a, indices, batch_dims=0: _gather_nd(a, indices, batch_dims))
scatter_elements = of(
    lambda data, indices, updates, axis=0, reduction="update": ops.scatter_elements(
        data, indices, updates, axis, reduction
    )
)
scatter_nd = of(
    lambda data, indices, updates, mode: ops.scatter_nd(data, _indices_last(indices), updates, mode)
)
index_put = of(
    lambda data, indices, values, accumulate=False: ops.index_put(data, indices, values, accumulate)
)
index_tensor = adv_index = of(lambda data, indices: ops.index_tensor(data, indices))
where = of(lambda condition, x, y: ops.where(condition, x, y))
one_hot = of(
    lambda indices, on_value, off_value, depth, axis, dtype: ops.one_hot(
        indices, const(on_value, dtype), const(off_value, dtype), depth, axis
    )
)

_take = of(lambda a, indices, axis, mode: ops.take(a, indices, axis, mode))


def take(
    a: Tensor, indices: Any, axis: Any = None, batch_dims: int = 0, mode: str = "clip"
) -> Tensor:
    """Elements of `a` along `axis` (of all, if None); the first `batch_dims` axes of both are one.

    mode  what an index out of bounds means: see `relax.op.take`
    """
    if batch_dims == 0:
        return _take(a, indices, axis, mode)
    dim = a.ndim + axis if axis < 0 else axis
    batch_dims += indices.ndim if batch_dims < 0 else 0
    size = a.shape[dim]
    rest = indices.shape[batch_dims:]

    def element(*index: PrimExpr) -> PrimExpr:
        where = indices(*index[:batch_dims], *index[dim : dim + len(rest)])
        last = (size - 1).astype(where.dtype)
        if mode == "wrap":
            where = scalar_ops.floormod(where, size.astype(where.dtype))
        else:
            where = Max(Min(where, last), const(0, where.dtype))
        return a(*index[:dim], where, *index[dim + len(rest) :])

    shape = (*a.shape[:dim], *rest, *a.shape[dim + 1 :])
    return compute(shape, element, "take")


def _indices_last(indices: Any) -> Any:
    """Indices with the coordinates along the first axis, as relax has them: along the last."""
    ndim = indices.struct_info.ndim
    return ops.permute_dims(indices, (*range(1, ndim), 0))


def _gather_nd(a: Any, indices: Any, batch_dims: int) -> Any:
    """Elements of `a` at indices, whose first axis holds the coordinates; the first `batch_dims`
    axes after it are those of `a`.
    """
    return ops.gather_nd(a, _indices_last(indices), batch_dims)


# -- products --------------------------------------------------------------------------------------

matmul = of(
    lambda a, b, transp_a=False, transp_b=False: ops.matmul(
        utils.transposed(a, transp_a), utils.transposed(b, transp_b)
    )
)
tensordot = of(lambda a, b, axes: _tensordot(a, b, axes))
einsum = of(lambda subscripts, *operands: ops.einsum(Tuple(operands), subscripts))


def _tensordot(a: Any, b: Any, axes: Any) -> Any:
    """The sums of products over `axes`: the last n of `a` with the first n of `b`, or two lists."""
    n, m = a.struct_info.ndim, b.struct_info.ndim
    if isinstance(axes, int):
        left, right = list(range(n - axes, n)), list(range(axes))
    else:
        left, right = ([x] if isinstance(x, int) else list(x) for x in axes)
    letters = [chr(ord("a") + k) for k in range(n + m)]
    second = letters[n:]
    for x, y in zip(left, right):
        second[y % m] = letters[x % n]
    kept = [c for k, c in enumerate(letters[:n]) if k not in {x % n for x in left}]
    kept += [c for k, c in enumerate(second) if k not in {y % m for y in right}]
    text = f"{''.join(letters[:n])},{''.join(second)}->{''.join(kept)}"
    return ops.einsum(Tuple((a, b)), text)


# -- new tensors -----------------------------------------------------------------------------------

full = of(lambda shape, dtype, fill_value: ops.full(shape, fill_value, dtype))
full_like = of(lambda x, fill_value: ops.full_like(x, fill_value))
ones = of(lambda shape, dtype="float32": ops.ones(shape, dtype))
zeros = of(lambda shape, dtype="float32": ops.zeros(shape, dtype))
ones_like = of(lambda x: ops.ones_like(x))
zeros_like = of(lambda x: ops.zeros_like(x))
arange = of(lambda start, stop=None, step=1, dtype="float32": ops.arange(start, stop, step, dtype))


def shape(array: Tensor, dtype: str = "int32") -> Tensor:
    """The dimensions, as a tensor."""
    dims = [full((), dtype, d.astype(dtype)) for d in array.shape]
    return stack(dims)


def ndarray_size(array: Tensor, dtype: str = "int32") -> Tensor:
    """The number of elements, as a tensor of no dimensions."""
    return full((), dtype, utils.prod(array.shape).astype(dtype))


def sequence_mask(
    data: Tensor, valid_length: Tensor, mask_value: float = 0, axis: int = 0
) -> Tensor:
    """`data` (time and batch are its first two axes, time is `axis`), with `mask_value` from
    ``valid_length[batch]`` on.
    """

    def element(*index: Any) -> Any:
        length = valid_length(index[1 - axis])
        masked = const(mask_value, data.dtype)
        return scalar_ops.if_then_else(
            index[axis].astype(length.dtype) < length, data(*index), masked
        )

    return compute(data.shape, element, "sequence_mask")


__getattr__ = submodules(__name__)
__all__ = [*named(globals()), "argsort", "searchsorted", "sort", "topk"]
