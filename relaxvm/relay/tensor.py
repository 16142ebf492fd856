"""Relay's operators of tensors. What `topi` has under the same name with the same arguments is the
same here: both write operators of `relax.op`.
"""

from __future__ import annotations

import inspect
from typing import Any

from .. import topi
from ..base import dtype as as_dtype
from ..base import submodules
from ..relax import Tuple
from ..relax import op as ops
from . import parts
from .parts import axes_but, dtype_of, ints
from .spelling import spelled

_topi: Any = topi


def _of_topi(name: str, first: str = "data") -> Any:
    """What `topi` has under that name; `first` is what Relay calls its first argument."""
    inner = getattr(_topi, name).__wrapped__
    head, *rest = inspect.signature(inner).parameters.values()
    if head.name not in ("x", "a"):
        return spelled(name, inner)

    def build(**arguments: Any) -> Any:
        return inner(*arguments.values())

    named: Any = build
    named.__signature__ = inspect.Signature([head.replace(name=first), *rest])
    return spelled(name, named)


abs = _of_topi("abs")
acos = _of_topi("acos")
acosh = _of_topi("acosh")
asin = _of_topi("asin")
asinh = _of_topi("asinh")
atan = _of_topi("atan")
atanh = _of_topi("atanh")
ceil = _of_topi("ceil")
cos = _of_topi("cos")
cosh = _of_topi("cosh")
erf = _of_topi("erf")
exp = _of_topi("exp")
floor = _of_topi("floor")
isfinite = _of_topi("isfinite")
isinf = _of_topi("isinf")
isnan = _of_topi("isnan")
log = _of_topi("log")
log2 = _of_topi("log2")
log10 = _of_topi("log10")
negative = _of_topi("negative")
round = spelled("round", parts.rounded)
rsqrt = _of_topi("rsqrt")
sigmoid = _of_topi("sigmoid")
sign = _of_topi("sign")
sin = _of_topi("sin")
sinh = _of_topi("sinh")
sqrt = _of_topi("sqrt")
tan = _of_topi("tan")
tanh = _of_topi("tanh")
trunc = _of_topi("trunc")
bitwise_not = _of_topi("bitwise_not")
logical_not = _of_topi("logical_not")
clip = _of_topi("clip", "a")
add = _of_topi("add")
subtract = _of_topi("subtract")
multiply = _of_topi("multiply")
divide = _of_topi("divide")
floor_divide = _of_topi("floor_divide")
mod = _of_topi("mod")
floor_mod = _of_topi("floor_mod")
maximum = _of_topi("maximum")
minimum = _of_topi("minimum")
power = _of_topi("power")
left_shift = _of_topi("left_shift")
right_shift = _of_topi("right_shift")
bitwise_and = _of_topi("bitwise_and")
bitwise_or = _of_topi("bitwise_or")
bitwise_xor = _of_topi("bitwise_xor")
equal = _of_topi("equal")
not_equal = _of_topi("not_equal")
greater = _of_topi("greater")
greater_equal = _of_topi("greater_equal")
less = _of_topi("less")
less_equal = _of_topi("less_equal")
logical_and = _of_topi("logical_and")
logical_or = _of_topi("logical_or")
logical_xor = _of_topi("logical_xor")
where = spelled("where", parts.chosen)
gather = _of_topi("gather")
cumsum = _of_topi("cumsum")
cumprod = _of_topi("cumprod")
scatter_elements = _of_topi("scatter_elements")
zeros_like = _of_topi("zeros_like")
ones_like = _of_topi("ones_like")
collapse_sum = _of_topi("collapse_sum")
reverse_sequence = _of_topi("reverse_sequence")

# -- casts and copies ------------------------------------------------------------------------------

cast = spelled("cast", lambda data, dtype: ops.astype(data, as_dtype(dtype)))
cast_like = spelled("cast_like", lambda data, dtype_like: ops.astype(data, dtype_of(dtype_like)))
copy = spelled("copy", lambda data: data)

# -- reductions: over `axis`, or with `exclude` over all others ------------------------------------


def _reduction(name: str, operator: Any) -> Any:
    return spelled(
        name,
        lambda data, axis=None, keepdims=False, exclude=False: operator(
            data, axes_but(data, axis, exclude), keepdims
        ),
    )


