"""Pools over windows, adaptive pools and global pools, over one, two and three axes.

A window that lies wholly in the padding has -inf (of integers, the least one) as its maximum and 0
as its average. Sums of 16-bit floats are kept in float32, those of integers in int64.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ....base import DataType, StructInfoError
from ....ir.expr import GE, LT, FloorDiv, IntImm, Max, Min, PrimExpr, cast, const
from ....te import Tensor, compute, reduce_axis
from ....te import sum as te_sum
from ....tir import all as all_of
from ....tir import truncdiv
from ...expr import Call, PrimValue
from ...struct_info import Expr, ShapeExpr, StructInfo, TensorStructInfo
from ..infer import NUMBER, tensor
from ..lower import te_lower
from ..names import ops as all_ops
from ..record import missing, op
from .conv import data_gradient
from .layout import Layout, layout_of
from .window import (
    SPATIAL,
    attribute_layout,
    greatest,
    normalised,
    padding_of,
    positive_dim,
    simple,
    spread,
    window_count,
)

__all__ = [
    "adaptive_avg_pool1d",
    "adaptive_avg_pool2d",
    "adaptive_avg_pool3d",
    "adaptive_max_pool1d",
    "adaptive_max_pool2d",
    "adaptive_max_pool3d",
    "avg_pool1d",
    "avg_pool2d",
    "avg_pool3d",
    "global_avg_pool1d",
    "global_avg_pool2d",
    "global_avg_pool3d",
    "global_max_pool1d",
    "global_max_pool2d",
    "global_max_pool3d",
    "max_pool1d",
    "max_pool2d",
    "max_pool3d",
]


# -- attributes and inference ---------------------------------------------------------------------


@dataclass(frozen=True)
class _Pool:
    """The attributes of a pool in one form."""

    spatial: str
    size: tuple[int, ...]
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    ceil: bool
    include_pad: bool
    data: Layout
    out: Layout

    @property
    def before(self) -> tuple[int, ...]:
        return self.padding[: len(self.spatial)]

    @property
    def after(self) -> tuple[int, ...]:
        return self.padding[len(self.spatial) :]

    def count(self, size: Any, k: int) -> Any:
        """How many windows there are along spatial axis `k` of that size."""
        return window_count(
            size, self.size[k], self.strides[k], self.before[k], self.after[k], self.dilation[k],
            self.ceil,
        )  # fmt: skip


def _layouts(ndim: int, attrs: dict[str, Any]) -> tuple[Layout, Layout]:
    spatial = SPATIAL[ndim]
    if attrs["out_layout"] is None:
        attrs["out_layout"] = attrs["layout"]
    data = layout_of(attrs["layout"], f"NC{spatial}", "layout")
    out = layout_of(attrs["out_layout"], f"NC{spatial}", "out_layout")
    if any(a in data.blocks for a in spatial):
        raise StructInfoError(f"layout: wanted only C or N in blocks, got {data.name}")
    return data, out


def _settings(ndim: int, attrs: dict[str, Any]) -> _Pool:
    """The attributes checked; `attrs` is changed to hold them in one form, as calls keep them."""
    for name in ("pool_size", "strides", "dilation"):
        attrs[name] = spread(attrs[name], ndim, name)
    attrs["padding"] = padding_of(attrs["padding"], ndim)
    return _Pool(
        SPATIAL[ndim],
        attrs["pool_size"],
        attrs["strides"],
        attrs["padding"],
        attrs["dilation"],
        attrs["ceil_mode"],
        attrs["count_include_pad"],
        *_layouts(ndim, attrs),
    )


def _attributes(given: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in given.items() if k != "data"}


def _info(data: Expr, ndim: int, attrs: dict[str, Any]) -> StructInfo:
    pool = _settings(ndim, attrs)
    info = tensor(data, "data", NUMBER, pool.data.ndim)
    if info.dims is None:
        return TensorStructInfo(None, info.dtype, info.vdevice, pool.out.ndim)
    sizes = pool.data.sizes(info.dims)
    for k, axis in enumerate(pool.spatial):
        why = f"axis {axis}: a window of {pool.size[k]} on data of {sizes[axis]}"
        sizes[axis] = positive_dim(pool.count(sizes[axis], k), why)
    dims = [simple(d) for d in pool.out.shape(sizes, "out_layout")]
    return TensorStructInfo(dims, info.dtype, info.vdevice)


def _adaptive_settings(
    ndim: int, attrs: dict[str, Any]
) -> tuple[tuple[int, ...] | None, Layout, Layout]:
    if attrs["output_size"] is not None:
        attrs["output_size"] = spread(attrs["output_size"], ndim, "output_size")
    return attrs["output_size"], *_layouts(ndim, attrs)


def _adaptive_info(data: Expr, ndim: int, attrs: dict[str, Any]) -> StructInfo:
    wanted, lay, out = _adaptive_settings(ndim, attrs)
    info = tensor(data, "data", NUMBER, lay.ndim)
    if info.dims is None:
        return TensorStructInfo(None, info.dtype, info.vdevice, out.ndim)
    sizes = lay.sizes(info.dims)
    if wanted is not None:
        sizes.update({a: const(n, "int64") for a, n in zip(SPATIAL[ndim], wanted)})
    dims = [simple(d) for d in out.shape(sizes, "out_layout")]
    return TensorStructInfo(dims, info.dtype, info.vdevice)


# -- legalisation ---------------------------------------------------------------------------------


def _sum_dtype(dtype: DataType) -> str:
    if not dtype.is_float:
        return "int64"
    return "float32" if dtype.bits == 16 else dtype


def _average(total: PrimExpr, count: PrimExpr, dtype: DataType) -> PrimExpr:
    """total / count in `dtype`; of integers, rounded toward zero."""
    if dtype.is_float:
        return cast(dtype, total / cast(total.dtype, count))
    return cast(dtype, truncdiv(total, cast(total.dtype, count)))


def _pool_te(ndim: int, average: bool) -> Callable[..., Tensor]:
    def build(data: Tensor, **attrs: Any) -> Tensor:
        pool = _settings(ndim, attrs)
        have = pool.data.sizes(data.shape)
        sizes = dict(have)
        for k, axis in enumerate(pool.spatial):
            sizes[axis] = simple(pool.count(have[axis], k))
        taps = [reduce_axis((0, n), f"r{a.lower()}") for a, n in zip(pool.spatial, pool.size)]

        def window(at: dict[str, PrimExpr]) -> tuple[dict[str, PrimExpr], list[PrimExpr]]:
            source, inside = dict(at), []
            for k, axis in enumerate(pool.spatial):
                i = at[axis] * pool.strides[k] + taps[k].var * pool.dilation[k] - pool.before[k]
                source[axis] = i
                if pool.before[k]:
                    inside.append(GE(i, const(0, i.dtype)))
                if pool.after[k] or pool.ceil:
                    inside.append(LT(i, have[axis]))
            return source, inside

        def best(at: dict[str, PrimExpr]) -> PrimExpr:
            source, inside = window(at)
            where = all_of(*inside) if inside else None
            return greatest(data(*pool.data.index(source)), axis=taps, where=where)

        def total(at: dict[str, PrimExpr]) -> PrimExpr:
            source, inside = window(at)
            where = all_of(*inside) if inside else None
            value = cast(_sum_dtype(data.dtype), data(*pool.data.index(source)))
            return te_sum(value, axis=taps, where=where)

        if not average:
            return pool.out.compute(sizes, best, "max_pool")
        sums = pool.out.compute(sizes, total, "pool_sum")

        def mean(*i: PrimExpr) -> PrimExpr:
            at = pool.out.axes(i)
            count: PrimExpr = const(1, "int64")
            for k, axis in enumerate(pool.spatial):
                count = count * cast("int64", _covered(pool, at[axis], have[axis], k))
            return _average(sums(*i), Max(count, const(1, "int64")), data.dtype)

        return compute(sums.shape, mean, "avg_pool")

    return build


def _covered(pool: _Pool, i: PrimExpr, size: PrimExpr, k: int) -> PrimExpr:
    """How many of the places of window `i` count, along spatial axis `k`."""
    whole = const(pool.size[k], i.dtype)
    if pool.include_pad or not (pool.before[k] or pool.after[k] or pool.ceil):
        return whole
    d = pool.dilation[k]
    begin = i * pool.strides[k] - pool.before[k]
    zero = const(0, i.dtype)
    # Places begin + d * t with 0 <= place < size: t from `low` to before `high`.
    low = Max(FloorDiv(zero - begin + (d - 1), const(d, i.dtype)), zero)
    high = Min(FloorDiv(cast(i.dtype, size) - begin + (d - 1), const(d, i.dtype)), whole)
    return Max(high - low, zero)


def _adaptive_te(ndim: int, average: bool) -> Callable[..., Tensor]:
    def build(data: Tensor, **attrs: Any) -> Tensor:
        wanted, lay, out = _adaptive_settings(ndim, attrs)
        have = lay.sizes(data.shape)
        sizes = dict(have)
        spatial = SPATIAL[ndim]
        if wanted is not None:
            sizes.update({a: const(n, have[a].dtype) for a, n in zip(spatial, wanted)})
        longest = {a: _longest(have[a], sizes[a]) for a in spatial}
        taps = {a: reduce_axis((0, longest[a]), f"r{a.lower()}") for a in spatial}

        def span(at: dict[str, PrimExpr], a: str) -> tuple[PrimExpr, PrimExpr]:
            """Where the part of axis `a` begins that output `at` covers, and where it ends."""
            many, i = cast(at[a].dtype, sizes[a]), at[a]
            size = cast(i.dtype, have[a])
            return FloorDiv(i * size, many), FloorDiv((i + 1) * size + (many - 1), many)

        def read(at: dict[str, PrimExpr]) -> tuple[PrimExpr, PrimExpr]:
            source, inside = dict(at), []
            for a in spatial:
                begin, end = span(at, a)
                source[a] = begin + taps[a].var
                inside.append(LT(source[a], end))
            return data(*lay.index(source)), all_of(*inside)

        axes = list(taps.values())

        def best(at: dict[str, PrimExpr]) -> PrimExpr:
            value, inside = read(at)
            return greatest(value, axis=axes, where=inside)

        def total(at: dict[str, PrimExpr]) -> PrimExpr:
            value, inside = read(at)
            return te_sum(cast(_sum_dtype(data.dtype), value), axis=axes, where=inside)

        if not average:
            return out.compute(sizes, best, "adaptive_max")
        sums = out.compute(sizes, total, "adaptive_sum")

        def mean(*i: PrimExpr) -> PrimExpr:
            at = out.axes(i)
            count: PrimExpr = const(1, "int64")
            for a in spatial:
                begin, end = span(at, a)
                count = count * cast("int64", end - begin)
            return _average(sums(*i), count, data.dtype)

        return compute(sums.shape, mean, "adaptive_avg")

    return build


def _longest(size: PrimExpr, parts: PrimExpr) -> PrimExpr:
    """The length of the longest of the parts that an axis of `size` is divided into."""
    if isinstance(size, IntImm) and isinstance(parts, IntImm):
        n, m = size.value, parts.value
        ends = (((i + 1) * n + m - 1) // m - i * n // m for i in range(min(m, 4096)))
        longest = max(ends, default=0) if m <= 4096 else n // m + 2
        return const(longest, size.dtype)
    if size is parts:
        return const(1, size.dtype)
    if isinstance(parts, IntImm) and parts.value == 1:
        return size
    return simple(FloorDiv(size + (parts - 1), parts) + 1)


# -- meaning --------------------------------------------------------------------------------------


def _numpy_sums(x: np.ndarray) -> np.ndarray:
    """`x` in the dtype that sums of it are made in, one width up."""
    wide = {"float16": "float32", "float32": "float64"}.get(x.dtype.name)
    return x.astype(wide or ("int64" if x.dtype.kind in "iu" else x.dtype))


def _numpy_average(total: np.ndarray, count: np.ndarray, kind: np.dtype) -> np.ndarray:
    if kind.kind == "f":
        return (total / count.astype(total.dtype)).astype(kind)
    with np.errstate(all="ignore"):
        made = np.where(count == 0, 0, np.abs(total) // np.maximum(count, 1)) * np.sign(total)
    return made.astype(kind)


def _lowest(kind: np.dtype) -> Any:
    return -np.inf if kind.kind == "f" else np.iinfo(kind).min


def _pool_numpy(ndim: int, average: bool) -> Callable[..., np.ndarray]:
    def meaning(data: np.ndarray, **attrs: Any) -> np.ndarray:
        pool = _settings(ndim, attrs)
        plain = pool.data.to_plain(data, f"NC{pool.spatial}")
        kind, places = plain.dtype, plain.shape[2:]
        counts = [pool.count(n, k) for k, n in enumerate(places)]
        whole = [
            max((c - 1) * s + (k - 1) * d + 1, b + n)
            for c, s, k, d, b, n in zip(
                counts, pool.strides, pool.size, pool.dilation, pool.before, places
            )
        ]
        widths = [(0, 0), (0, 0)]
        widths += [(b, w - b - n) for b, w, n in zip(pool.before, whole, places)]
        x = _numpy_sums(plain) if average else plain
        x = np.pad(x, widths, constant_values=0 if average else _lowest(kind))
        real = np.pad(np.ones(places, "int64"), widths[2:])
        made = np.zeros((*plain.shape[:2], *counts), x.dtype)
        made = made if average else np.full(made.shape, _lowest(kind), kind)
        covered = np.zeros(counts, "int64")
        for tap in itertools.product(*map(range, pool.size)):
            at = tuple(
                slice(t * d, t * d + c * s, s) if c else slice(0, 0)
                for t, d, c, s in zip(tap, pool.dilation, counts, pool.strides)
            )
            made = made + x[(..., *at)] if average else np.maximum(made, x[(..., *at)])
            covered += real[at]
        if average:
            count = np.full(counts, math.prod(pool.size)) if pool.include_pad else covered
            made = _numpy_average(made, np.maximum(count, 1), kind)
        return pool.out.from_plain(made, f"NC{pool.spatial}")

    return meaning


def _adaptive_numpy(ndim: int, average: bool) -> Callable[..., np.ndarray]:
    def meaning(data: np.ndarray, **attrs: Any) -> np.ndarray:
        wanted, lay, out = _adaptive_settings(ndim, attrs)
        plain = lay.to_plain(data, f"NC{SPATIAL[ndim]}")
        places, kind = plain.shape[2:], plain.dtype
        counts = places if wanted is None else wanted
        x = _numpy_sums(plain) if average else plain
        made = np.empty((*plain.shape[:2], *counts), kind)
        for at in itertools.product(*map(range, counts)):
            spans = [(i * n // m, -(-(i + 1) * n // m)) for i, n, m in zip(at, places, counts)]
            part = x[(..., *(slice(*s) for s in spans))]
            over = tuple(range(2, part.ndim))
            if average:
                count = np.asarray(math.prod(e - b for b, e in spans))
                made[(..., *at)] = _numpy_average(np.sum(part, axis=over), count, kind)
            else:
                made[(..., *at)] = np.max(part, axis=over, initial=_lowest(kind))
        return out.from_plain(made, f"NC{SPATIAL[ndim]}")

    return meaning


# -- gradients ------------------------------------------------------------------------------------


def _known(e: Expr) -> tuple[Any, ...]:
    dims = e.struct_info.dims  # type: ignore[attr-defined]
    if dims is None:
        raise StructInfoError("data: wanted known dimensions; match_cast them first")
    return dims


def _avg_grad(ndim: int) -> Callable[..., tuple[Any]]:
    """Each window's gradient, divided by what it was divided by, given to all its places."""

    def rule(ops: Any, call: Call, y: Any, gy: Any) -> tuple[Any]:
        pool = _settings(ndim, dict(call.attrs))
        plain, data = f"NC{pool.spatial}", call.args[0]
        _known(data)
        x = pool.data.plain_expr(ops, data, plain)
        g = pool.out.plain_expr(ops, gy, plain)
        n, c, *places = x.struct_info.dims
        rows, windows = simple(n * c), g.struct_info.dims[2:]
        g = ops.reshape(g, ShapeExpr([rows, 1, *windows]))
        kind = x.struct_info.dtype
        if pool.include_pad:
            g = g / float(math.prod(pool.size))
        else:
            pooled = getattr(ops.nn, f"avg_pool{ndim}d")
            ones = ops.ones([1, 1, *places], kind)
            part = pooled(
                ones, pool_size=pool.size, strides=pool.strides, padding=pool.padding,
                dilation=pool.dilation, ceil_mode=pool.ceil, count_include_pad=True,
            )  # fmt: skip
            g = g / ops.maximum(part * float(math.prod(pool.size)), 1.0)
        weight = ops.ones([1, 1, *pool.size], kind)
        gx = data_gradient(ops, g, weight, places, pool.strides, pool.padding, pool.dilation, 1)
        gx = ops.reshape(gx, ShapeExpr([n, c, *places]))
        return (pool.data.from_plain_expr(ops, gx, plain),)

    return rule


