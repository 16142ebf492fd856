"""Products and convolutions of quantised tensors, in int32, which wraps: sums of
(data - input_zero_point) * (weight - kernel_zero_point).

The scales say what the sums are worth, input_scale * kernel_scale for one of them; they do not
change them. Bytes are multiplied by `matmul_integer` and `conv2d_integer`, for which schedules have
dot products; the rest is computed in int32.
"""

from __future__ import annotations

from typing import Any

from ....base import DataType, StructInfoError
from ....ir import const as const_dim
from ...expr import Constant, const
from ...struct_info import Expr
from ..compound import compound
from ..infer import dtype_of, tensor
from ..names import ops
from ..quant_params import BYTES, one_of
from ..record import Operator
from ..sizes import KnownTensor, want_equal
from .parameters import BY_PLACE, ROUNDS, SMALL, distance, quantised, takes_numbers

_DATA, _KERNEL = ("input_scale", "input_zero_point"), ("kernel_scale", "kernel_zero_point")


def _want_int32(out_dtype: Any) -> None:
    one_of(dtype_of(out_dtype, "out_dtype"), ("int32",), "out_dtype")


def _want_size(wanted: Any, info: KnownTensor, axis: int, name: str) -> None:
    """`wanted` (None: anything) is to be a size of the weight."""
    if wanted is not None:
        text = "{name}: wanted {a}, as weight has; got {b}"
        want_equal(info.dims[axis], const_dim(wanted, "int64"), text, name=name)


def _zero_of(zero_point: Expr, dtype: DataType) -> Expr:
    """A zero point in the dtype of what it belongs to, as the integer operators take it."""
    if isinstance(zero_point, Constant):
        return const(zero_point.data.numpy().astype(str(dtype)))
    return ops.astype(zero_point, str(dtype))


def _are_bytes(*infos: KnownTensor) -> bool:
    return all(str(info.dtype) in BYTES for info in infos)


# -- matrix products -------------------------------------------------------------------------------


def _product(a: Expr, b: Expr, za: Expr, zb: Expr) -> Expr:
    """a [..., m, k] times b [..., n, k]."""
    one, two = tensor(a, "a"), tensor(b, "b")
    order = [*range(two.ndim - 2), two.ndim - 1, two.ndim - 2]
    if _are_bytes(one, two):
        zeros = _zero_of(za, one.dtype), _zero_of(zb, two.dtype)
        return ops.matmul_integer(a, ops.permute_dims(b, axes=order), *zeros)
    left, right = distance(a, za), distance(b, zb, two.ndim - 2)
    return ops.matmul(left, ops.permute_dims(right, axes=order))


@takes_numbers
@compound("qnn.dense", ROUNDS, BY_PLACE)
def dense(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    units: int | None = None,
    out_dtype: str = "int32",
) -> Expr:
    """data [..., k] times weight [n, k] transposed: int32 [..., n].

    units  n, which the weight says, too
    Parameters of data are scalars, those of weight scalars or vectors of n elements.
    """
    _want_int32(out_dtype)
    quantised(data, input_scale, input_zero_point, "data", _DATA, None, SMALL)
    tensor(weight, "weight", ndim=2)
    w = quantised(weight, kernel_scale, kernel_zero_point, "weight", _KERNEL, 0, SMALL)
    _want_size(units, w, 0, "units")
    return _product(data, weight, input_zero_point, kernel_zero_point)


@takes_numbers
@compound("qnn.batch_matmul", ROUNDS, BY_PLACE)
def batch_matmul(
    x: Expr,
    y: Expr,
    x_zero_point: Expr,
    y_zero_point: Expr,
    x_scale: Expr,
    y_scale: Expr,
    out_dtype: str = "int32",
) -> Expr:
    """x [..., m, k] times y [..., n, k] transposed: int32 [..., m, n]. Leading axes broadcast. All
    parameters are scalars.
    """
    _want_int32(out_dtype)
    for e, s, z, name in ((x, x_scale, x_zero_point, "x"), (y, y_scale, y_zero_point, "y")):
        info = quantised(e, s, z, name, (f"{name}_scale", f"{name}_zero_point"), None, SMALL)
        if info.ndim < 2:
            raise StructInfoError(f"{name}: wanted at least 2 dimensions, got {info.ndim}")
    return _product(x, y, x_zero_point, y_zero_point)


# -- convolutions ----------------------------------------------------------------------------------