sum = _reduction("sum", ops.sum)
prod = _reduction("prod", ops.prod)
mean = _reduction("mean", ops.mean)
max = _reduction("max", ops.max)
min = _reduction("min", ops.min)
logsumexp = _reduction("logsumexp", ops.logsumexp)
all = _reduction("all", lambda x, axis, keep: parts.of_bools(ops.min, x, axis, keep))
any = _reduction("any", lambda x, axis, keep: parts.of_bools(ops.max, x, axis, keep))
variance = spelled(
    "variance",
    lambda data, axis=None, keepdims=False, exclude=False, unbiased=False, with_mean=None: (
        parts.variance_of(data, axes_but(data, axis, exclude), keepdims, unbiased, with_mean)
    ),
)
std = spelled(
    "std",
    lambda data, axis=None, keepdims=False, exclude=False, unbiased=False: ops.sqrt(
        parts.variance_of(data, axes_but(data, axis, exclude), keepdims, unbiased)
    ),
)


def _place(name: str, operator: Any) -> Any:
    return spelled(
        name,
        lambda data, axis=None, keepdims=False, exclude=False, select_last_index=False: (
            parts.placed(operator, data, axes_but(data, axis, exclude), keepdims, select_last_index)
        ),
    )


argmax = _place("argmax", _topi.argmax.__wrapped__)
argmin = _place("argmin", _topi.argmin.__wrapped__)

# -- shapes and places -----------------------------------------------------------------------------

expand_dims = spelled("expand_dims", parts.new_axes)
transpose = spelled("transpose", lambda data, axes=None: ops.permute_dims(data, axes or None))
squeeze = spelled("squeeze", lambda data, axis=None: ops.squeeze(data, axis))
reshape = spelled("reshape", parts.reshaped)
reshape_like = spelled(
    "reshape_like", lambda data, shape_like: ops.reshape(data, shape_like.struct_info.dims)
)
broadcast_to_like = spelled(
    "broadcast_to_like",
    lambda data, broadcast_type: ops.broadcast_to(data, broadcast_type.struct_info.dims),
)
collapse_sum_like = spelled(
    "collapse_sum_like", lambda data, collapse_type: ops.collapse_sum_like(data, collapse_type)
)
concatenate = spelled("concatenate", lambda data, axis: ops.concat(data, axis))
stack = spelled("stack", lambda data, axis: ops.stack(data, axis))
repeat = spelled("repeat", lambda data, repeats, axis: ops.repeat(data, repeats, axis))
tile = spelled("tile", lambda data, reps: ops.tile(data, ints(reps)))
reverse = spelled("reverse", lambda data, axis: ops.flip(data, axis))
slice_like = spelled("slice_like", parts.slice_like)
layout_transform = spelled(
    "layout_transform",
    lambda data, src_layout, dst_layout: topi.utils.change_layout(data, src_layout, dst_layout),
)


split = spelled(
    "split",
    lambda data, indices_or_sections, axis=0: parts.split(data, indices_or_sections, axis),
    results=lambda a: (
        a.indices_or_sections
        if isinstance(a.indices_or_sections, int)
        else len(a.indices_or_sections) + 1
    ),
)
take = spelled("take", parts.taken)
one_hot = spelled("one_hot", parts.one_hot)