def _max_grad_2d(ops: Any, call: Call, y: Any, gy: Any) -> tuple[Any]:
    return (ops.grad.max_pool2d_backward(gy, call.args[0], **dict(call.attrs)),)


def _max_grad_1d(ops: Any, call: Call, y: Any, gy: Any) -> tuple[Any]:
    """As a picture one row high."""
    pool = _settings(1, dict(call.attrs))
    x = pool.data.plain_expr(ops, call.args[0], "NCW")
    g = pool.out.plain_expr(ops, gy, "NCW")
    (left, right), attrs = pool.padding, call.attrs
    gx = ops.grad.max_pool2d_backward(
        ops.expand_dims(g, axis=2), ops.expand_dims(x, axis=2), pool_size=(1, *pool.size),
        strides=(1, *pool.strides), padding=(0, left, 0, right), dilation=(1, *pool.dilation),
        ceil_mode=attrs["ceil_mode"], count_include_pad=attrs["count_include_pad"], layout="NCHW",
        out_layout="NCHW",
    )  # fmt: skip
    return (pool.data.from_plain_expr(ops, ops.squeeze(gx, axis=[2]), "NCW"),)


_NO_BACKWARD = missing("there is no operator that finds where a maximum over three axes was")
_MAX_GRADS = {1: _max_grad_1d, 2: _max_grad_2d, 3: _NO_BACKWARD}


