"""What Relay's operators are written with: its words for axes, shapes, slices and layouts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import StructInfoError
from ..base import dtype as as_dtype
from ..relax import Constant, Expr, const
from ..relax import op as ops


def dtype_of(x: Any) -> Any:
    """The dtype of a tensor."""
    return x.struct_info.dtype


def axes_but(data: Any, axis: Any, exclude: bool) -> Any:
    """`axis`, or with `exclude` all others."""
    if not exclude:
        return axis
    ndim = data.struct_info.ndim
    if ndim < 0:
        raise StructInfoError("exclude: the rank of the argument must be known")
    named = {a % ndim for a in ([axis] if isinstance(axis, int) else axis or ())}
    return tuple(a for a in range(ndim) if a not in named)


def of_axis(*names: str) -> Any:
    """The rule that these arguments have a number for each place along `axis` of the data."""

    def rule(a: Any) -> dict[str, Any]:
        dims = a.data.struct_info.dims
        known = -len(dims) <= a.axis < len(dims)
        return dict.fromkeys(names, (dims[a.axis],)) if known else {}

    return rule


def one_axis(axis: Any) -> Any:
    """A list of one axis as that axis."""
    return axis[0] if isinstance(axis, (list, tuple)) and len(axis) == 1 else axis


def of_bools(operator: Any, x: Any, axis: Any, keepdims: bool) -> Any:
    """A reduction of bools by one of integers."""
    return ops.astype(operator(ops.astype(x, as_dtype("int8")), axis, keepdims), as_dtype("bool"))


def variance_of(data: Any, axis: Any, keepdims: bool, unbiased: bool) -> Any:
    """The variance; `unbiased`: of a sample, by one less than the number of elements."""
    biased = ops.variance(data, axis, keepdims)
    if not unbiased:
        return biased
    dims = data.struct_info.dims
    count: Any = 1
    for a in range(len(dims)) if axis is None else [axis] if isinstance(axis, int) else axis:
        count = count * dims[a]
    sizes = [ops.full((), n, "int64") for n in (count, count - 1)]
    whole, less = (ops.astype(n, dtype_of(data)) for n in sizes)
    return ops.multiply(biased, ops.divide(whole, less))


def new_axes(data: Any, axis: int, num_newaxis: int = 1) -> Any:
    """`num_newaxis` axes of size 1 from `axis` on."""
    first = axis if axis >= 0 else data.struct_info.ndim + axis + 1
    return ops.expand_dims(data, tuple(range(first, first + num_newaxis)))


def reshaped(data: Any, newshape: Any, allowzero: bool = False) -> Any:
    """`data` in another shape: sizes, or Relay's codes. 0 keeps a size, -1 is what is left, -2
    keeps the rest, -3 joins two, -4 splits one into the two that follow.
    """
    if isinstance(newshape, Expr):
        return ops.reshape(data, newshape)
    newshape = [newshape] if isinstance(newshape, int) else list(newshape)
    codes = [s for s in newshape if isinstance(s, int) and (s < -1 or (s == 0 and not allowzero))]
    if any(code < -4 for code in codes):
        raise StructInfoError(f"reshape: wanted sizes, or codes from -4 to 0, got {newshape}")
    if codes:
        try:
            newshape = _decoded(data.struct_info.dims, newshape)
        except StopIteration:
            raise StructInfoError(
                f"reshape: {newshape} takes other axes than {data.struct_info} has"
            ) from None
    return ops.reshape(data, newshape)


def _decoded(dims: Sequence[Any], codes: Sequence[Any]) -> list[Any]:
    """Raises StopIteration where there are too few sizes or codes."""
    left, rest, sizes = iter(dims), iter(codes), list[Any]()
    for code in rest:
        plain = code if isinstance(code, int) else None
        if plain == 0:
            sizes.append(next(left))
        elif plain == -2:
            sizes += left
        elif plain == -3:
            sizes.append(next(left) * next(left))
        elif plain == -4:
            whole, first, second = next(left), next(rest), next(rest)
            sizes.append(whole // second if first == -1 else first)
            sizes.append(whole // first if second == -1 else second)
        else:
            sizes.append(code)
            next(left, None)
    return sizes


def slice_like(data: Any, shape_like: Any, axes: Any = None) -> Any:
    """The first elements of `data`, as many along `axes` (None: all) as `shape_like` has."""
    sizes = shape_like.struct_info.dims
    ndim = data.struct_info.ndim
    axes = [a % ndim for a in (range(ndim) if axes is None else axes)]
    sliced: Any = ops.strided_slice
    return sliced(data, axes, [0] * len(axes), [sizes[a] for a in axes])


def ints(value: Any) -> Any:
    """A constant vector of integers as a list of them; anything else as it is."""
    data = getattr(value, "data", None)
    return data.numpy().tolist() if data is not None and hasattr(data, "numpy") else value


def number_of(value: Any) -> Any:
    """A constant of one element as a number; anything else as it is."""
    alone = isinstance(value, Constant) and value.data.ndim == 0
    return value.data.numpy().item() if alone else value


def filled(shape: Any, fill_value: Any, dtype: Any) -> Any:
    """A tensor of one value."""
    value = fill_value if isinstance(fill_value, Expr) else const(fill_value, dtype or "float32")
    return ops.full(ints(shape), value, dtype)
