"""Sorting, running sums, and choosing tokens from probabilities."""

from __future__ import annotations

from typing import Any

from .....base import FrontendError, submodules
from ....op import cumsum as _cumsum
from ....op import gather_elements as _gather_elements
from ....op import multinomial_from_uniform as _multinomial_from_uniform
from ..tensor import Tensor, apply, operand, wrap_nested
from .elementwise import divide, greater_equal, less, logical_and, logical_not, minimum, where
from .elementwise import sum as _sum
from .manipulate import arange, astype, reshape, take

__getattr__ = submodules(__name__)


def sort(x: Tensor, axis: int = -1, descending: bool = False, name: str = "sort") -> Tensor:
    """The elements in order along `axis`."""
    return apply("sort", x, axis=axis, descending=descending, hint=name)


def argsort(
    data: Tensor,
    axis: int = -1,
    descending: bool = False,
    dtype: Any = "int32",
    name: str = "argsort",
) -> Tensor:
    """The indices that sort `data` along `axis`."""
    return apply("argsort", data, axis=axis, descending=descending, dtype=dtype, hint=name)


def topk(
    data: Tensor,
    k: int = 1,
    axis: int = -1,
    ret_type: str = "both",
    largest: bool = True,
    dtype: Any = "int32",
    name: str = "topk",
) -> Any:
    """The `k` largest (or smallest) elements along `axis` in order, and their indices.

    ret_type  "both": (values, indices); "values"; "indices"
    """
    return apply(
        "topk", data, k=k, axis=axis, ret_type=ret_type, largest=largest, dtype=dtype, hint=name
    )


def argmax(
    x: Tensor, axis: int | None = None, keepdims: bool = False, name: str = "argmax"
) -> Tensor:
    """The int64 index of the first largest element along `axis` (None: of all)."""
    return apply("argmax", x, axis=axis, keepdims=keepdims, hint=name)


def argmin(
    x: Tensor, axis: int | None = None, keepdims: bool = False, name: str = "argmin"
) -> Tensor:
    """The int64 index of the first smallest element along `axis` (None: of all)."""
    return apply("argmin", x, axis=axis, keepdims=keepdims, hint=name)


def cumsum(
    data: Tensor,
    axis: int | None = None,
    dtype: Any = None,
    exclusive: bool | None = None,
    name: str = "cumsum",
) -> Tensor:
    """Running sums along `axis`; `exclusive`: without the element itself."""
    call = _cumsum(operand(data, None, name), axis, dtype, bool(exclusive))
    return wrap_nested(call, name)


def gather_elements(
    data: Tensor, indices: Tensor, axis: int = 0, name: str = "gather_elements"
) -> Tensor:
    """For each place in `indices`, the element of `data` there, but at that index along `axis`."""
    call = _gather_elements(operand(data, None, name), operand(indices, None, name), axis)
    return wrap_nested(call, name)


def multinomial_from_uniform(
    prob: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
    dtype: Any = "int64",
    name: str = "multinomial_from_uniform",
) -> Tensor:
    """For each uniform number in [0, 1), the token it falls on.

    prob [batch, vocab]    uniform_sample [n, 1]    sample_indices [n, 1]: rows of prob, None: row
    i for number i, when n equals batch    returns [n, 1]
    """
    rows = _rows(prob, uniform_sample, sample_indices, name)
    call = _multinomial_from_uniform(
        operand(prob, None, name), operand(uniform_sample, None, name), rows._expr, dtype
    )
    return wrap_nested(call, name)


def _rows(prob: Tensor, uniform: Tensor, rows: Tensor | None, name: str) -> Tensor:
    if rows is not None:
        return rows
    if prob.ndim != 2 or uniform.ndim != 2:
        raise FrontendError(
            f"{name}: wanted prob [batch, vocab] and uniform_sample [n, 1], "
            f"got {prob.shape} and {uniform.shape}"
        )
    return reshape(arange(prob.shape[0], dtype="int64"), [prob.shape[0], 1])


def _cut(running: Tensor, top_p: Tensor, top_k: Tensor) -> Tensor:
    """The index [batch, 1] of the last of the sorted tokens that are kept.

    Kept are those up to the first whose running sum reaches top_p, and no more than top_k.
    """
    vocab = running.shape[1]
    place = reshape(arange(vocab, dtype="int64"), [1, vocab])
    more = logical_and(less(running, top_p), less(place + 1, astype(top_k, "int64")))
    count = _sum(astype(more, "int64"), axis=1, keepdims=True)
    return minimum(count, reshape(arange(vocab - 1, vocab, dtype="int64"), [1, 1]))


def sample_top_p_top_k_from_sorted_prob(
    sorted_prob: Tensor,
    sorted_index: Tensor,
    top_p: Tensor,
    top_k: Tensor,
    uniform_sample: Tensor,
    sample_indices: Tensor | None = None,
) -> Tensor:
    """For each uniform number in [0, 1), the token it falls on among the likely ones.

    sorted_prob, sorted_index [batch, vocab]: probabilities, largest first, and their tokens
    top_p, top_k [batch, 1]    uniform_sample, sample_indices [n, 1]: numbers, and their rows
    returns [n, 1] of the dtype of sorted_index
    """
    name = "sample_top_p_top_k_from_sorted_prob"
    rows = _rows(sorted_prob, uniform_sample, sample_indices, name)
    running = cumsum(sorted_prob, axis=1)
    total = gather_elements(running, _cut(running, top_p, top_k), axis=1)
    flat = reshape(rows, [rows.shape[0]])
    vocab = sorted_prob.shape[1]
    share = divide(take(running, flat, axis=0), take(total, flat, axis=0))
    below = astype(logical_not(less(uniform_sample, share)), "int64")
    last = reshape(arange(vocab - 1, vocab, dtype="int64"), [1, 1])
    chosen = minimum(_sum(below, axis=1, keepdims=True), last)
    return gather_elements(take(sorted_index, flat, axis=0), chosen, axis=1)


def renormalize_top_p_top_k_prob(
    prob: Tensor, sorted_prob: Tensor, top_p: Tensor, top_k: Tensor
) -> Tensor:
    """`prob` with all but the likely tokens set to 0, divided by what is left.

    prob, sorted_prob [batch, vocab] (largest first)    top_p, top_k [batch, 1]
    """
    running = cumsum(sorted_prob, axis=1)
    least = gather_elements(sorted_prob, _cut(running, top_p, top_k), axis=1)
    kept = where(greater_equal(prob, least), prob, 0.0)
    return divide(kept, _sum(kept, axis=1, keepdims=True))
