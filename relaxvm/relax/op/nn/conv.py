"""Convolutions and transposed convolutions over one, two and three axes.

All are one formula over the plain axes N, C, O, I and the spatial ones; `Layout` maps them to how
the tensors are kept. Sums of 16-bit floats are kept in float32.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from ....base import DataType, StructInfoError, VMValueError, record
from ....ir import EQ, GE, LT, FloorDiv, FloorMod, PrimExpr, cast, const
from ....te import Tensor, compute, reduce_axis
from ....te import sum as te_sum
from ....tir import all as all_of
from ....tir import if_then_else
from ...derive import prove_dims
from ...expr import Call
from ...rules import Ops
from ...struct_info import Expr, ShapeExpr, StructInfo
from ..faces import prepared
from ..infer import NUMBER, dtype_of, known_sizes, shaped, tensor, tensor_of
from ..lower import rounded, te_lower, wide_dtype
from ..meaning import value_dtype
from ..record import Operator, op
from ..sizes import want_equal, want_multiple
from .layout import Layout, layout_of
from .window import (
    SPATIAL,
    named,
    padding_of,
    padding_words,
    positive_dim,
    simple,
    spread,
    static,
    te_pad,
    text_of,
    window_count,
)


@record
class _Conv:
    """The attributes of a convolution in one form.

    output_padding  None for a convolution that is not transposed
    """

    spatial: str
    strides: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int
    data: Layout
    kernel: Layout
    out: Layout
    output_padding: tuple[int, ...] | None = None

    @property
    def before(self) -> tuple[int, ...]:
        return self.padding[: len(self.spatial)]

    @property
    def after(self) -> tuple[int, ...]:
        return self.padding[len(self.spatial) :]

    def windows(self, name: str, size: Any, kernel: Any, k: int) -> Any:
        """The size of the result along spatial axis `k`."""
        if self.output_padding is None:
            return window_count(
                size, kernel, self.strides[k], self.before[k], self.after[k], self.dilation[k]
            )
        extra = self.output_padding[k] + 1 - self.before[k] - self.after[k]
        return (size - 1) * self.strides[k] + (kernel - 1) * self.dilation[k] + extra

    def sizes(self, data: Sequence[Any], weight: Sequence[Any]) -> dict[str, Any]:
        """The size of each axis of the result, from the dimensions of data and weight."""
        x, w = self.data.sizes(data), self.kernel.sizes(weight)
        sizes = {"N": x["N"], "C": w["O"] * (self.groups if self.output_padding is not None else 1)}
        for k, axis in enumerate(self.spatial):
            sizes[axis] = self.windows(axis, x[axis], w[axis], k)
        return sizes


def _settings(ndim: int, attrs: dict[str, Any]) -> _Conv:
    """The attributes checked; `attrs` is changed to hold them in one form, as calls keep them."""
    spatial = SPATIAL[ndim]
    for name in ("strides", "dilation"):
        attrs[name] = spread(attrs[name], ndim, name)
    attrs["padding"] = padding_of(attrs["padding"], ndim)
    transposed = "output_padding" in attrs
    if transposed:
        more = spread(attrs["output_padding"], ndim, "output_padding", 0)
        attrs["output_padding"] = more
        for extra, s, d in zip(more, attrs["strides"], attrs["dilation"]):
            if extra and extra >= max(s, d):
                raise StructInfoError(
                    f"output_padding: wanted less than the stride ({s}) or the dilation ({d}), "
                    f"got {extra}"
                )
    groups = attrs["groups"]
    if type(groups) is not int or not 1 <= groups < 2**31:
        raise StructInfoError(f"groups: wanted an int >= 1 and < 2**31, got {groups!r}")
    if attrs["out_layout"] is None:
        attrs["out_layout"] = attrs["data_layout"]
    return _Conv(
        spatial,
        attrs["strides"],
        attrs["padding"],
        attrs["dilation"],
        groups,
        layout_of(attrs["data_layout"], f"NC{spatial}", "data_layout"),
        layout_of(attrs["kernel_layout"], f"OI{spatial}", "kernel_layout"),
        layout_of(attrs["out_layout"], f"NC{spatial}", "out_layout"),
        attrs.get("output_padding"),
    )


# -- inference ---------------------------------------------------------------------------


def _info(data: Expr, weight: Expr, ndim: int, attrs: dict[str, Any]) -> StructInfo:
    conv = _settings(ndim, attrs)
    x = tensor(data, "data", NUMBER, conv.data.ndim)
    w = tensor(weight, "weight", NUMBER, conv.kernel.ndim)
    dtype = _out_dtype(x.dtype, w.dtype, attrs["out_dtype"])
    have, kernel = conv.data.sizes(x.dims), conv.kernel.sizes(w.dims)
    _want_channels(conv, simple(have["C"]), kernel)
    sizes = {
        a: positive_dim(
            d, f"axis {a}: a window of {text_of(kernel.get(a))} on data of {text_of(have.get(a))}"
        )
        for a, d in conv.sizes(x.dims, w.dims).items()
    }
    return shaped(x, conv.out.shape(sizes, "out_layout"), dtype)


def _out_dtype(x: DataType, w: DataType, wanted: Any) -> DataType:
    if wanted is not None:
        dtype = dtype_of(wanted, "out_dtype", NUMBER)
        for info, name in ((x, "data"), (w, "weight")):
            if info.is_float and not dtype.is_float:
                raise StructInfoError(f"out_dtype: {dtype} for {name} of {info}; wanted a float")
        return dtype
    if x != "void" and w != "void" and x is not w:
        raise StructInfoError(
            f"the dtypes differ: data is {x}, weight is {w}; astype one of them, or give out_dtype"
        )
    return w if x == "void" else x


def _want_channels(conv: _Conv, channels: PrimExpr, kernel: dict[str, Any]) -> None:
    each, groups = simple(kernel["I"]), conv.groups
    if conv.output_padding is None:
        text = "data has {a} channels; wanted {b}: weight has {each} for each of {groups} groups"
        want_equal(channels, simple(each * groups), text, each=each, groups=groups)
        many, name = kernel["O"], "output"
    else:
        want_equal(channels, each, "data has {a} channels; wanted {b}, as weight has")
        many, name = each, "input"
    text = "weight has {size} {name} channels; wanted a multiple of groups = {groups}"
    want_multiple(many, groups, text, name=name, groups=groups)


# -- legalisation ------------------------------------------------------------------------


def _te(ndim: int) -> Callable[..., Tensor]:
    def compute_conv(data: Tensor, weight: Tensor, **attrs: Any) -> Tensor:
        conv = _settings(ndim, attrs)
        dtype = _out_dtype(data.dtype, weight.dtype, attrs["out_dtype"])
        build = _te_conv if conv.output_padding is None else _te_transpose
        return build(conv, data, weight, dtype)

    return compute_conv


def _group(index: PrimExpr, count: Any, groups: int, each: Any) -> PrimExpr | None:
    """Where the group of channel `index` of `count` begins in the other tensor's; None: at 0."""
    if groups == 1:
        return None
    first = FloorDiv(index, cast(index.dtype, simple(count // groups)))
    return first * cast(index.dtype, each)


def _te_conv(conv: _Conv, data: Tensor, weight: Tensor, dtype: DataType) -> Tensor:
    wide = wide_dtype(dtype)
    kernel = conv.kernel.sizes(weight.shape)
    sizes = {a: simple(d) for a, d in conv.sizes(data.shape, weight.shape).items()}
    where = [conv.data.position(a) for a in conv.spatial]
    before, after = [0] * data.ndim, [0] * data.ndim
    for k, index in enumerate(where):
        before[index], after[index] = conv.before[k], conv.after[k]
    blocked = any(a in conv.data.blocks for a in conv.spatial)
    padded = data if blocked else te_pad(data, before, after, const(0, data.dtype))
    have = conv.data.sizes(data.shape)
    channel = reduce_axis((0, kernel["I"]), "rc")
    taps = [reduce_axis((0, kernel[a]), f"r{a.lower()}") for a in conv.spatial]

    def value(index: dict[str, PrimExpr]) -> PrimExpr:
        begin = _group(index["C"], kernel["O"], conv.groups, kernel["I"])
        source = {"N": index["N"], "C": channel.var if begin is None else begin + channel.var}
        inside = []
        for k, axis in enumerate(conv.spatial):
            source[axis] = index[axis] * conv.strides[k] + taps[k].var * conv.dilation[k]
            if blocked and (conv.before[k] or conv.after[k]):
                row = source[axis] = source[axis] - conv.before[k]
                inside += [GE(row, const(0, row.dtype)), LT(row, have[axis])]
        read = padded(*conv.data.index(source))
        if inside:
            read = if_then_else(all_of(*inside), read, const(0, data.dtype))
        taken = {
            "O": index["C"],
            "I": channel.var,
            **{a: t.var for a, t in zip(conv.spatial, taps)},
        }
        factor = weight(*conv.kernel.index(taken))
        return te_sum(cast(wide, read) * cast(wide, factor), axis=[channel, *taps])

    return rounded(conv.out.compute(sizes, value, "conv"), dtype)


def _te_transpose(conv: _Conv, data: Tensor, weight: Tensor, dtype: DataType) -> Tensor:
    """With strides, every element is first multiplied with every tap: that multiplies no zeros, and
    of these products at most ceil(window / stride) meet in one element along an axis.
    """
    wide = wide_dtype(dtype)
    kernel, have = conv.kernel.sizes(weight.shape), conv.data.sizes(data.shape)
    sizes = {a: simple(d) for a, d in conv.sizes(data.shape, weight.shape).items()}
    channels, window = simple(kernel["I"] // conv.groups), [kernel[a] for a in conv.spatial]
    channel = reduce_axis((0, channels), "rc")

    def product(n: PrimExpr, c: PrimExpr, *index: PrimExpr) -> PrimExpr:
        """Of the taps and places `index`, for output channel `c`."""
        begin = _group(c, sizes["C"], conv.groups, channels)
        source = {"N": n, "C": channel.var if begin is None else begin + channel.var}
        source.update(zip(conv.spatial, index[len(window) :]))
        own = c if begin is None else FloorMod(c, cast(c.dtype, kernel["O"]))
        taken = {"O": own, "I": source["C"], **dict(zip(conv.spatial, index))}
        read, factor = data(*conv.data.index(source)), weight(*conv.kernel.index(taken))
        return cast(wide, read) * cast(wide, factor)

    met: Callable[..., PrimExpr] = product
    summed, count = [channel], window
    if max(conv.strides) > 1 == max(conv.dilation) and channels != 1:
        # What stands before the places are the rows of tiles: channels, where taps are few.
        many, few = static(sizes["C"]) or 0, static(window[-1]) or 0
        p = len(window) if conv.groups == 1 and 0 < few < 5 and many >= 2 * few else 0
        shape = [*window, *(have[a] for a in conv.spatial)]
        shape.insert(p, sizes["C"])
        products = compute(
            [sizes["N"], *shape],
            lambda n, *index: te_sum(product(n, index[p], *index[:p], *index[p + 1 :]), channel),
            "products",
        )
        met, summed = (lambda n, c, *index: products(n, *index[:p], c, *index[p:])), []
        count = [simple((d + s - 1) // s) for d, s in zip(window, conv.strides)]
    steps = [reduce_axis((0, d), f"r{a.lower()}") for a, d in zip(conv.spatial, count)]
    # Windows that touch and do not overlap: each element of the result is one of the products.
    touching = not any((*conv.padding, *(conv.output_padding or ()), *summed))
    touching = touching and [*map(static, window)] == [*conv.strides]

    def value(index: dict[str, PrimExpr]) -> PrimExpr:
        if touching:
            sides = [
                (index[a], const(s, index[a].dtype)) for a, s in zip(conv.spatial, conv.strides)
            ]
            pieces = *(FloorMod(*side) for side in sides), *(FloorDiv(*side) for side in sides)
            return met(index["N"], index["C"], *pieces)
        inside: list[PrimExpr] = []
        taps, rows = [], []
        for k, axis in enumerate(conv.spatial):
            row, tap = index[axis] + conv.before[k], cast(index[axis].dtype, steps[k].var)
            stride, zero = const(conv.strides[k], row.dtype), const(0, row.dtype)
            if not summed:
                tap, row = tap * stride + FloorMod(row, stride), FloorDiv(row, stride) - tap
                inside.append(LT(tap, window[k]))
            else:
                row = row - tap * conv.dilation[k]
                if conv.strides[k] > 1:
                    inside.append(EQ(FloorMod(row, stride), zero))
                    row = FloorDiv(row, stride)
            inside += [GE(row, zero), LT(row, have[axis])]
            taps.append(tap)
            rows.append(row)
        return te_sum(met(index["N"], index["C"], *taps, *rows), [*summed, *steps], all_of(*inside))

    return rounded(conv.out.compute(sizes, value, "conv_transpose"), dtype)


# -- meaning -----------------------------------------------------------------------------


def _numpy(ndim: int) -> Callable[..., np.ndarray]:
    def meaning(data: np.ndarray, weight: np.ndarray, **attrs: Any) -> np.ndarray:
        conv = _settings(ndim, attrs)
        out_dtype = attrs["out_dtype"]
        dtype = data.dtype if out_dtype is None else value_dtype(out_dtype)
        wide = np.dtype({"float16": "float32", "float32": "float64"}.get(dtype.name, dtype))
        x = conv.data.to_plain(data, f"NC{conv.spatial}").astype(wide)
        order = "OI" if conv.output_padding is None else "IO"
        w = conv.kernel.to_plain(weight, order + conv.spatial).astype(wide)
        result = (_numpy_conv if conv.output_padding is None else _numpy_transpose)(conv, x, w)
        return conv.out.from_plain(result.astype(dtype), f"NC{conv.spatial}")

    return meaning


def _inner(index: Iterable[Any]) -> Any:
    """An index of the last axes."""
    return (..., *index)


def _numpy_conv(conv: _Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    groups, kernel = conv.groups, w.shape[2:]
    x = np.pad(x, [(0, 0), (0, 0), *zip(conv.before, conv.after)])
    size = [
        (n - (k - 1) * d - 1) // s + 1
        for n, k, s, d in zip(x.shape[2:], kernel, conv.strides, conv.dilation)
    ]
    if min(size) < 0:
        raise VMValueError(f"the window {kernel} does not fit the padded data {x.shape[2:]}")
    x = x.reshape(x.shape[0], groups, w.shape[1], *x.shape[2:])
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    result = np.zeros((x.shape[0], groups, w.shape[1], *size), x.dtype)
    for tap in itertools.product(*map(range, kernel)):
        part = x[_inner(_strided(tap, size, conv.dilation, conv.strides))]
        result += np.einsum("ngi...,goi->ngo...", part, w[_inner(tap)])
    return result.reshape(x.shape[0], -1 if result.size else groups * w.shape[1], *size)


def _numpy_transpose(conv: _Conv, x: np.ndarray, w: np.ndarray) -> np.ndarray:
    groups, kernel, sizes = conv.groups, w.shape[2:], x.shape[2:]
    size = [conv.windows("", n, k, i) for i, (n, k) in enumerate(zip(sizes, kernel))]
    whole = [
        max((n - 1) * s + (k - 1) * d + 1, b + m)
        for n, k, s, d, b, m in zip(sizes, kernel, conv.strides, conv.dilation, conv.before, size)
    ]
    x = x.reshape(x.shape[0], groups, x.shape[1] // groups, *sizes)
    w = w.reshape(groups, w.shape[0] // groups, *w.shape[1:])
    result = np.zeros((x.shape[0], groups, w.shape[2], *whole), x.dtype)
    for tap in itertools.product(*map(range, kernel)):
        places = _inner(_strided(tap, sizes, conv.dilation, conv.strides))
        result[places] += np.einsum("ngi...,gio->ngo...", x, w[_inner(tap)])
    result = result[_inner(slice(b, b + m) for b, m in zip(conv.before, size))]
    return result.reshape(x.shape[0], groups * w.shape[2], *size)


def _strided(tap: Any, count: Any, dilation: Any, strides: Any) -> list[slice]:
    return [
        slice(t * d, t * d + n * s, s) if n else slice(0, 0)
        for t, n, d, s in zip(tap, count, dilation, strides)
    ]


# -- gradients ---------------------------------------------------------------------------


def _by_ndim(ndim: int, transposed: bool = False) -> Callable[..., Any]:
    back = (conv1d_transpose, conv2d_transpose, conv3d_transpose)
    return (back if transposed else (conv1d, conv2d, conv3d))[ndim - 1]


def data_gradient(
    ops: Ops, gy: Expr, weight: Any, dims: Sequence[Any], strides: tuple[int, ...],
    padding: tuple[int, ...], dilation: tuple[int, ...], groups: int,
) -> Any:  # fmt: skip
    """The transposed convolution of `gy`, of the spatial dimensions `dims`; plain layouts."""
    ndim = len(strides)
    have, kernel = tensor_of(gy).dims[2:], weight.struct_info.dims[2:]
    before, after, extra, exact = padding[:ndim], list(padding[ndim:]), [0] * ndim, True
    for k in range(ndim):
        reach = (have[k] - 1) * strides[k] + (kernel[k] - 1) * dilation[k] + (1 - before[k])
        missing_part = static(simple(dims[k] - reach))
        if missing_part is not None:
            after[k], extra[k] = max(-missing_part, 0), max(missing_part, 0)
        else:
            extra[k], exact = strides[k] - 1, False
    gradient = _by_ndim(ndim, True)(
        gy, weight, strides=strides, padding=(*before, *after), dilation=dilation,
        output_padding=tuple(extra), groups=groups,
    )  # fmt: skip
    return gradient if exact else _cut(ops, gradient, dims)


def _cut(ops: Ops, x: Any, dims: Sequence[Any]) -> Any:
    """The beginning of `x` along the spatial axes, of the sizes `dims`."""
    have = x.struct_info.dims[2:]
    if all(prove_dims(a, b) for a, b in zip(have, dims)):
        return x
    ndim = len(dims)
    return ops.strided_slice(x, axes=list(range(2, 2 + ndim)), begin=[0] * ndim, end=list(dims))


def _weight_gradient(ops: Ops, x: Any, gy: Expr, dims: Sequence[Any], conv: _Conv) -> Any:
    """[channels of gy, channels of x / groups, taps]: what each tap of the kernel meets in `x`.

    It is a convolution of `x` by `gy` over batch and place, with strides and dilation exchanged.
    """
    ndim, groups = len(conv.spatial), conv.groups
    n, channels, *places = x.struct_info.dims
    axes = list(range(2, 2 + ndim))
    if groups == 1:
        x = ops.permute_dims(x, axes=[1, 0, *axes])
    else:
        each = simple(channels // groups)
        x = ops.reshape(x, ShapeExpr([n, groups, each, *places]))
        x = ops.permute_dims(x, axes=[2, 1, 0, *(a + 1 for a in axes)])
        x = ops.reshape(x, ShapeExpr([each, simple(n * groups), *places]))
    gy = ops.permute_dims(gy, axes=[1, 0, *axes])
    gradient = _by_ndim(ndim)(x, gy, conv.dilation, conv.padding, conv.strides, groups)
    return _cut(ops, ops.permute_dims(gradient, axes=[1, 0, *axes]), dims)


def _grad(ndim: int) -> Callable[..., tuple[Any, ...]]:
    def rule(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any, ...]:
        conv = _settings(ndim, dict(call.attrs))
        data, weight = call.args
        for name, e in (("data", data), ("weight", weight)):
            known_sizes(e, name)
        transposed = conv.output_padding is not None
        plain, order = f"NC{conv.spatial}", ("IO" if transposed else "OI") + conv.spatial
        x = conv.data.plain_expr(ops, data, plain)
        w = conv.kernel.plain_expr(ops, weight, order)
        g = conv.out.plain_expr(ops, gy, plain)
        if g.struct_info.dtype is not x.struct_info.dtype:
            g = ops.astype(g, x.struct_info.dtype)
        places, taps = x.struct_info.dims[2:], w.struct_info.dims[2:]
        how = conv.strides, conv.padding, conv.dilation, conv.groups
        if transposed:
            gx = _cut(ops, _by_ndim(ndim)(g, w, *how), places)
        else:
            gx = data_gradient(ops, g, w, places, *how)
        gw = _weight_gradient(ops, *((g, x) if transposed else (x, g)), taps, conv)
        gx = conv.data.from_plain_expr(ops, gx, plain)
        return gx, conv.kernel.from_plain_expr(ops, gw, order)

    return rule


# -- the operators -----------------------------------------------------------------------


def _rules(ndim: int) -> dict[str, Any]:
    return {"numpy": _numpy(ndim), "lower": te_lower(_te(ndim)), "grad": _grad(ndim)}


_WINDOWS = """Convolution over {axes} (the kernel is not turned round).

data     [n, c, {sizes}]    weight  [o, c // groups, {taps}]
returns  [n, o, {results}], each size (size + padding - dilation * (k - 1) - 1) // stride + 1
padding  {padding}

The axes stand as the layouts say. Raises StructInfoError if the channels do not fit `weight`
and `groups`.
"""
_TRANSPOSED = """Transposed convolution over {axes}: what the gradient of `conv{ndim}d` does.

data     [n, c, {sizes}]    weight  [c, o // groups, {taps}]
returns  [n, o, {results}], each size
         (size - 1) * stride - padding + dilation * (k - 1) + output_padding + 1
padding  {padding}; it is cut off the result

Raises StructInfoError if the channels do not fit `weight` and `groups`, or output_padding is
not less than the stride or the dilation.
"""


def _words(ndim: int) -> dict[str, Any]:
    """What the docstrings say of `ndim` axes."""
    letters = SPATIAL[ndim].lower()
    return {
        "ndim": ndim,
        "axes": "1 axis" if ndim == 1 else f"{ndim} axes",
        "sizes": ", ".join(letters),
        "taps": ", ".join(f"k{a}" for a in letters),
        "results": ", ".join(f"{a}o" for a in letters),
        "padding": padding_words(ndim),
    }


def _convolution(ndim: int) -> Operator[...]:
    name, spatial = f"conv{ndim}d", SPATIAL[ndim]

    @prepared(lambda values: _settings(ndim, values))
    @op(f"nn.{name}", **_rules(ndim))
    @named(name, _WINDOWS, **_words(ndim))
    def build(
        data: Expr,
        weight: Expr,
        strides: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"OI{spatial}",
        out_layout: str | None = None,
        out_dtype: str | DataType | None = None,
    ) -> StructInfo:
        attrs = {
            "strides": strides, "padding": padding, "dilation": dilation, "groups": groups,
            "data_layout": data_layout, "kernel_layout": kernel_layout, "out_layout": out_layout,
            "out_dtype": out_dtype,
        }  # fmt: skip
        return _info(data, weight, ndim, attrs)

    return build


def _transposed(ndim: int) -> Operator[...]:
    name, spatial = f"conv{ndim}d_transpose", SPATIAL[ndim]

    @prepared(lambda values: _settings(ndim, values))
    @op(f"nn.{name}", **_rules(ndim))
    @named(name, _TRANSPOSED, **_words(ndim))
    def build(
        data: Expr,
        weight: Expr,
        strides: Any = 1,
        padding: Any = 0,
        output_padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"IO{spatial}",
        out_layout: str | None = None,
        out_dtype: str | DataType | None = None,
    ) -> StructInfo:
        attrs = {
            "strides": strides, "padding": padding, "output_padding": output_padding,
            "dilation": dilation, "groups": groups, "data_layout": data_layout,
            "kernel_layout": kernel_layout, "out_layout": out_layout, "out_dtype": out_dtype,
        }  # fmt: skip
        return _info(data, weight, ndim, attrs)

    return build


conv1d, conv2d, conv3d = map(_convolution, (1, 2, 3))
conv1d_transpose, conv2d_transpose, conv3d_transpose = map(_transposed, (1, 2, 3))
