"""Relay's operators of tensors. What `topi` has under the same name with the same arguments is the
same here: both write operators of `relax.op`.
"""

from __future__ import annotations

from typing import Any

from .. import topi
from ..base import dtype as as_dtype
from ..base import submodules
from ..relax import op as ops
from . import parts
from .parts import axes_but, dtype_of
from .spelling import spelled

_topi: Any = topi


def _of_topi(name: str) -> Any:
    return spelled(name, getattr(_topi, name).__wrapped__)


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
round = _of_topi("round")
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
clip = _of_topi("clip")
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
where = _of_topi("where")
broadcast_to = _of_topi("broadcast_to")
gather = _of_topi("gather")
gather_nd = _of_topi("gather_nd")
einsum = _of_topi("einsum")
cumsum = _of_topi("cumsum")
cumprod = _of_topi("cumprod")
strided_slice = _of_topi("strided_slice")
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
        parts.variance_of(data, axes_but(data, axis, exclude), keepdims, unbiased)
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
        lambda data, axis=None, keepdims=False, exclude=False, select_last_index=False: operator(
            data, parts.one_axis(axes_but(data, axis, exclude)), keepdims, select_last_index
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
tile = spelled("tile", lambda data, reps: ops.tile(data, reps))
reverse = spelled("reverse", lambda data, axis: ops.flip(data, axis))
slice_like = spelled("slice_like", parts.slice_like)
layout_transform = spelled(
    "layout_transform",
    lambda data, src_layout, dst_layout: topi.utils.change_layout(data, src_layout, dst_layout),
)


def split(data: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """`data` cut along `axis`, as a `TupleWrapper`: into a number of equal parts, or before each of
    several indices.
    """
    given = indices_or_sections
    count = given if isinstance(given, int) else len(given) + 1
    return _SPLIT(data, given, axis, outputs=count)


_SPLIT = spelled(
    "split",
    lambda data, indices_or_sections, axis=0: ops.split(data, indices_or_sections, axis),
)
take = spelled(
    "take",
    lambda data, indices, axis=None, batch_dims=0, mode="clip": ops.take(data, indices, axis, mode),
)
one_hot = spelled(
    "one_hot",
    lambda indices, on_value, off_value, depth, axis, dtype: _topi.one_hot.__wrapped__(
        indices, on_value, off_value, depth, axis, dtype
    ),
)

# -- new tensors -----------------------------------------------------------------------------------

full = spelled(
    "full", lambda fill_value, shape=(), dtype="": parts.filled(shape, fill_value, dtype)
)
full_like = spelled("full_like", lambda data, fill_value: ops.full_like(data, fill_value))
zeros = spelled("zeros", lambda shape, dtype: ops.zeros(parts.ints(shape), dtype))
ones = spelled("ones", lambda shape, dtype: ops.ones(parts.ints(shape), dtype))
arange = spelled(
    "arange",
    lambda start, stop=None, step=1, dtype="float32": ops.arange(start, stop, step, dtype),
)

__getattr__ = submodules(__name__)