def _convolution(
    name: str, args: tuple[Expr, ...], channels: Any, kernel_size: Any, out_dtype: Any,
    **attrs: Any,
) -> Expr:  # fmt: skip
    """The convolution `nn.<name>` of data and weight less their zero points."""
    data, weight, zx, zw, sx, sw = args
    _want_int32(out_dtype)
    letters = attrs["kernel_layout"]
    outputs = letters.find("O")
    if outputs < 0 or not isinstance(letters, str):
        raise StructInfoError(f"kernel_layout: wanted one with the letter O, got {letters!r}")
    tensor(data, "data", ndim=len(attrs["data_layout"]))
    tensor(weight, "weight", ndim=len(letters))
    x = quantised(data, sx, zx, "data", _DATA, None, SMALL)
    w = quantised(weight, sw, zw, "weight", _KERNEL, outputs, SMALL)
    transposed, groups = "transpose" in name, attrs["groups"]
    _want_size(channels if not transposed or groups == 1 else None, w, outputs, "channels")
    spatial = [k for k, c in enumerate(letters) if c not in "OI"]
    sizes = (kernel_size,) * len(spatial) if isinstance(kernel_size, int) else kernel_size
    if sizes is not None and len(sizes) != len(spatial):
        raise StructInfoError(f"kernel_size: wanted {len(spatial)} numbers, got {kernel_size}")
    for k, size in zip(spatial, sizes or ()):
        _want_size(size, w, k, "kernel_size")
    if name != "conv2d" or not _are_bytes(x, w):
        left, right = distance(data, zx), distance(weight, zw, outputs)
        return getattr(ops.nn, name)(left, right, **attrs)
    zeros = _zero_of(zx, x.dtype), _zero_of(zw, w.dtype)
    out_layout = attrs.pop("out_layout") or attrs["data_layout"]
    sums = ops.conv2d_integer(data, weight, *zeros, **attrs)
    if out_layout == attrs["data_layout"]:
        return sums
    if sorted(out_layout) != sorted(attrs["data_layout"]):
        raise StructInfoError(f"out_layout: wanted the letters of NCHW, got {out_layout!r}")
    return ops.permute_dims(sums, axes=[attrs["data_layout"].index(c) for c in out_layout])


def _conv(ndim: int) -> Operator[...]:
    spatial = "DHW"[3 - ndim :] if ndim > 1 else "W"

    def rule(
        data: Expr,
        weight: Expr,
        input_zero_point: Expr,
        kernel_zero_point: Expr,
        input_scale: Expr,
        kernel_scale: Expr,
        kernel_size: int | tuple[int, ...] | None = None,
        channels: int | None = None,
        strides: int | tuple[int, ...] = 1,
        padding: int | tuple[int, ...] = 0,
        dilation: int | tuple[int, ...] = 1,
        groups: int = 1,
        data_layout: str = f"NC{spatial}",
        kernel_layout: str = f"OI{spatial}",
        out_layout: str | None = None,
        out_dtype: str = "int32",
    ) -> Expr:
        args = data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale
        return _convolution(
            f"conv{ndim}d", args, channels, kernel_size, out_dtype,
            strides=strides, padding=padding, dilation=dilation, groups=groups,
            data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        )  # fmt: skip

    rule.__name__ = rule.__qualname__ = f"conv{ndim}d"
    rule.__doc__ = f"""{ndim}-D convolution as `nn.conv{ndim}d`, of data less its zero point, which
    padding holds, with weight less its: int32.

    channels, kernel_size  what the weight says, too
    Parameters of data are scalars, those of weight scalars or vectors along its axis O.
    """
    return takes_numbers(compound(f"qnn.conv{ndim}d", ROUNDS, BY_PLACE)(rule))


conv1d, conv2d, conv3d = (_conv(ndim) for ndim in (1, 2, 3))


@takes_numbers
@compound("qnn.conv2d_transpose", ROUNDS, BY_PLACE)
def conv2d_transpose(
    data: Expr,
    weight: Expr,
    input_zero_point: Expr,
    kernel_zero_point: Expr,
    input_scale: Expr,
    kernel_scale: Expr,
    strides: int | tuple[int, ...] = 1,
    padding: int | tuple[int, ...] = 0,
    dilation: int | tuple[int, ...] = 1,
    channels: int | None = None,
    kernel_size: int | tuple[int, ...] | None = None,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "IOHW",
    out_layout: str | None = None,
    output_padding: int | tuple[int, ...] = 0,
    out_dtype: str = "int32",
) -> Expr:
    """Transposed convolution as `nn.conv2d_transpose`, of data and weight less their zero points:
    int32.

    Parameters of data are scalars, those of weight scalars or vectors along its axis O.
    """
    args = data, weight, input_zero_point, kernel_zero_point, input_scale, kernel_scale
    return _convolution(
        "conv2d_transpose", args, channels, kernel_size, out_dtype,
        strides=strides, padding=padding, dilation=dilation, groups=groups,
        data_layout=data_layout, kernel_layout=kernel_layout, out_layout=out_layout,
        output_padding=output_padding,
    )  # fmt: skip