def _pool_rules(ndim: int, average: bool) -> dict[str, Any]:
    return {
        "numpy": _pool_numpy(ndim, average),
        "lower": te_lower(_pool_te(ndim, average)),
        "grad": _avg_grad(ndim) if average else _MAX_GRADS[ndim],
        "layout": attribute_layout("layout", "out_layout"),
    }


def _adaptive_grad(ndim: int) -> Callable[..., tuple[Any]]:
    def rule(ops: Any, call: Call, y: Any, gy: Any) -> tuple[Any]:
        """Along each axis the average is a product with a matrix; so is its gradient."""
        wanted, lay, out = _adaptive_settings(ndim, dict(call.attrs))
        plain = f"NC{SPATIAL[ndim]}"
        x = lay.plain_expr(ops, call.args[0], plain)
        g = out.plain_expr(ops, gy, plain)
        kind = x.struct_info.dtype
        for k, axis in enumerate(range(2, 2 + ndim)):
            size = _known(x)[axis]
            count = size if wanted is None else const(wanted[k], "int64")
            order = [a for a in range(2 + ndim) if a != axis] + [axis]
            share = _shares(ops, count, size, kind)
            g = ops.matmul(ops.permute_dims(g, axes=order), share)
            g = ops.permute_dims(g, axes=[order.index(a) for a in range(2 + ndim)])
        return (lay.from_plain_expr(ops, g, plain),)

    return rule