gather_nd = spelled(
    "gather_nd",
    lambda data, indices, batch_dims=0, index_rank=None: _topi.gather_nd.__wrapped__(
        data, indices, batch_dims
    ),
)
einsum = spelled("einsum", lambda data, equation: ops.einsum(data, equation))
broadcast_to = spelled(
    "broadcast_to", lambda data, shape: ops.broadcast_to(data, parts.shape_of(shape))
)
collapse_sum_to = spelled(
    "collapse_sum_to", lambda data, shape: ops.collapse_sum_to(data, parts.shape_of(shape))
)
strided_slice = spelled("strided_slice", parts.sliced)
strided_set = spelled("strided_set", parts.strided_set)
scatter_nd = spelled("scatter_nd", parts.scatter_nd)
sparse_to_dense = spelled("sparse_to_dense", parts.sparse_to_dense)
segment_sum = spelled("segment_sum", parts.segment_sum)
reverse_reshape = spelled("reverse_reshape", parts.reverse_reshaped)
sliding_window = spelled("sliding_window", parts.sliding_window)
sequence_mask = spelled("sequence_mask", parts.sequence_mask)
unravel_index = spelled("unravel_index", parts.unravelled)
meshgrid = spelled("meshgrid", lambda data, indexing="ij": ops.meshgrid(data, indexing))
adv_index = spelled("adv_index", parts.advanced_index)
trilu = spelled(
    "trilu", lambda data, k, upper=True: _topi.trilu.__wrapped__(data, parts.one(k), upper)
)
invert_permutation = spelled("invert_permutation", parts.inverted)
argwhere = spelled(
    "argwhere",
    lambda condition: ops.astype(ops.permute_dims(ops.nonzero(condition)), as_dtype("int32")),
)
reinterpret = spelled(
    "reinterpret", lambda data, dtype: ops.memory.view(data, None, as_dtype(dtype))
)
fixed_point_multiply = spelled("fixed_point_multiply", parts.fixed_point_multiply)
shape_of = spelled("shape_of", lambda data, dtype="int32": parts.sizes(data, dtype))
ndarray_size = spelled(
    "ndarray_size", lambda data, dtype="int32": ops.prod(parts.sizes(data, dtype))
)
mean_variance = spelled(
    "mean_variance",
    lambda data, axis=None, keepdims=False, exclude=False, unbiased=False: Tuple(
        (
            ops.mean(data, axes_but(data, axis, exclude), keepdims),
            parts.variance_of(data, axes_but(data, axis, exclude), keepdims, unbiased),
        )
    ),
    results=2,
)
mean_std = spelled(
    "mean_std",
    lambda data, axis=None, keepdims=False, exclude=False: Tuple(
        (
            ops.mean(data, axes_but(data, axis, exclude), keepdims),
            ops.sqrt(parts.variance_of(data, axes_but(data, axis, exclude), keepdims, False)),
        )
    ),
    results=2,
)

# -- order -----------------------------------------------------------------------------------------

sort = spelled("sort", lambda data, axis=-1, is_ascend=True: ops.sort(data, axis, not is_ascend))
argsort = spelled("argsort", parts.order)
searchsorted = spelled(
    "searchsorted",
    lambda sorted_sequence, values, right=False, dtype="int32": ops.searchsorted(
        sorted_sequence, values, right, as_dtype(dtype)
    ),
)


topk = spelled(
    "topk",
    lambda data, k=1, axis=-1, ret_type="both", is_ascend=False, dtype="int32": ops.topk(
        data, int(parts.one(k)), axis, ret_type, not is_ascend, as_dtype(dtype)
    ),
    results=lambda a: 2 if a.ret_type == "both" else 0,
)
unique = spelled("unique", parts.unique, results=lambda a: 4 + bool(a.return_counts))

# -- whole divisions -------------------------------------------------------------------------------

trunc_divide = spelled("trunc_divide", parts.trunc_divide)
trunc_mod = spelled("trunc_mod", lambda lhs, rhs: _topi.mod.__wrapped__(lhs, rhs))

# -- devices and marks -----------------------------------------------------------------------------

device_copy = spelled(
    "device_copy",
    lambda data, src_device, dst_device: ops.to_vdevice(data, parts.device(dst_device)),
)

# -- new tensors -----------------------------------------------------------------------------------

full = spelled(
    "full", lambda fill_value, shape=(), dtype="": parts.filled(shape, fill_value, dtype)
)
full_like = spelled("full_like", lambda data, fill_value: ops.full_like(data, fill_value))
zeros = spelled("zeros", lambda shape, dtype: ops.zeros(parts.shape_of(shape), dtype))
ones = spelled("ones", lambda shape, dtype: ops.ones(parts.shape_of(shape), dtype))
arange = spelled(
    "arange",
    lambda start, stop=None, step=None, dtype="float32": ops.arange(
        parts.one(start), parts.one(stop), 1 if step is None else parts.one(step), dtype
    ),
)

__getattr__ = submodules(__name__)
