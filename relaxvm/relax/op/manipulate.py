"""Operators that give the same elements another shape: reshape, permute_dims, concat, split,
broadcast_to, ...
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import te
from ...base import DataType, StructInfoError
from ...ir import FloorDiv, IntImm, PrimExpr, Select, VDevice, cast, const, is_const
from ...tir import if_then_else
from ..derive import (
    common_vdevice,
    plain_text,
    prove_dims,
)
from ..expr import Call, Tuple, TupleGetItem, as_relax
from ..rules import LowerBuilder, Ops
from ..struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo, TupleStructInfo
from .broadcast import unbroadcast
from .faces import at_axis, dims_of, prepared, ravel, reshaped_to, unravel
from .infer import (
    NUMBER,
    axes_of,
    axis_of,
    dims_product,
    known_sizes,
    no_multiple,
    same_dtype,
    shape_argument,
    shaped,
    tensor,
    tensor_of,
)
from .infer import tensors as tensor_fields
from .lower import call_te, rounded, te_lower
from .record import Shape, missing, op, plain_value
from .sizes import (
    ONE,
    ZERO,
    KnownTensor,
    least,
    most,
    simplified,
    size_analyzer,
    want_broadcast,
    want_equal,
)

BY_POSITION = missing("axes are numbered by position")


# -- reshape --------------------------------------------------------------------------------------


def te_reshape(x: te.Tensor, dims: list[PrimExpr]) -> te.Tensor:
    """`x` in the shape `dims`, which has as many elements."""
    return te.compute(tuple(dims), lambda *i: x(*unravel(ravel(i, dims), x.shape)), "reshape")


def _lower_to(compute: Any) -> Any:
    """The legalisation by ``compute(x, dimensions of the result)``."""

    def lower(builder: LowerBuilder, call: Call) -> Expr:
        dims = ShapeExpr(tensor_of(call).dims)
        return call_te(builder, call, compute, call.args[0], dims)

    return lower


def _reshape_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    return (reshaped_to(ops, gy, call.args[0]), *[None] * (len(call.args) - 1))


def _new_shape(values: dict[str, Any]) -> None:
    """-1 becomes what is left, and 0 the dimension of `x` in that place."""
    shape = values["shape"]
    shape = plain_value(shape.values if isinstance(shape, ShapeExpr) and shape.open else shape)
    if isinstance(shape, (int, PrimExpr)):
        shape = (shape,)
    if not isinstance(shape, tuple):
        return
    entries = list(shape)
    x = values["x"] = as_relax(values["x"])
    dims = tensor(x, "x").dims
    for k, e in enumerate(entries):
        if isinstance(e, int) and not isinstance(e, bool) and e < -1:
            raise StructInfoError(f"shape: wanted dimensions, -1 or 0, got {e}")
        if isinstance(e, int) and not isinstance(e, bool) and e == 0 and dims != ():
            if dims is None:
                raise StructInfoError(
                    "shape: 0 stands for a dimension of x, whose shape is not known"
                )
            if k >= len(dims):
                raise StructInfoError(f"shape: 0 in place {k}: x has {len(dims)} dimensions")
            entries[k] = dims[k]
    left = [k for k, e in enumerate(entries) if isinstance(e, int) and e == -1]
    if len(left) > 1:
        raise StructInfoError(f"shape: -1 may stand once, got {list(shape)}")
    if left:
        if dims is None:
            raise StructInfoError("shape: -1 is computed from the shape of x, which is not known")
        others = ShapeExpr([e for k, e in enumerate(entries) if k != left[0]]).values
        entries[left[0]] = _left_over(dims, others, shape)
    values["shape"] = ShapeExpr(entries)


def _left_over(dims: Any, others: Any, shape: Any) -> PrimExpr:
    """The product of `dims` divided by that of `others`; equal factors go first."""
    above, below = list(dims), []
    for d in others:
        same = next((k for k, a in enumerate(above) if a is d and not isinstance(a, IntImm)), None)
        if same is None:
            below.append(d)
        else:
            above.pop(same)
    total, part = simplified(dims_product(above)), simplified(dims_product(below))
    if is_const(part, 0):
        # Nothing is left to share out; any size would do, and numpy refuses to choose.
        raise StructInfoError(f"shape: -1 beside a dimension of 0 is not determined: {list(shape)}")
    if isinstance(part, IntImm) and no_multiple(total, part.value):
        raise StructInfoError(
            f"shape: {plain_text(total)} elements do not divide by {part.value} in {list(shape)}"
        )
    return simplified(FloorDiv(total, part))


@prepared(_new_shape)
@op(
    "reshape",
    numpy=lambda x, shape: np.reshape(x, shape),
    lower=_lower_to(te_reshape),
    grad=_reshape_grad,
)
def reshape(x: Expr, shape: Shape) -> StructInfo:
    """The elements of `x` in row-major order, in another shape.

    In a list, -1 stands for what is left, and 0 for the dimension of `x` in that place;
    ``R.shape([-1, 4])`` is such a list.
    Raises StructInfoError if the number of elements differs.
    """
    info = tensor(x, "x")
    new = shape_argument(shape)
    have, want = simplified(dims_product(info.dims)), simplified(dims_product(new.values))
    want_equal(have, want, "shape: wanted {a} elements, got {b}")
    return TensorStructInfo(new, info.dtype, info.vdevice)


@op(
    "flatten",
    numpy=lambda x: np.reshape(x, (-1,)),
    lower=_lower_to(te_reshape),
    grad=_reshape_grad,
)
def flatten(x: Expr) -> StructInfo:
    """The elements of `x` in row-major order, in one dimension."""
    info = tensor(x, "x")
    return shaped(info, (dims_product(info.dims),))


def _new_axes(axis: Any, ndim: int) -> tuple[int, ...]:
    axes = (axis,) if isinstance(axis, int) else axis
    return axes_of(axes, ndim + len(axes))


def _te_expand_dims(x: te.Tensor, axis: Any) -> te.Tensor:
    axes = _new_axes(axis, x.ndim)
    rest = iter(x.shape)
    dims = [const(1, "int64") if k in axes else next(rest) for k in range(x.ndim + len(axes))]
    return te.compute(
        dims, lambda *i: x(*(e for k, e in enumerate(i) if k not in axes)), "expand_dims"
    )


@op(
    "expand_dims",
    numpy=lambda x, *, axis: np.expand_dims(x, axis),
    lower=te_lower(_te_expand_dims),
    grad=_reshape_grad,
)
def expand_dims(x: Expr, axis: int | tuple[int, ...]) -> StructInfo:
    """`x` with dimensions of size 1 put in; `axis` is where they are in the result."""
    info = tensor(x, "x")
    axes, rest = _new_axes(axis, info.ndim), iter(info.dims)
    return shaped(info, [ONE if k in axes else next(rest) for k in range(info.ndim + len(axes))])


def _squeezed(axis: Any, dims: Any) -> tuple[int, ...]:
    if axis is None:
        return tuple(k for k, d in enumerate(dims) if is_const(d, 1))
    return axes_of(axis, len(dims))


def _te_squeeze(x: te.Tensor, axis: Any) -> te.Tensor:
    axes = _squeezed(axis, x.shape)
    dims = [d for k, d in enumerate(x.shape) if k not in axes]

    def value(*i: PrimExpr) -> PrimExpr:
        rest = iter(i)
        return x(*(ZERO if k in axes else next(rest) for k in range(x.ndim)))

    return te.compute(dims, value, "squeeze")


def _lower_squeeze(builder: LowerBuilder, call: Call) -> Expr:
    x = call.args[0]
    axes = _squeezed(call.attrs["axis"], tensor_of(x).dims)
    return call_te(builder, call, _te_squeeze, x, axis=axes)


@op(
    "squeeze",
    numpy=lambda x, *, axis=None: np.squeeze(x, axis),
    lower=_lower_squeeze,
    grad=_reshape_grad,
)
def squeeze(x: Expr, axis: int | tuple[int, ...] | None = None) -> StructInfo:
    """`x` without the dimensions `axis`, which are of size 1; by default all that are known to be
    1.

    Raises StructInfoError if one certainly is not 1; a symbol is checked when the program runs.
    With no axis given, no dimension may be a symbol: which are 1 must be known.
    """
    info = tensor(x, "x")
    if axis is None:
        symbols = [d for d in info.dims if not isinstance(d, IntImm)]
        if symbols:
            raise StructInfoError(
                f"axis: the dimension {symbols[0]} may be 1 or not when it runs; "
                "say which axes to drop"
            )
    axes = _squeezed(axis, info.dims)
    for k in axes:
        want_equal(info.dims[k], ONE, "axis: wanted dimensions of size 1, axis {k} is {a}", k=k)
    return shaped(info, [d for k, d in enumerate(info.dims) if k not in axes])


# -- permute_dims ---------------------------------------------------------------------------------


def _permutation(axes: Any, ndim: int) -> tuple[int, ...]:
    if axes is None:
        return tuple(range(ndim))[::-1]
    order = axes_of(axes, ndim, "axes")
    if len(order) != ndim:
        raise StructInfoError(f"axes: wanted each of {ndim} axes once, got {list(axes)}")
    return order


def _te_permute_dims(x: te.Tensor, axes: Any) -> te.Tensor:
    order = _permutation(axes, x.ndim)
    dims = [x.shape[a] for a in order]
    return te.compute(dims, lambda *i: x(*(i[order.index(k)] for k in range(x.ndim))), "transpose")


def _permute_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    ndim = tensor_of(call).ndim
    if ndim == -1:
        if call.attrs["axes"] is None:
            return (ops.permute_dims(gy),)
        ndim = len(call.attrs["axes"])
    order = _permutation(call.attrs["axes"], ndim)
    return (ops.permute_dims(gy, axes=tuple(order.index(k) for k in range(ndim))),)


@op(
    "permute_dims",
    numpy=lambda x, *, axes=None: np.transpose(x, axes),
    lower=te_lower(_te_permute_dims),
    grad=_permute_grad,
)
def permute_dims(x: Expr, axes: tuple[int, ...] | None = None) -> StructInfo:
    """`x` with its axes in another order (reversed by default): axis k of the result is axis
    ``axes[k]`` of `x`.
    """
    info = tensor(x, "x")
    return shaped(info, [info.dims[a] for a in _permutation(axes, info.ndim)])


# -- concat, stack, split -------------------------------------------------------------------------


def _choose(options: list[PrimExpr], ends: list[PrimExpr], index: PrimExpr) -> PrimExpr:
    """The option k for which ``ends[k-1] <= index < ends[k]``, by bisection."""
    level = list(zip(options, ends))
    while len(level) > 1:
        paired = []
        for k in range(0, len(level) - 1, 2):
            (a, end), (b, last) = level[k], level[k + 1]
            paired.append((if_then_else(index < end, a, b), last))
        level = paired + ([level[-1]] if len(level) % 2 else [])
    return level[0][0]


def _te_concat(tensors: list[te.Tensor], axis: int) -> te.Tensor:
    along = axis % tensors[0].ndim
    starts, end = [], ZERO
    for t in tensors:
        starts.append(end)
        end = simplified(end + t.shape[along])
    dims = [end if k == along else d for k, d in enumerate(tensors[0].shape)]

    def value(*i: PrimExpr) -> PrimExpr:
        loads = [t(*i[:along], i[along] - s, *i[along + 1 :]) for t, s in zip(tensors, starts)]
        return _choose(loads, [*starts[1:], end], i[along])

    return te.compute(dims, value, "concat")


def tuple_fields(x: Expr) -> list[Expr]:
    if isinstance(x, Tuple):
        return list(x.fields)
    info = x.struct_info
    assert isinstance(info, TupleStructInfo)
    return [TupleGetItem(x, i) for i in range(len(info.fields))]


def _lower_joined(compute: Any, extra: int) -> Any:
    def lower(builder: LowerBuilder, call: Call) -> Expr:
        fields = tuple_fields(call.args[0])
        ndim = tensor_of(fields[0]).ndim
        axis = axis_of(call.attrs["axis"] or 0, ndim, extra=extra)
        return call_te(builder, call, compute, fields, axis=axis)

    return lower


def _concat_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    fields = tuple_fields(call.args[0])
    axis = call.attrs["axis"] or 0
    grads, end = [], ZERO
    for f in fields:
        dims = known_sizes(f, "the gradient of concat: a tensor")
        start, end = end, simplified(end + dims[at_axis(f, axis)])
        grads.append(ops.strided_slice(gy, (axis,), (start,), (end,), assume_inbound=True))
    return (Tuple(grads),)


@op(
    "concat",
    numpy=lambda tensors, *, axis=0: np.concatenate(tensors, 0 if axis is None else axis),
    lower=_lower_joined(_te_concat, 0),
    grad=_concat_grad,
)
def concat(tensors: Expr, axis: int | None = 0) -> StructInfo:
    """Several tensors (a tuple) joined along `axis`; their other dimensions are equal. None is for
    tensors of one dimension.
    """
    infos, dtype, vdevice = _joinable(tensors)
    ndim = infos[0].ndim
    if axis is None and ndim != 1:
        raise StructInfoError(
            f"axis: None is for tensors of one dimension, these have {ndim}; give the axis, or "
            "flatten them"
        )
    along = axis_of(0 if axis is None else axis, ndim)
    dims = _shared(infos, along)
    dims[along] = simplified(sum((i.dims[along] for i in infos), start=ZERO))
    return TensorStructInfo(dims, dtype, vdevice)


def _joinable(tensors: Expr) -> tuple[list[KnownTensor], DataType, VDevice | None]:
    """The struct infos of tensors of one rank, their dtype, and where they are."""
    infos = tensor_fields(tensors, "tensors")
    if not infos:
        raise StructInfoError("tensors: wanted at least one")
    dtype = same_dtype(infos, [f"field {k}" for k in range(len(infos))])
    ranks = [i.ndim for i in infos]
    if len(set(ranks)) > 1:
        raise StructInfoError(f"tensors: wanted the same rank, got {ranks}")
    return infos, dtype, common_vdevice(infos)


def _shared(infos: list[KnownTensor], but: int) -> list[PrimExpr]:
    """The dimensions that all have, but for axis `but`; constants win over symbols."""
    dims = list(infos[0].dims)
    for n, info in enumerate(infos[1:], 1):
        for k, d in enumerate(info.dims):
            if k != but:
                text = "dimension {k} differs: {a} in field 0, {b} in field {n}"
                want_equal(dims[k], d, text, k=k, n=n)
                dims[k] = d if isinstance(d, IntImm) else dims[k]
    return dims


def _te_stack(tensors: list[te.Tensor], axis: int) -> te.Tensor:
    count = len(tensors)
    dims = [*tensors[0].shape[:axis], const(count, "int64"), *tensors[0].shape[axis:]]
    ends = [const(k + 1, "int64") for k in range(count)]
    return te.compute(
        dims,
        lambda *i: _choose([t(*i[:axis], *i[axis + 1 :]) for t in tensors], ends, i[axis]),
        "stack",
    )


def _stack_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    axis, count = call.attrs["axis"] or 0, len(tuple_fields(call.args[0]))
    parts = [
        ops.squeeze(
            ops.strided_slice(gy, (axis,), (k,), (k + 1,), assume_inbound=True), axis=(axis,)
        )
        for k in range(count)
    ]
    return (Tuple(parts),)


@op(
    "stack",
    numpy=lambda tensors, *, axis=0: np.stack(tensors, 0 if axis is None else axis),
    lower=_lower_joined(_te_stack, 1),
    grad=_stack_grad,
)
def stack(tensors: Expr, axis: int | None = 0) -> StructInfo:
    """Several tensors of one shape (a tuple) beside each other along a new dimension `axis`."""
    infos, dtype, vdevice = _joinable(tensors)
    along = axis_of(0 if axis is None else axis, infos[0].ndim, extra=1)
    dims = _shared(infos, -1)
    return TensorStructInfo([*dims[:along], len(infos), *dims[along:]], dtype, vdevice)


_MOST_SECTIONS = 1 << 16


def _pieces(size: PrimExpr, spec: Any) -> list[tuple[PrimExpr, PrimExpr]]:
    """Where each piece of an axis of `size` starts, and how long it is."""
    analyzer = size_analyzer(size)
    if isinstance(spec, int):
        length = simplified(FloorDiv(size + (spec - 1), const(spec, "int64"))) if spec > 1 else size
        edges: list[PrimExpr] = [least(length * k, size, analyzer) for k in range(spec)]
    else:
        edges = [ZERO, *(least(const(e, "int64"), size, analyzer) for e in spec)]
    pieces = []
    for start, end in zip(edges, [*edges[1:], size]):
        pieces.append((simplified(start), simplified(most(end - start, ZERO, analyzer))))
    return pieces


def _split_numpy(x: Any, *, indices_or_sections: Any, axis: int = 0) -> tuple[Any, ...]:
    size, spec = x.shape[axis], indices_or_sections
    if isinstance(spec, int):
        length = -(-size // spec)
        return tuple(
            np.take(x, range(min(k * length, size), min((k + 1) * length, size)), axis)
            for k in range(spec)
        )
    return tuple(np.split(x, spec, axis))


def _te_split(x: te.Tensor, indices_or_sections: Any, axis: int) -> list[te.Tensor]:
    nth = axis % x.ndim
    parts = []
    for k, (start, length) in enumerate(_pieces(x.shape[nth], indices_or_sections)):
        dims = [*x.shape[:nth], length, *x.shape[nth + 1 :]]
        parts.append(
            te.compute(
                dims, lambda *i, s=start: x(*i[:nth], i[nth] + s, *i[nth + 1 :]), f"split_{k}"
            )
        )
    return parts


@op(
    "split",
    numpy=_split_numpy,
    lower=te_lower(_te_split),
    grad=lambda ops, call, y, gy: (ops.concat(gy, axis=call.attrs["axis"]),),
)
def split(x: Expr, indices_or_sections: int | tuple[int, ...], axis: int = 0) -> StructInfo:
    """`x` cut along `axis` into a tuple: before each of several indices, or into a number of equal
    sections.

    If the size does not divide, sections are rounded up and the last ones are shorter.
    """
    info = tensor(x, "x")
    spec = indices_or_sections
    if isinstance(spec, int) and not 1 <= spec <= _MOST_SECTIONS:
        raise StructInfoError(
            f"indices_or_sections: wanted at least one section and at most {_MOST_SECTIONS}, "
            f"got {spec}"
        )
    if isinstance(spec, tuple):
        for e in spec:
            if isinstance(e, bool) or not isinstance(e, int) or e < 0:
                raise StructInfoError(
                    f"indices_or_sections: wanted indices that are ints, not negative, got {e!r}"
                )
    along = axis_of(axis, info.ndim)
    fields = [
        shaped(info, [*info.dims[:along], length, *info.dims[along + 1 :]])
        for _, length in _pieces(info.dims[along], spec)
    ]
    return TupleStructInfo(tuple(fields))


# -- broadcast_to, collapse_sum_to ----------------------------------------------------------------


def _te_broadcast_to(x: te.Tensor, dims: list[PrimExpr]) -> te.Tensor:
    skip = len(dims) - x.ndim

    def value(*i: PrimExpr) -> PrimExpr:
        return x(*(own_index(e, d, t) for e, d, t in zip(i[skip:], x.shape, dims[skip:])))

    return te.compute(tuple(dims), value, "broadcast_to")


def own_index(index: PrimExpr, size: PrimExpr, target: PrimExpr) -> PrimExpr:
    """The index into an axis of `size` that is broadcast to `target`."""
    if prove_dims(size, target):
        return index
    if isinstance(size, IntImm):
        return ZERO if size.value == 1 else index
    return Select(size.equal(ONE), ZERO, index)


def _want_fit(small: Sequence[PrimExpr], large: Sequence[PrimExpr], what: str) -> None:
    if len(small) > len(large):
        raise StructInfoError(f"{what}: {len(small)} dimensions do not broadcast to {len(large)}")
    for k, (size, target) in enumerate(zip(small[::-1], large[::-1])):
        text = "{what}: dimension {k}: {size} does not broadcast to {target}"
        want_broadcast(size, target, text, what=what, k=-k - 1)


@op(
    "broadcast_to",
    numpy=lambda x, shape: np.array(np.broadcast_to(x, shape)),
    lower=_lower_to(_te_broadcast_to),
    grad=lambda ops, call, y, gy: (unbroadcast(ops, gy, call.args[0]), None),
)
def broadcast_to(x: Expr, shape: Shape) -> StructInfo:
    """`x` repeated along its dimensions of size 1, and along new ones in front, to `shape`."""
    info = tensor(x, "x")
    wanted = shape_argument(shape)
    _want_fit(info.dims, wanted.values, "shape")
    return TensorStructInfo(wanted, info.dtype, info.vdevice)


def _collapse_numpy(data: Any, shape: Any) -> Any:
    shape = tuple(shape)
    skip = data.ndim - len(shape)
    axes = [*range(skip), *(skip + k for k, d in enumerate(shape) if d == 1)]
    wide = np.float32 if data.dtype == np.float16 else data.dtype
    return np.sum(data, axis=tuple(axes), dtype=wide).reshape(shape).astype(data.dtype)


def _te_collapse(data: te.Tensor, dims: list[PrimExpr]) -> te.Tensor:
    skip = data.ndim - len(dims)
    wide = "float32" if data.dtype.is_float and data.dtype.bits == 16 else data.dtype
    axes: dict[int, Any] = {}
    for k, size in enumerate(data.shape):
        target = dims[k - skip] if k >= skip else ONE
        if k < skip or not prove_dims(size, target):
            one = is_const(target, 1)
            extent = size if one else Select(target.equal(ONE), size, ONE)
            axes[k] = te.reduce_axis((0, extent), f"k{k}")

    def at(i: tuple[PrimExpr, ...], k: int) -> PrimExpr:
        if k not in axes:
            return i[k - skip]
        var: PrimExpr = axes[k].var
        target = dims[k - skip] if k >= skip else ONE
        if is_const(target, 1):
            return var
        return Select(target.equal(ONE), var, i[k - skip])

    def value(*i: PrimExpr) -> PrimExpr:
        element = cast(wide, data(*(at(i, k) for k in range(data.ndim))))
        return te.sum(element, axis=list(axes.values())) if axes else element

    return rounded(te.compute(tuple(dims), value, "collapse_sum"), data.dtype)


def _collapse_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
    data = call.args[0]
    shape = dims_of(data)
    return ops.broadcast_to(gy, ops.shape_of(data) if shape is None else shape), None


@op("collapse_sum_to", _collapse_numpy, _lower_to(_te_collapse), _collapse_grad, BY_POSITION)
def collapse_sum_to(data: Expr, shape: Shape) -> StructInfo:
    """`data` summed to `shape`, which broadcasts to the shape of `data`: what undoes a broadcast in
    gradients.

    The 16-bit floats are summed in float32.
    """
    info = tensor(data, "data", NUMBER)
    wanted = shape_argument(shape)
    _want_fit(wanted.values, info.dims, "shape")
    return TensorStructInfo(wanted, info.dtype, info.vdevice)


@op(
    "collapse_sum_like",
    numpy=lambda data, collapse_target: _collapse_numpy(data, collapse_target.shape),
    lower=_lower_to(_te_collapse),
    grad=_collapse_grad,
    layout=BY_POSITION,
)
def collapse_sum_like(data: Expr, collapse_target: Expr) -> StructInfo:
    """`data` summed to the shape of `collapse_target`; see collapse_sum_to."""
    info = tensor(data, "data", NUMBER)
    target = tensor(collapse_target, "collapse_target")
    _want_fit(target.dims, info.dims, "collapse_target")
    return TensorStructInfo(target.shape, info.dtype, info.vdevice)
