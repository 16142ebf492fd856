"""Padding, and moving elements between channels and space."""

from __future__ import annotations

from typing import Any

import numpy as np

from ....base import StructInfoError
from ....ir import GT, LT, FloorDiv, FloorMod, IntImm, Max, Min, PrimExpr, Select, const
from ....te import Tensor, compute
from ....tir import all as all_of
from ....tir import if_then_else
from ...expr import Call, PrimValue
from ...rules import Ops
from ...struct_info import Expr, ShapeExpr, StructInfo
from ..broadcast import check_number
from ..faces import prepared
from ..infer import ANY, ELEMENT, known_sizes, shaped, tensor
from ..lower import te_lower
from ..record import missing, op
from ..sizes import want_multiple
from .layout import layout_of
from .window import simple, static, te_pad

# -- pad ------------------------------------------------------------------------------------------

_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
_OTHER_NAMES = {"edge": "replicate", "wrap": "circular"}


def _widths(pad_width: Any, ndim: int) -> tuple[list[int], list[int]]:
    """How much comes before and after each axis."""
    before, after = list(pad_width[::2]), list(pad_width[1::2])
    if len(before) != ndim:
        raise StructInfoError(
            f"pad_width: wanted {2 * ndim} ints, two for each dimension; got {len(pad_width)}"
        )
    return before, after


def _pad_settings(values: dict[str, Any]) -> None:
    mode, value = values["pad_mode"], values.get("pad_value")
    if isinstance(mode, (int, float)) and (isinstance(value, str) or value == 0.0):
        # The order they once had: pad(data, pad_width, pad_value, pad_mode).
        values["pad_mode"] = value if isinstance(value, str) else "constant"
        values["pad_value"] = mode
    width = values["pad_width"]
    if isinstance(width, (tuple, list)) and all(isinstance(p, (tuple, list)) for p in width):
        width = tuple(v for p in width for v in p)
    if not isinstance(width, (tuple, list)) or len(width) % 2:
        raise StructInfoError(
            f"pad_width: wanted (before, after) of each axis, one after the other; got {width!r}"
        )
    if not all(type(v) is int and 0 <= v < 2**31 for v in width):
        raise StructInfoError(f"pad_width: wanted ints >= 0 and < 2**31, got {list(width)}")
    values["pad_width"] = tuple(width)
    mode = values["pad_mode"]
    values["pad_mode"] = _OTHER_NAMES.get(mode, mode) if isinstance(mode, str) else mode


def _pad_te(data: Tensor, pad_width: Any, pad_mode: str, pad_value: float) -> Tensor:
    before, after = _widths(pad_width, data.ndim)
    fill = const(pad_value, data.dtype)
    if pad_mode == "constant" or not any(pad_width):
        filled = te_pad(data, before, after, fill)
        return filled if filled is not data else compute(data.shape, lambda *i: data(*i), "padded")

    def source(i: PrimExpr, size: PrimExpr, b: int) -> PrimExpr:
        place, zero, one = i - b, const(0, i.dtype), const(1, i.dtype)
        if pad_mode == "replicate":
            return Min(Max(place, zero), size - one)
        if pad_mode == "circular":
            return FloorMod(place, size)
        period = Max((size - one) * 2, one)
        folded = FloorMod(place, period)
        return Select(LT(folded, size), folded, period - folded)

    def value(*index: PrimExpr) -> PrimExpr:
        padded = [bool(b or a) for b, a in zip(before, after)]
        own = [source(i, d, b) if p else i for i, d, b, p in zip(index, data.shape, before, padded)]
        # A symbolic axis may turn out empty: then there is nothing to repeat.
        some = [
            GT(d, const(0, d.dtype))
            for d, p in zip(data.shape, padded)
            if p and not isinstance(d, IntImm)
        ]
        return if_then_else(all_of(*some), data(*own), fill) if some else data(*own)

    shape = [d + (b + a) for d, b, a in zip(data.shape, before, after)]
    return compute(tuple(shape), value, "padded")