def _shares(ops: Any, count: Any, size: Any, kind: DataType) -> Any:
    """[count, size]: the share of each place in each part's average."""
    i = ops.reshape(ops.arange(0, PrimValue(count), 1, "int64"), ShapeExpr([count, 1]))
    place = ops.reshape(ops.arange(0, PrimValue(size), 1, "int64"), ShapeExpr([1, size]))
    many, long = (ops.full([1, 1], PrimValue(v), "int64") for v in (count, size))
    begin = ops.floor_divide(i * long, many)
    end = ops.floor_divide((i + 1) * long + many - 1, many)
    inside = ops.logical_and(place >= begin, place < end)
    return ops.astype(inside, kind) / ops.astype(end - begin, kind)


def _adaptive_rules(ndim: int, average: bool) -> dict[str, Any]:
    return {
        "numpy": _adaptive_numpy(ndim, average),
        "lower": te_lower(_adaptive_te(ndim, average)),
        "grad": _adaptive_grad(ndim)
        if average
        else missing("there is no operator that finds where a part's maximum was"),
        "layout": attribute_layout("layout", "out_layout"),
    }


def _face(ndim: int) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    return lambda build: normalised(build, lambda values: _settings(ndim, values) and None)


def _adaptive_face(ndim: int) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    return lambda build: normalised(build, lambda values: _adaptive_settings(ndim, values) and None)


def _whole(ndim: int, average: bool) -> dict[str, Any]:
    """A global pool: the adaptive one whose result has one place."""
    kind = "avg" if average else "max"

    def as_adaptive(call: Call) -> Any:
        pooled = getattr(all_ops.nn, f"adaptive_{kind}_pool{ndim}d")
        return pooled(call.args[0], output_size=1, **dict(call.attrs))

    rules = _adaptive_rules(ndim, average)
    meaning, grad = rules["numpy"], rules["grad"]
    return {
        "numpy": lambda data, **attrs: meaning(data, output_size=1, **attrs),
        "lower": lambda builder, call: as_adaptive(call),
        "grad": (lambda ops, call, y, gy: grad(ops, as_adaptive(call), y, gy)) if average else grad,
        "layout": attribute_layout("layout", "out_layout"),
    }


def _whole_face(ndim: int) -> Callable[[Callable[..., Call]], Callable[..., Call]]:
    return lambda build: normalised(build, lambda values: _layouts(ndim, values) and None)


# -- the operators --------------------------------------------------------------------------------


@_face(1)
@op("nn.max_pool1d", **_pool_rules(1, False))
def max_pool1d(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> StructInfo:
    """The maximum over windows of one axis. count_include_pad says nothing here.

    padding    1, 1 or 2 ints: (left, right)
    ceil_mode  a last window that only begins inside counts, too
    Raises StructInfoError if a window is larger than the padded data.
    """
    return _info(data, 1, _attributes(locals()))


@_face(2)
@op("nn.max_pool2d", **_pool_rules(2, False))
def max_pool2d(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """The maximum over windows of two axes. count_include_pad says nothing here.

    padding    1, 2 or 4 ints: (top, left, bottom, right)
    ceil_mode  a last window that only begins inside counts, too
    Raises StructInfoError if a window is larger than the padded data.
    """
    return _info(data, 2, _attributes(locals()))


@_face(3)
@op("nn.max_pool3d", **_pool_rules(3, False))
def max_pool3d(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCDHW",
    out_layout: str | None = None,
) -> StructInfo:
    """The maximum over windows of three axes. count_include_pad says nothing here.

    padding    1, 3 or 6 ints: (front, top, left, back, bottom, right)
    ceil_mode  a last window that only begins inside counts, too
    Raises StructInfoError if a window is larger than the padded data.
    """
    return _info(data, 3, _attributes(locals()))


@_face(1)
@op("nn.avg_pool1d", **_pool_rules(1, True))
def avg_pool1d(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCW",
    out_layout: str | None = None,
) -> StructInfo:
    """The average over windows of one axis.

    padding    1, 1 or 2 ints: (left, right)
    ceil_mode  a last window that only begins inside counts, too
    count_include_pad  whether padding counts as zeros; else only what is there is averaged
    Raises StructInfoError if a window is larger than the padded data.
    """
    return _info(data, 1, _attributes(locals()))


@_face(2)
@op("nn.avg_pool2d", **_pool_rules(2, True))
def avg_pool2d(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCHW",
    out_layout: str | None = None,
) -> StructInfo:
    """The average over windows of two axes.

    padding    1, 2 or 4 ints: (top, left, bottom, right)
    ceil_mode  a last window that only begins inside counts, too
    count_include_pad  whether padding counts as zeros; else only what is there is averaged
    Raises StructInfoError if a window is larger than the padded data.
    """
    return _info(data, 2, _attributes(locals()))


@_face(3)
@op("nn.avg_pool3d", **_pool_rules(3, True))
def avg_pool3d(
    data: Expr,
    pool_size: Any = 1,
    strides: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    ceil_mode: bool = False,
    count_include_pad: bool = False,
    layout: str = "NCDHW",
    out_layout: str | None = None,
) -> StructInfo:
    """The average over windows of three axes.

    padding    1, 3 or 6 ints: (front, top, left, back, bottom, right)
    ceil_mode  a last window that only begins inside counts, too
    count_include_pad  whether padding counts as zeros; else only what is there is averaged
    Raises StructInfoError if a window is larger than the padded data.
    """
    return _info(data, 3, _attributes(locals()))


@_adaptive_face(1)
@op("nn.adaptive_avg_pool1d", **_adaptive_rules(1, True))
def adaptive_avg_pool1d(
    data: Expr, output_size: Any = None, layout: str = "NCW", out_layout: str | None = None
) -> StructInfo:
    """The average of each of `output_size` parts that the data are divided into, along one axis.

    Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
    Raises StructInfoError if `output_size` is not positive; None means the size of data.
    """
    return _adaptive_info(data, 1, _attributes(locals()))


@_adaptive_face(2)
@op("nn.adaptive_avg_pool2d", **_adaptive_rules(2, True))
def adaptive_avg_pool2d(
    data: Expr, output_size: Any = None, layout: str = "NCHW", out_layout: str | None = None
) -> StructInfo:
    """The average of each of `output_size` parts that the data are divided into, along two axes.

    Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
    Raises StructInfoError if `output_size` is not positive; None means the size of data.
    """
    return _adaptive_info(data, 2, _attributes(locals()))


@_adaptive_face(3)
@op("nn.adaptive_avg_pool3d", **_adaptive_rules(3, True))
def adaptive_avg_pool3d(
    data: Expr, output_size: Any = None, layout: str = "NCDHW", out_layout: str | None = None
) -> StructInfo:
    """The average of each of `output_size` parts that the data are divided into, along three axes.

    Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
    Raises StructInfoError if `output_size` is not positive; None means the size of data.
    """
    return _adaptive_info(data, 3, _attributes(locals()))


@_adaptive_face(1)
@op("nn.adaptive_max_pool1d", **_adaptive_rules(1, False))
def adaptive_max_pool1d(
    data: Expr, output_size: Any = None, layout: str = "NCW", out_layout: str | None = None
) -> StructInfo:
    """The maximum of each of `output_size` parts that the data are divided into, along one axis.

    Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
    Raises StructInfoError if `output_size` is not positive; None means the size of data.
    """
    return _adaptive_info(data, 1, _attributes(locals()))


@_adaptive_face(2)
@op("nn.adaptive_max_pool2d", **_adaptive_rules(2, False))
def adaptive_max_pool2d(
    data: Expr, output_size: Any = None, layout: str = "NCHW", out_layout: str | None = None
) -> StructInfo:
    """The maximum of each of `output_size` parts that the data are divided into, along two axes.

    Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
    Raises StructInfoError if `output_size` is not positive; None means the size of data.
    """
    return _adaptive_info(data, 2, _attributes(locals()))


@_adaptive_face(3)
@op("nn.adaptive_max_pool3d", **_adaptive_rules(3, False))
def adaptive_max_pool3d(
    data: Expr, output_size: Any = None, layout: str = "NCDHW", out_layout: str | None = None
) -> StructInfo:
    """The maximum of each of `output_size` parts that the data are divided into, along three axes.

    Part i of m of an axis of size s is i * s // m to (i + 1) * s / m, rounded up.
    Raises StructInfoError if `output_size` is not positive; None means the size of data.
    """
    return _adaptive_info(data, 3, _attributes(locals()))


@_whole_face(1)
@op("nn.global_avg_pool1d", **_whole(1, True))
def global_avg_pool1d(data: Expr, layout: str = "NCW", out_layout: str | None = None) -> StructInfo:
    """The average over all places of each channel; that axis keeps size 1."""
    return _adaptive_info(data, 1, {"output_size": 1, **_attributes(locals())})


@_whole_face(2)
@op("nn.global_avg_pool2d", **_whole(2, True))
def global_avg_pool2d(
    data: Expr, layout: str = "NCHW", out_layout: str | None = None
) -> StructInfo:
    """The average over all places of each channel; those axes keep size 1."""
    return _adaptive_info(data, 2, {"output_size": 1, **_attributes(locals())})


@_whole_face(3)
@op("nn.global_avg_pool3d", **_whole(3, True))
def global_avg_pool3d(
    data: Expr, layout: str = "NCDHW", out_layout: str | None = None
) -> StructInfo:
    """The average over all places of each channel; those axes keep size 1."""
    return _adaptive_info(data, 3, {"output_size": 1, **_attributes(locals())})


@_whole_face(1)
@op("nn.global_max_pool1d", **_whole(1, False))
def global_max_pool1d(data: Expr, layout: str = "NCW", out_layout: str | None = None) -> StructInfo:
    """The maximum over all places of each channel; that axis keeps size 1."""
    return _adaptive_info(data, 1, {"output_size": 1, **_attributes(locals())})


@_whole_face(2)
@op("nn.global_max_pool2d", **_whole(2, False))
def global_max_pool2d(
    data: Expr, layout: str = "NCHW", out_layout: str | None = None
) -> StructInfo:
    """The maximum over all places of each channel; those axes keep size 1."""
    return _adaptive_info(data, 2, {"output_size": 1, **_attributes(locals())})


@_whole_face(3)
@op("nn.global_max_pool3d", **_whole(3, False))
def global_max_pool3d(
    data: Expr, layout: str = "NCDHW", out_layout: str | None = None
) -> StructInfo:
    """The maximum over all places of each channel; those axes keep size 1."""
    return _adaptive_info(data, 3, {"output_size": 1, **_attributes(locals())})