def _pad_numpy(data: np.ndarray, *, pad_width: Any, pad_mode: str, pad_value: float) -> np.ndarray:
    widths = list(zip(*_widths(pad_width, data.ndim)))
    filled = np.asarray(pad_value).astype(data.dtype)
    empty = any(n == 0 and any(w) for n, w in zip(data.shape, widths))
    if not data.ndim:
        return data
    if pad_mode == "constant" or empty:
        return np.pad(data, widths, constant_values=filled)
    mode: Any = _MODES[pad_mode]
    return np.pad(data, widths, mode=mode)


def _pad_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
    info: Any = call.args[0].struct_info
    sizes = known_sizes(call.args[0])
    before, after = _widths(call.attrs["pad_width"], len(sizes))
    if call.attrs["pad_mode"] == "constant":
        end = [simple(d + b) for d, b in zip(sizes, before)]
        return (ops.strided_slice(gy, axes=list(range(len(sizes))), begin=before, end=end),)
    dims = list(known_sizes(gy, "the result"))
    for axis, (size, b, a) in enumerate(zip(sizes, before, after)):
        if b or a:
            # Padding one axis takes its elements at `source`: each gives its gradient back there.
            dims[axis] = size
            source = _sources(ops, size, b, a, call.attrs["pad_mode"])
            like = ops.zeros(ShapeExpr(dims), info.dtype)
            gy = ops.grad.take_backward(gy, like, source, axis=axis)
    return (gy,)


def _sources(ops: Ops, size: PrimExpr, before: int, after: int, mode: str) -> Any:
    """Which element of an axis of `size` each element of the padded axis repeats."""
    many = PrimValue(simple(size + (before + after)))
    place = ops.arange(PrimValue(const(0, "int64")), many, PrimValue(const(1, "int64")), "int64")
    place, whole = place - before, PrimValue(size)
    if mode == "replicate":
        return ops.minimum(ops.maximum(place, 0), PrimValue(simple(size - 1)))
    if mode == "circular":
        return ops.floor_mod(place, whole)
    period = PrimValue(simple(Max((size - 1) * 2, const(1, "int64"))))
    folded = ops.floor_mod(place, period)
    return ops.where(ops.less(folded, whole), folded, ops.subtract(period, folded))


@prepared(_pad_settings)
@op("nn.pad", _pad_numpy, te_lower(_pad_te), _pad_grad)
def pad(
    data: Expr, pad_width: Any, pad_mode: str = "constant", pad_value: float = 0.0
) -> StructInfo:
    """`data` with more elements around it.

    pad_width  (before, after) of the first axis, then of the next, ...
    pad_mode   "constant" (`pad_value`), "reflect" (mirrored at the outermost element), "replicate"
               (the outermost element; also called "edge"), "circular" (from the other side)
    Raises StructInfoError for another mode, widths that are negative or too few, an empty axis to
    mirror or repeat, and a value that the dtype does not hold.
    """
    info = tensor(data, "data", ANY)
    values = {"pad_width": pad_width, "pad_mode": pad_mode}
    _pad_settings(values)
    if values["pad_mode"] not in tuple(_MODES):
        raise StructInfoError(f"pad_mode: wanted one of {', '.join(_MODES)}, got {pad_mode!r}")
    if info.dtype.kind != "void" and not info.dtype.is_float:
        whole = float(pad_value).is_integer()
        number: Any = int(pad_value) if whole else pad_value
        number = bool(number) if info.dtype.is_bool and number in (0, 1) else number
        check_number(number, info.dtype, "pad_value")
    before, after = _widths(values["pad_width"], info.ndim)
    for k, (d, b, a) in enumerate(zip(info.dims, before, after)):
        if values["pad_mode"] != "constant" and (b or a) and static(d) == 0:
            raise StructInfoError(f"axis {k} of data is empty: there is nothing to {pad_mode}")
    return shaped(info, [d + (b + a) for d, b, a in zip(info.dims, before, after)])


# -- between channels and space -------------------------------------------------------------------


def _factor(value: Any, name: str) -> None:
    if type(value) is not int or value < 1:
        raise StructInfoError(f"{name}: wanted an int >= 1, got {value!r}")


def _divided(dim: Any, of: int, what: str, name: str) -> Any:
    text = "data has {size} {what}; wanted a multiple of {factor}, as {name} says"
    want_multiple(dim, of, text, what=what, factor=of, name=name)
    return simple(dim // of)


def _shuffle_te(data: Tensor, upscale_factor: int) -> Tensor:
    r = upscale_factor
    *lead, c, h, w = data.shape

    def value(*i: PrimExpr) -> PrimExpr:
        *n, k, y, x = i
        f = const(r, k.dtype)
        channel = (k * f + FloorMod(y, f)) * f + FloorMod(x, f)
        return data(*n, channel, FloorDiv(y, f), FloorDiv(x, f))

    return compute((*lead, simple(c // (r * r)), h * r, w * r), value, "shuffled")


def _shuffle_numpy(data: np.ndarray, *, upscale_factor: int) -> np.ndarray:
    r = upscale_factor
    *lead, c, h, w = data.shape
    n = len(lead)
    split = data.reshape(*lead, c // (r * r), r, r, h, w)
    order = (*range(n), n, n + 3, n + 1, n + 4, n + 2)
    return split.transpose(order).reshape(*lead, c // (r * r), h * r, w * r)


def _shuffle_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
    dims = known_sizes(call.args[0])
    r = call.attrs["upscale_factor"]
    *lead, c, h, w = dims
    n = len(lead)
    split = ops.reshape(gy, ShapeExpr([*lead, simple(c // (r * r)), h, r, w, r]))
    moved = ops.permute_dims(split, axes=[*range(n), n, n + 2, n + 4, n + 1, n + 3])
    return (ops.reshape(moved, ShapeExpr(dims)),)


@op(
    "nn.pixel_shuffle",
    numpy=_shuffle_numpy,
    lower=te_lower(_shuffle_te),
    grad=_shuffle_grad,
    layout=missing("channels and space are numbered by position"),
)
def pixel_shuffle(data: Expr, upscale_factor: int) -> StructInfo:
    """[..., c * r * r, h, w] -> [..., c, h * r, w * r]: channels become squares of r x r pixels.

    Raises StructInfoError if the channels are no multiple of r * r.
    """
    info = tensor(data, "data", ANY)
    _factor(upscale_factor, "upscale_factor")
    if info.ndim < 3:
        raise StructInfoError(f"data: wanted 3 or more dimensions, got {info.ndim}")
    r = upscale_factor
    *lead, c, h, w = info.dims
    channels = _divided(c, r * r, "channels", "upscale_factor")
    return shaped(info, [*lead, channels, h * r, w * r])


def _depth_mode(mode: str) -> None:
    if mode not in ("DCR", "CRD"):
        raise StructInfoError(f"mode: wanted DCR or CRD, got {mode!r}")


def _d2s_te(data: Tensor, block_size: int, layout: str, mode: str) -> Tensor:
    lay, b = layout_of(layout, "NCHW", "layout"), block_size
    sizes = lay.sizes(data.shape)
    out = {**sizes, "C": simple(sizes["C"] // (b * b)), "H": sizes["H"] * b, "W": sizes["W"] * b}

    def value(index: dict[str, PrimExpr]) -> PrimExpr:
        f = const(b, index["H"].dtype)
        place = FloorMod(index["H"], f) * f + FloorMod(index["W"], f)
        if mode == "DCR":
            channel = place * out["C"] + index["C"]
        else:
            channel = index["C"] * (f * f) + place
        source = {**index, "C": channel, "H": FloorDiv(index["H"], f), "W": FloorDiv(index["W"], f)}
        return data(*lay.index(source))

    return lay.compute(out, value, "depth_to_space")


def _d2s_numpy(data: np.ndarray, *, block_size: int, layout: str, mode: str) -> np.ndarray:
    lay, b = layout_of(layout, "NCHW", "layout"), block_size
    x = lay.to_plain(data, "NCHW")
    n, c, h, w = x.shape
    c //= b * b
    if mode == "DCR":
        result = x.reshape(n, b, b, c, h, w).transpose(0, 3, 4, 1, 5, 2)
    else:
        result = x.reshape(n, c, b, b, h, w).transpose(0, 1, 4, 2, 5, 3)
    return lay.from_plain(result.reshape(n, c, h * b, w * b), "NCHW")


def _d2s_grad(ops: Ops, call: Call, y: Expr, gy: Expr) -> tuple[Any]:
    return (ops.nn.space_to_depth(gy, **dict(call.attrs)),)


@op("nn.depth_to_space", _d2s_numpy, te_lower(_d2s_te), _d2s_grad)
def depth_to_space(
    data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> StructInfo:
    """[n, c * b * b, h, w] -> [n, c, h * b, w * b]: channels become squares of b x b pixels.

    mode  "DCR": the channel is the last part of a pixel's place in depth; "CRD": the first
    Raises StructInfoError if the channels are no multiple of b * b.
    """
    lay = layout_of(layout, "NCHW", "layout")
    info = tensor(data, "data", ELEMENT, lay.ndim)
    _factor(block_size, "block_size")
    _depth_mode(mode)
    sizes, b = lay.sizes(info.dims), block_size
    sizes["C"] = _divided(sizes["C"], b * b, "channels", "block_size")
    sizes["H"], sizes["W"] = sizes["H"] * b, sizes["W"] * b
    return shaped(info, lay.shape(sizes))


def _s2d_te(data: Tensor, block_size: int, layout: str, mode: str) -> Tensor:
    lay, b = layout_of(layout, "NCHW", "layout"), block_size
    sizes = lay.sizes(data.shape)
    out = {
        "N": sizes["N"],
        "C": sizes["C"] * (b * b),
        "H": simple(sizes["H"] // b),
        "W": simple(sizes["W"] // b),
    }

    def value(index: dict[str, PrimExpr]) -> PrimExpr:
        f = const(b, index["H"].dtype)
        c, many = index["C"], sizes["C"]
        place, channel = (
            (FloorDiv(c, many), FloorMod(c, many))
            if mode == "DCR"
            else (FloorMod(c, f * f), FloorDiv(c, f * f))
        )
        source = {
            "N": index["N"],
            "C": channel,
            "H": index["H"] * f + FloorDiv(place, f),
            "W": index["W"] * f + FloorMod(place, f),
        }
        return data(*lay.index(source))

    return lay.compute(out, value, "space_to_depth")


def _s2d_numpy(data: np.ndarray, *, block_size: int, layout: str, mode: str) -> np.ndarray:
    lay, b = layout_of(layout, "NCHW", "layout"), block_size
    x = lay.to_plain(data, "NCHW")
    n, c, h, w = x.shape
    result = x.reshape(n, c, h // b, b, w // b, b)
    result = result.transpose((0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4))
    return lay.from_plain(result.reshape(n, c * b * b, h // b, w // b), "NCHW")


@op(
    "nn.space_to_depth",
    numpy=_s2d_numpy,
    lower=te_lower(_s2d_te),
    grad=lambda ops, call, y, gy: (ops.nn.depth_to_space(gy, **dict(call.attrs)),),
)
def space_to_depth(
    data: Expr, block_size: int, layout: str = "NCHW", mode: str = "DCR"
) -> StructInfo:
    """[n, c, h * b, w * b] -> [n, c * b * b, h, w]: squares of b x b pixels become channels.

    mode  as `depth_to_space`'s, which it is the reverse of
    Raises StructInfoError if height or width is no multiple of b.
    """
    lay = layout_of(layout, "NCHW", "layout")
    info = tensor(data, "data", ELEMENT, lay.ndim)
    _depth_mode(mode)
    _factor(block_size, "block_size")
    sizes, b = lay.sizes(info.dims), block_size
    sizes["H"] = _divided(sizes["H"], b, "rows", "block_size")
    sizes["W"] = _divided(sizes["W"], b, "columns", "block_size")
    sizes["C"] = sizes["C"] * (b * b)
    return shaped(info, lay.shape(sizes))
